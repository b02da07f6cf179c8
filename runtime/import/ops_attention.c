/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention.  Heads come before rows in PyTorch and after them here.  A mask that is known is
 * compared with those that need no bytes: none, causal, a window; keys and values that were
 * repeated for groups of heads are taken from before the repetition.
 */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* ---- masks ----------------------------------------------------------------------------------- */

/* Which keys a query sees. */
struct mask {
    bool causal;
    int64_t window;   /* 0: none */
    ckpt_tensor bias; /* CKPT_NONE: none */
};

/* The matrices of a mask that is known: for each sample and head, rows of l queries over s keys. */
struct grid {
    const struct tensor *m;
    int64_t l, s;
    int64_t matrices; /* that differ in place: what is repeated is the same */
};

/* The place of row i of a matrix in the elements of the mask. */
static int64_t row_of(const struct grid *g, int64_t matrix, int64_t i)
{
    const struct tensor *m = g->m;
    int64_t place = i * m->stride[m->ndim - 2];

    for (int k = m->ndim - 3; k >= 0; k--) {
        if (!m->stride[k])
            continue;
        place += matrix % m->shape[k] * m->stride[k];
        matrix /= m->shape[k];
    }
    return place;
}

static double value_at(const struct tensor *m, int64_t place)
{
    return pt2_is_float(m->dtype) ? m->f[place] : (double)m->i[place];
}

static bool sees(const struct tensor *m, int64_t place)
{
    return (value_at(m, place) == 0) != (m->dtype == PT2_BOOL);
}

/* Whether all matrices show query i the keys from `first` to before `end`, and hide the others. */
static bool shows(const struct grid *g, int64_t i, int64_t first, int64_t end)
{
    const struct tensor *m = g->m;
    const int64_t step = m->stride[m->ndim - 1];

    for (int64_t n = 0; n < g->matrices; n++) {
        int64_t place = row_of(g, n, i);
        for (int64_t k = 0; k < g->s; k++, place += step) {
            const bool seen = k >= first && k < end;
            if (sees(m, place) != seen ||
                (!seen && m->dtype != PT2_BOOL && value_at(m, place) > -1e30))
                return false;
        }
    }
    return true;
}

/* Compares with: query i of l at key p = s - l + i sees the keys in (p - window, p]. */
static bool is_band(const struct grid *g, int64_t window)
{
    for (int64_t i = 0; i < g->l; i++) {
        const int64_t p = g->s - g->l + i;
        if (!shows(g, i, p - window + 1, p + 1))
            return false;
    }
    return true;
}

static bool sees_all(const struct grid *g)
{
    for (int64_t i = 0; i < g->l; i++)
        if (!shows(g, i, 0, g->s))
            return false;
    return true;
}

/* Recognises a mask that needs no bytes. */
static bool recognise(const struct tensor *m, int64_t l, int64_t s, struct mask *to)
{
    struct grid g = {m, l, s, 1};
    int64_t window = 0;

    if (!m->constant || m->ndim < 2 || m->shape[m->ndim - 2] != l || m->shape[m->ndim - 1] != s)
        return false;
    for (int i = 0; i < m->ndim - 2; i++)
        g.matrices *= m->stride[i] ? m->shape[i] : 1;
    if (sees_all(&g))
        return true;
    for (int64_t k = 0; k < s; k++)
        window += sees(m, row_of(&g, 0, l - 1) + k * m->stride[m->ndim - 1]);
    if (!window || l > s || !is_band(&g, window))
        return false;
    to->causal = true;
    to->window = window < s ? window : 0;
    return true;
}

/* Hidden keys have a bias of minus infinity. */
static ckpt_tensor bias_of(struct call *c, struct tensor m)
{
    if (m.dtype == PT2_BOOL)
        m = math_where(c->r, m, tensor_number(c->r, PT2_F32, 0, 0),
                       tensor_number(c->r, PT2_F32, -INFINITY, 0), PT2_F32);
    else
        m = math_cast(c->r, m, PT2_F32);
    return tensor_record(c->r, &m);
}

static struct mask read_mask(struct call *c, int64_t l, int64_t s)
{
    struct mask m = {.bias = CKPT_NONE};

    if (call_bool(c, "is_causal") && l == s) {
        m.causal = l > 1;
    } else if (call_bool(c, "is_causal")) {
        /* queries count from the first key on */
        struct tensor known = tensor_triangle(c->r, l, s, 0, false);
        if (!c->r->failed && !recognise(&known, l, s, &m))
            m.bias = bias_of(c, known);
    } else if (call_has(c, "attn_mask")) {
        struct tensor given = call_tensor(c, "attn_mask");
        if (!c->r->failed && !recognise(&given, l, s, &m))
            m.bias = bias_of(c, given);
    }
    return m;
}

/* ---- groups of heads ------------------------------------------------------------------------- */

/* unsqueeze, expand, reshape: each head is repeated for a group of query heads. */
static struct variable *before_groups(struct recording *r, struct variable *v)
{
    struct variable *wide = pattern_step(v, "aten.reshape.default", "self");
    struct variable *thin = pattern_step(wide, "aten.expand.default", "self");
    struct variable *from = pattern_step(thin, "aten.unsqueeze.default", "self");

    if (!from || r->failed)
        return NULL;
    const struct tensor *a = variable_read(r, from), *b = variable_read(r, thin);
    const struct tensor *e = variable_read(r, wide), *y = variable_read(r, v);
    const bool fits = a->ndim == 4 && b->ndim == 5 && e->ndim == 5 && y->ndim == 4 &&
                      b->shape[1] == a->shape[1] && b->shape[2] == 1 &&
                      e->shape[0] == a->shape[0] && e->shape[1] == a->shape[1] &&
                      e->shape[3] == a->shape[2] && y->shape[1] == e->shape[1] * e->shape[2] &&
                      y->shape[2] == a->shape[2];
    return fits ? from : NULL;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct heads {
    struct tensor q, k, v; /* [..., heads, rows, width] */
};

static struct tensor operand(struct call *c, struct tensor a)
{
    a = math_cast(c->r, a, c->dtype);
    tensor_record(c->r, &a);
    a.constant = false;
    return a;
}

static struct heads read_heads(struct call *c)
{
    struct heads h = {.q = operand(c, call_tensor(c, "query"))};
    struct variable *k = before_groups(c->r, call_variable(c, "key"));
    struct variable *v = before_groups(c->r, call_variable(c, "value"));

    h.k = operand(c, k && v ? *variable_read(c->r, k) : call_tensor(c, "key"));
    h.v = operand(c, k && v ? *variable_read(c->r, v) : call_tensor(c, "value"));
    return h;
}

static struct tensor fused(struct call *c, struct heads h, struct mask m)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    const int n = h.q.ndim;

    spec.causal = m.causal;
    spec.window = m.window;
    spec.scale = call_has(c, "scale") ? (float)call_double(c, "scale") : 0.f;
    h.q = view_swap(c->r, h.q, n - 3, n - 2);
    h.k = view_swap(c->r, h.k, n - 3, n - 2);
    h.v = view_swap(c->r, h.v, n - 3, n - 2);
    if (c->r->failed)
        return h.q;
    ckpt_tensor y = ckpt_attention(c->r->t, h.q.x, h.k.x, h.v.x, m.bias, &spec);
    return view_swap(c->r, tensor_of(c->r, c->dtype, y), n - 3, n - 2);
}

/* In products: with dropout of the weights, or values of another width. */
static struct tensor written_out(struct call *c, struct heads h, struct mask m)
{
    const double width = (double)h.q.shape[h.q.ndim - 1];
    const double scale = call_has(c, "scale") ? call_double(c, "scale") : 1 / sqrt(width);
    const double p = call_double(c, "dropout_p");
    const int64_t rows = h.q.shape[h.q.ndim - 2], keys = h.k.shape[h.k.ndim - 2];
    ckpt_tape *t = c->r->t;

    if (m.causal)
        m.bias = bias_of(c, tensor_triangle(c->r, rows, keys, keys - rows, false));
    if (h.q.shape[h.q.ndim - 3] != h.k.shape[h.k.ndim - 3] || m.window)
        recording_fail(c->r, CKPT_EFORMAT, "dropout in attention of grouped heads or windows");
    if (c->r->failed)
        return h.q;
    ckpt_tensor s = ckpt_affine(t, ckpt_matmul(t, h.q.x, h.k.x, false, true), (float)scale, 0.f);
    if (m.bias.id)
        s = ckpt_add(t, s, m.bias);
    s = ckpt_cast(t, ckpt_softmax(t, s, h.q.ndim - 1), tape_dtype(c->dtype));
    if (p > 0)
        s = ckpt_dropout(t, s, (float)p);
    return tensor_of(c->r, c->dtype, ckpt_matmul(t, s, h.v.x, false, false));
}

static struct tensor op_attention(struct call *c, int part)
{
    struct heads h = read_heads(c);
    const int n = h.q.ndim;

    (void)part;
    if (n < 3 || h.k.ndim != n || h.v.ndim != n)
        recording_fail(c->r, CKPT_ESHAPE, "attention of %d axes cannot be recorded", n);
    if (c->r->failed)
        return h.q;
    struct mask m = read_mask(c, h.q.shape[n - 2], h.k.shape[n - 2]);
    if (call_double(c, "dropout_p") > 0 || h.v.shape[n - 1] != h.q.shape[n - 1])
        return written_out(c, h, m);
    return fused(c, h, m);
}

const struct op ops_attention[] = {
    {"aten.scaled_dot_product_attention.default", op_attention, NULL, NULL, false},
    {NULL, NULL, NULL, NULL, false},
};
