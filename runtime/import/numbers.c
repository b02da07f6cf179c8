/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "import/numbers.h"

static struct item whole(int64_t i)
{
    return (struct item){.kind = ITEM_INT, .i = i};
}

static struct item truth(bool b)
{
    return (struct item){.kind = ITEM_BOOL, .b = b};
}

static struct item argument(struct call *c, int k)
{
    struct item none = {.kind = ITEM_NONE};

    return k < c->node->n_in ? call_item(c, &c->node->in[k].arg) : none;
}

static double value(struct call *c, int k)
{
    struct item i = argument(c, k);

    if (i.kind == ITEM_INT)
        return (double)i.i;
    if (i.kind == ITEM_FLOAT)
        return i.f;
    if (i.kind != ITEM_BOOL)
        recording_fail(c->r, CKPT_EFORMAT, "argument %d is no number", k);
    return i.kind == ITEM_BOOL && i.b;
}

static bool all_whole(struct call *c)
{
    for (int k = 0; k < c->node->n_in; k++)
        if (argument(c, k).kind == ITEM_FLOAT)
            return false;
    return true;
}

/* Whole numbers stay whole. */
static struct item result(struct call *c, double f)
{
    if (all_whole(c) && fabs(f) < 9e18)
        return whole((int64_t)f);
    return (struct item){.kind = ITEM_FLOAT, .f = f};
}

static struct item number_size(struct call *c)
{
    struct tensor a = call_tensor(c, "self");
    const int axis = call_axis(c, "dim", &a);

    return whole(a.ndim ? a.shape[axis] : 1);
}

static struct item number_numel(struct call *c)
{
    struct tensor a = call_tensor(c, "self");

    return whole(tensor_numel(&a));
}

/* The value of a constant. */
static struct item number_item(struct call *c)
{
    struct tensor a = call_tensor(c, "self");

    if (!a.constant || tensor_numel(&a) != 1) {
        recording_fail(c->r, CKPT_EFORMAT, "the number depends on the data of a step");
        return whole(0);
    }
    if (a.dtype == PT2_BOOL)
        return truth(*a.i != 0);
    if (!pt2_is_float(a.dtype))
        return whole(tensor_i(&a, 0));
    return (struct item){.kind = ITEM_FLOAT, .f = tensor_f(&a, 0)};
}

static struct item number_add(struct call *c)
{
    return result(c, value(c, 0) + value(c, 1));
}

static struct item number_sub(struct call *c)
{
    return result(c, value(c, 0) - value(c, 1));
}

static struct item number_mul(struct call *c)
{
    return result(c, value(c, 0) * value(c, 1));
}

static double divisor(struct call *c)
{
    const double d = value(c, 1);

    if (d == 0)
        recording_fail(c->r, CKPT_EFORMAT, "a size is divided by 0");
    return d == 0 ? 1 : d;
}

static struct item number_floordiv(struct call *c)
{
    return result(c, floor(value(c, 0) / divisor(c)));
}

static struct item number_mod(struct call *c)
{
    const double x = value(c, 0), y = divisor(c);

    return result(c, x - floor(x / y) * y);
}

static struct item number_truediv(struct call *c)
{
    return (struct item){.kind = ITEM_FLOAT, .f = value(c, 0) / divisor(c)};
}

static struct item number_pow(struct call *c)
{
    return result(c, pow(value(c, 0), value(c, 1)));
}

static struct item number_neg(struct call *c)
{
    return result(c, -value(c, 0));
}

static struct item number_max(struct call *c)
{
    return result(c, fmax(value(c, 0), value(c, 1)));
}

static struct item number_min(struct call *c)
{
    return result(c, fmin(value(c, 0), value(c, 1)));
}

static struct item number_float(struct call *c)
{
    return (struct item){.kind = ITEM_FLOAT, .f = value(c, 0)};
}

static struct item number_trunc(struct call *c)
{
    return whole((int64_t)value(c, 0));
}

static struct item number_eq(struct call *c)
{
    return truth(value(c, 0) == value(c, 1));
}

static struct item number_ne(struct call *c)
{
    return truth(value(c, 0) != value(c, 1));
}

static struct item number_lt(struct call *c)
{
    return truth(value(c, 0) < value(c, 1));
}

static struct item number_le(struct call *c)
{
    return truth(value(c, 0) <= value(c, 1));
}

static struct item number_gt(struct call *c)
{
    return truth(value(c, 0) > value(c, 1));
}

static struct item number_ge(struct call *c)
{
    return truth(value(c, 0) >= value(c, 1));
}

static struct item number_and(struct call *c)
{
    return truth(value(c, 0) != 0 && value(c, 1) != 0);
}

static struct item number_or(struct call *c)
{
    return truth(value(c, 0) != 0 || value(c, 1) != 0);
}

static struct item number_not(struct call *c)
{
    return truth(value(c, 0) == 0);
}

/* A choice. */
static struct item number_ite(struct call *c)
{
    return argument(c, value(c, 0) != 0 ? 1 : 2);
}

const struct number *number_find(const char *name)
{
    static const struct number numbers[] = {
        {"aten.sym_size.int", number_size}, {"aten.sym_numel.default", number_numel},
        {"aten.item.default", number_item}, {"aten._local_scalar_dense.default", number_item},
        {"_operator.add", number_add},      {"_operator.sub", number_sub},
        {"_operator.mul", number_mul},      {"_operator.floordiv", number_floordiv},
        {"_operator.mod", number_mod},      {"_operator.truediv", number_truediv},
        {"_operator.pow", number_pow},      {"_operator.neg", number_neg},
        {"_operator.eq", number_eq},        {"_operator.ne", number_ne},
        {"_operator.lt", number_lt},        {"_operator.le", number_le},
        {"_operator.gt", number_gt},        {"_operator.ge", number_ge},
        {"_operator.and_", number_and},     {"_operator.or_", number_or},
        {"torch.sym_max", number_max},      {"torch.sym_min", number_min},
        {"torch.sym_float", number_float},  {"torch.sym_int", number_trunc},
        {"torch.sym_not", number_not},      {"torch.sym_ite", number_ite},
        {"math.trunc", number_trunc},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!strcmp(numbers[i].name, name))
            return &numbers[i];
    return NULL;
}
