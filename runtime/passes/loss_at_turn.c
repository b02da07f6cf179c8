/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves losses to the start of the backward pass.
 *
 * On the complete tape, softmax cross-entropy and its gradient become one op that reads the logits
 * once.  This op, with the layer that computes the logits, moves to the position of the gradient.
 * The gradient depends on the gradient of the loss, which is known beforehand (the weight of a
 * micro-step, or a quotient by a count of labels), and not on the value of the loss.  Other readers
 * of the loss (sums of chunks, fetches, the loss of a step) move after it.
 *
 * A loss computed in chunks then runs layer, loss and both gradients of one chunk before the next
 * chunk begins.  Only the logits of one chunk exist at a time, and no budget recomputes any.
 *
 * The pass depends on the tape alone and changes no bit.  A tape where a gradient does depend on a
 * loss, for example one that weighs another loss, is left unchanged.
 */
#include <stdlib.h>
#include <string.h>
#include "attr.h"
#include "ops.h"
#include "passes/passes.h"

/* Operands of cross_entropy_dx that cross_entropy produces; CHAIN: maximum ops moved with a
 * loss. */
enum { DX_X = 1, DX_STATS = 3, DX_COUNT = 4, DX_WEIGHT = 5, CHAIN = 6 };

struct loss_move {
    ckpt_tape *t;
    int32_t *loss; /* per op that is a gradient: the op that computes its loss, or -1 */
    int32_t *to;   /* per op: the position of the op before which it moves, or -1 */
    bool *late;    /* per tensor: whether it depends on a loss */
    int32_t
        last_gradient; /* position of the last gradient; ops that depend on a loss move after it */
};

static int32_t storage_of(const ckpt_tape *t, int32_t x)
{
    return x > 0 ? t->tensors.data[x].storage : -1;
}

/* ---- pairs of loss and gradient -------------------------------------------------------------- */

/* Whether no op other than i reads x. */
static bool is_read_by_one(const ckpt_tape *t, int32_t x, int32_t i)
{
    return !uses_has_reader_but(t, storage_of(t, x), i);
}

/* The op that computes the loss of gradient i if the two can become one op, else -1. */
static int32_t loss_of(const ckpt_tape *t, int32_t i)
{
    const struct op *dx = &t->ops.data[i];
    if (dx->def != &op_cross_entropy_dx || dx->phase != PHASE_BACKWARD)
        return -1;
    const int32_t c = t->tensors.data[op_in(t, dx, DX_STATS)].op;
    const struct op *o = c >= 0 ? &t->ops.data[c] : NULL;
    if (!o || o->def != &op_cross_entropy || o->phase != PHASE_FORWARD ||
        o->attr_size != dx->attr_size || memcmp(o->attr, dx->attr, o->attr_size) != 0)
        return -1;
    for (int k = 0; k < 2; k++) /* logits and labels */
        if (op_in(t, o, k) != op_in(t, dx, DX_X + k))
            return -1;
    return is_read_by_one(t, op_out(t, o, 1), i) && is_read_by_one(t, op_out(t, o, 2), i) ? c : -1;
}

static bool find_pairs(struct loss_move *u)
{
    const ckpt_tape *t = u->t;
    u->last_gradient = -1;
    for (int32_t i = 0; i < t->n_ops; i++) {
        u->to[i] = -1;
        u->loss[i] = loss_of(t, i);
        if (u->loss[i] >= 0)
            u->last_gradient = i;
    }
    for (int32_t i = 0; i <= u->last_gradient; i++)
        if (u->loss[i] >= 0)
            u->to[u->loss[i]] = i;
    return u->last_gradient >= 0;
}

/* ---- readers of a loss ----------------------------------------------------------------------- */

static bool is_late(const struct loss_move *u, int32_t i)
{
    const struct op *o = &u->t->ops.data[i];
    for (int k = 0; k < o->n_in; k++)
        if (op_in(u->t, o, k) > 0 && u->late[op_in(u->t, o, k)])
            return true;
    return false;
}

/* Whether the results are no larger than the losses of rows: sums and the like, not a model that
 * continues from the loss. */
static bool is_small(const struct loss_move *u, const struct op *o)
{
    const ckpt_tape *t = u->t;
    const struct op *last = &t->ops.data[u->last_gradient];
    const int64_t rows = desc_numel(&t->tensors.data[op_in(t, last, DX_X + 1)].desc);
    for (int k = 0; k < o->n_out; k++)
        if (op_out(t, o, k) > 0 && desc_numel(&t->tensors.data[op_out(t, o, k)].desc) > rows)
            return false;
    return true;
}

/* Marks all tensors that depend on a loss.  Returns whether all their ops can move after the
 * gradients. */
static bool mark_late(struct loss_move *u)
{
    const ckpt_tape *t = u->t;
    for (int32_t i = 0; i < t->n_ops && t->ops.data[i].phase != PHASE_UPDATE; i++) {
        const struct op *o = &t->ops.data[i];
        const bool is_loss = u->to[i] >= 0, late = is_late(u, i);
        if (late && (is_loss || u->loss[i] >= 0 || !is_small(u, o)))
            return false;
        for (int k = 0; k < o->n_out && (late || (is_loss && k == 0)); k++)
            if (op_out(t, o, k) > 0)
                u->late[op_out(t, o, k)] = true;
    }
    return true;
}

/* Whether op i is in (from, to] and does not move behind `to`. */
static bool is_between(const struct loss_move *u, int32_t i, int32_t from, int32_t to)
{
    return i > from && i <= to && !is_late(u, i) && u->to[i] <= to;
}

/* Whether such an op reads x; writes x. */
static bool is_read_between(const struct loss_move *u, int32_t x, int32_t from, int32_t to)
{
    for (int32_t r = uses_first(u->t, x); r >= 0; r = uses_next(u->t, r))
        if (is_between(u, uses_op(u->t, r), from, to))
            return true;
    return false;
}

static bool is_written_between(const struct loss_move *u, int32_t x, int32_t from, int32_t to)
{
    const int32_t i = u->t->tensors.data[x].op;
    return is_between(u, i, from, to) && !(u->t->ops.data[i].def->flags & CKPT_OP_VIEW);
}

/* Whether such an op writes the storage; or, with `read`, reads it. */
static bool is_accessed(const struct loss_move *u, int32_t storage, int32_t from, int32_t to,
                        bool read)
{
    for (int32_t x = storage >= 0 ? uses_on(u->t, storage) : 0; x; x = uses_older(u->t, x))
        if (is_written_between(u, x, from, to) || (read && is_read_between(u, x, from, to)))
            return true;
    return false;
}

/* Whether op i can move to position `to`: its operands still have the same values there, and no op
 * in between needs its results. */
static bool can_move(const struct loss_move *u, int32_t i, int32_t to)
{
    const ckpt_tape *t = u->t;
    const struct op *o = &t->ops.data[i];
    for (int k = 0; k < o->n_in; k++)
        if (is_accessed(u, storage_of(t, op_in(t, o, k)), i, to, false))
            return false;
    for (int k = 0; k < o->n_out; k++)
        if (is_accessed(u, storage_of(t, op_out(t, o, k)), i, to, true))
            return false;
    return true;
}

static bool late_can_move(const struct loss_move *u)
{
    for (int32_t i = 0; i < u->last_gradient; i++)
        if (is_late(u, i) && !can_move(u, i, u->last_gradient))
            return false;
    return true;
}

/* ---- producers of the logits ----------------------------------------------------------------- */

/* Whether operand x exists at `to` anyway: it is state, or a later op of the backward pass reads
 * it. */
static bool is_live(const ckpt_tape *t, int32_t x, int32_t to)
{
    const int32_t s = storage_of(t, x);
    if (s < 0 || (t->storages.data[s].kind != STORAGE_ACTIVATION))
        return true;
    for (int32_t y = uses_on(t, s); y; y = uses_older(t, y))
        for (int32_t u = uses_first(t, y); u >= 0; u = uses_next(t, u))
            if (uses_op(t, u) > to && t->ops.data[uses_op(t, u)].phase == PHASE_BACKWARD)
                return true;
    return false;
}

/* Whether operand x of an op is so small beside the op's result that keeping it costs nothing: the
 * bias of logits that an op made. */
static bool is_trifle(const ckpt_tape *t, const struct op *o, int32_t x)
{
    enum { PARTS = 256 };
    return x <= 0 || desc_bytes(&t->tensors.data[x].desc) <=
                         desc_bytes(&t->tensors.data[op_out(t, o, 0)].desc) / PARTS;
}

/* Whether op i, whose result is an operand of a moved op, can move, too. */
static bool can_follow(const struct loss_move *u, int32_t i, int32_t to)
{
    const ckpt_tape *t = u->t;
    const struct op *o = &t->ops.data[i];
    if (o->phase != PHASE_FORWARD || o->n_out != 1 || o->n_in < 1 || o->feed >= 0 ||
        u->to[i] >= 0 || is_late(u, i) || o->def->flags & CKPT_OP_INPLACE ||
        !can_move(u, i, to - 1))
        return false;
    for (int k = 0; k < o->n_in; k++)
        if (!is_live(t, op_in(t, o, k), to) && !is_trifle(t, o, op_in(t, o, k)))
            return false;
    return true;
}

/* Bytes of the activations that an op reads. */
static int64_t bytes_read(const ckpt_tape *t, const struct op *o)
{
    int64_t bytes = 0;
    for (int k = 0; k < o->n_in; k++) {
        const int32_t s = storage_of(t, op_in(t, o, k));
        if (s >= 0 && t->storages.data[s].kind == STORAGE_ACTIVATION)
            bytes += desc_bytes(&t->tensors.data[op_in(t, o, k)].desc);
    }
    return bytes;
}

/*
 * Walks from the logits back to the last layer, the op that writes more bytes than it reads.  These
 * ops move with the loss.  The operands of that op are smaller, and the backward pass reads them in
 * any case.
 */
static void move_producers(struct loss_move *u, int32_t dx)
{
    const ckpt_tape *t = u->t;
    int32_t chain[CHAIN], x = op_in(t, &t->ops.data[dx], DX_X);
    int n = 0, keep = 0;
    while (n < CHAIN) {
        const int32_t i = t->tensors.data[x].op;
        const struct op *o = i >= 0 ? &t->ops.data[i] : NULL;
        const int64_t made = desc_bytes(&t->tensors.data[x].desc);
        if (!o || made < bytes_read(t, o) || !can_follow(u, i, dx))
            break;
        chain[n++] = i;
        u->to[i] = dx; /* already marked, so producers of its operands see a moved reader */
        keep = made > bytes_read(t, o) ? n : keep;
        x = op_in(t, o, 0);
        if (x <= 0)
            break;
    }
    for (int i = keep; i < n; i++)
        u->to[chain[i]] = -1;
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Whether op i is the only reader of the logits x and they fill their storage, so the gradient can
 * overwrite them.  A plan never recomputes ops of the backward pass. */
static bool can_overwrite(const ckpt_tape *t, int32_t x, int32_t i)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct storage *s = &t->storages.data[v->storage];
    return v->op >= 0 && t->ops.data[v->op].phase == PHASE_BACKWARD &&
           t->ops.data[v->op].def == &op_linear && s->kind == STORAGE_TEMPORARY && !s->carried &&
           s->param < 0 && s->feed < 0 && !v->desc.offset && desc_bytes(&v->desc) == s->bytes &&
           is_read_by_one(t, x, i);
}

/* Moves the gradient and its views to the storage of the logits, if the gradient fills its own
 * storage. */
static void overwrite_logits(ckpt_tape *t, int32_t logits, int32_t dx)
{
    const int32_t to = t->tensors.data[logits].storage, from = t->tensors.data[dx].storage;
    const struct storage *s = &t->storages.data[from];
    if (s->kind != STORAGE_TEMPORARY || s->carried || s->bytes != t->storages.data[to].bytes ||
        t->tensors.data[dx].desc.offset)
        return;
    tape_move_storage(t, from, to);
}

/* Turns gradient op i into loss and gradient, and removes the op that computed the loss. */
static int fuse_pair(struct loss_move *u, int32_t i)
{
    ckpt_tape *t = u->t;
    const int32_t c = u->loss[i];
    const struct op *o = &t->ops.data[i], *of = &t->ops.data[c];
    const int32_t x = op_in(t, o, DX_X), dx = op_out(t, o, 0), out[] = {op_out(t, of, 0), dx};
    int32_t in[] = {op_in(t, o, 0), x, op_in(t, o, DX_X + 1), 0};
    const bool weighted = o->n_in > DX_WEIGHT && op_in(t, o, DX_WEIGHT);
    if (weighted)
        in[3] = op_in(t, o, DX_WEIGHT);
    tape_merge_lines(of, &t->ops.data[i]);
    tape_remove_op(t, c);
    if (tape_replace_op(t, i, &op_cross_entropy_both, o->attr, o->attr_size, weighted ? 4 : 3, in,
                        2, out))
        return t->error.code;
    if (can_overwrite(t, x, i))
        overwrite_logits(t, x, dx);
    return 0;
}

/* Marks an op and its results as part of the backward pass. */
static void move_to_backward(ckpt_tape *t, struct op *o)
{
    o->phase = PHASE_BACKWARD;
    for (int k = 0; k < o->n_out; k++) {
        const int32_t s = storage_of(t, op_out(t, o, k));
        if (s >= 0 && t->storages.data[s].kind == STORAGE_ACTIVATION)
            t->storages.data[s].kind = STORAGE_TEMPORARY;
    }
}

static int64_t key_of(const struct loss_move *u, int32_t i)
{
    if (u->to[i] >= 0)
        return tape_key(u->to[i], -1);
    return i < u->last_gradient && is_late(u, i) ? tape_key(u->last_gradient, 1) : tape_key(i, 0);
}

static int reorder(struct loss_move *u)
{
    ckpt_tape *t = u->t;
    int64_t *key = malloc((size_t)t->n_ops * sizeof *key);
    int rc = key ? 0 : tape_fail(t, CKPT_ENOMEM, "no memory to move losses");
    for (int32_t i = 0; i < t->n_ops && !rc; i++) {
        key[i] = key_of(u, i);
        if (key[i] != tape_key(i, 0))
            move_to_backward(t, &t->ops.data[i]);
    }
    for (int32_t i = 0; i < t->n_ops && !rc; i++)
        rc = u->loss[i] >= 0 ? fuse_pair(u, i) : 0;
    if (!rc)
        rc = tape_sort(t, key);
    free(key);
    return rc;
}

int pass_losses(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    struct loss_move u = {.t = t};
    int rc = 0;
    u.loss = malloc(((size_t)t->n_ops + 1) * sizeof *u.loss);
    u.to = malloc(((size_t)t->n_ops + 1) * sizeof *u.to);
    u.late = calloc((size_t)t->n_tensors + 1, sizeof *u.late);
    if (!u.loss || !u.to || !u.late)
        rc = tape_fail(t, CKPT_ENOMEM, "no memory to move losses");
    else if (find_pairs(&u) && mark_late(&u) && late_can_move(&u)) {
        for (int32_t i = 0; i <= u.last_gradient; i++)
            if (u.loss[i] >= 0)
                move_producers(&u, i);
        rc = reorder(&u);
    }
    free(u.loss);
    free(u.to);
    free(u.late);
    return rc;
}
