/* SPDX-License-Identifier: Apache-2.0 */
/* From tape to graph: the storages that each op reads and writes, its work and its restrictions. */
#include <stdlib.h>
#include <string.h>
#include "collective.h"
#include "ops.h"
#include "plan/plan.h"
#include "tape/tape.h"

struct builder {
    const ckpt_tape *t;
    struct graph *g;
    int32_t *index; /* per tape storage: its graph storage, or -1 */
};

static enum graph_kind kind_of(enum storage_kind kind)
{
    switch (kind) {
    case STORAGE_INPUT:
    case STORAGE_CONSTANT:
        return KIND_INPUT;
    case STORAGE_VALUE:
        return KIND_PARAMETER;
    case STORAGE_GRADIENT:
        return KIND_GRADIENT;
    case STORAGE_ACTIVATION:
        return KIND_ACTIVATION;
    case STORAGE_TEMPORARY:
        return KIND_TEMPORARY;
    default:
        return KIND_OPTIMIZER;
    }
}

/* The name of the parameter or input, such as "w (exp_avg)", or of the op that makes the storage.
 */
static char *storage_name(const ckpt_tape *t, const struct storage *s)
{
    char text[256];
    static const char *const slots[] = {[STORAGE_MASTER] = "master",
                                        [STORAGE_EXP_AVG] = "exp_avg",
                                        [STORAGE_EXP_AVG_SQ] = "exp_avg_sq",
                                        [STORAGE_EMA] = "ema",
                                        [STORAGE_EXP_AVG_SQ_ROW] = "exp_avg_sq_row",
                                        [STORAGE_EXP_AVG_SQ_COL] = "exp_avg_sq_col",
                                        [STORAGE_GRADIENT] = "gradient"};
    if (s->param >= 0) {
        const char *name = t->env.params->data[s->param].name;
        const char *slot = s->kind <= STORAGE_GRADIENT ? slots[s->kind] : NULL;
        snprintf(text, sizeof text, slot ? "%.200s (%s)" : "%.200s", name, slot);
        return strdup(text);
    }
    if (s->feed >= 0) {
        const char *name = t->feeds.data[s->feed].name;
        return strdup(*name ? name : "constant");
    }
    int32_t op = t->tensors.data[s->tensor].op;
    if (op < 0)
        return strdup("accumulator");
    tape_op_name(t, op, text, sizeof text);
    return strdup(text);
}

/* The graph storage of a tensor, added at its first use; -1: out of memory. */
static int32_t graph_storage_of(struct builder *b, int32_t tensor)
{
    int32_t s = b->t->tensors.data[tensor].storage;
    if (b->index[s] >= 0)
        return b->index[s];
    const struct storage *from = &b->t->storages.data[s];
    enum graph_kind kind = kind_of(from->kind);
    char *name = storage_name(b->t, from);
    if (!name)
        return -1;
    struct graph_storage *to = &b->g->storages[b->g->n_storages];
    *to = (struct graph_storage){.bytes = round_up(max_i64(1, from->bytes), CKPT_ALIGN),
                                 .kind = kind,
                                 .persistent = kind == KIND_PARAMETER || kind == KIND_OPTIMIZER,
                                 .carried = from->carried,
                                 .tape_storage = s,
                                 .name = name};
    if (to->persistent) {
        const struct param *p = &b->t->env.params->data[from->param];
        int slot = from->kind - STORAGE_VALUE;
        to->backing = p->place.backing[slot];
        to->backing_offset = p->place.offset[slot];
        to->crosses = p->place.crosses[slot];
        to->crossing = p->place.crossing[slot];
    }
    b->index[s] = b->g->n_storages++;
    return b->index[s];
}

/* Adds a storage to the list that starts at refs[first] unless it is there.  Returns 0 or
 * CKPT_ENOMEM. */
static int add_ref(struct builder *b, int32_t first, int32_t tensor)
{
    int32_t s = graph_storage_of(b, tensor);
    if (s < 0)
        return CKPT_ENOMEM;
    for (int32_t i = first; i < b->g->n_refs; i++)
        if (b->g->refs[i] == s)
            return 0;
    b->g->refs[b->g->n_refs++] = s;
    return 0;
}

/* An accumulator that is set, not added to, is not read. */
static bool reads_operand(const struct op *o, int i)
{
    bool sets = (o->def->flags & CKPT_OP_INPLACE) && (o->def->flags & CKPT_OP_ACCUMULATE) &&
                o->accumulate == ACCUMULATE_NEVER;
    return !(sets && i < o->n_out);
}

static int add_refs(struct builder *b, const struct op *o, struct graph_op *to)
{
    int rc = 0;
    to->reads = b->g->n_refs;
    for (int i = 0; i < o->n_in && !rc; i++)
        if (op_in(b->t, o, i) > 0 && reads_operand(o, i))
            rc = add_ref(b, to->reads, op_in(b->t, o, i));
    if (o->accumulate != ACCUMULATE_NEVER && o->n_out && !rc)
        rc = add_ref(b, to->reads, op_out(b->t, o, 0));
    to->n_reads = b->g->n_refs - to->reads;
    to->writes = b->g->n_refs;
    for (int i = 0; i < o->n_out && !rc; i++)
        if (op_out(b->t, o, i) > 0)
            rc = add_ref(b, to->writes, op_out(b->t, o, i));
    to->n_writes = b->g->n_refs - to->writes;
    return rc;
}

static double operand_bytes(const struct ckpt_call *call)
{
    double bytes = 0;
    for (int i = 0; i < call->n_in; i++)
        bytes += call->in[i].ndim >= 0 ? (double)desc_bytes(&call->in[i]) : 0;
    for (int i = 0; i < call->n_out; i++)
        bytes += call->out[i].ndim >= 0 ? (double)desc_bytes(&call->out[i]) : 0;
    return bytes;
}

static uint64_t mix_desc(uint64_t h, const struct ckpt_desc *d)
{
    h = hash_mix(h, d->ndim);
    if (d->ndim < 0)
        return h;
    h = hash_mix(h, d->dtype);
    for (int i = 0; i < d->ndim; i++)
        h = hash_mix(h, d->shape[i]);
    return hash_mix(h, desc_is_dense(d));
}

/* The key of an op's measured time in machine files. */
static uint64_t cost_key(const struct op *o, const struct ckpt_call *call)
{
    uint64_t h = hash_mix(ops_hash(o->def, o->attr), call->n_in);
    for (int i = 0; i < call->n_in; i++)
        h = mix_desc(h, &call->in[i]);
    for (int i = 0; i < call->n_out; i++)
        h = mix_desc(h, &call->out[i]);
    return h;
}

static int add_work(const struct builder *b, const struct op *o, struct graph_op *to)
{
    size_t n = (size_t)(o->n_in + o->n_out + 1);
    struct ckpt_desc *descs = calloc(n, sizeof *descs);
    if (!descs)
        return CKPT_ENOMEM;
    struct ckpt_call call;
    struct ckpt_cost cost = {0};
    tape_call(b->t, o, &call, descs, descs + o->n_in);
    if (o->def->cost)
        o->def->cost(&call, &cost);
    to->flops = cost.flops;
    to->bytes = cost.bytes > 0 ? cost.bytes : operand_bytes(&call);
    to->cost_key = cost_key(o, &call);
    if (to->replicas > 1)
        to->cost_key = hash_mix(to->cost_key, to->replicas);
    if (to->stride)
        to->cost_key = hash_mix(to->cost_key, -to->stride);
    free(descs);
    return 0;
}

static bool is_attention(const struct ckpt_op_def *def)
{
    return def == &op_attention || def == &op_attention_dx || def == &op_attention_dbias ||
           def == &op_cross_attention || def == &op_cross_attention_dx;
}

static bool is_rerunnable(const struct op *o)
{
    return o->phase == PHASE_FORWARD && o->fetch < 0 && o->accumulate == ACCUMULATE_NEVER &&
           !(o->def->flags & (CKPT_OP_ONCE | CKPT_OP_INPLACE));
}

static void set_collective(const ckpt_tape *t, const struct op *o, struct graph_op *to)
{
    static const struct {
        const struct ckpt_op_def *def;
        enum graph_collective kind;
    } rows[] = {{&op_all_gather, GRAPH_ALL_GATHER},
                {&op_all_gather_once, GRAPH_ALL_GATHER},
                {&op_all_gather_in_place, GRAPH_ALL_GATHER},
                {&op_reduce_scatter, GRAPH_REDUCE_SCATTER},
                {&op_all_reduce, GRAPH_ALL_REDUCE},
                {&op_all_to_all, GRAPH_ALL_TO_ALL},
                {&op_tensor_sum, GRAPH_ALL_REDUCE},
                {&op_send, GRAPH_SEND},
                {&op_receive, GRAPH_RECEIVE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (o->def == rows[i].def) {
            to->collective = rows[i].kind;
            const struct collective_attr *attr = o->attr;
            to->ranks = (int32_t)attr->ranks;
            to->replicas = (int32_t)attr->replicas;
            to->stride = attr->group == GROUP_DATA ? sharing_stride(&t->env.sharing) : 0;
            to->within_layer = attr->group == GROUP_TENSOR;
            to->drop_after_forward = attr->drop_after_forward && to->rerunnable;
        }
}

static int add_op(struct builder *b, int32_t i)
{
    static const enum graph_phase phases[] = {GRAPH_FORWARD, GRAPH_BACKWARD, GRAPH_UPDATE};
    const struct op *o = &b->t->ops.data[i];
    if (o->def->flags & CKPT_OP_VIEW)
        return 0;
    char name[256];
    tape_op_name(b->t, i, name, sizeof name);
    struct graph_op *to = &b->g->ops[b->g->n_ops];
    *to = (struct graph_op){.workspace = round_up(o->workspace, CKPT_ALIGN),
                            .phase = phases[o->phase],
                            .attention = is_attention(o->def),
                            .rerunnable = is_rerunnable(o),
                            .tape_op = i,
                            .name = strdup(name)};
    set_collective(b->t, o, to);
    b->g->n_ops++;
    if (o->phase != PHASE_UPDATE)
        b->g->n_body = b->g->n_ops;
    if (!to->name || add_refs(b, o, to))
        return CKPT_ENOMEM;
    return add_work(b, o, to);
}

static void set_pipeline(const ckpt_tape *t, struct graph *g)
{
    const struct sharing *s = &t->env.sharing;
    if (s->stages > 1)
        g->pipeline = (struct graph_pipeline){s->stages, s->stage, s->ranks / s->stages,
                                              t->n_micro / t->n_bodies};
}

int graph_from_tape(const ckpt_tape *t, const struct machine *m, struct graph **out)
{
    struct graph *g = calloc(1, sizeof *g);
    struct builder b = {.t = t, .g = g};
    size_t storages = (size_t)t->n_storages + 1, ops = (size_t)t->n_ops + 1;
    b.index = malloc(storages * sizeof *b.index);
    int rc = g && b.index ? 0 : CKPT_ENOMEM;
    if (!rc) {
        g->storages = calloc(storages, sizeof *g->storages);
        g->ops = calloc(ops, sizeof *g->ops);
        /* Each operand once, and the accumulated output twice. */
        g->refs = calloc((size_t)t->n_operands + ops, sizeof *g->refs);
        g->n_micro = t->n_bodies;
        set_pipeline(t, g);
        memset(b.index, -1, storages * sizeof *b.index);
        rc = g->storages && g->ops && g->refs ? 0 : CKPT_ENOMEM;
    }
    for (int32_t i = 0; i < t->n_ops && !rc; i++)
        rc = add_op(&b, i);
    free(b.index);
    if (rc) {
        graph_free(g);
        return rc;
    }
    graph_price(g, m);
    *out = g;
    return rc;
}
