/* SPDX-License-Identifier: Apache-2.0 */
/* Reads graphs, the signature and the ranges of dynamic dimensions. */
#include <string.h>
#include "import/program_arg.h"
#include "import/program_read.h"

/* ---- values ---------------------------------------------------------------------------------- */

static int read_size(const struct pt2_reader *r, const json_t *from, struct pt2_size *to)
{
    const json_t *n = json_object_get(from, "as_int"), *e = json_object_get(from, "as_expr");

    if (e) {
        to->expr = json_string_value(json_object_get(e, "expr_str"));
        n = json_object_get(json_object_get(e, "hint"), "as_int");
        if (!to->expr)
            return pt2_bad(r, "a size has no expression in", "as_expr");
    }
    if (!json_is_integer(n) && !to->expr)
        return pt2_bad(r, "a size is no number in", "tensor_values");
    to->n = json_is_integer(n) ? json_integer_value(n) : 0;
    return 0;
}

static int read_sizes(struct pt2_reader *r, const json_t *from, int n, const struct pt2_size **to)
{
    struct pt2_size *size = heap_zeros(&r->p->heap, n, sizeof *size);
    int rc = size ? 0 : CKPT_ENOMEM;

    for (int i = 0; !rc && i < n; i++)
        rc = read_size(r, json_array_get(from, (size_t)i), &size[i]);
    *to = size;
    return rc;
}

static int read_tensor(struct pt2_reader *r, const char *name, const json_t *from,
                       struct pt2_tensor *to)
{
    const json_t *sizes = json_object_get(from, "sizes"),
                 *strides = json_object_get(from, "strides");
    const size_t n = json_array_size(sizes);

    if (!json_is_array(sizes) || json_array_size(strides) != n || n > PT2_AXES)
        return pt2_bad(r, "sizes and strides do not fit in tensor", name);
    if (!json_is_integer(json_object_get(from, "dtype")))
        return pt2_bad(r, "there is no dtype in tensor", name);
    to->ndim = (int)n;
    to->dtype = (int)json_integer_value(json_object_get(from, "dtype"));
    to->requires_grad = json_is_true(json_object_get(from, "requires_grad"));
    int rc = read_sizes(r, sizes, to->ndim, &to->size);
    if (!rc)
        rc = read_sizes(r, strides, to->ndim, &to->stride);
    return rc ? rc : read_size(r, json_object_get(from, "storage_offset"), &to->offset);
}

/* The values of one kind: tensors, or numbers that nodes compute. */
static int read_values(struct pt2_reader *r, const json_t *from, enum pt2_value_kind kind)
{
    const char *name;
    json_t *of;

    json_object_foreach((json_t *)(uintptr_t)from, name, of)
    {
        struct pt2_value *v = &r->value[r->n_values];
        v->name = name;
        v->kind = kind;
        if (json_object_get(r->index, name))
            return pt2_bad(r, "two values have the name", name);
        if (json_object_set_new(r->index, name, json_integer(r->n_values)))
            return error_set(CKPT_ENOMEM, "there is no memory for the names of %s", r->path);
        int rc = kind == PT2_TENSOR_VALUE ? read_tensor(r, name, of, &v->tensor) : 0;
        if (rc)
            return rc;
        r->n_values++;
    }
    return 0;
}

static const char *const value_lists[] = {"tensor_values", "sym_int_values", "sym_float_values",
                                          "sym_bool_values"};

static int read_all_values(struct pt2_reader *r, const json_t *graph)
{
    size_t n = 0;
    int rc = 0;

    for (int i = 0; i < 4; i++)
        n += json_object_size(json_object_get(graph, value_lists[i]));
    if (n > INT32_MAX)
        return pt2_bad(r, "there are too many values in", "graph");
    r->index = json_object();
    r->value = heap_zeros(&r->p->heap, (int64_t)n, sizeof *r->value);
    r->defined = heap_zeros(&r->p->heap, (int64_t)n, 1);
    if (!r->index || !r->value || !r->defined)
        return error_set(CKPT_ENOMEM, "there is no memory for the values of %s", r->path);
    for (int i = 0; !rc && i < 4; i++)
        rc = read_values(r, json_object_get(graph, value_lists[i]), (enum pt2_value_kind)i);
    return rc;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* "L__a,a,Class;L__a.b,a.b,Class": the second part of the last one. */
static int read_module(struct pt2_reader *r, const char *stack, struct pt2_node *n)
{
    const char *last = strrchr(stack, ';');
    const char *path = strchr(last ? last : stack, ',');
    const char *end = path ? strchr(path + 1, ',') : NULL;

    n->module = "";
    if (!end)
        return 0;
    n->module = heap_text(&r->p->heap, path + 1, (size_t)(end - path - 1));
    return n->module ? 0 : CKPT_ENOMEM;
}

static int read_inputs(struct pt2_reader *r, const json_t *from, struct pt2_node *n)
{
    const size_t count = json_array_size(from);
    struct pt2_named_arg *in = heap_zeros(&r->p->heap, (int64_t)count, sizeof *in);
    int rc = in ? 0 : CKPT_ENOMEM;

    n->in = in;
    n->n_in = (int)count;
    for (size_t i = 0; !rc && i < count; i++) {
        const json_t *one = json_array_get(from, i);
        in[i].name = pt2_text(one, "name");
        rc = pt2_read_arg(r, json_object_get(one, "arg"), &in[i].arg);
    }
    return rc;
}

static int read_node(struct pt2_reader *r, const json_t *from, struct pt2_node *n)
{
    const json_t *metadata = json_object_get(from, "metadata");

    n->target = pt2_text(from, "target");
    n->trace = pt2_text(metadata, "stack_trace");
    if (!*n->target)
        return pt2_bad(r, "a node has no target in", "nodes");
    int rc = read_module(r, pt2_text(metadata, "nn_module_stack"), n);
    if (!rc)
        rc = read_inputs(r, json_object_get(from, "inputs"), n);
    return rc ? rc : pt2_define_args(r, json_object_get(from, "outputs"), &n->out, &n->n_out);
}

static int read_graph(struct pt2_reader *r, const json_t *from, const struct pt2_graph **to)
{
    const json_t *nodes = json_object_get(from, "nodes");
    const size_t count = json_array_size(nodes);
    struct pt2_graph *g = heap_zeros(&r->p->heap, 1, sizeof *g);
    struct pt2_node *node = heap_zeros(&r->p->heap, (int64_t)count, sizeof *node);
    int rc = g && node ? read_all_values(r, from) : CKPT_ENOMEM;

    if (!rc)
        rc = pt2_define_args(r, json_object_get(from, "inputs"), &g->in, &g->n_in);
    for (size_t i = 0; !rc && i < count; i++)
        rc = read_node(r, json_array_get(nodes, i), &node[i]);
    if (!rc)
        rc = pt2_read_args(r, json_object_get(from, "outputs"), &g->out, &g->n_out);
    json_decref(r->index);
    if (rc)
        return rc;
    g->value = r->value;
    g->n_values = r->n_values;
    g->node = node;
    g->n_nodes = (int32_t)count;
    *to = g;
    return 0;
}

/* ---- the signature --------------------------------------------------------------------------- */

struct kind_name {
    const char *kind, *name; /* the key of the kind, and in it that of the name */
};

static const struct kind_name input_kinds[] = {{"parameter", "parameter_name"},
                                               {"buffer", "buffer_name"},
                                               {"tensor_constant", "tensor_constant_name"},
                                               {"constant_input", "name"},
                                               {"user_input", NULL}};
static const struct kind_name output_kinds[] = {{"user_output", NULL},
                                                {"loss_output", NULL},
                                                {"buffer_mutation", "buffer_name"},
                                                {"parameter_mutation", "parameter_name"},
                                                {"", NULL}};
static const enum pt2_output_kind output_kind[] = {PT2_USER_OUTPUT, PT2_LOSS_OUTPUT, PT2_MUTATION,
                                                   PT2_MUTATION, PT2_OTHER_OUTPUT};

static const char *only_key(const json_t *object)
{
    void *at = json_object_iter((json_t *)(uintptr_t)object);

    return json_object_size(object) == 1 ? json_object_iter_key(at) : "";
}

static int find_kind(const struct kind_name *kinds, int n, const char *key)
{
    int i = 0;

    while (i < n && strcmp(kinds[i].kind, key) != 0)
        i++;
    return i;
}

static int read_input(const struct pt2_reader *r, const json_t *spec, const struct pt2_graph *g,
                      int i, struct pt2_input *to)
{
    const char *key = only_key(spec);
    const int kind = find_kind(input_kinds, 5, key);
    const json_t *of = json_object_get(spec, key);
    const struct pt2_arg *a = &g->in[i];

    if (kind == 5)
        return pt2_bad(r, "nothing here reads an input of the kind", key);
    to->kind = (enum pt2_input_kind)kind;
    to->persistent = json_is_true(json_object_get(of, "persistent"));
    to->value = a->kind == ARG_VALUE ? a->value : -1;
    if (to->value < 0 && to->kind < PT2_CONSTANT_INPUT)
        return pt2_bad(r, "no tensor is the input of the kind", key);
    if (input_kinds[kind].name)
        to->name = pt2_text(of, input_kinds[kind].name);
    else
        to->name = to->value < 0 ? "" : g->value[to->value].name;
    return *to->name || kind >= PT2_CONSTANT_INPUT ? 0 : pt2_bad(r, "there is no name in", key);
}

static int read_inputs_of_program(struct pt2_reader *r, const json_t *specs)
{
    const struct pt2_graph *g = r->p->graph;
    struct pt2_input *in = heap_zeros(&r->p->heap, g->n_in, sizeof *in);
    int rc = in ? 0 : CKPT_ENOMEM;

    if (json_array_size(specs) != (size_t)g->n_in)
        return pt2_bad(r, "the graph has other inputs than", "input_specs");
    for (int i = 0; !rc && i < g->n_in; i++)
        rc = read_input(r, json_array_get(specs, (size_t)i), g, i, &in[i]);
    r->p->in = in;
    r->p->n_in = g->n_in;
    return rc;
}

static int read_outputs_of_program(struct pt2_reader *r, const json_t *specs)
{
    const struct pt2_graph *g = r->p->graph;
    struct pt2_output *out = heap_zeros(&r->p->heap, g->n_out, sizeof *out);

    if (!out)
        return CKPT_ENOMEM;
    if (json_array_size(specs) != (size_t)g->n_out)
        return pt2_bad(r, "the graph has other outputs than", "output_specs");
    for (int i = 0; i < g->n_out; i++) {
        const json_t *spec = json_array_get(specs, (size_t)i);
        const char *key = only_key(spec);
        const int kind = find_kind(output_kinds, 4, key);
        const char *name = output_kinds[kind].name;
        out[i].kind = output_kind[kind];
        out[i].name = name ? pt2_text(json_object_get(spec, key), name) : key;
        out[i].arg = g->out[i];
    }
    r->p->out = out;
    r->p->n_out = g->n_out;
    return 0;
}

static int64_t bound(const json_t *range, const char *key, int64_t none)
{
    const json_t *n = json_object_get(range, key);

    return json_is_integer(n) ? json_integer_value(n) : none;
}

static int read_ranges(struct pt2_reader *r, const json_t *from)
{
    struct pt2_range *range =
        heap_zeros(&r->p->heap, (int64_t)json_object_size(from), sizeof *range);
    const char *symbol;
    json_t *of;

    if (!range)
        return CKPT_ENOMEM;
    r->p->range = range;
    json_object_foreach((json_t *)(uintptr_t)from, symbol, of)
    {
        range[r->p->n_ranges++] = (struct pt2_range){.symbol = symbol,
                                                     .min = bound(of, "min_val", 0),
                                                     .max = bound(of, "max_val", INT64_MAX)};
    }
    return 0;
}

/* ---- the program ----------------------------------------------------------------------------- */

enum { SCHEMA_MAJOR = 8 };

static int check_version(const struct pt2_reader *r)
{
    const json_t *version = json_object_get(r->p->json, "schema_version");
    const json_t *major = json_object_get(version, "major");

    if (!json_is_integer(major))
        return pt2_bad(r, "there is no", "schema_version");
    if (json_integer_value(major) != SCHEMA_MAJOR)
        return error_set(CKPT_EFORMAT,
                         "%s: its format has version %lld, and version %d can be read: export with "
                         "PyTorch 2.9 or a later one of that format",
                         r->path, (long long)json_integer_value(major), SCHEMA_MAJOR);
    return 0;
}

static int read_program(struct pt2_reader *r)
{
    struct pt2_program *p = r->p;
    const json_t *module = json_object_get(p->json, "graph_module");
    const json_t *signature = json_object_get(module, "signature");
    int rc = check_version(r);

    p->torch_version = pt2_text(p->json, "torch_version");
    if (!rc && !json_is_object(json_object_get(module, "graph")))
        rc = pt2_bad(r, "there is no", "graph");
    if (!rc)
        rc = read_graph(r, json_object_get(module, "graph"), &p->graph);
    if (!rc)
        rc = read_inputs_of_program(r, json_object_get(signature, "input_specs"));
    if (!rc)
        rc = read_outputs_of_program(r, json_object_get(signature, "output_specs"));
    return rc ? rc : read_ranges(r, json_object_get(p->json, "range_constraints"));
}

int pt2_program_read(struct pt2_program *p, const char *path, json_t *json)
{
    *p = (struct pt2_program){.json = json};
    p->path = heap_text(&p->heap, path, strlen(path));
    struct pt2_reader r = {.p = p, .path = p->path, .read_graph = read_graph};
    int rc = p->path ? read_program(&r) : CKPT_ENOMEM;
    if (rc)
        pt2_program_free(p);
    return rc;
}
