/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "import/ops.h"

/* Second names of ops; returns the first, or the name itself. */
static const char *first_name(const char *name, char *to, size_t size)
{
    static const char *const names[][2] = {{"__and__", "bitwise_and"},
                                           {"__or__", "bitwise_or"},
                                           {"__xor__", "bitwise_xor"},
                                           {"absolute", "abs"},
                                           {"arccos", "acos"},
                                           {"arccosh", "acosh"},
                                           {"arcsin", "asin"},
                                           {"arcsinh", "asinh"},
                                           {"arctan", "atan"},
                                           {"arctan2", "atan2"},
                                           {"arctanh", "atanh"},
                                           {"divide", "div"},
                                           {"float_power", "pow"},
                                           {"fix", "trunc"},
                                           {"greater", "gt"},
                                           {"greater_equal", "ge"},
                                           {"less", "lt"},
                                           {"less_equal", "le"},
                                           {"multiply", "mul"},
                                           {"negative", "neg"},
                                           {"not_equal", "ne"},
                                           {"special_erfc", "erfc"},
                                           {"special_digamma", "digamma"},
                                           {"special_erfinv", "erfinv"},
                                           {"special_gammaln", "lgamma"},
                                           {"special_psi", "digamma"},
                                           {"sgn", "sign"},
                                           {"special_exp2", "exp2"},
                                           {"special_expit", "sigmoid"},
                                           {"special_expm1", "expm1"},
                                           {"special_log1p", "log1p"},
                                           {"special_logit", "logit"},
                                           {"special_sinc", "sinc"},
                                           {"special_xlogy", "xlogy"},
                                           {"subtract", "sub"},
                                           {"true_divide", "div"}};
    const char *op = name + strlen("aten."), *end = strrchr(name, '.');

    if (strncmp(name, "aten.", strlen("aten.")) != 0 || end < op)
        return name;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i][0]) == (size_t)(end - op) &&
            !strncmp(op, names[i][0], (size_t)(end - op))) {
            snprintf(to, size, "aten.%s%s", names[i][1], end);
            return to;
        }
    return name;
}

const struct op *op_find(const char *name)
{
    static const struct op *const tables[] = {
        ops_view,    ops_unary,  ops_math, ops_layer,   ops_norm,   ops_make,   ops_index,
        ops_scatter, ops_reduce, ops_loss, ops_picture, ops_resize, ops_window, ops_attention,
        ops_einsum,  ops_rnn,    ops_grid, ops_special, ops_order,  ops_complex,
        ops_product};
    char first[100];

    name = first_name(name, first, sizeof first);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct op *o = tables[i]; o->name; o++)
            if (!strcmp(o->name, name))
                return o;
    return NULL;
}
