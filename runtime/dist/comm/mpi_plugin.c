/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link between MPI processes, as a separate shared object: the only file that includes mpi.h.
 * It needs only link.h of libckpt.  MPI only carries messages; libckpt computes the sums, because
 * MPI leaves their order to the implementation and the number of hosts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <mpi.h>
#include "dist/comm/link.h"

enum { TAG_MESSAGE = 1, TAG_ABORT = 2 };

struct mpi_link {
    struct link link;
    MPI_Comm comm;
    bool ours; /* MPI was initialized here and is finalized here */
    struct link_part *parts[LINK_SLOTS];
    MPI_Request *sends[LINK_SLOTS], *receives[LINK_SLOTS];
};

static struct mpi_link *mpi(struct link *l)
{
    return (struct mpi_link *)l;
}

/* False if MPI reported an error; stores the reason. */
static bool accepted(struct mpi_link *m, int rc, int rank)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (rc == MPI_SUCCESS)
        return true;
    if (!*m->link.reason) {
        MPI_Error_string(rc, text, &length);
        snprintf(m->link.reason, sizeof m->link.reason, "MPI: %.200s", text);
        m->link.lost = rank;
    }
    return false;
}

static void mpi_start(struct link *l, int slot, struct link_part *parts)
{
    struct mpi_link *m = mpi(l);
    m->parts[slot] = parts;
    for (int r = 0; r < l->size; r++) {
        m->sends[slot][r] = m->receives[slot][r] = MPI_REQUEST_NULL;
        if (!parts[r].came)
            accepted(m,
                     MPI_Irecv(parts[r].in, (int)parts[r].capacity, MPI_BYTE, r, TAG_MESSAGE,
                               m->comm, &m->receives[slot][r]),
                     r);
    }
    for (int r = 0; r < l->size; r++)
        if (!parts[r].sent)
            accepted(m,
                     MPI_Isend(parts[r].out, (int)parts[r].out_bytes, MPI_BYTE, r, TAG_MESSAGE,
                               m->comm, &m->sends[slot][r]),
                     r);
}

static void progress_part(struct mpi_link *m, int slot, int r)
{
    struct link_part *part = &m->parts[slot][r];
    MPI_Status status;
    int done = 0, bytes = 0;
    if (!part->sent && accepted(m, MPI_Test(&m->sends[slot][r], &done, MPI_STATUS_IGNORE), r))
        part->sent = done != 0;
    if (!part->came && accepted(m, MPI_Test(&m->receives[slot][r], &done, &status), r) && done) {
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        part->got = bytes;
        part->came = true;
    }
}

static void poll_abort(struct mpi_link *m)
{
    MPI_Status status;
    int there = 0;
    char text[LINK_SENTENCE];
    if (!accepted(m, MPI_Iprobe(MPI_ANY_SOURCE, TAG_ABORT, m->comm, &there, &status), -1) || !there)
        return;
    MPI_Recv(text, sizeof text, MPI_BYTE, status.MPI_SOURCE, TAG_ABORT, m->comm, MPI_STATUS_IGNORE);
    text[sizeof text - 1] = '\0';
    if (!*m->link.abort_text)
        memcpy(m->link.abort_text, text, sizeof text);
}

static bool mpi_progress(struct link *l)
{
    struct mpi_link *m = mpi(l);
    for (int slot = 0; slot < LINK_SLOTS; slot++)
        for (int r = 0; r < l->size && m->parts[slot]; r++)
            if (r != l->rank)
                progress_part(m, slot, r);
    poll_abort(m);
    return !*l->reason;
}

/* MPI makes progress only inside its calls, so sleeps are short. */
static void mpi_wait(struct link *l, double seconds)
{
    struct timespec t = {0, (long)(seconds * 1e9)};
    (void)l;
    nanosleep(&t, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The buffer outlives the call: a stalled rank will read the sentence later. */
static void mpi_abort(struct link *l, const char *sentence)
{
    struct mpi_link *m = mpi(l);
    char *text = calloc(1, LINK_SENTENCE);
    MPI_Request *requests = calloc((size_t)l->size, sizeof *requests);
    int done = 0, n = 0;
    if (!text || !requests) {
        free(text);
        free(requests);
        return;
    }
    snprintf(text, LINK_SENTENCE, "%s", sentence);
    for (int r = 0; r < l->size; r++)
        if (r != l->rank && MPI_Isend(text, LINK_SENTENCE, MPI_BYTE, r, TAG_ABORT, m->comm,
                                      &requests[n]) == MPI_SUCCESS)
            n++;
    for (double end = now() + 1; !done && now() < end; mpi_wait(l, 1e-3))
        if (MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            break;
    if (!done)
        return;
    free(text);
    free(requests);
}

/* After a failure MPI_Finalize would wait for missing ranks, so it is not called. */
static bool mpi_close(struct link *l, bool failed)
{
    struct mpi_link *m = mpi(l);
    if (failed)
        return false;
    if (m->comm != MPI_COMM_NULL)
        MPI_Comm_free(&m->comm);
    if (m->ours)
        MPI_Finalize();
    for (int slot = 0; slot < LINK_SLOTS; slot++) {
        free(m->sends[slot]);
        free(m->receives[slot]);
    }
    free(m);
    return true;
}

static const struct link_ops mpi_ops = {.start = mpi_start,
                                        .progress = mpi_progress,
                                        .wait = mpi_wait,
                                        .abort = mpi_abort,
                                        .close = mpi_close};

/* The first line of MPI's version text. */
static void describe(struct mpi_link *m)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    snprintf(m->link.how, sizeof m->link.how, "%.100s", text);
}

/* Initializes MPI unless the program did.  Returns an error text, or NULL. */
static const char *begin(bool *ours)
{
    int started = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&ended);
    if (ended)
        return "MPI has ended in this process and cannot start again";
    MPI_Initialized(&started);
    if (started)
        MPI_Query_thread(&level);
    else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return "MPI_Init_thread failed";
    *ours = !started;
    if (level < MPI_THREAD_SERIALIZED)
        return "this MPI, or the program that started it, allows calls from one thread only; "
               "libckpt needs MPI_THREAD_SERIALIZED";
    return NULL;
}

static bool make(struct mpi_link *m)
{
    if (MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) != MPI_SUCCESS)
        return false;
    MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->comm, &m->link.rank);
    MPI_Comm_size(m->comm, &m->link.size);
    for (int slot = 0; slot < LINK_SLOTS; slot++) {
        m->sends[slot] = calloc((size_t)m->link.size, sizeof(MPI_Request));
        m->receives[slot] = calloc((size_t)m->link.size, sizeof(MPI_Request));
        if (!m->sends[slot] || !m->receives[slot])
            return false;
    }
    return true;
}

__attribute__((visibility("default"))) struct link *ckpt_link_mpi(int abi, char *reason,
                                                                  size_t size)
{
    struct mpi_link *m = abi == LINK_ABI ? calloc(1, sizeof *m) : NULL;
    if (!m) {
        snprintf(reason, size, "%s",
                 abi == LINK_ABI ? "no memory" : "the plugin is of another version of libckpt");
        return NULL;
    }
    m->link = (struct link){.ops = &mpi_ops, .lost = -1};
    m->comm = MPI_COMM_NULL;
    const char *wrong = begin(&m->ours);
    if (!wrong && !make(m))
        wrong = "no memory, or MPI_Comm_dup failed";
    if (wrong) {
        snprintf(reason, size, "%s", wrong);
        mpi_close(&m->link, false);
        return NULL;
    }
    describe(m);
    return &m->link;
}
