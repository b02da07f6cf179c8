/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations.  Channels are axis 1 in PyTorch, and the last one here: see channels.h. */
#include <float.h>
#include "import/channels.h"
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* The axes that are normalised as one, at the end. */
static struct tensor flatten_last(struct call *c, struct tensor a, int n)
{
    int64_t shape[TENSOR_AXES];

    if (n > a.ndim || n < 1)
        recording_fail(c->r, CKPT_ESHAPE, "%d axes of %d are normalised", n, a.ndim);
    if (n == 1 || c->r->failed)
        return a;
    for (int i = 0; i < a.ndim; i++)
        if (i <= a.ndim - n)
            shape[i] = a.shape[i];
        else
            shape[a.ndim - n] *= a.shape[i];
    return view_reshape(c->r, a, a.ndim - n + 1, shape);
}

static ckpt_tensor flat_operand(struct call *c, const char *name)
{
    if (!call_has(c, name))
        return CKPT_NONE;
    struct tensor w = math_cast(c->r, call_tensor(c, name), c->dtype);
    const int64_t n = tensor_numel(&w);
    w = view_reshape(c->r, w, 1, &n);
    return tensor_record(c->r, &w);
}

/* The weight or bias of n channels; what is not there is 1 or 0. */
static ckpt_tensor weight_or(struct call *c, const char *name, float value, int64_t n)
{
    ckpt_tensor w = flat_operand(c, name);

    return w.id || c->r->failed ? w : ckpt_full(c->r->t, value, tape_dtype(c->dtype), 1, &n);
}

static struct tensor op_layer_norm(struct call *c, int part)
{
    int64_t shape[TENSOR_AXES];
    const int n = call_ints(c, "normalized_shape", shape, TENSOR_AXES);
    struct tensor a = math_cast(c->r, call_tensor(c, "input"), c->dtype);
    struct tensor flat = flatten_last(c, a, n);
    ckpt_tensor w = flat_operand(c, "weight"), b = flat_operand(c, "bias");

    (void)part;
    tensor_record(c->r, &flat);
    if (b.id && !w.id)
        w = weight_or(c, "weight", 1.f, flat.shape[flat.ndim - 1]);
    if (c->r->failed)
        return a;
    ckpt_tensor y = ckpt_layer_norm(c->r->t, flat.x, w, b, (float)call_double(c, "eps"));
    return view_reshape(c->r, tensor_of(c->r, c->dtype, y), a.ndim, a.shape);
}

static struct tensor op_rms_norm(struct call *c, int part)
{
    int64_t shape[TENSOR_AXES];
    const int n = call_ints(c, "normalized_shape", shape, TENSOR_AXES);
    struct tensor a = math_cast(c->r, call_tensor(c, "input"), c->dtype);
    struct tensor flat = flatten_last(c, a, n);
    const double epsilon = c->dtype == PT2_BF16 ? 0.0078125 : FLT_EPSILON;

    (void)part;
    tensor_record(c->r, &flat);
    if (c->r->failed)
        return a;
    ckpt_tensor w = weight_or(c, "weight", 1.f, flat.shape[flat.ndim - 1]);
    ckpt_tensor y = ckpt_rms_norm(c->r->t, flat.x, w,
                                  (float)(call_has(c, "eps") ? call_double(c, "eps") : epsilon));
    return view_reshape(c->r, tensor_of(c->r, c->dtype, y), a.ndim, a.shape);
}

/* (a + bi)(c + di) = ac - bd + (ad + bc)i */
static struct tensor multiply_complex(struct call *c)
{
    const bool i = c->imaginary;
    struct tensor first = math_binary(c->r, BINARY_MUL, call_part(c, "self", false),
                                      call_part(c, "other", i), c->dtype);
    struct tensor second = math_binary(c->r, BINARY_MUL, call_part(c, "self", true),
                                       call_part(c, "other", !i), c->dtype);

    return math_binary(c->r, i ? BINARY_ADD : BINARY_SUB, first, second, c->dtype);
}

/* A product, which may be the last part of an RMS norm or a GELU written out. */
static struct tensor op_mul(struct call *c, int part)
{
    static const struct unary gelu = {NULL, ckpt_gelu_tanh};
    struct rms_norm n;

    (void)part;
    if (pt2_is_complex(c->facts->dtype))
        return multiply_complex(c);
    struct variable *x_of_gelu = pt2_is_float(c->dtype) ? pattern_gelu(c) : NULL;
    if (x_of_gelu)
        return math_unary(c->r, &gelu, *variable_read(c->r, x_of_gelu), c->dtype);
    if (!pt2_is_float(c->dtype) || !pattern_rms_norm(c, &n))
        return math_binary(c->r, BINARY_MUL, call_tensor(c, "self"), call_tensor(c, "other"),
                           c->dtype);
    struct tensor x = *variable_read(c->r, n.x);
    struct tensor w = math_cast(c->r, *variable_read(c->r, n.weight), c->dtype);
    tensor_record(c->r, &x);
    tensor_record(c->r, &w);
    return c->r->failed ? x
                        : tensor_of(c->r, c->dtype, ckpt_rms_norm(c->r->t, x.x, w.x, (float)n.eps));
}

/* ---- over channels --------------------------------------------------------------------------- */

static ckpt_tensor pictures(struct call *c, const char *name)
{
    struct tensor a = channels_last(c->r, math_cast(c->r, call_tensor(c, name), c->dtype));

    return tensor_record(c->r, &a);
}

static struct tensor record_group_norm(struct call *c, bool silu)
{
    ckpt_tensor x = pictures(c, "input");
    const int64_t n = c->r->failed ? 1 : call_tensor(c, "input").shape[1];
    ckpt_tensor w = weight_or(c, "weight", 1.f, n), b = weight_or(c, "bias", 0.f, n);

    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    ckpt_tensor y = ckpt_group_norm_silu(c->r->t, x, w, b, (int)call_int(c, "num_groups"),
                                         (float)call_double(c, "eps"), silu);
    return channels_first(c->r, tensor_of(c->r, c->dtype, y));
}

static struct tensor op_group_norm(struct call *c, int part)
{
    (void)part;
    return record_group_norm(c, false);
}

/* SiLU of a group norm is one op. */
static struct tensor op_silu(struct call *c, int part)
{
    static const struct unary silu = {NULL, ckpt_silu};
    const struct call *norm = pattern_call(call_variable(c, "self"), "aten.group_norm.default");

    (void)part;
    if (!norm || norm->dtype != c->dtype)
        return math_unary(c->r, &silu, math_cast(c->r, call_tensor(c, "self"), c->dtype), c->dtype);
    struct call of = *norm;
    return record_group_norm(&of, true);
}

static struct tensor op_instance_norm(struct call *c, int part)
{
    ckpt_tensor x = pictures(c, "input");
    const int64_t n = c->r->failed ? 1 : call_tensor(c, "input").shape[1];
    ckpt_tensor w = weight_or(c, "weight", 1.f, n), b = weight_or(c, "bias", 0.f, n);

    (void)part;
    if (!call_bool(c, "use_input_stats") || call_has(c, "running_mean"))
        recording_fail(c->r, CKPT_EFORMAT, "instance norm with running statistics");
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    ckpt_tensor y = ckpt_instance_norm(c->r->t, x, w, b, (float)call_double(c, "eps"));
    return channels_first(c->r, tensor_of(c->r, c->dtype, y));
}

/* With training the statistics of the batch, which running ones follow if there are any. */
static struct tensor op_batch_norm(struct call *c, int part)
{
    ckpt_tensor x = pictures(c, "input"), w = flat_operand(c, "weight"),
                b = flat_operand(c, "bias");
    ckpt_tensor mean = call_operand(c, "running_mean", PT2_F32);
    ckpt_tensor var = call_operand(c, "running_var", PT2_F32);
    const float eps = (float)call_double(c, "eps");

    (void)part;
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    ckpt_tensor y =
        call_bool(c, "training")
            ? ckpt_batch_norm(c->r->t, x, w, b, mean, var, (float)call_double(c, "momentum"), eps)
            : ckpt_batch_norm_apply(c->r->t, x, w, b, mean, var, eps);
    return channels_first(c->r, tensor_of(c->r, c->dtype, y));
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_norm[] = {
    OP("mul.Tensor", op_mul),
    OP("mul.Scalar", op_mul),
    OP("layer_norm.default", op_layer_norm),
    OP("rms_norm.default", op_rms_norm),
    OP("group_norm.default", op_group_norm),
    OP("silu.default", op_silu),
    OP("instance_norm.default", op_instance_norm),
    {"aten.batch_norm.default", op_batch_norm, NULL, NULL, true},
    {NULL, NULL, NULL, NULL, false},
};
