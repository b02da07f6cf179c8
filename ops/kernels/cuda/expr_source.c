/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA source of an expression: two kernels around the functions that expr_program.c writes.
 * One kernel handles vectors, two adjacent elements at a time; the other one single elements.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/bits.h"
#include "kernels/cuda/expr_launch.h"

/* Two loads in flight hide each other's latency.  If the program takes longer than a load, a second
 * copy would only cost compile time. */
int expr_unroll(const struct expr *e)
{
    return expr_flops(e) > 64 ? 1 : 2;
}

/* Elements in 16 bytes of the dtype that most tensors have.  A single fp32 tensor, such as a
 * gradient that is constant along a row, does not halve the vectors of the others. */
int expr_vector_elements(const struct expr *e, const enum ckpt_dtype *dtype)
{
    int narrow = 0, all = 0;
    for (int k = e->per_row; k <= e->n_in; k++, all++)
        narrow += ckpt_dtype_size(dtype[k]) == 2;
    return 2 * narrow > all ? 8 : 4;
}

/* Writes the type of V elements in registers; bf16 elements are words of two. */
static void write_vector(FILE *f, enum ckpt_dtype dtype, bool pairs)
{
    if (pairs && dtype == CKPT_BF16)
        fprintf(f, "struct expr_vector<unsigned, V / 2>");
    else
        fprintf(f, "struct expr_vector<%s, V>", expr_type_name(dtype));
}

/* Writes the values of leaf number `leaf`, node n, for vector u. */
static void write_leaf(FILE *f, const struct expr *e, const struct expr_node *n, int leaf)
{
    int at = e->n_in + 1 + leaf;
    fprintf(f, "            float l%d[V];\n            ", leaf);
    if (n->code == EXPR_INDEX)
        fprintf(f, "expr_indices<V>(l%d, at[u][%d] + a.place[%d], inner[%d]);\n", leaf, at, leaf,
                leaf);
    else
        fprintf(f, "expr_uniforms<V>(l%d, a, at[u][%d] + a.place[%d], inner[%d], a.stream[%d]);\n",
                leaf, at, leaf, leaf, leaf);
}

/* Writes the call of the program for element j of vector u, or for elements j and j + 1. result and
 * second are the expressions that receive its results. */
static void write_call(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype, bool pairs,
                       const char *result, const char *second)
{
    const struct expr_row_nodes rows = expr_row_nodes(e);
    fprintf(f, "program_of_%s(", pairs ? "pair" : "element");
    for (int k = 0; k < e->n_in; k++)
        if (pairs && dtype[k + 1] == CKPT_BF16)
            fprintf(f, "r%d[u].at[j / 2], ", k);
        else
            fprintf(f,
                    pairs ? "expr_float(r%d[u].at[j]), expr_float(r%d[u].at[j + 1]), "
                          : "expr_float(r%d[u].at[j]), ",
                    k, k);
    for (int k = 0; k < expr_count_leaves(e); k++)
        fprintf(f, pairs ? "l%d[j], l%d[j + 1], " : "l%d[j], ", k, k);
    for (int k = 0; k < rows.n; k++)
        fprintf(f, "s%d, ", k);
    fprintf(f, "%s%s%s", result, second ? ", " : "", second ? second : "");
    for (int k = 0; k < rows.n; k++)
        fprintf(f, pairs ? ", t%d[0], t%d[1]" : ", t%d[0]", k, k);
    fprintf(f, ");\n");
}

/* Writes the head of a kernel: its name, the offsets of U vectors, and registers for every
 * operand. */
static void write_head(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype,
                       const char *name, int elements, int unroll)
{
    int leaves = expr_count_leaves(e);
    fprintf(f,
            "\n#define V %d\n#define U %d\nextern \"C\" __global__ void __launch_bounds__(256)\n",
            elements, unroll);
    fprintf(f, "    %s(const __grid_constant__ struct expr_args a)\n{\n", name);
    fprintf(f, "    long long at[U][%d];\n", e->n_in + 1 + leaves + (e->second > 0));
    for (int k = 0; k < leaves;
         k++) /* per element: the stride of a position divided by its elements */
        fprintf(f, "%s a.axis[0].step[%d] / V%s", k ? "," : "    const long long inner[] = {",
                e->n_in + 1 + k, k + 1 < leaves ? "" : "};\n");
    for (int k = 0; k < e->n_in; k++) {
        fprintf(f, "    ");
        write_vector(f, dtype[k + 1], elements > 1);
        fprintf(f, " r%d[U];\n", k);
    }
}

static void write_loads(FILE *f, const struct expr *e)
{
    for (int k = 0; k < e->n_in; k++)
        fprintf(f, "            expr_load(r%d[u], a, %d, at[u][%d]);\n", k, k + 1, k + 1);
}

static void write_leaves(FILE *f, const struct expr *e)
{
    int leaf = 0;
    for (int i = 0; i < e->n_nodes; i++)
        if (expr_leaf_has_place(&e->node[i]))
            write_leaf(f, e, &e->node[i], leaf++);
}

/* Writes the expression for element j of the result vector `name`. */
static void result_element(char *text, size_t size, const char *name, enum ckpt_dtype dtype,
                           bool pairs)
{
    if (pairs && dtype == CKPT_BF16)
        snprintf(text, size, "%s.at[j / 2]", name);
    else if (pairs)
        snprintf(text, size, "%s.at[j], %s.at[j + 1]", name, name);
    else
        snprintf(text, size, "%s.at[j]", name);
}

/* The kernel loads all its vectors before it uses the first. */
static void write_kernel(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype,
                         const char *name, int elements)
{
    const bool pairs = elements > 1, words = pairs && dtype[0] == CKPT_BF16;
    char y[40], z[40];
    result_element(y, sizeof y, "y", dtype[0], pairs);
    result_element(z, sizeof z, "z", dtype[0], pairs);
    write_head(f, e, dtype, name, elements, expr_unroll(e));
    if (e->largest)
        fprintf(f, "    unsigned most = 0;\n");
    fprintf(f, "    unsigned first = blockIdx.x * (U * 256) + threadIdx.x;\n"
               "#pragma unroll\n    for (int u = 0; u < U; u++)\n"
               "        if (first + u * 256 < a.count) {\n"
               "            expr_seek(a, first + u * 256, at[u]);\n");
    write_loads(f, e);
    fprintf(f, "        }\n#pragma unroll\n    for (int u = 0; u < U; u++)\n"
               "        if (first + u * 256 < a.count) {\n");
    write_leaves(f, e);
    fprintf(f, "            ");
    write_vector(f, dtype[0], pairs);
    fprintf(f,
            " y%s;\n#pragma unroll\n            for (int j = 0; j < V; j += %d) {\n"
            "                ",
            e->second ? ", z" : "", 1 + pairs);
    write_call(f, e, dtype, pairs, y, e->second ? z : NULL);
    fprintf(f, "            }\n            expr_store(y, a, 0, at[u][0]);\n");
    if (e->second)
        fprintf(f, "            expr_store(z, a, %d, at[u][%d]);\n", e->n_in + 1, e->n_in + 1);
    if (e->largest)
        fprintf(f,
                "#pragma unroll\n            for (int j = 0; j < V; j += %d)\n"
                "                most = %s;\n",
                1 + words,
                words ? "expr_most_pair(most, y.at[j / 2])" : "max(most, expr_magnitude(y.at[j]))");
    fprintf(f, "        }\n");
    if (e->largest)
        fprintf(f, "    expr_leave_largest(%s, a.largest);\n",
                words ? "expr_most_of_pair(most)" : "most");
    fprintf(f, "}\n#undef V\n#undef U\n");
}

static bool is_max(const struct expr *e, const struct expr_row_nodes *rows, int k)
{
    return e->node[rows->at[k].node].code == EXPR_MAX;
}

/* Writes the part of a kernel that loads vector u and calls the program for its elements: "y" is an
 * element per row or the result vector.  level: of values whose terms are reduced; 0: the result.
 */
static void write_pass(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype, bool pairs,
                       int level)
{
    const struct expr_row_nodes rows = expr_row_nodes(e);
    char y[40] = "y[0]";
    write_loads(f, e);
    write_leaves(f, e);
    fprintf(f, "            ");
    if (e->per_row)
        fprintf(f, "float y[2];\n");
    else
        write_vector(f, dtype[0], pairs);
    if (!e->per_row) {
        fprintf(f, " y;\n");
        result_element(y, sizeof y, "y", dtype[0], pairs);
    } else if (pairs) {
        snprintf(y, sizeof y, "y[0], y[1]");
    }
    if (!level && e->per_row)
        fprintf(f, "            const int j = 0;\n            {\n");
    else
        fprintf(f, "#pragma unroll\n            for (int j = 0; j < V; j += %d) {\n", 1 + pairs);
    for (int k = 0; k < rows.n; k++)
        fprintf(f, "                float t%d[2];\n", k);
    fprintf(f, "                ");
    write_call(f, e, dtype, pairs, y, NULL);
    for (int i = 0; i < rows.n; i++)
        for (int k = 0; k < 1 + pairs && rows.at[i].level == level; k++)
            fprintf(f, "                p%d = %s(p%d, t%d[%d]);\n", i,
                    is_max(e, &rows, i) ? "expr_larger" : "__fadd_rn", i, i, k);
    fprintf(f, "            }\n");
}

/* Writes the loop over the positions of a row. */
static void write_row_loop(FILE *f)
{
    fprintf(f, "    for (unsigned i = threadIdx.x; i < a.length; i += blockDim.x) {\n"
               "            if (a.straight)\n                expr_step(a, from, i, at[u]);\n"
               "            else\n"
               "                expr_seek(a, blockIdx.x * a.length + i, at[u]);\n");
}

/* Writes a pass that computes the values of a level. */
static void write_values(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype, bool pairs,
                         int level)
{
    const struct expr_row_nodes rows = expr_row_nodes(e);
    for (int k = 0; k < rows.n; k++)
        if (rows.at[k].level == level)
            fprintf(f, "    float p%d = __uint_as_float(0x%08xu);\n", k,
                    is_max(e, &rows, k) ? float_bits(-INFINITY) : 0);
    write_row_loop(f);
    write_pass(f, e, dtype, pairs, level);
    fprintf(f, "    }\n");
    for (int k = 0; k < rows.n; k++)
        if (rows.at[k].level == level && is_max(e, &rows, k))
            fprintf(f, "    s%d = expr_reduce_block<true>(p%d);\n", k, k);
        else if (rows.at[k].level == level)
            fprintf(f,
                    "    s%d = __fmul_rn(__uint_as_float(0x%08xu), expr_reduce_block<false>(p%d));"
                    "\n",
                    k, float_bits(e->node[rows.at[k].node].p), k);
}

/* A block handles a row: one pass for each level of values, and one for the result. */
static void write_row_kernel(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype,
                             const char *name, int elements)
{
    const bool pairs = elements > 1;
    const int places = e->n_in + 1 + expr_count_leaves(e);
    const struct expr_row_nodes rows = expr_row_nodes(e);
    write_head(f, e, dtype, name, elements, 1);
    fprintf(f, "    const int u = 0;\n    long long from[%d];\n", places);
    for (int k = 0; k < rows.n; k++)
        fprintf(f, "    float s%d = 0.f;\n", k);
    fprintf(f, "    expr_seek(a, blockIdx.x * a.length, from);\n");
    for (int k = 1; k <= rows.levels; k++)
        write_values(f, e, dtype, pairs, k);
    if (e->per_row)
        fprintf(f,
                "    if (threadIdx.x == 0) {\n"
                "            for (int k = 0; k < %d; k++)\n                at[u][k] = from[k];\n",
                places);
    else
        write_row_loop(f);
    write_pass(f, e, dtype, pairs, 0);
    const char *type = expr_type_name(dtype[0]);
    if (e->per_row)
        fprintf(f, "            static_cast<%s *>(a.data[0])[blockIdx.x] = expr_to<%s>(y[0]);\n",
                type, type);
    else
        fprintf(f, "            expr_store(y, a, 0, at[u][0]);\n");
    fprintf(f, "    }\n}\n#undef V\n#undef U\n");
}

char *expr_source(const struct expr *e, const enum ckpt_dtype *dtype)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (int i = 0; expr_math_text[i]; i++)
        fprintf(f, "%s\n", expr_math_text[i]);
    for (int i = 0; expr_pair_text[i]; i++)
        fprintf(f, "%s\n", expr_pair_text[i]);
    for (int i = 0; expr_kernel_text[i]; i++)
        fprintf(f, "%s\n", expr_kernel_text[i]);
    enum ckpt_dtype inside[EXPR_INPUTS + 1]; /* the result of a row is rounded when stored */
    memcpy(inside, dtype, ((size_t)e->n_in + 1) * sizeof *inside);
    if (e->per_row)
        inside[0] = CKPT_F32;
    expr_write_program(f, e, inside, true);
    expr_write_program(f, e, inside, false);
    int elements = expr_vector_elements(e, dtype);
    (e->reduced ? write_row_kernel : write_kernel)(f, e, dtype, "expr_vector_kernel", elements);
    (e->reduced ? write_row_kernel : write_kernel)(f, e, dtype, "expr_single_kernel", 1);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
