/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "import/inputs.h"
#include "import/mutation.h"
#include "import/views.h"
#include "state/base_weights.h"

struct maker {
    ckpt *c;
    struct pt2_program *p;
    const struct weights *w;
    struct model_input *in;
};

/* ---- uses of an input ------------------------------------------------------------------------ */

static bool is_value(const struct pt2_arg *a, int32_t value)
{
    return a && a->kind == ARG_VALUE && a->value == value;
}

/* Whether a node of the main graph whose target begins so reads the value as this argument. */
static bool is_read_as(const struct pt2_program *p, int32_t value, const char *target,
                       const char *argument)
{
    for (int32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct pt2_node *n = &p->graph->node[i];
        if (!strncmp(n->target, target, strlen(target)) &&
            is_value(pt2_arg_find(n, argument), value))
            return true;
    }
    return false;
}

/* ---- what a step changes --------------------------------------------------------------------- */

static bool is_output(const struct pt2_program *p, const struct pt2_input *in)
{
    for (int i = 0; i < p->n_out; i++)
        if (p->out[i].kind == PT2_MUTATION && !strcmp(p->out[i].name, in->name))
            return true;
    return false;
}

static bool is_trained(const struct maker *m, const struct pt2_input *from)
{
    return from->kind == PT2_PARAMETER && m->p->graph->value[from->value].tensor.requires_grad;
}

/* What keeps a value from step to step: buffers, and parameters that are not trained. */
static int refuse_change(const struct maker *m, int i, const struct pt2_node *n)
{
    const struct pt2_input *from = &m->p->in[i];
    char shown[200], place[300] = "its new value is an output";

    if (n)
        pt2_node_place(n, place, sizeof place);
    return error_set(CKPT_EFORMAT, "%s: '%s', which %s, is changed in place%s%s (%s)", m->p->path,
                     text_shown(from->name, shown, sizeof shown),
                     from->kind == PT2_PARAMETER ? "is trained" : "is a constant, not a buffer",
                     n ? " by " : "", n ? n->target : "", place);
}

/* Names of one memory change together, if all are the same elements of it. */
static int spread_change(const struct maker *m, int i)
{
    const struct weight *w = weights_find(m->w, m->p->in[i].name);
    char shown[200], other[200];

    for (int k = 0; w && k < m->p->n_in; k++) {
        const struct pt2_input *from = &m->p->in[k];
        const struct weight *x =
            k == i || from->kind > PT2_CONSTANT ? NULL : weights_find(m->w, from->name);
        if (!x || !weights_overlap(w, x))
            continue;
        if (from->kind != m->p->in[i].kind || !weights_same(w, x))
            return error_set(CKPT_EFORMAT,
                             "%s: '%s', which a step changes, has memory of '%s', and is not the "
                             "whole of it",
                             m->p->path, text_shown(m->p->in[i].name, shown, sizeof shown),
                             text_shown(from->name, other, sizeof other));
        m->in[k].changes = true;
    }
    return 0;
}

static int find_changes(const struct maker *m)
{
    const struct pt2_node **writer;
    int rc = mutation_find(m->p, &writer);

    for (int i = 0; !rc && i < m->p->n_in; i++) {
        const struct pt2_input *from = &m->p->in[i];
        if (from->kind > PT2_CONSTANT || (!writer[from->value] && !is_output(m->p, from)))
            continue;
        const bool kept =
            from->kind == PT2_BUFFER || (from->kind == PT2_PARAMETER && !is_trained(m, from));
        m->in[i].changes = true;
        rc = kept ? spread_change(m, i) : refuse_change(m, i, writer[from->value]);
    }
    return rc;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int64_t axis_size(const struct pt2_tensor *t, int i)
{
    return t->size[i].n;
}

/* The order of axes in which ops read the parameter. */
static void order_axes(const struct pt2_program *p, int32_t value, int n, struct model_input *in)
{
    const bool kernel = n > 2 && is_read_as(p, value, "torch.ops.aten.conv", "weight");
    const bool matrix = n == 2 && is_read_as(p, value, "torch.ops.aten.addmm", "mat2");

    in->reordered = kernel || matrix;
    for (int i = 0; i < n; i++)
        in->axis[i] = matrix ? 1 - i : !kernel || i == 0 ? i : i == n - 1 ? 1 : i + 1;
}

static void permute(const float *from, float *to, int n, const int64_t *size, const int *axes)
{
    int64_t stride[CKPT_MAX_DIMS], step = 1, count = 1, index[CKPT_MAX_DIMS] = {0}, at = 0;

    for (int i = n - 1; i >= 0; i--) {
        stride[i] = step;
        step *= size[i];
        count *= size[i];
    }
    for (int64_t k = 0; k < count; k++) {
        to[k] = from[at];
        for (int i = n - 1; i >= 0; i--) {
            at += stride[axes[i]];
            if (++index[i] < size[axes[i]])
                break;
            at -= index[i] * stride[axes[i]];
            index[i] = 0;
        }
    }
}

/* Values as fp32; whole numbers, which buffers have, by way of i32. */
static int read_f32(const struct maker *m, const struct weight *w, float *to)
{
    int32_t *whole = (int32_t *)(void *)to;
    int rc;

    if (pt2_is_float(w->code))
        return weights_read_f32(m->w, w, 0, to, w->numel);
    rc = weights_read_i32(m->w, w, 0, whole, w->numel);
    for (int64_t k = 0; !rc && k < w->numel; k++)
        to[k] = (float)whole[k];
    return rc;
}

/* Values in the order of the parameter; zeros where the archive has none. */
static int read_values(const struct maker *m, const struct weight *w, const struct model_input *in,
                       int n, const int64_t *size)
{
    const size_t all = (size_t)w->numel * (in->reordered ? 2 : 1);
    float *values = malloc(all * sizeof *values);
    float *moved = values && in->reordered ? values + w->numel : values;
    uint64_t digest;
    int rc = values ? read_f32(m, w, values)
                    : error_set(CKPT_ENOMEM, "there is no memory for '%s'", w->name);

    if (!rc && in->reordered)
        permute(values, moved, n, size, in->axis);
    if (!rc) /* a buffer may have a mask that is not finite */
        rc = base_digest(&m->c->params, values, w->numel, &digest, NULL);
    if (!rc)
        rc = ckpt_param_set(m->c, in->param, CKPT_VALUE, moved, w->numel);
    if (!rc)
        params_at(&m->c->params, in->param)->place.base = digest;
    free(values);
    return rc;
}

static int refuse_dtype(const struct maker *m, const char *name, int dtype)
{
    char shown[200];

    return error_set(CKPT_EFORMAT, "%s: '%s' has values of %s, which cannot be trained", m->p->path,
                     text_shown(name, shown, sizeof shown), pt2_dtype_name(dtype));
}

static int make_param(const struct maker *m, const struct pt2_input *from, const struct weight *w,
                      struct model_input *in)
{
    const struct pt2_tensor *t = &m->p->graph->value[from->value].tensor;
    const bool trained = from->kind == PT2_PARAMETER;
    int inverse[CKPT_MAX_DIMS];
    int64_t size[CKPT_MAX_DIMS], shape[CKPT_MAX_DIMS];

    if (trained && t->dtype != PT2_F32 && t->dtype != PT2_BF16)
        return refuse_dtype(m, from->name, t->dtype);
    order_axes(m->p, trained && !in->changes ? from->value : -1, t->ndim, in);
    inverse_axes(t->ndim, in->axis, inverse);
    for (int i = 0; i < t->ndim; i++)
        size[i] = axis_size(t, i);
    for (int i = 0; i < t->ndim; i++)
        shape[i] = size[in->axis[i]];
    in->param =
        ckpt_param(m->c, from->name, t->dtype == PT2_BF16 && !in->changes ? CKPT_BF16 : CKPT_F32,
                   t->ndim, shape, CKPT_ZEROS, trained && t->requires_grad);
    if (!in->param.id) {
        const int rc = params_take_failure(&m->c->params);
        return error_set(rc, "%s: %s", m->p->path, error_get());
    }
    if (in->reordered)
        ckpt_param_file_axes(m->c, in->param, t->ndim, NULL, inverse);
    /* A plan needs no values, and an archive may have a hundred GB of them. */
    return w->has_values && !m->c->options.plan_only ? read_values(m, w, in, t->ndim, size) : 0;
}

/* An input before this one that is the same memory; both are trained or none. */
static int find_tied(const struct maker *m, int i, const struct weight *w,
                     const struct model_input **tied)
{
    const struct pt2_input *from = &m->p->in[i];
    char shown[200], other[200];

    for (int k = 0; k < i && !*tied; k++)
        if (m->in[k].param.id && m->p->in[k].kind == from->kind &&
            weights_same(w, weights_find(m->w, m->p->in[k].name)))
            *tied = &m->in[k];
    if (!*tied || is_trained(m, from) == is_trained(m, &m->p->in[*tied - m->in]))
        return 0;
    return error_set(CKPT_EFORMAT, "%s: '%s' and '%s' are one memory, and only one is trained",
                     m->p->path, text_shown(m->p->in[*tied - m->in].name, other, sizeof other),
                     text_shown(from->name, shown, sizeof shown));
}

/* ---- constants ------------------------------------------------------------------------------- */

/* Whole numbers from the bytes of the file, which are little-endian. */
static int64_t whole_at(int dtype, const unsigned char *bytes, int64_t k)
{
    int16_t half;
    int32_t word;
    int64_t wide;

    switch (dtype) {
    case PT2_I64:
        memcpy(&wide, bytes + 8 * k, sizeof wide);
        return wide;
    case PT2_I32:
        memcpy(&word, bytes + 4 * k, sizeof word);
        return word;
    case PT2_I16:
        memcpy(&half, bytes + 2 * k, sizeof half);
        return half;
    case PT2_I8:
        return (int8_t)bytes[k];
    default:
        return bytes[k];
    }
}

static int read_whole(const struct maker *m, const struct weight *w, struct tensor *a)
{
    unsigned char *bytes = malloc((size_t)w->numel * 8);
    int rc = bytes ? weights_read(m->w, w, 0, bytes, w->numel)
                   : error_set(CKPT_ENOMEM, "there is no memory for '%s'", w->name);

    for (int64_t k = 0; !rc && k < w->numel; k++)
        a->i[k] = whole_at(a->dtype, bytes, k);
    free(bytes);
    return rc;
}

static int read_floats(const struct maker *m, const struct weight *w, struct tensor *a)
{
    float *values = a->dtype == PT2_F64 ? NULL : malloc((size_t)w->numel * sizeof *values);

    if (a->dtype == PT2_F64)
        return weights_read(m->w, w, 0, a->f, w->numel);
    int rc = values ? weights_read_f32(m->w, w, 0, values, w->numel)
                    : error_set(CKPT_ENOMEM, "there is no memory for '%s'", w->name);
    for (int64_t k = 0; !rc && k < w->numel; k++)
        a->f[k] = values[k];
    free(values);
    return rc;
}

/* Pairs of floats: the real parts, and in a tensor of their own the imaginary ones. */
static int read_complex(const struct maker *m, const struct weight *w, struct tensor *a)
{
    struct tensor *imaginary = heap_zeros(&m->p->heap, 1, sizeof *imaginary);
    float *pairs = malloc((size_t)w->numel * 2 * sizeof *pairs);
    int rc =
        imaginary && pairs ? 0 : error_set(CKPT_ENOMEM, "there is no memory for '%s'", w->name);

    a->dtype = PT2_F32;
    if (!rc)
        *imaginary = *a;
    if (!rc) {
        imaginary->f = heap_zeros(&m->p->heap, w->numel, sizeof *a->f);
        rc = imaginary->f ? 0 : CKPT_ENOMEM;
    }
    if (!rc && w->has_values)
        rc = weights_read(m->w, w, 0, pairs, w->numel);
    for (int64_t k = 0; !rc && w->has_values && k < w->numel; k++) {
        a->f[k] = pairs[2 * k];
        imaginary->f[k] = pairs[2 * k + 1];
    }
    a->imaginary = imaginary;
    free(pairs);
    return rc;
}

static int read_constant(const struct maker *m, const struct pt2_input *from,
                         const struct weight *w, struct tensor *a)
{
    const struct pt2_tensor *t = &m->p->graph->value[from->value].tensor;
    char shown[200];
    int64_t n = 1;

    *a = (struct tensor){.dtype = t->dtype, .ndim = t->ndim, .constant = true};
    for (int i = t->ndim - 1; i >= 0; i--) {
        a->shape[i] = axis_size(t, i);
        a->stride[i] = a->shape[i] == 1 ? 0 : n;
        n *= a->shape[i];
    }
    a->i = heap_zeros(&m->p->heap, n, sizeof *a->i);
    if (!a->i)
        return CKPT_ENOMEM;
    if (t->dtype == PT2_C64)
        return read_complex(m, w, a);
    if (!tape_has_dtype(t->dtype))
        return refuse_dtype(m, from->name, t->dtype);
    if (!w->has_values && m->c->options.plan_only)
        return 0;
    if (!w->has_values)
        return error_set(CKPT_EFORMAT,
                         "%s: the model was exported without values, and '%s' is a constant of it, "
                         "which no file of weights gives: export it with its values to train it",
                         m->p->path, text_shown(from->name, shown, sizeof shown));
    return pt2_is_float(t->dtype) ? read_floats(m, w, a) : read_whole(m, w, a);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static int check_weight(const struct maker *m, const struct pt2_input *from, const struct weight *w)
{
    const struct pt2_tensor *t = &m->p->graph->value[from->value].tensor;
    char shown[200];
    bool same = w && w->code == t->dtype && w->ndim == t->ndim;

    for (int i = 0; same && i < t->ndim; i++)
        same = !t->size[i].expr && w->size[i] == t->size[i].n;
    if (same)
        return 0;
    return error_set(CKPT_EFORMAT, "%s: the tensor '%s' is not there, or not as in the program",
                     m->p->path, text_shown(from->name, shown, sizeof shown));
}

static int make_input(const struct maker *m, int i)
{
    const struct pt2_input *from = &m->p->in[i];
    const struct weight *w = weights_find(m->w, from->name);
    struct model_input *in = &m->in[i];
    const struct model_input *tied = NULL;
    int rc = check_weight(m, from, w);

    if (!rc)
        rc = find_tied(m, i, w, &tied);
    if (rc)
        return rc;
    const struct pt2_tensor *t = &m->p->graph->value[from->value].tensor;
    const bool is_float = pt2_is_float(t->dtype);
    in->changes = in->changes && w->numel;
    /* What has no elements is never trained, nor written: it is a constant. */
    const bool in_files = w->numel && from->kind == PT2_BUFFER && from->persistent;
    const bool kept = (from->kind == PT2_PARAMETER && w->numel) || in->changes ||
                      (in_files && is_float);
    if (tied && kept) {
        *in = *tied;
        in->tied = tied;
    } else if (kept || in_files) {
        rc = make_param(m, from, w, in);
    }
    if (rc || kept)
        return rc;
    in->param = CKPT_NONE; /* files have it, but what is recorded is its value */
    return read_constant(m, from, w, &in->constant);
}

int model_inputs_make(ckpt *c, struct pt2_program *p, const struct weights *w,
                      struct model_input *in)
{
    const struct maker m = {.c = c, .p = p, .w = w, .in = in};
    int rc = find_changes(&m);

    for (int i = 0; !rc && i < p->n_in; i++)
        if (p->in[i].kind <= PT2_CONSTANT)
            rc = make_input(&m, i);
    return rc;
}
