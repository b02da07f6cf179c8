/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt import: what is in a .pt2 archive of PyTorch, and whether it can be trained here. */
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/import_graph.h"

struct import_options {
    const char *file, *graph_out, *c_out, *dim, *machine;
    bool report, help;
};

#define ROW(...) CKPT_OPTION(struct import_options, __VA_ARGS__)

static const struct ckpt_option import_table[] = {
    ROW("report", FLAG, report, NULL, "list every parameter and every op, not only their numbers"),
    ROW("graph-out", STRING, graph_out, "FILE",
        "write the graph of a training step with AdamW, for ckpt plan"),
    ROW("c-out", STRING, c_out, "FILE.c",
        "write the recorder of the training step as C that compiles against ckpt.h and records the "
        "same tape; large constants go into FILE.safetensors (default: not written)"),
    ROW("dim", STRING, dim, "NAME=N",
        "sizes of dynamic dimensions, joined by commas: s17=8, or by an input and its axis, "
        "ids.0=8 "
        "(default: those of the export)"),
    ROW("machine", STRING, machine, "NAME",
        "with --graph-out: the machine file whose device computes the step (default: the CPU)"),
    ROW("help", FLAG, help, NULL, "print this text (-h)"),
    {0},
};

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* A text of the archive, fit for a terminal; valid until the next two calls. */
static const char *shown(const char *text)
{
    static char buffer[2][400];
    static int next;
    char *dst = buffer[next++ % 2];

    return text_shown(text, dst, sizeof buffer[0]);
}

static void print_size(const struct import_report *r, const struct pt2_size *size)
{
    int64_t n;

    if (symbols_value(&r->symbols, size, &n))
        printf("?");
    else
        printf("%lld", (long long)n);
    for (int i = 0; size->expr && i < r->symbols.n; i++)
        if (strstr(size->expr, r->symbols.at[i].name))
            printf(" (%s)", shown(r->symbols.at[i].name));
}

static void print_tensor(const struct import_report *r, int32_t value)
{
    const struct pt2_value *v = &r->program.graph->value[value];

    if (v->kind != PT2_TENSOR_VALUE) {
        printf("  %-32s a number\n", shown(v->name));
        return;
    }
    printf("  %-32s %s [", shown(v->name), pt2_dtype_name(v->tensor.dtype));
    for (int i = 0; i < v->tensor.ndim; i++) {
        fputs(i ? ", " : "", stdout);
        print_size(r, &v->tensor.size[i]);
    }
    puts("]");
}

static void print_inputs(const struct import_report *r)
{
    const struct pt2_program *p = &r->program;

    puts("inputs");
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].kind == PT2_USER_INPUT && p->in[i].value >= 0)
            print_tensor(r, p->in[i].value);
    puts("outputs");
    for (int i = 0; i < p->n_out; i++)
        if (p->out[i].kind <= PT2_LOSS_OUTPUT && p->out[i].arg.kind == ARG_VALUE)
            print_tensor(r, p->out[i].arg.value);
    if (r->symbols.n)
        puts("dynamic dimensions");
    for (int i = 0; i < r->symbols.n; i++) {
        const struct symbol *s = &r->symbols.at[i];
        printf("  %-32s %lld, ", shown(s->name), (long long)s->n);
        if (s->max == INT64_MAX)
            printf("from %lld on\n", (long long)s->min);
        else
            printf("%lld to %lld\n", (long long)s->min, (long long)s->max);
    }
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Whether an input before this one is the same memory. */
static bool is_tied(const struct import_report *r, int i, const struct weight *w)
{
    const struct pt2_program *p = &r->program;

    for (int k = 0; k < i; k++) {
        const struct weight *other =
            p->in[k].kind == p->in[i].kind ? weights_find(r->weights, p->in[k].name) : NULL;
        if (other && weights_same(other, w))
            return true;
    }
    return false;
}

static bool names(const struct pt2_arg *a, int32_t value)
{
    for (int k = 0; a->kind == ARG_LIST && k < a->list.n; k++)
        if (names(&a->list.item[k], value))
            return true;
    return a->kind == ARG_VALUE && a->value == value;
}

static bool is_read(const struct pt2_graph *g, int32_t value)
{
    for (int k = 0; k < g->n_out; k++)
        if (names(&g->out[k], value))
            return true;
    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (names(&g->node[i].in[k].arg, value))
                return true;
    return false;
}

/* Without values nothing tells which tensors share memory, but the program reads one of them. */
static bool is_idle(const struct import_report *r, int i, const struct weight *w)
{
    return !w->has_values && !is_read(r->program.graph, r->program.in[i].value);
}

static void print_weight(const struct pt2_tensor *t, const struct weight *w, bool tied)
{
    char shape[200];

    shape_format(shape, sizeof shape, w->ndim, w->size);
    printf("  %-48s %s %s%s%s%s\n", shown(w->name), pt2_dtype_name(w->code), shape,
           t->requires_grad ? "" : ", not trained", tied ? ", tied" : "",
           w->has_values ? "" : ", no values");
}

/* The tensors of a kind: a line with their number, and in a report a line each. */
static void print_weights(const struct import_report *r, enum pt2_input_kind kind,
                          const char *title, bool list)
{
    const struct pt2_program *p = &r->program;
    int64_t n = 0, values = 0, bytes = 0, ties = 0, empty = 0, idle = 0;

    for (int i = 0; i < p->n_in; i++) {
        const struct weight *w =
            p->in[i].kind == kind ? weights_find(r->weights, p->in[i].name) : NULL;
        if (!w)
            continue;
        const bool tied = is_tied(r, i, w), unread = is_idle(r, i, w);
        n++;
        ties += tied;
        idle += unread;
        empty += !w->has_values;
        values += tied || unread ? 0 : w->numel;
        bytes += tied || unread || !w->dtype ? 0 : w->numel * w->dtype->size;
    }
    printf("%-12s %lld tensors, %lld values, %s", title, (long long)n, (long long)values,
           human_bytes(bytes));
    if (ties)
        printf("; %lld share the memory of another", (long long)ties);
    if (idle)
        printf("; %lld that no call reads, tied or unused, not counted", (long long)idle);
    puts(empty ? "; exported without values: load them from a file of weights" : "");
    for (int i = 0; i < p->n_in && list; i++) {
        const struct weight *w =
            p->in[i].kind == kind ? weights_find(r->weights, p->in[i].name) : NULL;
        if (w)
            print_weight(&p->graph->value[p->in[i].value].tensor, w, is_tied(r, i, w));
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */

static const char *short_target(const char *target)
{
    static const char start[] = "torch.ops.";

    return shown(strncmp(target, start, strlen(start)) ? target : target + strlen(start));
}

static void print_ops(const struct import_report *r, bool list)
{
    printf("%-12s %d calls of %d ops; %d read constants alone and are computed while loading\n",
           "ops", r->calls, r->n_uses, r->folded);
    for (int i = 0; i < r->n_uses && list; i++) {
        const struct op_use *u = &r->use[i];
        printf("  %-48s %5d calls", short_target(u->target), u->calls);
        if (u->folded)
            printf(", %d while loading", u->folded);
        puts(u->known ? "" : ", not supported");
    }
}

/* Every op that is missing, with a place that calls it; returns their number. */
static int print_missing(const struct import_report *r)
{
    char place[400];
    int n = 0;

    for (int i = 0; i < r->n_uses; i++) {
        const struct op_use *u = &r->use[i];
        if (u->known)
            continue;
        if (!n++)
            puts("not supported");
        pt2_node_place(u->first, place, sizeof place);
        printf("  %-32s %d calls, the first in %s\n", short_target(u->target), u->calls,
               shown(place));
    }
    if (!n)
        puts("every op is supported");
    return n;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run(const struct import_options *o, struct import_report *r)
{
    if (import_report_make(r, o->file))
        return cli_fail("%s", ckpt_error(NULL));
    if (o->dim && import_report_set_sizes(r, o->dim))
        return cli_fail("--dim %s: %s", o->dim, ckpt_error(NULL));
    printf("%s: exported by PyTorch %s\n", o->file, shown(r->program.torch_version));
    print_inputs(r);
    print_weights(r, PT2_PARAMETER, "parameters", o->report);
    print_weights(r, PT2_BUFFER, "buffers", o->report);
    print_weights(r, PT2_CONSTANT, "constants", o->report);
    print_ops(r, o->report);
    int missing = print_missing(r);
    if (missing)
        return cli_fail("%s: cannot be trained: %d ops are not supported", o->file, missing);
    int rc = o->graph_out ? import_graph_write(r, o->machine, NULL, o->graph_out) : 0;
    return !rc && o->c_out ? import_source_write(r, o->c_out) : rc;
}

int cli_import(int argc, char **argv)
{
    struct import_options o = {0};
    struct import_report r = {0};

    if (argc > 1 && argv[1][0] != '-') { /* the file stands before the options */
        o.file = argv[1];
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    int rc = cli_parse(import_table, &o, &o.help, argc, argv, "import FILE.pt2 [option]...");
    if (rc)
        return rc < 0 ? 0 : rc;
    if (!o.file)
        return cli_usage("the archive is missing: ckpt import FILE.pt2 [option]...");
    if (o.machine && !o.graph_out)
        return cli_usage("--machine is for --graph-out");
    const struct ckpt_path paths[] = {{"the archive", o.file, CKPT_PATH_INPUT, 0},
                                      {"--machine", o.machine, CKPT_PATH_INPUT, 0},
                                      {"--graph-out", o.graph_out, CKPT_PATH_FILE, 0},
                                      {"--c-out", o.c_out, CKPT_PATH_FILE, 0}};
    rc = cli_check_paths(paths, sizeof paths / sizeof *paths);
    if (!rc)
        rc = run(&o, &r);
    import_report_free(&r);
    return rc;
}
