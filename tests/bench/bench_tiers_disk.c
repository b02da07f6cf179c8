/* The files of the NVMe tier against dd with O_DIRECT on the same disk. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bench/bench_tiers.h"
#include "tier/tier.h"

struct disk {
    const struct bench_options *o;
    struct tier *tier;
    char *staging; /* a piece to write, a piece to read */
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
    for (int64_t at = 0; at < d->o->bytes; at += BENCH_PIECE) {
        const struct tier_ops *ops = d->tier->ops;
        int rc = write ? ops->write(d->tier, at, d->staging, BENCH_PIECE)
                       : ops->read(d->tier, at, d->staging + BENCH_PIECE, BENCH_PIECE);
        if (rc)
            bench_stop(d->tier->reason);
    }
}

struct way {
    const struct disk *d;
    void (*run)(const struct disk *d, bool write);
    double seconds[3]; /* to read, to write, to do both at once */
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

static void run_round(struct way *w, int kind)
{
    double start = clock_seconds();
    if (kind == 2)
        run_both(w);
    else
        w->run(w->d, kind);
    w->seconds[kind] += clock_seconds() - start;
}

static void measure_disk(const struct disk *d)
{
    static const char *const names[] = {"read", "write", "both at once"};
    static const char *const peers[] = {"dd iflag=direct bs=8M", "dd oflag=direct bs=8M",
                                        "two dd at once"};
    struct way ways[] = {{d, run_dd, {0}}, {d, run_tier, {0}}};
    for (int64_t i = 0; i < 3 * d->o->rounds; i++) {
        run_round(&ways[i % 2], (int)(i / d->o->rounds));
        run_round(&ways[1 - i % 2], (int)(i / d->o->rounds));
    }
    for (int kind = 0; kind < 3; kind++) {
        char what[64];
        double bytes = (double)(d->o->bytes * d->o->rounds * (kind == 2 ? 2 : 1));
        snprintf(what, sizeof what, "nvme tier, %s", names[kind]);
        bench_row(what, bytes / ways[1].seconds[kind], peers[kind], bytes / ways[0].seconds[kind],
                  0.95);
    }
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
    d.staging = aligned_alloc(TIER_BLOCK, 2 * BENCH_PIECE);
    if (!d.staging)
        bench_stop("no memory");
    bench_draw(d.staging, BENCH_PIECE);
    options.staging = d.staging;
    options.staged = 2 * BENCH_PIECE;
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
    measure_disk(&d);
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
