/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program of a .pt2 archive: graphs of nodes whose arguments are values of the same graph,
 * numbers, texts or graphs.  All of it is checked as it is read, so that the rest of this room can
 * follow every reference: a value is defined before it is used, an input or output of the signature
 * is one of the graph, a tensor has as many strides as sizes.
 *
 * Texts belong to the JSON that was read, and live as long as the program.
 */
#ifndef CKPT_IMPORT_PROGRAM_H
#define CKPT_IMPORT_PROGRAM_H

#include <jansson.h>
#include "import/heap.h"

/* Numbers of dtypes in the file. */
enum pt2_dtype {
    PT2_U8 = 1,
    PT2_I8 = 2,
    PT2_I16 = 3,
    PT2_I32 = 4,
    PT2_I64 = 5,
    PT2_F16 = 6,
    PT2_F32 = 7,
    PT2_F64 = 8,
    PT2_C64 = 10,
    PT2_C128 = 11,
    PT2_BOOL = 12,
    PT2_BF16 = 13
};

/* A size that may depend on dynamic dimensions. */
struct pt2_size {
    int64_t n;        /* the size, or where there is an expression its value at the export */
    const char *expr; /* NULL: the size is n */
};

struct pt2_tensor {
    int dtype; /* enum pt2_dtype, or another number */
    int ndim;
    const struct pt2_size *size, *stride; /* [ndim] */
    struct pt2_size offset;
    bool requires_grad;
};

enum pt2_value_kind { PT2_TENSOR_VALUE, PT2_INT_VALUE, PT2_FLOAT_VALUE, PT2_BOOL_VALUE };

/* What a name of a graph stands for. */
struct pt2_value {
    const char *name;
    enum pt2_value_kind kind;
    struct pt2_tensor tensor; /* of tensors */
};

enum pt2_arg_kind {
    ARG_NONE,
    ARG_VALUE, /* value: a tensor, or a number that a node computes */
    ARG_INT,
    ARG_FLOAT,
    ARG_COMPLEX,
    ARG_BOOL,
    ARG_STRING,
    ARG_DTYPE, /* i: enum pt2_dtype */
    ARG_MEMORY_FORMAT,
    ARG_LAYOUT,
    ARG_DEVICE,
    ARG_GRAPH,
    ARG_LIST,
    ARG_OTHER /* text: the kind in the file; nothing here reads it */
};

struct pt2_arg {
    enum pt2_arg_kind kind;
    union {
        int32_t value; /* its index in the values of the graph */
        int64_t i;
        double f;
        double parts[2]; /* real and imaginary */
        bool b;
        const char *text;
        const struct pt2_graph *graph;
        struct {
            int n;
            const struct pt2_arg *item;
        } list;
    };
};

struct pt2_named_arg {
    const char *name; /* of the parameter in the schema; "" where the file has none */
    struct pt2_arg arg;
};

struct pt2_node {
    const char *target; /* "torch.ops.aten.linear.default" */
    int n_in, n_out;
    const struct pt2_named_arg *in;
    const struct pt2_arg *out; /* ARG_VALUE, ARG_NONE, or lists of these */
    const char *module;        /* path of the module: "layers.0.attn"; "" at the top */
    const char *trace;         /* the Python stack, innermost last, or "" */
};

struct pt2_graph {
    int32_t n_values, n_nodes;
    const struct pt2_value *value;
    const struct pt2_node *node;
    int n_in, n_out;
    const struct pt2_arg *in, *out;
};

enum pt2_input_kind {
    PT2_PARAMETER,
    PT2_BUFFER,
    PT2_CONSTANT,       /* a tensor of data/constants */
    PT2_CONSTANT_INPUT, /* an argument that the export made a constant */
    PT2_USER_INPUT
};

/* What an input of the main graph is, in their order. */
struct pt2_input {
    enum pt2_input_kind kind;
    const char *name; /* of parameters, buffers and constants in data/; of the value else */
    int32_t value;    /* -1: no tensor or number */
    bool persistent;  /* of a buffer: files of weights have it */
};

enum pt2_output_kind {
    PT2_USER_OUTPUT,
    PT2_LOSS_OUTPUT,
    PT2_MUTATION,    /* the new value of the buffer or parameter `name` */
    PT2_OTHER_OUTPUT /* gradients, tokens, mutations of inputs */
};

struct pt2_output {
    enum pt2_output_kind kind;
    const char *name; /* of what has the new value; of the kind in the file for others */
    struct pt2_arg arg;
};

struct pt2_range {
    const char *symbol;
    int64_t min, max;
};

struct pt2_program {
    const char *path; /* for sentences */
    const char *torch_version;
    const struct pt2_graph *graph;
    int n_in, n_out, n_ranges;
    const struct pt2_input *in;
    const struct pt2_output *out;
    const struct pt2_range *range; /* of the dynamic dimensions */
    struct heap heap;
    json_t *json;
};

void pt2_program_free(struct pt2_program *p);

/* The argument with this name, or NULL. */
const struct pt2_arg *pt2_arg_find(const struct pt2_node *n, const char *name);

/* "embed at model.py:12: h = self.embed(ids)": the module and the innermost line of a node. */
void pt2_node_place(const struct pt2_node *n, char *dst, size_t size);

/* "float32" and the like. */
const char *pt2_dtype_name(int dtype);

#endif
