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

static int fail(ckpt *c, int code, const char *why, const char *pattern)
{
    return params_fail(&c->params,
                       error_set(code, "ckpt_lora '%s': %s", pattern ? pattern : "", why));
}

/* "h.0.qkv.weight" and "lora_A" give "PREFIXh.0.qkv.lora_A.weight"; freed by the caller; NULL: out
 * of memory. */
static char *adapter_name(const struct ckpt_lora *s, const char *weight, const char *which)
{
    size_t n = strlen(weight), end = strlen(".weight");
    char *name;

    if (n > end && !strcmp(weight + n - end, ".weight"))
        n -= end;
    return asprintf(&name, "%s%.*s.%s.weight", s->prefix, (int)n, weight, which) < 0 ? NULL : name;
}

/* Makes one of the two factors; returns its index, or a negative code that sticks. */
static int32_t add_parameter(ckpt *c, const struct ckpt_lora *s, const struct param *w,
                             const char *which, int64_t rows, int64_t cols, struct ckpt_init init)
{
    char *name = adapter_name(s, w->name, which);
    ckpt_tensor x = ckpt_param(c, name, w->desc.dtype, 2, (int64_t[]){rows, cols}, init, true);

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

/* Gives B the order of rows that files have of the weight. */
static int order_rows(ckpt *c, const struct param *w, int32_t b, int64_t rank)
{
    const struct ckpt_desc *view = file_view(w);
    int64_t shape[CKPT_MAX_DIMS];

    if (!w->reordered || view->ndim == 2)
        return 0;
    memcpy(shape, view->shape, sizeof shape);
    shape[view->ndim - 1] = rank;
    return ckpt_param_file_axes(c, params_handle(&c->params, b), view->ndim, shape, w->file_axes);
}

/* Copies the weight's struct, because ckpt_param may move the array of parameters. */
static int add_adapter(ckpt *c, const struct ckpt_lora *s, int32_t i)
{
    const struct param w = c->params.data[i];
    int64_t out = w.desc.shape[0], in = w.desc.shape[1];
    int32_t a =
        add_parameter(c, s, &w, "lora_A", s->rank, in, CKPT_UNIFORM((float)(1 / sqrt((double)in))));
    int32_t b = a < 0 ? a : add_parameter(c, s, &w, "lora_B", out, s->rank, CKPT_ZEROS);

    if (b < 0)
        return b;
    const int rc = order_rows(c, &w, b, s->rank);
    if (rc)
        return rc;
    c->params.data[i].training.lora.a = a;
    c->params.data[i].training.lora.b = b;
    c->params.data[i].training.lora.alpha = s->alpha;
    c->params.data[i].training.lora.scale = (float)((double)s->alpha / (double)s->rank);
    return 0;
}

static bool matches(const struct param *w, const char *pattern)
{
    return !w->training.adapter && w->desc.ndim == 2 && !fnmatch(pattern, w->name, 0);
}

static const char *find_fault(const ckpt *c, const struct ckpt_lora *s)
{
    int32_t found = 0;

    if (!s->pattern || !s->prefix)
        return "it needs a pattern and a prefix";
    if (s->rank < 1 || s->rank > INT32_MAX || !isfinite(s->alpha))
        return "rank must be 1 or more, and alpha finite";
    if (c->options.qat)
        return "--qat rounds weights that are trained, and below adapters none is: leave one out";
    if (c->programs.first)
        return "add adapters before a program is compiled";
    for (int32_t i = 0; i < c->params.n; i++) {
        const struct param *w = &c->params.data[i];
        if (matches(w, s->pattern) && w->training.lora.b)
            return "a weight of that name has an adapter already";
        if (matches(w, s->pattern) && !has_whole_columns(w))
            return "files have the columns of such a weight in another order, and an adapter has "
                   "no other";
        found += matches(w, s->pattern);
    }
    return found ? NULL : "no parameter of two axes has such a name";
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
        if (!c->params.data[i].training.adapter)
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
    return name && (strstr(name, ".lora_A.weight") || strstr(name, ".lora_B.weight"));
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

static int fail_memory(const struct param *w)
{
    return error_set(CKPT_ENOMEM, "no memory to merge '%s'", w->name);
}

int lora_add(ckpt *c, ckpt_tensor weight, float *values)
{
    const struct param *w = params_at(&c->params, weight);
    if (!w->training.lora.b)
        return 0;
    const int64_t size[] = {w->desc.shape[0], c->params.data[w->training.lora.a].desc.shape[0],
                            w->desc.shape[1]};
    const int64_t na = size[1] * size[2], nb = size[0] * size[1];
    float *a = malloc((size_t)(na + nb) * sizeof *a), *b = a + na;

    if (!a)
        return fail_memory(w);
    int rc = ckpt_param_get(c, params_handle(&c->params, w->training.lora.a), CKPT_VALUE, a, na);
    if (!rc)
        rc = ckpt_param_get(c, params_handle(&c->params, w->training.lora.b), CKPT_VALUE, b, nb);
    if (!rc)
        add_product(values, b, a, size, w->training.lora.scale);
    free(a);
    return rc;
}

static int clear(ckpt *c, int32_t i)
{
    const int64_t n = desc_numel(&c->params.data[i].desc);
    float *zeros = calloc((size_t)n, sizeof *zeros);
    int rc = zeros ? ckpt_param_set(c, params_handle(&c->params, i), CKPT_VALUE, zeros, n)
                   : fail_memory(&c->params.data[i]);

    free(zeros);
    return rc;
}

static int merge(ckpt *c, int32_t i)
{
    const struct param *w = &c->params.data[i];
    const int64_t n = desc_numel(&w->desc);
    ckpt_tensor x = params_handle(&c->params, i);
    float *values = malloc((size_t)n * sizeof *values);
    int rc = values ? ckpt_param_get(c, x, CKPT_VALUE, values, n) : fail_memory(w);

    if (!rc)
        rc = lora_add(c, x, values);
    if (!rc)
        rc = ckpt_param_set(c, x, CKPT_VALUE, values, n);
    if (!rc)
        rc = clear(c, w->training.lora.b);
    free(values);
    return rc;
}

/* A weight with an adapter that is kept in codes, which would round the sum; or NULL. */
static const struct param *find_coded(const ckpt *c)
{
    for (int32_t i = 0; i < c->params.n; i++)
        if (c->params.data[i].training.lora.b && c->params.data[i].training.codes)
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
        if (c->params.data[i].training.lora.b)
            rc = merge(c, i);
    return rc;
}
