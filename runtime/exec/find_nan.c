/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a step whose loss or norm is not finite again, op by op, to find the first bad result.
 *
 * The ranks of a step run it again together, since it has collectives.  All of them have the same
 * loss and norm, so all come here.  Each tells the others where its first bad result is; the
 * earliest in the order of the step is the origin, because a bad value reaches other ranks only
 * through a later collective.
 */
#include <stdlib.h>
#include "core/thread_team.h"
#include "exec/enqueue.h"
#include "ops.h"

/* The place of a rank's first bad value in its step. */
struct finding {
    int64_t at; /* micro-step and instruction, or one of those below */
    char where[300];
};
enum { BEFORE_STEP = -1 };
#define NOWHERE   INT64_MAX
#define ELSEWHERE (NOWHERE - 1) /* on the stage that this one received it from */

struct probe {
    struct ckpt_program *p;
    char *host; /* as many bytes as the largest tensor; NULL: no memory, nothing is found */
    int rc;     /* the device's code: after a failure its results mean nothing */
};

/* Strided outputs share their storage with others and are not checked: a bad value shows in the
 * result of their reader. */
static bool view_is_finite(struct probe *x, const struct ckpt_view *v)
{
    struct device *d = x->p->programs->memory->device;
    if (x->rc || !x->host || !v->data || v->desc.dtype == CKPT_I32 || !desc_is_dense(&v->desc))
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

enum { SHARE = 1 << 20 /* values that are worth a thread: a decoded clip has 10^8 */ };

struct values {
    const char *data;
    enum ckpt_dtype dtype;
    bool bad;
};

static void check_share(void *user, int64_t from, int64_t end)
{
    struct values *v = user;
    if (!values_are_finite(v->data + from * ckpt_dtype_size(v->dtype), v->dtype, end - from))
        __atomic_store_n(&v->bad, true, __ATOMIC_RELAXED);
}

/* Whether the values of an input or output that this slot holds are finite. */
static bool buffer_is_finite(const struct ckpt_program *p, const struct io_buffer *buffer,
                             int32_t tensor, int slot)
{
    struct values v = {.data = buffer->data[slot],
                       .dtype = p->tape->tensors.data[tensor].desc.dtype};
    const int64_t n = buffer->bytes / ckpt_dtype_size(v.dtype);
    if (v.data)
        thread_team_run(thread_team_size(0, n, SHARE), n, 1, check_share, &v);
    return !v.bad;
}

static void find_input(const struct ckpt_program *p, int slot, struct finding *f)
{
    for (int32_t i = 0; i < p->tape->n_feeds && f->at == NOWHERE; i++)
        if (!buffer_is_finite(p, &p->feeds[i], p->tape->feeds.data[i].tensor, slot)) {
            f->at = BEFORE_STEP;
            const struct feed *feed = &p->tape->feeds.data[i];
            if (feed->counted)
                snprintf(f->where, sizeof f->where, "the count that a mean divides by");
            else
                snprintf(f->where, sizeof f->where, "the input '%.200s'", feed->name);
        }
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

/* Replays the body and finds the first result that is not finite. */
static void run_body(struct probe *x, int slot, struct finding *f)
{
    struct ckpt_program *p = x->p;
    const int64_t n = p->lowered.n_body;
    enqueue_run(p, slot);
    for (int32_t micro = 0; micro < p->tape->n_bodies; micro++) {
        for (int32_t i = 0; i < n && !x->rc; i++) {
            const struct instr *instr = &p->lowered.instrs.data[i];
            enqueue_instr(p, instr, (struct moment){slot, micro});
            if (f->at != NOWHERE || instr->kind != INSTR_COMPUTE || instr_is_finite(x, instr))
                continue;
            f->at = p->tape->ops.data[instr->op].def == &op_receive ? ELSEWHERE : micro * n + i;
            tape_op_name(p->tape, instr->op, f->where, sizeof f->where);
        }
    }
}

int32_t program_find_bad_output(const struct ckpt_program *p, int slot)
{
    for (int32_t i = 0; i < p->tape->n_fetches; i++)
        if (!buffer_is_finite(p, &p->fetches[i], p->tape->fetches.data[i].tensor, slot))
            return i;
    return -1;
}

/* Runs the step of this slot again; it changes nothing.  Returns 0 or the device's code. */
static int replay(struct ckpt_program *p, int slot, struct finding *f)
{
    struct probe x = {.p = p};
    int64_t largest = 1;
    for (int32_t i = 0; i < p->tape->n_storages; i++)
        largest = max_i64(largest, p->tape->storages.data[i].bytes);
    x.host = malloc((size_t)largest);
    run_body(&x, slot, f);
    if (!x.rc)
        x.rc = run_tail_restoring(p, slot);
    free(x.host);
    return x.rc;
}

/* A step that does not train may fail on this rank alone: the others would not join its
 * collectives. */
static bool can_replay(const struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->lowered.n_instrs; i++)
        if (p->lowered.instrs.data[i].queue == QUEUE_COMM && !program_is_shared(p))
            return false;
    return true;
}

/* f becomes the earliest finding of all ranks, with the rank.  Collective. */
static int select_earliest(struct ckpt_program *p, struct finding *f)
{
    const int n = p->programs->ranks->sharing.ranks;
    int first = 0;
    if (!program_is_shared(p))
        return 0;
    struct finding *all = malloc((size_t)n * sizeof *all);
    if (!all)
        return ranks_give_up(p->programs->ranks,
                             error_set(CKPT_ENOMEM, "no memory for messages of ranks"));
    int rc = ranks_gather(p->programs->ranks, f, sizeof *f, all);
    for (int r = 1; r < n && !rc; r++)
        first = all[r].at < all[first].at ? r : first;
    if (!rc && all[first].at != NOWHERE) {
        f->at = all[first].at;
        snprintf(f->where, sizeof f->where, "%.260s on rank %d", all[first].where, first);
    }
    free(all);
    return rc;
}

int program_find_nan(struct ckpt_program *p, int slot, bool index, char *where, size_t size)
{
    struct finding f = {NOWHERE, "an index out of range"};
    if (index)
        f.at = BEFORE_STEP;
    find_input(p, slot, &f);
    int rc = select_earliest(p, &f);
    if (!rc && f.at == NOWHERE && can_replay(p)) {
        rc = replay(p, slot, &f);
        rc = rc ? programs_fail_device(p->programs, p, rc) : select_earliest(p, &f);
    }
    if (f.at == NOWHERE)
        snprintf(f.where, sizeof f.where, "%s", p->trains ? "the update" : "its outputs");
    snprintf(where, size, "%s", f.where);
    return rc;
}
