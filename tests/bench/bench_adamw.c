/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AdamW update on the host against a memory copy by the same threads in the same run, in bytes
 * read and written per second.  The variants run in turn, so that other load on the machine affects
 * all of them alike; the best round counts.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "ckpt_tools.h"
#include "memory/device/team.h"
#include "optim/update_math.h"
#include "optim/host_update.h"
#include "optim/optimizer.h"

struct bench_options {
    int64_t numel, rounds, threads, node;
};

#define ROW(...) CKPT_OPTION(struct bench_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("numel", INT, numel, "N", "elements of the parameter (default 33554432)"),
    ROW("rounds", INT, rounds, "N", "rounds, of which the best counts (default 7)"),
    ROW("threads", INT, threads, "N", "threads (default: one for each processor)"),
    ROW("node", INT, node, "N", "keep the threads on this NUMA node (default: anywhere)"),
    {0},
};

/* From NARROW on state is in bf16, from BYTES on its means are in 8 bits. */
enum { W, M, V, EMA, GRADIENT, STREAMS, WAYS = 8, NARROW = 4, BYTES = 6 };

/* Large pages if available, each first touched by the thread that uses it. */
static float *make(int64_t n, float value)
{
    size_t bytes = (size_t)n * sizeof(float);
    float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "bench_adamw: no memory for %lld elements\n", (long long)n);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        p[i] = value;
    return p;
}

/* Copies one half of the streams onto the other; each thread copies its share. */
static double copy_seconds(float *const *stream, int64_t n)
{
    double start = clock_seconds();
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < 64; part++) {
        int64_t from = n * part / 64, bytes = (n * (part + 1) / 64 - from) * (int64_t)sizeof(float);
        memcpy(stream[EMA] + from, stream[W] + from, (size_t)bytes);
        memcpy(stream[V] + from, stream[M] + from, (size_t)bytes);
    }
    return clock_seconds() - start;
}

static double update_seconds(const struct host_update *p)
{
    struct ckpt_adamw options = CKPT_ADAMW_INIT;
    options.ema_decay = 0.999f;
    const struct update_attr attr = optim_adamw_attr(&options);
    struct update_constants c = update_constants_of(&attr);
    c.lr = options.lr;
    double start = clock_seconds();
    host_update(&c, p);
    return clock_seconds() - start;
}

/* The same memory as bf16, or as codes. */
static void make_narrow(struct host_update *p, bool bytes)
{
    p->narrow = true;
    if (bytes) {
        p->byte_m = mean8_at(p->m, p->n, 0);
        p->byte_v = mean8_at(p->v, p->n, 0);
    } else {
        p->half_m = (uint16_t *)(void *)p->m;
        p->half_v = (uint16_t *)(void *)p->v;
    }
    p->w = p->m = p->v = NULL;
}

static const char *best_set(void)
{
    const char *name = NULL;
    for (enum host_update_set set = 0; set < HOST_UPDATE_SETS; set++)
        if (host_update_name(set))
            name = host_update_name(set);
    return name;
}

static int64_t bytes_of(const struct host_update *p)
{
    const int64_t state = p->byte_m.code ? 4 + 4 : p->narrow ? 6 * 2 : 6 * 4 + (p->value ? 2 : 0);
    return p->n * (state + (p->half ? 2 : 4) + (p->ema ? 8 : 0));
}

static void run(const struct bench_options *o, int threads)
{
    float *stream[STREAMS], *value = make((o->numel + 1) / 2, 0.f);
    for (int i = 0; i < STREAMS; i++)
        stream[i] = make(o->numel, 0.375f);
    struct host_update way[WAYS];
    double copy = INFINITY, update[WAYS];
    for (int i = 0; i < WAYS; i++) {
        way[i] = (struct host_update){.w = stream[W],
                                      .m = stream[M],
                                      .v = stream[V],
                                      .ema = i % 2 ? stream[EMA] : NULL,
                                      .value = (uint16_t *)(void *)value,
                                      .gradient = stream[GRADIENT],
                                      .half = i / 2 % 4 > 0,
                                      .n = o->numel};
        if (i >= NARROW)
            make_narrow(&way[i], i >= BYTES);
        update[i] = INFINITY;
    }
    for (int64_t round = 0; round < o->rounds; round++) {
        copy = fmin(copy, copy_seconds(stream, o->numel));
        for (int i = 0; i < WAYS; i++)
            update[i] = fmin(update[i], update_seconds(&way[i]));
    }
    double rate = 16. * (double)o->numel / copy;
    printf("host AdamW: %lld elements, threads: %d, %s; bytes read and written\n",
           (long long)o->numel, threads, best_set());
    printf("%-28s %9s %9s %9s %8s\n", "what", "ms", "GB/s", "of copy", "target");
    printf("%-28s %9.2f %9.1f\n", "memory copy", copy * 1e3, rate * 1e-9);
    for (int i = 0; i < WAYS; i++) {
        double here = (double)bytes_of(&way[i]) / update[i];
        printf("%s gradient%-14s %9.2f %9.1f %9.2f %8s\n", way[i].half ? "bf16" : "fp32",
               i >= BYTES      ? way[i].ema ? ", 8 bits, EMA" : ", 8-bit state"
               : way[i].narrow ? way[i].ema ? ", bf16, EMA" : ", bf16 state"
               : way[i].ema    ? ", EMA"
                               : "",
               update[i] * 1e3, here * 1e-9, here / rate, "0.80");
    }
}

int main(int argc, char **argv)
{
    struct bench_options o = {.numel = INT64_C(1) << 25, .rounds = 7, .node = -1};
    const struct ckpt_option *tables[] = {table};
    if (ckpt_option_table_parse(table, &o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 1, tables)) {
        fprintf(stderr, "bench_adamw: %s\n", ckpt_error(NULL));
        return 2;
    }
    if (o.numel < 1 || o.rounds < 1) {
        fprintf(stderr, "bench_adamw: --numel and --rounds must be 1 or more\n");
        return 2;
    }
    int threads = o.node >= 0 ? host_update_bind((int)o.node, 1, NULL) : team_count(0);
    if (threads < 0) {
        fprintf(stderr, "bench_adamw: %s\n", error_get());
        return 1;
    }
    threads = o.threads > 0 ? (int)o.threads : threads;
    team_size(threads);
    run(&o, threads);
    return 0;
}
