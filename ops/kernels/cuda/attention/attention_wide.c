/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of wide heads: the calls that it supports, their tiles, and the products of each
 * tile. */
#include "kernels/cuda/attention/attention_wide.h"
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/gemm.h"

/* ---- supported operands ---------------------------------------------------------------------- */

/* The heads of all sequences must be equidistant, so that they are one batch for cuBLASLt.
 * Operands are [leading axes..., rows, heads, width], lse is [leading axes..., heads, rows]. */
static bool find_step(const struct ckpt_desc *d, bool lse, int64_t *step)
{
    int64_t n = 1;
    *step = 0;
    for (int axis = d->ndim - 2; axis >= 0; axis--) {
        if (d->shape[axis] == 1 || (!lse && axis == d->ndim - 3))
            continue;
        if (n == 1)
            *step = d->stride[axis];
        else if (d->stride[axis] != *step * n)
            return false;
        n *= d->shape[axis];
    }
    return *step >= 0;
}

static int64_t row_of(const struct ckpt_desc *d)
{
    const int64_t width = d->shape[d->ndim - 1];
    return d->shape[d->ndim - 3] == 1 ? width : d->stride[d->ndim - 3];
}

/* Rows and strides must be multiples of 16 bytes. */
static bool fits(const struct ckpt_view *v)
{
    const struct ckpt_desc *d = &v->desc;
    const int64_t unit = 16 / ckpt_dtype_size(d->dtype), row = row_of(d);
    int64_t step;
    return find_step(d, false, &step) && step % unit == 0 && row % unit == 0 &&
           row >= d->shape[d->ndim - 1] && d->stride[d->ndim - 1] == 1 &&
           (uintptr_t)v->data % 16 == 0;
}

static bool lse_fits(const struct ckpt_view *v)
{
    int64_t step;
    return find_step(&v->desc, true, &step);
}

bool cuda_attention_wide_takes(const struct ckpt_kernel_args *a)
{
    const bool backward = a->n_in > 3;
    const struct ckpt_desc *q = &a->in[0].desc, *k = &a->in[1].desc;
    if (!cuda_attention_is_wide(q, k) || !lse_fits(backward ? &a->in[4] : &a->out[1]))
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (!(backward && i == 4) && !fits(&a->in[i]))
            return false;
    for (int i = 0; i < (backward ? 3 : 1); i++)
        if (!fits(&a->out[i]))
            return false;
    return true;
}

/* ---- tiles and products ---------------------------------------------------------------------- */

/* The call and its scratch: scores, probabilities, sums of dk and dv, and the workspace of
 * products. */
struct wide_call {
    const struct ckpt_kernel_args *a;
    struct ckpt_kernel_args products;
    struct cuda_attention_sizes s;
    struct cuda_wide_cut cut;
    float *scores, *sums[2];
    void *probabilities;
};

/* Matrices [matrix, matrix + matrices), and of each the queries [first, first + rows). */
struct wide_tile {
    int64_t matrix, matrices, first, rows;
};

typedef int (*run_tile)(const struct wide_call *c, const struct wide_tile *t);

static struct wide_call call_of(const struct ckpt_kernel_args *a, bool backward)
{
    struct wide_call c = {.a = a, .products = *a};
    c.s = cuda_attention_sizes_of(&a->in[0].desc, &a->in[1].desc, false);
    c.cut = cuda_wide_cut_of(&c.s);
    const int64_t scores = cuda_wide_scores_bytes(&c.cut);
    const int64_t probabilities = cuda_wide_probabilities_bytes(&c.cut, c.s.dtype);
    const int64_t sums = backward ? cuda_wide_sums_bytes(&c.s, &c.cut) : 0;
    char *at = a->workspace;
    c.scores = (float *)at;
    c.probabilities = at + scores;
    c.sums[0] = (float *)(at + scores + probabilities);
    c.sums[1] = c.sums[0] + c.s.n_keys * c.s.width;
    c.products.workspace = at + scores + probabilities + sums;
    c.products.workspace_bytes -= scores + probabilities + sums;
    return c;
}

static int each_tile(const struct wide_call *c, run_tile run)
{
    const int64_t matrices = c->s.n_sequences * c->s.n_heads;
    int rc = CKPT_OK;
    for (int64_t i = 0; !rc && i < matrices; i += c->cut.matrices)
        for (int64_t first = 0; !rc && first < c->s.n_queries; first += c->cut.rows) {
            struct wide_tile t = {i, min_i64(c->cut.matrices, matrices - i), first,
                                  min_i64(c->cut.rows, c->s.n_queries - first)};
            rc = run(c, &t);
        }
    return rc;
}

/* The part of an operand that belongs to the tile: its queries from `first` on, or all keys. */
static struct wide_matrix part_of(const struct ckpt_view *v, const struct wide_tile *t,
                                  int64_t first)
{
    struct wide_matrix m = {.row = row_of(&v->desc)};
    find_step(&v->desc, false, &m.step);
    m.data =
        (char *)v->data + (t->matrix * m.step + first * m.row) * ckpt_dtype_size(v->desc.dtype);
    return m;
}

static struct wide_matrix lse_of(const struct ckpt_view *v, const struct wide_tile *t)
{
    struct wide_matrix m = {.row = v->desc.stride[v->desc.ndim - 1]};
    find_step(&v->desc, true, &m.step);
    m.data = (float *)v->data + t->matrix * m.step + t->first * m.row;
    return m;
}

/* The scores or probabilities of the tile. */
static struct wide_matrix scratch_of(const struct wide_call *c, void *data)
{
    return (struct wide_matrix){data, c->cut.pitch, c->cut.rows * c->cut.pitch};
}

static struct wide_scores scores_of(const struct wide_call *c, const struct wide_tile *t,
                                    const struct ckpt_view *lse)
{
    return (struct wide_scores){.dtype = c->s.dtype,
                                .matrices = t->matrices,
                                .rows = t->rows,
                                .n = c->s.n_keys,
                                .pitch = c->cut.pitch,
                                .scale = *(const float *)c->a->attr,
                                .scores = c->scores,
                                .probabilities = c->probabilities,
                                .lse = lse_of(lse, t)};
}

/* c = a b, one product per matrix of the tile; g has the sizes and transpositions. */
static int multiply(const struct wide_call *c, const struct wide_tile *t, struct gemm g,
                    const struct wide_matrix *x, const struct wide_matrix *y,
                    const struct wide_matrix *to)
{
    const struct gemm_batch batch = {
        t->matrices, {x->row, y->row, to->row}, {x->step, y->step, to->step}};
    g.a.data = x->data;
    g.b.data = y->data;
    g.a.dtype = g.b.dtype = c->s.dtype;
    g.c = to->data;
    return cuda_gemm_batch(&c->products, &g, &batch);
}

/* scores = x y^T; rows of x are queries, rows of y are keys. */
static int find_scores(const struct wide_call *c, const struct wide_tile *t,
                       const struct wide_matrix *x, const struct wide_matrix *y)
{
    const struct wide_matrix to = scratch_of(c, c->scores);
    struct gemm g = {.rows = t->rows, .cols = c->s.n_keys, .inner = c->s.width};
    g.b.transposed = true;
    g.c_dtype = CKPT_F32;
    return multiply(c, t, g, x, y, &to);
}

/* to = p y; rows of `to` are queries, rows of y are keys, p is the matrix in the place of the
 * probabilities. */
static int mix_keys(const struct wide_call *c, const struct wide_tile *t,
                    const struct wide_matrix *y, const struct wide_matrix *to)
{
    const struct wide_matrix p = scratch_of(c, c->probabilities);
    struct gemm g = {.rows = t->rows, .cols = c->s.width, .inner = c->s.n_keys};
    g.c_dtype = c->s.dtype;
    return multiply(c, t, g, &p, y, to);
}

/* to = p^T y; rows of `to` are keys, rows of y are queries.  If a sequence has several tiles, they
 * are summed in fp32. */
static int mix_queries(const struct wide_call *c, const struct wide_tile *t,
                       const struct wide_matrix *y, const struct wide_matrix *to, float *sums)
{
    const struct wide_matrix p = scratch_of(c, c->probabilities), sum = {sums, c->s.width, 0};
    const bool whole = c->cut.rows >= c->s.n_queries;
    struct gemm g = {.rows = c->s.n_keys, .cols = c->s.width, .inner = t->rows};
    g.a.transposed = true;
    g.accumulate = t->first > 0;
    g.c_dtype = whole ? c->s.dtype : CKPT_F32;
    int rc = multiply(c, t, g, &p, y, whole ? to : &sum);
    if (rc || whole || t->first + t->rows < c->s.n_queries)
        return rc;
    return cuda_wide_store(to, c->s.dtype, sums, c->s.n_keys, c->s.width, c->a->stream);
}

/* ---- forward and backward -------------------------------------------------------------------- */

static int forward_tile(const struct wide_call *c, const struct wide_tile *t)
{
    const struct ckpt_view *in = c->a->in, *out = c->a->out;
    const struct wide_matrix q = part_of(&in[0], t, t->first), k = part_of(&in[1], t, 0);
    const struct wide_matrix v = part_of(&in[2], t, 0), o = part_of(&out[0], t, t->first);
    const struct wide_scores w = scores_of(c, t, &out[1]);
    int rc = find_scores(c, t, &q, &k);
    rc = rc ? rc : cuda_wide_softmax(&w, c->a->stream);
    return rc ? rc : mix_keys(c, t, &v, &o);
}

static int backward_tile(const struct wide_call *c, const struct wide_tile *t)
{
    const struct ckpt_view *in = c->a->in, *out = c->a->out;
    const struct wide_matrix q = part_of(&in[0], t, t->first), k = part_of(&in[1], t, 0);
    const struct wide_matrix v = part_of(&in[2], t, 0), d_o = part_of(&in[5], t, t->first);
    const struct wide_matrix dq = part_of(&out[0], t, t->first), dk = part_of(&out[1], t, 0);
    const struct wide_matrix dv = part_of(&out[2], t, 0);
    const struct wide_scores w = scores_of(c, t, &in[4]);
    int rc = find_scores(c, t, &q, &k);
    rc = rc ? rc : cuda_wide_probabilities(&w, c->a->stream);
    rc = rc ? rc : mix_queries(c, t, &d_o, &dv, c->sums[1]);
    rc = rc ? rc : find_scores(c, t, &d_o, &v);
    rc = rc ? rc : cuda_wide_gradient(&w, c->a->stream);
    rc = rc ? rc : mix_keys(c, t, &k, &dq);
    return rc ? rc : mix_queries(c, t, &q, &dk, c->sums[0]);
}

int cuda_attention_wide(const struct ckpt_kernel_args *a)
{
    const struct wide_call c = call_of(a, false);
    return each_tile(&c, forward_tile);
}

int cuda_attention_wide_dx(const struct ckpt_kernel_args *a)
{
    const struct wide_call c = call_of(a, true);
    return each_tile(&c, backward_tile);
}
