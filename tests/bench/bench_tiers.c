/*
 * The lower tiers against what the same machine does without them, in the same run: the files of
 * the NVMe tier against dd with O_DIRECT on the same disk, checksums and the making of host memory
 * against a copy of memory.  Ways take turns, so that whatever else the machine does falls on all
 * of them alike.  Of a disk all rounds count together, since many disks are fast only for a while;
 * of memory the best.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "tier/checksum.h"
#include "tier/tier.h"

#define MIB   (INT64_C(1) << 20)
#define PIECE (8 * MIB) /* that the executor reads and writes at a time */

struct bench_options {
    const char *dir;
    int64_t bytes, rounds;
};

#define FIELD(m) offsetof(struct bench_options, m)

static const struct ckpt_option table[] = {
    {"dir", CKPT_OPT_STRING, FIELD(dir), "DIR", "the disk to try (default .)"},
    {"bytes", CKPT_OPT_SIZE, FIELD(bytes), "SIZE",
     "of the file, in multiples of 8M (default 512M)"},
    {"rounds", CKPT_OPT_INT, FIELD(rounds), "N", "rounds (default 8)"},
    {0},
};

static int misses;

static void stop(const char *what)
{
    fprintf(stderr, "bench_tiers: %s\n", what);
    exit(1);
}

/* One line of the table: GB/s with and without the tier.  least 0: no target. */
static void row(const char *what, double ours, const char *peer, double theirs, double least)
{
    char target[32] = "";
    bool miss = least > 0 && ours < least * theirs;
    if (least > 0)
        snprintf(target, sizeof target, "  >= %.2f %s", least, miss ? "MISSED" : "met");
    printf("| %-34s | %7.2f | %-26s | %7.2f | %5.2f%s |\n", what, ours / 1e9, peer, theirs / 1e9,
           ours / theirs, target);
    misses += miss;
}

/* Of this thread: whatever else runs takes nothing off it. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double rate(int64_t bytes, double since)
{
    return (double)bytes / (clock_seconds() - since);
}

static void keep_best(double *best, double now)
{
    if (now > *best)
        *best = now;
}

/* Bytes that are not all alike, so that no drive makes them less. */
static void draw(char *dst, int64_t bytes)
{
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(dst + i, &state, 8);
    }
}

/* ---- files ------------------------------------------------------------------------------------
 */

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
        stop(text);
}

static void run_tier(const struct disk *d, bool write)
{
    for (int64_t at = 0; at < d->o->bytes; at += PIECE) {
        const struct tier_ops *ops = d->tier->ops;
        int rc = write ? ops->write(d->tier, at, d->staging, PIECE)
                       : ops->read(d->tier, at, d->staging + PIECE, PIECE);
        if (rc)
            stop(d->tier->reason);
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
        stop("no thread");
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
        row(what, bytes / ways[1].seconds[kind], peers[kind], bytes / ways[0].seconds[kind], 0.95);
    }
}

static void make_source(struct disk *d)
{
    d->source = memfd_create("bench_tiers", MFD_CLOEXEC);
    for (int64_t at = 0; d->source >= 0 && at < d->o->bytes; at += PIECE) {
        if (write(d->source, d->staging, PIECE) != PIECE)
            stop("no memory for what dd writes");
    }
    if (d->source < 0)
        stop(strerror(errno));
}

static void bench_disk(const struct bench_options *o, enum tier_io io)
{
    struct disk d = {.o = o};
    struct tier_directories directories = {.n = 1, .at = {{"", o->bytes}}, .bytes = o->bytes};
    struct tier_nvme_options options = {.directories = &directories, .io = io};
    snprintf(directories.at[0].path, TIER_PATH, "%s", o->dir);
    snprintf(d.file, sizeof d.file, "%.4000s/bench_tiers.tmp-%ld", o->dir, (long)getpid());
    d.staging = aligned_alloc(TIER_BLOCK, 2 * PIECE);
    if (!d.staging)
        stop("no memory");
    draw(d.staging, PIECE);
    options.staging = d.staging;
    options.staged = 2 * PIECE;
    if (tier_open_nvme(&d.tier, &options)) {
        printf("%s\n", error_get());
        free(d.staging);
        return;
    }
    if (d.tier->ops->reserve(d.tier, o->bytes))
        stop(error_get());
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

/* ---- memory -----------------------------------------------------------------------------------
 */

/* Host memory is made once; a page fault and the zeroing of a page are what it takes. */
static double make_rate(int64_t bytes, int threads)
{
    struct tier_host_options o = {.budget = bytes, .node = -1, .threads = threads};
    struct tier *t;
    if (tier_open_host(&t, &o))
        stop(error_get());
    double start = clock_seconds();
    if (t->ops->reserve(t, bytes))
        stop(error_get());
    double reached = rate(bytes, start);
    t->ops->close(t);
    return reached;
}

static double plain_rate(int64_t bytes)
{
    double start = clock_seconds();
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        stop("no memory");
    for (int64_t i = 0; i < bytes; i += 4096)
        p[i] = 1;
    double reached = rate(bytes, start);
    munmap(p, (size_t)bytes);
    return reached;
}

static double sum_rate(const char *data, int64_t bytes)
{
    static volatile uint64_t sink;
    double start = cpu_seconds();
    for (int64_t at = 0; at < bytes; at += MIB)
        sink = checksum(data + at, MIB);
    (void)sink;
    return (double)bytes / (cpu_seconds() - start);
}

static double copy_rate(char *data, int64_t bytes)
{
    double start = cpu_seconds();
    memcpy(data + bytes, data, (size_t)bytes);
    return (double)bytes / (cpu_seconds() - start);
}

static void bench_memory(const struct bench_options *o)
{
    double sum = 0, copy = 0, made = 0, plain = 0;
    int64_t bytes = o->bytes / 2;
    char *data = aligned_alloc(TIER_BLOCK, (size_t)(2 * bytes));
    if (!data)
        stop("no memory");
    draw(data, bytes);
    memset(data + bytes, 1, (size_t)bytes);
    for (int64_t i = 0; i < o->rounds; i++) {
        keep_best(&sum, sum_rate(data, bytes));
        keep_best(&copy, copy_rate(data, bytes));
    }
    free(data);
    for (int64_t i = 0; i < o->rounds; i++) {
        keep_best(&made, make_rate(o->bytes, 0));
        keep_best(&plain, plain_rate(o->bytes));
    }
    row("checksum, one core", sum, "what a block needs", 8e9, 1.);
    row("checksum, one core", sum, "memcpy, one core", copy, 0);
    row("host tier, made and touched", made, "mmap and touch, one core", plain, 1.);
}

int main(int argc, char **argv)
{
    struct bench_options o = {.dir = ".", .bytes = 512 * MIB, .rounds = 8};
    const struct ckpt_option *tables[] = {table};
    if (ckpt_option_table_parse(table, &o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 1, tables)) {
        fprintf(stderr, "bench_tiers: %s\n", ckpt_error(NULL));
        return 2;
    }
    if (o.bytes < PIECE || o.rounds < 1)
        stop("--bytes and --rounds: give 8M and 1 or more");
    o.bytes -= o.bytes % PIECE;
    printf("| %-34s | %7s | %-26s | %7s | ratio |\n", "what", "GB/s", "against", "GB/s");
    bench_disk(&o, TIER_IO_AUTO);
    bench_disk(&o, TIER_IO_POOL);
    bench_memory(&o);
    return misses > 0;
}
