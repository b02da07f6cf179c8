/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse mode: appends, to the same tape, the ops that compute the gradient of the loss.
 *
 * A tensor with n uses gets n contributions, in the reverse order of its uses.  A few are added one
 * by one, by the op that makes the contribution if its kernel can; more are summed in place in an
 * fp32 accumulator.  The gradient of a parameter is one fp32 storage into which every contribution
 * of every micro-step is summed, directly by the op that makes it if its kernel can add.  A single
 * contribution may be bf16, if that was requested; it then uses the address range of the value,
 * which the update rounds again from the master, if there is one.
 *
 * Gradients of disjoint slices of one tensor wait until another contribution comes or the tensor's
 * own op is reversed, and are joined to one contribution then: otherwise a loop over the slices of
 * its input would make, and add, a tensor of the whole input in every iteration.
 */
#include <stdlib.h>
#include "collective.h"
#include "ops.h"
#include "passes/passes.h"
#include "recorders.h"
#include "tape/rule.h"

/*
 * Up to this many contributions are added one by one, each with a rounding, as PyTorch adds them:
 * queries, keys and values of one x, an adapter beside each, and a residual.  Products that add
 * make no extra pass over x; an accumulator in fp32 makes one per contribution, of ten bytes per
 * element.
 */
enum { ONE_BY_ONE = 7 };

/* The gradient of a slice, which waits for those of other slices. */
struct waiting {
    struct ops_part part;
    int32_t op;   /* the slice op, for the caller's line */
    int32_t next; /* the next one of the same tensor, or 0 */
};

struct reverse {
    ckpt_tape *t;
    struct {
        struct waiting *data;
        int64_t capacity;
    } waiting;
    int32_t n_waiting; /* index 0 is not used */
    int32_t *slices;   /* per tensor: the last added waiting slice, or 0 */
    int32_t *gradient; /* per tensor: the sum so far, or 0 */
    int32_t *uses;     /* per tensor: upper bound of its contributions */
    int32_t *done;     /* per tensor: contributions so far */
    bool *live;        /* per tensor: the loss depends on it */
    int32_t n;         /* tensors of the forward pass */
    int32_t n_ops;     /* ops of the forward pass */
};

/* Whether op i sends what a gradient comes back for; its token stands for that of the loss. */
static bool is_graded_send(const struct op *o)
{
    return o->def == &op_send && ((const struct stage_attr *)o->attr)->graded;
}

/* Whether the loss is on this tape: of several stages the last one has it. */
static bool has_loss(const ckpt_tape *t)
{
    return t->env.sharing.stage >= t->env.sharing.stages - 1;
}

static void mark_ends(struct reverse *r, ckpt_tensor loss)
{
    const ckpt_tape *t = r->t;
    r->live[loss.id] = has_loss(t);
    for (int32_t i = 0; i < r->n_ops; i++)
        if (is_graded_send(&t->ops.data[i]))
            r->live[op_out(t, &t->ops.data[i], 0)] = true;
}

static void mark_live(struct reverse *r, ckpt_tensor loss)
{
    const ckpt_tape *t = r->t;
    mark_ends(r, loss);
    for (int32_t i = r->n_ops - 1; i >= 0; i--) {
        const struct op *o = &t->ops.data[i];
        bool live = false;
        for (int k = 0; k < o->n_out && o->def->grad; k++)
            live |= op_out(t, o, k) > 0 && r->live[op_out(t, o, k)];
        for (int k = 0; k < o->n_in && live; k++) {
            int32_t x = op_in(t, o, k);
            if (x > 0 && t->tensors.data[x].needs_grad) {
                r->live[x] = true;
                r->uses[x]++;
            }
        }
    }
}

/*
 * Has the op that makes g add the earlier sum: this saves a pass and a rounding over a separate op.
 * Returns false if its kernel cannot.
 */
static bool add_in_kernel(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor g)
{
    const struct tensor *v = &t->tensors.data[g.id], *before = &t->tensors.data[sum.id];
    const struct op *o = &t->ops.data[v->op];
    if (!tape_rewrites(t, REWRITE_ADDENDS) || v->index || !(o->def->flags & CKPT_OP_ADDEND) ||
        op_in(t, o, o->n_in - 1) > 0 || before->op >= v->op ||
        before->desc.dtype != v->desc.dtype || !desc_is_dense(&before->desc) ||
        !tape_is_fresh(t, g))
        return false;
    tape_set_input(t, v->op, o->n_in - 1, sum.id);
    return true;
}

static void contribute_activation(struct reverse *r, int32_t x, ckpt_tensor g, bool own)
{
    ckpt_tape *t = r->t;
    ckpt_tensor sum = tape_handle(r->t, r->gradient[x]);
    if (!sum.id) {
        sum = g;
    } else if (r->uses[x] <= ONE_BY_ONE) {
        sum = own && add_in_kernel(t, sum, g) ? g : ckpt_add(t, sum, g);
    } else if (r->done[x] == 1) {
        bool wide = t->tensors.data[sum.id].desc.dtype == CKPT_F32;
        sum = wide ? ckpt_add(t, sum, g)
                   : tape_accumulate(t, ckpt_cast(t, sum, CKPT_F32), g, ACCUMULATE_ALWAYS);
    } else {
        sum = tape_accumulate(t, sum, g, ACCUMULATE_ALWAYS);
    }
    r->gradient[x] = sum.id;
    r->done[x]++;
}

/* Whether g, of the backward pass, has a reader or is the gradient of a tensor. */
static bool is_used(const struct reverse *r, ckpt_tensor g)
{
    const ckpt_tape *t = r->t;
    for (int32_t i = 0; i < r->n; i++)
        if (r->gradient[i] == g.id)
            return true;
    return uses_count(t, g.id) > 0;
}

/*
 * Whether g can become the parameter's gradient storage as it is: made by the current gradient
 * rule, or made by an earlier one and not used since, and alone on its storage.
 */
static bool is_own(const struct reverse *r, ckpt_tensor g, int32_t first_op)
{
    const ckpt_tape *t = r->t;
    const struct tensor *v = &t->tensors.data[g.id];
    if (v->op < r->n_ops || v->desc.offset || !desc_is_dense(&v->desc))
        return false;
    if (v->op < first_op && is_used(r, g))
        return false;
    const struct op *o = &t->ops.data[v->op];
    if (o->def->flags & (CKPT_OP_VIEW | CKPT_OP_INPLACE) || o->accumulate != ACCUMULATE_NEVER)
        return false;
    return uses_on(t, v->storage) == g.id;
}

static bool can_add(const ckpt_tape *t, ckpt_tensor g)
{
    const struct tensor *v = &t->tensors.data[g.id];
    return tape_rewrites(t, REWRITE_IN_PLACE) && v->index == 0 &&
           (t->ops.data[v->op].def->flags & CKPT_OP_ACCUMULATE);
}

/* Whether the gradient of parameter x is summed over micro-steps in bf16. */
static bool sums_are_bf16(const ckpt_tape *t, int32_t x)
{
    return t->grad_dtype == CKPT_BF16 && t->n_micro > 1 && tape_param_of(t, x) >= 0 &&
           t->env.params->data[tape_param_of(t, x)].training.half_state;
}

static ckpt_tensor new_gradient(ckpt_tape *t, int32_t x)
{
    struct ckpt_desc d = t->tensors.data[x].desc;
    d.dtype = sums_are_bf16(t, x) ? CKPT_BF16 : CKPT_F32;
    desc_dense(&d);
    return tape_new_tensor(t, &d, STORAGE_TEMPORARY);
}

/* Adds g to the sum of a parameter.  How a sum in bf16 is rounded follows from the parameter's name
 * and the number of its earlier contributions, not from the ops of other parameters. */
static ckpt_tensor add_to_sum(struct reverse *r, int32_t x, ckpt_tensor sum, ckpt_tensor g,
                              enum accumulate mode)
{
    ckpt_tape *t = r->t;
    ckpt_tensor out = tape_accumulate(t, sum, g, mode);
    const char *name = t->env.params->data[tape_param_of(t, x)].name;
    if (out.id)
        t->ops.data[t->tensors.data[out.id].op].number =
            (int32_t)(hash_mix(hash_text(name), r->done[x]++) >> 33);
    return out;
}

static ckpt_tensor first_contribution(struct reverse *r, int32_t x, ckpt_tensor g, bool own)
{
    ckpt_tape *t = r->t;
    enum accumulate mode = t->n_micro > 1 ? ACCUMULATE_LATER_MICRO : ACCUMULATE_NEVER;
    own = own && !sums_are_bf16(t, x);
    if (own && (mode == ACCUMULATE_NEVER || can_add(t, g))) {
        t->ops.data[t->tensors.data[g.id].op].accumulate = mode;
    } else {
        g = add_to_sum(r, x, new_gradient(t, x), g, mode);
    }
    if (t->error.code)
        return CKPT_NONE;
    struct storage *s = &t->storages.data[t->tensors.data[g.id].storage];
    s->kind = STORAGE_GRADIENT;
    s->param = tape_param_of(t, x);
    s->carried = t->n_micro > 1;
    return g;
}

/* Whether the gradient of x may be bf16, and this was requested: nothing is added to it, or only to
 * a sum in bf16. */
static bool is_bf16_gradient(const struct reverse *r, int32_t x)
{
    const ckpt_tape *t = r->t;
    return t->grad_dtype == CKPT_BF16 && (t->n_micro == 1 || sums_are_bf16(t, x)) &&
           r->uses[x] == 1 && tape_param_of(t, x) >= 0 &&
           t->tensors.data[x].desc.dtype == CKPT_BF16;
}

/* Whether the op that makes g, or a later one, has a tensor on the storage of x as an operand. */
static bool is_read_behind(const ckpt_tape *t, ckpt_tensor g, int32_t x)
{
    const int32_t from = t->tensors.data[g.id].op, storage = t->tensors.data[x].storage;
    for (int32_t y = uses_on(t, storage); y; y = uses_older(t, y))
        if (t->tensors.data[y].op >= from)
            return true;
    return uses_last_reader(t, storage) >= from;
}

static bool has_master(const ckpt_tape *t, int32_t x)
{
    return param_has_master(&t->env.params->data[tape_param_of(t, x)]);
}

/*
 * Whether the bf16 gradient g can use the address range of parameter x itself.  The rule of x's
 * only use has been called, so nothing reads the value any more, and the update rounds the next
 * value from the master, also in a step that is not finite, where the master does not change.
 */
static bool takes_value(const struct reverse *r, int32_t x, ckpt_tensor g, bool own)
{
    const ckpt_tape *t = r->t;
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return tape_rewrites(t, REWRITE_VALUES) && own && is_bf16_gradient(r, x) && has_master(t, x) &&
           !t->env.sharing.layout && desc_is_dense(d) && !d->offset &&
           t->tensors.data[g.id].desc.dtype == d->dtype && !is_read_behind(t, g, x) &&
           tape_can_rehome(t, g, d);
}

/* Whether the op of g can add to `sum` in place: it comes after the op that makes the sum.  The
 * rule of an op with one operand twice may have recorded them in the other order. */
static bool can_add_to(const ckpt_tape *t, ckpt_tensor sum, ckpt_tensor g)
{
    const struct tensor *before = &t->tensors.data[sum.id], *v = &t->tensors.data[g.id];
    return can_add(t, g) && before->op < v->op && tape_can_rehome(t, g, &before->desc);
}

static void contribute_parameter(struct reverse *r, int32_t x, ckpt_tensor g, bool own)
{
    ckpt_tape *t = r->t;
    int32_t param = tape_param_of(t, x);
    ckpt_tensor sum = tape_handle(t, t->param_gradient[param]);
    own = own && (t->tensors.data[g.id].desc.dtype == CKPT_F32 || is_bf16_gradient(r, x));
    if (!sum.id && takes_value(r, x, g, own)) {
        tape_rehome(t, g, (ckpt_tensor){.id = x}, &t->tensors.data[x].desc);
        sum = g;
    } else if (!sum.id) {
        sum = first_contribution(r, x, g, own);
    } else if (own && !sums_are_bf16(t, x) && can_add_to(t, sum, g)) {
        tape_rehome(t, g, sum, &t->tensors.data[sum.id].desc);
        t->ops.data[t->tensors.data[g.id].op].accumulate = ACCUMULATE_ALWAYS;
        sum = g;
    } else {
        sum = add_to_sum(r, x, sum, g, ACCUMULATE_ALWAYS);
    }
    t->param_gradient[param] = sum.id;
}

static bool is_repeated(const ckpt_tensor *din, int n, int i)
{
    for (int k = 0; k < n; k++)
        if (k != i && din[k].id == din[i].id)
            return true;
    return false;
}

static void contribute_slices(struct reverse *r, int32_t x);

static int contribute(struct reverse *r, int32_t x, ckpt_tensor g, bool own)
{
    contribute_slices(r, x);
    ckpt_tape *t = r->t;
    if (tape_check_gradient(t, x, g))
        return t->error.code;
    if (tape_param_of(t, x) >= 0)
        contribute_parameter(r, x, g, own);
    else
        contribute_activation(r, x, g, own);
    return t->error.code;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static void set_place(ckpt_tape *t, const struct op *o)
{
    t->file = o->file;
    t->line = o->line;
    t->label = o->label;
}

static int by_place(const void *a, const void *b)
{
    int64_t x = ((const struct ops_part *)a)->of.begin, y = ((const struct ops_part *)b)->of.begin;
    return x < y ? -1 : x > y;
}

/* Joins the gradients that wait for x to one contribution. */
static void contribute_slices(struct reverse *r, int32_t x)
{
    ckpt_tape *t = r->t;
    const int32_t first = r->slices[x];
    int64_t n = 0;
    if (!first || t->error.code)
        return;
    for (int32_t i = first; i; i = r->waiting.data[i].next)
        n++;
    struct ops_part *parts = calloc((size_t)n, sizeof *parts);
    if (!parts) {
        tape_fail(t, CKPT_ENOMEM, "no memory for %lld slices", (long long)n);
        return;
    }
    n = 0;
    for (int32_t i = first; i; i = r->waiting.data[i].next)
        parts[n++] = r->waiting.data[i].part;
    qsort(parts, (size_t)n, sizeof *parts, by_place);
    r->slices[x] = 0;
    set_place(t, &t->ops.data[r->waiting.data[first].op]);
    const struct ckpt_desc d = t->tensors.data[x].desc;
    ckpt_tensor g = ops_unslice(t, &d, n, parts);
    free(parts);
    if (!t->error.code)
        contribute(r, x, g, false);
}

/* Whether a slice is disjoint from those that wait for x, along the same axis. */
static bool is_apart(const struct reverse *r, int32_t x, const struct slice_attr *a)
{
    for (int32_t i = r->slices[x]; i; i = r->waiting.data[i].next) {
        const struct slice_attr *b = &r->waiting.data[i].part.of;
        if (a->axis != b->axis || (a->begin < b->end && b->begin < a->end))
            return false;
    }
    return true;
}

/* Whether the gradient of an op may wait: it is a slice of an activation. */
static bool may_wait(const struct reverse *r, const struct op *o)
{
    const ckpt_tape *t = r->t;
    if (o->def != &op_slice || !tape_rewrites(t, REWRITE_SLICES))
        return false;
    const struct tensor *x = &t->tensors.data[op_in(t, o, 0)];
    return x->needs_grad && x->op >= 0 && tape_param_of(t, op_in(t, o, 0)) < 0;
}

static int wait_for_others(struct reverse *r, int32_t op, ckpt_tensor g)
{
    ckpt_tape *t = r->t;
    const struct op *o = &t->ops.data[op];
    const int32_t x = op_in(t, o, 0);
    const struct slice_attr *a = o->attr;
    if (!is_apart(r, x, a))
        contribute_slices(r, x);
    if (!t->error.code && ARRAY_RESERVE(&r->waiting, r->n_waiting))
        tape_fail(t, CKPT_ENOMEM, "no memory to differentiate");
    if (t->error.code)
        return t->error.code;
    r->waiting.data[r->n_waiting] = (struct waiting){{*a, g}, op, r->slices[x]};
    r->slices[x] = r->n_waiting++;
    return 0;
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* The complete gradient of an output, in its dtype. */
static ckpt_tensor finish(struct reverse *r, int32_t x)
{
    if (x <= 0 || !r->gradient[x])
        return CKPT_NONE;
    return ckpt_cast(r->t, tape_handle(r->t, r->gradient[x]), r->t->tensors.data[x].desc.dtype);
}

/* Whether the gradient of a concat of parameters is fp32: each takes its part of it unrounded. */
static bool whole_is_wide(const struct reverse *r, const struct op *o)
{
    const ckpt_tape *t = r->t;
    const int32_t g = o->def == &op_concat ? r->gradient[op_out(t, o, 0)] : 0;
    bool wide = g && t->tensors.data[g].desc.dtype == CKPT_F32 && tape_rewrites(t, REWRITE_WIDE);
    for (int k = 0; k < o->n_in && wide; k++)
        wide = !t->tensors.data[op_in(t, o, k)].needs_grad || tape_param_of(t, op_in(t, o, k)) >= 0;
    return wide;
}

/* Whether the gradients of all parts of a split are fp32 with a single contribution: they are then
 * joined in fp32, in place if their kernels can write there, and rounded together. */
static bool parts_are_wide(const struct reverse *r, const struct op *o)
{
    const ckpt_tape *t = r->t;
    bool wide = o->def == &op_split && tape_rewrites(t, REWRITE_WIDE);
    for (int k = 0; k < o->n_out && wide; k++) {
        int32_t x = op_out(t, o, k), g = x > 0 ? r->gradient[x] : 0;
        wide = g && t->tensors.data[g].desc.dtype == CKPT_F32 && r->done[x] == 1;
    }
    return wide;
}

static int call_rule(struct reverse *r, struct rule *u)
{
    ckpt_tape *t = r->t;
    const struct op *o = u->op;
    const bool wide = parts_are_wide(r, o) || whole_is_wide(r, o);
    for (int k = 0; k < o->n_in; k++) {
        u->need[k] = t->tensors.data[u->in[k].id].needs_grad;
        u->want_bf16[k] = u->need[k] && is_bf16_gradient(r, u->in[k].id);
    }
    for (int k = 0; k < o->n_out; k++)
        u->dout[k] = wide ? tape_handle(t, r->gradient[u->out[k].id]) : finish(r, u->out[k].id);
    const int32_t first_op = t->n_ops;
    if (rule_call(u, t))
        return t->error.code;
    for (int k = 0; k < o->n_in; k++)
        if (u->need[k] && u->din[k].id)
            passes_request_sums(t, u->in[k], u->din[k], first_op);
    for (int k = 0; k < o->n_in && !t->error.code; k++)
        if (u->need[k] && u->din[k].id)
            contribute(r, u->in[k].id, u->din[k],
                       is_own(r, u->din[k], first_op) && !is_repeated(u->din, o->n_in, k));
    return t->error.code;
}

static int reverse_op(struct reverse *r, int32_t i)
{
    ckpt_tape *t = r->t;
    const struct op o = t->ops.data[i];
    bool live = false;
    for (int k = 0; k < o.n_out; k++)
        if (op_out(t, &o, k) > 0 && op_out(t, &o, k) < r->n)
            contribute_slices(r, op_out(t, &o, k));
    for (int k = 0; k < o.n_out; k++)
        live |= op_out(t, &o, k) > 0 && r->gradient[op_out(t, &o, k)] != 0;
    if (!live)
        return 0;
    set_place(t, &o);
    if (!o.def->grad)
        return !o.of_gradients ? 0
                               : tape_fail(t, CKPT_EINVAL,
                                           "the loss depends on a gradient (ckpt_gradients) that "
                                           "is made by %s, which has no gradient rule",
                                           ops_name(o.def, o.attr));
    if (may_wait(r, &o))
        return wait_for_others(r, i, finish(r, op_out(t, &o, 0)));
    struct rule rule;
    int rc = rule_open(&rule, t, &o, "to differentiate");
    if (!rc)
        rc = call_rule(r, &rule);
    rule_close(&rule);
    return rc;
}

int passes_check_loss(ckpt_tape *t, ckpt_tensor loss)
{
    const struct tensor *v = tape_tensor(t, loss);
    if (t->error.code)
        return t->error.code;
    if (!v)
        return tape_fail(t, CKPT_EINVAL, "the recorder returned no loss");
    if (v->desc.dtype != CKPT_F32 || desc_numel(&v->desc) != 1) {
        char got[128];
        desc_format(got, sizeof got, &v->desc);
        return tape_fail(t, CKPT_ESHAPE, "the loss must be one fp32 value; got %s", got);
    }
    if (passes_check_rules(t, tape_resolve(t, loss)))
        return t->error.code;
    if (!v->needs_grad)
        return tape_fail(t, CKPT_EINVAL, "no trainable parameter takes part in the loss");
    return 0;
}

/* Keeps the loss until the update, which must not run if it is not finite in any micro-step. */
static void keep_loss(ckpt_tape *t, ckpt_tensor loss)
{
    t->loss = loss.id;
    if (t->n_micro == 1)
        return;
    ckpt_tensor sum = tape_new_tensor(t, &t->tensors.data[loss.id].desc, STORAGE_TEMPORARY);
    if (!sum.id)
        return;
    t->storages.data[t->tensors.data[sum.id].storage].carried = true;
    t->loss = tape_accumulate(t, sum, loss, ACCUMULATE_LATER_MICRO).id;
}

/* The gradients that the reverse pass begins with: of the loss, or of what a stage sends. */
static void begin(struct reverse *r, ckpt_tensor loss)
{
    ckpt_tape *t = r->t;
    const struct ckpt_desc d = t->tensors.data[loss.id].desc;
    for (int32_t i = 0; i < r->n_ops; i++)
        if (is_graded_send(&t->ops.data[i])) {
            const int32_t token = op_out(t, &t->ops.data[i], 0);
            r->gradient[token] = token;
            r->done[token] = 1;
        }
    if (!has_loss(t))
        return;
    keep_loss(t, loss);
    /* The loss of a step is the mean over its micro-steps and the ranks. */
    float share = 1.f / (float)(t->n_micro * sharing_losses(&t->env.sharing));
    r->gradient[loss.id] = ops_fill(t, share, CKPT_F32, d.ndim, d.shape).id;
    r->done[loss.id] = 1;
}

/* The stage before waits for the gradient of what it sent. */
static void check_received(const struct reverse *r)
{
    ckpt_tape *t = r->t;
    for (int32_t i = 0; i < r->n_ops && !t->error.code; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->def == &op_receive && ((const struct stage_attr *)o->attr)->graded &&
            !r->gradient[op_out(t, o, 0)])
            tape_fail(t, CKPT_EINVAL,
                      "--stages: a tensor that comes from the stage before gets no gradient here");
    }
}

static int reverse_all(struct reverse *r, ckpt_tensor loss)
{
    ckpt_tape *t = r->t;
    mark_live(r, loss);
    begin(r, loss);
    shard_watch(t);
    for (int32_t i = r->n_ops - 1; i >= 0 && !t->error.code; i--) {
        reverse_op(r, i);
        shard_reversed(t, i);
    }
    check_received(r);
    return t->error.code;
}

int pass_differentiate(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    if (t->env.sharing.stages < 2 && passes_check_loss(t, c->loss)) /* stages have checked it */
        return t->error.code;
    const ckpt_tensor loss = tape_resolve(t, c->loss);
    struct reverse r = {.t = t, .n_waiting = 1, .n = t->n_tensors, .n_ops = t->n_ops};
    size_t n = (size_t)r.n;
    r.gradient = calloc(n, sizeof *r.gradient);
    r.uses = calloc(n, sizeof *r.uses);
    r.done = calloc(n, sizeof *r.done);
    r.live = calloc(n, sizeof *r.live);
    r.slices = calloc(n, sizeof *r.slices);
    t->phase = PHASE_BACKWARD;
    if (!r.gradient || !r.uses || !r.done || !r.live || !r.slices)
        tape_fail(t, CKPT_ENOMEM, "no memory to differentiate %d ops", r.n_ops);
    else
        reverse_all(&r, loss);
    t->phase = PHASE_UPDATE;
    free(r.gradient);
    free(r.uses);
    free(r.done);
    free(r.live);
    free(r.slices);
    free(r.waiting.data);
    return t->error.code;
}
