/* SPDX-License-Identifier: Apache-2.0 */
/* States in the memory of an elastic job: see peers.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dist/peers.h"

/* The numbers of the two files, for the program that is executed next. */
#define FILES "LIBCKPT_PEERS"
#define MAGIC UINT64_C(0x31737265657074ab)

enum { HALVES = 2, PAGE = 4096 };

/* The first page of a file; then the own part, and the part of the rank before it. */
struct half {
    uint64_t magic;
    int32_t rank, size;       /* of the job that this process is in */
    uint64_t of_job;          /* of the state: the job that wrote it, */
    int32_t of_rank, of_size; /* and what this process was in it */
    int64_t updates, room;    /* -1: it is being written; bytes for a part */
    int64_t bytes[2];         /* of the parts */
    int64_t saved;            /* 1: the job has a state on the disk */
};

struct peers {
    int fd[HALVES];
    struct half *half[HALVES];
    int64_t mapped[HALVES];
    int next;        /* the pair that is written next */
    uint64_t job;    /* this one */
    bool again;      /* this process was in a job before */
    int64_t planned; /* bytes of host memory */
};

static int fail(const char *what)
{
    return error_set(CKPT_ENOMEM, "the memory for states of an elastic job %s: %s", what,
                     strerror(errno));
}

/* ---- the files ------------------------------------------------------------------------------- */

static int map(struct peers *p, int i, int64_t bytes)
{
    if (p->half[i])
        munmap(p->half[i], (size_t)p->mapped[i]);
    p->half[i] = NULL;
    if (ftruncate(p->fd[i], bytes))
        return fail("cannot be had");
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd[i], 0);
    if (at == MAP_FAILED)
        return fail("cannot be mapped");
    p->half[i] = at;
    p->mapped[i] = bytes;
    return 0;
}

static int make(struct peers *p, int i)
{
    p->fd[i] = memfd_create("ckpt-peers", MFD_CLOEXEC);
    if (p->fd[i] < 0)
        return fail("cannot be had");
    int rc = map(p, i, PAGE);
    if (!rc)
        *p->half[i] = (struct half){.magic = MAGIC, .updates = -1};
    return rc;
}

/* Whether the file is one of a program before. */
static bool is_ours(const struct half *h, int64_t bytes)
{
    return h->magic == MAGIC && h->size > 0 && h->rank >= 0 && h->rank < h->size && h->room >= 0 &&
           h->room <= (bytes - PAGE) / 2 && h->of_rank >= 0 && h->of_rank <= h->of_size;
}

static int inherit(struct peers *p, int i, int fd)
{
    struct stat st;
    p->fd[i] = fd;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) || fstat(fd, &st) || st.st_size < PAGE)
        return error_set(CKPT_EINVAL, FILES " in the environment names no memory of a job: unset "
                                            "it");
    int rc = map(p, i, st.st_size);
    if (!rc && !is_ours(p->half[i], st.st_size))
        rc = error_set(CKPT_EINVAL, FILES " in the environment names other memory: unset it");
    return rc;
}

void peers_close(struct peers *p)
{
    for (int i = 0; p && i < HALVES; i++) {
        if (p->half[i])
            munmap(p->half[i], (size_t)p->mapped[i]);
        if (p->fd[i] >= 0)
            close(p->fd[i]);
    }
    free(p);
}

int peers_open(struct peers **out, int *rank, int *size)
{
    const char *text = getenv(FILES);
    struct peers *p = calloc(1, sizeof *p);
    int fd[HALVES], rc = 0;
    const bool inherits = text && sscanf(text, "%d,%d", &fd[0], &fd[1]) == HALVES;
    if (!p)
        return error_set(CKPT_ENOMEM, "no memory for an elastic job");
    p->fd[0] = p->fd[1] = -1;
    unsetenv(FILES); /* it is for this program alone */
    for (int i = 0; i < HALVES && !rc; i++)
        rc = inherits ? inherit(p, i, fd[i]) : make(p, i);
    if (rc) {
        peers_close(p);
        return rc;
    }
    *rank = p->half[0]->rank;
    *size = p->half[0]->size;
    p->again = *size > 0;
    p->next = p->half[0]->updates > p->half[1]->updates;
    *out = p;
    return 0;
}

static int size_of(const struct comm *hosts)
{
    return hosts ? hosts->size : 1;
}

int peers_join(struct peers *p, struct comm *hosts)
{
    if (getrandom(&p->job, sizeof p->job, 0) != sizeof p->job)
        return fail("has no number");
    if (hosts && comm_broadcast(hosts, &p->job, sizeof p->job, "the number of the job"))
        return error_set(CKPT_ECOMM, "%s", hosts->reason);
    for (int i = 0; i < HALVES; i++) {
        p->half[i]->rank = hosts ? hosts->rank : 0;
        p->half[i]->size = size_of(hosts);
    }
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The largest of all ranks. */
static int most_of_all(struct comm *hosts, int64_t *n)
{
    int64_t *all = calloc((size_t)size_of(hosts), sizeof *all);
    if (!all)
        return error_set(CKPT_ENOMEM, "no memory for an elastic job");
    int rc = hosts ? comm_gather(hosts, n, all, sizeof *n, "sizes of states") : 0;
    for (int r = 0; hosts && r < hosts->size && !rc; r++)
        *n = max_i64(*n, all[r]);
    free(all);
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

int peers_begin(struct peers *p, struct comm *hosts, int64_t bytes, int *fd, int64_t *offset)
{
    const int i = p->next;
    int64_t room = bytes;
    p->half[i]->updates = -1;
    int rc = most_of_all(hosts, &room);
    room = round_up(room, PAGE);
    if (!rc && p->mapped[i] != PAGE + 2 * room)
        rc = map(p, i, PAGE + 2 * room);
    if (rc)
        return rc;
    p->half[i]->room = room;
    *fd = p->fd[i];
    *offset = PAGE;
    return 0;
}

/* The parts differ in length, so each rank sends as many bytes as the longest has. */
static int exchange(struct comm *hosts, struct half *h)
{
    char *own = (char *)h + PAGE, *other = own + h->room;
    if (!hosts)
        return 0;
    const struct comm_call parts = {.kind = COMM_SHIFT,
                                    .dtype = CKPT_I32,
                                    .count = h->room / 4,
                                    .src = own,
                                    .dst = other,
                                    .name = "states in memory"};
    const struct comm_call sizes = {.kind = COMM_SHIFT,
                                    .dtype = CKPT_I32,
                                    .count = sizeof h->bytes[0] / 4,
                                    .src = &h->bytes[0],
                                    .dst = &h->bytes[1],
                                    .name = "sizes of states in memory"};
    int rc = comm_run(hosts, &sizes, NULL);
    rc = rc ? rc : comm_run(hosts, &parts, NULL);
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

int peers_end(struct peers *p, struct comm *hosts, int64_t bytes, int64_t updates)
{
    struct half *h = p->half[p->next];
    h->bytes[0] = bytes;
    h->of_job = p->job;
    h->of_rank = h->rank;
    h->of_size = h->size;
    int rc = exchange(hosts, h);
    if (rc)
        return rc;
    h->updates = updates;
    p->next = !p->next;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

void peers_state_free(struct peers_state *s)
{
    free(s->holder);
    free(s->half);
    free(s->previous);
    free(s->bytes);
    *s = (struct peers_state){.parts = 0};
}

/* Notes that rank r has a part in pair i. */
static void note_part(struct peers_state *s, int part, int r, int i, bool previous, int64_t bytes)
{
    if (s->holder[part] >= 0)
        return;
    s->holder[part] = r;
    s->half[part] = i;
    s->previous[part] = previous;
    s->bytes[part] = bytes;
}

/* Fills s with the parts of the state of `like`; returns whether all are there. */
static bool collect(struct peers_state *s, const struct half *all, int n, const struct half *like)
{
    int missing = 0;
    s->job = like->of_job;
    s->updates = like->updates;
    s->parts = like->of_size;
    for (int k = 0; k < s->parts; k++)
        s->holder[k] = -1;
    for (int k = 0; k < n * HALVES; k++) {
        const struct half *h = &all[k];
        if (h->of_job != like->of_job || h->updates != like->updates || h->of_size != s->parts)
            continue;
        note_part(s, h->of_rank, k / HALVES, k % HALVES, false, h->bytes[0]);
        note_part(s, (h->of_rank + s->parts - 1) % s->parts, k / HALVES, k % HALVES, true,
                  h->bytes[1]);
    }
    for (int k = 0; k < s->parts; k++)
        missing += s->holder[k] < 0;
    return !missing;
}

static bool is_whole(const struct half *h)
{
    return h->updates >= 0 && h->of_size > 0 && h->of_rank >= 0 && h->of_rank < h->of_size &&
           h->of_size < 1 << 20;
}

/* Tries each state that any rank has. */
static int choose(struct peers_state *s, struct half *all, int n)
{
    int32_t most = 1;
    int64_t best = -1;
    int found = -1;
    for (int k = 0; k < n * HALVES; k++) {
        if (!is_whole(&all[k]))
            all[k].updates = -1;
        else
            most = all[k].of_size > most ? all[k].of_size : most;
    }
    s->holder = calloc((size_t)most, sizeof *s->holder);
    s->half = calloc((size_t)most, sizeof *s->half);
    s->previous = calloc((size_t)most, sizeof *s->previous);
    s->bytes = calloc((size_t)most, sizeof *s->bytes);
    if (!s->holder || !s->half || !s->previous || !s->bytes)
        return error_set(CKPT_ENOMEM, "no memory for an elastic job");
    for (int k = 0; k < n * HALVES; k++)
        if (all[k].updates > best && collect(s, all, n, &all[k])) {
            best = all[k].updates;
            found = k;
        }
    s->parts = 0;
    if (found >= 0)
        collect(s, all, n, &all[found]);
    return 0;
}

int peers_find(struct peers *p, struct comm *hosts, struct peers_state *s)
{
    const int n = size_of(hosts);
    struct half own[HALVES];
    *s = (struct peers_state){.parts = 0};
    if (!p)
        return 0;
    struct half *all = calloc((size_t)n, sizeof own);
    if (!all)
        return error_set(CKPT_ENOMEM, "no memory for an elastic job");
    for (int i = 0; i < HALVES; i++)
        own[i] = *p->half[i];
    memcpy(all, own, sizeof own);
    int rc = hosts ? comm_gather(hosts, own, all, sizeof own, "states in memory") : 0;
    rc = rc ? error_set(rc, "%s", hosts->reason) : choose(s, all, n);
    free(all);
    if (rc)
        peers_state_free(s);
    /* A newer pair may be of a state that is not complete: it is the one to write over. */
    for (int i = 0; i < HALVES; i++)
        if (s->parts && own[i].of_job == s->job && own[i].updates == s->updates)
            p->next = !i;
    return rc;
}

int peers_history(struct peers *p, struct comm *hosts, bool *again, bool *saved)
{
    int64_t is_again = p && p->again, is_saved = p && p->half[0]->saved;
    int rc = most_of_all(hosts, &is_again);
    if (!rc)
        rc = most_of_all(hosts, &is_saved);
    *again = is_again;
    *saved = is_saved;
    return rc;
}

void peers_note_saved(struct peers *p)
{
    if (p)
        p->half[0]->saved = 1;
}

int peers_plan(struct peers *p, struct comm *hosts, int64_t bytes, int64_t *more)
{
    int64_t room = bytes;
    int rc = most_of_all(hosts, &room);
    const int64_t all = HALVES * (PAGE + 2 * round_up(room, PAGE));
    *more = max_i64(0, all - p->planned);
    p->planned = max_i64(all, p->planned);
    return rc;
}

int64_t peers_planned(const struct peers *p)
{
    return p ? p->planned : 0;
}

int64_t peers_held(const struct peers *p)
{
    return p ? p->mapped[0] + p->mapped[1] : 0;
}

static int broadcast(struct comm *hosts, int root, void *data, int64_t n)
{
    const struct comm_call call = {.kind = COMM_BROADCAST,
                                   .dtype = CKPT_I32,
                                   .root = root,
                                   .count = n / 4,
                                   .src = data,
                                   .dst = data,
                                   .name = "a state in memory"};
    if (!hosts || !comm_run(hosts, &call, NULL))
        return 0;
    return error_set(CKPT_ECOMM, "%s", hosts->reason);
}

int peers_read(struct peers *p, struct comm *hosts, const struct peers_state *s, int part,
               void *dst, int64_t n, int64_t offset)
{
    enum { CHUNK = 1 << 16 };
    const struct half *h = p->half[s->half[part]];
    const char *from = (const char *)h + PAGE + (s->previous[part] ? h->room : 0);
    char *chunk = malloc(CHUNK);
    int rc = chunk ? 0 : error_set(CKPT_ENOMEM, "no memory to read a state");
    for (int64_t at = 0; at < n && !rc; at += CHUNK) {
        const int64_t bytes = min_i64(CHUNK, n - at);
        memset(chunk + bytes - bytes % 4, 0, bytes % 4 ? 4 : 0);
        if (s->holder[part] == h->rank)
            memcpy(chunk, from + offset + at, (size_t)bytes);
        rc = broadcast(hosts, s->holder[part], chunk, round_up(bytes, 4));
        if (!rc)
            memcpy((char *)dst + at, chunk, (size_t)bytes);
    }
    free(chunk);
    return rc;
}

/* ---- beginning again ------------------------------------------------------------------------- */

/* Keeps the files for the program that is executed next, or the next context. */
static int hand_on(const struct peers *p)
{
    char text[64];
    for (int i = 0; i < HALVES; i++)
        if (fcntl(p->fd[i], F_SETFD, 0))
            return fail("cannot be kept");
    snprintf(text, sizeof text, "%d,%d", p->fd[0], p->fd[1]);
    return setenv(FILES, text, 1) ? fail("cannot be named") : 0;
}

void peers_leave(struct peers *p)
{
    if (p && p->half[0]->size && !hand_on(p))
        p->fd[0] = p->fd[1] = -1;
    peers_close(p);
}

bool peers_are_left(void)
{
    return getenv(FILES) != NULL;
}

int peers_restart(struct peers *p, char *const *argv)
{
    int rc = p ? hand_on(p) : 0;
    if (rc)
        return rc;
    execv("/proc/self/exe", argv);
    return error_set(CKPT_EIO, "this program cannot be executed again: %s", strerror(errno));
}
