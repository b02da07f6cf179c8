/* Saves slots of parameters to a file. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_file.h"
#include "ranks.h"
#include "state/save.h"

static const char *const slot_names[] = {[CKPT_VALUE] = "its value",
                                         [CKPT_EXP_AVG] = "its first moment",
                                         [CKPT_EXP_AVG_SQ] = "its second moment",
                                         [CKPT_EMA] = "its moving average"};

static int get(const struct save_item *s, float *dst, int64_t n)
{
    int rc = ckpt_param_get(s->c, s->param, s->slot, dst, n);

    if (rc)
        return error_set(rc, "%s", ckpt_error(s->c));
    if (floats_are_finite(dst, n))
        return 0;
    return error_set(CKPT_ENAN,
                     "parameter '%s' (%s) is not finite: nothing is written, a file that was there "
                     "stays",
                     context_param(s->c, s->param)->name, slot_names[s->slot]);
}

/* Called while the file is written, so that only one parameter at a time stands on the host. */
static int read_slot(void *user, void *dst, int64_t bytes)
{
    const struct save_item *s = user;
    const struct param *p = context_param(s->c, s->param);
    int64_t n = bytes / (int64_t)sizeof(float);

    if (!p->reordered)
        return get(s, dst, n);
    float *own = malloc((size_t)bytes);
    int rc =
        own ? get(s, own, n) : error_set(CKPT_ENOMEM, "no memory to write parameter '%s'", p->name);
    if (!rc)
        param_to_file(p, own, dst);
    free(own);
    return rc;
}

char *save_name(const struct save_item *s)
{
    char *name;

    return asprintf(&name, "%s%s", s->prefix, context_param(s->c, s->param)->name) < 0 ? NULL
                                                                                       : name;
}

static int add_item(ckpt_file_writer *w, struct save_item *s)
{
    struct ckpt_desc d = param_file_desc(context_param(s->c, s->param));
    char *name = save_name(s);

    if (!name)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", w->path);
    int rc = file_add_source(w, name, CKPT_F32, d.ndim, d.shape, read_slot, s);
    free(name);
    return rc;
}

static int write_alone(ckpt *c, const char *path, struct save_item *items, int n,
                       const struct file_note *notes, int n_notes)
{
    ckpt_file_writer *w;
    int rc = ckpt_file_create(&w, path);

    if (rc)
        return context_fail(c, rc, "%s", error_get());
    w->notes = notes;
    w->n_notes = n_notes;
    for (int i = 0; i < n && !rc; i++)
        rc = add_item(w, &items[i]);
    if (rc)
        ckpt_file_abandon(w);
    else
        rc = ckpt_file_commit(w);
    return rc ? context_fail(c, rc, "%s", error_get()) : 0;
}

/* No prefix begins another, so this is the order of whole names. */
static int by_name(const void *a, const void *b)
{
    const struct save_item *x = a, *y = b;
    int order = strcmp(x->prefix, y->prefix);

    return order ? order
                 : strcmp(context_param(x->c, x->param)->name, context_param(y->c, y->param)->name);
}

static int take_part_in(ckpt *c, const struct save_item *s)
{
    const struct param *p = context_param(c, s->param);
    int64_t n = desc_numel(&p->desc);
    float *values = malloc((size_t)n * sizeof *values);

    if (!values)
        return context_fail(c, CKPT_ENOMEM, "no memory to save '%s'", p->name);
    int rc = ckpt_param_get(c, s->param, s->slot, values, n);
    free(values);
    return rc;
}

int save_items(ckpt *c, const char *path, struct save_item *items, int n,
               const struct file_note *notes, int n_notes)
{
    int rc = 0;

    /* What another rank writes is gathered from all, in the order of the file: all tensors are
     * fp32, so that is the order of names. */
    qsort(items, (size_t)n, sizeof *items, by_name);
    if (!c->rank)
        rc = write_alone(c, path, items, n, notes, n_notes);
    for (int i = 0; c->rank && i < n && !rc; i++)
        rc = take_part_in(c, &items[i]);
    if (!rc && c->comm && comm_barrier(c->comm, "the end of a save"))
        rc = context_fail(c, CKPT_ECOMM, "%s", c->comm->reason);
    return ranks_give_up(c, rc);
}

int ckpt_save_chosen(ckpt *c, const char *path, enum ckpt_slot slot, ckpt_name_choice choose,
                     void *user)
{
    NOT_NULL(c, c);
    NOT_NULL(c, path);
    int all = ckpt_param_count(c), n = 0;
    struct save_item *items = calloc((size_t)all + 1, sizeof *items);

    if (!items)
        return ranks_give_up(c, context_fail(c, CKPT_ENOMEM, "%s: no memory to write it", path));
    for (int i = 0; i < all; i++) {
        ckpt_tensor param = ckpt_param_at(c, i);
        const struct param *p = context_param(c, param);
        if (!choose || choose(user, p->name))
            items[n++] = (struct save_item){c, param, p->trainable ? slot : CKPT_VALUE, ""};
    }
    int rc = save_items(c, path, items, n, NULL, 0);
    free(items);
    return rc;
}

int ckpt_save(ckpt *c, const char *path, enum ckpt_slot slot)
{
    return ckpt_save_chosen(c, path, slot, NULL, NULL);
}
