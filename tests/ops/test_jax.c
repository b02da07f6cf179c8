/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main ops and three steps of AdamW against references.safetensors, second derivatives against
 * second.safetensors, both of which make_references.py made with JAX in float64.  Their directory
 * is argv[1], or $srcdir/tests/ops.
 */
#include "ckpt_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-5
#define MAX_IN    4

static ckpt_file *file;
static int failures;

static void fail(const char *name, const char *what)
{
    printf("FAIL %s: %s\n", name, what);
    failures++;
}

/* ---- the reference file --------------------------------------------------------------------- */

struct values {
    struct ckpt_file_entry entry;
    union {
        float *f;
        int32_t *i;
    };
};

/* Reads a tensor of the file; a missing one ends the test. */
static struct values load(const char *prefix, const char *name, int number)
{
    struct values v = {.entry = CKPT_FILE_ENTRY_INIT};
    char key[128];
    snprintf(key, sizeof(key), number < 0 ? "%s.%s" : "%s.%s%d", prefix, name, number);
    int i = ckpt_file_find(file, key), e = i < 0 ? i : ckpt_file_entry(file, i, &v.entry);
    if (!e)
        v.f = malloc((size_t)v.entry.numel * sizeof(*v.f) + 1);
    if (!e && v.f && strcmp(v.entry.dtype, "I32") == 0)
        e = ckpt_file_read_i32(file, i, v.i, v.entry.numel);
    else if (!e && v.f)
        e = ckpt_file_read_f32(file, i, v.f, v.entry.numel);
    if (e || !v.f) {
        printf("FAIL %s: cannot be read: %s\n", key, ckpt_error(NULL));
        exit(1);
    }
    return v;
}

static void compare(const char *name, const char *what, int number, const float *actual,
                    const struct values *expected)
{
    double error = 0, norm = 0;
    char text[96];
    for (int64_t i = 0; i < expected->entry.numel; i++) {
        double d = (double)actual[i] - expected->f[i];
        error += d * d;
        norm += (double)expected->f[i] * expected->f[i];
    }
    error = sqrt(error / norm);
    if (error <= TOLERANCE)
        return;
    snprintf(text, sizeof(text), "%s %d is off by %.2e, allowed %.0e", what, number, error,
             TOLERANCE);
    fail(name, text);
}

/* ---- ops ------------------------------------------------------------------------------------ */

/* Roles of the operands: p a parameter, c an fp32 constant, i an i32 constant. */
struct jax_case {
    const char *name, *roles;
    ckpt_tensor (*record)(ckpt_tape *t, const ckpt_tensor *in);
    struct values in[MAX_IN], r, out, along[MAX_IN];
    ckpt_tensor param[MAX_IN];
    bool second;
};

static float head_scale(ckpt_tape *t, ckpt_tensor q)
{
    struct ckpt_desc d = ckpt_desc_of(t, q);
    return d.ndim > 0 ? 1.f / sqrtf((float)d.shape[d.ndim - 1]) : 0.f;
}

static ckpt_tensor record_attention(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_attention(t, in[0], in[1], in[2], CKPT_NONE, NULL);
}

static ckpt_tensor record_cross_attention(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_cross_attention(t, in[0], in[1], in[2], in[3], head_scale(t, in[0]));
}

static ckpt_tensor record_layer_norm(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_layer_norm(t, in[0], CKPT_NONE, CKPT_NONE, 1e-6f);
}

static ckpt_tensor record_rms_norm(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_rms_norm(t, in[0], in[1], 1e-6f);
}

static ckpt_tensor record_gelu(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_gelu_tanh(t, in[0]);
}

static ckpt_tensor record_silu(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_silu(t, in[0]);
}

static ckpt_tensor record_rope(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_rope(t, in[0], in[1], 1);
}

static ckpt_tensor record_mse(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_mse(t, in[0], in[1], in[2]);
}

static ckpt_tensor record_cross_entropy(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_cross_entropy(t, in[0], in[1], NULL);
}

static ckpt_tensor record_group_norm(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_group_norm_silu(t, in[0], in[1], in[2], 2, 1e-6f, true);
}

static ckpt_tensor record_pool(ckpt_tape *t, const ckpt_tensor *in)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    for (int i = 0; i < 2; i++)
        spec.stride[i] = 2, spec.before[i] = spec.after[i] = 1;
    return ckpt_max_pool(t, in[0], (int64_t[]){3, 3}, &spec);
}

static ckpt_tensor record_critic(ckpt_tape *t, const ckpt_tensor *in)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    ckpt_tensor h = ckpt_conv(t, in[0], in[1], CKPT_NONE, &spec);
    h = ckpt_group_norm_silu(t, h, in[2], ckpt_affine(t, in[2], 0, 0), 2, 1e-6f, false);
    h = ckpt_gelu_tanh(t, h);
    h = record_pool(t, &h);
    return ckpt_linear(t, ckpt_reshape(t, h, 2, (int64_t[]){2, 36}), in[3], CKPT_NONE);
}

static ckpt_tensor record_constant(ckpt_tape *t, const char *name, const struct values *v)
{
    enum ckpt_dtype dtype = strcmp(v->entry.dtype, "I32") == 0 ? CKPT_I32 : CKPT_F32;
    return ckpt_constant(t, name, dtype, v->entry.ndim, v->entry.shape, v->f);
}

static ckpt_tensor sum_all(ckpt_tape *t, ckpt_tensor x)
{
    const int ndim = ckpt_desc_of(t, x).ndim;
    return ckpt_reshape(t, ndim > 0 ? ckpt_sum(t, x, ~(~0u << ndim)) : x, 0, NULL);
}

/* The sum of df/din along. */
static ckpt_tensor record_slope(ckpt_tape *t, const struct jax_case *c, const ckpt_tensor *in,
                                ckpt_tensor y)
{
    ckpt_tensor of[MAX_IN], d[MAX_IN], sum = CKPT_NONE;
    int n = 0;
    y = ckpt_mul(t, y, ckpt_affine(t, y, 0.5f, 1.f));
    for (int i = 0; c->roles[i]; i++)
        if (c->roles[i] == 'p')
            of[n++] = in[i];
    ckpt_gradients(t, sum_all(t, ckpt_mul(t, y, record_constant(t, "r", &c->r))), n, of, d);
    n = 0;
    for (int i = 0; c->roles[i]; i++) {
        char name[16];
        snprintf(name, sizeof(name), "along%d", i);
        if (c->roles[i] != 'p')
            continue;
        ckpt_tensor part = ckpt_mul(t, d[n++], record_constant(t, name, &c->along[i]));
        sum = sum.id ? ckpt_add(t, sum, sum_all(t, part)) : sum_all(t, part);
    }
    return sum;
}

/* out and the loss sum(out r), or for second derivatives the slope. */
static ckpt_tensor record_case(ckpt_tape *t, int64_t micro_batch, void *user)
{
    struct jax_case *c = user;
    ckpt_tensor in[MAX_IN] = {CKPT_NONE};
    (void)micro_batch;
    for (int i = 0; c->roles[i]; i++) {
        char name[16];
        snprintf(name, sizeof(name), "grad%d", i);
        if (c->roles[i] == 'p')
            ckpt_output_gradient(t, name, in[i] = c->param[i]);
        else
            in[i] = record_constant(t, name, &c->in[i]);
    }
    ckpt_tensor y = c->record(t, in);
    if (c->second)
        return record_slope(t, c, in, y);
    ckpt_output(t, "out", ckpt_reshape(t, y, 1, &c->out.entry.numel));
    return sum_all(t, ckpt_mul(t, y, record_constant(t, "r", &c->r)));
}

static void load_case(ckpt *context, struct jax_case *c)
{
    for (int i = 0; c->roles[i]; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%d", i);
        c->in[i] = load(c->name, "in", i);
        const struct ckpt_file_entry *e = &c->in[i].entry;
        if (c->roles[i] != 'p')
            continue;
        if (c->second)
            c->along[i] = load(c->name, "along", i);
        c->param[i] = ckpt_param(context, name, CKPT_F32, e->ndim, e->shape, CKPT_ZEROS, true);
        ckpt_param_set(context, c->param[i], CKPT_VALUE, c->in[i].f, e->numel);
    }
    c->r = load(c->name, "r", -1);
    if (!c->second)
        c->out = load(c->name, "out", -1);
}

static void compare_output(ckpt_program *p, const char *name, const char *output, int number,
                           const struct values *expected)
{
    float *actual = malloc((size_t)expected->entry.numel * sizeof(*actual) + 1);
    char key[32];
    snprintf(key, sizeof(key), number < 0 ? "%s" : "%s%d", output, number);
    if (!actual || ckpt_fetch(p, key, actual, expected->entry.numel * 4))
        fail(name, "an output cannot be fetched");
    else
        compare(name, output, number, actual, expected);
    free(actual);
}

static void free_case(struct jax_case *c)
{
    for (int i = 0; i < MAX_IN; i++) {
        free(c->in[i].f);
        free(c->along[i].f);
    }
    free(c->r.f);
    free(c->out.f);
}

static void check_case(struct jax_case c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *context = NULL;
    ckpt_program *p = NULL;
    int before = failures, e = ckpt_open(&context, NULL);
    adamw.lr = 0;
    if (e) {
        fail(c.name, ckpt_error(NULL));
        return;
    }
    load_case(context, &c);
    e = ckpt_compile(context, record_case, &c, ckpt_adamw(context, &adamw), 1, &p);
    if (e || ckpt_step(p, NULL)) {
        fail(c.name, ckpt_error(context));
    } else {
        if (!c.second)
            compare_output(p, c.name, "out", -1, &c.out);
        for (int i = 0; c.roles[i]; i++) {
            if (c.roles[i] != 'p')
                continue;
            struct values expected = load(c.name, "grad", i);
            compare_output(p, c.name, "grad", i, &expected);
            free(expected.f);
        }
    }
    printf("%-4s %s%s\n", failures == before ? "ok" : "FAIL", c.name,
           c.second ? ", second derivatives" : "");
    ckpt_program_free(p);
    ckpt_close(context);
    free_case(&c);
}

/* ---- AdamW ---------------------------------------------------------------------------------- */

static const char *const weights[] = {"w1", "b1", "w2"};
enum { WEIGHTS = 3, STEPS = 3 };

static ckpt_tensor record_network(ckpt_tape *t, int64_t n, void *user)
{
    const ckpt_tensor *w = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, 5});
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 3, (int64_t[]){n, 2, 3});
    ckpt_tensor h = ckpt_silu(t, ckpt_linear(t, x, w[0], w[1]));
    ckpt_tensor y = ckpt_reshape(t, ckpt_linear(t, h, w[2], CKPT_NONE), 3, (int64_t[]){n, 2, 3});
    return ckpt_mse(t, y, target, CKPT_NONE);
}

static void compare_slot(ckpt *c, ckpt_tensor w, const char *weight, const char *part,
                         enum ckpt_slot slot, int step)
{
    char name[32];
    snprintf(name, sizeof(name), "%s.%s", weight, part);
    struct values expected = load("adamw", name, step);
    float *actual = malloc((size_t)expected.entry.numel * sizeof(*actual) + 1);
    if (!actual || ckpt_param_get(c, w, slot, actual, expected.entry.numel))
        fail(name, "a slot cannot be read");
    else
        compare("adamw", name, step, actual, &expected);
    free(actual);
    free(expected.f);
}

static void compare_scalar(const char *name, int step, double actual)
{
    struct values expected = load("adamw", name, step);
    compare("adamw", name, step, &(float){(float)actual}, &expected);
    free(expected.f);
}

static int run_steps(ckpt *c, ckpt_program *p, const ckpt_tensor *w)
{
    struct values x = load("adamw", "x", -1), target = load("adamw", "target", -1);
    int e = ckpt_feed(p, "x", x.f, x.entry.numel * 4);
    e = e ? e : ckpt_feed(p, "target", target.f, target.entry.numel * 4);
    for (int step = 1; !e && step <= STEPS; step++) {
        struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
        float loss;
        e = ckpt_step(p, &loss);
        ckpt_program_info(p, &info);
        compare_scalar("loss", step, loss);
        compare_scalar("norm", step, info.grad_norm);
        for (int i = 0; i < WEIGHTS; i++) {
            compare_slot(c, w[i], weights[i], "value", CKPT_VALUE, step);
            compare_slot(c, w[i], weights[i], "exp_avg", CKPT_EXP_AVG, step);
            compare_slot(c, w[i], weights[i], "exp_avg_sq", CKPT_EXP_AVG_SQ, step);
            compare_slot(c, w[i], weights[i], "ema", CKPT_EMA, step);
        }
    }
    free(x.f);
    free(target.f);
    return e;
}

static void check_adamw(void)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c = NULL;
    ckpt_program *p = NULL;
    ckpt_tensor w[WEIGHTS];
    int before = failures, e = ckpt_open(&c, NULL);
    adamw.lr = 1e-2f;
    adamw.weight_decay = 0.1f;
    adamw.clip_norm = 0.5f;
    adamw.ema_decay = 0.9f;
    for (int i = 0; !e && i < WEIGHTS; i++) {
        struct values v = load("adamw", weights[i], -1);
        w[i] = ckpt_param(c, weights[i], CKPT_F32, v.entry.ndim, v.entry.shape, CKPT_ZEROS, true);
        e = ckpt_param_set(c, w[i], CKPT_VALUE, v.f, v.entry.numel);
        free(v.f);
    }
    e = e ? e : ckpt_compile(c, record_network, w, ckpt_adamw(c, &adamw), 4, &p);
    if (e || run_steps(c, p, w))
        fail("adamw", ckpt_error(c));
    printf("%-4s adamw\n", failures == before ? "ok" : "FAIL");
    ckpt_program_free(p);
    ckpt_close(c);
}

static void open_file(const char *directory, const char *name)
{
    const char *source = getenv("srcdir");
    char path[1024];
    if (directory)
        snprintf(path, sizeof(path), "%s/%s", directory, name);
    else
        snprintf(path, sizeof(path), "%s/tests/ops/%s", source ? source : ".", name);
    if (!ckpt_file_open(&file, path))
        return;
    printf("FAIL %s\n", ckpt_error(NULL));
    exit(1);
}

enum { SECOND_ONLY = 3 }; /* the last of the cases */

int main(int argc, char **argv)
{
    static const struct jax_case cases[] = {
        {.name = "attention", .roles = "ppp", .record = record_attention},
        {.name = "cross_attention", .roles = "pppi", .record = record_cross_attention},
        {.name = "layer_norm", .roles = "p", .record = record_layer_norm},
        {.name = "rms_norm", .roles = "pp", .record = record_rms_norm},
        {.name = "gelu", .roles = "p", .record = record_gelu},
        {.name = "silu", .roles = "p", .record = record_silu},
        {.name = "rope", .roles = "pc", .record = record_rope},
        {.name = "mse", .roles = "pci", .record = record_mse},
        {.name = "cross_entropy", .roles = "pi", .record = record_cross_entropy},
        {.name = "group_norm_silu", .roles = "ppp", .record = record_group_norm},
        {.name = "max_pool", .roles = "p", .record = record_pool},
        {.name = "critic", .roles = "pppp", .record = record_critic},
    };
    const int n = (int)(sizeof(cases) / sizeof(*cases));
    open_file(argc > 1 ? argv[1] : NULL, "references.safetensors");
    for (int i = 0; i < n - SECOND_ONLY; i++)
        check_case(cases[i]);
    check_adamw();
    ckpt_file_close(file);
    open_file(argc > 1 ? argv[1] : NULL, "second.safetensors");
    for (int i = 0; i < n; i++) {
        struct jax_case c = cases[i];
        c.second = true;
        check_case(c);
    }
    ckpt_file_close(file);
    return failures ? 1 : 0;
}
