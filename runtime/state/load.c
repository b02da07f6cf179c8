/* SPDX-License-Identifier: Apache-2.0 */
/* Loads parameters from a file by name.  Everything is validated before anything changes. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "dist/ranks.h"
#include "state/safetensors.h"
#include "state/state_counts.h"

/* State of a load: the file entry of each parameter. */
struct load {
    ckpt *c;
    ckpt_file *f;
    int n_params;
    int *entry;         /* per parameter: index in the file, or -1 */
    bool *used;         /* per file entry */
    const char *prefix; /* prefix of all names in the file that no parameter here has; or "" */
    ckpt_name_alias other;
    ckpt_name_report report;
    void *user;
};

/* DistributedDataParallel puts this prefix before every name. */
#define MODULE "module."

/* The prefix, if all names in the file have it and no parameter does. */
static const char *find_prefix(const struct load *l)
{
    for (int i = 0; i < l->f->count; i++)
        if (strncmp(l->f->tensors[i].name, MODULE, strlen(MODULE)) != 0)
            return "";
    for (int i = 0; i < l->n_params; i++)
        if (!strncmp(l->c->params.data[i].name, MODULE, strlen(MODULE)))
            return "";
    return MODULE;
}

static int trim_ones(int ndim, const int64_t *shape)
{
    while (ndim > 0 && shape[ndim - 1] == 1)
        ndim--;
    return ndim;
}

/* If the name differs, trailing axes of size 1 are ignored in the comparison of shapes. */
static int check_fit(const struct load *l, const struct param *p, int entry)
{
    const struct file_tensor *e = &l->f->tensors[entry];
    struct ckpt_desc d = param_file_desc(p);
    bool same = strcmp(e->name + strlen(l->prefix), p->name) == 0;
    int ndim = same ? e->ndim : trim_ones(e->ndim, e->shape);

    if (ndim != (same ? d.ndim : trim_ones(d.ndim, d.shape)) ||
        memcmp(e->shape, d.shape, (size_t)ndim * sizeof(e->shape[0])))
        return file_shape_unfit(e->part->path, e, &d);
    if (!e->dtype->to_f32 || (file_is_int8(e) && file_find_scale(l->f, entry) < 0))
        return file_bad(e->part->path, "tensor '%s' is %s%s and cannot be read as fp32", e->name,
                        e->dtype->name, e->dtype->to_f32 ? " without scales" : "");
    return 0;
}

static int find_name(const struct load *l, const char *name)
{
    char whole[512];

    snprintf(whole, sizeof whole, "%s%s", l->prefix, name);
    return ckpt_file_find(l->f, *l->prefix ? whole : name);
}

static int find_entry(const struct load *l, const char *name)
{
    char other[256];
    int entry = find_name(l, name);

    for (int i = 0; entry < 0 && l->other && l->other(l->user, name, i, other, sizeof(other)); i++)
        entry = find_name(l, other);
    return entry;
}

/* The scale and zero point of the operand of a layer whose weight is in codes: kernels of integers
 * need them, values of weights do not. */
static void use_input_scales(const struct load *l, int entry)
{
    static const char *const names[] = {"input_scale", "input_zero_point"};
    const char *weight = l->f->tensors[entry].name, *dot = strrchr(weight, '.');
    char name[512];

    for (int i = 0; i < 2 && dot; i++) {
        snprintf(name, sizeof name, "%.*s.%s", (int)(dot - weight), weight, names[i]);
        const int found = ckpt_file_find(l->f, name);
        if (found >= 0)
            l->used[found] = true;
    }
}

/* Finds and validates the entry of every parameter; *largest is the largest number of elements. */
static int match_parameters(struct load *l, int64_t *largest)
{
    *largest = 0;
    for (int i = 0; i < l->n_params; i++) {
        const struct param *p = &l->c->params.data[i];
        l->entry[i] = p->cache ? -1 : find_entry(l, p->name);
        if (l->entry[i] < 0)
            continue;
        int rc = check_fit(l, p, l->entry[i]);
        int scale = rc ? -1 : file_find_scale(l->f, l->entry[i]);
        if (scale >= 0) {
            l->used[scale] = true;
            use_input_scales(l, l->entry[i]);
            rc = file_check_scale(&l->f->tensors[l->entry[i]], &l->f->tensors[scale]);
        }
        if (rc)
            return rc;
        l->used[l->entry[i]] = true;
        *largest = max_i64(*largest, desc_numel(&p->desc));
    }
    return 0;
}

/* Whether a file need not have it: caches are in none, and ranges may begin anew. */
static bool is_optional(const struct param *p)
{
    return p->cache || p->training.qat.is_range;
}

static int report_unmatched(const struct load *l)
{
    int unmatched = 0;

    for (int i = 0; i < l->n_params; i++) {
        struct ckpt_param_info p = CKPT_PARAM_INFO_INIT;
        if (l->entry[i] >= 0 || is_optional(&l->c->params.data[i]))
            continue;
        unmatched++;
        ckpt_param_info(l->c, ckpt_param_at(l->c, i), &p);
        if (l->report)
            l->report(l->user, "missing", p.name);
    }
    for (int i = 0; i < l->f->count; i++) {
        if (l->used[i])
            continue;
        unmatched++;
        if (l->report)
            l->report(l->user, "unexpected", l->f->tensors[i].name);
    }
    return unmatched;
}

/* Does the file contain every parameter that it must have? */
static bool has_all_params(const struct load *l)
{
    for (int i = 0; i < l->n_params; i++)
        if (l->entry[i] < 0 && !is_optional(&l->c->params.data[i]))
            return false;
    return true;
}

/* Whether the file has a parameter of this model, or the model has none. */
static bool matches_any(const struct load *l)
{
    bool wanted = false;

    for (int i = 0; i < l->n_params; i++) {
        if (l->entry[i] >= 0)
            return true;
        wanted |= !is_optional(&l->c->params.data[i]);
    }
    return !wanted;
}

/* The file is of another model, or a state. */
static int refuse_foreign(const struct load *l)
{
    if (file_find_note(l->f, NOTE_VERSION))
        return file_bad(l->f->path, "is a state of training, which ckpt_load_state reads "
                                    "(--resume), not weights");
    report_unmatched(l);
    if (!l->f->count)
        return error_set(CKPT_ENAME, "%s: it has no tensors", l->f->path);
    return error_set(CKPT_ENAME, "%s: it has no parameter of this model: '%s'%s", l->f->path,
                     l->f->tensors[0].name, l->f->count > 1 ? " and others" : "");
}

/* buffer holds the largest parameter twice. */
static int copy_values(const struct load *l, float *buffer, int64_t largest)
{
    for (int i = 0; i < l->n_params; i++) {
        const struct param *p = &l->c->params.data[i];
        float *value = buffer;
        if (l->entry[i] < 0)
            continue;
        int64_t n = l->f->tensors[l->entry[i]].numel;
        int rc = ckpt_file_read_f32(l->f, l->entry[i], buffer, n);
        int scale = rc ? -1 : file_find_scale(l->f, l->entry[i]);
        if (scale >= 0)
            rc = file_apply_scale(l->f, l->entry[i], scale, buffer);
        if (!rc && !floats_are_finite(buffer, n))
            rc = file_bad(l->f->path, "tensor '%s' has values that are not finite",
                          l->f->tensors[l->entry[i]].name);
        if (rc)
            return rc;
        if (p->reordered) {
            value = buffer + largest;
            param_from_file(p, buffer, value);
        }
        rc = ckpt_param_set(l->c, ckpt_param_at(l->c, i), CKPT_VALUE, value, n);
        if (rc)
            return error_set(rc, "%s: %s", l->f->path, ckpt_error(l->c));
    }
    return 0;
}

static int load_parameters(struct load *l, int *unmatched)
{
    int64_t largest;
    int rc = match_parameters(l, &largest);

    if (!rc && !matches_any(l))
        rc = refuse_foreign(l);
    if (rc)
        return rc;
    float *buffer = malloc(2 * (size_t)largest * sizeof(float) + 1);
    if (!buffer)
        return error_set(CKPT_ENOMEM, "%s: no memory to read a tensor of %s", l->f->path,
                         human_bytes(largest * (int64_t)sizeof(float)));
    int n = report_unmatched(l);
    if (unmatched)
        *unmatched = n;
    enum torn torn_before = l->c->params.torn;
    l->c->params.torn = torn_before ? torn_before : TORN_VALUES;
    rc = copy_values(l, buffer, largest);
    if (!rc && (!torn_before || (torn_before == TORN_VALUES && has_all_params(l))))
        l->c->params.torn = TORN_NOT;
    free(buffer);
    return rc;
}

int ckpt_load_params_aliased(ckpt *c, const char *path, ckpt_name_alias other,
                             ckpt_name_report report, void *user, int *unmatched)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    struct load l = {
        .c = c, .n_params = ckpt_param_count(c), .other = other, .report = report, .user = user};
    int rc = ckpt_file_open(&l.f, path);

    if (rc)
        return rc;
    l.entry = calloc((size_t)l.n_params + 1, sizeof(l.entry[0]));
    l.used = calloc((size_t)l.f->count + 1, sizeof(l.used[0]));
    l.prefix = find_prefix(&l);
    if (l.entry && l.used)
        rc = load_parameters(&l, unmatched);
    else
        rc = error_set(CKPT_ENOMEM, "%s: no memory to match its names", path);
    free(l.entry);
    free(l.used);
    ckpt_file_close(l.f);
    if (!rc)
        rc = ranks_agree_loaded(&c->ranks, programs_digest_steps(&c->programs));
    return c->ranks.sharing.layout
               ? ranks_give_up(&c->ranks, rc)
               : rc; /* before there is a layout the other ranks do not wait for a load */
}

int ckpt_load_params(ckpt *c, const char *path, ckpt_name_report report, void *user, int *unmatched)
{
    return ckpt_load_params_aliased(c, path, NULL, report, user, unmatched);
}
