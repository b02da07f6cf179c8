/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batched matrix products: leading axes broadcast, and views are read in place.  The gradients are
 * products, summed over the axes on which an operand broadcast.
 */
#include "call.h"
#include "matmul.h"
#include "ops.h"
#include "tape/tape.h"

/* Whether the last two axes of x are a row-major matrix, or a column-major one (*transposed).  *ld
 * becomes its leading dimension in elements. */
static bool matmul_lies_well(const struct ckpt_desc *x, bool *transposed, int64_t *ld)
{
    int64_t rows = x->shape[x->ndim - 2], cols = x->shape[x->ndim - 1];
    int64_t down = x->stride[x->ndim - 2], across = x->stride[x->ndim - 1];
    if ((across == 1 || cols == 1) && (rows == 1 || down >= cols)) {
        *transposed = false;
        *ld = rows == 1 ? cols : down;
        return true;
    }
    if ((down == 1 || rows == 1) && (cols == 1 || across >= rows)) {
        *transposed = true;
        *ld = cols == 1 ? rows : across;
        return true;
    }
    return false;
}

/* Sizes of the product op(a) [rows, inner] times op(b) [inner, cols]. */
static struct gemm sizes_of(const struct ckpt_desc *a, const struct ckpt_desc *b,
                            const struct matmul_attr *attr)
{
    const int64_t *m = a->shape + a->ndim - 2, *n = b->shape + b->ndim - 2;
    return (struct gemm){.rows = m[attr->transpose_a ? 1 : 0],
                         .inner = m[attr->transpose_a ? 0 : 1],
                         .cols = n[attr->transpose_b ? 0 : 1],
                         .a = {.dtype = a->dtype},
                         .b = {.dtype = b->dtype},
                         .c_dtype = attr->wide ? CKPT_F32 : a->dtype};
}

static struct gemm_operand operand_of(const struct ckpt_desc *x, bool transpose)
{
    struct gemm_operand m = {.dtype = x->dtype};
    bool transposed = false;
    matmul_lies_well(x, &transposed, &m.ld);
    m.transposed = transposed != transpose;
    return m;
}

struct matmul matmul_of(const struct ckpt_desc *a, const struct ckpt_desc *b,
                        const struct ckpt_desc *y, const struct matmul_attr *attr)
{
    struct ckpt_desc leading[3] = {*y, *a, *b};
    struct matmul m = {.g = sizes_of(a, b, attr)};
    m.g.a = operand_of(a, attr->transpose_a);
    m.g.b = operand_of(b, attr->transpose_b);
    for (int k = 0; k < 3; k++)
        leading[k].ndim -= 2;
    loops_init(&m.batch, 3, (const struct ckpt_desc *[]){&leading[0], &leading[1], &leading[2]});
    return m;
}

void matmul_seek(const struct matmul *m, const struct ckpt_kernel_args *args, int axes, int64_t i,
                 struct gemm *g)
{
    int64_t at[LOOPS_OPERANDS], size = ckpt_dtype_size(args->in[0].desc.dtype);
    loops_seek(&m->batch, axes, i, at);
    *g = m->g;
    g->c = (char *)args->out[0].data + at[0] * ckpt_dtype_size(g->c_dtype);
    g->a.data = (const char *)args->in[0].data + at[1] * size;
    g->b.data = (const char *)args->in[1].data + at[2] * size;
}

static int check_operand(struct ckpt_call *call, int k)
{
    bool transposed;
    int64_t ld;
    if (call_float(call, k))
        return CKPT_ESHAPE;
    if (call->in[k].ndim < 2)
        return ckpt_call_fail(call, "operand %d has fewer than two axes", k);
    if (!matmul_lies_well(&call->in[k], &transposed, &ld))
        return ckpt_call_fail(call, "operand %d is dense along neither of its last axes", k);
    return 0;
}

static int matmul_rule(struct ckpt_call *call)
{
    const struct matmul_attr *attr = call->attr;
    const struct ckpt_desc *a = &call->in[0], *b = &call->in[1];
    if (check_operand(call, 0) || check_operand(call, 1))
        return CKPT_ESHAPE;
    if (a->dtype != b->dtype)
        return ckpt_call_fail(call, "a and b must have the same dtype; use ckpt_cast");
    struct gemm g = sizes_of(a, b, attr);
    int64_t inner = b->shape[b->ndim - (attr->transpose_b ? 1 : 2)];
    if (g.inner != inner)
        return ckpt_call_fail(call, "the summed axis has size %lld in a and %lld in b",
                              (long long)g.inner, (long long)inner);
    struct ckpt_desc in[2] = {*a, *b}, d = {.ndim = 0};
    struct ckpt_call leading = *call;
    leading.in = in;
    in[0].ndim -= 2;
    in[1].ndim -= 2;
    if (call_spread(&leading, &d, 0) || call_spread(&leading, &d, 1))
        return CKPT_ESHAPE;
    d.dtype = g.c_dtype;
    d.shape[d.ndim++] = g.rows;
    d.shape[d.ndim++] = g.cols;
    desc_dense(&d);
    call->out[0] = d;
    return 0;
}

static ckpt_tensor readable(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    bool transposed;
    int64_t ld;
    if (d.ndim < 2 || matmul_lies_well(&d, &transposed, &ld))
        return x;
    return ckpt_contiguous(t, x);
}

/*
 * The gradient of operand k: the product of a and b, summed to the shape of the operand if it
 * broadcast.  Summed gradients and those of parameters are fp32.
 */
static ckpt_tensor gradient(const struct ckpt_grad *g, int k, ckpt_tensor a, ckpt_tensor b,
                            bool transpose_a, bool transpose_b)
{
    ckpt_tape *t = g->tape;
    struct ckpt_desc x = ckpt_desc_of(t, g->in[k]), y = ckpt_desc_of(t, g->out[0]);
    struct matmul_attr attr = {transpose_a, transpose_b, tape_param_of(t, g->in[k].id) >= 0};
    bool spread = x.ndim != y.ndim;
    for (int i = 0; i < x.ndim - 2 && !spread; i++)
        spread = x.shape[i] != y.shape[i];
    attr.wide |= spread;
    ckpt_tensor d = OPS_RECORD(t, &op_matmul, &attr, readable(t, a), readable(t, b));
    return spread ? ops_sum_to(t, d, &x) : d;
}

static void matmul_grad(struct ckpt_grad *g)
{
    const struct matmul_attr *attr = g->attr;
    const bool ta = attr->transpose_a, tb = attr->transpose_b;
    ckpt_tensor a = g->in[0], b = g->in[1];
    /* A gradient that was summed is fp32 and wider than the operands. */
    ckpt_tensor dy = ckpt_cast(g->tape, g->dout[0], ckpt_desc_of(g->tape, a).dtype);
    if (g->need[0])
        g->din[0] = ta ? gradient(g, 0, b, dy, tb, true) : gradient(g, 0, dy, b, false, !tb);
    if (g->need[1])
        g->din[1] = tb ? gradient(g, 1, dy, a, true, ta) : gradient(g, 1, a, dy, !ta, false);
}

static void matmul_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    struct gemm g = sizes_of(&call->in[0], &call->in[1], call->attr);
    cost->flops = 2. * (double)desc_numel(&call->out[0]) * (double)g.inner;
}

OPS_DEF(matmul, .flags = CKPT_OP_STRIDED, .shape = matmul_rule, .grad = matmul_grad,
        .cost = matmul_cost);

/* Whether many matrices are multiplied by the same b: then one large product suffices, also for the
 * gradients. */
static bool is_one_product(const struct ckpt_desc *a, const struct ckpt_desc *b, bool transpose_a)
{
    return a->ndim > 2 && b->ndim == 2 && !transpose_a && desc_is_dense(a);
}

ckpt_tensor ckpt_matmul(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b, bool transpose_a,
                        bool transpose_b)
{
    OPS_CALL(t);
    struct matmul_attr attr = {transpose_a, transpose_b, false};
    struct ckpt_desc da = ckpt_desc_of(t, a), db = ckpt_desc_of(t, b);
    if (!is_one_product(&da, &db, transpose_a))
        return OPS_RECORD(t, &op_matmul, &attr, readable(t, a), readable(t, b));
    a = ckpt_reshape(t, a, 2, (int64_t[]){-1, da.shape[da.ndim - 1]});
    da.shape[da.ndim - 1] = db.shape[transpose_b ? 0 : 1];
    ckpt_tensor y = OPS_RECORD(t, &op_matmul, &attr, a, readable(t, b));
    return y.id ? ckpt_reshape(t, y, da.ndim, da.shape) : y;
}
