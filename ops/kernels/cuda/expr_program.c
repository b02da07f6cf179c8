/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the program of an expression as a CUDA function, node by node, for one element or for two
 * adjacent ones.  Float constants are written as bits, so that none is rounded.
 *
 * With two elements, node i has its fp32 values in a<i> and b<i>.  If both are certain to be bf16
 * values, they are also packed in a word h<i>: bf16 operands, constants, values that were rounded
 * to bf16, and selections from or comparisons of such values.  A node that rounds, say, the sum of
 * two such words takes one instruction for both elements (expr_pair.cuh); in fp32 it takes seven.
 * All forms of a node are written; the compiler removes unused ones.
 *
 * A program with sums or maxima of rows gets those that are known in s0, s1, ... and gives the term
 * of each in t0, t1, ...: every pass over a row calls the same function and uses some of its
 * results.
 */
#include <string.h>
#include "core/bits.h"
#include "kernels/cuda/expr_launch.h"

struct writer {
    FILE *f;
    const struct expr *e;
    const enum ckpt_dtype *dtype; /* of the result, then of the operands */
    bool pairs;
    bool word[EXPR_LIMIT];      /* h<i> exists */
    bool canonical[EXPR_LIMIT]; /* every NaN in h<i> is 0x7fff */
    bool mask[EXPR_LIMIT];      /* m<i>, the mask of a comparison, exists */
    bool rounded[EXPR_LIMIT];   /* r<i>, node i rounded to bf16, exists */
};

bool expr_leaf_has_place(const struct expr_node *n)
{
    return n->code == EXPR_INDEX || n->code == EXPR_UNIFORM;
}

int expr_count_leaves(const struct expr *e)
{
    int n = 0;
    for (int i = 0; i < e->n_nodes; i++)
        n += expr_leaf_has_place(&e->node[i]);
    return n;
}

const char *expr_type_name(enum ckpt_dtype dtype)
{
    return dtype == CKPT_BF16 ? "struct expr_half" : dtype == CKPT_F32 ? "float" : "int";
}

/* ---- words of two bf16 values ---------------------------------------------------------------- */

/* Is the constant a bf16 value other than NaN? */
static bool is_bf16(float x)
{
    return !(float_bits(x) & 0xffff) && x == x;
}

static unsigned word_of(float x)
{
    return float_bits(x) | float_bits(x) >> 16;
}

/* Is p a normal power of 2 of either sign?  Then x p is exact unless it overflows or underflows. */
static bool is_power_of_2(float p)
{
    uint32_t exponent = float_bits(p) >> 23 & 0xff;
    return !(float_bits(p) & 0x7fffff) && exponent > 0 && exponent < 255;
}

static bool all_words(const struct writer *w, const struct expr_node *n)
{
    for (int k = 0; k < expr_arguments(n->code); k++)
        if (!w->word[n->arg[k]])
            return false;
    return w->pairs && expr_arguments(n->code) > 0;
}

static bool all_canonical(const struct writer *w, const struct expr_node *n)
{
    for (int k = 0; k < expr_arguments(n->code); k++)
        if (!w->canonical[n->arg[k]])
            return false;
    return true;
}

static bool compares(enum expr_code code)
{
    return code == EXPR_EQ || code == EXPR_NE || code == EXPR_LT || code == EXPR_LE;
}

/* Is the result of node n a word if its operands are?  True for nodes that round nothing. */
static bool selects(const struct expr_node *n)
{
    switch (n->code) {
    case EXPR_ABS:
    case EXPR_SIGN:
    case EXPR_RELU:
    case EXPR_MINIMUM:
    case EXPR_MAXIMUM:
    case EXPR_RELU_DX:
    case EXPR_WHERE:
        return true;
    case EXPR_CLAMP: /* the instructions order zeros of different signs, expr_clamp does not */
        return is_bf16(n->p) && is_bf16(n->q) && n->p != 0.f && n->q != 0.f && n->p <= n->q;
    default:
        return compares(n->code);
    }
}

/* Writes word i with every NaN replaced by 0x7fff. */
static void write_canonical(const struct writer *w, int i)
{
    fprintf(w->f, w->canonical[i] ? "h%d" : "expr_canonical_pair(h%d)", i);
}

/* Writes the mask of a condition. */
static void write_mask(const struct writer *w, int i)
{
    fprintf(w->f, w->mask[i] ? "m%d" : "expr_ne_mask(h%d, 0u)", i);
}

/* "    const unsigned h4 = expr_maximum_pair(h2, h3);" */
static void write_selection(struct writer *w, int i)
{
    const struct expr_node *n = &w->e->node[i];
    const char *name = expr_function(n->code);
    if (compares(n->code)) {
        fprintf(w->f, "    const unsigned m%d = expr_%s_mask(h%d, h%d);\n", i, name, n->arg[0],
                n->arg[1]);
        fprintf(w->f, "    const unsigned h%d = expr_mask_pair(m%d);\n", i, i);
        w->mask[i] = true;
        return;
    }
    fprintf(w->f, "    const unsigned h%d = expr_%s_pair(", i,
            n->code == EXPR_WHERE ? "select" : name);
    for (int k = 0; k < expr_arguments(n->code); k++) {
        fprintf(w->f, k ? ", " : "");
        if (n->code == EXPR_WHERE && k == 0)
            write_mask(w, n->arg[0]);
        else
            write_canonical(w, n->arg[k]);
    }
    if (n->code == EXPR_CLAMP)
        fprintf(w->f, ", 0x%08xu, 0x%08xu", word_of(n->p), word_of(n->q));
    fprintf(w->f, ");\n");
}

/* x if it is above 0, else p x. */
static void write_leaky(const struct writer *w, const struct expr_node *n)
{
    const int x = n->arg[0];
    fprintf(w->f, "expr_select_pair(expr_lt_mask(0u, h%d), h%d, ", x, x);
    if (is_bf16(n->p))
        fprintf(w->f, "expr_mul_pair(h%d, 0x%08xu))", x, word_of(n->p));
    else
        fprintf(w->f,
                "expr_round_pair(__fmul_rn(__uint_as_float(0x%08xu), a%d), "
                "__fmul_rn(__uint_as_float(0x%08xu), b%d)))",
                float_bits(n->p), x, float_bits(n->p), x);
}

/* Writes r<i>: node i rounded to bf16.  The operands of a selection are rounded before the
 * selection. */
static void write_rounded(struct writer *w, int i)
{
    const struct expr_node *n = &w->e->node[i];
    const bool words = all_words(w, n);
    const bool selection = n->code == EXPR_WHERE && w->word[n->arg[0]] && !w->word[i];
    if (w->rounded[i])
        return;
    w->rounded[i] = true;
    for (int k = 1; k < 3 && selection; k++)
        write_rounded(w, n->arg[k]);
    fprintf(w->f, "    const unsigned r%d = ", i);
    if (w->word[i]) {
        write_canonical(w, i);
    } else if (selection) {
        fprintf(w->f, "expr_select_pair(");
        write_mask(w, n->arg[0]);
        fprintf(w->f, ", r%d, r%d)", n->arg[1], n->arg[2]);
    } else if (words && (n->code == EXPR_ADD || n->code == EXPR_SUB || n->code == EXPR_MUL)) {
        fprintf(w->f, "expr_%s_pair(h%d, h%d)", expr_function(n->code), n->arg[0], n->arg[1]);
    } else if (words && n->code == EXPR_SCALE && is_bf16(n->p)) {
        fprintf(w->f, "expr_mul_pair(h%d, 0x%08xu)", n->arg[0], word_of(n->p));
    } else if (words && n->code == EXPR_AFFINE && is_power_of_2(n->p) && is_bf16(n->q)) {
        fprintf(w->f, "expr_fma_pair(h%d, 0x%08xu, 0x%08xu)", n->arg[0], word_of(n->p),
                word_of(n->q));
    } else if (words && n->code == EXPR_LEAKY) {
        write_leaky(w, n);
    } else {
        fprintf(w->f, "expr_round_pair(a%d, b%d)", i, i);
    }
    fprintf(w->f, ";\n");
}

/* Writes the word of node i, if it has one. */
static void write_word(struct writer *w, int i)
{
    const struct expr_node *n = &w->e->node[i];
    w->canonical[i] = n->code != EXPR_INPUT;
    if (n->code == EXPR_INPUT && w->dtype[n->arg[0] + 1] == CKPT_BF16) {
        fprintf(w->f, "    const unsigned h%d = x%d;\n", i, n->arg[0]);
    } else if (n->code == EXPR_CONSTANT && is_bf16(n->p)) {
        fprintf(w->f, "    const unsigned h%d = 0x%08xu;\n", i, word_of(n->p));
    } else if (n->code == EXPR_BF16) {
        write_rounded(w, n->arg[0]);
        fprintf(w->f, "    const unsigned h%d = r%d;\n", i, n->arg[0]);
    } else if (all_words(w, n) && selects(n)) {
        write_selection(w, i);
    } else {
        return;
    }
    w->word[i] = true;
}

/* ---- fp32 -------------------------------------------------------------------------------------*/

static void write_bits(FILE *f, float x)
{
    fprintf(f, "__uint_as_float(0x%08xu)", float_bits(x));
}

/* "    const float a3 = expr_mul(a1, a2);" */
static void write_float(const struct writer *w, int i, char element, int leaf, int row)
{
    const struct expr_node *n = &w->e->node[i];
    const int arguments = expr_arguments(n->code);
    fprintf(w->f, "    const float %c%d = ", element, i);
    /* in fp32 a NaN that was selected keeps its bits */
    if (w->word[i] && (n->code == EXPR_BF16 || arguments == 0 || all_canonical(w, n))) {
        fprintf(w->f, "expr_%s(h%d);\n", element == 'a' ? "low" : "high", i);
    } else if (n->code == EXPR_INPUT) {
        fprintf(w->f, "x%d%c;\n", n->arg[0], element);
    } else if (expr_leaf_has_place(n)) {
        fprintf(w->f, "l%d%c;\n", leaf, element);
    } else if (expr_is_row_node(n)) {
        fprintf(w->f, "s%d;\n", row);
    } else if (n->code == EXPR_CONSTANT) {
        write_bits(w->f, n->p);
        fprintf(w->f, ";\n");
    } else {
        fprintf(w->f, "expr_%s(%c%d", expr_function(n->code), element, n->arg[0]);
        for (int k = 1; k < arguments; k++)
            fprintf(w->f, ", %c%d", element, n->arg[k]);
        if (arguments == 1) {
            fprintf(w->f, ", ");
            write_bits(w->f, n->p);
            fprintf(w->f, ", ");
            write_bits(w->f, n->q);
        }
        fprintf(w->f, ");\n");
    }
}

/* ---- the function -----------------------------------------------------------------------------*/

static void write_parameter(const struct writer *w, bool *first, const char *type, char letter,
                            int k)
{
    char number[12] = "";
    if (k >= 0)
        snprintf(number, sizeof number, "%d", k);
    for (int element = 0; element < 1 + w->pairs; element++) {
        fprintf(w->f, "%s%s%c%s%c", *first ? "" : ", ", type, letter, number, "ab"[element]);
        *first = false;
    }
}

static void write_parameters(const struct writer *w)
{
    char type[40];
    bool first = true;
    const bool words = w->pairs && w->dtype[0] == CKPT_BF16;
    for (int k = 0; k < w->e->n_in; k++)
        if (w->pairs && w->dtype[k + 1] == CKPT_BF16) {
            fprintf(w->f, "%sunsigned x%d", first ? "" : ", ", k);
            first = false;
        } else {
            write_parameter(w, &first, "float ", 'x', k);
        }
    for (int k = 0; k < expr_count_leaves(w->e); k++)
        write_parameter(w, &first, "float ", 'l', k);
    const int rows = expr_row_nodes(w->e).n;
    for (int k = 0; k < rows; k++, first = false)
        fprintf(w->f, "%sfloat s%d", first ? "" : ", ", k);
    snprintf(type, sizeof type, "%s &", expr_type_name(w->dtype[0]));
    for (int k = 0; k < 1 + (w->e->second > 0); k++)
        if (words)
            fprintf(w->f, "%sunsigned &%c", first && !k ? "" : ", ", "yz"[k]);
        else
            write_parameter(w, &first, type, "yz"[k], -1);
    for (int k = 0; k < rows; k++)
        write_parameter(w, &first, "float &", 't', k);
}

/* Passes on node i, the term of a value of the row. */
static void write_term(const struct writer *w, int i, int row)
{
    for (int element = 0; element < 1 + w->pairs; element++)
        fprintf(w->f, "    t%d%c = %c%d;\n", row, "ab"[element], "ab"[element], i);
}

/* Stores node i in result y or z. */
static void write_result(struct writer *w, char name, int i)
{
    if (w->pairs && w->dtype[0] == CKPT_BF16) {
        write_rounded(w, i);
        fprintf(w->f, "    %c = r%d;\n", name, i);
        return;
    }
    for (int element = 0; element < 1 + w->pairs; element++)
        fprintf(w->f, "    %c%c = expr_to<%s>(%c%d);\n", name, "ab"[element],
                expr_type_name(w->dtype[0]), "ab"[element], i);
}

void expr_write_program(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype, bool pairs)
{
    struct writer w = {.f = f, .e = e, .dtype = dtype, .pairs = pairs};
    int leaf = 0, row = 0;
    fprintf(f, "\nstatic __device__ __forceinline__ void program_of_%s(",
            pairs ? "pair" : "element");
    write_parameters(&w);
    fprintf(f, ")\n{\n");
    for (int i = 0; i < e->n_nodes; i++) {
        if (pairs)
            write_word(&w, i);
        write_float(&w, i, 'a', leaf, row);
        if (pairs)
            write_float(&w, i, 'b', leaf, row);
        if (expr_is_row_node(&e->node[i]))
            write_term(&w, e->node[i].arg[0], row++);
        leaf += expr_leaf_has_place(&e->node[i]);
    }
    write_result(&w, 'y', e->n_nodes - 1);
    if (e->second)
        write_result(&w, 'z', e->second - 1);
    fprintf(f, "}\n");
}
