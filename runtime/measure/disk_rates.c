/* SPDX-License-Identifier: Apache-2.0 */
/* Measures disk rates as the NVMe tier achieves them: with its files, requests and checksums. */
#include <stdlib.h>
#include <string.h>
#include "core/thread_team.h"
#include "measure/measure.h"
#include "memory/tier/tier.h"
#include "plan/graph/machine.h"

#define PIECE (INT64_C(8) << 20)   /* bytes per request */
#define BYTES (INT64_C(256) << 20) /* bytes of the file */
#define HALF  (BYTES / 2)

/* Fills with incompressible bytes, so that no drive compresses them. */
static void fill(char *buffer, int64_t bytes)
{
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(buffer + i, &state, 8);
    }
}

/* Transfers the whole file.  Returns B/s, or -1. */
static double transfer(struct tier *t, char *buffer, bool write)
{
    struct tier_stream s = {t, write, 0, BYTES, PIECE, buffer};
    double before = clock_seconds();
    return tier_stream_run(&s) ? -1 : (double)BYTES / (clock_seconds() - before);
}

struct reader {
    struct tier_stream stream;
    int rc;
};

static void *run_reader(void *data)
{
    struct reader *r = data;
    r->rc = tier_stream_run(&r->stream);
    return NULL;
}

/* Writes one half while reading the other.  Returns B/s of each, or -1. */
static double transfer_both(struct tier *t, char *buffer)
{
    struct tier_stream out = {t, true, 0, HALF, PIECE, buffer};
    struct reader in = {{t, false, HALF, HALF, PIECE, buffer + 2 * PIECE}, 0};
    pthread_t thread;
    double before = clock_seconds();
    if (thread_start(&thread, run_reader, &in))
        return -1;
    int rc = tier_stream_run(&out);
    pthread_join(thread, NULL);
    return rc || in.rc ? -1 : (double)HALF / (clock_seconds() - before);
}

/* Writes twice: the first write takes longer, and a step overwrites the same blocks. */
static int measure(struct machine *m, struct tier *t, char *buffer, char *note)
{
    if (t->ops->reserve(t, BYTES))
        return CKPT_EIO;
    if (t->cached) {
        snprintf(note, CKPT_MESSAGE, "the disk was not measured: %s", t->how);
        return 0;
    }
    double written = transfer(t, buffer, true);
    if (written > 0)
        written = transfer(t, buffer, true);
    double read = written > 0 ? transfer(t, buffer, false) : -1;
    double both = read > 0 ? transfer_both(t, buffer) : -1;
    if (both < 0) {
        return error_set(CKPT_EIO, "%s", *t->reason ? t->reason : "no thread for the disk");
    }
    m->nvme_write = written;
    m->nvme_read = read;
    m->nvme_both = both;
    return 0;
}

int measure_disk(struct machine *m, const char *dir, char *note)
{
    struct tier_directories d = {.n = 1, .at = {{"", BYTES}}, .bytes = BYTES};
    struct tier_nvme_options o = {.directories = &d};
    struct tier *t;
    m->nvme_read = m->nvme_write = m->nvme_both = 0;
    if (snprintf(d.at[0].path, TIER_PATH, "%s", dir) >= TIER_PATH) {
        return error_set(CKPT_EINVAL, "the name of the directory is too long");
    }
    char *buffer = aligned_alloc(TIER_BLOCK, 4 * (size_t)PIECE);
    if (!buffer) {
        return error_set(CKPT_ENOMEM, "out of host memory");
    }
    fill(buffer, 4 * PIECE);
    o.staging = buffer;
    o.staged = 4 * PIECE;
    int rc = tier_open_nvme(&t, &o);
    if (!rc)
        rc = measure(m, t, buffer, note);
    bool stuck = t && t->stuck; /* the disk may still write to the buffer later */
    if (t)
        t->ops->close(t);
    if (!stuck)
        free(buffer);
    return rc;
}
