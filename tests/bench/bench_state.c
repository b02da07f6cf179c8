/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error of updates against fp64, for each kind of state: one parameter and AdamW, for a given
 * number of updates.  Gradients are normal noise around a mean that changes slowly, with a
 * log-normal scale for each element, so that elements of a block differ much in size.  The same
 * gradients update a reference in double.
 *
 * Two numbers for each kind.  `one update` compares the last change of a weight with the change by
 * the reference from the same state: the error of the arithmetic and the rounding of the weight
 * alone.  `state` compares it with the reference after all updates in double: the error that the
 * means have accumulated.  Both are relative to the root mean square of the reference's changes, as
 * the mean and the largest of all elements.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "core/mean8.h"
#include "optim/update_math.h"
#include "optim/host_update.h"
#include "optim/optimizer.h"

enum { N = 1 << 14, UPDATES = 2000, KINDS = 3 };

#define D(x) ((double)(x))

/* Means and weights of one way to keep them, as floats after each update. */
struct state {
    float w[N], m[N], v[N];
    uint16_t value[N], half_m[N], half_v[N];
    int32_t byte_m[N], byte_v[N]; /* more than enough words */
};

struct exact {
    double m[N], v[N], change[N];
};

static struct state states[KINDS];
static struct exact all, one;
static float gradient[N], scale[N];

static void draw_gradient(int update)
{
    static float noise[N];
    ckpt_fill_normal(5, (uint64_t)update, 0, noise, N);
    for (int i = 0; i < N; i++)
        gradient[i] = scale[i] * (noise[i] + 0.5f * sinf((float)(update + 7 * i) * 0.003f));
}

/* One update of the reference. */
static void move(struct exact *e, const struct ckpt_adamw *o, int k)
{
    const double beta1 = D(o->beta1), beta2 = D(o->beta2);
    const double unbias1 = 1 / (1 - pow(beta1, k)), unbias2 = 1 / (1 - pow(beta2, k));
    for (int i = 0; i < N; i++) {
        const double g = D(gradient[i]);
        e->m[i] = beta1 * e->m[i] + (1 - beta1) * g;
        e->v[i] = beta2 * e->v[i] + (1 - beta2) * g * g;
        e->change[i] = -e->m[i] * unbias1 / (sqrt(e->v[i] * unbias2) + D(o->eps));
    }
}

static struct host_update call_of(struct state *s, int kind, int update)
{
    struct host_update p = {.gradient = gradient, .n = N};
    if (kind == 0) {
        p.w = s->w, p.m = s->m, p.v = s->v;
        return p;
    }
    p.narrow = true;
    p.value = s->value;
    p.noise = (struct random_stream){.seed = 3, .step = (uint64_t)update};
    if (kind == 1) {
        p.half_m = s->half_m, p.half_v = s->half_v;
    } else {
        p.byte_m = mean8_at(s->byte_m, N, 0), p.byte_v = mean8_at(s->byte_v, N, 0);
    }
    return p;
}

/* Weights and means as floats. */
static void read_state(struct state *s, int kind)
{
    if (kind)
        ckpt_from_bf16(s->value, s->w, N);
    if (kind == 1) {
        ckpt_from_bf16(s->half_m, s->m, N);
        ckpt_from_bf16(s->half_v, s->v, N);
    } else if (kind == 2) {
        mean8_from(s->byte_m, N, false, s->m);
        mean8_from(s->byte_v, N, true, s->v);
    }
}

static void update(struct state *s, int kind, const struct ckpt_adamw *o, int k)
{
    const struct update_attr attr = optim_adamw_attr(o);
    struct update_constants c = update_constants_of(&attr);
    struct host_update p = call_of(s, kind, k);
    c.lr = o->lr;
    c.unbias1 = (float)(1 / (1 - pow(D(o->beta1), k)));
    c.unbias2 = (float)(1 / (1 - pow(D(o->beta2), k)));
    host_update(&c, &p);
}

/* Of the last change of each weight, which begins at 0 so that all of it is seen. */
static void compare(const struct state *s, const struct exact *e, const struct ckpt_adamw *o,
                    double error[2])
{
    double squares = 0, sum = 0, most = 0;
    for (int i = 0; i < N; i++) {
        const double off = fabs(D(s->w[i]) / D(o->lr) - e->change[i]);
        squares += e->change[i] * e->change[i];
        sum += off;
        most = fmax(most, off);
    }
    error[0] = sum / N / sqrt(squares / N);
    error[1] = most / sqrt(squares / N);
}

static void run(int kind, struct ckpt_adamw *o)
{
    static const char *const names[] = {"fp32", "bf16", "8bit"};
    static const double bytes[] = {14, 6, 2 + 2 * 66. / 64};
    struct state *s = &states[kind];
    double once[2], total[2];
    memset(&all, 0, sizeof all);
    for (int k = 1; k <= UPDATES; k++) {
        draw_gradient(k);
        move(&all, o, k);
        if (k == UPDATES) {
            read_state(s, kind);
            for (int i = 0; i < N; i++)
                one.m[i] = D(s->m[i]), one.v[i] = D(s->v[i]);
            move(&one, o, k);
            memset(s->w, 0, sizeof s->w);
            memset(s->value, 0, sizeof s->value);
        }
        update(s, kind, o, k);
    }
    read_state(s, kind);
    compare(s, &one, o, once);
    compare(s, &all, o, total);
    printf("%-6s %9.2f %13.1e %10.1e %13.1e %10.1e\n", names[kind], bytes[kind], once[0], once[1],
           total[0], total[1]);
}

int main(void)
{
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    o.weight_decay = 0.f;
    o.lr = 0x1p-10f;
    ckpt_fill_normal(1, 2, 3, scale, N);
    for (int i = 0; i < N; i++)
        scale[i] = expf(1.5f * scale[i]) * 1e-3f;
    printf("AdamW, %d elements, update %d against fp64; errors over the root mean square change\n",
           N, UPDATES);
    printf("%-6s %9s %13s %10s %13s %10s\n", "state", "bytes", "one: mean", "worst", "all: mean",
           "worst");
    for (int kind = 0; kind < KINDS; kind++)
        run(kind, &o);
    return 0;
}
