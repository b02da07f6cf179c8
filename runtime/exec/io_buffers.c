/* SPDX-License-Identifier: Apache-2.0 */
/* Host staging buffers of inputs and outputs, and the struct ckpt_run of each micro-step. */
#include <stdlib.h>
#include <string.h>
#include "attr.h"
#include "exec/host_counts.h"
#include "exec/program.h"
#include "optim/optimizer.h"

/* Of a program that runs once only the first slot has buffers: to pin as many again takes a second
 * for each 3 GiB. */
static int make_io_buffer(struct ckpt_program *p, struct io_buffer *buffer, int32_t tensor,
                          int64_t times, int sets)
{
    struct device *d = p->programs->memory->device;
    buffer->slice = desc_bytes(&p->tape->tensors.data[tensor].desc);
    buffer->bytes = buffer->slice * times;
    for (int i = 0; i < DEVICE_IN_FLIGHT; i++) {
        if (i && sets > 1 && program_runs_once(p))
            continue;
        buffer->data[i] = i < sets ? d->ops->host_alloc(d, buffer->bytes) : buffer->data[0];
        if (!buffer->data[i])
            return CKPT_ENOMEM;
    }
    return 0;
}

static int open_slot(struct device *d, struct io_buffer *buffers, int32_t n, int slot)
{
    for (int32_t i = 0; i < n; i++) {
        if (!buffers[i].data[0] || buffers[i].data[slot])
            continue;
        buffers[i].data[slot] = d->ops->host_alloc(d, buffers[i].bytes);
        if (!buffers[i].data[slot])
            return error_set(CKPT_ENOMEM, "no host memory to stage inputs and outputs");
    }
    return 0;
}

int program_open_slot(struct ckpt_program *p, int slot)
{
    struct device *d = p->programs->memory->device;
    int rc = 0;
    if (program_runs_once(p))
        rc = open_slot(d, p->feeds, p->tape->n_feeds, slot);
    return rc || !program_runs_once(p) ? rc : open_slot(d, p->fetches, p->tape->n_fetches, slot);
}

/* All programs of an optimizer share one halt word: a failed step stops those after it. */
static int share_halt(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    struct ckpt_optimizer *o = p->optimizer;
    if (!o->halt)
        o->halt = d->ops->host_alloc(d, (int64_t)sizeof *o->halt);
    p->halt = o->halt;
    return p->halt ? 0 : CKPT_ENOMEM;
}

/* Of a pipeline each stage computes some outputs of a program that does not train, and all have
 * buffers for all. */
static int find_outputs(struct ckpt_program *p)
{
    const ckpt_tape *t = p->tape;
    struct comm *hosts = p->trains ? NULL : ranks_pipeline(p->programs->ranks);
    const int32_t n = t->n_fetches;
    if (!hosts || !n)
        return 0;
    int32_t *own = calloc((size_t)n * (size_t)(hosts->size + 1), sizeof *own), *all = own + n;
    int rc = own ? 0 : error_set(CKPT_ENOMEM, "no host memory to stage inputs and outputs");
    for (int32_t i = 0; i < n && !rc; i++)
        own[i] = p->fetches[i].data[0] != NULL;
    if (!rc && comm_gather(hosts, own, all, (size_t)n * sizeof *own, "outputs"))
        rc = error_set(CKPT_ECOMM, "%s", hosts->reason);
    for (int32_t i = 0; i < n && !rc; i++) {
        while (p->fetches[i].stage < hosts->size - 1 && !all[p->fetches[i].stage * n + i])
            p->fetches[i].stage++;
        if (!own[i])
            rc = make_io_buffer(p, &p->fetches[i], t->fetches.data[i].tensor, t->n_micro,
                                DEVICE_IN_FLIGHT);
    }
    free(own);
    return rc == CKPT_ENOMEM ? error_set(rc, "no host memory to stage inputs and outputs") : rc;
}

/* The first stage of the pipeline where an index was out of range, as a rank of the job, or -1. */
static int find_bad_index(struct ckpt_program *p, struct comm *hosts, int slot, int *rank)
{
    const struct ranks *job = p->programs->ranks;
    int32_t own = p->bad_index[slot].call != 0, *all = calloc((size_t)hosts->size, sizeof *all);
    if (!all)
        return ranks_give_up(p->programs->ranks,
                             error_set(CKPT_ENOMEM, "no memory for messages of ranks"));
    int rc = comm_gather(hosts, &own, all, sizeof own, "end of a step");
    for (int s = hosts->size - 1; s >= 0 && !rc; s--)
        *rank = all[s] ? job->rank - job->sharing.stage + s : *rank;
    free(all);
    return rc ? error_set(rc, "%s", hosts->reason) : 0;
}

int program_share_outputs(struct ckpt_program *p, int slot, int *bad)
{
    struct comm *hosts = p->trains ? NULL : ranks_pipeline(p->programs->ranks);
    if (!hosts)
        return 0;
    int rc = memory_sync(p->programs->memory); /* steps under way use the same link */
    rc = rc ? ranks_give_up(p->programs->ranks, rc) : find_bad_index(p, hosts, slot, bad);
    for (int32_t i = 0; i < p->tape->n_fetches && !rc && *bad < 0; i++) {
        const struct io_buffer *b = &p->fetches[i];
        const struct ckpt_desc *d = &p->tape->tensors.data[p->tape->fetches.data[i].tensor].desc;
        const struct comm_call call = {.kind = COMM_BROADCAST,
                                       .dtype = d->dtype,
                                       .root = b->stage,
                                       .count = b->bytes / ckpt_dtype_size(d->dtype),
                                       .src = b->data[slot],
                                       .dst = b->data[slot],
                                       .name = p->tape->fetches.data[i].name};
        rc = comm_run(hosts, &call, NULL) ? error_set(CKPT_ECOMM, "%s", hosts->reason) : 0;
    }
    if (*bad == p->programs->ranks->rank) /* it names the place itself */
        *bad = -1;
    return rc;
}

int program_make_io_buffers(struct ckpt_program *p)
{
    const ckpt_tape *t = p->tape;
    struct device *d = p->programs->memory->device;
    p->feeds = calloc((size_t)t->n_feeds + 1, sizeof *p->feeds);
    p->fetches = calloc((size_t)t->n_fetches + 1, sizeof *p->fetches);
    int64_t n_runs = (int64_t)t->n_micro * DEVICE_IN_FLIGHT;
    const int64_t before = DEVICE_IN_FLIGHT;
    p->runs = d->ops->host_alloc(d, (int64_t)sizeof *p->runs * (n_runs + before) +
                                        (int64_t)sizeof *p->bad_index * DEVICE_IN_FLIGHT +
                                        (int64_t)sizeof *p->halt);
    int rc = p->feeds && p->fetches && p->runs ? 0 : CKPT_ENOMEM;
    p->runs_before = p->runs ? p->runs + n_runs : NULL;
    p->bad_index = p->runs ? (struct index_report *)(p->runs_before + before) : NULL;
    p->halt = p->runs ? (int32_t *)(p->bad_index + DEVICE_IN_FLIGHT) : NULL;
    if (!rc && p->optimizer)
        rc = share_halt(p);
    for (int32_t i = 0; i < t->n_feeds && !rc; i++) {
        const struct feed *f = &t->feeds.data[i];
        rc = make_io_buffer(p, &p->feeds[i], f->tensor, f->constant || f->counted ? 1 : t->n_micro,
                            f->constant ? 1 : DEVICE_IN_FLIGHT);
        if (!rc && f->constant)
            memcpy(p->feeds[i].data[0], f->constant, (size_t)p->feeds[i].bytes);
        p->feeds[i].fed = f->constant || f->counted || !f->used;
    }
    /* Outputs of the update have one slice; outputs of the body have one per micro-step. */
    for (int32_t i = 0; i < t->n_ops && !rc; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->fetch >= 0)
            rc = make_io_buffer(p, &p->fetches[o->fetch], op_in(t, o, 0),
                                o->phase == PHASE_UPDATE ? 1 : t->n_micro, DEVICE_IN_FLIGHT);
    }
    if (!rc)
        rc = host_counts_new(p);
    if (rc)
        return error_set(rc, "no host memory to stage inputs and outputs");
    return find_outputs(p);
}

static void free_io_buffers(struct device *d, struct io_buffer *buffers, int32_t n)
{
    for (int32_t i = 0; buffers && i < n; i++) {
        for (int k = 1; k < DEVICE_IN_FLIGHT; k++)
            if (buffers[i].data[k] != buffers[i].data[0])
                d->ops->host_free(d, buffers[i].data[k]);
        d->ops->host_free(d, buffers[i].data[0]);
    }
    free(buffers);
}

void program_free_io_buffers(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    free_io_buffers(d, p->feeds, p->tape ? p->tape->n_feeds : 0);
    free_io_buffers(d, p->fetches, p->tape ? p->tape->n_fetches : 0);
    if (p->runs)
        d->ops->host_free(d, p->runs);
    host_counts_free(p->counts);
}
