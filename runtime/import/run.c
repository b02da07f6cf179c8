/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "import/math.h"
#include "import/numbers.h"
#include "import/ops.h"
#include "import/run.h"
#include "import/views.h"

static const char ops[] = "torch.ops.";

/* ---- targets --------------------------------------------------------------------------------- */

/* What checks shapes or dtypes at run time, which are fixed here. */
static bool is_check(const char *name)
{
    static const char *const checks[] = {"aten._assert_tensor_metadata.default",
                                         "aten._assert_scalar.default", "aten._assert_async.msg",
                                         "aten.sym_constrain_range.default",
                                         "aten.sym_constrain_range_for_size.default"};

    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (!strcmp(name, checks[i]))
            return true;
    return false;
}

/* The part of a target that the tables have. */
static const char *short_name(const char *target)
{
    return strncmp(target, ops, strlen(ops)) ? target : target + strlen(ops);
}

/* "aten.add_.Tensor" is "aten.add.Tensor" in place; and so is "aten.add.out", of the argument
 * "out".
 */
static bool strip_place(const char *name, char *dst, size_t size)
{
    const char *end = strrchr(name, '.');

    if (end && !strcmp(end, ".out")) {
        snprintf(dst, size, "%.*s.Tensor", (int)(end - name), name);
        return true;
    }
    if (strncmp(name, "aten.", 5) != 0 || !end || end[-1] != '_' || end[-2] == '_')
        return false;
    snprintf(dst, size, "%.*s%s", (int)(end - name - 1), name, end);
    return true;
}

static const struct op *find_op(const char *name, bool *in_place)
{
    char functional[100];
    const struct op *o = op_find(name);

    *in_place = !o && strip_place(name, functional, sizeof functional);
    if (!*in_place)
        return o;
    o = op_find(functional);
    *in_place =
        !o || !o->put || o->put == put_same; /* other axes "in place": what follows is a view */
    return o;
}

enum region { REGION_NONE, REGION_NO_GRADIENT, REGION_AUTOCAST };

static enum region region_of(const char *name)
{
    if (!strcmp(name, "higher_order.wrap_with_set_grad_enabled"))
        return REGION_NO_GRADIENT;
    return strcmp(name, "higher_order.wrap_with_autocast") ? REGION_NONE : REGION_AUTOCAST;
}

const struct op *run_find(const char *target, bool *in_place)
{
    return find_op(short_name(target), in_place);
}

bool run_knows(const char *target)
{
    const char *name = short_name(target);
    bool in_place;

    return is_check(name) || number_find(name) || region_of(name) || find_op(name, &in_place);
}

/* ---- complex numbers ------------------------------------------------------------------------- */

/* Whether an op is right for complex numbers: on both parts alike, or it says what it does. */
static bool takes_complex(const struct op *o)
{
    static const char *const names[] = {
        "add.Tensor",   "sub.Tensor",           "neg.default",          "mul.Tensor",
        "mul.Scalar",   "sum.default",          "mean.default",         "sum.dim_IntList",
        "mean.dim",     "cat.default",          "stack.default",        "clone.default",
        "index.Tensor", "where.self",           "index_select.default", "repeat.default",
        "flip.default", "roll.default",         "zeros_like.default",   "pad_sequence.default",
        "abs.default",  "div.Tensor",           "angle.default",        "_conj_physical.default",
        "div.Scalar",   "conj_physical.default", "exp.default",
        "mm.default",   "matmul.default",       "bmm.default",          "mv.default",
        "dot.default",  "lift_fresh_copy.default"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(o->name + strlen("aten."), names[i]))
            return true;
    return strstr(o->name, "view_as_") || !strncmp(o->name, "aten.fft_", 9) ||
           !strncmp(o->name, "aten.to.", 8) ||
           (o->put && !strstr(o->name, "adjoint") && !strstr(o->name, ".mH") &&
            !strstr(o->name, "_H.") && !strstr(o->name, "einsum") && !strstr(o->name, "dropout"));
}

static bool is_complex(const struct call *c, const struct pt2_arg *a)
{
    for (int k = 0; a->kind == ARG_LIST && k < a->list.n; k++)
        if (is_complex(c, &a->list.item[k]))
            return true;
    return a->kind == ARG_VALUE && c->f->item[a->value].kind == ITEM_TENSOR &&
           pt2_is_complex(c->f->item[a->value].v->facts->dtype);
}

static void check_complex(struct call *c)
{
    for (int k = 0; k < c->node->n_in; k++)
        if (is_complex(c, &c->node->in[k].arg) && !takes_complex(c->op))
            recording_fail(c->r, CKPT_EFORMAT, "this op is not supported for complex numbers");
}

/* ---- results --------------------------------------------------------------------------------- */

/* The tensor that a view looks at. */
static struct variable *viewed(struct call *c, int part)
{
    const struct pt2_arg *a = viewed_argument(c->node, part);
    const struct item i = a ? call_item(c, a) : (struct item){.kind = ITEM_NONE};

    return i.kind == ITEM_TENSOR ? i.v : NULL;
}

static struct variable *make_result(struct call *c, int part, int32_t value)
{
    struct variable *parent = c->op->put ? viewed(c, part) : NULL;

    c->facts = &c->f->graph->value[value].tensor;
    c->dtype = c->facts->dtype;
    if (parent && c->op->is_copy && c->op->is_copy(c->node, parent->facts, c->facts))
        parent = NULL;
    if (!parent)
        variable_flush(c);
    struct variable *v = variable_new(c->r, c->facts, (struct tensor){.ndim = 0});
    struct call *kept = heap_zeros(&c->r->heap, 1, sizeof *kept);
    if (!v || !kept)
        return NULL;
    *kept = *c;
    v->call = kept;
    v->part = part;
    v->parent = parent;
    v->seen = 0;
    v->version = parent ? 0 : 1;
    v->differentiable = !parent && call_differentiable(c);
    v->uses = c->f->uses[value];
    if (c->op->acts)
        variable_read(c->r, v);
    if (!parent && !c->op->acts) {
        v->next = c->r->pending;
        c->r->pending = v;
    }
    return v;
}

static void set_result(struct call *c, const struct pt2_arg *to, int *part)
{
    for (int k = 0; to->kind == ARG_LIST && k < to->list.n; k++)
        set_result(c, &to->list.item[k], part);
    if (to->kind != ARG_VALUE || c->r->failed)
        return;
    c->f->item[to->value] =
        (struct item){.kind = ITEM_TENSOR, .v = make_result(c, *part, to->value)};
    ++*part;
}

const char *run_changed(const struct pt2_node *n)
{
    return pt2_arg_find(n, "out") ? "out" : "self";
}

/* The new value of what an op in place changes has its shape and its dtype. */
static void run_in_place(struct call *c)
{
    struct variable *self = call_variable(c, run_changed(c->node));

    if (!self) {
        recording_fail(c->r, CKPT_EFORMAT, "there is no tensor 'self'");
        return;
    }
    c->facts = self->facts;
    c->dtype = self->facts->dtype;
    if (!record_pairs(c) && !c->r->failed)
        variable_change(c, self);
    if (call_differentiable(c) && variable_detached(self))
        recording_fail(c->r, CKPT_EFORMAT, "what has a gradient is written through detach()");
    variable_storage(self)->differentiable |= call_differentiable(c);
    if (c->node->n_out && c->node->out[0].kind == ARG_VALUE)
        c->f->item[c->node->out[0].value] = (struct item){.kind = ITEM_TENSOR, .v = self};
}

/* ---- regions --------------------------------------------------------------------------------- */

static const struct pt2_arg *graph_of(const struct pt2_node *n, int *at)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].arg.kind == ARG_GRAPH) {
            *at = i;
            return &n->in[i].arg;
        }
    return NULL;
}

/* How many of these values of a region have a storage. */
static int count_names(const struct frame *inner, const struct pt2_arg *a, int n,
                       const struct variable *storage)
{
    int names = 0;

    for (int k = 0; k < n; k++) {
        const struct item *i = a[k].kind == ARG_VALUE ? &inner->item[a[k].value] : NULL;
        names += i && i->kind == ITEM_TENSOR && variable_storage(i->v) == storage;
    }
    return names;
}

/* Whether a storage is known behind the region by another name, too. */
static bool is_shared(const struct frame *inner, const struct variable *storage)
{
    const struct pt2_graph *g = inner->graph;

    return count_names(inner, g->in, g->n_in, storage) > 0 ||
           count_names(inner, g->out, g->n_out, storage) > 1;
}

/* A view without a gradient of a value of the region: what is written to it later is written to its
 * storage. */
static struct variable *detached_view(struct call *of, const struct pt2_arg *from)
{
    struct pt2_node *node = heap_zeros(&of->r->heap, 1, sizeof *node);
    struct pt2_named_arg *self = heap_zeros(&of->r->heap, 1, sizeof *self);

    if (!node || !self)
        return NULL;
    *self = (struct pt2_named_arg){"self", *from};
    *node = *of->node;
    node->target = "torch.ops.aten.detach.default";
    node->in = self;
    node->n_in = 1;
    struct call view = {.r = of->r, .f = of->f, .node = node, .op = op_find("aten.detach.default")};
    return make_result(&view, 0, from->value);
}

/* What leaves a region without gradients is a constant for differentiation. */
static void stop_gradient(struct call *of, const struct pt2_arg *from, struct item *i)
{
    struct recording *r = of->r;
    struct tensor a = i->kind == ITEM_TENSOR ? *variable_read(r, i->v) : (struct tensor){.ndim = 0};

    if (i->kind != ITEM_TENSOR || a.constant || !pt2_is_float(a.dtype) || r->failed)
        return;
    if (!is_shared(of->f, variable_storage(i->v)))
        i->v = variable_new(r, i->v->facts, tensor_of(r, a.dtype, ckpt_stop_gradient(r->t, a.x)));
    else if ((i->v = detached_view(of, from)))
        variable_read(r, i->v);
    else
        recording_fail(r, CKPT_ENOMEM, "%s", error_get());
}

static void set_outputs(struct call *c, const struct frame *inner, bool stops)
{
    const struct pt2_node *n = c->node;
    const struct pt2_graph *g = inner->graph;
    const struct pt2_arg *to = n->out;
    int count = n->n_out;

    if (count == 1 && to->kind == ARG_LIST) {
        count = to->list.n;
        to = to->list.item;
    }
    if (count != g->n_out)
        recording_fail(c->r, CKPT_EFORMAT, "a graph with %d results gives %d", g->n_out, count);
    for (int k = 0; k < count && !c->r->failed; k++) {
        struct call of = {.r = c->r, .f = (struct frame *)(uintptr_t)inner, .node = n};
        struct item i = call_item(&of, &g->out[k]);
        if (to[k].kind != ARG_VALUE)
            continue;
        if (stops)
            stop_gradient(&of, &g->out[k], &i);
        c->f->item[to[k].value] = i;
    }
}

/* autocast(device, dtype, enabled, cache, graph, ...): the dtypes of results say what it does. */
static void check_autocast(struct call *c)
{
    const struct pt2_named_arg *in = c->node->in;

    if (c->node->n_in > 2 && in[1].arg.kind == ARG_DTYPE && in[1].arg.i == PT2_F16 &&
        in[2].arg.kind == ARG_BOOL && in[2].arg.b)
        recording_fail(c->r, CKPT_EFORMAT, "autocast to float16 cannot be recorded");
}

/* set_grad_enabled(on, graph, ...) and autocast(..., graph, ...): what follows are its inputs. */
static void run_region(struct call *c, enum region region)
{
    int at = 0;
    const struct pt2_arg *a = graph_of(c->node, &at);
    struct frame *inner = heap_zeros(&c->r->heap, 1, sizeof *inner); /* as long as its results */

    if (region == REGION_AUTOCAST)
        check_autocast(c);
    if (!a || c->node->n_in - at - 1 != a->graph->n_in) {
        recording_fail(c->r, CKPT_EFORMAT, "there is no graph, or it has other inputs");
        return;
    }
    if (!inner || !frame_make(c->r, a->graph, inner))
        return;
    for (int k = 0; k < a->graph->n_in; k++)
        if (a->graph->in[k].kind == ARG_VALUE)
            inner->item[a->graph->in[k].value] = call_item(c, &c->node->in[at + 1 + k].arg);
    const struct pt2_arg *on = &c->node->in[0].arg;
    const bool before = c->r->stops, stops = on->kind == ARG_BOOL && !on->b;
    if (region == REGION_NO_GRADIENT)
        c->r->stops = stops;
    run_graph(c->r, inner);
    c->r->stops = before;
    set_outputs(c, inner, region == REGION_NO_GRADIENT && stops);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void set_number(struct call *c, const struct number *number)
{
    const struct pt2_arg *to = c->node->out;
    struct item i = number->value(c);

    if (c->node->n_out == 1 && to->kind == ARG_VALUE)
        c->f->item[to->value] = i;
}

/* Checks read nothing, and so do numbers that checks alone read. */
static bool is_idle(const struct frame *f, const struct pt2_node *node)
{
    const char *name = short_name(node->target);
    bool read = !number_find(name);

    for (int k = 0; k < node->n_out && !read; k++)
        read = node->out[k].kind != ARG_VALUE || f->uses[node->out[k].value];
    return !read || is_check(name);
}

static void run_node(struct recording *r, struct frame *f, const struct pt2_node *node)
{
    const char *name = short_name(node->target);
    struct call c = {.r = r, .f = f, .node = node};
    const enum region region = region_of(name);
    const struct number *number = number_find(name);
    bool in_place = false;
    int part = 0;

    if (is_idle(f, node))
        return;
    static const struct op none = {.name = ""};
    c.op = number || region ? &none : find_op(name, &in_place);
    if (region)
        run_region(&c, region);
    else if (number)
        set_number(&c, number);
    else if (!c.op)
        recording_fail(r, CKPT_EFORMAT, "this op is not supported");
    else if (check_complex(&c), in_place)
        run_in_place(&c);
    else
        for (int k = 0; k < node->n_out; k++)
            set_result(&c, &node->out[k], &part);
}

static void count_uses(int32_t *uses, const struct pt2_arg *a)
{
    for (int k = 0; a->kind == ARG_LIST && k < a->list.n; k++)
        count_uses(uses, &a->list.item[k]);
    if (a->kind == ARG_VALUE)
        uses[a->value]++;
}

bool frame_make(struct recording *r, const struct pt2_graph *graph, struct frame *f)
{
    f->graph = graph;
    f->item = heap_zeros(&r->heap, graph->n_values, sizeof *f->item);
    f->uses = heap_zeros(&r->heap, graph->n_values, sizeof *f->uses);
    if (!f->item || !f->uses) {
        recording_fail(r, CKPT_ENOMEM, "%s", error_get());
        return false;
    }
    for (int k = 0; k < graph->n_out; k++)
        count_uses(f->uses, &graph->out[k]);
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--)
        for (int k = 0; k < graph->node[i].n_in && !is_idle(f, &graph->node[i]); k++)
            count_uses(f->uses, &graph->node[i].in[k].arg);
    return true;
}

void run_graph(struct recording *r, struct frame *f)
{
    const struct pt2_node *outer = r->node;

    for (int32_t i = 0; i < f->graph->n_nodes && !r->failed; i++) {
        recording_enter(r, &f->graph->node[i]);
        run_node(r, f, r->node);
    }
    if (!r->failed)
        r->node = outer;
}
