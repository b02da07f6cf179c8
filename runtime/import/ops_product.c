/* SPDX-License-Identifier: Apache-2.0 */
/* Products that are not of two matrices alone: over chosen axes, of blocks, of chains, of vectors.
 */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- over chosen axes ------------------------------------------------------------------------ */

/* A matrix of the axes that are summed, which come last or first, and of the others, whose sizes
 * are added to those of the result. */
static struct tensor as_matrix(struct call *c, struct tensor a, const int64_t *sums, int n,
                               bool first, struct tensor *result)
{
    int order[TENSOR_AXES], at = first ? n : 0;
    int64_t size[2] = {1, 1};
    unsigned summed = 0;

    for (int i = 0; i < n && !c->r->failed; i++) {
        const int axis = tensor_axis(c->r, &a, sums[i]);
        order[(first ? 0 : a.ndim - n) + i] = axis;
        size[!first] *= a.shape[axis];
        summed |= 1u << axis;
    }
    if (__builtin_popcount(summed) != n || result->ndim + a.ndim - n > TENSOR_AXES)
        recording_fail(c->r, CKPT_ESHAPE, "a product over %d of %d axes", n, a.ndim);
    for (int i = 0; i < a.ndim && !c->r->failed; i++) {
        if (summed >> i & 1)
            continue;
        order[at++] = i;
        size[first] *= a.shape[i];
        result->shape[result->ndim++] = a.shape[i];
    }
    return c->r->failed ? a : view_reshape(c->r, view_permute(c->r, a, order), 2, size);
}

/* Along an axis of size 1 of b each sum is one product, of the sum of a. */
static struct tensor summed(struct call *c, struct tensor a, const int64_t *of_a,
                            const struct tensor *b, const int64_t *of_b, int n)
{
    for (int i = 0; i < n && !c->r->failed; i++) {
        const int axis = tensor_axis(c->r, &a, of_a[i]), other = tensor_axis(c->r, b, of_b[i]);
        if (!c->r->failed && a.shape[axis] > 1 && b->shape[other] == 1)
            a = view_unsqueeze(c->r, reduce_sum(c, a, 1u << axis), axis);
    }
    return a;
}

static struct tensor contract(struct call *c, const int64_t *of_a, const int64_t *of_b, int n)
{
    struct tensor result = {.ndim = 0}, first = call_tensor(c, "self");
    struct tensor second = call_tensor(c, "other");
    struct tensor a = summed(c, first, of_a, &second, of_b, n);
    struct tensor b = summed(c, second, of_b, &first, of_a, n);

    a = as_matrix(c, a, of_a, n, false, &result);
    b = as_matrix(c, b, of_b, n, true, &result);
    struct tensor y = c->r->failed ? a : record_product(c, a, b);

    return c->r->failed ? y : view_reshape(c->r, y, result.ndim, result.shape);
}

static struct tensor op_tensordot(struct call *c, int part)
{
    int64_t of_a[TENSOR_AXES], of_b[TENSOR_AXES];
    const int n = call_ints(c, "dims_self", of_a, TENSOR_AXES);

    (void)part;
    if (call_ints(c, "dims_other", of_b, TENSOR_AXES) != n)
        recording_fail(c->r, CKPT_ESHAPE, "axes of two tensors that are not as many");
    return contract(c, of_a, of_b, n);
}

static struct tensor op_inner(struct call *c, int part)
{
    const struct tensor a = call_tensor(c, "self"), b = call_tensor(c, "other");

    (void)part;
    if (!a.ndim || !b.ndim)
        return math_binary(c->r, BINARY_MUL, a, b, c->dtype);
    return contract(c, (int64_t[]){-1}, (int64_t[]){-1}, 1);
}

/* Each element of a by all of b: [a0 b0, a1 b1, ..]. */
static struct tensor op_kron(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), b = call_tensor(c, "other");
    int64_t of_a[TENSOR_AXES], of_b[TENSOR_AXES], shape[TENSOR_AXES];

    (void)part;
    for (struct tensor *small = a.ndim < b.ndim ? &a : &b; a.ndim != b.ndim && !c->r->failed;)
        *small = view_unsqueeze(c->r, *small, 0);
    if (2 * a.ndim > TENSOR_AXES)
        recording_fail(c->r, CKPT_ESHAPE, "a product of blocks of %d axes", a.ndim);
    if (c->r->failed)
        return a;
    for (int i = 0; i < a.ndim; i++) {
        of_a[2 * i] = a.shape[i];
        of_b[2 * i + 1] = b.shape[i];
        of_a[2 * i + 1] = of_b[2 * i] = 1;
        shape[i] = a.shape[i] * b.shape[i];
    }
    const int n = a.ndim;
    a = view_reshape(c->r, a, 2 * n, of_a);
    b = view_reshape(c->r, b, 2 * n, of_b);
    a = math_binary(c->r, BINARY_MUL, a, b, c->dtype);
    return c->r->failed ? a : view_reshape(c->r, a, n, shape);
}

/* ---- chains ---------------------------------------------------------------------------------- */

static struct tensor op_chain(struct call *c, int part)
{
    struct variable **v;
    const char *name = pt2_arg_find(c->node, "matrices") ? "matrices" : "tensors";
    const int n = call_variables(c, name, &v);
    struct tensor y = tensor_number(c->r, c->dtype, 0, 0);

    (void)part;
    for (int k = 0; k < n && !c->r->failed; k++) {
        struct tensor a = v[k] ? *variable_read(c->r, v[k]) : y;
        y = k ? record_product(c, y, a) : a;
    }
    return y;
}

/* By squares, from the highest bit of the power on. */
static struct tensor op_matrix_power(struct call *c, int part)
{
    const struct tensor a = call_tensor(c, "self");
    const int64_t n = call_int(c, "n");
    struct tensor y = a;

    (void)part;
    if (n < 1 || n > CALL_LARGEST)
        recording_fail(c->r, CKPT_EFORMAT, "power %lld of a matrix, not 1 or more", (long long)n);
    int bit = 0;
    while (n >> bit > 1)
        bit++;
    while (bit-- > 0 && !c->r->failed) {
        y = record_product(c, y, y);
        y = n >> bit & 1 && !c->r->failed ? record_product(c, y, a) : y;
    }
    return y;
}

/* ---- vectors, and sums beside a tensor ------------------------------------------------------- */

static struct tensor op_addr(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "vec1");

    (void)part;
    a = c->r->failed ? a : view_unsqueeze(c->r, a, 1);
    return add_product(c, math_binary(c->r, BINARY_MUL, a, call_tensor(c, "vec2"), c->dtype));
}

static struct tensor op_addbmm(struct call *c, int part)
{
    struct tensor y = record_product(c, call_tensor(c, "batch1"), call_tensor(c, "batch2"));

    (void)part;
    return add_product(c, c->r->failed ? y : reduce_sum(c, y, 1));
}

static struct tensor op_cross(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), b = call_tensor(c, "other");
    int axis = 0;

    (void)part;
    if (call_has(c, "dim"))
        axis = call_axis(c, "dim", &a);
    else
        while (axis < a.ndim - 1 && a.shape[axis] != 3)
            axis++;
    if (a.ndim != b.ndim || !a.ndim || a.shape[axis] != 3 || b.shape[axis] != 3)
        recording_fail(c->r, CKPT_ESHAPE, "a cross product of vectors that have not 3 elements");
    if (c->r->failed)
        return a;
    struct tensor plus =
        math_binary(c->r, BINARY_MUL, index_roll(c, a, axis, 2), index_roll(c, b, axis, 1),
                    c->dtype);
    struct tensor minus =
        math_binary(c->r, BINARY_MUL, index_roll(c, a, axis, 1), index_roll(c, b, axis, 2),
                    c->dtype);
    return math_binary(c->r, BINARY_SUB, plus, minus, c->dtype);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_product[] = {
    OP("tensordot.default", op_tensordot),
    OP("inner.default", op_inner),
    OP("kron.default", op_kron),
    OP("chain_matmul.default", op_chain),
    OP("linalg_multi_dot.default", op_chain),
    OP("matrix_power.default", op_matrix_power),
    OP("linalg_matrix_power.default", op_matrix_power),
    OP("addr.default", op_addr),
    OP("addbmm.default", op_addbmm),
    OP("cross.default", op_cross),
    OP("linalg_cross.default", op_cross),
    {NULL, NULL, NULL, NULL, false},
};
