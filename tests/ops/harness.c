/* SPDX-License-Identifier: Apache-2.0 */
/* The harness of the op tests; see harness.h. */
#include "ckpt_tools.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Allowed distances from the reference, by dtype; second: of gradients of a loss of gradients,
 * which rounds more often, and of the reference by two differences, good to 1e-7. */
static const struct {
    double forward, gradient, second;
} tolerance[] = {[CKPT_F32] = {2e-6, 1e-5, 5e-5}, [CKPT_BF16] = {1e-2, 2e-2, 6e-2}};

double relative_error(const double *a, const double *b, int64_t n, double floor)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(error) / fmax(sqrt(norm), floor);
}

/* ---- the library's side --------------------------------------------------------------------- */

struct trial {
    const struct op_case *c;
    const struct array *expected;
    ckpt_tensor param[MAX_OPERANDS];
};

static ckpt_tensor record_constant(ckpt_tape *t, const char *name, const struct operand *o)
{
    size_t n = (size_t)o->value.n;
    union {
        float f;
        int32_t i;
    } *data = calloc(n ? n : 1, sizeof(*data));
    enum ckpt_dtype dtype = o->role == ROLE_INDEX ? CKPT_I32 : CKPT_F32;
    if (!data)
        exit(99);
    for (size_t i = 0; i < n; i++) {
        if (dtype == CKPT_I32)
            data[i].i = (int32_t)o->value.x[i];
        else
            data[i].f = (float)o->value.x[i];
    }
    ckpt_tensor x = ckpt_constant(t, name, dtype, o->value.ndim, o->value.shape, data);
    free(data);
    return x;
}

static ckpt_tensor record_operand(ckpt_tape *t, const struct trial *trial, int k)
{
    const struct operand *o = &trial->c->in[k];
    char name[16];
    snprintf(name, sizeof(name), "in%d", k);
    if (o->role == ROLE_ABSENT)
        return CKPT_NONE;
    if (o->role != ROLE_PARAM)
        return record_constant(t, name, o);
    ckpt_output_gradient(t, name, trial->param[k]);
    ckpt_tensor x = trial->param[k];
    if (o->permuted)
        x = ckpt_permute(t, x, o->axes);
    if (o->sliced)
        x = ckpt_slice(t, x, o->axis, o->begin, o->begin + o->value.shape[o->axis]);
    return x;
}

static void check_shape(ckpt_tape *t, ckpt_tensor y, const struct array *expected)
{
    struct ckpt_desc d = ckpt_desc_of(t, y);
    bool same = d.ndim == expected->ndim;
    for (int i = 0; same && i < d.ndim; i++)
        same = d.shape[i] == expected->shape[i];
    if (d.ndim >= 0 && !same)
        ckpt_tape_fail(t, CKPT_ESHAPE, "the result has %d axes, or other sizes than the reference",
                       d.ndim);
}

static ckpt_tensor sum_all(ckpt_tape *t, ckpt_tensor x)
{
    const int ndim = ckpt_desc_of(t, x).ndim;
    return ckpt_reshape(t, ndim > 0 ? ckpt_sum(t, x, ~(~0u << ndim)) : x, 0, NULL);
}

/* The sum of df/dx s over the operands. */
static ckpt_tensor record_slopes(ckpt_tape *t, const struct op_case *c, const ckpt_tensor *in,
                                 ckpt_tensor y, ckpt_tensor r)
{
    ckpt_tensor of[MAX_OPERANDS], d[MAX_OPERANDS], sum = CKPT_NONE;
    int n = 0;
    y = ckpt_cast(t, y, CKPT_F32);
    y = ckpt_mul(t, y, ckpt_affine(t, y, 0.5f, 1.f));
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k].role == ROLE_PARAM)
            of[n++] = in[k];
    ckpt_gradients(t, sum_all(t, ckpt_mul(t, y, r)), n, of, d);
    n = 0;
    for (int k = 0; k < c->n_in; k++) {
        struct operand along = {.role = ROLE_FIXED, .value = c->along[k]};
        char name[16];
        snprintf(name, sizeof(name), "along%d", k);
        if (c->in[k].role != ROLE_PARAM)
            continue;
        ckpt_tensor product = ckpt_mul(t, d[n++], record_constant(t, name, &along));
        product = sum_all(t, ckpt_cast(t, product, CKPT_F32));
        sum = sum.id ? ckpt_add(t, sum, product) : product;
    }
    return sum;
}

static ckpt_tensor record_trial(ckpt_tape *t, int64_t micro_batch, void *user)
{
    struct trial *trial = user;
    const struct op_case *c = trial->c;
    ckpt_tensor in[MAX_OPERANDS] = {CKPT_NONE};
    struct operand weight = {.role = ROLE_FIXED, .value = c->weight};
    (void)micro_batch;
    for (int k = 0; k < c->n_in; k++)
        in[k] = record_operand(t, trial, k);
    ckpt_tensor y = c->record(t, in, c);
    check_shape(t, y, trial->expected);
    if (trial->expected->ndim == 0)
        y = ckpt_reshape(t, y, 1, (int64_t[]){1});
    ckpt_output(t, "out", y);
    ckpt_tensor r = record_constant(t, "weight", &weight);
    return c->second ? record_slopes(t, c, in, y, r) : sum_all(t, ckpt_mul(t, y, r));
}

/* Reads an output as fp64, whatever its dtype. */
static int fetch_values(ckpt_program *p, const char *name, int64_t n, double *x)
{
    struct ckpt_desc d;
    int e = ckpt_program_desc(p, name, &d);
    if (e)
        return e;
    int64_t bytes = n * ckpt_dtype_size(d.dtype);
    float *raw = calloc((size_t)n + 1, sizeof(*raw)), *values = calloc((size_t)n + 1, sizeof(*raw));
    if (!raw || !values)
        exit(99);
    e = ckpt_fetch(p, name, raw, bytes);
    if (d.dtype == CKPT_BF16)
        ckpt_from_bf16((uint16_t *)raw, values, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = d.dtype == CKPT_BF16 ? values[i] : raw[i];
    free(raw);
    free(values);
    return e;
}

static int create_params(ckpt *context, struct trial *trial, bool *trained)
{
    for (int k = 0; k < trial->c->n_in; k++) {
        const struct operand *o = &trial->c->in[k];
        char name[16];
        snprintf(name, sizeof(name), "p%d", k);
        if (o->role != ROLE_PARAM)
            continue;
        float *value = calloc((size_t)o->base_n + 1, sizeof(*value));
        if (!value)
            exit(99);
        for (int64_t i = 0; i < o->value.n; i++)
            value[(int64_t)o->map.x[i]] = (float)o->value.x[i];
        trial->param[k] = ckpt_param(context, name, o->keep_f32 ? CKPT_F32 : trial->c->dtype,
                                     o->base_ndim, o->base_shape, CKPT_ZEROS, true);
        int e = ckpt_param_set(context, trial->param[k], CKPT_VALUE, value, o->base_n);
        free(value);
        if (e)
            return e;
        *trained = true;
    }
    return 0;
}

/* Compiles and runs the case; out and gradient[k] get the library's values. */
static int run_library(struct trial *trial, ckpt *context, struct array *out,
                       struct array *gradient)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p = NULL;
    bool trained = false;
    adamw.lr = 0;
    int e = create_params(context, trial, &trained);
    if (!e)
        e = ckpt_compile(context, record_trial, trial, trained ? ckpt_adamw(context, &adamw) : NULL,
                         1, &p);
    if (!e)
        e = ckpt_step(p, NULL);
    if (!e)
        e = fetch_values(p, "out", out->n, out->x);
    for (int k = 0; !e && k < trial->c->n_in; k++) {
        char name[16];
        snprintf(name, sizeof(name), "in%d", k);
        if (trial->c->in[k].role == ROLE_PARAM)
            e = fetch_values(p, name, gradient[k].n, gradient[k].x);
    }
    ckpt_program_free(p);
    return e;
}

/* ---- the reference's side ------------------------------------------------------------------- */

static void evaluate(const struct op_case *c, struct array *out)
{
    struct array in[MAX_OPERANDS];
    for (int k = 0; k < c->n_in; k++)
        in[k] = c->in[k].value;
    c->reference(in, out, &c->attr);
}

static double evaluate_loss(const struct op_case *c)
{
    struct array out;
    double loss = 0;
    evaluate(c, &out);
    for (int64_t i = 0; i < out.n; i++)
        loss += out.x[i] * c->weight.x[i] * (c->second ? 1 + out.x[i] / 2 : 1);
    array_free(&out);
    return loss;
}

/* f with all operands moved by h times s. */
static double evaluate_moved(struct op_case *c, double h)
{
    double *x[MAX_OPERANDS];
    for (int k = 0; k < c->n_in; k++) {
        struct array *v = &c->in[k].value;
        x[k] = v->x;
        if (c->in[k].role != ROLE_PARAM)
            continue;
        v->x = calloc((size_t)v->n + 1, sizeof(*v->x));
        if (!v->x)
            exit(99);
        for (int64_t i = 0; i < v->n; i++)
            v->x[i] = x[k][i] + h * c->along[k].x[i];
    }
    double loss = evaluate_loss(c);
    for (int k = 0; k < c->n_in; k++) {
        if (c->in[k].role == ROLE_PARAM)
            free(c->in[k].value.x);
        c->in[k].value.x = x[k];
    }
    return loss;
}

static double evaluate_objective(struct op_case *c)
{
    const double h = 1e-4;
    return c->second ? (evaluate_moved(c, h) - evaluate_moved(c, -h)) / (2 * h) : evaluate_loss(c);
}

/* The loss with operand k moved by h times the direction. */
static double loss_along(struct op_case *c, int k, const double *direction, double h)
{
    struct operand *o = &c->in[k];
    double *x = o->value.x, *moved = calloc((size_t)o->value.n, sizeof(*moved));
    if (!moved)
        exit(99);
    for (int64_t i = 0; i < o->value.n; i++)
        moved[i] = x[i] + h * direction[i];
    o->value.x = moved;
    double loss = evaluate_objective(c);
    o->value.x = x;
    free(moved);
    return loss;
}

static double difference(struct op_case *c, int k, const double *direction)
{
    const double h = 1e-5;
    return (loss_along(c, k, direction, h) - loss_along(c, k, direction, -h)) / (2 * h);
}

/* The part of a gradient for elements of the parameter that the op does not see: it must be zero.
 * */
static double square_outside(const struct operand *o, const double *gradient)
{
    double square = 0;
    bool *seen = calloc((size_t)o->base_n, sizeof(*seen));
    if (!seen)
        exit(99);
    for (int64_t i = 0; i < o->value.n; i++)
        seen[(int64_t)o->map.x[i]] = true;
    for (int64_t i = 0; i < o->base_n; i++)
        square += seen[i] ? 0 : gradient[i] * gradient[i];
    free(seen);
    return square;
}

struct gradient_error {
    double square; /* of the error */
    double norm;   /* square of the gradient's norm */
};

/* Central differences element by element. */
static struct gradient_error error_of_elements(struct op_case *c, int k, const double *gradient)
{
    const struct operand *o = &c->in[k];
    struct gradient_error e = {0, 0};
    double *direction = calloc((size_t)o->value.n, sizeof(*direction));
    if (!direction)
        exit(99);
    for (int64_t i = 0; i < o->value.n; i++) {
        direction[i] = 1;
        double expected = difference(c, k, direction);
        double error = gradient[(int64_t)o->map.x[i]] - expected;
        e.square += error * error;
        e.norm += expected * expected;
        direction[i] = 0;
    }
    free(direction);
    return e;
}

/* Along a random direction an error has its full size, whichever elements have it. */
static struct gradient_error error_of_directions(struct op_case *c, int k, const double *gradient)
{
    const struct operand *o = &c->in[k];
    struct gradient_error e = {0, 0};
    struct rng r = {.state = 99};
    double *direction = calloc((size_t)o->value.n, sizeof(*direction));
    if (!direction)
        exit(99);
    for (int turn = 0; turn < 3; turn++) {
        double slope = 0;
        for (int64_t i = 0; i < o->value.n; i++) {
            direction[i] = rng_normal(&r);
            slope += direction[i] * gradient[(int64_t)o->map.x[i]];
        }
        double error = slope - difference(c, k, direction);
        e.square += error * error / 3;
    }
    for (int64_t i = 0; i < o->base_n; i++)
        e.norm += gradient[i] * gradient[i];
    free(direction);
    return e;
}

/* ---- one trial ------------------------------------------------------------------------------ */

static void print_case(const struct op_case *c)
{
    for (int k = 0; k < c->n_in; k++) {
        const struct operand *o = &c->in[k];
        printf(" in%d", k);
        if (o->role == ROLE_ABSENT)
            printf(" absent");
        for (int i = 0; i < o->value.ndim; i++)
            printf("%c%lld", i ? 'x' : ' ', (long long)o->value.shape[i]);
        printf("%s%s%s", o->permuted ? " permuted" : "", o->sliced ? " sliced" : "",
               o->keep_f32 ? " f32" : "");
        printf(k + 1 < c->n_in ? ";" : "\n");
    }
}

static int report(const struct op_case *c, int trial, const char *what, double error, double limit)
{
    if (error <= limit)
        return 0;
    printf("FAIL %s trial %d %s: %s is off by %.2e, allowed %.0e:", c->name, trial,
           c->dtype == CKPT_BF16 ? "bf16" : "f32", what, error, limit);
    print_case(c);
    return 1;
}

/* Errors of a gradient are also measured against r: where softmax saturates, the true gradient is
 * near zero, and only the fp32 rounding of cancelling terms remains. */
static int compare_gradient(struct op_case *c, int trial, int k, const double *gradient,
                            double *worst)
{
    char what[32];
    double scale = 0;
    struct gradient_error e = trial < TRIAL_LARGE ? error_of_elements(c, k, gradient)
                                                  : error_of_directions(c, k, gradient);
    for (int64_t i = 0; i < c->weight.n; i++)
        scale += c->weight.x[i] * c->weight.x[i];
    e.square += square_outside(&c->in[k], gradient);
    double error = sqrt(e.square) / fmax(sqrt(e.norm), 0.03 * sqrt(scale));
    *worst = fmax(*worst, error);
    snprintf(what, sizeof(what), "gradient of in%d", k);
    return report(c, trial, what, error,
                  c->second ? tolerance[c->dtype].second : tolerance[c->dtype].gradient);
}

struct worst {
    double forward, gradient, second;
};

static int compare_case(struct op_case *c, int trial, const struct array *expected,
                        const struct array *out, const struct array *gradient, struct worst *worst)
{
    double error = relative_error(out->x, expected->x, out->n, 1e-3);
    int failed = report(c, trial, "result", error, tolerance[c->dtype].forward);
    worst->forward = fmax(worst->forward, error);
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k].role == ROLE_PARAM)
            failed += compare_gradient(c, trial, k, gradient[k].x,
                                       c->second ? &worst->second : &worst->gradient);
    return failed;
}

static int check_case(struct op_case *c, int trial, struct worst *worst)
{
    struct array expected, out, gradient[MAX_OPERANDS] = {0};
    struct trial run = {.c = c, .expected = &expected};
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    ckpt *context = NULL;
    int failed = 1;

    evaluate(c, &expected);
    array_init(&out, expected.ndim, expected.shape);
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k].role == ROLE_PARAM)
            array_init(&gradient[k], c->in[k].base_ndim, c->in[k].base_shape);
    options.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    options.verify = true;
    int e = ckpt_open(&context, &options);
    if (!e) /* all fits; plans are not what is tested, and searches took most of the time */
        e = ckpt_plan_in_full(context, false);
    if (!e)
        e = run_library(&run, context, &out, gradient);
    if (!e) {
        failed = compare_case(c, trial, &expected, &out, gradient, worst);
    } else {
        printf("FAIL %s trial %d %s: %s: %s:", c->name, trial,
               c->dtype == CKPT_BF16 ? "bf16" : "f32", ckpt_error_name(e), ckpt_error(context));
        print_case(c);
    }
    ckpt_close(context);
    for (int k = 0; k < c->n_in; k++)
        array_free(&gradient[k]);
    array_free(&expected);
    array_free(&out);
    return failed;
}

static void draw_along(struct op_case *c, struct rng *r)
{
    for (int k = 0; k < c->n_in; k++) {
        if (c->in[k].role != ROLE_PARAM)
            continue;
        array_init(&c->along[k], c->in[k].value.ndim, c->in[k].value.shape);
        for (int64_t i = 0; i < c->along[k].n; i++)
            c->along[k].x[i] = (float)rng_normal(r);
    }
}

/* fmax drops NaN, but report() does not: a NaN error is never within its limit. */
static int run_trial(const struct op_row *row, int trial, enum ckpt_dtype dtype, bool second,
                     struct worst *worst)
{
    struct op_case c = {
        .name = row->name, .record = row->record, .reference = row->reference, .second = second};
    struct rng r = {.state = (uint64_t)trial * 7919 + 1, .scale = trial < TRIAL_LARGE ? 1 : 4};
    struct array shape;
    for (const char *s = row->name; *s; s++)
        r.state = r.state * 31 + (unsigned char)*s;
    c.dtype = dtype;
    row->draw(&c, &r, trial);
    case_prepare(&c, &r);
    evaluate(&c, &shape);
    array_init(&c.weight, shape.ndim ? shape.ndim : 1, shape.ndim ? shape.shape : (int64_t[]){1});
    for (int64_t i = 0; i < c.weight.n; i++)
        c.weight.x[i] = (float)rng_normal(&r);
    array_free(&shape);
    if (second)
        draw_along(&c, &r);
    int failed = check_case(&c, trial, worst);
    for (int k = 0; k < c.n_in; k++)
        array_free(&c.along[k]);
    case_free(&c);
    return failed;
}

/* All trials but those of ops without a gradient, and of ops whose operands are drawn with ties,
 * where two differences of the reference would cross a corner. */
static bool has_second(const struct op_row *row)
{
    static const char *const others[] = {
        "timestep_embedding", "group_norm_parts", "floor", "round", "minimum", "maximum"};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (!strcmp(row->name, others[i]))
            return false;
    return true;
}

int harness_run(int argc, char **argv, const struct op_row *rows, int trials)
{
    int failures = 0, ran = 0;
    for (const struct op_row *row = rows; row->name; row++) {
        struct worst worst[2] = {{0, 0, 0}, {0, 0, 0}};
        int failed = 0;
        if (argc > 1 && strcmp(argv[1], row->name) != 0)
            continue;
        for (int trial = 0; trial < trials; trial++)
            for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++)
                failed += run_trial(row, trial, (enum ckpt_dtype)dtype, false, &worst[dtype]);
        for (int trial = 0; trial < TRIALS_SECOND && has_second(row); trial++)
            for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++)
                failed += run_trial(row, trial, (enum ckpt_dtype)dtype, true, &worst[dtype]);
        printf("%-4s %-22s f32 %.1e / %.1e / %.1e  bf16 %.1e / %.1e / %.1e (forward / gradient / "
               "second)\n",
               failed ? "FAIL" : "ok", row->name, worst[0].forward, worst[0].gradient,
               worst[0].second, worst[1].forward, worst[1].gradient, worst[1].second);
        fflush(stdout);
        failures += failed;
        ran++;
    }
    return failures || !ran ? 1 : 0;
}

int harness_main(int argc, char **argv, const struct op_row *rows)
{
    return harness_run(argc, argv, rows, TRIALS);
}
