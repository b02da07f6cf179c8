/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiled attention with a running maximum and sum (Milakov & Gimelshein 2018; Dao et al. 2022).  The
 * backward pass recomputes the probabilities from the stored lse, so only one statistic per query
 * is kept between the passes.
 *
 * Each query sees a span of keys.  Tiles that no query of the tile sees are skipped; in other
 * tiles, keys outside a row's span get probability 0.
 */
#include "cpu.h"
#include "attention_core.h"
#include "attention_fold.h"
#include "blas.h"
#include "vmath.h"

enum { QUERY_TILE = 128, KEY_TILE = 128 };

/* Sizes of the parts of a workspace slot, in floats. */
struct layout {
    int64_t queries, keys; /* rows of a tile */
    int64_t query_rows, key_rows, scores, statistics, dq;
    int64_t group; /* heads whose statistics and dq are held together */
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
    l.group = job->group;
    return l;
}

static int64_t forward_floats(const struct layout *l)
{
    return 2 * l->query_rows + 2 * l->key_rows + l->scores + 4 * round_up(l->queries, 16);
}

static int64_t backward_floats(const struct layout *l)
{
    return 2 * l->query_rows + 4 * l->key_rows + 2 * l->scores + l->group * (l->statistics + l->dq);
}

static int64_t forward_units(const struct attention_job *job, const struct layout *l)
{
    return job->n_heads * tile_count(job->n_queries, l->queries);
}

/* Number of slots when all heads together have `units` units of work. */
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
    return slots_of(job, job->n_heads / job->group) * backward_floats(&l) * (int64_t)sizeof(float);
}

static float *allocate(float **scratch, int64_t floats)
{
    float *p = *scratch;
    *scratch += floats;
    return p;
}

static void *row_at(const struct attention_rows *r, int64_t i)
{
    return (char *)r->data + i * r->stride * ckpt_dtype_size(r->dtype);
}

/* Rows [first, first + n) as fp32: in place if they are fp32, else converted into scratch. */
static struct tile load_rows(const struct attention_rows *r, int64_t first, int64_t n,
                             int64_t width, float *scratch)
{
    if (r->dtype == CKPT_F32 && r->stride >= width)
        return (struct tile){row_at(r, first), r->stride};
    for (int64_t i = 0; i < n; i++)
        cpu_load(scratch + i * width, row_at(r, first + i), r->dtype, width);
    return (struct tile){scratch, width};
}

/* The tile in which a result is accumulated: in place if it is fp32, else in scratch until
 * store_rows. */
static struct tile open_rows(const struct attention_rows *r, int64_t first, int64_t width,
                             float *scratch)
{
    /* a stride below the width belongs to a single row */
    if (r->dtype == CKPT_F32)
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

/* ---- visible keys ---------------------------------------------------------------------------- */

/* Keys [begin, end). */
struct span {
    int64_t begin, end;
};

static struct span span_of(const struct attention_job *job, const struct attention_head *h,
                           int64_t query)
{
    const int64_t place = h->n_keys - h->n_queries + query;
    struct span s = {0, h->n_keys};
    if (job->causal)
        s.end = max_i64(0, min_i64(h->n_keys, place + 1));
    if (job->window)
        s.begin = max_i64(0, place + 1 - job->window);
    if (h->first)
        s.begin = max_i64(s.begin, h->first[query * h->first_step]);
    return s;
}

/* The spans of a tile of queries, and the union of these spans. */
struct spans {
    struct span row[QUERY_TILE], all;
};

static void find_spans(const struct attention_job *job, const struct attention_head *h,
                       int64_t first, int64_t n, struct spans *s)
{
    s->all = (struct span){h->n_keys, 0};
    for (int64_t i = 0; i < n; i++) {
        struct span row = span_of(job, h, first + i);
        s->row[i] = row;
        if (row.begin >= row.end)
            continue;
        s->all.begin = min_i64(s->all.begin, row.begin);
        s->all.end = max_i64(s->all.end, row.end);
    }
}

static bool spans_overlap(const struct spans *s, int64_t first_key, int64_t n)
{
    return first_key < s->all.end && first_key + n > s->all.begin;
}

/* The part of row i's span inside n keys from first_key on, relative to first_key; {0, 0} if
 * empty. */
static struct span span_in(const struct spans *s, int64_t i, int64_t first_key, int64_t n)
{
    struct span in = {max_i64(s->row[i].begin - first_key, 0),
                      min_i64(s->row[i].end - first_key, n)};
    return in.begin < in.end ? in : (struct span){0, 0};
}

/* Adds the bias to n_queries x n_keys scores. */
static void add_bias(const struct attention_head *h, struct tile s, int64_t query, int64_t key,
                     int64_t n_queries, int64_t n_keys)
{
    const struct attention_bias *b = &h->bias;
    if (!b->data)
        return;
    for (int64_t i = 0; i < n_queries; i++) {
        float *row = s.data + i * s.ld;
        const int64_t at = (query + i) * b->row + key * b->column;
        if (b->dtype == CKPT_F32)
            for (int64_t j = 0; j < n_keys; j++)
                row[j] += ((const float *)b->data)[at + j * b->column];
        else
            for (int64_t j = 0; j < n_keys; j++)
                row[j] += bf16_load(((const uint16_t *)b->data)[at + j * b->column]);
    }
}

/* 0 for a single key: its probability is then exactly 1 for any score, and the gradients of its
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

/* ---- forward --------------------------------------------------------------------------------- */

/* The maximum of n values.  They are compared as integers in the order of floats, which compilers
 * vectorise without assumptions on NaN; a positive NaN is the largest value. */
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

/* Running softmax state, per query of a tile: maximum, sum of exp(score - maximum), the
 * contribution of the current keys to the sum, and the factor that rescales earlier results to the
 * new maximum. */
struct running {
    float *maximum, *sum, *share, *factor;
};

/* Turns a tile of scores into exp(score - maximum), 0 outside a row's span.  A score of -infinity
 * is a bias that hides a key; if a row has only such scores, its maximum stays -infinity. */
CKPT_CLONES static void softmax_tile(struct tile s, int64_t n_queries, int64_t n_keys,
                                     const struct spans *spans, int64_t first_key, struct running r)
{
    for (int64_t i = 0; i < n_queries; i++) {
        struct span in = span_in(spans, i, first_key, n_keys);
        float *restrict row = s.data + i * s.ld;
        r.factor[i] = r.share[i] = 0;
        memset(row, 0, (size_t)in.begin * sizeof *row);
        memset(row + in.end, 0, (size_t)(n_keys - in.end) * sizeof *row);
        if (in.begin == in.end)
            continue;
        row += in.begin;
        const int64_t n = in.end - in.begin;
        float here = row_maximum(row, n), share = 0;
        float top = here < r.maximum[i] ? r.maximum[i] : here, shift = top == -INFINITY ? 0 : top;
#pragma omp simd reduction(+ : share)
        for (int64_t j = 0; j < n; j++) {
            row[j] = vexp(row[j] - shift);
            share += row[j];
        }
        r.factor[i] = r.maximum[i] - shift;
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

/* Sets lse and the factor that normalises the accumulated o; both are 0 for a query that sees no
 * key. */
CKPT_CLONES static void finish_statistics(struct running r, int64_t n, float *lse)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        lse[i] = r.maximum[i] + vlog(r.sum[i]);
        r.factor[i] = 1.f / r.sum[i];
    }
    for (int64_t i = 0; i < n; i++)
        if (r.sum[i] == 0)
            lse[i] = r.factor[i] = 0;
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
    float *k_rows = allocate(&scratch, l->key_rows), *v_rows = allocate(&scratch, l->key_rows);
    struct tile q = load_rows(&h->q, first, n, width, allocate(&scratch, l->query_rows));
    struct tile o = open_rows(&h->o, first, width, allocate(&scratch, l->query_rows));
    struct tile s = {allocate(&scratch, l->scores), l->keys};
    struct running r = running_open(l, scratch);
    struct spans spans;
    bool begun = false;
    find_spans(job, h, first, n, &spans);
    for (int64_t j = 0; j < h->n_keys; j += l->keys) {
        int64_t m = min_i64(l->keys, h->n_keys - j);
        if (!spans_overlap(&spans, j, m))
            continue;
        struct tile k = load_rows(&h->k, j, m, width, k_rows);
        struct tile v = load_rows(&h->v, j, m, width, v_rows);
        product(AS_IS, TRANSPOSED, n, m, width, score_scale(job, h), q, k, 0, s);
        add_bias(h, s, first, j, n, m);
        softmax_tile(s, n, m, &spans, j, r);
        if (begun)
            scale_rows(o, n, width, r.factor);
        product(AS_IS, AS_IS, n, width, m, 1, s, v, begun ? 1 : 0, o);
        begun = true;
    }
    if (!begun)
        zero_rows(o, n, width);
    finish_statistics(r, n, h->lse + first);
    if (begun)
        scale_rows(o, n, width, r.factor);
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
            struct attention_head h = {0};
            job->locate(job->args, i / tiles, &h);
            forward_tile(job, &l, &h, i % tiles * l.queries,
                         (float *)workspace + s * forward_floats(&l));
        }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* delta = rowsum(d_o o), which equals the sum of p dp over the keys. */
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
 * Replaces the scores by p = exp(score - lse), and dp by ds = p (dp - delta).  lse is rounded like
 * the scores, at 1e9 to multiples of 64, so the exponent is clamped to 0; otherwise p could be
 * exp(64).
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
            p[j] = vexp(vmath_select(below > 0.f, 0.f, below)); /* NaN passes through */
            dp[j] = p[j] * (dp[j] - mean);
        }
    }
}

/* Sets p and ds to 0 outside the spans.  If a row sees a single key, ds is 0 there, too (see
 * score_scale). */
static void hide_outside(const struct spans *spans, int64_t first_key, struct tile s,
                         struct tile ds, int64_t n_queries, int64_t n_keys)
{
    for (int64_t i = 0; i < n_queries; i++) {
        struct span in = span_in(spans, i, first_key, n_keys);
        for (int64_t j = 0; j < n_keys; j++)
            if (j < in.begin || j >= in.end)
                s.data[i * s.ld + j] = ds.data[i * ds.ld + j] = 0;
        if (spans->row[i].end - spans->row[i].begin == 1 && in.begin < in.end)
            ds.data[i * ds.ld + in.begin] = 0;
    }
}

/* The workspace of a group of heads in the backward pass. */
struct backward {
    const struct attention_job *job;
    const struct layout *l;
    float *q_rows, *o_rows, *k_rows, *v_rows, *dk_rows, *dv_rows, *delta, *dq;
    struct tile s, ds;
};

static struct backward backward_open(const struct attention_job *job, const struct layout *l,
                                     float *scratch)
{
    struct backward b = {.job = job, .l = l};
    b.q_rows = allocate(&scratch, l->query_rows);
    b.o_rows = allocate(&scratch, l->query_rows);
    b.k_rows = allocate(&scratch, l->key_rows);
    b.v_rows = allocate(&scratch, l->key_rows);
    b.dk_rows = allocate(&scratch, l->key_rows);
    b.dv_rows = allocate(&scratch, l->key_rows);
    b.s = (struct tile){allocate(&scratch, l->scores), l->keys};
    b.ds = (struct tile){allocate(&scratch, l->scores), l->keys};
    b.delta = allocate(&scratch, l->group * l->statistics);
    b.dq = scratch;
    return b;
}

/* One head of a group with its part of the workspace. */
struct backward_head {
    struct attention_head h;
    struct tile dq;
    float *delta;
};

static struct backward_head head_of(const struct backward *b, int64_t unit, int64_t member)
{
    struct backward_head x;
    memset(&x.h, 0, sizeof x.h);
    b->job->locate(b->job->args, unit * b->job->group + member, &x.h);
    x.dq = open_rows(&x.h.dq, 0, b->job->width, b->dq + member * b->l->dq);
    x.delta = b->delta + member * b->l->statistics;
    return x;
}

/* Computes delta for n queries from `first` on. */
static void find_deltas(const struct backward *b, const struct attention_head *h, int64_t first,
                        int64_t n, float *delta)
{
    const int64_t width = b->job->width;
    struct tile o = load_rows(&h->o, first, n, width, b->o_rows);
    struct tile d_o = load_rows(&h->d_o, first, n, width, b->q_rows);
    row_dots(o, d_o, n, width, delta);
}

static void backward_begin(const struct backward *b, const struct backward_head *x)
{
    const struct attention_head *h = &x->h;
    if (h->n_keys == 0 || b->job->hidden)
        zero_rows(x->dq, h->n_queries, b->job->width);
    for (int64_t i = 0; i < h->n_queries; i += b->l->queries)
        find_deltas(b, h, i, min_i64(b->l->queries, h->n_queries - i), x->delta + i);
}

/* Computes p (in place of the scores) and ds for a tile of queries and keys. */
static void score_gradients(const struct backward *b, const struct attention_head *h,
                            const struct spans *spans, struct tile q, struct tile d_o,
                            struct tile k, struct tile v, int64_t query, int64_t key, int64_t n,
                            int64_t m, const float *delta)
{
    const int64_t width = b->job->width;
    product(AS_IS, TRANSPOSED, n, m, width, score_scale(b->job, h), q, k, 0, b->s);
    add_bias(h, b->s, query, key, n, m);
    product(AS_IS, TRANSPOSED, n, m, width, 1, d_o, v, 0, b->ds);
    softmax_backward(b->s, b->ds, n, m, h->lse + query, delta);
    if (b->job->hidden)
        hide_outside(spans, key, b->s, b->ds, n, m);
}

/* A tile of keys of a group.  begun: dk and dv hold a partial sum. */
struct key_tile {
    int64_t first, m;
    struct tile k, v, dk, dv;
    bool begun;
};

/* Accumulates dk and dv of a tile from the queries of one head, and dq from the keys of the
 * tile. */
static void backward_queries(const struct backward *b, const struct backward_head *x,
                             struct key_tile *t)
{
    const struct attention_head *h = &x->h;
    const int64_t m = t->m, width = b->job->width;
    const float scale = score_scale(b->job, h);
    const bool dq_begun = t->first > 0 || b->job->hidden;
    struct spans spans;
    for (int64_t i = 0; i < h->n_queries; i += b->l->queries) {
        int64_t n = min_i64(b->l->queries, h->n_queries - i);
        find_spans(b->job, h, i, n, &spans);
        if (!spans_overlap(&spans, t->first, m))
            continue;
        struct tile q = load_rows(&h->q, i, n, width, b->q_rows);
        struct tile d_o = load_rows(&h->d_o, i, n, width, b->o_rows);
        struct tile dq = {x->dq.data + i * x->dq.ld, x->dq.ld};
        score_gradients(b, h, &spans, q, d_o, t->k, t->v, i, t->first, n, m, x->delta + i);
        product(TRANSPOSED, AS_IS, m, width, n, 1, b->s, d_o, t->begun ? 1 : 0, t->dv);
        product(TRANSPOSED, AS_IS, m, width, n, scale, b->ds, q, t->begun ? 1 : 0, t->dk);
        product(AS_IS, AS_IS, n, width, m, scale, b->ds, t->k, dq_begun ? 1 : 0, dq);
        t->begun = true;
    }
}

static void backward_keys(const struct backward *b, int64_t unit, int64_t first)
{
    struct backward_head x = head_of(b, unit, 0);
    const struct attention_head *h = &x.h;
    const int64_t width = b->job->width;
    struct key_tile t = {.first = first, .m = min_i64(b->l->keys, h->n_keys - first)};
    t.k = load_rows(&h->k, first, t.m, width, b->k_rows);
    t.v = load_rows(&h->v, first, t.m, width, b->v_rows);
    t.dk = open_rows(&h->dk, first, width, b->dk_rows);
    t.dv = open_rows(&h->dv, first, width, b->dv_rows);
    for (int64_t member = 0; member < b->job->group; member++) {
        if (member)
            x = head_of(b, unit, member);
        backward_queries(b, &x, &t);
    }
    if (!t.begun) {
        zero_rows(t.dk, t.m, width);
        zero_rows(t.dv, t.m, width);
    }
    store_rows(&h->dk, first, t.m, width, t.dk);
    store_rows(&h->dv, first, t.m, width, t.dv);
}

/* Sets gradients of unused rows to 0. */
static void clear_rows(const struct attention_rows *r, int64_t first, int64_t end, int64_t width)
{
    for (int64_t i = first; i < end; i++)
        memset(row_at(r, i), 0, (size_t)(width * ckpt_dtype_size(r->dtype)));
}

static void backward_group(const struct attention_job *job, const struct layout *l, int64_t unit,
                           float *scratch)
{
    struct backward b = backward_open(job, l, scratch);
    struct backward_head x = head_of(&b, unit, 0);
    backward_begin(&b, &x);
    for (int64_t member = 1; member < job->group; member++) {
        x = head_of(&b, unit, member);
        backward_begin(&b, &x);
    }
    for (int64_t j = 0; j < x.h.n_keys; j += l->keys)
        backward_keys(&b, unit, j);
    clear_rows(&x.h.dk, x.h.n_keys, x.h.n_rows, job->width);
    clear_rows(&x.h.dv, x.h.n_keys, x.h.n_rows, job->width);
    for (int64_t member = 0; member < job->group; member++) {
        x = head_of(&b, unit, member);
        store_rows(&x.h.dq, 0, x.h.n_queries, job->width, x.dq);
    }
}

void attention_backward(const struct attention_job *job, void *workspace)
{
    const struct layout l = layout_of(job);
    const int64_t units = job->n_heads / job->group, slots = slots_of(job, units);
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t s = 0; s < slots; s++)
        for (int64_t i = s * units / slots; i < (s + 1) * units / slots; i++)
            backward_group(job, &l, i, (float *)workspace + s * backward_floats(&l));
}

/* ---- gradient of the bias -------------------------------------------------------------------- */

static int64_t bias_tiles(const struct layout *l, const struct attention_job *job, int64_t units)
{
    return units * tile_count(job->n_queries, l->queries);
}

int64_t attention_bias_workspace(const struct attention_job *job, int64_t units)
{
    struct layout l = layout_of(job);
    return slots_of(job, bias_tiles(&l, job, units)) * backward_floats(&l) * (int64_t)sizeof(float);
}

/* Adds ds of one head to rows [first, first + n) of a matrix [n_queries, n_keys]. */
static void bias_head(const struct backward *b, const struct attention_head *h, int64_t first,
                      int64_t n, float *out)
{
    const int64_t width = b->job->width, pitch = b->job->n_keys;
    struct spans spans;
    find_spans(b->job, h, first, n, &spans);
    find_deltas(b, h, first, n, b->delta);
    struct tile q = load_rows(&h->q, first, n, width, b->q_rows);
    struct tile d_o = load_rows(&h->d_o, first, n, width, b->o_rows);
    for (int64_t j = 0; j < h->n_keys; j += b->l->keys) {
        int64_t m = min_i64(b->l->keys, h->n_keys - j);
        if (!spans_overlap(&spans, j, m))
            continue;
        struct tile k = load_rows(&h->k, j, m, width, b->k_rows);
        struct tile v = load_rows(&h->v, j, m, width, b->v_rows);
        score_gradients(b, h, &spans, q, d_o, k, v, first, j, n, m, b->delta);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < m; c++)
                out[(first + i) * pitch + j + c] += b->ds.data[i * b->ds.ld + c];
    }
}

static void bias_tile(const struct backward *b, const struct attention_fold *fold, int64_t unit,
                      int64_t first, float *out)
{
    const struct attention_job *job = b->job;
    const int64_t n = min_i64(b->l->queries, job->n_queries - first);
    memset(out + first * job->n_keys, 0, (size_t)(n * job->n_keys) * sizeof *out);
    for (int64_t member = 0; member < fold->members; member++) {
        struct attention_head h = {0};
        job->locate(job->args, attention_fold_head(fold, unit, member), &h);
        bias_head(b, &h, first, n, out);
    }
}

void attention_bias_backward(const struct attention_job *job, const struct attention_fold *fold,
                             float *out, void *workspace)
{
    const struct layout l = layout_of(job);
    const int64_t tiles = tile_count(job->n_queries, l.queries);
    const int64_t units = bias_tiles(&l, job, fold->units), slots = slots_of(job, units);
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t s = 0; s < slots; s++) {
        struct backward b = backward_open(job, &l, (float *)workspace + s * backward_floats(&l));
        for (int64_t i = s * units / slots; i < (s + 1) * units / slots; i++)
            bias_tile(&b, fold, i / tiles, i % tiles * l.queries,
                      out + i / tiles * job->n_queries * job->n_keys);
    }
}
