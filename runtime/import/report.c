/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the ops of a program.  A call is folded if no operand depends on an input, a parameter or
 * a buffer that a step changes, and it draws no random numbers.  This is decided from the names
 * alone: a write into a part of a constant makes what is read of it later no constant, which is not
 * followed here, so that a few calls more are counted as folded than the recorder folds.
 */
#include "import/report.h"
#include <stdlib.h>
#include <string.h>
#include "import/program_read.h"
#include "import/run.h"

/* ---- constants ------------------------------------------------------------------------------- */

/* Which values of a graph are constants. */
struct constants {
    const struct pt2_graph *graph;
    bool *is;
};

static bool is_random(const char *target)
{
    return strstr(target, "rand") || strstr(target, "dropout") || strstr(target, "bernoulli") ||
           strstr(target, "multinomial") || strstr(target, "normal") || strstr(target, "uniform");
}

static bool arg_is_constant(const struct constants *c, const struct pt2_arg *a)
{
    if (a->kind == ARG_VALUE)
        return c->is[a->value];
    for (int i = 0; a->kind == ARG_LIST && i < a->list.n; i++)
        if (!arg_is_constant(c, &a->list.item[i]))
            return false;
    return a->kind != ARG_GRAPH;
}

static bool node_is_constant(const struct constants *c, const struct pt2_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!arg_is_constant(c, &n->in[i].arg))
            return false;
    return !is_random(n->target);
}

static void set_result(const struct constants *c, const struct pt2_arg *a, bool constant)
{
    if (a->kind == ARG_VALUE)
        c->is[a->value] = constant;
    for (int i = 0; a->kind == ARG_LIST && i < a->list.n; i++)
        set_result(c, &a->list.item[i], constant);
}

/* ---- uses ------------------------------------------------------------------------------------ */

static int count_nodes(const struct pt2_graph *g)
{
    int n = g->n_nodes;

    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k].arg.kind == ARG_GRAPH)
                n += count_nodes(g->node[i].in[k].arg.graph);
    return n;
}

static void add_use(struct import_report *r, const struct pt2_node *n, bool folded)
{
    r->use[r->n_uses++] = (struct op_use){n->target, n, 1, folded, run_knows(n->target)};
    r->calls++;
    r->folded += folded;
}

static int add_graph(struct import_report *r, const struct pt2_graph *g, const bool *inputs);

/* Sub-graphs of a node: their inputs count as no constants. */
static int add_inner(struct import_report *r, const struct pt2_node *n)
{
    int rc = 0;

    for (int k = 0; k < n->n_in && !rc; k++)
        if (n->in[k].arg.kind == ARG_GRAPH)
            rc = add_graph(r, n->in[k].arg.graph, NULL);
    return rc;
}

/* inputs: which of the graph's are constants; NULL: none. */
static int add_graph(struct import_report *r, const struct pt2_graph *g, const bool *inputs)
{
    struct constants c = {g, calloc((size_t)g->n_values + 1, sizeof(bool))};
    int rc = c.is ? 0 : error_set(CKPT_ENOMEM, "%s: no memory for a report", r->program.path);

    for (int i = 0; i < g->n_in && !rc; i++)
        set_result(&c, &g->in[i], inputs && inputs[i]);
    for (int32_t i = 0; i < g->n_nodes && !rc; i++) {
        const struct pt2_node *n = &g->node[i];
        bool constant = node_is_constant(&c, n);
        for (int k = 0; k < n->n_out; k++)
            set_result(&c, &n->out[k], constant);
        add_use(r, n, constant);
        rc = add_inner(r, n);
    }
    free(c.is);
    return rc;
}

static int by_target(const void *a, const void *b)
{
    const struct op_use *x = a, *y = b;
    int order = strcmp(x->target, y->target);

    return order ? order : x->first < y->first ? -1 : x->first > y->first;
}

/* Joins the calls of each op. */
static void join_uses(struct import_report *r)
{
    int n = 0;

    qsort(r->use, (size_t)r->n_uses, sizeof *r->use, by_target);
    for (int i = 0; i < r->n_uses; i++) {
        struct op_use *last = n ? &r->use[n - 1] : NULL;
        if (last && !strcmp(last->target, r->use[i].target)) {
            last->calls++;
            last->folded += r->use[i].folded;
        } else {
            r->use[n++] = r->use[i];
        }
    }
    r->n_uses = n;
}

/* Constants, and buffers that no file of weights has: a step that changes one writes it in place.
 */
static int count_ops(struct import_report *r)
{
    const struct pt2_program *p = &r->program;
    bool *inputs = calloc((size_t)p->n_in + 1, sizeof *inputs);

    r->use = calloc((size_t)count_nodes(p->graph) + 1, sizeof *r->use);
    int rc = inputs && r->use ? 0 : error_set(CKPT_ENOMEM, "%s: no memory for a report", p->path);
    for (int i = 0; i < p->n_in && !rc; i++)
        inputs[i] = p->in[i].kind == PT2_CONSTANT || p->in[i].kind == PT2_CONSTANT_INPUT ||
                    (p->in[i].kind == PT2_BUFFER && !p->in[i].persistent);
    if (!rc)
        rc = add_graph(r, p->graph, inputs);
    free(inputs);
    if (!rc)
        join_uses(r);
    return rc;
}

/* ---- an archive ------------------------------------------------------------------------------ */

int import_report_make(struct import_report *r, const char *path)
{
    char name[200], member[220];
    json_t *json = NULL;

    *r = (struct import_report){0};
    int rc = archive_open(&r->archive, path);
    if (!rc)
        rc = archive_program(r->archive, name, sizeof name);
    snprintf(member, sizeof member, "models/%s.json", rc ? "" : name);
    if (!rc)
        rc = archive_json(r->archive, member, &json);
    if (!rc)
        rc = pt2_program_read(&r->program, path, json);
    if (!rc)
        rc = symbols_read(&r->symbols, &r->program);
    if (!rc)
        rc = weights_open(&r->weights, r->archive, name);
    return rc ? rc : count_ops(r);
}

void import_report_free(struct import_report *r)
{
    free(r->use);
    weights_close(r->weights);
    pt2_program_free(&r->program);
    archive_close(r->archive);
}

/* ---- dynamic dimensions ---------------------------------------------------------------------- */

static int set_size(struct import_report *r, char *text)
{
    char *equals = strchr(text, '='), *end = NULL;
    long long n = equals ? strtoll(equals + 1, &end, 10) : 0;

    if (!equals || end == equals + 1 || *end || n <= 0)
        return error_set(CKPT_EINVAL, "'%s' is not NAME=N, as in s17=8 or ids.0=8", text);
    *equals = '\0';
    return symbols_set(&r->symbols, &r->program, text, n);
}

int import_report_set_sizes(struct import_report *r, const char *text)
{
    char *copy = strdup(text), *rest = NULL;
    int rc = copy ? 0 : error_set(CKPT_ENOMEM, "no memory for '%s'", text);

    for (char *part = rc ? NULL : strtok_r(copy, ",", &rest); part && !rc;
         part = strtok_r(NULL, ",", &rest))
        rc = set_size(r, part);
    free(copy);
    return rc;
}
