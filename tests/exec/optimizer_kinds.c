/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers for tests: see optimizer_kinds.h. */
#include <math.h>
#include "optimizer_kinds.h"

/* The gradient dtype; fp32 for an optimizer without a network. */
static enum ckpt_dtype grad_dtype_of(const struct small *small)
{
    return small ? small->adamw.grad_dtype : CKPT_F32;
}

static void adamw(struct reference *r, const double *g, const struct reference_step *s)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->m[i] = 0.8 * r->m[i] + 0.2 * g[i];
        r->v[i] = 0.9 * r->v[i] + 0.1 * g[i] * g[i];
        double m = r->m[i] / (1 - pow(0.8, s->k)), v = r->v[i] / (1 - pow(0.9, s->k));
        r->w[i] -= s->lr * (m / (sqrt(v) + 1e-8) + 0.05 * r->w[i]);
    }
}

static ckpt_optimizer *make_adamw(ckpt *c, const struct small *small)
{
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.beta1 = 0.8f, o.beta2 = 0.9f, o.weight_decay = 0.05f;
    o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    return ckpt_adamw(c, &o);
}

static void sgd(struct reference *r, const double *g, const struct reference_step *s)
{
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] -= s->lr * (g[i] + 0.05 * r->w[i]);
}

static ckpt_optimizer *make_sgd(ckpt *c, const struct small *small)
{
    struct ckpt_sgd o = CKPT_SGD_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.weight_decay = 0.05f, o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    return ckpt_sgd(c, &o);
}

static void momentum(struct reference *r, const double *g, const struct reference_step *s)
{
    for (int64_t i = 0; i < r->n; i++) {
        double d = g[i] + 0.05 * r->w[i];
        r->m[i] = s->k == 1 ? d : 0.9 * r->m[i] + 0.75 * d;
        r->w[i] -= s->lr * r->m[i];
    }
}

static ckpt_optimizer *make_momentum(ckpt *c, const struct small *small)
{
    struct ckpt_sgd o = CKPT_SGD_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.weight_decay = 0.05f, o.momentum = 0.9f, o.dampening = 0.25f;
    o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    return ckpt_sgd(c, &o);
}

static void nesterov(struct reference *r, const double *g, const struct reference_step *s)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->m[i] = s->k == 1 ? g[i] : 0.9 * r->m[i] + g[i];
        r->w[i] -= s->lr * (g[i] + 0.9 * r->m[i]);
    }
}

static ckpt_optimizer *make_nesterov(ckpt *c, const struct small *small)
{
    struct ckpt_sgd o = CKPT_SGD_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.momentum = 0.9f, o.nesterov = true, o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    return ckpt_sgd(c, &o);
}

static void lion(struct reference *r, const double *g, const struct reference_step *s)
{
    for (int64_t i = 0; i < r->n; i++) {
        double c = 0.9 * r->m[i] + 0.1 * g[i];
        r->w[i] -= s->lr * ((c > 0) - (c < 0) + 0.05 * r->w[i]);
        r->m[i] = 0.99 * r->m[i] + 0.01 * g[i];
    }
}

static ckpt_optimizer *make_lion(ckpt *c, const struct small *small)
{
    struct ckpt_lion o = CKPT_LION_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.weight_decay = 0.05f, o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    return ckpt_lion(c, &o);
}

double kinds_rms(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* The running means of g^2 by rows and columns, and the estimate of g^2 from them. */
static void factor(struct reference *r, const double *g, double weight, double *v)
{
    double all = 0, row[KINDS_WIDE] = {0}, col[KINDS_WIDE] = {0};
    for (int64_t i = 0; i < r->n; i++) {
        row[i / r->cols] += g[i] * g[i] / (double)r->cols;
        col[i % r->cols] += g[i] * g[i] / (double)r->rows;
    }
    for (int64_t i = 0; i < r->rows; i++)
        r->row[i] += weight * (row[i] - r->row[i]);
    for (int64_t i = 0; i < r->cols; i++)
        r->col[i] += weight * (col[i] - r->col[i]);
    for (int64_t i = 0; i < r->rows; i++)
        all += r->row[i] / (double)r->rows;
    for (int64_t i = 0; i < r->n; i++)
        v[i] = r->row[i / r->cols] * r->col[i % r->cols] / fmax(all, 1e-7);
}

static void adafactor(struct reference *r, const double *g, const struct reference_step *s)
{
    double v[KINDS_MOST], weight = pow(s->k, -0.8);
    double size = fmax(1e-3, kinds_rms(r->w, r->n)) * fmin(s->lr, 1 / sqrt(s->k));
    if (r->cols > 1)
        factor(r, g, weight, v);
    for (int64_t i = 0; i < r->n; i++) {
        if (r->cols == 1)
            v[i] = r->v[i] += weight * (g[i] * g[i] - r->v[i]);
        v[i] = g[i] / sqrt(fmax(v[i], 1e-14));
    }
    double most = fmax(1, kinds_rms(v, r->n));
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] -= size / most * v[i] + s->lr * 0.05 * r->w[i];
}

static ckpt_optimizer *make_adafactor(ckpt *c, const struct small *small)
{
    struct ckpt_adafactor o = CKPT_ADAFACTOR_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.weight_decay = 0.05f, o.eps1 = 1e-7f, o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    return ckpt_adafactor(c, &o);
}

/* y [n, m] = x [n, k] z, where z is [k, m], or [m, k] if transposed. */
static void multiply(double *y, const double *x, const double *z, int64_t n, int64_t k, int64_t m,
                     bool transposed)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            y[i * m + j] = 0;
            for (int64_t l = 0; l < k; l++)
                y[i * m + j] += x[i * k + l] * (transposed ? z[j * k + l] : z[l * m + j]);
        }
}

/* Newton-Schulz iterations with X X^T, for any shape of x. */
static void orthogonalize(double *x, int64_t rows, int64_t cols)
{
    double a[KINDS_WIDE * KINDS_WIDE], b[KINDS_WIDE * KINDS_WIDE], y[KINDS_MOST];
    double norm = fmax(kinds_rms(x, rows * cols) * sqrt((double)(rows * cols)), 1e-7);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] /= norm;
    for (int step = 0; step < 5; step++) {
        multiply(a, x, x, rows, cols, rows, true);
        multiply(b, a, a, rows, rows, rows, false);
        for (int64_t i = 0; i < rows * rows; i++)
            b[i] = -4.775 * a[i] + 2.0315 * b[i];
        multiply(y, b, x, rows, rows, cols, false);
        for (int64_t i = 0; i < rows * cols; i++)
            x[i] = 3.4445 * x[i] + y[i];
    }
}

/* Vectors are updated by AdamW, through a group. */
static void muon(struct reference *r, const double *g, const struct reference_step *s)
{
    double u[KINDS_MOST], scale = sqrt(fmax(1, (double)r->rows / (double)r->cols));
    const struct reference_step other = {.lr = s->lr * 0.5, .k = s->k};
    if (r->cols == 1) {
        adamw(r, g, &other);
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        r->m[i] += (1 - 0.95) * (g[i] - r->m[i]);
        u[i] = g[i] + 0.95 * (r->m[i] - g[i]);
    }
    orthogonalize(u, r->rows, r->cols);
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] -= s->lr * (scale * u[i] + 0.05 * r->w[i]);
}

static ckpt_optimizer *make_muon(ckpt *c, const struct small *small)
{
    struct ckpt_muon o = CKPT_MUON_INIT;
    struct ckpt_adamw other = CKPT_ADAMW_INIT;
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    o.grad_dtype = grad_dtype_of(small);
    o.lr = 0.02f, o.weight_decay = 0.05f, o.clip_norm = 0.4f, o.ema_decay = 0.9f;
    other.lr = 0.01f, other.beta1 = 0.8f, other.beta2 = 0.9f, other.weight_decay = 0.05f;
    ckpt_optimizer *all = ckpt_muon(c, &o);
    g.max_ndim = 1, g.optimizer = ckpt_adamw(c, &other);
    ckpt_optimizer_group(all, "*", &g);
    return all;
}

const struct optimizer_kind optimizer_kinds[OPTIMIZER_KINDS] = {
    {"adamw", make_adamw, adamw, 1e-4, true, false},
    {"sgd", make_sgd, sgd, 1e-5, true, true},
    {"momentum", make_momentum, momentum, 1e-5, true, false},
    {"nesterov", make_nesterov, nesterov, 1e-5, true, false},
    {"lion", make_lion, lion, 1e-5, true, false},
    {"adafactor", make_adafactor, adafactor, 1e-4, false, false},
    {"muon", make_muon, muon, 0.04, false, false},
};
