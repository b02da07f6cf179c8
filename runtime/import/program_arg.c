/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of argument, by its key. */
#include <math.h>
#include <string.h>
#include "import/program_arg.h"

int pt2_bad(const struct pt2_reader *r, const char *what, const char *name)
{
    char shown[200];

    return error_set(CKPT_EFORMAT, "%s: %s '%s'", r->path, what, text_shown(name, shown, 200));
}

const char *pt2_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static int find_value(const struct pt2_reader *r, const json_t *name, int32_t *value)
{
    const char *text = json_string_value(name);
    const json_t *at = text ? json_object_get(r->index, text) : NULL;

    if (!at)
        return pt2_bad(r, "no value has the name", text ? text : "");
    *value = (int32_t)json_integer_value(at);
    return 0;
}

/* A value that is used, or with `defines` one that a node gives. */
static int read_value(struct pt2_reader *r, const json_t *name, bool defines, struct pt2_arg *to)
{
    int rc = find_value(r, name, &to->value);

    to->kind = ARG_VALUE;
    if (rc)
        return rc;
    if (defines == r->defined[to->value])
        return pt2_bad(r, defines ? "two nodes give the value" : "no node before gives the value",
                       json_string_value(name));
    r->defined[to->value] = true;
    return 0;
}

/* Numbers that are not finite are texts. */
static int read_float(const struct pt2_reader *r, const json_t *from, struct pt2_arg *to)
{
    const char *text = json_string_value(from);

    to->kind = ARG_FLOAT;
    to->f = json_number_value(from);
    if (!text)
        return json_is_number(from) ? 0 : pt2_bad(r, "there is no number in", "as_float");
    if (!strcmp(text, "NaN"))
        to->f = NAN;
    else if (!strcmp(text, "Infinity") || !strcmp(text, "-Infinity"))
        to->f = *text == '-' ? -INFINITY : INFINITY;
    else
        return pt2_bad(r, "no number is", text);
    return 0;
}

static int read_complex(const struct pt2_reader *r, const json_t *from, struct pt2_arg *to)
{
    struct pt2_arg real, imaginary;
    int rc = read_float(r, json_object_get(from, "real"), &real);

    if (!rc)
        rc = read_float(r, json_object_get(from, "imag"), &imaginary);
    if (!rc)
        *to = (struct pt2_arg){.kind = ARG_COMPLEX, .parts = {real.f, imaginary.f}};
    return rc;
}

static int read_int(const struct pt2_reader *r, const json_t *from, enum pt2_arg_kind kind,
                    struct pt2_arg *to)
{
    to->kind = kind;
    to->i = json_integer_value(from);
    return json_is_integer(from) ? 0 : pt2_bad(r, "there is no whole number in", "an argument");
}

static int read_subgraph(struct pt2_reader *r, const json_t *from, struct pt2_arg *to)
{
    struct pt2_reader inner = {
        .p = r->p, .path = r->path, .depth = r->depth + 1, .read_graph = r->read_graph};
    const json_t *graph = json_object_get(from, "graph");

    to->kind = ARG_GRAPH;
    if (!json_is_object(graph) || inner.depth > PT2_DEPTH)
        return pt2_bad(r, "there is no graph, or one too deep, in", pt2_text(from, "name"));
    return r->read_graph(&inner, graph, &to->graph);
}

static int read_one(struct pt2_reader *r, const char *key, const json_t *of, bool defines,
                    struct pt2_arg *to);

/* A number that is written out, or the name of one that a node computes; "as_sym_int" and the like.
 */
static int read_symbolic(struct pt2_reader *r, const json_t *from, bool defines, struct pt2_arg *to)
{
    void *at = json_object_iter((json_t *)(uintptr_t)from);
    const char *key = at ? json_object_iter_key(at) : "";

    if (!strcmp(key, "as_name"))
        return read_value(r, json_object_iter_value(at), defines, to);
    if (!strncmp(key, "as_sym_", 7) || !*key)
        return pt2_bad(r, "an argument has the kind", key);
    return read_one(r, key, json_object_iter_value(at), defines, to);
}

static int read_list(struct pt2_reader *r, const char *key, const json_t *of, bool defines,
                     struct pt2_arg *to)
{
    char one[40];
    const size_t n = json_array_size(of);
    struct pt2_arg *item = heap_zeros(&r->p->heap, (int64_t)n, sizeof *item);
    int rc = item ? 0 : CKPT_ENOMEM;

    snprintf(one, sizeof one, "%.*s", (int)strlen(key) - 1, key);
    to->kind = ARG_LIST;
    to->list.n = (int)n;
    to->list.item = item;
    for (size_t i = 0; !rc && i < n; i++)
        rc = read_one(r, one, json_array_get(of, i), defines, &item[i]);
    return rc;
}

/* A tensor, or none: {"as_tensor": {...}} or {"as_none": true}. */
static int read_optional(struct pt2_reader *r, const json_t *from, bool defines, struct pt2_arg *to)
{
    const json_t *tensor = json_object_get(from, "as_tensor");

    to->kind = ARG_NONE;
    return tensor ? read_one(r, "as_tensor", tensor, defines, to) : 0;
}

static int read_one(struct pt2_reader *r, const char *key, const json_t *of, bool defines,
                    struct pt2_arg *to)
{
    static const struct {
        const char *key;
        enum pt2_arg_kind kind;
    } whole[] = {{"as_int", ARG_INT},
                 {"as_scalar_type", ARG_DTYPE},
                 {"as_memory_format", ARG_MEMORY_FORMAT},
                 {"as_layout", ARG_LAYOUT}};
    static const char *const lists[] = {"as_tensors",  "as_ints",       "as_floats",
                                        "as_bools",    "as_strings",    "as_optional_tensors",
                                        "as_sym_ints", "as_sym_floats", "as_sym_bools"};

    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (!strcmp(key, whole[i].key))
            return read_int(r, of, whole[i].kind, to);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (!strcmp(key, lists[i]))
            return read_list(r, key, of, defines, to);
    if (!strcmp(key, "as_tensor"))
        return read_value(r, json_object_get(of, "name"), defines, to);
    if (!strcmp(key, "as_optional_tensor"))
        return read_optional(r, of, defines, to);
    if (!strcmp(key, "as_float"))
        return read_float(r, of, to);
    if (!strcmp(key, "as_complex"))
        return read_complex(r, of, to);
    if (!strcmp(key, "as_graph"))
        return read_subgraph(r, of, to);
    if (!strncmp(key, "as_sym_", 7))
        return read_symbolic(r, of, defines, to);
    to->kind = ARG_OTHER;
    to->text = key;
    if (!strcmp(key, "as_none") || !strcmp(key, "as_device")) {
        to->kind = *(key + 3) == 'n' ? ARG_NONE : ARG_DEVICE;
    } else if (!strcmp(key, "as_bool")) {
        to->kind = ARG_BOOL;
        to->b = json_is_true(of);
    } else if (!strcmp(key, "as_string")) {
        to->kind = ARG_STRING;
        to->text = json_string_value(of);
        return to->text ? 0 : pt2_bad(r, "there is no text in", key);
    }
    return 0;
}

static int read_arg(struct pt2_reader *r, const json_t *from, bool defines, struct pt2_arg *to)
{
    void *at = json_object_iter((json_t *)(uintptr_t)from);

    if (!at || json_object_size(from) != 1)
        return pt2_bad(r, "an argument is not one of the kinds of", "the format");
    return read_one(r, json_object_iter_key(at), json_object_iter_value(at), defines, to);
}

static int read_args(struct pt2_reader *r, const json_t *from, bool defines,
                     const struct pt2_arg **to, int *n)
{
    const size_t count = json_array_size(from);
    struct pt2_arg *arg = heap_zeros(&r->p->heap, (int64_t)count, sizeof *arg);
    int rc = arg ? 0 : CKPT_ENOMEM;

    for (size_t i = 0; !rc && i < count; i++)
        rc = read_arg(r, json_array_get(from, i), defines, &arg[i]);
    *to = arg;
    *n = (int)count;
    return rc;
}

int pt2_read_arg(struct pt2_reader *r, const json_t *from, struct pt2_arg *to)
{
    return read_arg(r, from, false, to);
}

int pt2_read_args(struct pt2_reader *r, const json_t *from, const struct pt2_arg **to, int *n)
{
    return read_args(r, from, false, to, n);
}

int pt2_define_args(struct pt2_reader *r, const json_t *from, const struct pt2_arg **to, int *n)
{
    return read_args(r, from, true, to, n);
}
