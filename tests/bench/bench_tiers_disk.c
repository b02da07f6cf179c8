/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the NVMe tier against dd with O_DIRECT on the same disk. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bench/bench_tiers.h"
#include "memory/tier/tier.h"

enum { SLOTS = 2 }; /* of each direction: one is under way, one begun */

struct disk {
    const struct bench_options *o;
    struct tier *tier;
    char *staging; /* slots of a piece: those to write, those to read */
    int source;    /* a file in memory, of the same bytes, that dd writes */
    char file[4096];
};

static void run_dd(const struct disk *d, bool write)
{
    char command[3 * sizeof d->file];
    if (write)
        snprintf(command, sizeof command,
                 "dd if=/proc/%ld/fd/%d of='%s' bs=8M oflag=direct conv=notrunc 2>&1",
                 (long)getpid(), d->source, d->file);
    else
        snprintf(command, sizeof command, "dd if='%s' of=/dev/null bs=8M iflag=direct 2>&1",
                 d->file);
    FILE *f = popen(command, "r");
    char text[1024];
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (!f || pclose(f))
        bench_stop(text);
}

static void run_tier(const struct disk *d, bool write)
{
    struct tier_stream s = {d->tier,     write,
                            0,           d->o->bytes,
                            BENCH_PIECE, d->staging + (write ? 0 : SLOTS * BENCH_PIECE)};
    if (tier_stream_run(&s))
        bench_stop(d->tier->reason);
}

struct way {
    const struct disk *d;
    void (*run)(const struct disk *d, bool write);
    double seconds; /* of the last round */
};

static void *run_reader(void *arg)
{
    struct way *w = arg;
    w->run(w->d, false);
    return NULL;
}

static void run_both(struct way *w)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_reader, w))
        bench_stop("no thread");
    w->run(w->d, true);
    pthread_join(thread, NULL);
}

/* To read, to write, and to do both at once. */
static void run_round(struct way *w, int kind)
{
    double start = clock_seconds();
    if (kind == 2)
        run_both(w);
    else
        w->run(w->d, kind);
    w->seconds = clock_seconds() - start;
}

static void measure_kind(const struct disk *d, int kind)
{
    static const char *const names[] = {"read", "write", "both at once"};
    static const char *const peers[] = {"dd iflag=direct bs=8M", "dd oflag=direct bs=8M",
                                        "two dd at once"};
    struct way ways[] = {{d, run_dd, 0}, {d, run_tier, 0}};
    int64_t n = d->o->rounds;
    double *ours = malloc((size_t)n * 3 * sizeof *ours), *theirs = ours + n, *ratios = theirs + n;
    if (!ours)
        bench_stop("no memory");
    for (int64_t i = 0; i < n; i++) {
        run_round(&ways[i % 2], kind);
        run_round(&ways[1 - i % 2], kind);
        theirs[i] = ways[0].seconds;
        ours[i] = ways[1].seconds;
        ratios[i] = theirs[i] / ours[i];
    }
    char what[64];
    double bytes = (double)(d->o->bytes * (kind == 2 ? 2 : 1));
    snprintf(what, sizeof what, "nvme tier, %s", names[kind]);
    bench_row_ratio(what, bytes / median_of(ours, (int32_t)n), peers[kind],
                    bytes / median_of(theirs, (int32_t)n), median_of(ratios, (int32_t)n), 0.95);
    free(ours);
}

static void make_source(struct disk *d)
{
    d->source = memfd_create("bench_tiers", MFD_CLOEXEC);
    for (int64_t at = 0; d->source >= 0 && at < d->o->bytes; at += BENCH_PIECE) {
        if (write(d->source, d->staging, BENCH_PIECE) != BENCH_PIECE)
            bench_stop("no memory for what dd writes");
    }
    if (d->source < 0)
        bench_stop(strerror(errno));
}

static void bench_back_end(const struct bench_options *o, enum tier_io io)
{
    struct disk d = {.o = o};
    struct tier_directories directories = {.n = 1, .at = {{"", o->bytes}}, .bytes = o->bytes};
    struct tier_nvme_options options = {.directories = &directories, .io = io};
    snprintf(directories.at[0].path, TIER_PATH, "%s", o->dir);
    snprintf(d.file, sizeof d.file, "%.4000s/bench_tiers.tmp-%ld", o->dir, (long)getpid());
    d.staging = aligned_alloc(TIER_BLOCK, 2 * SLOTS * BENCH_PIECE);
    if (!d.staging)
        bench_stop("no memory");
    bench_draw(d.staging, 2 * SLOTS * BENCH_PIECE);
    options.staging = d.staging;
    options.staged = 2 * SLOTS * BENCH_PIECE;
    if (tier_open_nvme(&d.tier, &options)) {
        printf("%s\n", error_get());
        free(d.staging);
        return;
    }
    if (d.tier->ops->reserve(d.tier, o->bytes))
        bench_stop(error_get());
    printf("%s: %s\n", o->dir, d.tier->how);
    make_source(&d);
    run_dd(&d, true); /* both files have their blocks now, and the tier's have been written */
    run_tier(&d, true);
    for (int kind = 0; kind < 3; kind++)
        measure_kind(&d, kind);
    unlink(d.file);
    close(d.source);
    d.tier->ops->close(d.tier);
    free(d.staging);
}

void bench_disk(const struct bench_options *o)
{
    bench_back_end(o, TIER_IO_AUTO);
    bench_back_end(o, TIER_IO_POOL);
}
