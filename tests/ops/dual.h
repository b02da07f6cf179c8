/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of random expressions in fp64, with derivatives along: see test_fuse.c. */
#ifndef CKPT_TESTS_DUAL_H
#define CKPT_TESTS_DUAL_H

#include <math.h>
#include <stdbool.h>

enum { PARAMS = 3 };

/* A value and its derivatives with respect to the three elements that it depends on. */
struct dual {
    double x, d[PARAMS];
};

static struct dual chain_rule(double y, double slope, const struct dual *a)
{
    struct dual r = {.x = y};
    for (int k = 0; k < PARAMS; k++)
        r.d[k] = slope * a->d[k];
    return r;
}

static struct dual two(double y, double da, const struct dual *a, double db, const struct dual *b)
{
    struct dual r = {.x = y};
    for (int k = 0; k < PARAMS; k++)
        r.d[k] = da * a->d[k] + db * b->d[k];
    return r;
}

/* *near becomes true where a small error of an operand can change the branch. */
static struct dual evaluate(int function, const struct dual *a, const struct dual *b, bool *near)
{
    double x = a->x, y = b->x, s = 1 / (1 + exp(-x)), t = tanh(x), q;
    const double c = sqrt(2 / M_PI);
    bool branches = function == 14 || function == 15 || function == 19;
    *near |= branches && fabs(function == 19 ? x : x - y) < 1e-3;
    switch (function) {
    case 0:
        return two(x + y, 1, a, 1, b);
    case 1:
        return two(x - y, 1, a, -1, b);
    case 2:
        return two(x * y, y, a, x, b);
    case 3:
        q = y * y + 1;
        return two(x / q, 1 / q, a, -2 * x * y / (q * q), b);
    case 4:
        return chain_rule(t, 1 - t * t, a);
    case 5:
        return chain_rule(s, s * (1 - s), a);
    case 6:
        return chain_rule(sin(x), cos(x), a);
    case 7:
        return chain_rule(cos(x), -sin(x), a);
    case 8:
        return chain_rule(log1p(exp(-fabs(x))) + (x > 0 ? x : 0), s, a);
    case 9:
        return chain_rule(log1p(x * x), 2 * x / (1 + x * x), a);
    case 10:
        q = sqrt(x * x + 0.5);
        return chain_rule(q, x / q, a);
    case 11:
        q = 1 / sqrt(x * x + 0.5);
        return chain_rule(q, -x * q * q * q, a);
    case 12:
        return chain_rule(erf(x), 2 / sqrt(M_PI) * exp(-x * x), a);
    case 13:
        q = 0.5 * (1 + erf(x / sqrt(2)));
        return chain_rule(x * q, q + x * exp(-x * x / 2) / sqrt(2 * M_PI), a);
    case 14:
        return x < y ? *a : *b;
    case 15:
        return x > y ? *a : *b;
    case 16:
        return chain_rule(exp(t), exp(t) * (1 - t * t), a);
    case 17:
        q = tanh(c * (x + 0.044715 * x * x * x));
        return chain_rule(x / 2 * (1 + q),
                          (1 + q) / 2 + x / 2 * (1 - q * q) * c * (1 + 0.134145 * x * x), a);
    case 18:
        return chain_rule(x * s, s + x * s * (1 - s), a);
    default:
        return chain_rule(x > 0 ? -x : -0.75 * expm1(x), x > 0 ? -1 : -0.75 * exp(x), a);
    }
}

#endif
