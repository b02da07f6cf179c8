/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of language models on random shapes, in the manner of test_gradients: causal, windows,
 * grouped heads, biases, packed documents, lengths, sinks, and all of them together.
 */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

/* ---- the reference -------------------------------------------------------------------------- */

enum { Q, K, V, BIAS, FIRST, LENGTHS, SINK, OPERANDS };

/* The attributes of a case: axis is causal, size[0] the window. */
static bool sees(const struct array *in, const struct op_attr *a, int64_t row, int64_t key)
{
    const struct array *q = &in[Q];
    int64_t L = q->shape[q->ndim - 3], M = in[K].shape[q->ndim - 3], H = q->shape[q->ndim - 2];
    int64_t batch = row / H / L, i = row / H % L, n = M;
    if (in[LENGTHS].ndim >= 0)
        n = (int64_t)fmin(fmax(in[LENGTHS].x[batch], 0), (double)M);
    int64_t place = n - L + i;
    if (key >= n || (a->axis && key > place) || (a->size[0] && key <= place - a->size[0]))
        return false;
    return in[FIRST].ndim < 0 || key >= (int64_t)in[FIRST].x[batch * L + i];
}

/* The bias of a score, broadcast from the right to [..., H, L, M]. */
static double bias_of(const struct array *in, int64_t row, int64_t key)
{
    const struct array *q = &in[Q], *b = &in[BIAS];
    int64_t H = q->shape[q->ndim - 2], L = q->shape[q->ndim - 3], batch = row / H / L;
    int64_t at = 0, step = 1;
    for (int i = 1; i <= b->ndim; i++) {
        int64_t size = b->shape[b->ndim - i], index;
        if (i <= 3) {
            index = i == 1 ? key : i == 2 ? row / H % L : row % H;
        } else {
            index = batch % q->shape[q->ndim - i];
            batch /= q->shape[q->ndim - i];
        }
        at += (size == 1 ? 0 : index) * step;
        step *= size;
    }
    return b->ndim < 0 ? 0 : b->x[at];
}

static void ref_masked(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *q = &in[Q], *k = &in[K];
    int64_t D = q->shape[q->ndim - 1], H = q->shape[q->ndim - 2], L = q->shape[q->ndim - 3];
    int64_t M = k->shape[q->ndim - 3], KV = k->shape[q->ndim - 2];
    double *score = calloc((size_t)M + 1, sizeof *score);
    if (!score)
        exit(99);
    array_init(out, q->ndim, q->shape);
    for (int64_t row = 0; row < q->n / D; row++) {
        int64_t shared = row % H / (H / KV), from = (row / H / L * M * KV + shared) * D;
        double top = -INFINITY, total = 0;
        for (int64_t m = 0; m < M; m++) {
            score[m] = sees(in, a, row, m) ? bias_of(in, row, m) : -INFINITY;
            for (int64_t d = 0; d < D; d++)
                score[m] += a->scale * q->x[row * D + d] * k->x[from + m * KV * D + d];
            top = fmax(top, score[m]);
        }
        if (in[SINK].ndim >= 0) {
            top = fmax(top, in[SINK].x[row % H]);
            total = exp(in[SINK].x[row % H] - top);
        }
        for (int64_t m = 0; m < M && top > -INFINITY; m++)
            total += score[m] = exp(score[m] - top);
        for (int64_t m = 0; m < M && top > -INFINITY; m++)
            for (int64_t d = 0; d < D; d++)
                out->x[row * D + d] += score[m] / total * in[V].x[from + m * KV * D + d];
    }
    free(score);
}

static ckpt_tensor record_masked(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    spec.scale = (float)c->attr.scale;
    spec.causal = c->attr.axis;
    spec.window = c->attr.size[0];
    spec.first = in[FIRST];
    spec.lengths = in[LENGTHS];
    spec.sink = in[SINK];
    return ckpt_attention(t, in[Q], in[K], in[V], in[BIAS], &spec);
}

/* ---- cases ---------------------------------------------------------------------------------- */

struct wish {
    bool causal, window, grouped, bias, first, lengths, sink;
    bool square;   /* as many keys as queries */
    int64_t width; /* of the large trials */
};

/* [..., L, H, D] and [..., M, KV, D]. */
static void draw_heads(struct rng *r, int trial, const struct wish *w, int *ndim, int64_t *q,
                       int64_t *k)
{
    *ndim = trial < TRIAL_LARGE ? draw_rank(r, 3, 5) : 4;
    for (int i = 0; i < *ndim; i++)
        q[i] = k[i] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 2);
    int at = *ndim - 3;
    if (trial > TRIAL_TINY) {
        q[at] = trial < TRIAL_LARGE ? rng_range(r, 1, 7) : rng_range(r, 90, 140);
        k[at] = w->square             ? q[at]
                : trial < TRIAL_LARGE ? rng_range(r, 1, 7)
                                      : rng_range(r, 129, 150);
        k[at + 1] = trial < TRIAL_LARGE ? rng_range(r, 1, 2) : 1;
        q[at + 1] = k[at + 1] * (w->grouped ? rng_range(r, 2, 3) : 1);
        q[at + 2] = k[at + 2] = trial < TRIAL_LARGE ? 8 * rng_range(r, 1, 2) : w->width;
    }
    if (trial == 5) /* not in pieces of 16 bytes */
        q[at + 2] = k[at + 2] = 5;
}

static void draw_places(struct op_case *c, struct rng *r, int ndim, const int64_t *shape,
                        int64_t most)
{
    struct operand *o = case_add(c, r, ROLE_INDEX, ndim, shape);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = (double)rng_range(r, -1, most + 1);
}

/* Broadcast along any axis but the keys: a constant added to all scores has no gradient. */
static void add_bias(struct op_case *c, struct rng *r, int ndim, const int64_t *all)
{
    int64_t shape[CKPT_MAX_DIMS];
    int left_out = (int)rng_range(r, 0, ndim - 1);
    for (int i = left_out; i < ndim; i++)
        shape[i] = i + 1 < ndim && rng_range(r, 0, 2) == 0 ? 1 : all[i];
    case_add(c, r, ROLE_PARAM, ndim - left_out, shape + left_out);
}

static void draw_wish(struct op_case *c, struct rng *r, int trial, const struct wish *w)
{
    int64_t q[CKPT_MAX_DIMS], k[CKPT_MAX_DIMS], all[CKPT_MAX_DIMS];
    int ndim;
    draw_heads(r, trial, w, &ndim, q, k);
    case_add(c, r, ROLE_PARAM, ndim, q)->keep_last = true;
    case_add(c, r, ROLE_PARAM, ndim, k)->keep_last = true;
    case_add(c, r, ROLE_PARAM, ndim, k)->keep_last = true;
    for (int i = 0; i < ndim; i++)
        all[i] = q[i];
    all[ndim - 3] = q[ndim - 2];
    all[ndim - 2] = q[ndim - 3];
    all[ndim - 1] = k[ndim - 3];
    if (w->bias)
        add_bias(c, r, ndim, all);
    else
        case_add_absent(c);
    if (w->first)
        draw_places(c, r, ndim - 2, q, k[ndim - 3]);
    else
        case_add_absent(c);
    if (w->lengths)
        draw_places(c, r, ndim - 3, q, k[ndim - 3]);
    else
        case_add_absent(c);
    if (w->sink)
        case_add(c, r, ROLE_PARAM, 1, &q[ndim - 2]);
    else
        case_add_absent(c);
    c->attr.axis = w->causal;
    c->attr.size[0] = w->window ? rng_range(r, 1, trial < TRIAL_LARGE ? 4 : 150) : 0;
    c->attr.scale = (float)(1 / sqrt((double)q[ndim - 1]));
}

#define DRAW(name, ...)                                                                            \
    static void draw_##name(struct op_case *c, struct rng *r, int trial)                           \
    {                                                                                              \
        draw_wish(c, r, trial, &(struct wish){__VA_ARGS__});                                       \
    }

DRAW(causal, .causal = true, .square = true, .width = 64)
DRAW(causal_cross, .causal = true, .width = 128)
DRAW(window, .causal = true, .window = true, .width = 72)
DRAW(grouped, .grouped = true, .width = 64)
DRAW(grouped_causal, .grouped = true, .causal = true, .square = true, .width = 128)
DRAW(bias, .bias = true, .width = 64)
DRAW(bias_causal, .bias = true, .causal = true, .grouped = true, .width = 40)
DRAW(documents, .causal = true, .first = true, .square = true, .width = 64)
DRAW(lengths, .lengths = true, .width = 80)
DRAW(wide, .causal = true, .grouped = true, .width = 256)
DRAW(everything, .causal = true, .window = true, .grouped = true, .bias = true, .first = true,
     .lengths = true, .width = 96)
DRAW(sink, .causal = true, .square = true, .grouped = true, .sink = true, .width = 64)
DRAW(sink_window, .causal = true, .window = true, .grouped = true, .sink = true, .width = 64)
DRAW(sink_everything, .causal = true, .window = true, .grouped = true, .lengths = true,
     .sink = true, .width = 72)

static const struct op_row rows[] = {
    {"causal", draw_causal, record_masked, ref_masked},
    {"causal_cross", draw_causal_cross, record_masked, ref_masked},
    {"window", draw_window, record_masked, ref_masked},
    {"grouped", draw_grouped, record_masked, ref_masked},
    {"grouped_causal", draw_grouped_causal, record_masked, ref_masked},
    {"bias", draw_bias, record_masked, ref_masked},
    {"bias_causal", draw_bias_causal, record_masked, ref_masked},
    {"documents", draw_documents, record_masked, ref_masked},
    {"lengths", draw_lengths, record_masked, ref_masked},
    {"wide", draw_wide, record_masked, ref_masked},
    {"everything", draw_everything, record_masked, ref_masked},
    {"sink", draw_sink, record_masked, ref_masked},
    {"sink_window", draw_sink_window, record_masked, ref_masked},
    {"sink_everything", draw_sink_everything, record_masked, ref_masked},
    {NULL, NULL, NULL, NULL}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
