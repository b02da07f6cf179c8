/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipeline stages: the ops of a model are cut into as many runs as there are ranks, and this rank
 * keeps one.  Every rank records the whole model, so all find the same cuts.
 *
 * - A cut is where few bytes cross: what an op before it computes and one behind it reads.  The
 *   stage before sends these tensors and the next one receives them; what is read further on goes
 *   through each stage between.  So gradients of a tensor are added in the order of one rank.
 * - Each stage computes for itself what depends on no parameter: inputs, tables, masks.
 * - A trained parameter belongs to the first stage that reads it.  Another one that reads it, as a
 *   head that is also the embedding, receives its value like an activation, and sends the gradient.
 * - A program that does not train is cut likewise; all its outputs reach all ranks once it has run
 *   (program_share_outputs).
 * - Where an earlier program has cut the model, or a recording before this one, each parameter
 *   stays in its stage (param_place.stage).
 * - Cuts are balanced by arithmetic and bytes moved, three times those of the forward pass for ops
 *   with gradients, and by how fast the ranks are.  A stage gets no more bytes of parameters than
 *   its limit: exec/pipeline.c lowers that of a stage whose plan does not fit.
 * - What was planned before is known: ops that did not fit a stage do not fit it with more, and
 *   ops that did fit it do so with fewer.  The limits are guesses: a layer with few parameters may
 *   have large activations.  Where they leave no cut, each stage in turn gets as many ops as fit
 *   it, which halving finds.  If a cut fits, this one does.
 */
#include <stdlib.h>
#include <string.h>
#include "collective.h"
#include "ops.h"
#include "passes/passes.h"
#include "recorders.h"

/* The next op from one on that reads a parameter first which has a stage already: its place, the
 * stage from 1 on, and the next one after it with another stage. */
struct fixed {
    int32_t at, stage, until;
};

struct cutting {
    ckpt_tape *t;
    int32_t n_tensors;  /* of the model */
    int32_t n_ops, end; /* ops of the model; the one that makes the loss */
    int stages;
    int32_t *root;         /* per tensor: the one that it is a view of */
    int32_t *param;        /* per tensor: the parameter that it is, or -1 */
    bool *depends;         /* per tensor: on a parameter */
    int32_t *first, *last; /* per tensor that may cross: the op that makes it, or reads it first if
                              it is a parameter; the last one that reads it; -1: none */
    bool *shared;          /* per op: each stage that needs it has it */
    bool *live;            /* per tensor: the loss depends on it */
    double *work;          /* per op: of all before it; one entry more */
    int64_t *bytes;        /* per op: that cross before it; -1: a cut is not possible */
    int64_t *held;         /* per op: bytes of parameters that ops before it read first */
    int32_t *params;       /* per op: trained parameters that ops before it read first; all in a
                              program that does not train */
    struct fixed *fixed;   /* per op; one entry more */
    int32_t *places;       /* where a cut is possible */
    int32_t n_places;
    int32_t *cut; /* per stage: its first op; one entry more */
    bool *keep;   /* per op: this stage has it */
};

/* Costs of a byte in those of a product's operation: a balance between devices of any kind. */
enum { WORK_OF_BYTE = 64 };

static int32_t root_of(const struct cutting *k, int32_t x)
{
    return x > 0 ? k->root[x] : 0;
}

/* Whether one stage has a parameter for all: another program may train it. */
static bool is_trained(const struct cutting *k, int32_t root)
{
    const ckpt_tape *t = k->t;
    return k->param[root] >= 0 && (t->trains ? t->tensors.data[root].needs_grad
                                             : t->env.params->data[k->param[root]].trainable);
}

/* Whether every stage may have an op: it is a view, or computes the same from what all have. */
static bool is_shared(const struct cutting *k, const struct op *o)
{
    const ckpt_tape *t = k->t;
    if (o->feed >= 0 || o->def->flags & CKPT_OP_VIEW || o->def == &op_dequantize ||
        collective_gathers(o->def))
        return true;
    bool depends = o->fetch >= 0 || (o->def->flags & CKPT_OP_INPLACE);
    for (int i = 0; i < o->n_out; i++)
        depends |= op_out(t, o, i) > 0 && k->depends[op_out(t, o, i)];
    return !depends;
}

/* Moving averages are parameters here, and nowhere else. */
static void note_depends(struct cutting *k, const struct op *o)
{
    const ckpt_tape *t = k->t;
    bool depends = false;
    for (int j = 0; j < o->n_in; j++)
        depends |= op_in(t, o, j) > 0 && k->depends[op_in(t, o, j)];
    for (int j = 0; j < o->n_out; j++)
        if (op_out(t, o, j) > 0)
            k->depends[op_out(t, o, j)] |= depends || t->tensors.data[op_out(t, o, j)].learned;
}

/* The tensor of a parameter, or of its moving average: that in a slot, or a view of a bucket that
 * ranks share; or 0. */
static int32_t tensor_of(const ckpt_tape *t, int32_t param)
{
    const int32_t x = t->slots[param][SLOT_VALUE], op = x ? t->tensors.data[x].op : -1;
    if (!x || tape_param_of(t, x) == param)
        return x;
    if (!t->reads_ema || (op >= 0 && t->ops.data[op].def == &op_dequantize))
        return 0;
    return op >= 0 && t->ops.data[op].def == &op_cast ? op_in(t, &t->ops.data[op], 0) : x;
}

static void find_params(struct cutting *k)
{
    const ckpt_tape *t = k->t;
    for (int32_t x = 0; x < t->n_tensors; x++)
        k->param[x] = -1;
    for (int32_t i = 0; i < t->n_params; i++) {
        const int32_t x = tensor_of(t, i);
        if (x) {
            k->param[x] = i;
            k->depends[x] = true;
        }
    }
}

static void find_roots(struct cutting *k)
{
    const ckpt_tape *t = k->t;
    for (int32_t x = 0; x < t->n_tensors; x++)
        k->root[x] = x;
    for (int32_t i = 0; i < k->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        note_depends(k, o);
        k->shared[i] = is_shared(k, o);
        for (int j = 0; j < o->n_out && o->def->flags & CKPT_OP_VIEW; j++)
            if (k->param[op_out(t, o, j)] < 0)
                k->root[op_out(t, o, j)] = root_of(k, op_in(t, o, 0));
    }
}

static void find_live(struct cutting *k, int32_t loss)
{
    const ckpt_tape *t = k->t;
    k->live[loss] = true;
    for (int32_t i = k->n_ops - 1; i >= 0; i--) {
        const struct op *o = &t->ops.data[i];
        bool live = false;
        for (int j = 0; j < o->n_out && o->def->grad; j++)
            live |= op_out(t, o, j) > 0 && k->live[op_out(t, o, j)];
        for (int j = 0; j < o->n_in && live; j++)
            if (op_in(t, o, j) > 0 && t->tensors.data[op_in(t, o, j)].needs_grad)
                k->live[op_in(t, o, j)] = true;
    }
}

/* Parameters of two stages in one op: no stage may have it. */
static void note_fixed(struct fixed *f, int32_t stage)
{
    if (stage)
        f->stage = !f->stage || f->stage == stage ? stage : -1;
}

static void find_fixed(struct cutting *k)
{
    k->fixed[k->n_ops] = (struct fixed){k->n_ops, 0, k->n_ops};
    for (int32_t i = k->n_ops - 1; i >= 0; i--) {
        const struct fixed *next = &k->fixed[i + 1];
        if (!k->fixed[i].stage)
            k->fixed[i] = *next;
        else
            k->fixed[i] = (struct fixed){i, k->fixed[i].stage,
                                         k->fixed[i].stage == next->stage ? next->until : next->at};
    }
}

/* From the op that makes each tensor to the last that reads it, views aside. */
static void find_spans(struct cutting *k)
{
    ckpt_tape *t = k->t;
    for (int32_t x = 1; x < t->n_tensors; x++) {
        const int32_t op = t->tensors.data[x].op;
        k->first[x] = op >= 0 && !k->shared[op] ? op : -1;
        k->last[x] = -1;
    }
    for (int32_t i = 0; i < k->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        for (int j = 0; j < o->n_in && !k->shared[i]; j++) {
            const int32_t x = root_of(k, op_in(t, o, j));
            const int32_t param = x ? k->param[x] : -1;
            if (param >= 0 && t->param_stage[param] < 0) {
                t->param_stage[param] = i; /* an op as yet */
                k->params[i + 1] += is_trained(k, x) || !t->trains;
                k->held[i + 1] += desc_bytes(&t->tensors.data[x].desc);
                note_fixed(&k->fixed[i], t->env.params->data[param].place.stage);
            }
            if (x && is_trained(k, x) && k->first[x] < 0)
                k->first[x] = i;
            if (x && k->first[x] >= 0)
                k->last[x] = i;
        }
    }
}

/* ---- where ----------------------------------------------------------------------------------- */

static double work_of(const struct cutting *k, const struct op *o, struct ckpt_desc *descs)
{
    struct ckpt_call call;
    struct ckpt_cost cost = {0};
    bool live = false;
    tape_call(k->t, o, &call, descs, descs + o->n_in);
    if (k->t->env.sharing.unlike) /* the same numbers on all ranks */
        call.backend = CKPT_ON_CPU;
    if (o->def->cost)
        o->def->cost(&call, &cost);
    for (int i = 0; i < o->n_in + o->n_out && cost.bytes <= 0; i++)
        cost.bytes += descs[i].ndim >= 0 ? (double)desc_bytes(&descs[i]) : 0;
    for (int i = 0; i < o->n_out; i++)
        live |= op_out(k->t, o, i) > 0 && k->live[op_out(k->t, o, i)];
    return (live ? 3 : 1) * (cost.flops + WORK_OF_BYTE * cost.bytes);
}

static int add_work(struct cutting *k)
{
    ckpt_tape *t = k->t;
    for (int32_t i = 0; i < k->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        struct ckpt_desc *descs = calloc((size_t)(o->n_in + o->n_out) + 1, sizeof *descs);
        if (!descs)
            return tape_fail(t, CKPT_ENOMEM, "no memory to cut a model into stages");
        k->work[i + 1] = k->work[i] + (k->shared[i] ? 0 : work_of(k, o, descs));
        free(descs);
    }
    return 0;
}

/* Whether a tensor can be sent as it lies in memory. */
static bool is_plain(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    return desc_is_dense(&v->desc) && !v->desc.offset &&
           desc_bytes(&v->desc) == t->storages.data[v->storage].bytes;
}

/* Whether it is a part of a bucket, which is sent as a copy. */
static bool is_bucket_part(const struct cutting *k, int32_t x)
{
    return k->param[x] >= 0 && tape_is_sharded(k->t, k->param[x]);
}

/* A cut before op i sends what ops before it make and others read. */
static void find_crossing(struct cutting *k)
{
    const ckpt_tape *t = k->t;
    for (int32_t x = 1; x < t->n_tensors; x++) {
        const bool sends = is_plain(t, x) || is_bucket_part(k, x);
        const int64_t bytes = desc_bytes(&t->tensors.data[x].desc);
        for (int32_t i = k->first[x] + 1; k->first[x] >= 0 && i <= k->last[x]; i++)
            k->bytes[i] = sends && k->bytes[i] >= 0 ? k->bytes[i] + bytes : -1;
    }
    for (int32_t i = 0; i < k->n_ops; i++) {
        k->params[i + 1] += k->params[i];
        k->held[i + 1] += k->held[i];
    }
}

/* The places where not much more crosses than where least does, the ends aside. */
static void find_places(struct cutting *k)
{
    const double all = k->work[k->end + 1];
    int64_t least = INT64_MAX;
    for (int32_t i = 1; i <= k->end; i++) {
        const bool inside =
            4 * k->stages * k->work[i] > all && 4 * k->stages * (all - k->work[i]) > all;
        if (inside && k->bytes[i] > 0 && k->bytes[i] < least)
            least = k->bytes[i];
    }
    for (int32_t i = 1; i <= k->end; i++)
        if (!k->shared[i] && k->bytes[i] > 0 && k->bytes[i] / 5 <= least / 4)
            k->places[k->n_places++] = i;
}

static int32_t place(const struct cutting *k, int32_t j)
{
    return j < 0 ? 0 : j < k->n_places ? k->places[j] : k->end + 1;
}

/* The most stages that have a trained parameter each. */
static int most_stages(const struct cutting *k)
{
    int n = 0;
    for (int32_t j = 0, before = 0; j <= k->n_places; j++)
        if (k->params[place(k, j)] > k->params[before]) {
            before = place(k, j);
            n++;
        }
    return n;
}

/* The end of a stage that ends at place j: the last one has the ops behind the loss, too. */
static int32_t end_of(const struct cutting *k, int32_t s, int32_t j)
{
    return s == k->stages - 1 ? k->n_ops : place(k, j);
}

enum known { UNKNOWN, FITS, REFUSED };

/* What earlier plans say of a stage with the ops from place i to place j. */
static enum known known(const struct cutting *k, int32_t s, int32_t i, int32_t j)
{
    const struct sharing *of = &k->t->env.sharing;
    const int32_t from = place(k, i), to = end_of(k, s, j);
    enum known what = UNKNOWN;
    for (int32_t n = 0; n < of->n_tries; n++) {
        const struct stage_try *t = &of->tries[n];
        if (t->stage == s && !t->fits && from <= t->from && to >= t->to)
            return REFUSED;
        if (t->stage == s && t->fits && from >= t->from && to <= t->to)
            what = FITS;
    }
    return what;
}

/* Whether parameters have stages already.  These then decide, as they did when the cut was sought;
 * limits and what was planned are about the ops of another recording. */
static bool is_fixed(const struct cutting *k)
{
    return k->fixed->stage != 0;
}

/* Whether a stage may have the ops from place i to place j: it has trained parameters, none that is
 * in another stage already, no more than its limit, and they may fit. */
static bool may_have(const struct cutting *k, int32_t s, int32_t i, int32_t j)
{
    const int32_t from = place(k, i), to = place(k, j);
    const struct fixed *f = &k->fixed[from];
    if (k->params[to] == k->params[from] || (f->stage == s + 1 ? f->until : f->at) < to)
        return false;
    return is_fixed(k) || (k->held[to] - k->held[from] <= k->t->env.sharing.limits[s].most &&
                           known(k, s, i, j) != REFUSED);
}

/* Of all ways to cut, the one whose slowest stage is fastest.  best[s][j]: of the first s + 1
 * stages if the last of them ends at place j.  Returns false if there is none. */
static bool choose(struct cutting *k, double *best, int32_t *from)
{
    const struct stage_limit *limits = k->t->env.sharing.limits;
    const int32_t n = k->n_places + 1;
    for (int32_t at = 0; at < k->stages * n; at++) {
        const int32_t s = at / n, j = at % n;
        best[at] = -1;
        for (int32_t i = s ? 0 : -1; i < (s ? j : 0); i++) {
            const double before = s ? best[(s - 1) * n + i] : 0;
            const double own = (k->work[place(k, j)] - k->work[place(k, i)]) / limits[s].speed;
            const double slowest = before > own ? before : own;
            if (before < 0 || (best[at] >= 0 && best[at] <= slowest) || !may_have(k, s, i, j))
                continue;
            best[at] = slowest;
            from[at] = i;
        }
    }
    if (best[k->stages * n - 1] < 0)
        return false;
    for (int32_t s = k->stages - 1, j = n - 1; s >= 0; s--) {
        k->cut[s + 1] = end_of(k, s, j);
        j = from[s * n + j];
    }
    return true;
}

/* The last place where a stage may end: those after it have trained parameters, too. */
static int32_t last_end(const struct cutting *k, int32_t stage)
{
    int32_t j = k->n_places;
    for (int32_t s = k->stages - 1; s > stage; s--) {
        const int32_t params = k->params[place(k, j)];
        while (k->params[place(k, j)] == params)
            j--;
    }
    return j;
}

/* Where a stage that begins at place i ends: as far as is known to fit it, or in the middle of what
 * is not known, in which case *exact becomes false.  Returns -1 if nothing fits it. */
static int32_t reach(const struct cutting *k, int32_t s, int32_t i, bool *exact)
{
    const int32_t last = last_end(k, s), first = s == k->stages - 1 ? last : i + 1;
    int32_t smallest = first, fits = -1, open = -1; /* the last place that is not known, or -1 */
    while (k->params[place(k, smallest)] == k->params[place(k, i)])
        smallest++;
    for (int32_t j = smallest; j <= last; j++) {
        const enum known what = known(k, s, i, j);
        if (what == REFUSED)
            break;
        fits = what == FITS ? j : fits;
        open = what == FITS ? -1 : j;
    }
    if (open < 0 && fits < 0 && *exact)
        return -1;
    *exact &= open < 0;
    return open >= 0 ? ((fits < 0 ? smallest : fits + 1) + open) / 2 : fits < 0 ? smallest : fits;
}

/* Each stage in turn gets as many ops as fit it.  Returns false if no cut fits. */
static bool fill_stages(struct cutting *k)
{
    bool exact = true;
    for (int32_t s = 0, i = -1; s < k->stages; s++) {
        i = reach(k, s, i, &exact);
        if (i < 0)
            return false;
        k->cut[s + 1] = end_of(k, s, i);
    }
    return true;
}

static void fail_cut(struct cutting *k)
{
    if (!is_fixed(k))
        tape_fail(k->t, CKPT_EBUDGET, "--stages %d: no cut fits the memory of all ranks",
                  k->stages);
    else
        tape_fail(k->t, CKPT_EINVAL,
                  "--stages %d: no cut leaves each parameter in the stage that a program before "
                  "this one gave it: programs have to read them in the same order",
                  k->stages);
}

static int find_cuts(struct cutting *k)
{
    ckpt_tape *t = k->t;
    if (add_work(k))
        return t->error.code;
    find_crossing(k);
    find_places(k);
    const int most = most_stages(k);
    if (most < k->stages) {
        t->file = NULL;
        return tape_fail(t, CKPT_EINVAL,
                         "--stages %d: the model has places for %d stage%s with %sparameters "
                         "of their own",
                         k->stages, most, most == 1 ? "" : "s", t->trains ? "trained " : "");
    }
    const size_t n = (size_t)k->stages * ((size_t)k->n_places + 1);
    double *best = malloc(n * sizeof *best);
    int32_t *from = malloc(n * sizeof *from);
    if (best && from && !choose(k, best, from) && (is_fixed(k) || !fill_stages(k)))
        fail_cut(k);
    else if (!best || !from)
        tape_fail(t, CKPT_ENOMEM, "no memory to cut a model into stages");
    free(best);
    free(from);
    return t->error.code;
}

/* ---- this stage ------------------------------------------------------------------------------ */

static int stage_of(const struct cutting *k, int32_t op)
{
    int s = 0;
    while (s < k->stages - 1 && op >= k->cut[s + 1])
        s++;
    return s;
}

static bool crosses(const struct cutting *k, int32_t x, int32_t at)
{
    return k->first[x] >= 0 && k->first[x] < at && k->last[x] >= at;
}

/* Whether the stage gets a parameter from the one before. */
static bool comes(const struct cutting *k, int32_t x, int stage)
{
    return k->param[x] >= 0 && stage > 0 && crosses(k, x, k->cut[stage]);
}

/* The ops of the stage, and those that it needs and all may have. */
static void keep_ops(struct cutting *k, int stage)
{
    ckpt_tape *t = k->t;
    k->keep[k->end] = stage == k->stages - 1; /* it may be a view, which no op reads */
    for (int32_t i = k->n_ops - 1; i >= 0; i--) {
        const struct op *o = &t->ops.data[i];
        k->keep[i] |= !k->shared[i] && stage_of(k, i) == stage;
        for (int j = 0; j < o->n_in && k->keep[i]; j++) {
            const int32_t x = op_in(t, o, j), by = x > 0 ? t->tensors.data[x].op : -1;
            if (by >= 0 && k->shared[by] && !comes(k, x, stage))
                k->keep[by] = true;
        }
    }
    for (int32_t i = 0; i < k->n_ops; i++)
        if (!k->keep[i]) {
            tape_remove_op(t, i);
            t->ops.data[i].feed = t->ops.data[i].fetch = -1;
        }
}

/* The same name on both sides, which ranks compare. */
static void label_link(ckpt_tape *t, int before)
{
    t->file = NULL;
    ckpt_label(t, "stages %d and %d", before + 1, before + 2);
}

/* Gives a parameter and its views bytes that are no place of its value. */
static void leave_place(struct cutting *k, int32_t x)
{
    ckpt_tape *t = k->t;
    struct ckpt_desc d = t->tensors.data[x].desc;
    const int64_t offset = d.offset;
    d.offset = 0;
    const ckpt_tensor own = tape_new_tensor(t, &d, STORAGE_ACTIVATION);
    if (!own.id)
        return;
    const int32_t from = t->tensors.data[x].storage, to = t->tensors.data[own.id].storage;
    for (int32_t y = 1; y < k->n_tensors; y++)
        if (k->root[y] == x) {
            uses_move_tensor(&t->uses, y, from, to);
            t->tensors.data[y].storage = to;
            t->tensors.data[y].desc.offset -= offset;
        }
}

/* Has x be what the stage before sent. */
static void receive(struct cutting *k, int32_t x, ckpt_tensor token)
{
    ckpt_tape *t = k->t;
    struct stage_attr *attr = calloc(1, sizeof *attr);
    if (!attr) {
        tape_fail(t, CKPT_ENOMEM, "no memory to cut a model into stages");
        return;
    }
    attr->all.ranks = k->stages;
    attr->graded = k->live[x] && t->tensors.data[x].needs_grad;
    if (k->param[x] >= 0)
        leave_place(k, x);
    attr->desc = t->tensors.data[x].desc;
    const ckpt_tensor out = tape_handle(t, x);
    const int32_t i = tape_append(t, &op_receive, 1, &token, 1, &out);
    if (i < 0) {
        free(attr);
        return;
    }
    t->ops.data[i].attr = attr;
    t->ops.data[i].attr_size = sizeof *attr;
}

static ckpt_tensor sent(const struct cutting *k, int32_t x)
{
    ckpt_tensor from = tape_handle(k->t, x);
    return is_bucket_part(k, x) && k->t->tensors.data[x].op < k->n_ops
               ? ops_record1(k->t, &op_copy, 1, &from, NULL, 0)
               : from;
}

/* What comes is received before all else, what goes is sent after it. */
static void link_stage(struct cutting *k, int stage)
{
    ckpt_tape *t = k->t;
    struct stage_attr attr = {.all.ranks = k->stages};
    ckpt_tensor token = CKPT_NONE;
    t->label = 0;
    if (stage > 0) {
        token = ops_fill(t, 0.f, CKPT_F32, 1, (const int64_t[]){1});
        label_link(t, stage - 1);
    }
    for (int32_t x = 1; x < k->n_tensors && stage > 0; x++)
        if (crosses(k, x, k->cut[stage]))
            receive(k, x, token);
    const int32_t received = t->n_ops;
    if (stage < k->stages - 1)
        label_link(t, stage);
    for (int32_t x = 1; x < k->n_tensors && stage < k->stages - 1; x++)
        if (crosses(k, x, k->cut[stage + 1])) {
            attr.graded = k->live[x] && t->tensors.data[x].needs_grad;
            OPS_RECORD(t, &op_send, &attr, sent(k, x));
        }
    int64_t *key = malloc((size_t)t->n_ops * sizeof *key);
    for (int32_t i = 0; i < t->n_ops && key; i++)
        key[i] = i < k->n_ops || i >= received ? t->n_ops + i : i;
    if (key && !t->error.code)
        tape_sort(t, key);
    else
        tape_fail(t, CKPT_ENOMEM, "no memory to cut a model into stages");
    free(key);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int refuse(ckpt_tape *t, const char *what, const char *name)
{
    t->file = NULL;
    return tape_fail(t, CKPT_EINVAL, "--stages: %s '%.200s', which only one stage would have", what,
                     name);
}

/* What a stage alone would have or do is no part of a step yet. */
static int check(ckpt_tape *t)
{
    const struct param *params = t->env.params->data;
    for (int32_t i = 0; i < t->n_fetches && t->trains && !t->error.code; i++)
        refuse(t, "the step has the output", t->fetches.data[i].name);
    for (int32_t i = 0; i < t->n_params && !t->error.code; i++)
        if (t->param_next[i] || (t->trains && params[i].training.qat.used) ||
            (params[i].cache && t->slots[i][SLOT_VALUE]))
            refuse(t, "the step changes the buffer", params[i].name);
    for (int32_t i = 0; i < t->n_means && !t->error.code; i++)
        refuse(t, "the step changes the buffer", "of a mean");
    return t->error.code;
}

static bool allocate(struct cutting *k)
{
    const size_t n_tensors = (size_t)k->t->n_tensors, n_ops = (size_t)k->n_ops + 2;
    k->root = calloc(n_tensors, sizeof *k->root);
    k->param = calloc(n_tensors, sizeof *k->param);
    k->depends = calloc(n_tensors, sizeof *k->depends);
    k->fixed = calloc(n_ops, sizeof *k->fixed);
    k->first = calloc(n_tensors, sizeof *k->first);
    k->last = calloc(n_tensors, sizeof *k->last);
    k->live = calloc(n_tensors, sizeof *k->live);
    k->shared = calloc(n_ops, sizeof *k->shared);
    k->keep = calloc(n_ops, sizeof *k->keep);
    k->work = calloc(n_ops, sizeof *k->work);
    k->bytes = calloc(n_ops, sizeof *k->bytes);
    k->held = calloc(n_ops, sizeof *k->held);
    k->params = calloc(n_ops, sizeof *k->params);
    k->places = calloc(n_ops, sizeof *k->places);
    k->cut = calloc((size_t)k->stages + 1, sizeof *k->cut);
    return k->root && k->param && k->depends && k->fixed && k->first && k->last && k->live &&
           k->shared && k->keep && k->work && k->bytes && k->held && k->params && k->places &&
           k->cut;
}

static void release(struct cutting *k)
{
    free(k->root);
    free(k->param);
    free(k->depends);
    free(k->fixed);
    free(k->first);
    free(k->last);
    free(k->live);
    free(k->shared);
    free(k->keep);
    free(k->work);
    free(k->bytes);
    free(k->held);
    free(k->params);
    free(k->places);
    free(k->cut);
}

static void cut(struct cutting *k, int32_t loss)
{
    ckpt_tape *t = k->t;
    const int stage = t->env.sharing.stage;
    k->end = t->trains ? t->tensors.data[loss].op : t->n_ops - 1;
    find_params(k);
    find_roots(k);
    if (t->trains)
        find_live(k, loss);
    find_spans(k);
    find_fixed(k);
    if (find_cuts(k))
        return;
    for (int32_t i = 0; i < t->n_params; i++)
        if (t->param_stage[i] >= 0)
            t->param_stage[i] = stage_of(k, t->param_stage[i]);
    for (int s = 0; s <= k->stages; s++)
        t->cuts = hash_mix(t->cuts, k->cut[s]);
    t->cut_from = k->cut[stage];
    t->cut_to = k->cut[stage + 1];
    keep_ops(k, stage);
    link_stage(k, stage);
}

int pass_stages(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    struct cutting k = {
        .t = t, .n_tensors = t->n_tensors, .n_ops = t->n_ops, .stages = t->env.sharing.stages};
    if ((t->trains && passes_check_loss(t, c->loss)) || check(t))
        return t->error.code;
    if (allocate(&k))
        cut(&k, tape_resolve(t, c->loss).id);
    else
        tape_fail(t, CKPT_ENOMEM, "no memory to cut a model into stages");
    release(&k);
    return t->error.code;
}
