/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tape of the counts with the kernels of the CPU: see host_counts.h. */
#include <stdlib.h>
#include <string.h>
#include "attr.h"
#include "exec/host_counts.h"
#include "kernels/kernel.h"
#include "memory/device/team.h"

enum { ALIGNMENT = 64 };

struct host_counts {
    char **storage; /* per storage of the tape of the counts */
    char *memory;   /* of all storages without a feed, and of the workspace behind them */
    char *workspace;
    int32_t *feed; /* per feed there: the feed of the step with its name; -1: a constant */
    struct ckpt_view *views; /* of the operands of one op */
    double *sum;             /* per count */
};

/* Bytes of all storages without a feed; with h: sets their addresses. */
static int64_t place_storages(const ckpt_tape *t, struct host_counts *h)
{
    int64_t bytes = 0;
    for (int32_t s = 0; s < t->n_storages; s++) {
        if (t->storages.data[s].feed >= 0)
            continue;
        if (h)
            h->storage[s] = h->memory + bytes;
        bytes += round_up(t->storages.data[s].bytes, ALIGNMENT);
    }
    return bytes;
}

/* The feed of the step that has the name of an input. */
static int32_t feed_named(const ckpt_tape *t, const char *name)
{
    for (int32_t i = 0; i < t->n_feeds; i++)
        if (!t->feeds.data[i].constant && !strcmp(t->feeds.data[i].name, name))
            return i;
    return -1;
}

static void find_feeds(const ckpt_tape *step, const ckpt_tape *t, struct host_counts *h)
{
    for (int32_t i = 0; i < t->n_feeds; i++) {
        const struct feed *f = &t->feeds.data[i];
        h->feed[i] = f->constant ? -1 : feed_named(step, f->name);
        if (f->constant)
            h->storage[t->tensors.data[f->tensor].storage] = f->constant;
    }
}

int host_counts_new(struct ckpt_program *p)
{
    const struct counting *c = p->tape->counting;
    if (!c || !c->n_counts)
        return 0;
    if (kernel_bind(c->tape))
        return c->tape->error.code;
    const ckpt_tape *t = c->tape;
    struct host_counts *h = calloc(1, sizeof *h);
    int64_t workspace = 0, bytes = place_storages(t, NULL);
    int32_t operands = 1;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        workspace = max_i64(workspace, o->workspace);
        operands = (int32_t)max_i64(operands, o->n_in + o->n_out);
    }
    p->counts = h;
    if (!h)
        return CKPT_ENOMEM;
    h->storage = calloc((size_t)t->n_storages + 1, sizeof *h->storage);
    h->memory = aligned_alloc(ALIGNMENT, (size_t)round_up(bytes + workspace + 1, ALIGNMENT));
    h->feed = calloc((size_t)t->n_feeds + 1, sizeof *h->feed);
    h->views = calloc((size_t)operands, sizeof *h->views);
    h->sum = calloc((size_t)c->n_counts, sizeof *h->sum);
    if (!h->storage || !h->memory || !h->feed || !h->views || !h->sum)
        return CKPT_ENOMEM;
    place_storages(t, h);
    h->workspace = h->memory + bytes;
    find_feeds(p->tape, t, h);
    return 0;
}

void host_counts_free(struct host_counts *h)
{
    if (!h)
        return;
    free(h->storage);
    free(h->memory);
    free(h->feed);
    free(h->views);
    free(h->sum);
    free(h);
}

static void *address(const ckpt_tape *t, const struct host_counts *h, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    return h->storage[v->storage] + v->desc.offset * ckpt_dtype_size(v->desc.dtype);
}

static int run_op(const ckpt_tape *t, struct host_counts *h, int32_t i, const struct ckpt_run *run)
{
    const struct op *o = &t->ops.data[i];
    if (o->feed >= 0 || o->def->flags & CKPT_OP_VIEW)
        return 0;
    for (int32_t k = 0; k < o->n_in + o->n_out; k++) {
        const int32_t x = t->operands.data[o->operands + k];
        h->views[k] = (struct ckpt_view){.desc = {.ndim = -1}};
        if (x > 0)
            h->views[k] = (struct ckpt_view){address(t, h, x), t->tensors.data[x].desc};
    }
    return o->run(&(struct ckpt_kernel_args){.n_in = o->n_in,
                                             .n_out = o->n_out,
                                             .extra = o->extra,
                                             .in = h->views,
                                             .out = h->views + o->n_in,
                                             .attr = o->attr,
                                             .workspace = h->workspace,
                                             .workspace_bytes = o->workspace,
                                             .op = i,
                                             .number = o->number,
                                             .run = run,
                                             .threads = 1});
}

/* Adds the counts of one micro-step.  An index out of range is reported by the step itself. */
static int count_micro(struct ckpt_program *p, int slot, int32_t micro)
{
    const struct counting *c = p->tape->counting;
    struct host_counts *h = p->counts;
    struct index_report unused = {.first = UINT64_MAX};
    struct ckpt_run run = p->runs[slot * p->tape->n_micro + micro];
    int rc = 0;
    run.bad_index = &unused;
    for (int32_t i = 0; i < c->tape->n_feeds; i++)
        if (h->feed[i] >= 0)
            h->storage[c->tape->tensors.data[c->tape->feeds.data[i].tensor].storage] =
                p->feeds[h->feed[i]].data[slot] + p->feeds[h->feed[i]].slice * micro;
    for (int32_t i = 0; i < c->tape->n_ops && !rc; i++)
        rc = run_op(c->tape, h, i, &run);
    for (int32_t k = 0; k < c->n_counts && !rc; k++)
        h->sum[k] += (double)*(const float *)address(c->tape, h, c->counts.data[k].tensor);
    return rc;
}

int host_counts_run(struct ckpt_program *p, int slot)
{
    const struct counting *c = p->tape->counting;
    struct host_counts *h = p->counts;
    int rc = 0;
    if (!h)
        return 0;
    const int team = team_size(1); /* as the scratch was sized; kernels of a step have the others */
    for (int32_t k = 0; k < c->n_counts; k++)
        h->sum[k] = 0;
    for (int32_t micro = 0; micro < p->tape->n_micro && !rc; micro++)
        rc = count_micro(p, slot, micro);
    for (int32_t k = 0; k < c->n_counts && !rc; k++)
        *(float *)p->feeds[c->counts.data[k].feed].data[slot] =
            (float)(h->sum[k] / p->tape->n_micro);
    team_size(team);
    return rc;
}
