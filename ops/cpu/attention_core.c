/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiled attention with a running maximum and sum (Milakov & Gimelshein 2018; Dao et al. 2022).
 * Going backward the probabilities are computed again from the stored lse, so only one row of
 * statistics per query is kept between the passes.
 */
#include "cpu.h"
#include "attention_core.h"
#include "blas.h"
#include "vmath.h"

enum { QUERY_TILE = 128, KEY_TILE = 128 };

/* Floats of each part of a slot. */
struct layout {
    int64_t queries, keys; /* sizes of a tile */
    int64_t query_rows, key_rows, scores, statistics, dq;
};

struct tile {
    float *data;
    int64_t ld;
};

static int64_t tile_count(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

static struct layout layout_of(const struct attention_job *job)
{
    struct layout l;
    l.queries = tile_count(job->n_queries, tile_count(job->n_queries, QUERY_TILE));
    l.keys = tile_count(job->n_keys, tile_count(job->n_keys, KEY_TILE));
    l.query_rows = round_up(l.queries * job->width, 16);
    l.key_rows = round_up(l.keys * job->width, 16);
    l.scores = round_up(l.queries * l.keys, 16);
    l.statistics = round_up(job->n_queries, 16);
    l.dq = job->dtype == CKPT_F32 ? 0 : round_up(job->n_queries * job->width, 16);
    return l;
}

static int64_t forward_floats(const struct layout *l)
{
    return 2 * l->query_rows + 2 * l->key_rows + l->scores + 4 * round_up(l->queries, 16);
}

static int64_t backward_floats(const struct layout *l)
{
    return 2 * l->query_rows + 4 * l->key_rows + 2 * l->scores + l->statistics + l->dq;
}

static int64_t forward_units(const struct attention_job *job, const struct layout *l)
{
    return job->n_heads * tile_count(job->n_queries, l->queries);
}

/* Slots for the units that all heads fall into. */
static int64_t slots_of(const struct attention_job *job, int64_t units)
{
    return cpu_slots(units, 2. * (double)job->n_heads * (double)job->n_queries *
                                (double)job->n_keys * (double)job->width);
}

int64_t attention_forward_workspace(const struct attention_job *job)
{
    struct layout l = layout_of(job);
    return slots_of(job, forward_units(job, &l)) * forward_floats(&l) * (int64_t)sizeof(float);
}

int64_t attention_backward_workspace(const struct attention_job *job)
{
    struct layout l = layout_of(job);
    return slots_of(job, job->n_heads) * backward_floats(&l) * (int64_t)sizeof(float);
}

static float *take(float **scratch, int64_t floats)
{
    float *p = *scratch;
    *scratch += floats;
    return p;
}

static void *row_at(const struct attention_rows *r, int64_t i)
{
    return (char *)r->data + i * r->stride * ckpt_dtype_size(r->dtype);
}

/* Rows [first, first + n) as fp32: where they stand if they are, else converted into scratch. */
static struct tile load_rows(const struct attention_rows *r, int64_t first, int64_t n,
                             int64_t width, float *scratch)
{
    if (r->dtype == CKPT_F32 && r->stride >= width)
        return (struct tile){row_at(r, first), r->stride};
    for (int64_t i = 0; i < n; i++)
        cpu_load(scratch + i * width, row_at(r, first + i), r->dtype, width);
    return (struct tile){scratch, width};
}

/* Where a result is summed up: in place if it is fp32, else in scratch until store_rows. */
static struct tile open_rows(const struct attention_rows *r, int64_t first, int64_t width,
                             float *scratch)
{
    if (r->dtype == CKPT_F32) /* a smaller stride is that of a single row */
        return (struct tile){row_at(r, first), max_i64(r->stride, width)};
    return (struct tile){scratch, width};
}

static void store_rows(const struct attention_rows *r, int64_t first, int64_t n, int64_t width,
                       struct tile from)
{
    if (r->dtype == CKPT_F32)
        return;
    for (int64_t i = 0; i < n; i++)
        cpu_store(row_at(r, first + i), from.data + i * from.ld, r->dtype, width);
}

static void zero_rows(struct tile x, int64_t n, int64_t width)
{
    for (int64_t i = 0; i < n; i++)
        memset(x.data + i * x.ld, 0, (size_t)width * sizeof(float));
}

/* 0 before a single key: its probability is 1 whatever its score, exactly, and gradients of its
 * score are 0. */
static float score_scale(const struct attention_job *job, const struct attention_head *h)
{
    return h->n_keys == 1 ? 0.f : job->scale;
}

enum side { AS_IS, TRANSPOSED };

/* c [m, n] = alpha a b + beta c, where a and b may be stored transposed. */
static void product(enum side ta, enum side tb, int64_t m, int64_t n, int64_t k, float alpha,
                    struct tile a, struct tile b, float beta, struct tile c)
{
    blas_sgemm(m, n, k, alpha, (struct blas_matrix){a.data, a.ld, ta == TRANSPOSED},
               (struct blas_matrix){b.data, b.ld, tb == TRANSPOSED}, beta, c.data, c.ld);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* The largest of n values.  Compared as integers in the order of floats: compilers vectorise that
 * maximum whatever they assume of NaN, which counts as larger than all. */
static inline float row_maximum(const float *x, int64_t n)
{
    int32_t top = INT32_MIN;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) {
        int32_t bits = vmath_bits(x[i]), ordered = bits ^ ((bits >> 31) & INT32_MAX);
        top = ordered > top ? ordered : top;
    }
    return vmath_float(top ^ ((top >> 31) & INT32_MAX));
}

/* Per query of a tile: the running maximum and sum of exp(score - maximum), and for the keys at
 * hand their share of the sum and the factor that brings earlier results to the new maximum. */
struct running {
    float *maximum, *sum, *share, *factor;
};

/* Turns a tile of scores into exp(score - maximum). */
CKPT_CLONES static void softmax_tile(struct tile s, int64_t n_queries, int64_t n_keys,
                                     struct running r)
{
    for (int64_t i = 0; i < n_queries; i++) {
        float *restrict row = s.data + i * s.ld;
        float here = row_maximum(row, n_keys), share = 0;
        float top = here < r.maximum[i] ? r.maximum[i] : here;
#pragma omp simd reduction(+ : share)
        for (int64_t j = 0; j < n_keys; j++) {
            row[j] = vexp(row[j] - top);
            share += row[j];
        }
        r.factor[i] = r.maximum[i] - top;
        r.share[i] = share;
        r.maximum[i] = top;
    }
#pragma omp simd
    for (int64_t i = 0; i < n_queries; i++) {
        r.factor[i] = vexp(r.factor[i]);
        r.sum[i] = r.sum[i] * r.factor[i] + r.share[i];
    }
}

CKPT_CLONES static void scale_rows(struct tile x, int64_t n, int64_t width, const float *factor)
{
    for (int64_t i = 0; i < n; i++) {
        float *row = x.data + i * x.ld, f = factor[i];
#pragma omp simd
        for (int64_t d = 0; d < width; d++)
            row[d] *= f;
    }
}

/* lse, and the factor that makes probabilities of what was summed. */
CKPT_CLONES static void finish_statistics(struct running r, int64_t n, float *lse)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        lse[i] = r.maximum[i] + vlog(r.sum[i]);
        r.factor[i] = 1.f / r.sum[i];
    }
}

static struct running running_open(const struct layout *l, float *scratch)
{
    int64_t n = round_up(l->queries, 16);
    struct running r = {scratch, scratch + n, scratch + 2 * n, scratch + 3 * n};
    for (int64_t i = 0; i < n; i++) {
        r.maximum[i] = -INFINITY;
        r.sum[i] = 0;
    }
    return r;
}

static void forward_tile(const struct attention_job *job, const struct layout *l,
                         const struct attention_head *h, int64_t first, float *scratch)
{
    const int64_t n = min_i64(l->queries, h->n_queries - first), width = job->width;
    float *k_rows = take(&scratch, l->key_rows), *v_rows = take(&scratch, l->key_rows);
    struct tile q = load_rows(&h->q, first, n, width, take(&scratch, l->query_rows));
    struct tile o = open_rows(&h->o, first, width, take(&scratch, l->query_rows));
    struct tile s = {take(&scratch, l->scores), l->keys};
    struct running r = running_open(l, scratch);
    for (int64_t j = 0; j < h->n_keys; j += l->keys) {
        int64_t m = min_i64(l->keys, h->n_keys - j);
        struct tile k = load_rows(&h->k, j, m, width, k_rows);
        struct tile v = load_rows(&h->v, j, m, width, v_rows);
        product(AS_IS, TRANSPOSED, n, m, width, score_scale(job, h), q, k, 0, s);
        softmax_tile(s, n, m, r);
        if (j)
            scale_rows(o, n, width, r.factor);
        product(AS_IS, AS_IS, n, width, m, 1, s, v, j ? 1 : 0, o);
    }
    if (h->n_keys) {
        finish_statistics(r, n, h->lse + first);
        scale_rows(o, n, width, r.factor);
    } else {
        zero_rows(o, n, width);
        memset(h->lse + first, 0, (size_t)n * sizeof(float));
    }
    store_rows(&h->o, first, n, width, o);
}

void attention_forward(const struct attention_job *job, void *workspace)
{
    const struct layout l = layout_of(job);
    const int64_t units = forward_units(job, &l), tiles = tile_count(job->n_queries, l.queries);
    const int64_t slots = slots_of(job, units);
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t s = 0; s < slots; s++)
        for (int64_t i = s * units / slots; i < (s + 1) * units / slots; i++) {
            struct attention_head h;
            job->locate(job->args, i / tiles, &h);
            forward_tile(job, &l, &h, i % tiles * l.queries,
                         (float *)workspace + s * forward_floats(&l));
        }
}

/* ---- backward ------------------------------------------------------------------------------ */

/* delta = rowsum(d_o o), which is also the sum of probability times its gradient. */
CKPT_CLONES static void row_dots(struct tile a, struct tile b, int64_t n, int64_t width, float *dot)
{
    for (int64_t i = 0; i < n; i++) {
        const float *x = a.data + i * a.ld, *y = b.data + i * b.ld;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < width; d++)
            sum += x[d] * y[d];
        dot[i] = sum;
    }
}

/*
 * p = exp(score - lse) in place of the scores; ds = p (dp - delta) in place of dp.  lse is rounded
 * as the scores are, to multiples of 64 at 1e9: p is held at 1, or it could be exp(64).
 */
CKPT_CLONES static void softmax_backward(struct tile s, struct tile ds, int64_t n_queries,
                                         int64_t n_keys, const float *lse, const float *delta)
{
    for (int64_t i = 0; i < n_queries; i++) {
        float *restrict p = s.data + i * s.ld, *restrict dp = ds.data + i * ds.ld;
        const float shift = lse[i], mean = delta[i];
#pragma omp simd
        for (int64_t j = 0; j < n_keys; j++) {
            float below = p[j] - shift;
            p[j] = vexp(vmath_select(below > 0.f, 0.f, below)); /* NaN stays */
            dp[j] = p[j] * (dp[j] - mean);
        }
    }
}

/* The scratch of a head going backward. */
struct backward {
    const struct attention_job *job;
    const struct layout *l;
    const struct attention_head *h;
    float *q_rows, *o_rows, *k_rows, *v_rows, *dk_rows, *dv_rows, *delta;
    struct tile s, ds, dq;
};

static struct backward backward_open(const struct attention_job *job, const struct layout *l,
                                     const struct attention_head *h, float *scratch)
{
    struct backward b = {.job = job, .l = l, .h = h};
    b.q_rows = take(&scratch, l->query_rows);
    b.o_rows = take(&scratch, l->query_rows);
    b.k_rows = take(&scratch, l->key_rows);
    b.v_rows = take(&scratch, l->key_rows);
    b.dk_rows = take(&scratch, l->key_rows);
    b.dv_rows = take(&scratch, l->key_rows);
    b.s = (struct tile){take(&scratch, l->scores), l->keys};
    b.ds = (struct tile){take(&scratch, l->scores), l->keys};
    b.delta = take(&scratch, l->statistics);
    b.dq = open_rows(&h->dq, 0, job->width, scratch);
    return b;
}

static void backward_deltas(const struct backward *b)
{
    const int64_t width = b->job->width;
    for (int64_t i = 0; i < b->h->n_queries; i += b->l->queries) {
        int64_t n = min_i64(b->l->queries, b->h->n_queries - i);
        struct tile o = load_rows(&b->h->o, i, n, width, b->o_rows);
        struct tile d_o = load_rows(&b->h->d_o, i, n, width, b->q_rows);
        row_dots(o, d_o, n, width, b->delta + i);
    }
}

/* What the keys and values of one tile get from all queries, and the queries from them. */
static void backward_keys(const struct backward *b, int64_t first)
{
    const struct attention_head *h = b->h;
    const int64_t m = min_i64(b->l->keys, h->n_keys - first), width = b->job->width;
    const float scale = score_scale(b->job, h);
    struct tile k = load_rows(&h->k, first, m, width, b->k_rows);
    struct tile v = load_rows(&h->v, first, m, width, b->v_rows);
    struct tile dk = open_rows(&h->dk, first, width, b->dk_rows);
    struct tile dv = open_rows(&h->dv, first, width, b->dv_rows);
    for (int64_t i = 0; i < h->n_queries; i += b->l->queries) {
        int64_t n = min_i64(b->l->queries, h->n_queries - i);
        struct tile q = load_rows(&h->q, i, n, width, b->q_rows);
        struct tile d_o = load_rows(&h->d_o, i, n, width, b->o_rows);
        struct tile dq = {b->dq.data + i * b->dq.ld, b->dq.ld};
        product(AS_IS, TRANSPOSED, n, m, width, scale, q, k, 0, b->s);
        product(AS_IS, TRANSPOSED, n, m, width, 1, d_o, v, 0, b->ds);
        softmax_backward(b->s, b->ds, n, m, h->lse + i, b->delta + i);
        product(TRANSPOSED, AS_IS, m, width, n, 1, b->s, d_o, i ? 1 : 0, dv);
        product(TRANSPOSED, AS_IS, m, width, n, scale, b->ds, q, i ? 1 : 0, dk);
        product(AS_IS, AS_IS, n, width, m, scale, b->ds, k, first ? 1 : 0, dq);
    }
    store_rows(&h->dk, first, m, width, dk);
    store_rows(&h->dv, first, m, width, dv);
}

static void backward_head(const struct attention_job *job, const struct layout *l,
                          const struct attention_head *h, float *scratch)
{
    struct backward b = backward_open(job, l, h, scratch);
    if (h->n_keys == 0)
        zero_rows(b.dq, h->n_queries, job->width);
    backward_deltas(&b);
    for (int64_t j = 0; j < h->n_keys; j += l->keys)
        backward_keys(&b, j);
    store_rows(&h->dq, 0, h->n_queries, job->width, b.dq);
}

void attention_backward(const struct attention_job *job, void *workspace)
{
    const struct layout l = layout_of(job);
    const int64_t heads = job->n_heads, slots = slots_of(job, heads);
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t s = 0; s < slots; s++)
        for (int64_t i = s * heads / slots; i < (s + 1) * heads / slots; i++) {
            struct attention_head h;
            job->locate(job->args, i, &h);
            backward_head(job, &l, &h, (float *)workspace + s * backward_floats(&l));
        }
}
