/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a save costs a run on the CPU: steps of a small network whose state is large, with states
 * that are written at once and by a thread (--save-async), in turns, beside a plain file of as many
 * bytes that is written and synced.
 *
 *     bench_saves [MB [ROUNDS [THREADS]]]
 *
 * Prints, as medians: a step without a save; the stall of a save; the steps while the thread
 * writes; the whole save and its rate, as a share of the plain file's; and processor time, which
 * other programs on the machine hardly change: of the save without the steps beside it, of the
 * plain file, and of one copy of as many bytes in memory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_optim.h"
#include "ckpt_tools.h"

enum { WIDTH = 1024, LAYERS = 64, BATCH = 8, MOST = 4000, ROUNDS = 100 };

static const char *const path = "bench_saves.tmp";

struct bench {
    ckpt *c;
    ckpt_program *p;
    ckpt_tensor weight[LAYERS];
    int layers;
    float x[BATCH * WIDTH];
};

/* Of all threads of the process. */
static double cpu_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Medians of these. */
enum { STEP, STALL, BESIDE, WHOLE, STEP_CPU, SAVE_CPU, STALL_CPU, KINDS };
struct times {
    double all[MOST];
    int n;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void add(struct times *t, double ms)
{
    if (t->n < MOST)
        t->all[t->n++] = ms;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(struct times *t)
{
    if (!t->n)
        return 0;
    qsort(t->all, (size_t)t->n, sizeof *t->all, ascending);
    return t->all[t->n / 2];
}

static void must(const struct bench *b, int rc)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_saves: %s\n", ckpt_error(b->c));
    exit(1);
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct bench *b = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, WIDTH}), h = x;

    for (int i = 0; i < b->layers; i++)
        h = ckpt_gelu_tanh(t, ckpt_linear(t, h, b->weight[i], CKPT_NONE));
    return ckpt_mean(t, ckpt_mul(t, ckpt_sub(t, h, x), ckpt_sub(t, h, x)), 3);
}

static void open_bench(struct bench *b, bool async, int64_t bytes, int64_t threads)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;

    o.device = "cpu";
    o.threads = threads;
    o.save_async = async;
    o.host = async ? bytes + (64 << 20) : 0;
    adamw.ema_decay = 0.999f;
    must(b, ckpt_open(&b->c, &o));
    for (int i = 0; i < b->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d", i);
        b->weight[i] =
            ckpt_param(b->c, name, CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    }
    must(b, ckpt_compile(b->c, record, b, ckpt_adamw(b->c, &adamw), BATCH, &b->p));
}

/* A step beside a save is of another kind, without processor time. */
static void step(struct bench *b, struct times *t, int kind)
{
    const double from = now(), cpu = cpu_now();

    must(b, ckpt_feed(b->p, "x", b->x, sizeof b->x));
    must(b, ckpt_step(b->p, NULL));
    if (!t)
        return;
    add(&t[kind], now() - from);
    if (kind == STEP)
        add(&t[STEP_CPU], cpu_now() - cpu);
}

static ino_t file_now(void)
{
    struct stat st;

    return stat(path, &st) ? 0 : st.st_ino;
}

/* Steps until the new state is in place, then waits for what is left. */
static void save(struct bench *b, struct times *t)
{
    const ino_t before = file_now();
    const double from = now(), cpu = cpu_now(), one = median(&t[STEP_CPU]);
    int steps = 0;

    must(b, ckpt_save_state(b->c, path));
    add(&t[STALL], now() - from);
    add(&t[STALL_CPU], cpu_now() - cpu);
    for (; ckpt_is_saving(b->c) && file_now() == before; steps++)
        step(b, t, BESIDE);
    must(b, ckpt_save_wait(b->c));
    add(&t[WHOLE], now() - from);
    add(&t[SAVE_CPU], cpu_now() - cpu - steps * one);
}

/* t: time and processor time. */
static void write_plain(int64_t bytes, struct times t[2])
{
    static char block[1 << 20];
    const double from = now(), cpu = cpu_now();
    const int fd = open("bench_saves.plain", O_WRONLY | O_CREAT | O_TRUNC, 0600);

    memset(block, 7, sizeof block);
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof block)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block)
            exit(1);
    if (fd < 0 || fsync(fd) || close(fd))
        exit(1);
    add(&t[0], now() - from);
    add(&t[1], cpu_now() - cpu);
    unlink("bench_saves.plain");
}

/* From one buffer to another, both touched before. */
static void copy_memory(int64_t bytes, struct times *t)
{
    static char *buffer[2];

    for (int i = 0; i < 2; i++) {
        if (!buffer[i] && !(buffer[i] = malloc((size_t)bytes)))
            exit(1);
        if (!t->n)
            memset(buffer[i], i + 1, (size_t)bytes);
    }
    const double cpu = cpu_now();
    memcpy(buffer[t->n % 2], buffer[(t->n + 1) % 2], (size_t)bytes);
    add(t, cpu_now() - cpu);
}

static void report(const char *how, struct times *t, double plain)
{
    const double one = median(&t[STEP]), stall = median(&t[STALL]), during = median(&t[BESIDE]);
    const double whole = median(&t[WHOLE]);

    printf("%-8s %8.1f %8.1f %6.1f %% %8.1f %6.1f %% %8.0f %7.2f %9.0f %9.0f\n", how, one, stall,
           100 * stall / one, during, during > 0 ? 100 * (during / one - 1) : 0, whole,
           plain / whole, median(&t[STALL_CPU]), median(&t[SAVE_CPU]));
}

int main(int argc, char **argv)
{
    static struct bench b[2];
    static struct times t[2][KINDS], plain[2], copy;
    const int64_t one = 4 * WIDTH * WIDTH * (int64_t)sizeof(float); /* of a layer, with its state */
    int64_t bytes = (argc > 1 ? atol(argv[1]) : 256) << 20;
    const int rounds = argc > 2 ? atoi(argv[2]) : 7;

    for (int k = 0; k < 2; k++) {
        b[k].layers = (int)(bytes / one < 1 ? 1 : bytes / one > LAYERS ? LAYERS : bytes / one);
        ckpt_fill_normal(1, 2, 3, b[k].x, BATCH * WIDTH);
        open_bench(&b[k], k, b[k].layers * one, argc > 3 ? atol(argv[3]) : 1);
        step(&b[k], NULL, STEP);
    }
    bytes = b[0].layers * one;
    for (int i = 0; i < rounds && i < ROUNDS; i++) {
        write_plain(bytes, plain);
        copy_memory(bytes, &copy);
        for (int k = 0; k < 2; k++) {
            for (int s = 0; s < 5; s++)
                step(&b[k], t[k], STEP);
            save(&b[k], t[k]);
        }
    }
    const double disk = median(&plain[0]);
    printf("a state of %lld MB, %d rounds; a plain file takes %.0f ms (%.0f MB/s), %.0f of a "
           "processor; a copy in memory %.0f\n",
           (long long)(bytes >> 20), rounds, disk, (double)(bytes >> 20) / disk * 1e3,
           median(&plain[1]), median(&copy));
    printf("%-8s %8s %8s %8s %8s %8s %8s %7s %9s %9s\n", "save", "step, ms", "stall", "of step",
           "beside", "slower", "whole", "of disk", "stall CPU", "whole CPU");
    report("at once", t[0], disk);
    report("thread", t[1], disk);
    for (int k = 0; k < 2; k++)
        ckpt_close(b[k].c);
    unlink(path);
    return 0;
}
