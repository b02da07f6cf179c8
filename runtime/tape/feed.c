/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs, constants and outputs: where host bytes enter and leave the tape. */
#include <stdlib.h>
#include <string.h>
#include "tape/tape.h"

/* Copies between host and device, which the executor runs on its copy queues. */
static int refuse_shape(struct ckpt_call *call)
{
    return ckpt_call_fail(call, "only the tape records this op");
}

const struct ckpt_op_def op_feed = {
    .size = sizeof(struct ckpt_op_def), .name = "feed", .shape = refuse_shape};

const struct ckpt_op_def op_fetch = {.size = sizeof(struct ckpt_op_def),
                                     .name = "fetch",
                                     .flags = CKPT_OP_ONCE,
                                     .shape = refuse_shape};

static bool name_is_taken(const ckpt_tape *t, const char *name, bool fetches)
{
    int32_t n = fetches ? t->n_fetches : t->n_feeds;
    for (int32_t i = 0; i < n; i++)
        if (!strcmp(fetches ? t->fetches.data[i].name : t->feeds.data[i].name, name))
            return true;
    return false;
}

static int make_desc(ckpt_tape *t, const char *what, const char *name, enum ckpt_dtype dtype,
                     int ndim, const int64_t *shape, struct ckpt_desc *d)
{
    if (!name || !*name)
        return tape_fail(t, CKPT_EINVAL, "%s: it needs a name", what);
    if (ndim < 0 || ndim > CKPT_MAX_DIMS)
        return tape_fail(t, CKPT_ESHAPE, "%s '%s': %d axes; at most %d are possible", what, name,
                         ndim, CKPT_MAX_DIMS);
    if ((ndim && !shape) || !dtype_is_known(dtype))
        return tape_fail(t, CKPT_EINVAL, "%s '%s': it needs a shape and a dtype of ckpt.h", what,
                         name);
    *d = (struct ckpt_desc){.dtype = dtype, .ndim = ndim};
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        d->shape[i] = shape[i];
        if (shape[i] <= 0 || __builtin_mul_overflow(n, shape[i], &n) || n > INT64_MAX / 64)
            return tape_fail(t, CKPT_ESHAPE, "%s '%s': axis %d has size %lld%s", what, name, i,
                             (long long)shape[i],
                             shape[i] > 0 ? ": the tensor would be too large" : "");
    }
    desc_dense(d);
    return 0;
}

/* name may be NULL; several feeds may have none. */
static ckpt_tensor add_feed(ckpt_tape *t, const char *what, const char *name,
                            const struct ckpt_desc *d, const void *constant)
{
    if (name && name_is_taken(t, name, false)) {
        tape_fail(t, CKPT_EINVAL, "%s '%s': the name is used twice", what, name);
        return CKPT_NONE;
    }
    size_t bytes = (size_t)desc_bytes(d);
    char *copy = strdup(name ? name : "");
    void *data = constant ? malloc(bytes) : NULL;
    if (!copy || (constant && !data) || ARRAY_RESERVE(&t->feeds, t->n_feeds)) {
        free(copy);
        free(data);
        tape_fail(t, CKPT_ENOMEM, "%s '%s': no memory", what, name ? name : "");
        return CKPT_NONE;
    }
    if (data)
        memcpy(data, constant, bytes);
    ckpt_tensor x = tape_new_tensor(t, d, constant ? STORAGE_CONSTANT : STORAGE_INPUT);
    t->feeds.data[t->n_feeds] = (struct feed){.name = copy, .tensor = x.id, .constant = data};
    if (x.id)
        t->storages.data[t->tensors.data[x.id].storage].feed = t->n_feeds;
    t->n_feeds++;
    return x;
}

ckpt_tensor ckpt_input(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                       const int64_t *shape)
{
    struct ckpt_desc d;
    if (t->error.code || make_desc(t, "input", name, dtype, ndim, shape, &d))
        return CKPT_NONE;
    if (ndim < 1 || shape[0] != t->micro_batch) {
        tape_fail(t, CKPT_ESHAPE, "input '%s': axis 0 must be the micro-batch, %lld", name,
                  (long long)t->micro_batch);
        return CKPT_NONE;
    }
    return add_feed(t, "input", name, &d, NULL);
}

ckpt_tensor ckpt_constant(ckpt_tape *t, const char *name, enum ckpt_dtype dtype, int ndim,
                          const int64_t *shape, const void *data)
{
    struct ckpt_desc d;
    const bool unnamed = !name || !*name;
    if (unnamed)
        name = "constant";
    if (t->error.code || make_desc(t, "constant", name, dtype, ndim, shape, &d))
        return CKPT_NONE;
    if (!data) {
        tape_fail(t, CKPT_EINVAL, "constant '%s': no data", name);
        return CKPT_NONE;
    }
    return add_feed(t, "constant", unnamed ? NULL : name, &d, data);
}

int32_t tape_copy_feed(ckpt_tape *t, const ckpt_tape *from, int32_t feed)
{
    const struct feed *f = &from->feeds.data[feed];
    const struct ckpt_desc *d = &from->tensors.data[f->tensor].desc;
    return add_feed(t, "input", *f->name ? f->name : NULL, d, f->constant).id;
}

ckpt_tensor tape_count_feed(ckpt_tape *t)
{
    char name[40];
    snprintf(name, sizeof name, "ckpt.count.%d", (int)t->n_feeds);
    ckpt_tensor x = add_feed(t, "input", name, &(struct ckpt_desc){.dtype = CKPT_F32}, NULL);
    if (x.id)
        t->feeds.data[t->n_feeds - 1].counted = true;
    return x;
}

void tape_use_feed(ckpt_tape *t, int32_t feed)
{
    struct feed *f = &t->feeds.data[feed];
    if (f->used)
        return;
    f->used = true;
    t->n_unnumbered += f->counted;
    int32_t o = tape_append(t, &op_feed, 0, NULL, 1, &(ckpt_tensor){.id = f->tensor});
    if (o >= 0)
        t->ops.data[o].feed = feed;
}

/* Reserves a fetch; its index, or -1. */
static int32_t add_fetch(ckpt_tape *t, const char *name)
{
    if (t->error.code)
        return -1;
    if (!name || !*name || name_is_taken(t, name, true)) {
        tape_fail(t, CKPT_EINVAL, "output '%s': it needs a name that is not used yet",
                  name ? name : "");
        return -1;
    }
    char *copy = strdup(name);
    if (!copy || ARRAY_RESERVE(&t->fetches, t->n_fetches)) {
        free(copy);
        tape_fail(t, CKPT_ENOMEM, "output '%s': no memory", name);
        return -1;
    }
    t->fetches.data[t->n_fetches] = (struct fetch){.name = copy, .param = -1};
    return t->n_fetches++;
}

void tape_record_fetch(ckpt_tape *t, int32_t fetch, ckpt_tensor x)
{
    x = t->env.calls->dense(t, x);
    x = tape_resolve(t, x);
    if (!t->error.code && t->tensors.data[x.id].part > PART_COUNTS)
        tape_fail(t, CKPT_EINVAL, "output '%s': a rank has only %s (%s %d)",
                  t->fetches.data[fetch].name,
                  t->env.sharing.tensor > 1 ? "its part of a layer" : "the part of its tokens",
                  t->env.sharing.tensor > 1 ? "--tensor" : "--sequence",
                  sharing_sample_ranks(&t->env.sharing));
    if (t->error.code)
        return;
    int32_t feed = t->storages.data[t->tensors.data[x.id].storage].feed;
    if (feed >= 0)
        tape_use_feed(t, feed);
    int32_t o = tape_append(t, &op_fetch, 1, &x, 0, NULL);
    if (o >= 0)
        t->ops.data[o].fetch = fetch;
    t->fetches.data[fetch].tensor = x.id;
}

void ckpt_output(ckpt_tape *t, const char *name, ckpt_tensor x)
{
    if (!t->error.code && !x.id) {
        tape_fail(t, CKPT_EINVAL, "output '%s': no tensor", name ? name : "");
        return;
    }
    int32_t f = add_fetch(t, name);
    if (f >= 0)
        tape_record_fetch(t, f, x);
}

void ckpt_output_gradient(ckpt_tape *t, const char *name, ckpt_tensor w)
{
    int32_t param = -w.id - 1;
    if (!t->error.code && (!params_at(t->env.params, w) || !tape_trains(t, param))) {
        tape_fail(t, CKPT_EINVAL, "output '%s': only a trainable parameter has a gradient here",
                  name ? name : "");
        return;
    }
    int32_t f = add_fetch(t, name);
    if (f >= 0)
        t->fetches.data[f].param = param;
}
