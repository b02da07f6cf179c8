/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low-rank adapters: parameters beside a weight, which ckpt_linear finds (ops/linear.c).  They are
 * recorded as two small linear layers, so planning, sharing, saving and resuming need nothing new.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "core/sized.h"
#include "train/train.h"

/* PEFT's name of DoRA's lengths of rows. */
#define LORA_MAGNITUDE "lora_magnitude_vector"

static int fail(ckpt *c, int code, const char *why, const char *pattern)
{
    return params_fail(&c->params,
                       error_set(code, "ckpt_lora '%s': %s", pattern ? pattern : "", why));
}

/* "h.0.qkv.weight" and "lora_A.weight" give "PREFIXh.0.qkv.lora_A.weight"; freed by the caller;
 * NULL: out of memory. */
static char *adapter_name(const struct ckpt_lora *s, const char *weight, const char *which)
{
    size_t n = strlen(weight), end = strlen(".weight");
    char *name;

    if (n > end && !strcmp(weight + n - end, ".weight"))
        n -= end;
    return asprintf(&name, "%s%.*s.%s", s->prefix, (int)n, weight, which) < 0 ? NULL : name;
}

/* Makes a parameter of an adapter; returns its index, or a negative code that sticks. */
static int32_t add_parameter(ckpt *c, const struct ckpt_lora *s, const struct param *w,
                             const char *which, const struct ckpt_desc *d, struct ckpt_init init)
{
    char *name = adapter_name(s, w->name, which);
    ckpt_tensor x = ckpt_param(c, name, w->desc.dtype, d->ndim, d->shape, init, !s->frozen);

    free(name);
    if (!x.id)
        return c->params.failed.code;
    c->params.data[c->params.n - 1].training.adapter = true;
    return c->params.n - 1;
}

static const struct ckpt_desc *file_view(const struct param *w)
{
    return w->file_view.ndim ? &w->file_view : &w->desc;
}

/* Whether files have the columns of a weight as they are, whatever the order of its rows; or a
 * matrix turned as a whole, which an adapter is not. */
static bool has_whole_columns(const struct param *w)
{
    const struct ckpt_desc *view = file_view(w);
    const int last = view->ndim - 1;

    return !w->reordered || (view->shape[last] == w->desc.shape[1] &&
                             (view->ndim == 2 || w->file_axes[last] == last));
}

/* Gives B, or a magnitude, the order of rows that files have of the weight. */
static int order_rows(ckpt *c, const struct param *w, int32_t i)
{
    const struct ckpt_desc *view = file_view(w), own = c->params.data[i].desc;
    int64_t shape[CKPT_MAX_DIMS];
    const int ndim = view->ndim - (own.ndim == 1);

    if (!w->reordered || view->ndim == 2)
        return 0;
    memcpy(shape, view->shape, sizeof shape);
    if (own.ndim == 2)
        shape[ndim - 1] = own.shape[1];
    return ckpt_param_file_axes(c, params_handle(&c->params, i), ndim, shape, w->file_axes);
}

/* Makes the parameters in the order A, B, magnitude; returns that of A, or a negative code. */
static int32_t add_parameters(ckpt *c, const struct ckpt_lora *s, const struct param *w)
{
    const int64_t out = w->desc.shape[0], in = w->desc.shape[1];
    const struct ckpt_desc of_a = {.ndim = 2, .shape = {s->rank, in}},
                           of_b = {.ndim = 2, .shape = {out, s->rank}},
                           of_m = {.ndim = 1, .shape = {out}};
    const struct ckpt_init first = CKPT_UNIFORM((float)(1 / sqrt((double)in)));
    int32_t a = add_parameter(c, s, w, "lora_A.weight", &of_a, first);
    int32_t b = a < 0 ? a : add_parameter(c, s, w, "lora_B.weight", &of_b, CKPT_ZEROS);
    int32_t m = b < 0 || !s->dora ? b : add_parameter(c, s, w, LORA_MAGNITUDE, &of_m, CKPT_ONES);
    int rc = m < 0 ? m : order_rows(c, w, b);

    if (!rc && s->dora)
        rc = order_rows(c, w, m);
    if (rc)
        return rc;
    c->params.data[a].training.factor.b = b;
    c->params.data[a].training.factor.magnitude = s->dora ? m : 0;
    return a;
}

/* Copies the weight's struct, because ckpt_param may move the array of parameters. */
static int add_adapter(ckpt *c, const struct ckpt_lora *s, int32_t i)
{
    const struct param w = c->params.data[i];
    const int32_t a = add_parameters(c, s, &w);

    if (a < 0)
        return a;
    struct param_training *to = &c->params.data[a].training;
    to->factor.alpha = s->alpha;
    to->factor.scale = (float)((double)s->alpha / (double)s->rank);
    to->factor.dropout = s->dropout;
    int32_t *end = &c->params.data[i].training.lora;
    while (*end)
        end = &c->params.data[*end].training.factor.next;
    *end = a;
    return 0;
}

static bool matches(const struct param *w, const char *pattern)
{
    return !w->training.adapter && w->desc.ndim == 2 && !fnmatch(pattern, w->name, 0);
}

/* Why a weight cannot have the adapter, or NULL. */
static const char *find_weight_fault(const ckpt *c, const struct ckpt_lora *s,
                                     const struct param *w)
{
    const int32_t first = w->training.lora;
    char *name = adapter_name(s, w->name, "lora_A.weight");
    ckpt_tensor other;
    const bool taken = !name || !ckpt_param_find(c, name, &other);

    free(name);
    if (taken)
        return "a weight of that name has an adapter of this prefix already";
    if (first && (s->dora || c->params.data[first].training.factor.magnitude))
        return "DoRA scales a weight with its adapter, and allows no other one";
    if (w->training.whole)
        return "a weight of that name is trained as a whole (ckpt_lora_whole)";
    return has_whole_columns(w) ? NULL
                                : "files have the columns of such a weight in another order, and "
                                  "an adapter has no other";
}

static const char *find_fault(const ckpt *c, const struct ckpt_lora *s)
{
    const char *fault = NULL;
    int32_t found = 0;

    if (!s->pattern || !s->prefix)
        return "it needs a pattern and a prefix";
    if (s->rank < 1 || s->rank > INT32_MAX || !isfinite(s->alpha))
        return "rank must be 1 or more, and alpha finite";
    if (!(s->dropout >= 0.f && s->dropout < 1.f))
        return "dropout is a probability below 1";
    if (c->options.qat)
        return "--qat rounds weights that are trained, and below adapters none is: leave one out";
    if (c->programs.first)
        return "add adapters before a program is compiled";
    for (int32_t i = 0; i < c->params.n && !fault; i++)
        if (matches(&c->params.data[i], s->pattern)) {
            fault = find_weight_fault(c, s, &c->params.data[i]);
            found++;
        }
    return fault || found ? fault : "no parameter of two axes has such a name";
}

int ckpt_lora(ckpt *c, const struct ckpt_lora *settings)
{
    struct ckpt_lora s = CKPT_LORA_INIT;
    int32_t n = 0, made = 0;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    if (c->params.failed.code)
        return (c->error = c->params.failed).code;
    if (!settings)
        return fail(c, CKPT_EINVAL, "it needs settings", NULL);
    if (sized_read("struct ckpt_lora", &s, sizeof s, settings))
        return fail(c, CKPT_EINVAL, error_get(), NULL);
    const char *fault = find_fault(c, &s);
    if (fault)
        return fail(c, CKPT_EINVAL, fault, s.pattern);
    n = c->params.n;
    for (int32_t i = 0; i < n; i++)
        if (!c->params.data[i].training.adapter && !c->params.data[i].training.whole)
            c->params.data[i].trainable = false;
    for (int32_t i = 0; i < n; i++)
        if (matches(&c->params.data[i], s.pattern)) {
            int rc = add_adapter(c, &s, i);
            if (rc)
                return rc;
            made++;
        }
    return made;
}

bool ckpt_lora_only(void *user, const char *name)
{
    (void)user;
    return name && (strstr(name, ".lora_A.weight") || strstr(name, ".lora_B.weight") ||
                    strstr(name, "." LORA_MAGNITUDE));
}

int ckpt_lora_whole(ckpt *c, const char *pattern)
{
    int n = 0;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(pattern);
    for (int32_t i = 0; i < c->params.n; i++) {
        struct param *p = &c->params.data[i];
        if (p->training.adapter || p->cache || !p->trainable || fnmatch(pattern, p->name, 0))
            continue;
        p->training.whole = true;
        n++;
    }
    return n ? n
             : error_set(CKPT_EINVAL, "ckpt_lora_whole '%s': no trained parameter has such a name",
                         pattern);
}

/* ---- merging --------------------------------------------------------------------------------- */

/* w [out, in] += scale b [out, rank] a [rank, in]. */
static void add_product(float *w, const float *b, const float *a, const int64_t size[3],
                        float scale)
{
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t k = 0; k < size[1]; k++) {
            float factor = scale * b[i * size[1] + k];
            for (int64_t j = 0; j < size[2]; j++)
                w[i * size[2] + j] += factor * a[k * size[2] + j];
        }
}

static double row_norm(const float *row, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)row[i] * (double)row[i];
    return sqrt(sum);
}

static int fail_memory(const struct param *w)
{
    return error_set(CKPT_ENOMEM, "no memory to merge '%s'", w->name);
}

/* All values of a parameter, freed by the caller. */
static float *read_values(ckpt *c, int32_t i, int *rc)
{
    const int64_t n = desc_numel(&c->params.data[i].desc);
    float *values = malloc((size_t)n * sizeof *values);

    *rc = values ? ckpt_param_get(c, params_handle(&c->params, i), CKPT_VALUE, values, n)
                 : fail_memory(&c->params.data[i]);
    return values;
}

static int set_values(ckpt *c, int32_t i, const float *values)
{
    return ckpt_param_set(c, params_handle(&c->params, i), CKPT_VALUE, values,
                          desc_numel(&c->params.data[i].desc));
}

/* Adds the product of the adapter with A i. */
static int add_factors(ckpt *c, int32_t i, const struct param *w, float *values)
{
    const int32_t at = c->params.data[i].training.factor.b;
    const int64_t size[] = {w->desc.shape[0], c->params.data[i].desc.shape[0], w->desc.shape[1]};
    int rc;
    float *a = read_values(c, i, &rc), *b = rc ? NULL : read_values(c, at, &rc);

    if (!rc)
        add_product(values, b, a, size, c->params.data[i].training.factor.scale);
    free(a);
    free(b);
    return rc;
}

/* Scales the rows to the lengths of the magnitude. */
static int scale_rows(ckpt *c, int32_t magnitude, const struct param *w, float *values)
{
    const int64_t rows = w->desc.shape[0], n = w->desc.shape[1];
    int rc;
    float *m = read_values(c, magnitude, &rc);

    for (int64_t i = 0; i < rows && !rc; i++) {
        const double norm = row_norm(values + i * n, n);
        const double by = (double)m[i] / norm;
        for (int64_t k = 0; k < n; k++)
            values[i * n + k] = (float)((double)values[i * n + k] * by);
    }
    free(m);
    return rc;
}

int lora_add(ckpt *c, ckpt_tensor weight, float *values)
{
    const struct param *w = params_at(&c->params, weight);
    const int32_t first = w->training.lora;
    int rc = 0;

    for (int32_t i = first; i && !rc; i = c->params.data[i].training.factor.next)
        rc = add_factors(c, i, w, values);
    const int32_t magnitude = first ? c->params.data[first].training.factor.magnitude : 0;
    return rc || !magnitude ? rc : scale_rows(c, magnitude, w, values);
}

/* Sets a magnitude to the lengths of the rows of the weight in `values`. */
static int set_magnitude(ckpt *c, int32_t magnitude, const struct param *w, const float *values)
{
    const int64_t rows = w->desc.shape[0], n = w->desc.shape[1];
    float *m = malloc((size_t)rows * sizeof *m);
    int rc = m ? 0 : fail_memory(w);

    for (int64_t i = 0; i < rows && !rc; i++) {
        m[i] = (float)row_norm(values + i * n, n);
        if (!(m[i] > 0.f))
            rc = error_set(CKPT_EINVAL,
                           "ckpt_lora: row %lld of '%s' is 0, and DoRA divides by "
                           "its length",
                           (long long)i, w->name);
    }
    rc = rc ? rc : set_values(c, magnitude, m);
    free(m);
    return rc;
}

static int clear(ckpt *c, int32_t i)
{
    const int64_t n = desc_numel(&c->params.data[i].desc);
    float *zeros = calloc((size_t)n, sizeof *zeros);
    int rc = zeros ? set_values(c, i, zeros) : fail_memory(&c->params.data[i]);

    free(zeros);
    return rc;
}

static int merge(ckpt *c, int32_t i)
{
    const struct param *w = &c->params.data[i];
    const int32_t first = w->training.lora;
    const int32_t magnitude = c->params.data[first].training.factor.magnitude;
    int rc;
    float *values = read_values(c, i, &rc);

    if (!rc)
        rc = lora_add(c, params_handle(&c->params, i), values);
    for (int64_t k = 0; !rc && magnitude && k < desc_numel(&w->desc); k++)
        if (!isfinite(values[k])) /* before anything is changed */
            rc = error_set(CKPT_EINVAL, "ckpt_lora_merge: a row of '%s' is 0, and DoRA divides by "
                                        "its length",
                           w->name);
    if (!rc)
        rc = set_values(c, i, values);
    for (int32_t a = first; a && !rc; a = c->params.data[a].training.factor.next)
        rc = clear(c, c->params.data[a].training.factor.b);
    if (!rc && magnitude)
        rc = set_magnitude(c, magnitude, w, values);
    free(values);
    return rc;
}

int ckpt_lora_magnitudes(ckpt *c)
{
    int rc = 0;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    for (int32_t i = 0; i < c->params.n && !rc; i++) {
        const int32_t first = c->params.data[i].training.lora;
        if (!first || !c->params.data[first].training.factor.magnitude)
            continue;
        float *values = read_values(c, i, &rc);
        if (!rc)
            rc = add_factors(c, first, &c->params.data[i], values);
        if (!rc)
            rc = set_magnitude(c, c->params.data[first].training.factor.magnitude,
                               &c->params.data[i], values);
        free(values);
    }
    return rc;
}

/* A weight with an adapter that is kept in codes, which would round the sum; or NULL. */
static const struct param *find_coded(const ckpt *c)
{
    for (int32_t i = 0; i < c->params.n; i++)
        if (c->params.data[i].training.lora && c->params.data[i].training.codes)
            return &c->params.data[i];
    return NULL;
}

int ckpt_lora_merge(ckpt *c)
{
    int rc = 0;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    const struct param *coded = find_coded(c);
    if (coded)
        return error_set(CKPT_EINVAL,
                         "ckpt_lora_merge: '%s' is kept in codes, which would round the sum: "
                         "write merged weights with ckpt_save_params_merged",
                         coded->name);
    for (int32_t i = 0; i < ckpt_param_count(c) && !rc; i++)
        if (c->params.data[i].training.lora)
            rc = merge(c, i);
    return rc;
}
