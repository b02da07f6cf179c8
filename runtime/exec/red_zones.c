/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of storages with guard bytes around them, and sums of inputs: see red_zones.h. */
#include <stdlib.h>
#include <string.h>
#include "core/checksum.h"
#include "exec/red_zones.h"
#include "kernels/kernel.h"

enum {
    ZONE = CKPT_ALIGN, /* guard bytes before and behind, at least */
    MARK = 0xa5        /* their value */
};

/* A storage that the op writes, or its workspace (out -1), and its copy between two guard zones. */
struct copied {
    char *from; /* NULL: a workspace */
    char *to;
    int64_t bytes;
    int out; /* the first output that lies in it */
};

struct zones {
    struct zone_buffers *buffers;
    const struct ckpt_program *p;
    const struct op *op;
    const struct ckpt_kernel_args *a;
    struct copied *list;
    int n;
    char *block;
    struct ckpt_view *views;
    uint64_t *sums; /* of the inputs that lie in no copied storage */
};

static const struct tensor *operand(const struct zones *z, int k)
{
    int32_t id = z->p->tape->operands.data[z->op->operands + k];
    return id > 0 ? &z->p->tape->tensors.data[id] : NULL;
}

/* The storage of output i, if no output before it lies there too. */
static void list_output(struct zones *z, int i)
{
    const struct ckpt_view *v = &z->a->out[i];
    const struct tensor *t = operand(z, z->a->n_in + i);
    if (!t || !v->data)
        return;
    char *from = (char *)v->data - v->desc.offset * ckpt_dtype_size(v->desc.dtype);
    for (int k = 0; k < z->n; k++)
        if (z->list[k].from == from)
            return;
    z->list[z->n++] = (struct copied){
        .from = from, .bytes = z->p->tape->storages.data[t->storage].bytes, .out = i};
}

static int64_t zone_bytes(const struct copied *c)
{
    return ZONE + round_up(c->bytes, ZONE) + ZONE;
}

/* Makes the copies in one block.  The copy of a workspace begins as NaN. */
static int copy_all(struct zones *z)
{
    int64_t total = ZONE;
    for (int k = 0; k < z->n; k++)
        total += zone_bytes(&z->list[k]);
    if (z->buffers->bytes < total) {
        free(z->buffers->block);
        z->buffers->block = aligned_alloc(ZONE, (size_t)total);
        z->buffers->bytes = z->buffers->block ? total : 0;
    }
    z->block = z->buffers->block;
    if (!z->block)
        return CKPT_ENOMEM;
    memset(z->block, MARK, (size_t)total);
    char *at = z->block;
    for (int k = 0; k < z->n; k++) {
        struct copied *c = &z->list[k];
        c->to = at + ZONE;
        at += zone_bytes(c);
        if (c->from)
            memcpy(c->to, c->from, (size_t)c->bytes);
        else
            memset(c->to, 0xff, (size_t)c->bytes);
    }
    return 0;
}

/* The operands as views of the copies, where their storage was copied. */
static void move_views(struct zones *z)
{
    for (int i = 0; i < z->a->n_in + z->a->n_out; i++) {
        struct ckpt_view *v = &z->views[i];
        *v = i < z->a->n_in ? z->a->in[i] : z->a->out[i - z->a->n_in];
        char *data = v->data;
        for (int k = 0; k < z->n; k++) {
            const struct copied *c = &z->list[k];
            if (c->from && data >= c->from && data < c->from + max_i64(1, c->bytes))
                v->data = c->to + (data - c->from);
        }
    }
}

/* From the first to the last element of a view. */
static uint64_t sum_view(const struct ckpt_view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->desc.ndim; i++)
        last += (v->desc.shape[i] - 1) * v->desc.stride[i];
    return checksum(v->data, (last + 1) * ckpt_dtype_size(v->desc.dtype));
}

/* Whether the op may not write input i: it does not lie in the storage of an output. */
static bool only_read(const struct zones *z, int i)
{
    return z->a->in[i].data && z->views[i].data == z->a->in[i].data;
}

static int check_inputs(const struct zones *z)
{
    for (int i = 0; i < z->a->n_in; i++)
        if (only_read(z, i) && sum_view(&z->a->in[i]) != z->sums[i])
            return error_set(CKPT_EINVAL, "its kernel wrote to input %d", i);
    return 0;
}

static bool is_whole(const char *at, const char *end)
{
    for (; at < end; at++)
        if (*(const unsigned char *)at != MARK)
            return false;
    return true;
}

/* Reports which guard bytes the kernel changed. */
static int check(const struct zones *z)
{
    char what[32] = "its workspace";
    for (int k = 0; k < z->n; k++) {
        const struct copied *c = &z->list[k];
        bool below = !is_whole(c->to - ZONE, c->to);
        if (!below && is_whole(c->to + c->bytes, c->to - ZONE + zone_bytes(c)))
            continue;
        if (c->from)
            snprintf(what, sizeof what, "output %d", c->out);
        return error_set(CKPT_EINVAL, "its kernel wrote %s %s", below ? "before" : "after", what);
    }
    return 0;
}

static int run(struct zones *z)
{
    struct ckpt_kernel_args a = *z->a;
    for (int i = 0; i < a.n_out; i++)
        list_output(z, i);
    if (a.workspace_bytes > 0)
        z->list[z->n++] = (struct copied){.bytes = a.workspace_bytes, .out = -1};
    if (copy_all(z))
        return CKPT_ENOMEM;
    move_views(z);
    a.in = z->views;
    a.out = z->views + a.n_in;
    a.device = NULL;
    if (a.workspace_bytes > 0)
        a.workspace = z->list[z->n - 1].to;
    for (int i = 0; i < a.n_in; i++)
        z->sums[i] = only_read(z, i) ? sum_view(&a.in[i]) : 0;
    int rc = kernel_run(z->op->def, CKPT_ON_CPU)(&a);
    if (!rc)
        rc = check(z);
    if (!rc)
        rc = check_inputs(z);
    for (int k = 0; k < z->n && !rc; k++)
        if (z->list[k].from)
            memcpy(z->list[k].from, z->list[k].to, (size_t)z->list[k].bytes);
    return rc;
}

/* Makes room for this many operands; memory is allocated until every op has run once. */
static int reserve_lists(struct zone_buffers *buffers, int64_t operands)
{
    if (buffers->operands >= operands)
        return 0;
    free(buffers->list);
    free(buffers->views);
    free(buffers->sums);
    buffers->list = calloc((size_t)operands, sizeof(struct copied));
    buffers->views = calloc((size_t)operands, sizeof(struct ckpt_view));
    buffers->sums = calloc((size_t)operands, sizeof *buffers->sums);
    buffers->operands = buffers->list && buffers->views && buffers->sums ? operands : 0;
    return buffers->operands ? 0 : CKPT_ENOMEM;
}

int red_zones_run(const struct ckpt_kernel_args *a)
{
    struct zone_buffers *buffers = a->device;
    if (reserve_lists(buffers, (int64_t)a->n_in + a->n_out + 1))
        return CKPT_ENOMEM;
    struct zones z = {.buffers = buffers,
                      .p = buffers->p,
                      .op = &buffers->p->tape->ops.data[a->op],
                      .a = a,
                      .list = buffers->list,
                      .views = buffers->views,
                      .sums = buffers->sums};
    return run(&z);
}

void red_zones_free(struct ckpt_program *p)
{
    for (int k = 0; k < 2; k++) {
        free(p->zones[k].block);
        free(p->zones[k].list);
        free(p->zones[k].views);
        free(p->zones[k].sums);
        p->zones[k] = (struct zone_buffers){.p = NULL};
    }
}
