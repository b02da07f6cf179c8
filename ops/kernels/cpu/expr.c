/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel: expr, an interpreter.  It runs a program node by node over blocks of BLOCK elements.
 * Values are in registers of one block each; a register is reused after the last read of its value.
 * A typical chain has about six live registers, which fit the first-level cache.
 */
#include "expr/expr.h"
#include "functions.h"
#include "kernels.h"
#include "map.h"

#define BLOCK 512

_Static_assert(EXPR_ROW_NODES == MAP_REDUCTIONS, "values of a row");

/* A node on registers; registers below n_in are operands, read in place. */
struct step {
    map_fn function;
    const void *constants;
    uint8_t to, from[3], n_from;
};

struct machine {
    const struct expr *e;
    int n_in; /* operands, leaf nodes with a position, values of rows */
    struct step step[EXPR_LIMIT];
    int n_steps;
    int n_registers; /* besides the operands */
    struct {
        uint8_t to;
        float value;
    } constant[EXPR_LIMIT];
    int n_constants;
    int result; /* register, or operand if there are no steps */
};

static const map_fn functions[EXPR_CODES] = {
#define X(code, function, arguments, flops) [EXPR_##code] = map_##function,
    EXPR_FUNCTIONS(X)
#undef X
};

/* Finds the last reader of each value, after which its register is free; -1: `result` does not need
 * it.  The value of a row is known, so that it needs nothing. */
static void find_last_reads(const struct expr *e, int result, int *last)
{
    for (int i = 0; i < result; i++)
        last[i] = -1;
    last[result] = e->n_nodes;
    for (int i = result; i >= 0; i--)
        for (int k = 0; k < expr_arguments(e->node[i].code); k++) {
            int *of = &last[e->node[i].arg[k]];
            if (last[i] >= 0 && !expr_is_row_node(&e->node[i]) && *of < 0)
                *of = i;
        }
}

static int allocate_register(struct machine *m, bool *busy)
{
    int r = m->n_in;
    while (busy[r])
        r++;
    busy[r] = true;
    if (r - m->n_in + 1 > m->n_registers)
        m->n_registers = r - m->n_in + 1;
    return r;
}

/* Constants get the first registers to themselves: they are written once for all blocks of a
 * tile. */
static void allocate_constants(struct machine *m, bool *busy)
{
    for (int i = 0; i < m->e->n_nodes; i++)
        if (m->e->node[i].code == EXPR_CONSTANT) {
            m->constant[m->n_constants].to = (uint8_t)allocate_register(m, busy);
            m->constant[m->n_constants++].value = m->e->node[i].p;
        }
}

/* Turns the nodes that `result` needs into steps.  Leaf nodes with a position, then values of rows,
 * count as operands, in order. */
static void assemble(struct machine *m, int result)
{
    const struct expr *e = m->e;
    int at[EXPR_LIMIT], last[EXPR_LIMIT], leaf = e->n_in, constant = m->n_in;
    int value = m->n_in - expr_row_nodes(e).n;
    bool busy[EXPR_LIMIT + LOOPS_OPERANDS] = {false};
    find_last_reads(e, result, last);
    allocate_constants(m, busy);
    for (int i = 0; i <= result; i++) {
        const struct expr_node *n = &e->node[i];
        if (expr_is_row_node(n)) {
            at[i] = value++;
        } else if (n->code == EXPR_INPUT) {
            at[i] = n->arg[0];
        } else if (n->code == EXPR_CONSTANT) {
            at[i] = constant++;
        } else if (expr_arguments(n->code) == 0) {
            at[i] = leaf++;
        } else if (last[i] >= 0) {
            struct step *s = &m->step[m->n_steps++];
            *s = (struct step){.function = functions[n->code], .constants = &n->p};
            s->n_from = (uint8_t)expr_arguments(n->code);
            for (int k = 0; k < s->n_from; k++)
                s->from[k] = (uint8_t)at[n->arg[k]];
            for (int k = 0; k < s->n_from; k++)
                if (at[n->arg[k]] >= m->n_in + m->n_constants && last[n->arg[k]] == i)
                    busy[at[n->arg[k]]] = false;
            at[i] = allocate_register(m, busy);
            s->to = (uint8_t)at[i];
        }
    }
    m->result = at[result];
}

/* Runs one block; the last step writes directly to the result. */
static void run_block(const struct machine *m, float *y, const float **value, int64_t n)
{
    for (int k = 0; k < m->n_steps; k++) {
        const struct step *s = &m->step[k];
        const float *from[3];
        for (int j = 0; j < s->n_from; j++)
            from[j] = value[s->from[j]];
        s->function(k + 1 < m->n_steps ? (float *)value[s->to] : y, from, n, s->constants);
    }
    if (!m->n_steps)
        memcpy(y, value[m->result], (size_t)n * sizeof *y);
}

static void run_tile(float *y, const float *const *x, int64_t n, const void *ctx)
{
    const struct machine *m = ctx;
    /* rows not 4 KiB apart, which would conflict in the cache */
    _Alignas(64) float registers[EXPR_LIMIT][BLOCK + 16];
    const float *value[EXPR_LIMIT + LOOPS_OPERANDS];
    for (int r = 0; r < m->n_registers; r++)
        value[m->n_in + r] = registers[r];
    for (int k = 0; k < m->n_constants; k++)
        for (int64_t i = 0; i < BLOCK; i++)
            ((float *)value[m->constant[k].to])[i] = m->constant[k].value;
    for (int64_t at = 0; at < n; at += BLOCK) {
        for (int k = 0; k < m->n_in; k++)
            value[k] = x[k] + at;
        run_block(m, y + at, value, min_i64(BLOCK, n - at));
    }
}

/* The source of a leaf node, with strides over the result: along one axis for an index, over all
 * elements for random values, which are numbered over the whole batch like those of randn. */
static struct map_source leaf_source(const struct ckpt_kernel_args *a, const struct expr_node *n)
{
    struct map_source s = {.kind = n->code == EXPR_INDEX ? MAP_INDEX : MAP_UNIFORM};
    s.view.desc = expr_walk(a->attr, &a->out[0].desc);
    desc_dense(&s.view.desc);
    s.view.desc.dtype = CKPT_F32;
    for (int i = 0; i < s.view.desc.ndim && n->code == EXPR_INDEX; i++)
        s.view.desc.stride[i] = i == n->arg[0];
    if (n->code == EXPR_UNIFORM) {
        s.stream = (struct random_stream){a->run->seed, (uint64_t)a->run->step, n->stream};
        s.first = a->run->micro * desc_numel(&s.view.desc);
    }
    return s;
}

/* The same program for each value of a row, up to its argument, and for the result.  m: without
 * steps and values. */
static void run_rows(const struct machine *m, const struct map_source *source, int result,
                     const struct ckpt_view *out)
{
    const struct expr *e = m->e;
    const struct ckpt_desc domain = expr_walk(e, &out->desc);
    const struct expr_row_nodes r = expr_row_nodes(e);
    struct map_rows rows = {&domain, e->reduced, e->per_row, r.n, {{0}}};
    struct machine part[EXPR_ROW_NODES + 1];
    for (int k = 0; k <= r.n; k++) {
        const struct expr_node *n = k < r.n ? &e->node[r.at[k].node] : NULL;
        part[k] = *m;
        part[k].n_in += r.n;
        assemble(&part[k], n ? n->arg[0] : result);
        if (n)
            rows.value[k] = (struct map_reduction){run_tile, &part[k], n->p, n->code == EXPR_MAX};
    }
    cpu_map_rows(out, &rows, m->n_in, source, run_tile, &part[r.n]);
}

/* Runs the program up to node `result`, which is written to *out. */
static void run(const struct ckpt_kernel_args *a, int result, const struct ckpt_view *out)
{
    const struct expr *e = a->attr;
    struct machine m = {.e = e, .n_in = a->n_in};
    struct map_source source[LOOPS_OPERANDS - 1];
    for (int k = 0; k < a->n_in; k++)
        source[k] = (struct map_source){.view = a->in[k]};
    for (int i = 0; i < e->n_nodes; i++) {
        const struct expr_node *n = &e->node[i];
        if (n->code == EXPR_INDEX || n->code == EXPR_UNIFORM)
            source[m.n_in++] = leaf_source(a, n);
    }
    if (e->reduced) {
        run_rows(&m, source, result, out);
    } else {
        assemble(&m, result);
        cpu_map_sources(out, m.n_in, source, run_tile, &m);
    }
}

/* A second result is the value of a node. */
int cpu_expr(const struct ckpt_kernel_args *a)
{
    const struct expr *e = a->attr;
    run(a, e->n_nodes - 1, &a->out[0]);
    if (!e->second)
        return cpu_write_extra(a, CKPT_OK);
    run(a, e->second - 1, &a->out[1]);
    return CKPT_OK;
}
