/* SPDX-License-Identifier: Apache-2.0 */
/* Updates as ops that change parameters and their state in place, and the recording of these
 * ops. */
#include <stdlib.h>
#include "attr.h"
#include "collective.h"
#include "core/mean8.h"
#include "ops.h"
#include "optim/optim.h"
#include "optim/update_math.h"
#include "recorders.h"

/* The dtype of state i of a parameter; means are bf16 or 8-bit where the attribute says so. */
static enum ckpt_dtype dtype_of(const struct update_attr *attr, int i)
{
    bool mean = i == UPDATE_EXP_AVG || i == UPDATE_EXP_AVG_SQ;
    return !mean || !attr->narrow ? CKPT_F32 : attr->narrow == NARROW_8BIT ? CKPT_I32 : CKPT_BF16;
}

/* Checks that a state the kind does not keep is absent, and that a kept state has the right dtype
 * and size. */
static int check_state(struct ckpt_call *call, const struct ckpt_desc *in, int i, bool kept)
{
    const enum ckpt_dtype dtype = dtype_of(call->attr, i);
    if (!kept && in[i].ndim < 0)
        return CKPT_OK;
    if (!kept)
        return ckpt_call_fail(call, "state %d must be absent: this kind does not keep it", i);
    const int64_t n = desc_numel(&in[UPDATE_VALUE]);
    if (in[i].dtype != dtype || desc_numel(&in[i]) != (dtype == CKPT_I32 ? mean8_words(n) : n))
        return ckpt_call_fail(call, "state %d must be %s of the parameter's size", i,
                              dtype == CKPT_F32   ? "fp32"
                              : dtype == CKPT_I32 ? "words of 8-bit codes"
                                                  : "bf16");
    return CKPT_OK;
}

/* in: the states of one parameter. */
static int check_states(struct ckpt_call *call, const struct ckpt_desc *in)
{
    const struct update_attr *attr = call->attr;
    const struct ckpt_desc *value = &in[UPDATE_VALUE];
    if (value->dtype != CKPT_F32 && value->dtype != CKPT_BF16)
        return ckpt_call_fail(call, "a parameter must be fp32 or bf16");
    if (attr->narrow && (value->dtype != CKPT_BF16 || in[UPDATE_MASTER].ndim >= 0))
        return ckpt_call_fail(call, "small state is of a bf16 parameter without a master");
    if (!attr->narrow && (in[UPDATE_MASTER].ndim < 0) != (value->dtype == CKPT_F32))
        return ckpt_call_fail(call, "a bf16 parameter needs a master, an fp32 one has none");
    const bool kept[UPDATE_STATES] = {[UPDATE_MASTER] = in[UPDATE_MASTER].ndim >= 0,
                                      [UPDATE_EXP_AVG] = update_has_mean(attr),
                                      [UPDATE_EXP_AVG_SQ] = update_has_square(attr),
                                      [UPDATE_EMA] = in[UPDATE_EMA].ndim >= 0};
    for (int i = UPDATE_MASTER; i < UPDATE_STATES; i++)
        if (check_state(call, in, i, kept[i]))
            return CKPT_ESHAPE;
    return CKPT_OK;
}

static int update_shape(struct ckpt_call *call)
{
    const int n = update_params(call->n_in);
    const struct update_attr *attr = call->attr;
    const struct ckpt_desc *gradient = call->in + n * UPDATE_STATES, *clip = gradient + n;
    for (int k = 0; k < n; k++) {
        const struct ckpt_desc *states = call->in + k * UPDATE_STATES;
        if (check_states(call, states))
            return CKPT_ESHAPE;
        if ((states[UPDATE_EMA].ndim < 0) != (call->in[UPDATE_EMA].ndim < 0))
            return ckpt_call_fail(call, "either all parameters have an EMA or none");
        if (desc_numel(&gradient[k]) != desc_numel(&states[UPDATE_VALUE]) ||
            (gradient[k].dtype != CKPT_F32 && gradient[k].dtype != CKPT_BF16))
            return ckpt_call_fail(call, "a gradient must be fp32 or bf16 of the parameter's size");
    }
    if (clip->dtype != CKPT_F32 || desc_numel(clip) < CLIP_VALUES ||
        (attr->kind == UPDATE_ADAMW && desc_numel(clip) < attr->unbias + 2))
        return ckpt_call_fail(call, "the last operand must be the clip values, fp32");
    for (int i = 0; i < n * UPDATE_STATES; i++)
        call->out[i] = call->in[i];
    return CKPT_OK;
}

/* Per element: a quarter of ten rounds of Philox, and up to three sums.  With 8 bits also the
 * maximum of a block, and decoding and encoding. */
static const double rounding_flops[] = {[NARROW_NOT] = 0, [NARROW_BF16] = 24, [NARROW_8BIT] = 60};

static void update_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    static const double flops[UPDATE_KINDS] = {
        [UPDATE_ADAMW] = 18, [UPDATE_SGD] = 9, [UPDATE_LION] = 11, [UPDATE_STEP] = 5};
    const struct update_attr *attr = call->attr;
    *cost = (struct ckpt_cost){0};
    for (int i = 0; i < call->n_out; i += UPDATE_STATES)
        cost->flops +=
            (flops[attr->kind] + rounding_flops[attr->narrow]) * (double)desc_numel(&call->in[i]);
}

/* One op per kind, so that machine files time each separately. */
#define UPDATE_OP(kind)                                                                            \
    const struct ckpt_op_def op_##kind = {                                                         \
        .size = sizeof(struct ckpt_op_def),                                                        \
        .name = #kind,                                                                             \
        .flags = CKPT_OP_INPLACE,                                                                  \
        .shape = update_shape,                                                                     \
        .cost = update_cost,                                                                       \
    }

UPDATE_OP(adamw);
UPDATE_OP(sgd);
UPDATE_OP(lion);
UPDATE_OP(step);

static const struct ckpt_op_def *const defs[UPDATE_KINDS] = {[UPDATE_ADAMW] = &op_adamw,
                                                             [UPDATE_SGD] = &op_sgd,
                                                             [UPDATE_LION] = &op_lion,
                                                             [UPDATE_STEP] = &op_step};

/* Operands: n states, their new values, the clip values.  With an attribute the states are bf16. */
static int assign_shape(struct ckpt_call *call)
{
    const int n = call->n_out;
    const enum ckpt_dtype dtype = call->attr ? CKPT_BF16 : CKPT_F32;
    const struct ckpt_desc *state = call->in, *x = call->in + n, *clip = call->in + 2 * n;
    for (int k = 0; k < n; k++) {
        if (state[k].dtype != dtype || x[k].dtype != CKPT_F32 ||
            desc_numel(&x[k]) != desc_numel(&state[k]))
            return ckpt_call_fail(call, "state and value must be %s and fp32 of one size",
                                  dtype == CKPT_F32 ? "fp32" : "bf16");
        call->out[k] = state[k];
    }
    if (clip->dtype != CKPT_F32 || desc_numel(clip) < CLIP_VALUES)
        return ckpt_call_fail(call, "the last operand must be the clip values, fp32");
    return CKPT_OK;
}

OPS_DEF(assign, .flags = CKPT_OP_INPLACE, .shape = assign_shape);

/*
 * Limits of one update op.  Most parameters of a model are small, and one launch each would cost
 * more than their bytes.  A large parameter has its own op, so that its state can be offloaded
 * separately.
 */
#define GROUP_NUMEL ((int64_t)1 << 22)
#define GROUP_LARGE (GROUP_NUMEL / 2) /* a parameter of this size or larger has its own op */

/* Parameters of one rule that will share an update op: either all have bf16 or 8-bit state, or
 * none. */
struct batch {
    int n, parts; /* see struct rounding */
    int64_t numel;
    int32_t param[UPDATE_PARAMS];
};

/* The recorder.  Rule 0 is the optimizer's own, rule 1 + g belongs to group g. */
struct appender {
    ckpt_tape *t;
    const struct ckpt_optimizer *o;
    struct clip_attr clip_attr;
    ckpt_tensor clip;
    int32_t *rule;       /* per parameter, buckets included */
    int32_t *unbias;     /* per rule: see update_attr */
    struct batch *batch; /* two per rule: with fp32 state, and with bf16 or 8-bit state */
};

static const struct optim_rule *rule_of(const struct appender *a, int32_t rule)
{
    return optim_rule_at(a->o, rule - 1);
}

static void states_of(const struct appender *a, int32_t param, const struct update_attr *attr,
                      ckpt_tensor *in)
{
    ckpt_tape *t = a->t;
    in[UPDATE_VALUE] = optim_updated_value(t, param);
    if (param_has_master(&t->env.params->data[param]))
        in[UPDATE_MASTER] = tape_slot(t, param, STORAGE_MASTER);
    if (update_has_mean(attr))
        in[UPDATE_EXP_AVG] = tape_slot(t, param, STORAGE_EXP_AVG);
    if (update_has_square(attr))
        in[UPDATE_EXP_AVG_SQ] = tape_slot(t, param, STORAGE_EXP_AVG_SQ);
    if (attr->ema_decay > 0.f)
        in[UPDATE_EMA] = tape_slot(t, param, STORAGE_EMA);
}

static enum narrow_state narrow_state_of(const struct appender *a, int32_t param)
{
    const struct param *p = &a->t->env.params->data[param];
    return p->training.byte_state ? NARROW_8BIT : p->training.half_state ? NARROW_BF16 : NARROW_NOT;
}

/* The attribute without rounding parts. param: any of the op's parameters, which have state of one
 * dtype. */
static struct narrow_update_attr attr_of(const struct appender *a, int32_t rule, int32_t param)
{
    struct narrow_update_attr attr = {.update = rule_of(a, rule)->update};
    attr.update.unbias = a->unbias[rule];
    attr.update.narrow = narrow_state_of(a, param);
    return attr;
}

static size_t size_of(const struct narrow_update_attr *attr)
{
    return attr->update.narrow ? sizeof *attr : sizeof attr->update;
}

static void label_batch(const struct appender *a, const struct batch *b)
{
    const char *first = a->t->env.params->data[b->param[0]].name;
    if (b->n > 1)
        ckpt_label(a->t, "%s and %d more", first, b->n - 1);
    else
        ckpt_label(a->t, "%s", first);
}

/* Records the update of a batch and empties it. */
static void close_batch(const struct appender *a, struct batch *b, int32_t rule)
{
    ckpt_tape *t = a->t;
    ckpt_tensor in[UPDATE_PARAMS * (UPDATE_STATES + 1) + 1] = {CKPT_NONE};
    ckpt_tensor out[UPDATE_PARAMS * UPDATE_STATES];
    const int n = b->n, n_out = n * UPDATE_STATES;
    if (!n)
        return;
    struct narrow_update_attr attr = attr_of(a, rule, b->param[0]);
    for (int k = 0; k < n; k++) {
        states_of(a, b->param[k], &attr.update, in + k * UPDATE_STATES);
        if (attr.update.narrow)
            optim_round(t, b->param[k], k, &attr.rounding);
        in[n_out + k] = tape_handle(t, t->param_gradient[b->param[k]]);
    }
    in[n_out + n] = a->clip;
    label_batch(a, b);
    ckpt_record(t, defs[attr.update.kind], n_out + n + 1, in, n_out, out, &attr, size_of(&attr));
    for (int k = 0; k < n; k++)
        optim_gather_updated(t, b->param[k]);
    *b = (struct batch){0};
}

/* ---- matrices -------------------------------------------------------------------------------- */

ckpt_tensor optim_scalar(ckpt_tape *t, const struct optim_param *p, int i)
{
    return ckpt_slice(t, p->clip, 0, i, i + 1);
}

/* x as [rows, cols], or [rows]. */
static ckpt_tensor as_matrix(ckpt_tape *t, const struct optim_param *p, ckpt_tensor x)
{
    return ckpt_reshape(t, x, p->cols ? 2 : 1, (int64_t[]){p->rows, p->cols});
}

/* The parameter's gradient g in fp32, clipped. */
static ckpt_tensor clip_gradient(ckpt_tape *t, const struct optim_param *p, ckpt_tensor g)
{
    const struct update_attr *u = &p->rule->update;
    g = ckpt_cast(t, g, CKPT_F32);
    if (u->unclipped)
        return g;
    g = ckpt_mul(t, g, optim_scalar(t, p, CLIP_FACTOR));
    return u->clip_value > 0.f ? ckpt_clamp(t, g, -u->clip_value, u->clip_value) : g;
}

ckpt_tensor optim_sum_squares(ckpt_tape *t, ckpt_tensor x)
{
    return ops_record1(t, &op_sum_squares, 1, &x, NULL, 0);
}

ckpt_tensor optim_state(ckpt_tape *t, ckpt_tensor state, ckpt_tensor like)
{
    const struct ckpt_desc d = ckpt_desc_of(t, like);
    return ckpt_cast(t, ckpt_reshape(t, state, d.ndim, d.shape), CKPT_F32);
}

void optim_assign(ckpt_tape *t, const struct optim_param *p, ckpt_tensor state, ckpt_tensor x)
{
    const bool narrow = ckpt_desc_of(t, state).dtype == CKPT_BF16;
    struct narrow_assign_attr attr = {.noise =
                                          p->rule->kind == OPTIM_MUON ? NOISE_MEAN : NOISE_SQUARE};
    if (narrow)
        optim_round(t, p->param, 0, &attr.rounding);
    ops_record1(t, &op_assign, 3, (ckpt_tensor[]){state, x, p->clip}, narrow ? &attr : NULL,
                narrow ? sizeof attr : 0);
}

/* The factor of a matrix's step besides the learning rate. */
static float muon_scale(const struct optim_rule *r, double rows, double cols)
{
    return (float)(r->match_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols)));
}

/* A parameter or a bucket, without gradient and weight. */
static struct optim_param param_of(const struct appender *a, int32_t param, int32_t rule)
{
    const struct ckpt_desc *d = &a->t->env.params->data[param].desc;
    struct optim_param p = {.rule = rule_of(a, rule),
                            .clip_attr = &a->clip_attr,
                            .clip = a->clip,
                            .param = param,
                            .rows = d->ndim > 1 ? d->shape[0] : desc_numel(d)};
    p.cols = d->ndim > 1 ? desc_numel(d) / p.rows : 0;
    return p;
}

static void record_step(const struct appender *a, int32_t param, struct narrow_update_attr *attr,
                        ckpt_tensor step)
{
    ckpt_tensor in[UPDATE_STATES + 2] = {CKPT_NONE}, out[UPDATE_STATES];
    states_of(a, param, &attr->update, in);
    if (attr->update.narrow)
        optim_round(a->t, param, 0, &attr->rounding);
    in[UPDATE_STATES] = step;
    in[UPDATE_STATES + 1] = a->clip;
    ckpt_record(a->t, &op_step, UPDATE_STATES + 2, in, UPDATE_STATES, out, attr, size_of(attr));
}

/* The fp32 value of a parameter, or of the share that this rank updates. */
static ckpt_tensor exact_value(const struct appender *a, int32_t param)
{
    ckpt_tensor value = optim_updated_value(a->t, param);
    if (param_has_master(&a->t->env.params->data[param]))
        return tape_slot(a->t, param, STORAGE_MASTER);
    return ckpt_cast(a->t, value, CKPT_F32);
}

static void append_matrix(const struct appender *a, int32_t param, int32_t rule)
{
    ckpt_tape *t = a->t;
    struct narrow_update_attr attr = attr_of(a, rule, param);
    struct optim_param p = param_of(a, param, rule);
    bool muon = p.rule->kind == OPTIM_MUON;
    ckpt_label(t, "%s", t->env.params->data[param].name);
    ckpt_tensor g = as_matrix(t, &p, tape_handle(t, t->param_gradient[param]));
    p.gradient = clip_gradient(t, &p, g);
    if (muon) {
        attr.update.scale = muon_scale(p.rule, (double)p.rows, (double)p.cols);
        p.gradient = optim_muon_momentum(t, &p);
    } else {
        p.weight = as_matrix(t, &p, exact_value(a, param));
    }
    record_step(a, param, &attr, muon ? optim_muon(t, &p) : optim_adafactor(t, &p));
}

/* Computes the step of a parameter in a gathered bucket; returns it flat, in fp32. */
static ckpt_tensor step_of_part(const struct appender *a, int32_t param, int32_t rule,
                                ckpt_tensor gradients, ckpt_tensor weights)
{
    ckpt_tape *t = a->t;
    const struct layout_place *place = &t->env.sharing.layout->places[param];
    const int64_t begin = place->offset, end = begin + place->numel;
    struct optim_param p = param_of(a, param, rule);
    ckpt_tensor x;
    p.gradient = as_matrix(t, &p, ckpt_slice(t, gradients, 0, begin, end));
    if (p.rule->kind == OPTIM_MUON) {
        x = ckpt_cast(t, optim_muon(t, &p), CKPT_F32);
        x = ckpt_affine(t, x, muon_scale(p.rule, (double)p.rows, (double)p.cols), 0.f);
    } else {
        p.weight = as_matrix(t, &p, ckpt_slice(t, weights, 0, begin, end));
        x = optim_adafactor(t, &p);
    }
    return ckpt_reshape(t, x, 1, &place->numel);
}

/*
 * Matrix optimizers need whole matrices: every rank gathers the bucket and computes the same steps,
 * then takes the part for its share.  Muon's momentum is stored per share; Adafactor's factors are
 * small and stored whole on every rank.
 */
static void append_bucket(const struct appender *a, int32_t param, int32_t rule)
{
    ckpt_tape *t = a->t;
    const struct layout *l = t->env.sharing.layout;
    const struct layout_bucket *b = &l->buckets[optim_bucket_of(t, param)];
    struct narrow_update_attr attr = attr_of(a, rule, param);
    struct flatten_attr flatten = {.dtype = CKPT_F32, .numel = b->padded};
    struct optim_param p = param_of(a, param, rule);
    ckpt_tensor steps[FLATTEN_PARTS], weights = CKPT_NONE;
    attr.update.scale = 1.f; /* each matrix scales its own step */
    ckpt_label(t, "%s", b->name);
    p.gradient = clip_gradient(t, &p, tape_handle(t, t->param_gradient[param]));
    if (p.rule->kind == OPTIM_MUON)
        p.gradient = optim_muon_momentum(t, &p);
    else
        weights = optim_whole_bucket(t, param, exact_value(a, param));
    ckpt_tensor gradients = optim_whole_bucket(t, param, p.gradient);
    for (int32_t i = 0; i < b->n && !t->error.code; i++) {
        int32_t part = l->order[b->first + i];
        steps[i] = step_of_part(a, part, rule, gradients, weights);
        flatten.offset[i] = l->places[part].offset;
    }
    ckpt_tensor all = ops_record1(t, &op_flatten, b->n, steps, &flatten, sizeof flatten);
    record_step(a, param, &attr, optim_updated_part(t, param, all));
    optim_gather_updated(t, param);
}

/* Whether ranks have parts of the parameters of a bucket.  No state of those is rounded, so they
 * never share a batch with parameters whose state is. */
static bool is_split(const ckpt_tape *t, int32_t param)
{
    const int32_t bucket = optim_bucket_of(t, param);
    const struct sharing *s = &t->env.sharing;
    return bucket >= 0 && sharing_is_split(s, &s->layout->buckets[bucket]);
}

static bool is_matrix_kind(const struct optim_rule *r)
{
    return r->kind == OPTIM_MUON || r->kind == OPTIM_ADAFACTOR;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void append_param(struct appender *a, int32_t param)
{
    const int32_t rule = a->rule[param];
    const int64_t numel = desc_numel(&a->t->env.params->data[param].desc);
    const int parts = narrow_state_of(a, param) ? optim_parts(a->t, param) : 0;
    const bool split = is_split(a->t, param); /* shares of others, which a study sizes alike */
    struct batch *small = &a->batch[2 * rule + (parts > 0 || split)];
    if (is_matrix_kind(rule_of(a, rule))) {
        if (optim_bucket_of(a->t, param) >= 0)
            append_bucket(a, param, rule);
        else
            append_matrix(a, param, rule);
        return;
    }
    if (numel >= GROUP_LARGE) {
        struct batch large = {.n = 1, .param = {param}};
        close_batch(a, &large, rule);
        return;
    }
    if (small->n == UPDATE_PARAMS || small->numel + numel > GROUP_NUMEL ||
        small->parts + parts > ROUNDING_PARTS)
        close_batch(a, small, rule);
    small->param[small->n++] = param;
    small->numel += numel;
    small->parts += parts;
}

static void append_updates(struct appender *a)
{
    ckpt_tape *t = a->t;
    for (int32_t i = 0; i < t->n_params && !t->error.code; i++)
        if (t->param_gradient[i])
            append_param(a, i);
    for (int32_t r = 0; r <= a->o->n_groups; r++) {
        close_batch(a, &a->batch[2 * r], r);
        close_batch(a, &a->batch[2 * r + 1], r);
    }
}

/* Sets the rule of parameter i.  A bucket has the rule of its parameters. */
static int find_rule(struct appender *a, const int32_t *of, int32_t i)
{
    const ckpt_tape *t = a->t;
    const struct params *ps = t->env.params;
    const struct layout *l = t->env.sharing.layout;
    const int32_t hidden = ps->n - ps->n_hidden;
    if (i < hidden) {
        a->rule[i] = 1 + of[i];
        return 0;
    }
    const struct layout_bucket *b = &l->buckets[i - hidden];
    a->rule[i] = 1 + of[l->order[b->first]];
    for (int32_t k = 1; k < b->n; k++)
        if (1 + of[l->order[b->first + k]] != a->rule[i])
            return tape_fail(a->t, CKPT_EINVAL,
                             "'%s' and '%s' are in one bucket and in two groups of the optimizer: "
                             "with several ranks make every optimizer, and its groups, before a "
                             "program is compiled",
                             ps->data[l->order[b->first]].name,
                             ps->data[l->order[b->first + k]].name);
    return 0;
}

/* Reports unsupported combinations before anything is recorded. */
static int check_param(const struct appender *a, int32_t i)
{
    ckpt_tape *t = a->t;
    const struct param *p = &t->env.params->data[i];
    const struct optim_rule *r = rule_of(a, a->rule[i]);
    if (t->env.sharing.layout && optim_bucket_of(t, i) < 0)
        return tape_fail(t, CKPT_EINVAL,
                         "'%s' is trained here, and all optimizers that were made before the first "
                         "program freeze it: with several ranks make every optimizer, and its "
                         "groups, before a program is compiled",
                         p->name);
    if (p->training.byte_state && is_matrix_kind(r))
        return tape_fail(t, CKPT_EINVAL,
                         "%s keeps no state in 8 bits: '%s' needs --state bf16, or AdamW, SGD or "
                         "Lion by a group",
                         optim_kind_name(r->kind), p->name);
    const struct layout *l = t->env.sharing.layout;
    const int32_t bucket = optim_bucket_of(t, i);
    const struct layout_bucket *b = bucket >= 0 ? &l->buckets[bucket] : NULL;
    if (is_matrix_kind(r) && is_split(t, i))
        return tape_fail(t, CKPT_EINVAL,
                         "%s needs whole matrices, and ranks have parts of '%s' (--tensor): use "
                         "AdamW, SGD or Lion, or give it one by a group",
                         optim_kind_name(r->kind), t->env.params->data[l->order[b->first]].name);
    for (int32_t k = 0; r->kind == OPTIM_MUON && k < (b ? b->n : 1); k++) {
        const struct param *matrix = b ? &t->env.params->data[l->order[b->first + k]] : p;
        if (matrix->desc.ndim < 2)
            return tape_fail(t, CKPT_EINVAL,
                             "muon: '%s' has %d axes and is no matrix: give it another optimizer "
                             "by a group",
                             matrix->name, matrix->desc.ndim);
    }
    return 0;
}

/* Assigns the bias corrections of a rule; rules with equal betas share them. */
static int find_unbias(struct appender *a, int32_t rule)
{
    const struct update_attr *u = &rule_of(a, rule)->update;
    struct clip_attr *c = &a->clip_attr;
    a->unbias[rule] = CLIP_UNBIAS1;
    c->scalars |= rule_of(a, rule)->kind == OPTIM_ADAFACTOR;
    if (u->kind != UPDATE_ADAMW || (u->beta1 == c->beta1 && u->beta2 == c->beta2))
        return 0;
    for (int k = 0; k <= c->more; k++) {
        if (k == CLIP_BETAS - 1)
            return tape_fail(a->t, CKPT_EINVAL, "%s: its groups have more than %d pairs of betas",
                             optim_kind_name(a->o->rule.kind), CLIP_BETAS);
        if (k == c->more) {
            c->beta[2 * k] = u->beta1;
            c->beta[2 * k + 1] = u->beta2;
        }
        if (c->beta[2 * k] == u->beta1 && c->beta[2 * k + 1] == u->beta2) {
            a->unbias[rule] = CLIP_VALUES + 2 * k;
            c->more += k == c->more;
            return 0;
        }
    }
    return 0;
}

static int prepare(struct appender *a, const int32_t *of)
{
    ckpt_tape *t = a->t;
    const struct update_attr *u = &a->o->rule.update;
    const bool adamw = u->kind == UPDATE_ADAMW;
    int rc = 0;
    a->clip_attr = (struct clip_attr){.clip_norm = a->o->clip_norm,
                                      .beta1 = adamw ? u->beta1 : 0.f,
                                      .beta2 = adamw ? u->beta2 : 0.f};
    for (int32_t r = 0; r <= a->o->n_groups && !rc; r++)
        rc = find_unbias(a, r);
    for (int32_t i = 0; i < t->n_params && !rc; i++)
        if (t->param_gradient[i]) {
            rc = find_rule(a, of, i);
            if (!rc)
                rc = check_param(a, i);
        }
    return rc;
}

int optim_append(ckpt_tape *t, const struct ckpt_optimizer *o, const int32_t *of)
{
    struct appender a = {.t = t, .o = o};
    size_t rules = (size_t)o->n_groups + 1;
    if (t->error.code)
        return t->error.code;
    a.rule = calloc((size_t)t->n_params + 1, sizeof *a.rule);
    a.unbias = calloc(rules, sizeof *a.unbias);
    a.batch = calloc(2 * rules, sizeof *a.batch);
    if (!a.rule || !a.unbias || !a.batch)
        tape_fail(t, CKPT_ENOMEM, "no memory to record the updates");
    else if (!prepare(&a, of)) {
        ckpt_label(t, "optimizer");
        tape_update_once(t);
        optim_share_buffers(t);
        a.clip = optim_clip(t, &a.clip_attr);
        ckpt_output(t, "ckpt.grad_norm", a.clip);
        optim_assign_buffers(t, a.clip);
        append_updates(&a);
    }
    free(a.rule);
    free(a.unbias);
    free(a.batch);
    return t->error.code;
}
