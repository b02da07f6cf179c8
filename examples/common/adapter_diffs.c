/* SPDX-License-Identifier: Apache-2.0 */
/* Differences of weights, biases, norms and tables in a file of adapters: see adapters.h.  They
 * become part of the weights, so what is written as adapters again would lack them. */
#include <stdlib.h>
#include <string.h>
#include "adapters.h"
#include "memory.h"
#include "names.h"
#include "patterns.h"
#include "say.h"

/* The parameter of a difference, and what is known of it.  Returns 0, or -1 after an error message.
 */
static int find(const struct adapter_run *r, const struct adapter_diff *d, ckpt_tensor *w,
                struct ckpt_param_info *info)
{
    const char *path = r->options->file.path;
    char name[LORA_LAYER];

    if (!adapter_diff_find(r->context, r->names, d->layer, d->bias, name))
        return say_fail("%s: '%s' is of no parameter of %s: these are adapters of another model",
                        path, d->tensor, r->model);
    if (ckpt_param_find(r->context, name, w) || ckpt_param_info(r->context, *w, info))
        return say_fail("%s", ckpt_error(r->context));
    const size_t bytes = (size_t)d->desc.ndim * sizeof *d->desc.shape;
    return info->desc.ndim == d->desc.ndim && !memcmp(info->desc.shape, d->desc.shape, bytes)
               ? 0
               : say_fail("%s: '%s' has another shape than %s: these are adapters of another model",
                          path, d->tensor, name);
}

static int refuse(const struct adapter_file *l, const char *why)
{
    struct names all = {.n = 0};
    char text[NAMES_TEXT];

    for (int i = 0; i < l->n_diff; i++)
        names_add(&all, l->diff[i].tensor);
    return say_fail("%s: has differences of weights beside its adapters, %s: %s", l->path, why,
                    names_text(&all, text));
}

int adapter_diffs_check(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;

    if (l->n_diff && r->trains)
        return refuse(l, "and a training that goes on writes adapters alone; merge them into the "
                         "weights first (--steps 0 --lora-merge FILE)");
    if (l->n_diff && (!strcmp(r->options->frozen, "int8") || !strcmp(r->options->frozen, "nf4")))
        return refuse(l, "which are not added to codes (--frozen)");
    for (int i = 0; i < l->n_diff; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_tensor w;
        if (find(r, &l->diff[i], &w, &info))
            return -1;
    }
    return 0;
}

static int add(const struct adapter_run *r, ckpt_file *f, const struct adapter_diff *d)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_tensor w;

    if (find(r, d, &w, &info))
        return -1;
    const int64_t n = info.numel;
    float *x = MEMORY_FOR(sizeof *x, n, 2), *diff = x + n;
    int rc = x ? 0 : say_fail("no memory for '%s'", d->tensor);

    if (!rc && ckpt_file_read_f32(f, ckpt_file_find(f, d->tensor), diff, n))
        rc = say_fail("%s", ckpt_error(NULL));
    if (!rc && ckpt_param_get(r->context, w, CKPT_VALUE, x, n))
        rc = say_fail("%s", ckpt_error(r->context));
    for (int64_t i = 0; i < n && !rc; i++)
        x[i] += diff[i];
    if (!rc && ckpt_param_set(r->context, w, CKPT_VALUE, x, n))
        rc = say_fail("%s", ckpt_error(r->context));
    free(x);
    return rc;
}

int adapter_diffs_add(const struct adapter_run *r)
{
    const struct adapter_file *l = &r->options->file;
    ckpt_file *f;
    int rc = 0;

    if (!l->n_diff)
        return 0;
    if (ckpt_file_open(&f, l->path))
        return say_fail("%s", ckpt_error(NULL));
    for (int i = 0; i < l->n_diff && !rc; i++)
        rc = add(r, f, &l->diff[i]);
    ckpt_file_close(f);
    return rc;
}
