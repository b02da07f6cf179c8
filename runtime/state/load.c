/* SPDX-License-Identifier: Apache-2.0 */
/* Loads parameters from a file by name.  Everything is validated before anything changes. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "dist/ranks.h"
#include "state/base_weights.h"
#include "state/file_forms.h"
#include "state/safetensors.h"
#include "state/state_counts.h"

/* Where a file has a parameter: the index of the tensor, of the first part or of the blocks, or -1.
 */
struct found {
    int entry;
    enum file_form form;
};

/* State of a load: the file entry of each parameter. */
struct load {
    ckpt *c;
    ckpt_file *f;
    int n_params;
    struct found *of;   /* per parameter */
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
static int check_fit(const struct load *l, const struct param *p, int entry, enum file_form of)
{
    const struct file_tensor *e = &l->f->tensors[entry];
    struct ckpt_desc d = of == FORM_PARTS ? param_part_desc(p) : param_file_desc(p);
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

/* NAME_blocks or NAME_scales. */
static int find_ending(const struct load *l, const char *name, const char *ending)
{
    char whole[512];

    snprintf(whole, sizeof whole, "%s%s", name, ending);
    return find_name(l, whole);
}

static struct found find_entry(const struct load *l, const struct param *p)
{
    struct found x = {find_name(l, p->name), FORM_WHOLE};
    char other[256];

    for (int i = 0; x.entry < 0 && l->other && l->other(l->user, p->name, i, other, sizeof(other));
         i++)
        x.entry = find_name(l, other);
    if (x.entry < 0 && p->n_file_parts)
        x = (struct found){find_name(l, p->file_parts[0]), FORM_PARTS};
    if (x.entry < 0)
        x = (struct found){find_ending(l, p->name, "_blocks"), FORM_MXFP4};
    return x;
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

/* Validates one tensor with values of the parameter, all or a part, and its scales. */
static int match_tensor(struct load *l, const struct param *p, int entry, enum file_form form)
{
    int rc = check_fit(l, p, entry, form);
    int scale = rc ? -1 : file_find_scale(l->f, entry);

    if (scale >= 0) {
        l->used[scale] = true;
        use_input_scales(l, entry);
        rc = file_check_scale(&l->f->tensors[entry], &l->f->tensors[scale]);
    }
    l->used[entry] = true;
    return rc;
}

static int match_parts(struct load *l, const struct param *p)
{
    int rc = 0;

    for (int i = 0; i < p->n_file_parts && !rc; i++) {
        const int entry = find_name(l, p->file_parts[i]);
        rc = entry < 0 ? file_bad(l->f->path, "it has '%s' and not '%s': parts of '%s' are missing",
                                  p->file_parts[0], p->file_parts[i], p->name)
                       : match_tensor(l, p, entry, FORM_PARTS);
    }
    return rc;
}

static int match_mxfp4(struct load *l, const struct param *p, int blocks)
{
    const int scales = find_ending(l, p->name, "_scales");

    l->used[blocks] = true;
    if (scales >= 0)
        l->used[scales] = true;
    return file_check_mxfp4(l->f, blocks, scales, p);
}

/* Finds and validates the entry of every parameter; *largest is the largest number of elements. */
static int match_parameters(struct load *l, int64_t *largest)
{
    int rc = 0;

    *largest = 0;
    for (int i = 0; i < l->n_params && !rc; i++) {
        const struct param *p = &l->c->params.data[i];
        l->of[i] = p->cache ? (struct found){-1, FORM_WHOLE} : find_entry(l, p);
        const struct found x = l->of[i];
        if (x.entry < 0)
            continue;
        rc = x.form == FORM_PARTS   ? match_parts(l, p)
             : x.form == FORM_MXFP4 ? match_mxfp4(l, p, x.entry)
                                    : match_tensor(l, p, x.entry, x.form);
        *largest = max_i64(*largest, desc_numel(&p->desc));
    }
    return rc;
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
        if (l->of[i].entry >= 0 || is_optional(&l->c->params.data[i]))
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
        if (l->of[i].entry < 0 && !is_optional(&l->c->params.data[i]))
            return false;
    return true;
}

/* Whether the file has a parameter of this model, or the model has none. */
static bool matches_any(const struct load *l)
{
    bool wanted = false;

    for (int i = 0; i < l->n_params; i++) {
        if (l->of[i].entry >= 0)
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

static int read_tensor(const struct load *l, int entry, float *values)
{
    int rc = ckpt_file_read_f32(l->f, entry, values, l->f->tensors[entry].numel);
    int scale = rc ? -1 : file_find_scale(l->f, entry);

    return scale >= 0 ? file_apply_scale(l->f, entry, scale, values) : rc;
}

static int read_parts(const struct load *l, const struct param *p, float *values)
{
    const struct ckpt_desc part = param_part_desc(p);
    int rc = 0;

    for (int i = 0; i < p->n_file_parts && !rc; i++)
        rc = read_tensor(l, find_name(l, p->file_parts[i]), values + i * desc_numel(&part));
    return rc;
}

/* Reads a parameter in whatever form; MXFP4 has the order of the parameter itself. */
static int read_values(const struct load *l, const struct param *p, struct found x, float *values)
{
    return x.form == FORM_PARTS ? read_parts(l, p, values)
           : x.form == FORM_MXFP4
               ? file_read_mxfp4(l->f, x.entry, find_ending(l, p->name, "_scales"), values)
               : read_tensor(l, x.entry, values);
}

/* Whether all are finite; and the digest, in the order of other files whatever the form of this
 * one.  spare: as many values. */
static int check_values(const struct load *l, const struct param *p, struct found x,
                        const float *values, float *spare, uint64_t *digest)
{
    const bool turn = l->c->params.base && p->reordered && x.form == FORM_MXFP4;
    bool finite = true;

    if (turn)
        param_to_file(p, values, spare);
    int rc =
        base_digest(&l->c->params, turn ? spare : values, desc_numel(&p->desc), digest, &finite);
    return finite ? rc
                  : file_bad(l->f->path, "tensor '%s' has values that are not finite",
                             l->f->tensors[x.entry].name);
}

/* buffer holds the largest parameter twice. */
static int copy_values(const struct load *l, float *buffer, int64_t largest)
{
    for (int i = 0; i < l->n_params; i++) {
        struct param *p = &l->c->params.data[i];
        const int64_t n = desc_numel(&p->desc);
        uint64_t digest;
        float *value = buffer;
        if (l->of[i].entry < 0)
            continue;
        int rc = read_values(l, p, l->of[i], buffer);
        if (!rc)
            rc = check_values(l, p, l->of[i], buffer, buffer + largest, &digest);
        if (rc)
            return rc;
        if (p->reordered && l->of[i].form != FORM_MXFP4) {
            value = buffer + largest;
            param_from_file(p, buffer, value);
        }
        rc = ckpt_param_set(l->c, ckpt_param_at(l->c, i), CKPT_VALUE, value, n);
        if (rc)
            return error_set(rc, "%s: %s", l->f->path, ckpt_error(l->c));
        p->place.base = digest;
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
    const double begin = clock_seconds();
    struct load l = {
        .c = c, .n_params = ckpt_param_count(c), .other = other, .report = report, .user = user};
    int rc = ckpt_file_open(&l.f, path);

    if (rc)
        return rc;
    l.of = calloc((size_t)l.n_params + 1, sizeof(l.of[0]));
    l.used = calloc((size_t)l.f->count + 1, sizeof(l.used[0]));
    l.prefix = find_prefix(&l);
    if (l.of && l.used)
        rc = load_parameters(&l, unmatched);
    else
        rc = error_set(CKPT_ENOMEM, "%s: no memory to match its names", path);
    free(l.of);
    free(l.used);
    ckpt_file_close(l.f);
    startup_add(&c->programs, STARTUP_LOAD, begin);
    if (!rc)
        rc = ranks_agree_loaded(&c->ranks, programs_digest_steps(&c->programs));
    return ranks_are_laid_out(&c->ranks)
               ? ranks_give_up(&c->ranks, rc)
               : rc; /* before there is a layout the other ranks do not wait for a load */
}

int ckpt_load_params(ckpt *c, const char *path, ckpt_name_report report, void *user, int *unmatched)
{
    return ckpt_load_params_aliased(c, path, NULL, report, user, unmatched);
}
