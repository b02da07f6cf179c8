/* SPDX-License-Identifier: Apache-2.0 */
/* Single-layer modules, and common code of module constructors. */
#include <math.h>
#include <string.h>
#include "call.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "context/context.h"
#include "core/sized.h"
#include "nn/nn.h"

/* ---- makers -------------------------------------------------------------------------------- */

/* Keeps the error of the context for the next ckpt_compile. */
static void set_failure(struct nn_maker *m)
{
    ckpt *c = m->nn.context;

    m->failed = true;
    if (c)
        params_fail(&c->params, c->error.code);
}

struct nn_maker nn_open(const struct ckpt_nn *nn, const char *name, va_list ap)
{
    struct nn_maker m = {.nn = CKPT_NN_INIT, .name = ""};

    if (!nn || !nn->context) {
        m.failed = true;
        return m;
    }
    /* The position of the context member never changes, so it can report a wrong struct size. */
    ERRORS_TO(&nn->context->error);
    int rc = sized_read("struct ckpt_nn", &m.nn, sizeof m.nn, nn);
    m.nn.context = nn->context;
    if (!rc && (!name || !*name))
        rc = error_set(CKPT_EINVAL, "a module needs a name");
    else if (!rc && vsnprintf(m.name, sizeof m.name, name, ap) >= NN_NAME)
        rc = error_set(CKPT_EINVAL, "the name of a module is too long: '%s...'", m.name);
    if (rc)
        set_failure(&m);
    return m;
}

void nn_read_spec(struct nn_maker *m, const char *name, void *to, size_t known, const void *from)
{
    if (m->failed)
        return;
    ERRORS_TO(&m->nn.context->error);
    int rc = from ? sized_read(name, to, known, from)
                  : error_set(CKPT_EINVAL, "module '%s': NULL for its %s", m->name, name);
    if (rc)
        set_failure(m);
}

void nn_refuse(struct nn_maker *m, const char *why)
{
    if (m->failed)
        return;
    ERRORS_TO(&m->nn.context->error);
    error_set(CKPT_EINVAL, "module '%s': %s", m->name, why);
    set_failure(m);
}

struct nn_maker nn_part(const struct nn_maker *m, const char *part)
{
    struct nn_maker p = *m;
    size_t n = strlen(m->name);

    if (m->failed)
        return p;
    if (!part || snprintf(p.name + n, NN_NAME - n, ".%s", part) >= (int)(NN_NAME - n)) {
        ERRORS_TO(&m->nn.context->error);
        error_set(CKPT_EINVAL, "module '%s': the name of a part is missing or too long", m->name);
        set_failure(&p);
    }
    return p;
}

ckpt_tensor nn_parameter(const struct nn_maker *m, const char *part, int ndim, const int64_t *shape,
                         struct ckpt_init init)
{
    struct nn_maker p = nn_part(m, part);

    if (p.failed)
        return CKPT_NONE;
    return ckpt_param(p.nn.context, p.name, p.nn.dtype, ndim, shape, init, !p.nn.frozen);
}

/* NAME.weight and NAME.bias; own is PyTorch's default initialization, used unless nn overrides
 * it. */
static ckpt_tensor nn_weight(const struct nn_maker *m, int ndim, const int64_t *shape,
                             struct ckpt_init own)
{
    return nn_parameter(m, "weight", ndim, shape, m->nn.weight ? *m->nn.weight : own);
}

static ckpt_tensor nn_bias(const struct nn_maker *m, int64_t n, struct ckpt_init own)
{
    return nn_parameter(m, "bias", 1, &n, m->nn.bias ? *m->nn.bias : own);
}

/* PyTorch's kaiming_uniform_(a=sqrt(5)): the bound is sqrt(6 / (6 fan)). */
static struct ckpt_init uniform_by_fan(int64_t fan)
{
    return CKPT_UNIFORM(1.f / sqrtf((float)(fan > 0 ? fan : 1)));
}

ckpt_tensor nn_no_module(ckpt_tape *t, const char *call)
{
    ckpt_tape_fail(t, CKPT_EINVAL, "%s: NULL for its module", call);
    return CKPT_NONE;
}

/* ---- parts of ranks ------------------------------------------------------------------------ */

int nn_ranks(const struct nn_maker *m)
{
    const ckpt *c = m->failed || m->nn.frozen ? NULL : m->nn.context;

    return c && c->ranks.sharing.tensor > 1 ? c->ranks.sharing.tensor : 1;
}

void nn_check_parts(struct nn_maker *m, int64_t n, const char *things)
{
    char why[128];

    snprintf(why, sizeof why, "%lld %s do not divide into %d equal parts (--tensor %d)",
             (long long)n, things, nn_ranks(m), nn_ranks(m));
    if (n % nn_ranks(m))
        nn_refuse(m, why);
}

static void split_param(struct nn_maker *m, ckpt_tensor x, int axis, int64_t blocks)
{
    if (!m->failed && x.id && ckpt_param_split(m->nn.context, x, axis, blocks))
        set_failure(m);
}

void nn_split_rows(struct nn_maker *m, const struct ckpt_nn_linear *l, int64_t blocks)
{
    if (nn_ranks(m) < 2)
        return;
    split_param(m, l->weight, 0, blocks);
    split_param(m, l->bias, 0, blocks);
}

void nn_split_columns(struct nn_maker *m, const struct ckpt_nn_linear *l)
{
    if (nn_ranks(m) > 1)
        split_param(m, l->weight, 1, 1);
}

/* ---- linear -------------------------------------------------------------------------------- */

struct ckpt_nn_linear nn_linear(const struct nn_maker *m, int64_t in, int64_t out, bool bias)
{
    struct ckpt_nn_linear l = {CKPT_NONE, CKPT_NONE};

    l.weight = nn_weight(m, 2, (int64_t[]){out, in}, uniform_by_fan(in));
    if (bias)
        l.bias = nn_bias(m, out, uniform_by_fan(in));
    return l;
}

struct ckpt_nn_linear ckpt_nn_linear(const struct ckpt_nn *nn, int64_t in, int64_t out, bool bias,
                                     const char *name, ...)
{
    NN_OPEN(m);
    return nn_linear(&m, in, out, bias);
}

ckpt_tensor ckpt_nn_apply_linear(ckpt_tape *t, const struct ckpt_nn_linear *m, ckpt_tensor x)
{
    OPS_CALL(t);
    return m ? ckpt_linear(t, x, m->weight, m->bias) : nn_no_module(t, __func__);
}

/* ---- norms --------------------------------------------------------------------------------- */

struct ckpt_nn_norm nn_norm(const struct nn_maker *m, int64_t width, float eps, bool rms)
{
    struct nn_maker own = *m; /* the initialization of projections does not apply to norms */

    own.nn.weight = own.nn.bias = NULL;
    return (struct ckpt_nn_norm){nn_weight(&own, 1, &width, CKPT_ONES),
                                 rms ? CKPT_NONE : nn_bias(&own, width, CKPT_ZEROS), eps, rms};
}

struct ckpt_nn_norm ckpt_nn_layer_norm(const struct ckpt_nn *nn, int64_t width, float eps,
                                       const char *name, ...)
{
    NN_OPEN(m);
    return nn_norm(&m, width, eps, false);
}

struct ckpt_nn_norm ckpt_nn_rms_norm(const struct ckpt_nn *nn, int64_t width, float eps,
                                     const char *name, ...)
{
    NN_OPEN(m);
    return nn_norm(&m, width, eps, true);
}

ckpt_tensor ckpt_nn_apply_norm(ckpt_tape *t, const struct ckpt_nn_norm *m, ckpt_tensor x)
{
    OPS_CALL(t);
    if (!m)
        return nn_no_module(t, __func__);
    return m->rms ? ckpt_rms_norm(t, x, m->weight, m->eps)
                  : ckpt_layer_norm(t, x, m->weight, m->bias, m->eps);
}

/* Running statistics are fp32 and not trained by an optimizer. */
static ckpt_tensor buffer(const struct nn_maker *m, const char *part, int64_t n,
                          struct ckpt_init init)
{
    struct nn_maker own = *m;

    own.nn.dtype = CKPT_F32;
    own.nn.frozen = true;
    return nn_parameter(&own, part, 1, &n, init);
}

struct ckpt_nn_batch_norm ckpt_nn_batch_norm(const struct ckpt_nn *nn, int64_t width,
                                             float momentum, float eps, const char *name, ...)
{
    NN_OPEN(m);
    struct ckpt_nn_norm affine = nn_norm(&m, width, eps, false);
    return (struct ckpt_nn_batch_norm){affine.weight,
                                       affine.bias,
                                       buffer(&m, "running_mean", width, CKPT_ZEROS),
                                       buffer(&m, "running_var", width, CKPT_ONES),
                                       momentum,
                                       eps};
}

ckpt_tensor ckpt_nn_apply_batch_norm(ckpt_tape *t, const struct ckpt_nn_batch_norm *m,
                                     ckpt_tensor x, bool training)
{
    OPS_CALL(t);
    if (!m)
        return nn_no_module(t, __func__);
    return training ? ckpt_batch_norm(t, x, m->weight, m->bias, m->running_mean, m->running_var,
                                      m->momentum, m->eps)
                    : ckpt_batch_norm_apply(t, x, m->weight, m->bias, m->running_mean,
                                            m->running_var, m->eps);
}

/* ---- embedding ----------------------------------------------------------------------------- */

struct ckpt_nn_embedding ckpt_nn_embedding(const struct ckpt_nn *nn, int64_t rows, int64_t width,
                                           const char *name, ...)
{
    NN_OPEN(m);
    return (struct ckpt_nn_embedding){nn_weight(&m, 2, (int64_t[]){rows, width}, CKPT_NORMAL(1.f))};
}

ckpt_tensor ckpt_nn_apply_embedding(ckpt_tape *t, const struct ckpt_nn_embedding *m,
                                    ckpt_tensor index)
{
    OPS_CALL(t);
    return m ? ckpt_embedding(t, m->weight, index, -1) : nn_no_module(t, __func__);
}

/* ---- convolution --------------------------------------------------------------------------- */

/* File layout of convolution weights: axis 0 stays, channels move from the last axis to axis 1. */
static void channels_first(ckpt *c, ckpt_tensor weight, int spatial)
{
    int axes[CKPT_MAX_DIMS] = {0, spatial + 1};

    for (int i = 0; i < spatial; i++)
        axes[i + 2] = i + 1;
    ckpt_param_file_axes(c, weight, spatial + 2, NULL, axes);
}

/* first: channels on axis 0 of the weight; last: channels of the other side, divided by groups. */
static struct ckpt_nn_conv make_conv(struct nn_maker *m, int64_t first, int64_t last, int64_t out,
                                     int spatial, const int64_t *kernel,
                                     const struct ckpt_conv_spec *from, bool bias)
{
    struct ckpt_nn_conv w = {CKPT_NONE, CKPT_NONE};
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    int64_t shape[CKPT_MAX_DIMS] = {first}, fan;

    if (from)
        nn_read_spec(m, "struct ckpt_conv_spec", &spec, sizeof spec, from);
    if (spatial < 1 || spatial > 3 || !kernel)
        nn_refuse(m, "a convolution has one to three sizes");
    if (spec.groups < 1 || first % spec.groups || last % spec.groups)
        nn_refuse(m, "the groups of a convolution divide its channels");
    if (m->failed)
        return w;
    fan = last / spec.groups;
    shape[spatial + 1] = fan;
    for (int i = 0; i < spatial; i++)
        fan *= shape[i + 1] = kernel[i];
    w.weight = nn_weight(m, spatial + 2, shape, uniform_by_fan(fan));
    if (w.weight.id)
        channels_first(m->nn.context, w.weight, spatial);
    if (bias)
        w.bias = nn_bias(m, out, uniform_by_fan(fan));
    return w;
}

struct ckpt_nn_conv ckpt_nn_conv(const struct ckpt_nn *nn, int64_t in, int64_t out, int spatial,
                                 const int64_t *kernel, const struct ckpt_conv_spec *spec,
                                 bool bias, const char *name, ...)
{
    NN_OPEN(m);
    return make_conv(&m, out, in, out, spatial, kernel, spec, bias);
}

struct ckpt_nn_conv ckpt_nn_conv_transpose(const struct ckpt_nn *nn, int64_t in, int64_t out,
                                           int spatial, const int64_t *kernel,
                                           const struct ckpt_conv_spec *spec, bool bias,
                                           const char *name, ...)
{
    NN_OPEN(m);
    return make_conv(&m, in, out, out, spatial, kernel, spec, bias);
}

ckpt_tensor ckpt_nn_apply_conv(ckpt_tape *t, const struct ckpt_nn_conv *m, ckpt_tensor x,
                               const struct ckpt_conv_spec *spec)
{
    OPS_CALL(t);
    return m ? ckpt_conv(t, x, m->weight, m->bias, spec) : nn_no_module(t, __func__);
}

ckpt_tensor ckpt_nn_apply_conv_transpose(ckpt_tape *t, const struct ckpt_nn_conv *m, ckpt_tensor x,
                                         const struct ckpt_conv_spec *spec)
{
    OPS_CALL(t);
    return m ? ckpt_conv_transpose(t, x, m->weight, m->bias, spec) : nn_no_module(t, __func__);
}
