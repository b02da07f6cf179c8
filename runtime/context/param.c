/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls on parameters.  Their names are unique; with several ranks all are made before
 * the first program is compiled.  The context keeps the first failure for the next ckpt_compile, so
 * that a model needs no check after each call.  Values are passed as n fp32 elements; dist/values.c
 * finds where they are stored (slots, shares of ranks, the host).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_nn.h"
#include "context/context.h"
#include "dist/values.h"
#include "core/sized.h"

static ckpt_tensor param_fail(ckpt *c, int code, const char *name, const char *why)
{
    ERRORS_TO(&c->error);
    error_set(code, "parameter '%s': %s", name ? name : "", why);
    params_fail(&c->params, code);
    return CKPT_NONE;
}

/* The visible parameter of this name, or -1. */
static int32_t find_name(const ckpt *c, const char *name)
{
    for (int32_t i = 0; i < ckpt_param_count(c); i++)
        if (!strcmp(c->params.data[i].name, name))
            return i;
    return -1;
}

static int param_desc(struct ckpt_desc *d, enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    *d = (struct ckpt_desc){.dtype = dtype, .ndim = ndim};
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        d->shape[i] = shape[i];
        if (shape[i] <= 0 || __builtin_mul_overflow(n, shape[i], &n) || n > INT64_MAX / 64)
            return CKPT_ESHAPE;
    }
    desc_dense(d);
    return 0;
}

/* Why a file could not store a parameter of this name, or NULL. */
static const char *name_fault(const char *name)
{
    if (!name || !*name)
        return "it needs a name";
    if (!text_is_utf8(name))
        return "the name is not UTF-8";
    return strcmp(name, "__metadata__") ? NULL : "safetensors reserves the name";
}

/* Why there are no such first values, or NULL. */
static const char *init_fault(struct ckpt_init init)
{
    if ((unsigned)init.kind > CKPT_INIT_XAVIER_UNIFORM)
        return "there are no such first values";
    if ((init.kind == CKPT_INIT_NORMAL || init.kind == CKPT_INIT_UNIFORM) && !isfinite(init.a))
        return "its first values would not be finite";
    return NULL;
}

ckpt_tensor ckpt_param(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                       const int64_t *shape, struct ckpt_init init, bool trainable)
{
    struct param p = {.init = init, .trainable = trainable};
    if (!c || c->params.failed.code)
        return CKPT_NONE;
    if (ranks_are_laid_out(&c->ranks))
        return param_fail(c, CKPT_EINVAL, name,
                          "with several ranks all are made before the first program is compiled");
    const char *fault = name_fault(name);
    if (!fault)
        fault = init_fault(init);
    if (fault)
        return param_fail(c, CKPT_EINVAL, name, fault);
    if (find_name(c, name) >= 0)
        return param_fail(c, CKPT_EINVAL, name, "the name is used twice");
    if (dtype != CKPT_F32 && dtype != CKPT_BF16)
        return param_fail(c, CKPT_EINVAL, name, "its dtype must be fp32 or bf16");
    if (ndim < 0 || ndim > CKPT_MAX_DIMS || (ndim && !shape) ||
        param_desc(&p.desc, dtype, ndim, shape))
        return param_fail(c, CKPT_ESHAPE, name, "its shape has too many axes, or an empty one");
    for (int s = 0; s < SLOT_COUNT; s++)
        p.place.offset[s] = -1;
    p.training.half_state = c->params.half_state && dtype == CKPT_BF16;
    p.training.byte_state = c->params.byte_state && dtype == CKPT_BF16;
    p.name = strdup(name);
    if (!p.name || ARRAY_RESERVE(&c->params, c->params.n)) {
        free(p.name);
        return param_fail(c, CKPT_ENOMEM, name, "no memory");
    }
    c->params.data[c->params.n++] = p;
    const ckpt_tensor x = params_handle(&c->params, c->params.n - 1);
    return qat_mark(c, c->params.n - 1) ? CKPT_NONE : x;
}

ckpt_tensor ckpt_param_from(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                            const int64_t *shape, const float *values, bool trainable)
{
    if (c && !values && !c->params.failed.code)
        return param_fail(c, CKPT_EINVAL, name, "there are no first values");
    ERRORS_TO(context_error(c));
    ckpt_tensor x = ckpt_param(c, name, dtype, ndim, shape, CKPT_ZEROS, trainable);
    const struct param *p = x.id ? params_at(&c->params, x) : NULL;
    int rc = p ? ckpt_param_set(c, x, CKPT_VALUE, values, desc_numel(&p->desc)) : 0;
    if (rc)
        params_fail(&c->params, rc);
    return rc ? CKPT_NONE : x;
}

ckpt_tensor ckpt_cache(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                       const int64_t *shape)
{
    ckpt_tensor x = ckpt_param(c, name, dtype, ndim, shape, CKPT_ZEROS, false);
    if (x.id)
        params_at(&c->params, x)->cache = true;
    return x;
}

int ckpt_param_count(const ckpt *c)
{
    if (!c)
        return 0;
    return c->params.n - c->params.n_hidden;
}

ckpt_tensor ckpt_param_at(const ckpt *c, int i)
{
    return i >= 0 && i < ckpt_param_count(c) ? params_handle(&c->params, i) : CKPT_NONE;
}

int ckpt_param_find(const ckpt *c, const char *name, ckpt_tensor *param)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(name);
    NOT_NULL(param);
    int32_t i = find_name(c, name);
    if (i < 0)
        return error_set(CKPT_ENAME, "there is no parameter '%s'", name);
    *param = params_handle(&c->params, i);
    return 0;
}

int ckpt_param_info(const ckpt *c, ckpt_tensor x, struct ckpt_param_info *info)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(info);
    const struct param *p = params_at(&c->params, x);
    if (!p)
        return error_set(CKPT_ENAME, "ckpt_param_info: tensor %d is no parameter of this context",
                         (int)x.id);
    struct ckpt_param_info all = {
        .name = p->name, .desc = p->desc, .numel = desc_numel(&p->desc), .trainable = p->trainable};
    return sized_write("struct ckpt_param_info", info, &all, sizeof all);
}

/* Finds the parameter; fails unless the slot exists and has n elements. */
static int find_slot(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, int64_t n, struct param **p)
{
    *p = params_at(&c->params, x);
    if (!*p || slot < CKPT_VALUE || slot > CKPT_EXP_AVG_SQ_COL)
        return error_set(CKPT_ENAME, "no such parameter or slot");
    if (!values_kept(&c->ranks, *p, slot))
        return error_set(CKPT_ENAME, "parameter '%s' keeps no such state: no program trains it",
                         (*p)->name);
    const struct ckpt_desc d = values_file_desc(*p, slot);
    if (n != desc_numel(&d))
        return error_set(CKPT_EINVAL, "parameter '%s' has %lld elements, not %lld", (*p)->name,
                         (long long)desc_numel(&d), (long long)n);
    return 0;
}

int ckpt_param_get(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, float *dst, int64_t n)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(dst);
    struct param *p;
    int rc = find_slot(c, x, slot, n, &p);
    if (!rc)
        rc = params_check_whole(&c->params);
    if (rc)
        return rc;
    return values_get(&c->ranks, p, slot, dst);
}

int ckpt_param_set(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, const float *src, int64_t n)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(src);
    struct param *p;
    int rc = find_slot(c, x, slot, n, &p);
    if (!rc)
        rc = params_check_lost(&c->params);
    if (rc)
        return rc;
    return values_set(&c->ranks, p, slot, src);
}
