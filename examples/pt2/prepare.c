/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before the context is opened: the archive says which inputs the model has, the headers of the
 * files which samples there are, and both together how large a step is.
 */
#include <stdlib.h>
#include <string.h>
#include "run.h"

/* ---- files ----------------------------------------------------------------------------------- */

/* The inputs, or those that all samples do not have in common, and the target. */
static int list_wanted(const struct pt2_run *r, bool all, struct dataset_wanted *wanted)
{
    const struct signature *s = &r->signature;
    int n = 0;

    for (int i = 0; i < s->n_in; i++)
        if (all || s->in[i].role != ROLE_SHARED)
            wanted[n++] = (struct dataset_wanted){s->in[i].name, s->in[i].desc.dtype == CKPT_I32};
    for (int i = 0; i < n && !all; i++)
        if (!strcmp(wanted[i].name, r->loss.target))
            return n;
    if (!all && *r->loss.target)
        wanted[n++] = (struct dataset_wanted){r->loss.target, loss_counts(&r->loss)};
    return n;
}

static int open_files(struct pt2_run *r, struct dataset *d, const char *option, const char *files,
                      bool shared)
{
    struct dataset_wanted *wanted = calloc((size_t)r->signature.n_in + 1, sizeof *wanted);
    int rc = wanted ? dataset_open(d, option, files, list_wanted(r, shared, wanted), wanted, shared)
                    : say_fail("no memory for the files of %s", option);

    free(wanted);
    return rc;
}

static void mark_shared(struct pt2_run *r)
{
    for (int i = 0; i < r->signature.n_in; i++)
        if (dataset_find(&r->shared, r->signature.in[i].name))
            r->signature.in[i].role = ROLE_SHARED;
}

static int open_all(struct pt2_run *r)
{
    const struct pt2_options *o = &r->options;

    if (o->shared && open_files(r, &r->shared, "--shared", o->shared, true))
        return -1;
    mark_shared(r);
    if (o->shared && !r->shared.n)
        return say_fail("--shared %s: has no input of the model", o->shared);
    if ((o->data && open_files(r, &r->data, "--data", o->data, false)) ||
        (o->validation && open_files(r, &r->validation, "--val", o->validation, false)))
        return -1;
    return 0;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static int place(struct pt2_run *r)
{
    struct signature *s = &r->signature;
    int *rank = calloc((size_t)s->n_in + 1, sizeof *rank);
    int rc = rank ? 0 : say_fail("no memory for the inputs of a model");

    for (int i = 0; i < s->n_in && !rc; i++) {
        const struct dataset_column *c = dataset_find(&r->data, s->in[i].name);
        rank[i] = c ? c->ndim + 1 : 0;
    }
    rc = rc ? rc : signature_place(s, r->data.n ? rank : NULL);
    free(rank);
    return rc;
}

/* The sizes of a sample in the input that are not the axis of the samples: k-th. */
static int axis_of(const struct signature_value *v, int k)
{
    return v->role == ROLE_BATCH && k >= v->axis ? k + 1 : k;
}

/* A size of the data that --dim sets, too. */
static int fit_bound(const struct pt2_run *r, const struct signature_value *v, int axis, int64_t n,
                     const char *path)
{
    const struct signature_size *size = &r->signature.size[v->bound[axis] - 1];

    if (v->desc.shape[axis] == n)
        return 0;
    return say_fail("--dim %s=%lld: axis %d of input '%s' is then %lld, and in %s it is %lld: "
                    "leave it out, and it is as in the data",
                    size->name, (long long)size->n, axis, v->name, (long long)v->desc.shape[axis],
                    path, (long long)n);
}

/* Compares a column with its input, whose dynamic sizes become those of the data. */
static int fit(const struct pt2_run *r, struct signature_value *v, const struct dataset *d,
               const struct dataset_column *c)
{
    const int ndim = v->desc.ndim - (v->role == ROLE_BATCH ? 1 : 0);
    const char *path = d->path[c->part[0].file];

    if (c->ndim != ndim)
        return say_fail("%s: %s '%s' has %d axes, and in the model %d", path,
                        v->role == ROLE_SHARED ? "the shared" : "a sample of", v->name, c->ndim,
                        ndim);
    for (int k = 0; k < ndim; k++) {
        const int axis = axis_of(v, k);
        if (v->bound[axis] && fit_bound(r, v, axis, c->shape[k], path))
            return -1;
        if (signature_is_dynamic(v, axis))
            v->desc.shape[axis] = c->shape[k];
        else if (v->desc.shape[axis] != c->shape[k])
            return say_fail("%s: '%s' has %lld along an axis where input '%s' of the model has "
                            "%lld (its axis %d)",
                            path, v->name, (long long)c->shape[k], v->name,
                            (long long)v->desc.shape[axis], axis);
    }
    return 0;
}

static int fit_all(struct pt2_run *r, const struct dataset *d)
{
    for (int i = 0; i < r->signature.n_in; i++) {
        struct signature_value *v = &r->signature.in[i];
        const struct dataset_column *c = dataset_find(d, v->name);
        if (c && fit(r, v, d, c))
            return -1;
    }
    return 0;
}

/* Samples for validation have the sizes of those for training. */
static int fit_validation(const struct pt2_run *r)
{
    for (int i = 0; i < r->validation.n && r->data.n; i++) {
        const struct dataset_column *a = &r->validation.column[i], *b = &r->data.column[i];
        if (a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape))
            return say_fail("%s: a sample of '%s' has other sizes than in %s",
                            r->validation.path[a->part[0].file], a->name,
                            r->data.path[b->part[0].file]);
    }
    return 0;
}

/* ---- what a step is fed ---------------------------------------------------------------------- */

static void set_feed(struct pt2_feed *f, const struct signature_value *v)
{
    *f = (struct pt2_feed){.name = v->name, .in = v, .whole = v->desc.dtype == CKPT_I32};
    f->ndim = v->desc.ndim - (v->role == ROLE_BATCH ? 1 : 0);
    for (int k = 0; k < f->ndim; k++)
        f->shape[k] = v->desc.shape[axis_of(v, k)];
}

/* Without data a target has the sizes of its output, of ce without the last axis. */
static void set_target(const struct pt2_run *r, struct pt2_feed *f)
{
    const struct dataset_column *c = dataset_find(&r->data, r->loss.target);
    const struct signature_value *out = &r->signature.out[r->loss.output];
    const int axis = out->axis, skipped = axis >= 0 ? 1 : 0;

    *f = (struct pt2_feed){.name = r->loss.target, .whole = loss_counts(&r->loss)};
    f->ndim = c ? c->ndim : out->desc.ndim - skipped - (f->whole ? 1 : 0);
    for (int k = 0; k < f->ndim; k++)
        f->shape[k] = c ? c->shape[k] : out->desc.shape[axis >= 0 && k >= axis ? k + 1 : k];
}

/* The target of the loss may be an input, too. */
static int find_target(struct pt2_run *r)
{
    const char *name = r->loss.target;
    int k = 0;

    r->target = -1;
    if (!*name)
        return 0;
    while (k < r->n_feeds && strcmp(r->feed[k].name, name))
        k++;
    if (k == r->n_feeds)
        set_target(r, &r->feed[r->n_feeds++]);
    else if (loss_counts(&r->loss) && !r->feed[k].whole)
        return say_fail("--loss %s: the model reads floats in '%s', and ce takes whole numbers",
                        r->options.loss, name);
    r->target = k;
    return 0;
}

static int64_t numel(const struct ckpt_desc *d)
{
    int64_t n = 1;

    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
}

static int make_feeds(struct pt2_run *r)
{
    const struct signature *s = &r->signature;

    r->feed = calloc((size_t)s->n_in + 1, sizeof *r->feed);
    r->common = calloc((size_t)s->n_in + 1, sizeof *r->common);
    if (!r->feed || !r->common)
        return say_fail("no memory for the inputs of a model");
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i].role != ROLE_SHARED)
            set_feed(&r->feed[r->n_feeds++], &s->in[i]);
        else if (!(r->common[i] = calloc((size_t)numel(&s->in[i].desc), sizeof(float))))
            return say_fail("no memory for input '%s'", s->in[i].name);
    if (find_target(r))
        return -1;
    for (int i = 0; i < r->n_feeds; i++) {
        r->feed[i].values = 1;
        for (int k = 0; k < r->feed[i].ndim; k++)
            r->feed[i].values *= r->feed[i].shape[k];
    }
    return r->n_feeds ? 0 : say_fail("the model has no input that differs between samples");
}

static int read_shared(struct pt2_run *r)
{
    for (int i = 0; i < r->shared.n; i++) {
        const struct dataset_column *c = &r->shared.column[i];
        int k = 0;
        while (strcmp(r->signature.in[k].name, c->name))
            k++;
        if (dataset_read(&r->shared, c, 0, r->common[k]))
            return -1;
    }
    return 0;
}

/* ---- the batch ------------------------------------------------------------------------------- */

/* What to do about an archive that takes no batch of one sample. */
#define MIN_1 "export it with dynamic_shapes of torch.export.Dim(\"batch\", min=1)"

/* A call of fixed sizes takes its own number of samples: a larger batch is several of them. */
static int set_fixed_batch(struct pt2_run *r)
{
    struct pt2_options *o = &r->options;
    const int64_t own = r->signature.fixed, micro = o->library.micro_batch;

    o->train.batch = o->train.batch ? o->train.batch : own;
    if (o->train.batch % own)
        return say_fail("--batch %lld: %s was exported with fixed sizes, for %lld samples a call: "
                        "give a multiple of %lld, or export it with dynamic_shapes",
                        (long long)o->train.batch, o->model, (long long)own, (long long)own);
    if (micro > 0 && micro != own)
        return say_fail("--micro-batch %lld: %s was exported with fixed sizes, for %lld samples a "
                        "call: leave it out, or export it with dynamic_shapes",
                        (long long)micro, o->model, (long long)own);
    o->library.micro_batch = own;
    return 0;
}

/* A size of the batch in --dim: it is the one of a call. */
static int check_bound(const struct pt2_run *r)
{
    const struct pt2_options *o = &r->options;
    const int64_t micro = o->library.micro_batch, n = micro ? micro : o->train.batch;
    char number[24] = "auto";

    if (n != CKPT_AUTO)
        snprintf(number, sizeof number, "%lld", (long long)n);
    for (int i = 0; i < r->signature.n_in; i++) {
        const struct signature_value *v = &r->signature.in[i];
        const int at = v->role == ROLE_BATCH ? v->bound[v->axis] : 0;
        const struct signature_size *size = &r->signature.size[at ? at - 1 : 0];
        if (at && v->desc.shape[v->axis] != n)
            return say_fail("--dim %s=%lld: axis %d of input '%s' is the batch, and --%sbatch is "
                            "%s: give it there alone",
                            size->name, (long long)size->n, v->axis, v->name, micro ? "micro-" : "",
                            number);
    }
    return 0;
}

static int set_dynamic_batch(struct pt2_run *r)
{
    struct pt2_options *o = &r->options;
    const int64_t smallest = r->signature.smallest, micro = o->library.micro_batch;

    o->train.batch = o->train.batch ? o->train.batch : 8;
    if (pt2_options_check_batch(o) || check_bound(r))
        return -1;
    if (smallest > 1 && micro == CKPT_AUTO)
        return say_fail("--micro-batch auto tries every size, and %s takes %lld samples or more: "
                        "give a number, or " MIN_1,
                        o->model, (long long)smallest);
    if ((micro ? micro : o->train.batch) < smallest)
        return say_fail("--%sbatch %lld: %s takes %lld samples or more: " MIN_1,
                        micro ? "micro-" : "", (long long)(micro ? micro : o->train.batch),
                        o->model, (long long)smallest);
    return 0;
}

static int set_batch(struct pt2_run *r)
{
    if (r->signature.n_batch ? set_dynamic_batch(r) : set_fixed_batch(r))
        return -1;
    if (r->validation.n && r->validation.rows < r->options.train.batch)
        return say_fail("--val %s: has %lld samples, and a batch has %lld: give a smaller --batch, "
                        "or more samples",
                        r->options.validation, (long long)r->validation.rows,
                        (long long)r->options.train.batch);
    return 0;
}

int pt2_prepare(void *run)
{
    struct pt2_run *r = run;
    const struct pt2_options *o = &r->options;

    if (signature_read(&r->signature, o) || loss_read(&r->loss, &r->signature, o->loss) ||
        open_all(r) || place(r) || fit_all(r, &r->shared) || fit_all(r, &r->data) ||
        fit_validation(r) || make_feeds(r) || read_shared(r) || set_batch(r))
        return -1;
    if (r->data.n)
        return sample_order_open(&r->order, r->data.rows, (uint64_t)o->library.seed, o->keep_order);
    return 0;
}
