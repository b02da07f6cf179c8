/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients against central differences: see ckpt_op.h.
 *
 * The model is compiled as for training, with a learning rate of 0, and stepped repeatedly: with
 * the unchanged values, which gives the gradients, and with one element moved up and down.  Every
 * step draws the random numbers of the first.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "context/context.h"
#include "core/sized.h"
#include "exec/programs.h"
#include "optim/optimizer.h"

enum { NAME = 32, STEPS = 4 };

struct gradcheck {
    ckpt *c;
    ckpt_recorder record;
    void *user;
    ckpt_program *p;
    struct ckpt_gradcheck s; /* settings and results */
    float *value, *gradient; /* of the current parameter */
};

static const char *output_name(char dst[NAME], int param)
{
    snprintf(dst, NAME, "ckpt.gradcheck.%d", param);
    return dst;
}

static bool is_checked(const struct gradcheck *k, int i, struct ckpt_param_info *info)
{
    *info = (struct ckpt_param_info)CKPT_PARAM_INFO_INIT;
    return !ckpt_param_info(k->c, ckpt_param_at(k->c, i), info) && info->trainable;
}

static ckpt_tensor record_all(ckpt_tape *t, int64_t batch, void *user)
{
    const struct gradcheck *k = user;
    struct ckpt_param_info info;
    char name[NAME];
    ckpt_tensor loss = k->record(t, batch, k->user);
    for (int i = 0; i < ckpt_param_count(k->c); i++)
        if (is_checked(k, i, &info))
            ckpt_output_gradient(t, output_name(name, i), ckpt_param_at(k->c, i));
    return loss;
}

/* The loss with k->value as the parameter's values, and the random numbers of the first step. */
static int loss_at(struct gradcheck *k, ckpt_tensor w, int64_t n, double *loss)
{
    float x = NAN;
    int rc = ckpt_param_set(k->c, w, CKPT_VALUE, k->value, n);
    program_draw_as(k->p, 0);
    if (!rc)
        rc = ckpt_step(k->p, &x);
    *loss = x;
    return rc;
}

/* A central difference, and how far the rounding of the two fp32 losses may move it. */
struct difference {
    double slope, rounding;
};

static int difference_at(struct gradcheck *k, ckpt_tensor w, int64_t n, int64_t i, double h,
                         struct difference *d)
{
    float keep = k->value[i], above = keep + (float)h, below = keep - (float)h;
    double up, down = NAN, step = (double)above - (double)below;
    k->value[i] = above;
    int rc = loss_at(k, w, n, &up);
    k->value[i] = below;
    if (!rc)
        rc = loss_at(k, w, n, &down);
    k->value[i] = keep;
    *d = (struct difference){(up - down) / step,
                             (double)FLT_EPSILON * (fabs(up) + fabs(down)) / step};
    return rc;
}

/* Computes central differences of element i with a few step lengths; *nearest is the one nearest to
 * its gradient.  Long steps see the curvature of the loss.  Short ones see its rounding: a step
 * whose rounding exceeds `most` shows nothing else, and the rest is left out. */
static int find_difference(struct gradcheck *k, ckpt_tensor w, int64_t n, int64_t i, double most,
                           struct difference *nearest)
{
    double h = k->s.length * fmax(1, fabs((double)k->value[i]));
    int rc = 0;
    *nearest = (struct difference){INFINITY, 0};
    for (int j = 0; j < STEPS && !rc; j++, h /= 4) {
        struct difference d;
        rc = difference_at(k, w, n, i, h, &d);
        if (j && d.rounding > most)
            break;
        if (!rc && fabs(d.slope - k->gradient[i]) < fabs(nearest->slope - k->gradient[i]))
            *nearest = d;
    }
    return rc;
}

static double largest_of(const float *x, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* Checks some elements of a parameter, spread evenly over it. */
static int check_elements(struct gradcheck *k, int param, const struct ckpt_param_info *info)
{
    ckpt_tensor w = ckpt_param_at(k->c, param);
    int64_t n = info->numel, samples = min_i64(n, k->s.samples);
    const struct ckpt_gradcheck usual = CKPT_GRADCHECK_INIT;
    double scale = fmax(largest_of(k->gradient, n), k->s.smallest);
    double most = fmax(k->s.tolerance, usual.tolerance) * scale;
    int rc = 0;
    for (int64_t j = 0; j < samples && !rc; j++) {
        int64_t i = samples > 1 ? j * (n - 1) / (samples - 1) : 0;
        struct difference d;
        rc = find_difference(k, w, n, i, most, &d);
        double error = fmax(0, fabs(d.slope - k->gradient[i]) - d.rounding) / scale;
        if (!rc && !(error <= k->s.error)) {
            k->s.param = info->name;
            k->s.element = i;
            k->s.gradient = k->gradient[i];
            k->s.difference = d.slope;
            k->s.error = error;
        }
    }
    double loss;
    return rc ? rc : loss_at(k, w, n, &loss); /* restores the values */
}

static int check_param(struct gradcheck *k, int param)
{
    struct ckpt_param_info info;
    char name[NAME];
    if (!is_checked(k, param, &info) || info.numel < 1)
        return 0;
    size_t bytes = (size_t)info.numel * sizeof(float);
    k->value = malloc(bytes);
    k->gradient = malloc(bytes);
    ckpt_tensor w = ckpt_param_at(k->c, param);
    int rc = k->value && k->gradient
                 ? ckpt_param_get(k->c, w, CKPT_VALUE, k->value, info.numel)
                 : error_set(CKPT_ENOMEM, "no memory for the gradient of %s", info.name);
    double loss;
    if (!rc)
        rc = loss_at(k, w, info.numel, &loss);
    if (!rc)
        rc = ckpt_fetch(k->p, output_name(name, param), k->gradient, (int64_t)bytes);
    if (!rc)
        rc = check_elements(k, param, &info);
    free(k->value);
    free(k->gradient);
    return rc;
}

/* With other settings nothing would be compared, or everything would pass. */
static int check_settings(struct gradcheck *k)
{
    const struct ckpt_gradcheck *s = &k->s;
    if (s->samples > 0 && s->length > 0 && isfinite(s->length) && s->tolerance >= 0 &&
        isfinite(s->tolerance) && s->smallest > 0 && isfinite(s->smallest))
        return 0;
    return error_set(CKPT_EINVAL,
                     "ckpt_gradcheck: samples, length, tolerance and smallest must be above 0 and "
                     "finite, except for a tolerance of 0; got %lld, %g, %g and %g",
                     (long long)s->samples, s->length, s->tolerance, s->smallest);
}

/* The program's callback; returns the code of the library's call that failed in it. */
static int feed(struct gradcheck *k)
{
    k->c->error = (struct error){0};
    int rc = k->s.feed ? k->s.feed(k->p, k->user) : 0;
    if (!rc || k->c->error.code)
        return rc ? k->c->error.code : 0;
    return error_set(CKPT_EINVAL, "ckpt_gradcheck: feed returned %d", rc);
}

/* Compiles the model, feeds it and compares the gradients of all parameters. */
static int run(struct gradcheck *k)
{
    struct ckpt_adamw still = CKPT_ADAMW_INIT;
    still.lr = 0;
    ckpt_optimizer *o = ckpt_adamw(k->c, &still);
    if (o)
        o->keeps_buffers = true; /* all steps must see the same buffers */
    int rc = ckpt_compile(k->c, record_all, k, o, k->s.batch, &k->p);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    if (!rc)
        rc = ckpt_program_info(k->p, &info);
    if (rc || info.plan_only)
        return rc;
    rc = feed(k);
    for (int i = 0; i < ckpt_param_count(k->c) && !rc; i++)
        rc = check_param(k, i);
    if (!rc && k->s.error > k->s.tolerance)
        rc = error_set(CKPT_EGRADIENT,
                       "the gradient of %s[%lld] is %.6g, by central differences %.6g", k->s.param,
                       (long long)k->s.element, k->s.gradient, k->s.difference);
    return rc;
}

/* The sentence of a failed check stays.  The size of the struct was checked when it was read. */
static void give(const struct ckpt_gradcheck *found, struct ckpt_gradcheck *to)
{
    struct error unused;
    ERRORS_TO(&unused);
    sized_write("struct ckpt_gradcheck", to, found, sizeof *found);
}

int ckpt_gradcheck(ckpt *c, ckpt_recorder record, void *user, struct ckpt_gradcheck *check)
{
    struct gradcheck k = {.c = c, .record = record, .user = user, .s = CKPT_GRADCHECK_INIT};
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(record);
    if (check) {
        int rc = sized_read("struct ckpt_gradcheck", &k.s, sizeof k.s, check);
        if (rc)
            return rc;
    }
    k.s.param = NULL;
    k.s.element = 0;
    k.s.gradient = k.s.difference = k.s.error = 0;
    int rc = check_settings(&k);
    if (!rc)
        rc = run(&k);
    ckpt_program_free(k.p);
    if (check)
        give(&k.s, check);
    return rc;
}
