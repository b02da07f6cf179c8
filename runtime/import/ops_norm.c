/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations.  Channels are axis 1 in PyTorch, and the last one here: see channels.h. */
#include <float.h>
#include "import/channels.h"
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* A norm of bf16 whose weights are kept in fp32 is computed in fp32 and rounded as a whole. */
static struct tensor record_norm(struct call *c, int part,
                                 struct tensor (*record)(struct call *c, int part))
{
    struct call of = *c;

    if (!pattern_has_narrow(c, "weight", c->dtype) || !pattern_has_narrow(c, "bias", c->dtype))
        of.dtype = PT2_F32;
    struct tensor y = record(&of, part);
    return c->r->failed ? y : math_cast(c->r, y, c->dtype);
}

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
    struct tensor w = pattern_operand(c, name, c->dtype);
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

/* Results beside the first, which gradients alone read in PyTorch. */
static void refuse_others(struct call *c, int part)
{
    if (part)
        recording_fail(c->r, CKPT_EFORMAT, "a mean or root of a normalisation is read");
}

static struct tensor plain_layer_norm(struct call *c, int part)
{
    int64_t shape[TENSOR_AXES];
    const int n = call_ints(c, "normalized_shape", shape, TENSOR_AXES);
    struct tensor a = pattern_operand(c, "input", c->dtype);
    struct tensor flat = flatten_last(c, a, n);
    ckpt_tensor w = flat_operand(c, "weight"), b = flat_operand(c, "bias");

    refuse_others(c, part);
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

/* v scaled so that its norm over all axes but one, or over all, is g. */
static struct tensor op_weight_norm(struct call *c, int part)
{
    struct tensor v = math_cast(c->r, call_tensor(c, "v"), c->dtype), g = call_tensor(c, "g");
    const int64_t dim = call_int(c, "dim");
    const unsigned kept = dim < 0 ? 0 : 1u << tensor_axis(c->r, &v, dim);
    ckpt_tensor x = tensor_record(c->r, &v);

    (void)part;
    if (c->r->failed)
        return v;
    const unsigned mask = ((1u << v.ndim) - 1) & ~kept;
    struct tensor norm = tensor_of(c->r, PT2_F32, ckpt_norm(c->r->t, x, mask));
    struct tensor scale = math_binary(c->r, BINARY_DIV, g, norm, c->dtype);
    return math_binary(c->r, BINARY_MUL, v, scale, c->dtype);
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
    struct tensor x = math_cast(c->r, *variable_read(c->r, n.x), c->dtype);
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

static struct tensor record_group_norm(struct call *c, const char *groups, bool silu)
{
    ckpt_tensor x = pictures(c, "input");
    const int64_t n = c->r->failed ? 1 : call_tensor(c, "input").shape[1];
    ckpt_tensor w = weight_or(c, "weight", 1.f, n), b = weight_or(c, "bias", 0.f, n);

    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    ckpt_tensor y = ckpt_group_norm_silu(c->r->t, x, w, b, (int)call_int(c, groups),
                                         (float)call_double(c, "eps"), silu);
    return channels_first(c->r, tensor_of(c->r, c->dtype, y));
}

static struct tensor plain_group_norm(struct call *c, int part)
{
    (void)part;
    return record_group_norm(c, "num_groups", false);
}

static struct tensor plain_native_group_norm(struct call *c, int part)
{
    refuse_others(c, part);
    return record_group_norm(c, "group", false);
}

/* SiLU of a group norm is one op. */
static struct tensor op_silu(struct call *c, int part)
{
    static const struct unary silu = {NULL, ckpt_silu};
    const struct call *norm = pattern_call(call_variable(c, "self"), "aten.group_norm.default");

    (void)part;
    struct call of = norm ? *norm : *c;
    if (!norm || norm->dtype != c->dtype || !pattern_has_narrow(&of, "weight", c->dtype) ||
        !pattern_has_narrow(&of, "bias", c->dtype))
        return math_unary(c->r, &silu, math_cast(c->r, call_tensor(c, "self"), c->dtype), c->dtype);
    return record_group_norm(&of, "num_groups", true);
}

static struct tensor plain_instance_norm(struct call *c, int part)
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
static struct tensor plain_batch_norm(struct call *c, int part)
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

/* The running statistics that follow from those of the batch. */
static struct tensor follow(struct call *c, const char *name, ckpt_tensor now)
{
    struct tensor old = call_tensor(c, name), x = tensor_of(c->r, PT2_F32, now);
    const double momentum = call_double(c, "momentum");

    x = c->r->failed ? x : view_reshape(c->r, x, old.ndim, old.shape);
    return math_binary(c->r, BINARY_ADD, math_affine(c->r, old, 1 - momentum, 0),
                       math_affine(c->r, x, momentum, 0), PT2_F32);
}

/* Results of a functional program: the values, two that gradients read, the running statistics. */
static struct tensor plain_functional_batch_norm(struct call *c, int part)
{
    ckpt_tensor x = pictures(c, "input"), w = flat_operand(c, "weight"),
                b = flat_operand(c, "bias");
    const int last = c->r->failed ? 0 : ckpt_desc_of(c->r->t, x).ndim - 1;
    const unsigned mask = (1u << last) - 1;

    if (part == 1 || part == 2)
        refuse_others(c, part);
    if (!call_bool(c, "training"))
        recording_fail(c->r, CKPT_EFORMAT, "a functional batch norm without training");
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    if (part)
        return follow(c, part == 3 ? "running_mean" : "running_var",
                      part == 3 ? ckpt_mean(c->r->t, ckpt_stop_gradient(c->r->t, x), mask)
                                : ckpt_var(c->r->t, ckpt_stop_gradient(c->r->t, x), mask, 1));
    ckpt_tensor y =
        ckpt_batch_norm(c->r->t, x, w, b, CKPT_NONE, CKPT_NONE, 0.f, (float)call_double(c, "eps"));
    return channels_first(c->r, tensor_of(c->r, c->dtype, y));
}

#define NORM(name)                                                                                 \
    static struct tensor op_##name(struct call *c, int part)                                       \
    {                                                                                              \
        return record_norm(c, part, plain_##name);                                                 \
    }

NORM(layer_norm)
NORM(group_norm)
NORM(native_group_norm)
NORM(instance_norm)
NORM(batch_norm)
NORM(functional_batch_norm)

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_norm[] = {
    OP("mul.Tensor", op_mul),
    OP("mul.Scalar", op_mul),
    OP("layer_norm.default", op_layer_norm),
    OP("rms_norm.default", op_rms_norm),
    OP("_weight_norm.default", op_weight_norm),
    OP("native_layer_norm.default", op_layer_norm),
    OP("group_norm.default", op_group_norm),
    OP("native_group_norm.default", op_native_group_norm),
    OP("_native_batch_norm_legit_functional.default", op_functional_batch_norm),
    OP("silu.default", op_silu),
    OP("instance_norm.default", op_instance_norm),
    {"aten.batch_norm.default", op_batch_norm, NULL, NULL, true},
    {NULL, NULL, NULL, NULL, false},
};
