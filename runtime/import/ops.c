/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "import/ops.h"

/* Second names of ops; returns the first, or the name itself. */
static const char *first_name(const char *name, char *to, size_t size)
{
    static const char *const names[][2] = {
        {"absolute", "abs"}, {"divide", "div"},        {"greater", "gt"},   {"greater_equal", "ge"},
        {"less", "lt"},      {"less_equal", "le"},     {"multiply", "mul"}, {"negative", "neg"},
        {"not_equal", "ne"}, {"special_exp2", "exp2"}, {"subtract", "sub"}, {"true_divide", "div"}};
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
        ops_view,   ops_unary,     ops_math,   ops_layer, ops_norm,    ops_make,
        ops_index,  ops_scatter,   ops_reduce, ops_loss,  ops_picture, ops_resize,
        ops_window, ops_attention, ops_einsum, ops_rnn,   ops_grid};
    char first[100];

    name = first_name(name, first, sizeof first);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct op *o = tables[i]; o->name; o++)
            if (!strcmp(o->name, name))
                return o;
    return NULL;
}
