/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a step whose loss or norm is not finite again, op by op, to find the first bad result. */
#include <stdlib.h>
#include "exec/enqueue.h"

struct probe {
    struct ckpt_program *p;
    char *host; /* as many bytes as the largest tensor */
    int rc;     /* the device's code: after a failure its results mean nothing */
};

/* Strided outputs share their storage with others and are not checked: a bad value shows in the
 * result of their reader. */
static bool view_is_finite(struct probe *x, const struct ckpt_view *v)
{
    struct device *d = x->p->programs->memory->device;
    if (x->rc || !v->data || v->desc.dtype == CKPT_I32 || !desc_is_dense(&v->desc))
        return true;
    d->ops->copy(d, QUEUE_COPY_OUT, x->host, v->data, desc_bytes(&v->desc));
    x->rc = d->ops->sync(d);
    return x->rc || values_are_finite(x->host, v->desc.dtype, desc_numel(&v->desc));
}

static bool instr_is_finite(struct probe *x, const struct instr *i)
{
    const struct ckpt_program *p = x->p;
    const struct op *o = &p->tape->ops.data[i->op];
    x->rc = p->programs->memory->device->ops->sync(p->programs->memory->device);
    for (int32_t k = 0; k < o->n_out; k++)
        if (!view_is_finite(x, &p->lowered.views.data[i->first + o->n_in + k]))
            return false;
    return true;
}

/* Whether the values of an input or output that this slot holds are finite. */
static bool buffer_is_finite(const struct ckpt_program *p, const struct io_buffer *buffer,
                             int32_t tensor, int slot)
{
    enum ckpt_dtype dtype = p->tape->tensors.data[tensor].desc.dtype;
    return !buffer->data[slot] || values_are_finite(buffer->data[slot], dtype,
                                                    buffer->bytes / ckpt_dtype_size(dtype));
}

static int32_t find_input(const struct ckpt_program *p, int slot)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++)
        if (!buffer_is_finite(p, &p->feeds[i], p->tape->feeds.data[i].tensor, slot))
            return i;
    return -1;
}

/* Runs the tail after a replay of the body: gradients may overwrite values, and the update writes
 * these back.  With `halt` set it changes nothing else, whatever the replay computed. */
static int run_tail_restoring(struct ckpt_program *p, int slot)
{
    *p->halt = 1;
    enqueue_tail(p, slot);
    int rc = p->programs->memory->device->ops->sync(p->programs->memory->device);
    *p->halt = 0;
    return rc;
}

/* Replays the body; returns the op of the first result that is not finite, or -1. */
static int32_t run_body(struct probe *x, int slot)
{
    struct ckpt_program *p = x->p;
    int32_t found = -1;
    enqueue_run(p, slot);
    for (int32_t micro = 0; micro < p->tape->n_micro; micro++) {
        for (int32_t i = 0; i < p->lowered.n_body && !x->rc; i++) {
            const struct instr *instr = &p->lowered.instrs.data[i];
            enqueue_instr(p, instr, (struct moment){slot, micro});
            if (found < 0 && instr->kind == INSTR_COMPUTE && !instr_is_finite(x, instr))
                found = instr->op;
        }
    }
    return found;
}

int32_t program_find_bad_output(const struct ckpt_program *p, int slot)
{
    for (int32_t i = 0; i < p->tape->n_fetches; i++)
        if (!buffer_is_finite(p, &p->fetches[i], p->tape->fetches.data[i].tensor, slot))
            return i;
    return -1;
}

int program_find_nan(struct ckpt_program *p, int slot, int32_t *op, int32_t *feed)
{
    struct probe x = {.p = p};
    int64_t largest = 1;
    for (int32_t i = 0; i < p->tape->n_storages; i++)
        largest = max_i64(largest, p->tape->storages.data[i].bytes);
    *op = -1;
    *feed = find_input(p, slot);
    x.host = *feed < 0 ? malloc((size_t)largest) : NULL;
    if (!x.host)
        return 0;
    *op = run_body(&x, slot);
    if (!x.rc)
        x.rc = run_tail_restoring(p, slot);
    free(x.host);
    return x.rc;
}
