/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "import/mutation.h"
#include "import/run.h"

struct scan {
    struct pt2_program *p;
    const struct pt2_node **writer;
    int rc;
};

/* The values of one graph: which input of the main graph each is memory of, or -1. */
struct memory {
    const struct pt2_graph *graph;
    int32_t *input;
};

static struct memory memory_of(struct scan *s, const struct pt2_graph *g)
{
    struct memory m = {g, heap_zeros(&s->p->heap, g->n_values, sizeof *m.input)};

    for (int32_t i = 0; m.input && i < g->n_values; i++)
        m.input[i] = -1;
    s->rc = m.input ? s->rc : CKPT_ENOMEM;
    return m;
}

static int32_t input_of(const struct memory *m, const struct pt2_arg *a)
{
    return a && a->kind == ARG_VALUE ? m->input[a->value] : -1;
}

static void set_input(struct memory *m, const struct pt2_arg *to, int32_t input)
{
    for (int k = 0; to->kind == ARG_LIST && k < to->list.n; k++)
        set_input(m, &to->list.item[k], input);
    if (to->kind == ARG_VALUE)
        m->input[to->value] = input;
}

static void note_write(struct scan *s, const struct memory *m, const struct pt2_node *n,
                       const char *argument)
{
    const int32_t input = input_of(m, pt2_arg_find(n, argument));

    if (input >= 0 && !s->writer[input])
        s->writer[input] = n;
}

/* A result of a view is memory of what it looks at. */
static void set_view(const struct op *o, struct memory *m, const struct pt2_node *n,
                     const struct pt2_arg *to, int *part)
{
    for (int k = 0; to->kind == ARG_LIST && k < to->list.n; k++)
        set_view(o, m, n, &to->list.item[k], part);
    if (to->kind != ARG_VALUE)
        return;
    const struct pt2_arg *from = viewed_argument(n, (*part)++);
    if (from && (!o->is_copy || !o->is_copy(n, &m->graph->value[from->value].tensor,
                                            &m->graph->value[to->value].tensor)))
        m->input[to->value] = m->input[from->value];
}

static void scan_graph(struct scan *s, struct memory *m);

/* A region's graph has the arguments behind it as inputs. */
static void scan_region(struct scan *s, struct memory *m, const struct pt2_node *n, int at)
{
    const struct pt2_graph *g = n->in[at].arg.graph;
    const bool lists = n->n_out == 1 && n->out[0].kind == ARG_LIST;
    const struct pt2_arg *to = lists ? n->out[0].list.item : n->out;
    const int n_to = lists ? n->out[0].list.n : n->n_out;
    struct memory inner = memory_of(s, g);

    for (int k = 0; !s->rc && k < g->n_in && at + 1 + k < n->n_in; k++)
        set_input(&inner, &g->in[k], input_of(m, &n->in[at + 1 + k].arg));
    if (!s->rc)
        scan_graph(s, &inner);
    for (int k = 0; !s->rc && k < n_to && k < g->n_out; k++)
        set_input(m, &to[k], input_of(&inner, &g->out[k]));
}

static void scan_node(struct scan *s, struct memory *m, const struct pt2_node *n)
{
    const int32_t input = input_of(m, pt2_arg_find(n, run_changed(n)));
    bool in_place = false;

    if (!strcmp(n->target, "torch.ops.aten.batch_norm.default")) { /* without a word */
        note_write(s, m, n, "running_mean");
        note_write(s, m, n, "running_var");
    }
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k].arg.kind == ARG_GRAPH)
            scan_region(s, m, n, k);
    const struct op *o = run_find(n->target, &in_place);
    int part = 0;
    if (in_place)
        note_write(s, m, n, run_changed(n));
    for (int k = 0; k < n->n_out; k++) {
        if (in_place)
            set_input(m, &n->out[k], input);
        else if (o && o->put)
            set_view(o, m, n, &n->out[k], &part);
    }
}

static void scan_graph(struct scan *s, struct memory *m)
{
    for (int32_t i = 0; !s->rc && i < m->graph->n_nodes; i++)
        scan_node(s, m, &m->graph->node[i]);
}

int mutation_find(struct pt2_program *p, const struct pt2_node ***writer)
{
    struct scan s = {.p = p};
    struct memory m = memory_of(&s, p->graph);

    s.writer = heap_zeros(&p->heap, p->graph->n_values, sizeof *s.writer);
    s.rc = s.writer ? s.rc : CKPT_ENOMEM;
    for (int k = 0; !s.rc && k < p->n_in; k++)
        if (p->in[k].value >= 0)
            m.input[p->in[k].value] = p->in[k].value;
    if (!s.rc)
        scan_graph(&s, &m);
    *writer = s.writer;
    return s.rc;
}
