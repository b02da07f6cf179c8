/* Saves a slot of every parameter to a file. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_file.h"
#include "context.h"
#include "ranks.h"
#include "state/safetensors.h"

/* Which parameters are saved; choose NULL: all. */
struct chosen {
    ckpt_name_choice choose;
    void *user;
};

static bool is_chosen(const struct chosen *k, const char *name)
{
    return !k->choose || k->choose(k->user, name);
}

struct save_tensor {
    ckpt *c;
    ckpt_tensor param;
    enum ckpt_slot slot;
};

static int get(const struct save_tensor *s, float *dst, int64_t n)
{
    int rc = ckpt_param_get(s->c, s->param, s->slot, dst, n);

    return rc ? error_set(rc, "%s", ckpt_error(s->c)) : 0;
}

/* Called while the file is written, so that only one parameter at a time stands on the host. */
static int read_slot(void *user, void *dst, int64_t bytes)
{
    const struct save_tensor *s = user;
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

static int add_all(ckpt_file_writer *w, struct save_tensor *tensors, ckpt *c, enum ckpt_slot slot,
                   const struct chosen *k)
{
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info p;
        ckpt_tensor param = ckpt_param_at(c, i);
        ckpt_param_info(c, param, &p);
        if (!is_chosen(k, p.name))
            continue;
        tensors[i] = (struct save_tensor){c, param, p.trainable ? slot : CKPT_VALUE};
        struct ckpt_desc d = param_file_desc(context_param(c, param));
        int rc = file_add_source(w, p.name, CKPT_F32, d.ndim, d.shape, read_slot, &tensors[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static int save_to(ckpt_file_writer *w, ckpt *c, const char *path, enum ckpt_slot slot,
                   const struct chosen *k)
{
    struct save_tensor *tensors = calloc((size_t)ckpt_param_count(c) + 1, sizeof(tensors[0]));
    int rc = tensors ? add_all(w, tensors, c, slot, k)
                     : error_set(CKPT_ENOMEM, "%s: no memory to write it", path);

    if (rc)
        ckpt_file_abandon(w);
    else
        rc = ckpt_file_commit(w);
    free(tensors);
    return rc;
}

static int save_alone(ckpt *c, const char *path, enum ckpt_slot slot, const struct chosen *k)
{
    ckpt_file_writer *w;
    int rc = ckpt_file_create(&w, path);

    if (!rc)
        rc = save_to(w, c, path, slot, k);
    return rc ? context_fail(c, rc, "%s", error_get()) : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ckpt_param_info *)a)->name,
                  ((const struct ckpt_param_info *)b)->name);
}

static int take_part_in(ckpt *c, const struct ckpt_param_info *p, enum ckpt_slot slot)
{
    ckpt_tensor param;
    float *values = malloc((size_t)p->numel * sizeof *values);
    if (!values)
        return context_fail(c, CKPT_ENOMEM, "no memory to save '%s'", p->name);
    ckpt_param_find(c, p->name, &param);
    int rc = ckpt_param_get(c, param, p->trainable ? slot : CKPT_VALUE, values, p->numel);
    free(values);
    return rc;
}

/* What another rank writes is gathered from all, in the order of the file: all tensors are fp32, so
 * that is the order of names. */
static int take_part(ckpt *c, enum ckpt_slot slot, const struct chosen *k)
{
    int n = ckpt_param_count(c), rc = 0;
    struct ckpt_param_info *all = calloc((size_t)n + 1, sizeof *all);
    if (!all)
        return context_fail(c, CKPT_ENOMEM, "no memory to save");
    for (int i = 0; i < n; i++)
        ckpt_param_info(c, ckpt_param_at(c, i), &all[i]);
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int i = 0; i < n && !rc; i++)
        if (is_chosen(k, all[i].name))
            rc = take_part_in(c, &all[i], slot);
    free(all);
    return rc;
}

int ckpt_save_chosen(ckpt *c, const char *path, enum ckpt_slot slot, ckpt_name_choice choose,
                     void *user)
{
    const struct chosen k = {choose, user};
    int rc = c->rank ? take_part(c, slot, &k) : save_alone(c, path, slot, &k);

    if (!rc && c->comm && comm_barrier(c->comm, "the end of a save"))
        rc = context_fail(c, CKPT_ECOMM, "%s", c->comm->reason);
    return ranks_give_up(c, rc);
}

int ckpt_save(ckpt *c, const char *path, enum ckpt_slot slot)
{
    return ckpt_save_chosen(c, path, slot, NULL, NULL);
}
