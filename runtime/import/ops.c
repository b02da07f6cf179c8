/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "import/ops.h"

const struct op *op_find(const char *name)
{
    static const struct op *const tables[] = {ops_view,   ops_unary,     ops_math,    ops_layer,
                                              ops_norm,   ops_make,      ops_index,   ops_scatter,
                                              ops_reduce, ops_loss,      ops_picture, ops_resize,
                                              ops_window, ops_attention, ops_einsum};

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct op *o = tables[i]; o->name; o++)
            if (!strcmp(o->name, name))
                return o;
    return NULL;
}
