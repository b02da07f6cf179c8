/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion: computes the program of an op inside the ops that read its result, so that the result is
 * never written.
 *
 * Ops are processed in order.  A producer is removed only if every reader can compute it.  Each
 * reader then keeps its position and reads the operands of the producer.  The producer becomes an
 * empty position on the tape (tape_removed: no operands, no kernel), which later passes step
 * over.  The rules below depend on the tape alone.
 *
 * Rows: a sum or an extreme over the last axes is a program, too, whose result has one element per
 * row.  It is fused with the chain before it, with ops on such results, and with ops on whole rows,
 * so that a softmax or a norm becomes one kernel, which reads a row again for each level of sums.
 * Whether its readers read the row anyway shows when these are fused; so there are several rounds.
 *
 * Cost of recomputing: writing and reading one bf16 element takes an H100 as long as 40
 * instructions.  A program takes about a quarter of the instructions that expr_flops() counts,
 * since it processes two elements at a time.
 *
 * Legality: the producer must have the same value inside the reader: equal shapes, and no operand
 * written in between.  Profit: a result with many readers, or whose operands would have to be kept
 * longer and are larger, is not fused.  Operands worth keeping are determined first, for groups of
 * ops.
 */
#include <stdlib.h>
#include <string.h>
#include "attr.h"
#include "ops.h"
#include "passes/merge.h"
#include "passes/passes.h"

enum {
    MAX_READERS = 4,       /* maximum readers of a result that is computed in each of them */
    MAX_EXTRA_FLOPS = 200, /* per element, in all extra computations: see above */
    MAX_POSITIONED = 4,    /* maximum positioned leaves in a program: see LOOPS_OPERANDS */
    LONG_ROW = 8192, /* elements of a row above which the sum must have at least FEW_ROWS results */
    FEW_ROWS = 64,
    MAX_ROW = 1 << 16, /* elements of a row that is read again: the cache has it */
    BUSY_ROWS = 1024,  /* as many blocks keep a GPU busy if each passes over a long row again */
    SHORT_ROW = 32,    /* elements: a warp handles a row, so there may be few shorter rows */
    MANY_ROWS = 4096,
    MAX_SUMMED = 1 << 30 /* elements: limit of one launch */
};

struct fusion {
    ckpt_tape *t;
    int32_t *kept;  /* per storage: the last op that reads it, or for which it is worth keeping */
    bool only_rows; /* fuse only programs with sums */
    int fused;      /* number of ops that were removed */
};

/* ---- programs of ops with kernels of their own ----------------------------------------------- */

static const struct {
    const struct ckpt_op_def *def;
    enum expr_code code;
} own_kernels[] = {
    {&op_add, EXPR_ADD},         {&op_sub, EXPR_SUB},         {&op_mul, EXPR_MUL},
    {&op_where, EXPR_WHERE},     {&op_gelu, EXPR_GELU},       {&op_silu, EXPR_SILU},
    {&op_relu, EXPR_RELU},       {&op_gelu_dx, EXPR_GELU_DX}, {&op_silu_dx, EXPR_SILU_DX},
    {&op_relu_dx, EXPR_RELU_DX}, {&op_affine, EXPR_AFFINE}};

static void finish_own(struct expr *e, enum expr_code code, float p, float q)
{
    int n = expr_arguments(code);
    for (int k = 0; k < EXPR_OPERANDS; k++)
        e->operand[k] = EXPR_ANY;
    expr_finish(e, expr_node(e, code, 0, n > 1, n > 2 ? 2 : 0, p, q), NULL);
}

/* Ops whose whole program differs, not only the function. */
static bool expr_of_others(const struct op *o, struct expr *e)
{
    if (o->def == &op_broadcast)
        finish_own(e, EXPR_SCALE, ((const struct broadcast_attr *)o->attr)->scale, 0.f);
    else if (o->def == &op_fill)
        expr_finish(e, expr_constant(e, ((const struct make_attr *)o->attr)->value), NULL);
    else if (o->def == &op_cast)
        expr_finish(e, 0, NULL);
    else
        return false;
    return true;
}

static int64_t row_length(const struct ckpt_desc *x, int reduced)
{
    int64_t n = 1;
    for (int i = x->ndim - reduced; i < x->ndim; i++)
        n *= x->shape[i];
    return n;
}

/* The number of trailing axes that a sum from x to y reduces.  0 if it is another kind of sum,
 * has few results that are long each, or many short ones: one block of threads computes a result.
 */
static int reduced_axes(const struct ckpt_desc *x, const struct ckpt_desc *y)
{
    int first = 0;
    if (x->ndim != y->ndim || !x->ndim)
        return 0;
    while (first < x->ndim - 1 && x->shape[first] == y->shape[first])
        first++;
    for (int i = first; i < x->ndim; i++)
        if (y->shape[i] != 1)
            return 0;
    int64_t length = row_length(x, x->ndim - first), results = desc_numel(y);
    bool fits = desc_numel(x) <= MAX_SUMMED && (length <= LONG_ROW || results >= FEW_ROWS) &&
                (length >= SHORT_ROW || results <= MANY_ROWS);
    return fits ? x->ndim - first : 0;
}

static void set_result(struct expr *e, enum ckpt_dtype dtype, const struct ckpt_desc *walk)
{
    e->dtype = (int32_t)dtype;
    e->ndim = walk->ndim;
    memcpy(e->shape, walk->shape, sizeof e->shape);
    for (int i = walk->ndim; i < CKPT_MAX_DIMS; i++)
        e->shape[i] = 0;
}

/* A sum, a mean, or an extreme of rows. */
static bool expr_of_rows(const ckpt_tape *t, const struct op *o, struct expr *e)
{
    const bool sum = o->def == &op_sum || o->def == &op_sum_to, least = o->def == &op_amin;
    if (!sum && !least && o->def != &op_amax)
        return false;
    const struct ckpt_desc *x = &t->tensors.data[op_in(t, o, 0)].desc;
    const int reduced = reduced_axes(x, &t->tensors.data[op_out(t, o, 0)].desc);
    const float scale = o->def == &op_sum ? ((const struct sum_attr *)o->attr)->scale : 1.f;
    const float sign = least ? -1.f : 1.f;
    int y = expr_node(e, EXPR_SCALE, 0, 0, 0, sign, 0.f);
    y = expr_node(e, sum ? EXPR_SUM : EXPR_MAX, y, 0, 0, scale, 0.f);
    expr_finish(e, expr_node(e, EXPR_SCALE, y, 0, 0, sign, 0.f), NULL);
    set_result(e, CKPT_F32, x);
    e->reduced = (uint8_t)reduced;
    e->per_row = 1;
    return reduced > 0;
}

/* The program of an op, with the dtype and shape of its result on the tape.  Returns false if it
 * has none. */
static bool expr_of_op(const ckpt_tape *t, const struct op *o, struct expr *e)
{
    if (o->n_out != 1 || o->n_in > EXPR_INPUTS || o->accumulate != ACCUMULATE_NEVER)
        return false;
    const struct ckpt_desc *d = &t->tensors.data[op_out(t, o, 0)].desc;
    bool known = o->def == &op_expr;
    expr_init(e, o->def->name, o->n_in);
    if (known)
        memcpy(e, o->attr, o->attr_size);
    if (e->reduced)
        return true;
    if (expr_of_rows(t, o, e))
        return true;
    for (size_t i = 0; i < sizeof own_kernels / sizeof *own_kernels && !known; i++)
        if (o->def == own_kernels[i].def) {
            const struct affine_attr *a = o->def == &op_affine ? o->attr : NULL;
            finish_own(e, own_kernels[i].code, a ? a->a : 0.f, a ? a->b : 0.f);
            known = true;
        }
    if (!known && !expr_of_others(o, e))
        return false;
    set_result(e, d->dtype, d);
    return true;
}

/* ---- merging two programs -------------------------------------------------------------------- */

/* "mul+add+gelu"; a name that is too long loses its middle. */
static void merge_names(char *dst, const char *a, const char *b)
{
    char text[2 * EXPR_NAME + 2];
    int n = snprintf(text, sizeof text, "%s+%s", a, b);
    const int half = EXPR_NAME / 2;
    if (n >= EXPR_NAME)
        snprintf(dst, EXPR_NAME, "%.*s...%s", half - 3, text, text + n - (EXPR_NAME - half - 1));
    else
        memcpy(dst, text, (size_t)n + 1);
}

static bool same_walk(const struct expr *a, const struct expr *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof a->shape);
}

static struct ckpt_desc walk_of(const struct expr *e)
{
    struct ckpt_desc walk = {.ndim = e->ndim};
    memcpy(walk.shape, e->shape, sizeof walk.shape);
    return walk;
}

/* Whether b is computed once per row of its producer a. */
static bool is_of_rows(const struct expr *a, const struct expr *b)
{
    return a->per_row && !b->reduced && !same_walk(a, b);
}

static int count_positioned(const struct expr *e)
{
    int n = 0;
    for (int i = 0; i < e->n_nodes; i++)
        n += e->node[i].code == EXPR_INDEX || e->node[i].code == EXPR_UNIFORM;
    return n;
}

/* Fuses producer a, whose program is ea, into reader b, whose program is eb.  Returns false if the
 * result is too large. */
static bool merge(const ckpt_tape *t, const struct expr *ea, const struct op *a,
                  const struct expr *eb, const struct op *b, struct expr_merged *j)
{
    int32_t x = op_out(t, a, 0);
    int used[EXPR_OPERANDS];
    memset(j, 0, sizeof *j);
    j->fits = true;
    expr_init(&j->e, "", 0);
    int value = expr_append(j, t, a, ea, -1, 0);
    if (ea->dtype == CKPT_BF16)
        value = expr_unary(&j->e, EXPR_BF16, value);
    int result = expr_append(j, t, b, eb, x, value);
    if (!j->fits || j->e.full)
        return false;
    expr_finish(&j->e, result, used);
    int32_t in[EXPR_INPUTS];
    memcpy(in, j->in, sizeof in);
    for (int k = 0; k < j->e.n_in; k++)
        j->in[k] = in[used[k]];
    merge_names(j->e.name, ea->name, eb->name);
    const bool rows_only = is_of_rows(ea, eb);
    const struct expr *walk = rows_only ? ea : eb;
    j->e.dtype = eb->dtype;
    j->e.ndim = walk->ndim;
    memcpy(j->e.shape, walk->shape, sizeof walk->shape);
    j->e.reduced = ea->reduced ? ea->reduced : eb->reduced;
    j->e.per_row = rows_only || eb->per_row;
    return j->e.n_nodes <= EXPR_LIMIT && count_positioned(&j->e) <= MAX_POSITIONED &&
           expr_row_nodes(&j->e).n <= EXPR_ROW_NODES;
}

/* ---- legality and profit --------------------------------------------------------------------- */

/* Whether only ops of this step see x: it is alone on a storage that no step keeps. */
static bool is_private(const ckpt_tape *t, int32_t x)
{
    const struct storage *storage = &t->storages.data[t->tensors.data[x].storage];
    return (storage->kind == STORAGE_ACTIVATION || storage->kind == STORAGE_TEMPORARY) &&
           !storage->carried && storage->param < 0 && storage->feed < 0 && uses_is_alone(t, x) &&
           x != t->loss;
}

/* Whether reader b, whose program is eb and result y, has the rows of producer a, whose result is
 * x.  Kernels of rows write dense results only; a part of a concat need not be dense. */
static bool has_rows_of(const struct expr *ea, const struct expr *eb, const struct ckpt_desc *x,
                        const struct ckpt_desc *y)
{
    if (!desc_is_dense(y))
        return false;
    if (is_of_rows(ea, eb))
        return desc_same_shape(x, y) && !expr_has_place(eb);
    const struct ckpt_desc walk = walk_of(ea);
    const int64_t length = row_length(&walk, ea->reduced);
    const bool busy = desc_numel(&walk) / length >= BUSY_ROWS;
    return same_walk(ea, eb) && (!eb->reduced || eb->reduced == ea->reduced) &&
           length <= (busy ? MAX_ROW : LONG_ROW);
}

/* Whether the operand x of b, whose program is eb, has an element for each that b iterates over. */
static bool is_full(const struct expr *eb, const struct ckpt_desc *x, bool exactly)
{
    const struct ckpt_desc walk = walk_of(eb);
    return exactly ? desc_same_shape(x, &walk) : desc_numel(x) == desc_numel(&walk);
}

/* Whether reader b at j, whose program is eb, can compute a at i: the same values from unchanged
 * operands. */
static bool can_fuse(const ckpt_tape *t, const struct expr *ea, int32_t i, const struct expr *eb,
                     int32_t j)
{
    const struct op *a = &t->ops.data[i], *b = &t->ops.data[j];
    if ((a->phase == PHASE_UPDATE) != (b->phase == PHASE_UPDATE))
        return false;
    const struct ckpt_desc *x = &t->tensors.data[op_out(t, a, 0)].desc;
    const struct ckpt_desc *y = &t->tensors.data[op_out(t, b, 0)].desc;
    bool constant = ea->n_nodes == 1 && ea->node[0].code == EXPR_CONSTANT;
    if (ea->reduced ? !has_rows_of(ea, eb, x, y) : !constant && !is_full(eb, x, expr_has_place(ea)))
        return false;
    for (int k = 0; k < a->n_in; k++)
        if (uses_is_written(t, t->tensors.data[op_in(t, a, k)].storage, i, j))
            return false;
    return true;
}

/* Whether b reads no more rows if it computes a, which has sums: those of a result of a may be read
 * in its place. */
static bool reads_rows(const ckpt_tape *t, const struct expr *ea, const struct op *a,
                       const struct op *b)
{
    int more = ea->per_row ? 0 : -1;
    for (int k = 0; k < a->n_in; k++) {
        const int32_t x = op_in(t, a, k);
        bool read = !is_full(ea, &t->tensors.data[x].desc, false);
        for (int i = 0; i < b->n_in && !read; i++)
            read = op_in(t, b, i) == x;
        more += !read;
    }
    return more <= 0;
}

/* Bytes of the operands of a that no op reads as late as op j, so they would be kept longer. */
static int64_t bytes_kept(const struct fusion *f, const struct op *a, int32_t j)
{
    const ckpt_tape *t = f->t;
    int64_t bytes = 0;
    for (int k = 0; k < a->n_in; k++) {
        int32_t x = op_in(t, a, k), s = t->tensors.data[x].storage;
        bool again = false;
        for (int i = 0; i < k; i++)
            again |= t->tensors.data[op_in(t, a, i)].storage == s;
        bool is_resident = t->storages.data[s].kind == STORAGE_VALUE && !t->env.sharing.layout;
        if (!again && !is_resident && f->kept[s] < j)
            bytes += desc_bytes(&t->tensors.data[x].desc);
    }
    return bytes;
}

/* Whether only chains of expressions and views are between two ops, which take little time. */
static bool is_close(const struct fusion *f, int32_t i, int32_t j)
{
    struct expr e;
    for (int32_t k = i + 1; k < j; k++) {
        const struct op *o = &f->t->ops.data[k];
        if (!(o->def->flags & CKPT_OP_VIEW) && o->feed < 0 && !expr_of_op(f->t, o, &e))
            return false;
    }
    return true;
}

static bool pays(const struct fusion *f, const struct expr *e, int32_t i, const int32_t *reader,
                 int n)
{
    const struct op *a = &f->t->ops.data[i];
    int32_t last = reader[n - 1];
    for (int k = 0; k < n && n > 1 && e->reduced; k++)
        if (!reads_rows(f->t, e, a, &f->t->ops.data[reader[k]]))
            return false;
    if (n > 1 && (n > MAX_READERS || (n - 1) * expr_flops(e) > MAX_EXTRA_FLOPS))
        return false;
    if (n == 1 && a->phase == f->t->ops.data[last].phase && is_close(f, i, last))
        return true;
    return bytes_kept(f, a, last) <= desc_bytes(&f->t->tensors.data[op_out(f->t, a, 0)].desc);
}

/* ---- operands worth keeping ------------------------------------------------------------------ */

/*
 * A single result rarely justifies keeping its operands for the backward pass: a chain with two
 * operands and a dozen results would keep the dozen.  So groups of ops whose results may all be
 * fused into their readers are considered.  If the operands of a group take at most half the bytes
 * of its results that the backward pass reads, they count as read by the last op of the group, and
 * each result may then be fused.
 */
struct group {
    int64_t kept, saved; /* bytes: of operands not read as late; of results for backward */
    int32_t last;        /* last op of the group */
};

struct groups {
    int32_t *parent;  /* per op: union-find parent */
    struct group *of; /* per op that is its own parent */
    int32_t *seen;    /* per storage: the group that counted it last, plus 1 */
    bool *fusable;    /* per op: whether its result may be fused into all readers */
};

static int32_t root_of(struct groups *g, int32_t i)
{
    while (g->parent[i] != i)
        i = g->parent[i] = g->parent[g->parent[i]];
    return i;
}

/* Whether all readers of the result of op i may compute it.  Size limits are checked later. */
static bool is_fusable(const ckpt_tape *t, int32_t i)
{
    const struct op *a = &t->ops.data[i];
    struct expr e, reader;
    if (!expr_of_op(t, a, &e) || !is_private(t, op_out(t, a, 0)))
        return false;
    const int32_t x = op_out(t, a, 0);
    int32_t u = uses_first(t, x);
    while (u >= 0 && expr_of_op(t, &t->ops.data[uses_op(t, u)], &reader) &&
           can_fuse(t, &e, i, &reader, uses_op(t, u)))
        u = uses_next(t, u);
    return uses_count(t, x) && u < 0;
}

/* Unites op i and its readers in a group.  Its result is saved if the backward pass reads it. */
static void group_op(const ckpt_tape *t, struct groups *g, int32_t i)
{
    const struct op *a = &t->ops.data[i];
    const int32_t x = op_out(t, a, 0);
    int64_t saved = 0;
    for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u)) {
        const int32_t j = uses_op(t, u), from = root_of(g, i), to = root_of(g, j);
        if (from != to) {
            g->parent[from] = to;
            g->of[to].saved += g->of[from].saved;
        }
        if (a->phase == PHASE_FORWARD && t->ops.data[j].phase == PHASE_BACKWARD)
            saved = desc_bytes(&t->tensors.data[x].desc);
    }
    g->of[root_of(g, i)].saved += saved;
}

/* count: adds up the operands of op i from outside its group; else extends the lifetime of those
 * that pay off. */
static void keep_operands(struct fusion *f, struct groups *g, int32_t i, bool count)
{
    const ckpt_tape *t = f->t;
    const struct op *o = &t->ops.data[i];
    const int32_t root = root_of(g, i);
    struct group *group = &g->of[root];
    for (int k = 0; k < o->n_in && group->saved > 0; k++) {
        const int32_t x = op_in(t, o, k);
        if (x <= 0 || (t->tensors.data[x].op >= 0 && g->fusable[t->tensors.data[x].op]))
            continue;
        const int32_t s = t->tensors.data[x].storage;
        const bool is_resident =
            t->storages.data[s].kind == STORAGE_VALUE && !t->env.sharing.layout;
        if (is_resident || f->kept[s] >= group->last)
            continue;
        if (!count && 2 * group->kept <= group->saved)
            f->kept[s] = group->last;
        else if (count && g->seen[s] != root + 1)
            group->kept += desc_bytes(&t->tensors.data[x].desc);
        g->seen[s] = root + 1;
    }
}

static void keep_all(struct fusion *f, struct groups *g)
{
    const int32_t n = f->t->n_ops;
    for (int32_t i = 0; i < n; i++) {
        g->parent[i] = i;
        g->fusable[i] = is_fusable(f->t, i);
    }
    for (int32_t i = 0; i < n; i++)
        if (g->fusable[i])
            group_op(f->t, g, i);
    for (int32_t i = 0; i < n; i++)
        g->of[root_of(g, i)].last = i;
    for (int32_t i = 0; i < n; i++)
        keep_operands(f, g, i, true);
    for (int32_t i = 0; i < n; i++)
        keep_operands(f, g, i, false);
}

static int find_groups(struct fusion *f)
{
    const size_t n = (size_t)f->t->n_ops + 1;
    struct groups g = {.parent = malloc(n * sizeof *g.parent),
                       .of = calloc(n, sizeof *g.of),
                       .seen = calloc((size_t)f->t->n_storages + 1, sizeof *g.seen),
                       .fusable = calloc(n, sizeof *g.fusable)};
    int rc = 0;
    if (g.parent && g.of && g.seen && g.fusable)
        keep_all(f, &g);
    else
        rc = tape_fail(f->t, CKPT_ENOMEM, "no memory to merge the ops of a tape");
    free(g.parent);
    free(g.of);
    free(g.seen);
    free(g.fusable);
    return rc;
}

/* ---- changing the tape ----------------------------------------------------------------------- */

/* Replaces op j by its fusion with a. */
static int replace(struct fusion *f, const struct expr_merged *merged, const struct op *a,
                   int32_t j)
{
    ckpt_tape *t = f->t;
    const int32_t out = op_out(t, &t->ops.data[j], 0);
    int rc = expr_replace_op(t, j, merged, &out, 1);
    for (int k = 0; k < merged->e.n_in && !rc; k++) {
        int32_t s = t->tensors.data[merged->in[k]].storage;
        f->kept[s] = f->kept[s] > j ? f->kept[s] : j;
    }
    if (!rc)
        tape_merge_lines(a, &t->ops.data[j]);
    return rc;
}

/* Fuses op i into its readers if that is legal and pays off. */
static int fuse_op(struct fusion *f, int32_t i)
{
    ckpt_tape *t = f->t;
    const struct op *a = &t->ops.data[i];
    struct expr e, eb;
    struct expr_merged merged[MAX_READERS];
    int32_t reader[MAX_READERS];
    int n = 0;
    if (!expr_of_op(t, a, &e) || (f->only_rows && !e.reduced) || !is_private(t, op_out(t, a, 0)))
        return 0;
    int32_t x = op_out(t, a, 0);
    for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u)) {
        const int32_t j = uses_op(t, u);
        if (n && reader[n - 1] == j) /* b reads x twice */
            continue;
        const struct op *b = &t->ops.data[j];
        if (n == MAX_READERS || !expr_of_op(t, b, &eb) || !can_fuse(t, &e, i, &eb, j) ||
            !merge(t, &e, a, &eb, b, &merged[n]))
            return 0;
        reader[n++] = j;
    }
    if (!n || !pays(f, &e, i, reader, n))
        return 0;
    int rc = 0;
    for (int k = 0; k < n && !rc; k++)
        rc = replace(f, &merged[k], a, reader[k]);
    if (!rc)
        tape_remove_op(t, i);
    f->fused += !rc;
    return rc;
}

static int run_round(struct fusion *f)
{
    const ckpt_tape *t = f->t;
    f->kept = calloc((size_t)t->n_storages + 1, sizeof *f->kept);
    if (!f->kept)
        return tape_fail(f->t, CKPT_ENOMEM, "no memory to merge the ops of a tape");
    for (int32_t s = 0; s < t->n_storages; s++)
        f->kept[s] = uses_last_reader(t, s);
    int rc = find_groups(f);
    for (int32_t i = 0; i < t->n_ops && !rc; i++)
        rc = fuse_op(f, i);
    free(f->kept);
    return rc;
}

/* After the first round only programs with sums are fused, until no more can be. */
int pass_fuse(const struct compilation *c)
{
    int rc = 0, fused = 1;
    for (bool rows = false; fused && !rc; rows = true) {
        struct fusion f = {.t = c->tape, .only_rows = rows};
        rc = run_round(&f);
        fused = f.fused;
    }
    return rc;
}
