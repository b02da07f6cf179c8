/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The micro-steps of a stage, one after another on the tape.  A body that runs once for each
 * micro-step cannot begin the next forward pass before the backward pass of the last one; stages
 * work at once only if they do.  So a stage has the ops of all micro-steps, in the order of 1F1B:
 * first as many forward passes as there are stages behind it, then a forward and a backward pass in
 * turns, then the backward passes that are left.  The planner sees the memory of all.
 *
 * Gradients are summed over micro-steps in the order of one rank, by the same ops.  The last
 * micro-step has the tensors of the body, so what the update reads stays; earlier ones have copies.
 * Sums that a micro-step adds to are chained, from the first to the last.
 *
 * Two stages run their transfers in the same order, or they would wait for each other: a stage
 * sends the result of a forward pass only after it got the gradient that is due.
 */
#include <stdlib.h>
#include <string.h>
#include "collective.h"
#include "ops.h"
#include "passes/passes.h"

enum share { RECEIVES, SENDS, OTHERS };

struct unrolling {
    ckpt_tape *t;
    struct op *ops; /* the new list */
    int32_t n, n_old;
    int32_t n_tensors, n_storages; /* of the body */
    int32_t *tensor;               /* per micro-step and tensor of the body: its copy, or 0 */
    int32_t *storage;              /* the same of storages, or -1 */
    bool *gathered;                /* per storage of the body: what ranks gather once a step */
    int32_t *sum;                  /* per storage: the tensor that holds the sum so far, or 0 */
    int32_t micro;
};

static void find_gathered(struct unrolling *u)
{
    const ckpt_tape *t = u->t;
    for (int32_t i = 0; i < u->n_old; i++)
        if (collective_gathers(t->ops.data[i].def))
            u->gathered[t->tensors.data[op_out(t, &t->ops.data[i], 0)].storage] = true;
}

static bool is_last(const struct unrolling *u)
{
    return u->micro == u->t->n_micro - 1;
}

/* Whether all micro-steps have the same tensor: no op makes it, or copies in a constant, or gathers
 * parameters, or it is a view of such a one. */
static bool is_fixed(const struct unrolling *u, int32_t x)
{
    const ckpt_tape *t = u->t;
    const struct tensor *v = &t->tensors.data[x];
    const struct storage *s = &t->storages.data[v->storage];
    return s->kind == STORAGE_CONSTANT || (v->storage < u->n_storages && u->gathered[v->storage]) ||
           (s->kind >= STORAGE_VALUE && s->kind <= STORAGE_EXP_AVG_SQ_COL);
}

static int32_t copy_storage(struct unrolling *u, int32_t from, ckpt_tensor made)
{
    ckpt_tape *t = u->t;
    struct storage *to = &t->storages.data[t->tensors.data[made.id].storage];
    const int32_t tensor = to->tensor;
    *to = t->storages.data[from];
    to->tensor = tensor;
    return t->tensors.data[made.id].storage;
}

/* The tensor of a micro-step for x of the body.  Of a sum it is a new tensor in the same bytes. */
static int32_t copy_of(struct unrolling *u, int32_t x)
{
    ckpt_tape *t = u->t;
    int32_t *known = &u->tensor[(int64_t)u->micro * u->n_tensors + x];
    if (x <= 0 || is_last(u) || is_fixed(u, x))
        return x;
    if (*known)
        return *known;
    const int32_t from = t->tensors.data[x].storage;
    int32_t *storage = &u->storage[(int64_t)u->micro * u->n_storages + from];
    const struct ckpt_desc d = t->tensors.data[x].desc;
    ckpt_tensor y;
    if (t->storages.data[from].carried) {
        y = tape_view_tensor(t, tape_handle(t, x), &d);
    } else if (*storage < 0) {
        y = tape_new_tensor(t, &d, t->storages.data[from].kind);
        *storage = y.id ? copy_storage(u, from, y) : -1;
    } else {
        y = tape_view_tensor(t, tape_handle(t, x), &d);
        if (y.id) {
            uses_move_tensor(&t->uses, y.id, from, *storage);
            t->tensors.data[y.id].storage = *storage;
        }
    }
    if (!y.id)
        return 0;
    struct tensor *to = &t->tensors.data[y.id];
    const int32_t at = to->storage;
    *to = t->tensors.data[x];
    to->storage = at;
    return *known = y.id;
}

/* What an op of a micro-step reads for x: of a sum, what the micro-step before left. */
static int32_t read_of(struct unrolling *u, int32_t x)
{
    const ckpt_tape *t = u->t;
    const int32_t s = x > 0 ? t->tensors.data[x].storage : -1;
    if (s >= 0 && s < u->n_storages && t->storages.data[s].carried && t->tensors.data[x].op < 0)
        return u->sum[s] ? u->sum[s] : x;
    return copy_of(u, x);
}

static bool fail_memory(struct unrolling *u)
{
    tape_fail(u->t, CKPT_ENOMEM, "no memory for the micro-steps of a stage");
    return false;
}

/* Whether the other micro-steps read what this op makes. */
static bool is_once(const struct unrolling *u, const struct op *o)
{
    for (int k = 0; k < o->n_out; k++)
        if (op_out(u->t, o, k) > 0 && !is_fixed(u, op_out(u->t, o, k)))
            return false;
    return o->n_out > 0 &&
           (o->feed >= 0 || o->def->flags & CKPT_OP_VIEW || collective_gathers(o->def));
}

static bool copy_operands(struct unrolling *u, const struct op *from, struct op *o)
{
    ckpt_tape *t = u->t;
    const int n = from->n_in + from->n_out;
    if (tape_reserve_operands(t, n))
        return fail_memory(u);
    o->operands = t->n_operands;
    t->n_operands += n;
    for (int k = 0; k < n; k++) {
        const int32_t x = t->operands.data[from->operands + k];
        const int32_t y = k < from->n_in ? read_of(u, x) : copy_of(u, x);
        t->operands.data[o->operands + k] = y;
    }
    for (int k = 0; k < from->n_out; k++) {
        const int32_t x = op_out(t, o, k), s = x > 0 ? t->tensors.data[x].storage : -1;
        if (s >= 0 && t->storages.data[s].carried)
            u->sum[s] = x;
    }
    return !t->error.code;
}

static bool copy_op(struct unrolling *u, int32_t i)
{
    ckpt_tape *t = u->t;
    const struct op *from = &t->ops.data[i];
    struct op *o = &u->ops[u->n];
    if (from->def == &tape_removed || (u->micro > 0 && is_once(u, from)))
        return true;
    *o = *from;
    o->attr = NULL;
    o->micro = u->micro;
    if (o->accumulate == ACCUMULATE_LATER_MICRO)
        o->accumulate = u->micro ? ACCUMULATE_ALWAYS : ACCUMULATE_NEVER;
    if (from->attr_size && !(o->attr = malloc(from->attr_size)))
        return fail_memory(u);
    if (from->attr_size)
        memcpy(o->attr, from->attr, from->attr_size);
    u->n++;
    return copy_operands(u, from, o);
}

static enum share share_of(const struct op *o)
{
    const struct stage_attr *attr = o->attr;
    if (o->def == &op_receive && attr->back)
        return RECEIVES;
    return o->def == &op_send && !attr->back ? SENDS : OTHERS;
}

/* The forward pass or the backward pass of a micro-step, or what it sends or receives there. */
static void copy_part(struct unrolling *u, enum phase phase, int32_t micro, unsigned parts)
{
    const ckpt_tape *t = u->t;
    u->micro = micro;
    for (int32_t i = 0; i < u->n_old && !t->error.code; i++)
        if (t->ops.data[i].phase == phase && parts >> share_of(&t->ops.data[i]) & 1)
            copy_op(u, i);
}

static void copy_all(struct unrolling *u)
{
    const ckpt_tape *t = u->t;
    const unsigned all = 1u << RECEIVES | 1u << SENDS | 1u << OTHERS;
    const int behind = t->env.sharing.stages - 1 - t->env.sharing.stage;
    const int32_t n = t->n_micro, first = behind < n ? behind : n;
    for (int32_t m = 0; m < first; m++)
        copy_part(u, PHASE_FORWARD, m, all);
    for (int32_t m = 0; m < n; m++) {
        const int32_t next = m + first;
        if (next < n)
            copy_part(u, PHASE_FORWARD, next, all & ~(1u << SENDS));
        copy_part(u, PHASE_BACKWARD, m, 1u << RECEIVES);
        if (next < n)
            copy_part(u, PHASE_FORWARD, next, 1u << SENDS);
        copy_part(u, PHASE_BACKWARD, m, all & ~(1u << RECEIVES));
    }
}

/* The update follows as it is; the list becomes that of the tape. */
static void finish(struct unrolling *u)
{
    ckpt_tape *t = u->t;
    for (int32_t i = 0; i < u->n_old; i++)
        if (t->ops.data[i].phase == PHASE_UPDATE)
            u->ops[u->n++] = t->ops.data[i];
        else
            free(t->ops.data[i].attr);
    free(t->ops.data);
    t->ops.data = u->ops;
    t->ops.capacity = u->n;
    t->n_ops = u->n;
    u->ops = NULL;
    uses_clear(&t->uses, t->n_tensors);
    for (int32_t x = 1; x < t->n_tensors; x++)
        t->tensors.data[x].op = -1;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        for (int k = 0; k < o->n_out; k++)
            if (op_out(t, o, k) > 0) {
                t->tensors.data[op_out(t, o, k)].op = i;
                t->tensors.data[op_out(t, o, k)].index = k;
            }
        tape_enter_reads(t, i);
    }
    for (int32_t s = 0; s < t->n_storages; s++)
        t->storages.data[s].carried = false;
    t->n_bodies = 1;
}

int pass_unroll(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    struct unrolling u = {
        .t = t, .n_old = t->n_ops, .n_tensors = t->n_tensors, .n_storages = t->n_storages};
    const size_t n = (size_t)t->n_micro;
    u.ops = malloc(n * (size_t)t->n_ops * sizeof *u.ops);
    u.tensor = calloc(n * (size_t)u.n_tensors, sizeof *u.tensor);
    u.storage = malloc(n * (size_t)u.n_storages * sizeof *u.storage);
    u.gathered = calloc((size_t)u.n_storages + 1, sizeof *u.gathered);
    u.sum = calloc((size_t)u.n_storages + 1, sizeof *u.sum);
    if (u.ops && u.tensor && u.storage && u.gathered && u.sum) {
        find_gathered(&u);
        memset(u.storage, 0xff, n * (size_t)u.n_storages * sizeof *u.storage);
        copy_all(&u);
    } else {
        fail_memory(&u);
    }
    if (!t->error.code)
        finish(&u);
    for (int32_t i = 0; i < u.n && u.ops; i++)
        free(u.ops[i].attr);
    free(u.ops);
    free(u.tensor);
    free(u.storage);
    free(u.gathered);
    free(u.sum);
    return t->error.code;
}
