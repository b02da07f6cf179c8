/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA source of an expression: a function of one element, written node by node, and two
 * kernels that call it.  Floats are written as their bits, so that none is rounded on the way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/bits.h"
#include "cuda/expr_launch.h"

/* Two loads on their way hide each other; where computing takes longer than that, a second copy of
 * the program only takes the compiler's time. */
int expr_unroll(const struct expr *e)
{
    return expr_flops(e) > 64 ? 1 : 2;
}

int expr_vector_elements(const struct expr *e, const enum ckpt_dtype *dtype)
{
    for (int k = e->reduced > 0; k <= e->n_in; k++)
        if (ckpt_dtype_size(dtype[k]) != 2)
            return 4;
    return 8;
}

static const char *type_name(enum ckpt_dtype dtype)
{
    return dtype == CKPT_BF16 ? "struct expr_half" : dtype == CKPT_F32 ? "float" : "int";
}

static bool has_place(const struct expr_node *n)
{
    return n->code == EXPR_INDEX || n->code == EXPR_UNIFORM;
}

static int count_leaves(const struct expr *e)
{
    int n = 0;
    for (int i = 0; i < e->n_nodes; i++)
        n += has_place(&e->node[i]);
    return n;
}

static void write_bits(FILE *f, float x)
{
    fprintf(f, "__uint_as_float(0x%08xu)", float_bits(x));
}

/* "float v3 = expr_mul(v1, v2);" */
static void write_node(FILE *f, const struct expr *e, int i, int *leaf)
{
    const struct expr_node *n = &e->node[i];
    int arguments = expr_arguments(n->code);
    fprintf(f, "    float v%d = ", i);
    if (n->code == EXPR_INPUT) {
        fprintf(f, "x%d;\n", n->arg[0]);
    } else if (has_place(n)) {
        fprintf(f, "l%d;\n", (*leaf)++);
    } else if (n->code == EXPR_CONSTANT) {
        write_bits(f, n->p);
        fprintf(f, ";\n");
    } else {
        fprintf(f, "expr_%s(v%d", expr_function(n->code), n->arg[0]);
        for (int k = 1; k < arguments; k++)
            fprintf(f, ", v%d", n->arg[k]);
        if (arguments == 1) {
            fprintf(f, ", ");
            write_bits(f, n->p);
            fprintf(f, ", ");
            write_bits(f, n->q);
        }
        fprintf(f, ");\n");
    }
}

static void write_program(FILE *f, const struct expr *e)
{
    int leaf = 0, leaves = count_leaves(e);
    fprintf(f, "\nEXPR_FUNCTION program(");
    for (int k = 0; k < e->n_in; k++)
        fprintf(f, "%sfloat x%d", k ? ", " : "", k);
    for (int k = 0; k < leaves; k++)
        fprintf(f, "%sfloat l%d", k || e->n_in ? ", " : "", k);
    fprintf(f, "%s)\n{\n", e->second ? ", float &second" : "");
    for (int i = 0; i < e->n_nodes; i++)
        write_node(f, e, i, &leaf);
    if (e->second)
        fprintf(f, "    second = v%d;\n", e->second - 1);
    fprintf(f, "    return v%d;\n}\n", e->n_nodes - 1);
}

/* The values of leaf number `leaf`, node n, of the vector u. */
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

/* The value of element j of the vector u. */
static void write_call(FILE *f, const struct expr *e)
{
    int leaves = count_leaves(e);
    fprintf(f, "program(");
    for (int k = 0; k < e->n_in; k++)
        fprintf(f, "%sexpr_float(r%d[u].at[j])", k ? ", " : "", k);
    for (int k = 0; k < leaves; k++)
        fprintf(f, "%sl%d[j]", k || e->n_in ? ", " : "", k);
    fprintf(f, "%s)", e->second ? ", second" : "");
}

/* The head of a kernel: its name, offsets of U vectors, and the vectors of every operand. */
static void write_head(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype,
                       const char *name, int elements, int unroll)
{
    int leaves = count_leaves(e);
    fprintf(f,
            "\n#define V %d\n#define U %d\nextern \"C\" __global__ void __launch_bounds__(256)\n",
            elements, unroll);
    fprintf(f, "    %s(const __grid_constant__ struct expr_args a)\n{\n", name);
    fprintf(f, "    long long at[U][%d];\n", e->n_in + 1 + leaves + (e->second > 0));
    for (int k = 0; k < leaves; k++) /* per element: the step of a position over its elements */
        fprintf(f, "%s a.axis[a.ndim - 1].step[%d] / V%s",
                k ? "," : "    const long long inner[] = {", e->n_in + 1 + k,
                k + 1 < leaves ? "" : "};\n");
    for (int k = 0; k < e->n_in; k++)
        fprintf(f, "    struct expr_vector<%s, V> r%d[U];\n", type_name(dtype[k + 1]), k);
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
        if (has_place(&e->node[i]))
            write_leaf(f, e, &e->node[i], leaf++);
}

/* Vector `name` goes to where operand k is. */
static void write_store(FILE *f, const char *name, const char *type, int k)
{
    fprintf(f,
            "            *reinterpret_cast<struct expr_vector<%s, V> *>(\n"
            "                static_cast<%s *>(a.data[%d]) + at[u][%d]) = %s;\n",
            type, type, k, k, name);
}

/* Every vector is loaded before the first is used. */
static void write_kernel(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype,
                         const char *name, int elements)
{
    const char *type = type_name(dtype[0]);
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
    fprintf(f,
            "            struct expr_vector<%s, V> y%s;\n#pragma unroll\n"
            "            for (int j = 0; j < V; j++) {\n%s                y.at[j] = expr_to<%s>(",
            type, e->second ? ", z" : "", e->second ? "                float second;\n" : "", type);
    write_call(f, e);
    fprintf(f, ");\n");
    if (e->second)
        fprintf(f, "                z.at[j] = expr_to<%s>(second);\n", type);
    fprintf(f, "            }\n");
    write_store(f, "y", type, 0);
    if (e->second)
        write_store(f, "z", type, e->n_in + 1);
    if (e->largest)
        fprintf(f, "#pragma unroll\n            for (int j = 0; j < V; j++)\n"
                   "                most = max(most, expr_magnitude(y.at[j]));\n");
    fprintf(f, "        }\n%s}\n#undef V\n#undef U\n",
            e->largest ? "    expr_leave_largest(most, a.largest);\n" : "");
}

/* A block sums a row. */
static void write_sum_kernel(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype,
                             const char *name, int elements)
{
    write_head(f, e, dtype, name, elements, 1);
    fprintf(f, "    const int u = 0;\n    float sum = 0.f;\n"
               "    for (unsigned i = threadIdx.x; i < a.length; i += blockDim.x) {\n"
               "            expr_seek(a, blockIdx.x * a.length + i, at[u]);\n");
    write_loads(f, e);
    write_leaves(f, e);
    fprintf(f, "#pragma unroll\n            for (int j = 0; j < V; j++)\n"
               "                sum = __fadd_rn(sum, ");
    write_call(f, e);
    fprintf(f, ");\n    }\n    expr_sum_block(sum, a.scale, static_cast<float *>(a.data[0]) + "
               "blockIdx.x);\n}\n#undef V\n#undef U\n");
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
    for (int i = 0; expr_kernel_text[i]; i++)
        fprintf(f, "%s\n", expr_kernel_text[i]);
    write_program(f, e);
    int elements = expr_vector_elements(e, dtype);
    (e->reduced ? write_sum_kernel : write_kernel)(f, e, dtype, "expr_vector_kernel", elements);
    (e->reduced ? write_sum_kernel : write_kernel)(f, e, dtype, "expr_single_kernel", 1);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
