/* SPDX-License-Identifier: Apache-2.0 */
/* fp64 references: norms, modulation, attention, embeddings, patches and losses. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t last(const struct array *x)
{
    return x->shape[x->ndim - 1];
}

void ref_layer_norm(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t D = last(&in[0]);
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t row = 0; row < out->n; row += D) {
        const double *x = in[0].x + row;
        double mean = 0, var = 0;
        for (int64_t i = 0; i < D; i++)
            mean += x[i] / (double)D;
        for (int64_t i = 0; i < D; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)D;
        for (int64_t i = 0; i < D; i++)
            out->x[row + i] = (x[i] - mean) / sqrt(var + a->eps);
    }
}

void ref_rms_norm(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t D = last(&in[0]);
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t row = 0; row < out->n; row += D) {
        const double *x = in[0].x + row;
        double square = 0;
        for (int64_t i = 0; i < D; i++)
            square += x[i] * x[i] / (double)D;
        for (int64_t i = 0; i < D; i++)
            out->x[row + i] = x[i] / sqrt(square + a->eps) * in[1].x[i];
    }
}

void ref_modulate(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[0].x[i] * (1 + in[2].x[array_broadcast(out, &in[2], i)]) +
                    in[1].x[array_broadcast(out, &in[1], i)];
}

void ref_layer_norm_modulate(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array normal[3] = {{0}, in[1], in[2]};
    ref_layer_norm(in, &normal[0], a);
    ref_modulate(normal, out, a);
    array_free(&normal[0]);
}

void ref_gated_residual(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[0].x[i] + in[1].x[array_broadcast(out, &in[1], i)] * in[2].x[i];
}

void ref_rope(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0];
    int64_t D = last(x), inner = 1;
    for (int i = a->axis + 1; i < x->ndim; i++)
        inner *= x->shape[i];
    array_init(out, x->ndim, x->shape);
    for (int64_t i = 0; i < x->n; i += 2) {
        int64_t p = i / inner % x->shape[a->axis], k = i % D / 2;
        const double *angle = in[1].x + (p * (D / 2) + k) * 2;
        out->x[i] = x->x[i] * angle[0] - x->x[i + 1] * angle[1];
        out->x[i + 1] = x->x[i + 1] * angle[0] + x->x[i] * angle[1];
    }
}

void ref_rms_norm_rope(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array normal[2] = {{0}, in[2]};
    ref_rms_norm(in, &normal[0], a);
    ref_rope(normal, out, a);
    array_free(&normal[0]);
}

/* cap tanh(x / cap), or x without a cap. */
static double capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* One query against M keys, `stride` apart: o = softmax(capped(scale q k^T)) v; M may be 0. */
static void attend(const double *q, const double *k, const double *v, int64_t M, int64_t D,
                   int64_t stride, double scale, double cap, double *o)
{
    double *score = calloc((size_t)M + 1, sizeof(*score)), top = -INFINITY, total = 0;
    if (!score)
        exit(99);
    for (int64_t m = 0; m < M; m++) {
        for (int64_t d = 0; d < D; d++)
            score[m] += scale * q[d] * k[m * stride + d];
        score[m] = capped(score[m], cap);
        top = fmax(top, score[m]);
    }
    for (int64_t m = 0; m < M; m++)
        total += score[m] = exp(score[m] - top);
    for (int64_t m = 0; m < M; m++)
        for (int64_t d = 0; d < D; d++)
            o[d] += score[m] / total * v[m * stride + d];
    free(score);
}

void ref_attention(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *q = &in[0], *k = &in[1], *v = &in[2];
    int64_t D = last(q), H = q->shape[q->ndim - 2];
    int64_t L = q->shape[q->ndim - 3], M = k->shape[q->ndim - 3];
    array_init(out, q->ndim, q->shape);
    for (int64_t row = 0; row < q->n / D; row++) {
        int64_t h = row % H, batch = row / H / L;
        int64_t keys = (batch * M * H + h) * D;
        attend(q->x + row * D, k->x + keys, v->x + keys, M, D, H * D, a->scale, a->a,
               out->x + row * D);
    }
}

void ref_cross_attention(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *q = &in[0], *k = &in[1], *v = &in[2], *lens = &in[3];
    int64_t B = q->shape[0], L = q->shape[1], H = q->shape[2], D = q->shape[3], first = 0;
    array_init(out, q->ndim, q->shape);
    for (int64_t b = 0; b < B; first += (int64_t)lens->x[b++])
        for (int64_t row = b * L * H; row < (b + 1) * L * H; row++) {
            int64_t keys = (first * H + row % H) * D;
            attend(q->x + row * D, k->x + keys, v->x + keys, (int64_t)lens->x[b], D, H * D,
                   a->scale, 0, out->x + row * D);
        }
}

void ref_pack(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0];
    int64_t C = x->shape[2], rows = x->shape[0] * x->shape[1], next = 0;
    (void)a;
    array_init(out, 2, (int64_t[]){rows, C});
    for (int64_t row = 0; row < rows; row++)
        if (in[1].x[row] != 0)
            memcpy(out->x + C * next++, x->x + C * row, (size_t)C * sizeof(double));
}

/* size[0] is the dimension, a the longest period. */
void ref_timestep_embedding(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t dim = a->size[0], half = dim / 2;
    array_init(out, 2, (int64_t[]){in[0].n, dim});
    for (int64_t b = 0; b < in[0].n; b++)
        for (int64_t i = 0; i < half; i++) {
            double angle = in[0].x[b] * exp(-log(a->a) * (double)i / (double)half);
            out->x[b * dim + i] = cos(angle);
            out->x[b * dim + half + i] = sin(angle);
        }
}

/*
 * Visits every element of a video [B, C, T, H, W] with its place in the tokens; patch order (c, t,
 * h, w), or (t, h, w, c) if channel_last.
 */
struct patches {
    int64_t C, T, H, W, pt, ph, pw;
    int64_t rows, columns, depth; /* of the grid; depth along time */
};

static int64_t token_place(const struct patches *p, int64_t index, bool channel_last)
{
    int64_t w = index % p->W, h = index / p->W % p->H, t = index / (p->W * p->H) % p->T;
    int64_t c = index / (p->W * p->H * p->T) % p->C, b = index / (p->W * p->H * p->T * p->C);
    int64_t token = (h / p->ph) * p->columns + w / p->pw;
    int64_t inside = (t % p->pt * p->ph + h % p->ph) * p->pw + w % p->pw;
    int64_t volume = p->pt * p->ph * p->pw;
    int64_t feature = channel_last ? inside * p->C + c : c * volume + inside;
    int64_t frame = b * p->depth + t / p->pt;
    return ((frame * p->rows * p->columns) + token) * p->C * volume + feature;
}

/* size: pt, ph, pw, then for unpatchify channels, frames, height, width. */
static struct patches patches_of(const struct op_attr *a, int64_t C, int64_t T, int64_t H,
                                 int64_t W)
{
    struct patches p = {C, T, H, W, a->size[0], a->size[1], a->size[2], 0, 0, 0};
    p.depth = (T + p.pt - 1) / p.pt;
    p.rows = (H + p.ph - 1) / p.ph;
    p.columns = (W + p.pw - 1) / p.pw;
    return p;
}

void ref_patchify(const struct array *in, struct array *out, const struct op_attr *a)
{
    const int64_t *s = in[0].shape;
    struct patches p = patches_of(a, s[1], s[2], s[3], s[4]);
    array_init(out, 4, (int64_t[]){s[0], p.depth, p.rows * p.columns, p.C * p.pt * p.ph * p.pw});
    for (int64_t i = 0; i < in[0].n; i++)
        out->x[token_place(&p, i, false)] = in[0].x[i];
}

void ref_unpatchify(const struct array *in, struct array *out, const struct op_attr *a)
{
    const int64_t *s = a->size + 3;
    struct patches p = patches_of(a, s[0], s[1], s[2], s[3]);
    array_init(out, 5, (int64_t[]){in[0].shape[0], s[0], s[1], s[2], s[3]});
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[0].x[token_place(&p, i, true)];
}

static double sample_mse(const struct array *in, int64_t b)
{
    const struct array *pred = &in[0], *target = &in[1], *mask = &in[2];
    int64_t sample = pred->n / pred->shape[0], T = pred->shape[2];
    int64_t inner = sample / (pred->shape[1] * T);
    double sum = 0, count = 0;
    for (int64_t i = 0; i < sample; i++) {
        double d = pred->x[b * sample + i] - target->x[b * sample + i];
        if (mask->ndim >= 0 && mask->x[b * T + i / inner % T] == 0)
            continue;
        sum += d * d;
        count++;
    }
    return count > 0 ? sum / count : 0;
}

void ref_mse(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t B = in[0].shape[0];
    (void)a;
    array_init(out, 0, NULL);
    for (int64_t b = 0; b < B; b++)
        out->x[0] += sample_mse(in, b) / (double)B;
}

void ref_cross_entropy(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t B = in[0].shape[0], V = in[0].shape[1];
    array_init(out, 0, NULL);
    for (int64_t b = 0; b < B; b++) {
        const double *x = in[0].x + b * V;
        double total = 0;
        for (int64_t i = 0; i < V; i++)
            total += exp(capped(x[i], a->a));
        out->x[0] += (log(total) - capped(x[(int64_t)in[1].x[b]], a->a)) / (double)B;
    }
}
