/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small language model of the plain ops: embedding, layer norm with weight and bias, batched
 * products, a masked softmax, and a head that is the table.  Its loss falls; budgets down to the
 * smallest one and offloading change no bit, micro-batches almost nothing; and a second,
 * forward-only program with the same weights gets the same loss.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt.h"

enum { V = 61, D = 32, HEADS = 4, L = 16, BLOCKS = 3, B = 8, STEPS = 6, WEIGHTS = 8 };

struct block {
    ckpt_tensor w[WEIGHTS];
};

struct model {
    ckpt_tensor table, place, w, b;
    struct block block[BLOCKS];
};

static ckpt_tensor heads(ckpt_tape *t, ckpt_tensor x, int64_t n)
{
    x = ckpt_reshape(t, x, 4, (int64_t[]){n, L, HEADS, D / HEADS});
    return ckpt_transpose(t, x, 1, 2);
}

static ckpt_tensor attend(ckpt_tape *t, ckpt_tensor x, const ckpt_tensor *w, int64_t n)
{
    const int64_t square[] = {L, L};
    ckpt_tensor q = heads(t, ckpt_linear(t, x, w[0], CKPT_NONE), n);
    ckpt_tensor k = heads(t, ckpt_linear(t, x, w[1], CKPT_NONE), n);
    ckpt_tensor v = heads(t, ckpt_linear(t, x, w[2], CKPT_NONE), n);
    ckpt_tensor row = ckpt_iota(t, CKPT_I32, 2, square, 0);
    ckpt_tensor later = ckpt_lt(t, row, ckpt_iota(t, CKPT_I32, 2, square, 1));
    ckpt_tensor scores = ckpt_affine(t, ckpt_matmul(t, q, k, false, true), 0.35f, 0.f);
    ckpt_tensor p = ckpt_softmax(t, ckpt_masked_fill(t, scores, later, -1e9f), 3);
    ckpt_tensor y = ckpt_transpose(t, ckpt_matmul(t, p, v, false, false), 1, 2);
    return ckpt_linear(t, ckpt_reshape(t, y, 3, (int64_t[]){n, L, D}), w[3], CKPT_NONE);
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_I32, 2, (int64_t[]){n, L});
    ckpt_tensor next = ckpt_input(t, "next", CKPT_I32, 2, (int64_t[]){n, L});
    ckpt_tensor h = ckpt_add(t, ckpt_embedding(t, m->table, x, -1), m->place);
    for (int i = 0; i < BLOCKS; i++) {
        const ckpt_tensor *w = m->block[i].w;
        h = ckpt_add(t, h, attend(t, ckpt_layer_norm(t, h, w[4], w[5], 1e-5f), w, n));
        ckpt_tensor u = ckpt_gelu_tanh(t, ckpt_linear(t, h, w[6], CKPT_NONE));
        h = ckpt_linear_add(t, u, w[7], CKPT_NONE, h);
    }
    h = ckpt_layer_norm(t, h, m->w, m->b, 1e-5f);
    ckpt_tensor y = ckpt_linear(t, h, m->table, CKPT_NONE);
    ckpt_tensor right = ckpt_gather(t, y, 2, ckpt_unsqueeze(t, next, 2));
    ckpt_tensor loss = ckpt_mean(t, ckpt_sub(t, ckpt_logsumexp(t, y, 4), right), 7);
    loss = ckpt_reshape(t, loss, 0, NULL);
    ckpt_output(t, "loss", loss);
    return loss;
}

static ckpt_tensor weight(ckpt *c, const char *name, int i, int64_t rows, int64_t cols)
{
    char full[32];
    snprintf(full, sizeof full, "%s.%d", name, i);
    if (!cols)
        return ckpt_param(c, full, CKPT_F32, 1, &rows, CKPT_NORMAL(0.5f), true);
    return ckpt_param(c, full, CKPT_F32, 2, (int64_t[]){rows, cols}, CKPT_NORMAL(0.1f), true);
}

static void create(ckpt *c, struct model *m)
{
    m->table = weight(c, "table", 0, V, D);
    m->place = weight(c, "place", 0, L, D);
    m->w = weight(c, "w", 0, D, 0);
    m->b = weight(c, "b", 0, D, 0);
    for (int i = 0; i < BLOCKS; i++) {
        static const char *const name[] = {"q", "k", "v", "o", "n", "m", "up", "down"};
        for (int k = 0; k < WEIGHTS; k++)
            m->block[i].w[k] = weight(c, name[k], i, k == 6 ? 4 * D : D,
                                      k == 4 || k == 5 ? 0
                                      : k == 7         ? 4 * D
                                                       : D);
    }
}

struct result {
    float loss[STEPS], table[V * D], forward;
    int64_t peak, smallest;
};

static int feed(ckpt_program *p)
{
    int32_t x[B * L], next[B * L];
    for (int i = 0; i < B * L; i++) {
        x[i] = i * i * 31 % V;
        next[i] = (x[i] * 3 + 1) % V;
    }
    int rc = ckpt_feed(p, "x", x, sizeof x);
    return rc ? rc : ckpt_feed(p, "next", next, sizeof next);
}

static int run_programs(ckpt *c, struct model *m, struct result *r)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p = NULL, *look = NULL;
    adamw.lr = 0.01f;
    int rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), B, &p);
    for (int i = 0; i < STEPS && !rc; i++) {
        rc = feed(p);
        rc = rc ? rc : ckpt_step(p, &r->loss[i]);
    }
    rc = rc ? rc : ckpt_program_info(p, &info);
    r->peak = info.planned_peak;
    r->smallest = info.min_budget;
    rc = rc ? rc : ckpt_compile(c, record, m, NULL, B, &look);
    rc = rc ? rc : feed(look);
    rc = rc ? rc : ckpt_step(look, NULL);
    rc = rc ? rc : ckpt_fetch(look, "loss", &r->forward, sizeof r->forward);
    rc = rc ? rc : ckpt_param_get(c, m->table, CKPT_VALUE, r->table, V * D);
    ckpt_program_free(look);
    ckpt_program_free(p);
    return rc;
}

static int run(int64_t vram, int64_t host, int64_t micro, struct result *r)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct model m;
    ckpt *c;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.verify = true;
    o.vram = vram;
    o.host = host;
    o.micro_batch = micro;
    memset(r, 0, sizeof *r);
    int rc = ckpt_open(&c, &o);
    if (!rc)
        create(c, &m);
    rc = rc ? rc : run_programs(c, &m, r);
    if (rc)
        printf("FAIL budget %lld, host %lld, micro-batch %lld: %s\n", (long long)vram,
               (long long)host, (long long)micro, ckpt_error(c));
    ckpt_close(c);
    return rc;
}

static int compare(const char *what, const struct result *a, const struct result *b)
{
    if (!memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->table, b->table, sizeof a->table) &&
        a->forward == b->forward)
        return 0;
    return printf("FAIL %s: loss %.9g, not %.9g\n", what, (double)a->loss[STEPS - 1],
                  (double)b->loss[STEPS - 1]) > 0;
}

int main(void)
{
    static struct result free_run, other;
    int failures = run(0, 0, B, &free_run) != 0;
    if (!(free_run.loss[STEPS - 1] < free_run.loss[0] - 0.5f) ||
        !(free_run.forward < free_run.loss[STEPS - 1]))
        failures += printf("FAIL the loss goes from %g to %g and %g\n", (double)free_run.loss[0],
                           (double)free_run.loss[STEPS - 1], (double)free_run.forward) > 0;
    if (!getenv("CKPT_TEST_GPU")) { /* budgets of a GPU hold its context, too */
        int64_t half = (free_run.peak + free_run.smallest) / 2;
        failures += run(half, 0, B, &other) || compare("half way", &other, &free_run);
        failures += run(free_run.smallest, 0, B, &other) || compare("smallest", &other, &free_run);
        failures += run(half, 1 << 28, B, &other) || compare("offloading", &other, &free_run);
    }
    failures += run(0, 0, 2, &other) != 0;
    for (int i = 0; i < STEPS; i++)
        if (fabsf(other.loss[i] - free_run.loss[i]) > 1e-4f * free_run.loss[i])
            failures += printf("FAIL micro-batches: loss %g, not %g\n", (double)other.loss[i],
                               (double)free_run.loss[i]) > 0;
    return failures != 0;
}
