/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 300 random expressions, their gradients and, of each third, second derivatives against
 * random_expressions.txt, which make_random_expressions.py made with JAX in float64.  The directory
 * of the file is argv[1], or $srcdir/tests/ops.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt.h"

enum { ROWS = 3, COLS = 4, NUMBERS = 1 + ROWS * COLS + COLS + ROWS, DEPTH = 64 };
enum { TOGETHER = 10 }; /* lines of one program, each with leaves of its own */

/* fp32 against float64, over the largest gradient of the line and 1. */
#define TOLERANCE 2e-5

struct line {
    char program[DEPTH];
    int order; /* 2: with a penalty on gradients */
    double expected[NUMBERS];
};

struct model {
    struct line line[TOGETHER];
    int n;
    ckpt_tensor leaf[TOGETHER][3]; /* a, b, c */
};

/* As in the script. */
static void fill(float *x, int n, int start)
{
    for (int k = 0; k < n; k++)
        x[k] = (float)((7 * (k + start) + 3) % 29 - 14) / 16 + 1.f / 64;
}

/* x^2 + 1/2, which has a root and a logarithm. */
static ckpt_tensor positive(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, ckpt_mul(t, x, x), 1, 0.5f);
}

static unsigned last_axis(ckpt_tape *t, ckpt_tensor x)
{
    return 1u << (ckpt_desc_of(t, x).ndim - 1);
}

static ckpt_tensor of_one(ckpt_tape *t, char op, ckpt_tensor x)
{
    switch (op) {
    case 'e':
        return ckpt_exp(t, ckpt_tanh(t, x));
    case 't':
        return ckpt_tanh(t, x);
    case 's':
        return ckpt_sigmoid(t, x);
    case 'i':
        return ckpt_sin(t, x);
    case 'o':
        return ckpt_cos(t, x);
    case 'p':
        return ckpt_softplus(t, x);
    case 'n':
        return ckpt_neg(t, x);
    case 'f':
        return ckpt_erf(t, x);
    case 'q':
        return ckpt_sqrt(t, positive(t, x));
    case 'l':
        return ckpt_log(t, positive(t, x));
    case 'r':
        return ckpt_rsqrt(t, positive(t, x));
    case '1':
        return ckpt_log1p(t, ckpt_abs(t, x));
    case 'x':
        return ckpt_expm1(t, ckpt_sin(t, x));
    case 'u':
        return ckpt_leaky_relu(t, x, 0.1f);
    case 'y':
        return ckpt_elu(t, x, 1);
    case 'h':
        return ckpt_abs(t, x);
    case 'G':
        return ckpt_gelu_erf(t, x);
    case 'm':
        return ckpt_mish(t, x);
    case 'c':
        return ckpt_clamp(t, x, -0.4f, 0.6f);
    case '3':
        return ckpt_pow_scalar(t, positive(t, x), 1.5f);
    case 'M':
        return ckpt_mean(t, x, last_axis(t, x));
    case 'S':
        return ckpt_softmax(t, x, ckpt_desc_of(t, x).ndim - 1);
    case 'L':
        return ckpt_logsumexp(t, x, last_axis(t, x));
    case 'g':
        return ckpt_gelu_tanh(t, x);
    default: /* v */
        return ckpt_silu(t, x);
    }
}

static ckpt_tensor of_two(ckpt_tape *t, char op, ckpt_tensor x, ckpt_tensor y)
{
    switch (op) {
    case '+':
        return ckpt_add(t, x, y);
    case '-':
        return ckpt_sub(t, x, y);
    case '*':
        return ckpt_mul(t, x, y);
    case '/':
        return ckpt_div(t, x, positive(t, y));
    case '<':
        return ckpt_minimum(t, x, y);
    case '>':
        return ckpt_maximum(t, x, y);
    case '^':
        return ckpt_pow(t, positive(t, x), ckpt_tanh(t, y));
    default: /* ? */
        return ckpt_where(t, ckpt_lt(t, x, y), ckpt_mul(t, x, y), y);
    }
}

static ckpt_tensor run(ckpt_tape *t, const char *program, const ckpt_tensor *leaf)
{
    ckpt_tensor stack[DEPTH];
    int n = 0;
    for (const char *op = program; *op; op++) {
        if (strchr("ABC", *op)) {
            stack[n++] = leaf[*op - 'A'];
        } else if (strchr("+-*/<>^?", *op)) {
            n--;
            stack[n - 1] = of_two(t, *op, stack[n - 1], stack[n]);
        } else {
            stack[n - 1] = of_one(t, *op, stack[n - 1]);
        }
    }
    return stack[0];
}

static ckpt_tensor sum_of(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    return ckpt_reshape(t, ckpt_sum(t, x, (1u << d.ndim) - 1), 0, NULL);
}

static void name_of(char name[16], char what, int line)
{
    snprintf(name, 16, "%c.%d", what, line);
}

/* The loss of line k. */
static ckpt_tensor record_line(ckpt_tape *t, const struct model *m, int k, ckpt_tensor weight)
{
    ckpt_tensor y = run(t, m->line[k].program, m->leaf[k]), dx;
    ckpt_tensor loss = sum_of(t, ckpt_mul(t, y, weight));
    char name[16];
    for (int i = 0; i < 3; i++) {
        name_of(name, "abc"[i], k);
        ckpt_output_gradient(t, name, m->leaf[k][i]);
    }
    if (m->line[k].order == 2) {
        ckpt_gradients(t, y, 1, m->leaf[k], &dx);
        loss = ckpt_add(t, loss, ckpt_affine(t, sum_of(t, ckpt_mul(t, dx, dx)), 0.01f, 0));
    }
    name_of(name, 'l', k);
    ckpt_output(t, name, loss);
    return loss;
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct model *m = user;
    float w[ROWS * COLS];
    ckpt_tensor sum = CKPT_NONE;
    (void)n;
    fill(w, ROWS * COLS, 17);
    ckpt_tensor weight = ckpt_constant(t, NULL, CKPT_F32, 2, (int64_t[]){ROWS, COLS}, w);
    for (int k = 0; k < m->n; k++) {
        ckpt_tensor loss = record_line(t, m, k, weight);
        sum = k ? ckpt_add(t, sum, loss) : loss;
    }
    return sum;
}

static const int numel[] = {ROWS * COLS, COLS, ROWS};

/* The parameters are named as their gradients. */
static void create(struct model *m, ckpt *c)
{
    static const int64_t shapes[3][2] = {{ROWS, COLS}, {COLS}, {ROWS, 1}};
    static const int ndim[] = {2, 1, 2}, start[] = {0, 5, 11};
    float values[ROWS * COLS];
    char name[16];
    for (int k = 0; k < m->n; k++)
        for (int i = 0; i < 3; i++) {
            fill(values, numel[i], start[i]);
            name_of(name, "abc"[i], k);
            m->leaf[k][i] = ckpt_param_from(c, name, CKPT_F32, ndim[i], shapes[i], values, true);
        }
}

/* The error of line k, whose program has made a step; infinite if it cannot be read. */
static double error_of(ckpt_program *p, const struct line *line, int k)
{
    float got[NUMBERS];
    double scale = 1, worst = 0;
    char name[16];
    int rc, at = 1;
    name_of(name, 'l', k);
    rc = ckpt_fetch(p, name, got, 4);
    for (int i = 0; i < 3 && !rc; at += numel[i++]) {
        name_of(name, "abc"[i], k);
        rc = ckpt_fetch(p, name, got + at, numel[i] * 4);
    }
    for (int i = 0; i < NUMBERS && !rc; i++)
        scale = fmax(scale, fabs(line->expected[i]));
    for (int i = 0; i < NUMBERS && !rc; i++)
        worst = fmax(worst, isnan(got[i]) ? INFINITY : fabs(got[i] - line->expected[i]) / scale);
    return rc ? INFINITY : worst;
}

/* Returns how many lines fail. */
static int check(struct model *m, double *worst)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt_program *p;
    ckpt *c;
    int failures = 0;
    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.threads = 1;
    if (ckpt_open(&c, &o)) {
        printf("FAIL: %s\n", ckpt_error(NULL));
        return m->n;
    }
    create(m, c);
    if (ckpt_compile(c, record, m, ckpt_sgd(c, &sgd), 1, &p) || ckpt_step(p, NULL)) {
        printf("FAIL %s ...: %s\n", m->line[0].program, ckpt_error(c));
        failures = m->n;
    }
    for (int k = 0; k < m->n && failures < m->n; k++) {
        double error = error_of(p, &m->line[k], k);
        *worst = fmax(*worst, error);
        failures += error > TOLERANCE;
        if (error > TOLERANCE)
            printf("FAIL %s: an error of %.1e\n", m->line[k].program, error);
    }
    ckpt_close(c);
    return failures;
}

static int read_line(FILE *f, struct line *line)
{
    if (fscanf(f, "%63s %d", line->program, &line->order) != 2)
        return 0;
    for (int i = 0; i < NUMBERS; i++)
        if (fscanf(f, "%lf", &line->expected[i]) != 1)
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];
    static struct model m;
    double worst = 0;
    int lines = 0, failures = 0;
    if (argc > 1)
        snprintf(path, sizeof path, "%s/random_expressions.txt", argv[1]);
    else
        snprintf(path, sizeof path, "%s/tests/ops/random_expressions.txt", srcdir ? srcdir : ".");
    FILE *f = fopen(path, "r");
    if (!f) {
        printf("FAIL: %s cannot be opened\n", path);
        return 1;
    }
    do {
        for (m.n = 0; m.n < TOGETHER && read_line(f, &m.line[m.n]);)
            m.n++;
        failures += m.n ? check(&m, &worst) : 0;
        lines += m.n;
    } while (m.n == TOGETHER);
    fclose(f);
    printf("%d expressions, %d failed, largest error %.1e\n", lines, failures, worst);
    return lines != 300 || failures;
}
