/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lower tiers against the same work without them, on the same machine in the same run: files of
 * the NVMe tier against dd with O_DIRECT on the same disk, checksums and the allocation of host
 * memory against a memory copy.  The variants run in turn, so that other load on the machine
 * affects all of them alike.  Many disks are fast only for a while, so each round of a disk is
 * compared with its neighbour, and the median counts; for memory the best round counts.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "bench/bench_tiers.h"
#include "core/checksum.h"
#include "ckpt_tools.h"
#include "memory/tier/tier.h"

#define MIB (INT64_C(1) << 20)

#define ROW(...) CKPT_OPTION(struct bench_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("dir", STRING, dir, "DIR", "the disk to try (default .)"),
    ROW("bytes", SIZE, bytes, "SIZE", "of the file, in multiples of 8M (default 512M)"),
    ROW("device", STRING, device, "NAME", "cpu, cuda or auto (default auto)"),
    ROW("rounds", INT, rounds, "N", "rounds (default 8)"),
    {0},
};

static int misses;

_Noreturn void bench_stop(const char *what)
{
    fprintf(stderr, "bench_tiers: %s\n", what);
    exit(1);
}

void bench_row_ratio(const char *what, double ours, const char *peer, double theirs, double ratio,
                     double least)
{
    char target[32] = "";
    bool miss = least > 0 && ratio < least;
    if (least > 0)
        snprintf(target, sizeof target, "  >= %.2f %s", least, miss ? "MISSED" : "met");
    printf("| %-34s | %7.2f | %-26s | %7.2f | %5.2f%s |\n", what, ours / 1e9, peer, theirs / 1e9,
           ratio, target);
    misses += miss;
}

void bench_row(const char *what, double ours, const char *peer, double theirs, double least)
{
    bench_row_ratio(what, ours, peer, theirs, ours / theirs, least);
}

/* CPU time of this thread: other processes do not count. */
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

void bench_draw(char *dst, int64_t bytes)
{
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(dst + i, &state, 8);
    }
}

/* ---- memory -----------------------------------------------------------------------------------
 */

/* Host memory is allocated once; the time is page faults and the zeroing of pages. */
static double make_rate(int64_t bytes, int threads)
{
    struct tier_host_options o = {.budget = bytes, .node = -1, .threads = threads};
    struct tier *t;
    if (tier_open_host(&t, &o))
        bench_stop(error_get());
    double start = clock_seconds();
    if (t->ops->reserve(t, bytes))
        bench_stop(error_get());
    double reached = rate(bytes, start);
    t->ops->close(t);
    return reached;
}

static double plain_rate(int64_t bytes)
{
    double start = clock_seconds();
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        bench_stop("no memory");
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
        bench_stop("no memory");
    bench_draw(data, bytes);
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
    bench_row("checksum, one core", sum, "what a block needs", 8e9, 1.);
    bench_row("checksum, one core", sum, "memcpy, one core", copy, 0);
    bench_row("host tier, made and touched", made, "mmap and touch, one core", plain, 1.);
}

int main(int argc, char **argv)
{
    struct bench_options o = {.dir = ".", .device = "auto", .bytes = 512 * MIB, .rounds = 8};
    const struct ckpt_option *tables[] = {table};
    if (ckpt_option_table_parse(table, &o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 1, tables)) {
        fprintf(stderr, "bench_tiers: %s\n", ckpt_error(NULL));
        return 2;
    }
    if (o.bytes < BENCH_PIECE || o.rounds < 1)
        bench_stop("--bytes and --rounds: give 8M and 1 or more");
    o.bytes -= o.bytes % BENCH_PIECE;
    printf("| %-34s | %7s | %-26s | %7s | ratio |\n", "what", "GB/s", "against", "GB/s");
    bench_disk(&o);
    bench_memory(&o);
    bench_device(&o);
    return misses > 0;
}
