/* SPDX-License-Identifier: Apache-2.0 */
/* Writes slots of parameters to a file: see save.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dist/values.h"
#include "state/file_forms.h"
#include "state/save.h"
#include "train/train.h"

static const char *const slot_names[] = {[CKPT_VALUE] = "its value",
                                         [CKPT_EXP_AVG] = "its first moment",
                                         [CKPT_EXP_AVG_SQ] = "its second moment",
                                         [CKPT_EMA] = "its moving average",
                                         [CKPT_EXP_AVG_SQ_ROW] = "its second moment by rows",
                                         [CKPT_EXP_AVG_SQ_COL] = "its second moment by columns"};

/* Reads the values from wherever they are stored.  Collective. */
static int gather(const struct save_item *s, float *dst, int64_t n)
{
    int rc = s->own.p ? values_read_run(&s->c->ranks, s->own.p, &s->own.run, s->cache, dst)
                      : ckpt_param_get(s->c, s->param, s->slot, dst, n);

    float more = 0.f;

    if (!rc && s->more.id)
        rc = ckpt_param_get(s->c, s->more, CKPT_VALUE, &more, 1);
    if (!rc && s->more.id)
        dst[0] = fmaxf(dst[0] + more, QAT_LEAST * dst[0]);
    return !rc && s->merged ? lora_add(s->c, s->param, dst) : rc;
}

static int get(const struct save_item *s, float *dst, int64_t n)
{
    int rc = gather(s, dst, n);

    if (rc)
        return error_set(rc, "%s", ckpt_error(s->c));
    if (s->unchecked || floats_are_finite(dst, n))
        return 0;
    return error_set(CKPT_ENAN,
                     "parameter '%s' (%s) is not finite: nothing is written, a file that was there "
                     "stays",
                     params_at(&s->c->params, s->param)->name, slot_names[s->slot]);
}

/* dtype and shape of the item in the file. */
static struct ckpt_desc desc_of(const struct save_item *s)
{
    const struct param *p = params_at(&s->c->params, s->param);
    if (s->form == SAVE_ALPHA)
        return (struct ckpt_desc){.dtype = CKPT_F32};
    if (s->form)
        return save_int8_desc(s);
    if (s->own.p)
        return part_desc(&s->own);
    if (s->part)
        return param_part_desc(p);
    struct ckpt_desc d =
        s->as_stored ? values_state_desc(p, s->slot) : values_file_desc(p, s->slot);

    if (!s->as_stored)
        d.dtype = CKPT_F32;
    return d;
}

int64_t save_item_bytes(const struct save_item *s)
{
    struct ckpt_desc d = desc_of(s);

    return desc_numel(&d) * ckpt_dtype_size(d.dtype);
}

static enum ckpt_dtype dtype_of(const struct save_item *s)
{
    return desc_of(s).dtype;
}

static int fail_memory(const struct param *p)
{
    return error_set(CKPT_ENOMEM, "no memory to write parameter '%s'", p->name);
}

/* Reads the values as fp32, in the axis order of files; a piece in that of memory. */
static int read_values(const struct save_item *s, float *dst, int64_t n)
{
    const struct param *p = params_at(&s->c->params, s->param);

    if (!p->reordered || values_is_factor(s->slot) || (s->own.p && part_is_cut(&s->own)))
        return get(s, dst, n);
    float *own = malloc((size_t)n * sizeof *own);
    int rc = own ? get(s, own, n) : fail_memory(p);
    if (!rc)
        param_to_file(p, own, dst);
    free(own);
    return rc;
}

/*
 * Parameters that are written in parts.  Files have the parts of several parameters in turn, those
 * of each expert together, so the values of the last ones stay.  All ranks keep the same ones.
 */
enum { WHOLES = 2 };
struct save_wholes {
    ckpt_tensor param[WHOLES];
    enum ckpt_slot slot[WHOLES];
    float *values[WHOLES]; /* NULL on ranks that write nothing */
    int next;              /* the one that is replaced */
};

/* The kept values, or -1. */
static int wholes_find(const struct save_wholes *w, const struct save_item *s)
{
    for (int i = 0; i < WHOLES; i++)
        if (w->param[i].id && w->param[i].id == s->param.id && w->slot[i] == s->slot)
            return i;
    return -1;
}

/* Makes room for the values of s. */
static int wholes_begin(struct save_wholes *w, const struct save_item *s)
{
    const int i = w->next;

    w->next = (i + 1) % WHOLES;
    w->param[i] = s->param;
    w->slot[i] = s->slot;
    free(w->values[i]);
    w->values[i] = NULL;
    return i;
}

static void wholes_free(struct save_wholes *w)
{
    for (int i = 0; i < WHOLES; i++)
        free(w->values[i]);
}

static int read_part(const struct save_item *s, float *dst)
{
    const struct param *p = params_at(&s->c->params, s->param);
    const struct ckpt_desc part = param_part_desc(p);
    const int64_t n = desc_numel(&part), all = n * p->n_file_parts;
    int i = wholes_find(s->wholes, s), rc = 0;

    if (i < 0) {
        i = wholes_begin(s->wholes, s);
        s->wholes->values[i] = malloc((size_t)all * sizeof *dst);
        rc = s->wholes->values[i] ? get(s, s->wholes->values[i], all) : fail_memory(p);
    }
    if (!rc)
        memcpy(dst, s->wholes->values[i] + (s->part - 1) * n, (size_t)n * sizeof *dst);
    return rc;
}

/* Reads the values in their stored form: bf16, or code words. */
static int read_compact(const struct save_item *s, float *values, int64_t n, void *dst,
                        int64_t bytes)
{
    const bool words = dtype_of(s) == CKPT_I32;
    int rc = words ? get(s, values, n) : read_values(s, values, n);

    if (!rc && words) {
        memset(dst, 0, (size_t)bytes);
        values_encode(params_at(&s->c->params, s->param), s->slot, values, n, dst);
    } else if (!rc) {
        ckpt_to_bf16(values, dst, n);
    }
    return rc;
}

/* Called while the file is written, so the host holds only one parameter at a time. */
static int read_slot(void *user, void *dst, int64_t bytes)
{
    const struct save_item *s = user;
    const struct param *p = params_at(&s->c->params, s->param);
    struct ckpt_desc d = values_file_desc(p, s->slot);
    int64_t n = s->own.p ? s->own.run.n : desc_numel(&d);

    if (s->form == SAVE_ALPHA) {
        memcpy(dst, &p->training.factor.alpha, sizeof p->training.factor.alpha);
        return 0;
    }
    if (s->part)
        return read_part(s, dst);
    if (!s->form && dtype_of(s) == CKPT_F32)
        return read_values(s, dst, n);
    float *values = malloc((size_t)n * sizeof *values);
    int rc = !values   ? fail_memory(p)
             : s->form ? get(s, values, n)
                       : read_compact(s, values, n, dst, bytes);
    if (!rc && s->form)
        rc = save_int8_read(s, values, n, dst);
    free(values);
    return rc;
}

int save_item_read(struct save_item *s, void *dst, int64_t bytes)
{
    return read_slot(s, dst, bytes);
}

static const char *name_of(const struct save_item *s)
{
    if (s->part)
        return params_at(&s->c->params, s->param)->file_parts[s->part - 1];
    return s->alias ? s->alias : params_at(&s->c->params, s->param)->name;
}

char *save_name(const struct save_item *s)
{
    char *name;

    return asprintf(&name, "%s%s", s->prefix, name_of(s)) < 0 ? NULL : name;
}

static int add_item(ckpt_file_writer *w, struct save_item *s)
{
    struct ckpt_desc d = desc_of(s);
    char *name = save_name(s);

    if (!name)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", w->path);
    const bool codes = s->form == SAVE_CODES || s->form == SAVE_INPUT_ZERO;
    const struct file_dtype *stored = codes ? file_dtype_find("I8") : NULL;
    int rc = s->staged ? ckpt_file_add(w, name, d.dtype, d.ndim, d.shape, s->staged)
                       : file_add_source(w, name, d.dtype, stored, d.ndim, d.shape, read_slot, s);
    free(name);
    return rc;
}

static int64_t size_of(const struct save_item *s)
{
    return ckpt_dtype_size(dtype_of(s));
}

/* Wide elements first, then by name.  No prefix is a prefix of another, so this is the order of
 * whole names. */
static int as_in_file(const void *a, const void *b)
{
    const struct save_item *x = a, *y = b;
    int order = strcmp(x->prefix, y->prefix);

    if (size_of(x) != size_of(y))
        return size_of(x) > size_of(y) ? -1 : 1;

    return order ? order : strcmp(name_of(x), name_of(y));
}

int save_open(ckpt_file_writer **w, const char *path, struct save_item *items, int n,
              const struct file_note *notes, int n_notes)
{
    int rc = ckpt_file_create(w, path);

    if (rc)
        return rc;
    if (n)
        qsort(items, (size_t)n, sizeof *items, as_in_file);
    (*w)->notes = notes;
    (*w)->n_notes = n_notes;
    for (int i = 0; i < n && !rc; i++)
        rc = add_item(*w, &items[i]);
    if (!rc)
        return 0;
    ckpt_file_abandon(*w);
    *w = NULL;
    return rc;
}

static int write_alone(const char *path, struct save_item *items, int n,
                       const struct file_note *notes, int n_notes)
{
    ckpt_file_writer *w;
    int rc = save_open(&w, path, items, n, notes, n_notes);

    return rc ? rc : ckpt_file_commit(w);
}

static int join_gather(ckpt *c, const struct save_item *s)
{
    const struct param *p = params_at(&c->params, s->param);
    struct ckpt_desc d = values_file_desc(p, s->slot);
    int64_t n = desc_numel(&d);

    if (s->form == SAVE_ALPHA || (s->part && wholes_find(s->wholes, s) >= 0))
        return 0;
    if (s->part)
        wholes_begin(s->wholes, s);
    float *values = malloc((size_t)n * sizeof *values);
    if (!values)
        return error_set(CKPT_ENOMEM, "no memory to save '%s'", p->name);
    int rc = gather(s, values, n);
    free(values);
    return rc;
}

int save_items(ckpt *c, const char *path, struct save_item *items, int n,
               const struct file_note *notes, int n_notes)
{
    struct comm *hosts = ranks_all(&c->ranks);
    struct save_wholes wholes = {.next = 0};
    int rc = 0;

    for (int i = 0; i < n; i++)
        items[i].wholes = &wholes;

    /* The other ranks join the gathers of the writing rank, in the order of the file. */
    if (c->ranks.rank && n)
        qsort(items, (size_t)n, sizeof *items, as_in_file);
    if (!c->ranks.rank)
        rc = write_alone(path, items, n, notes, n_notes);
    for (int i = 0; c->ranks.rank && i < n && !rc; i++)
        rc = join_gather(c, &items[i]);
    wholes_free(&wholes);
    if (!rc && hosts && comm_barrier(hosts, "the end of a save"))
        rc = error_set(CKPT_ECOMM, "%s", hosts->reason);
    return ranks_give_up(&c->ranks, rc);
}
