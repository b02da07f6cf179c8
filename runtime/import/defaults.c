/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "import/defaults.h"

struct row {
    const char *op, *name;
    enum pt2_arg_kind kind;
    double number;
    const char *text;
};

/* In the order of ops. */
static const struct row rows[] = {
#include "import/defaults_table.h"
};

static int compare(const void *op, const void *row)
{
    return strcmp(op, ((const struct row *)row)->op);
}

static struct pt2_arg value_of(const struct row *row)
{
    struct pt2_arg a = {.kind = row->kind};

    if (row->kind == ARG_INT)
        a.i = (int64_t)row->number;
    else if (row->kind == ARG_FLOAT)
        a.f = row->number;
    else if (row->kind == ARG_BOOL)
        a.b = row->number != 0;
    else
        a.text = row->text;
    return a;
}

bool default_of(const char *op, const char *name, struct pt2_arg *to)
{
    const struct row *end = rows + sizeof rows / sizeof rows[0];
    const struct row *at = bsearch(op, rows, (size_t)(end - rows), sizeof rows[0], compare);

    while (at && at > rows && !strcmp(at[-1].op, op))
        at--;
    for (; at && at < end && !strcmp(at->op, op); at++)
        if (!strcmp(at->name, name)) {
            *to = value_of(at);
            return true;
        }
    return false;
}
