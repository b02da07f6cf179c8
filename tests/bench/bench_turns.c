/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of changing from one program to another, by the clock of tests/exec: STDiT3-XL/2 in
 * several buckets, planned for another machine, whose steps are submitted to a device that only
 * counts the time.
 *
 *     bench_turns --machine h200-141 --vram 24G --host 64G 8x15x18x32 2x15x30x54 1x15x46x80
 *
 * names buckets by batch, frames, height and width of their latents.  EMA=1 in the environment: the
 * optimizer keeps an average; GRAD=1: gradients are fp32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "context/context.h"
#include "examples/video/stdit/model.h"
#include "exec/clock.h"

enum { MOST = 32, TOKENS = 300, STEPS = 60, WARM = 3 };

struct bucket {
    const struct stdit *model;
    struct video_geometry geometry;
    int64_t batch;
    ckpt_program *program;
    double alone; /* seconds of a step behind one of its own */
};

static int fail(const char *sentence)
{
    fprintf(stderr, "%s\n", sentence);
    return 1;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct bucket *b = user;
    const struct video_geometry *g = &b->geometry;
    int64_t z[] = {batch, 4, g->frames, g->height, g->width};
    int64_t y[] = {batch, TOKENS, b->model->config.caption_channels};
    struct stdit_inputs in = {0};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 5, z);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    in.y = ckpt_input(t, "y", CKPT_BF16, 3, y);
    in.mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){batch, TOKENS});
    in.fps = ckpt_input(t, "fps", CKPT_F32, 1, &batch);
    ckpt_tensor eps = ckpt_randn(t, CKPT_F32, 5, z);
    in.x = ckpt_add(t, x, eps);
    ckpt_tensor both = stdit_forward(b->model, t, g, &in);
    ckpt_tensor pred = ckpt_cast(t, ckpt_slice(t, both, 1, 0, 4), CKPT_F32);
    return ckpt_mse(t, pred, ckpt_sub(t, x, eps), CKPT_NONE);
}

static bool read_bucket(struct bucket *b, const char *text, const struct stdit *model)
{
    long long n[4];
    if (sscanf(text, "%lldx%lldx%lldx%lld", &n[0], &n[1], &n[2], &n[3]) != 4)
        return false;
    *b = (struct bucket){.model = model, .batch = n[0]};
    b->geometry = (struct video_geometry){.frames = n[1],
                                          .height = n[2],
                                          .width = n[3],
                                          .tokens = TOKENS,
                                          .pixel_height = 8. * (double)n[2],
                                          .pixel_width = 8. * (double)n[3]};
    return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double run(struct clock *k, struct bucket *b, int n)
{
    double from = k->now[QUEUE_COMPUTE];
    for (int i = 0; i < n; i++)
        clock_step(k, b->program);
    return k->now[QUEUE_COMPUTE] - from;
}

static void print_alone(struct clock *k, struct bucket *b, int n)
{
    printf("%-18s %10s %10s %8s %8s\n", "bucket", "planned ms", "alone ms", "arena", "segments");
    for (int i = 0; i < n; i++) {
        run(k, &b[i], WARM);
        b[i].alone = run(k, &b[i], WARM) / WARM;
        const struct plan *p = b[i].program->plan;
        printf("%3lldx%3lldx%3lldx%3lld    %10.1f %10.1f %8.2f %8d\n", (long long)b[i].batch,
               (long long)b[i].geometry.frames, (long long)b[i].geometry.height,
               (long long)b[i].geometry.width, 1e3 * p->seconds, 1e3 * b[i].alone,
               (double)p->transient / (1 << 30), (int)b[i].program->n_segments);
    }
}

/* Milliseconds to change from the row's bucket to the column's. */
static void print_changes(struct clock *k, struct bucket *b, int n)
{
    printf("ms that a change costs, by row from and column to\n");
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            run(k, &b[i], WARM);
            double cost = run(k, &b[j], WARM) - WARM * b[j].alone;
            printf(" %7.1f", 1e3 * cost);
        }
        printf("\n");
    }
}

static void print_mixed(struct clock *k, struct bucket *b, int n)
{
    double planned = 0, alone = 0;
    run(k, &b[0], WARM);
    double from = k->now[QUEUE_COMPUTE], before[CLOCK_WAITS];
    memcpy(before, k->waited, sizeof before);
    for (int s = 0; s < STEPS; s++) {
        float u;
        ckpt_fill_uniform(11, (uint64_t)s, 2, &u, 1);
        int i = (int)(u * (float)n) % n;
        clock_step(k, b[i].program);
        planned += b[i].program->plan->seconds;
        alone += b[i].alone;
    }
    double took = k->now[QUEUE_COMPUTE] - from;
    printf("%d steps of %d buckets: %.3f s, planned %.3f: %.3f; of alone %.3f; waited own %.3f "
           "other %.3f joint %.3f\n",
           (int)STEPS, n, took, planned, took / planned, took / alone,
           k->waited[CLOCK_OWN] - before[CLOCK_OWN], k->waited[CLOCK_OTHER] - before[CLOCK_OTHER],
           k->waited[CLOCK_JOINT] - before[CLOCK_JOINT]);
}

static int measure(ckpt *c, struct bucket *b, int n)
{
    struct clock k;
    if (clock_begin(&k, &c->programs))
        return fail("no memory");
    print_alone(&k, b, n);
    print_changes(&k, b, n);
    print_mixed(&k, b, n);
    clock_end(&k);
    return 0;
}

int main(int argc, char **argv)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct stdit_config config = {.hidden = 1152,
                                  .heads = 16,
                                  .depth = 28,
                                  .in_channels = 4,
                                  .caption_channels = 4096,
                                  .text_tokens = TOKENS,
                                  .mlp_ratio = 4,
                                  .dtype = CKPT_BF16};
    struct stdit model = {0};
    struct bucket b[MOST];
    ckpt *c;
    int n = 0;
    a.eps = 1e-15f;
    a.clip_norm = 1;
    a.ema_decay = getenv("EMA") ? 0.99f : 0;
    a.grad_dtype = getenv("GRAD") ? CKPT_F32 : CKPT_BF16;
    if (ckpt_options_parse(&o, &argc, argv))
        return fail(ckpt_error(NULL));
    o.plan_only = true;
    if (ckpt_open(&c, &o))
        return fail(ckpt_error(NULL));
    if (stdit_create(&model, c, &config))
        return fail(ckpt_error(c));
    const ckpt_optimizer *adamw = ckpt_adamw(c, &a);
    ckpt_plan_in_full(c, false);
    for (int i = 1; i < argc && n < MOST; i++) {
        if (!read_bucket(&b[n], argv[i], &model))
            return fail("give buckets as BATCHxFRAMESxHEIGHTxWIDTH");
        if (ckpt_compile(c, record, &b[n], adamw, b[n].batch, &b[n].program))
            return fail(ckpt_error(c));
        n++;
    }
    int rc = measure(c, b, n);
    ckpt_close(c);
    stdit_free(&model);
    return rc;
}
