/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch of 6 as 6, 3, 2 or 1 micro-steps: loss, outputs, gradients and updated weights agree up
 * to the order of summation; random numbers agree to the bit.
 */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 6,
    IN = 5,
    WIDTH = 8,
    CHANNELS = 2,
    FRAMES = 3,
    OUT = CHANNELS * FRAMES,
    PARAMS = 4
};

struct model {
    ckpt_tensor param[PARAMS];
};

static const int64_t shapes[PARAMS][2] = {{WIDTH, IN}, {WIDTH, 1}, {OUT, WIDTH}, {OUT, 1}};
static const char *const names[PARAMS] = {"w1", "b1", "w2", "b2"};

struct outcome {
    float loss, noise[BATCH * IN], pred[BATCH * OUT];
    float gradient[PARAMS][OUT * WIDTH], value[PARAMS][OUT * WIDTH];
    double norm;
};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, IN});
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 3, (int64_t[]){n, CHANNELS, FRAMES});
    ckpt_tensor mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){n, FRAMES});
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, (int64_t[]){n, IN});
    ckpt_tensor h = ckpt_linear(t, ckpt_add(t, x, noise), m->param[0], m->param[1]);
    h = ckpt_layer_norm(t, ckpt_dropout(t, ckpt_gelu_tanh(t, h), 0.25f), CKPT_NONE, CKPT_NONE,
                        1e-6f);
    ckpt_tensor pred = ckpt_linear(t, h, m->param[2], m->param[3]);
    pred = ckpt_reshape(t, pred, 3, (int64_t[]){n, CHANNELS, FRAMES});
    ckpt_output(t, "noise", noise);
    ckpt_output(t, "pred", pred);
    for (int i = 0; i < PARAMS; i++)
        ckpt_output_gradient(t, names[i], m->param[i]);
    return ckpt_mse(t, pred, target, mask);
}

static int create(ckpt *c, struct model *m)
{
    struct rng r = {.state = 5};
    for (int i = 0; i < PARAMS; i++) {
        float value[OUT * WIDTH];
        int64_t n = shapes[i][0] * shapes[i][1];
        for (int64_t k = 0; k < n; k++)
            value[k] = (float)(0.4 * rng_normal(&r));
        m->param[i] = ckpt_param(c, names[i], CKPT_F32, shapes[i][1] == 1 ? 1 : 2, shapes[i],
                                 CKPT_ZEROS, true);
        int e = ckpt_param_set(c, m->param[i], CKPT_VALUE, value, n);
        if (e)
            return e;
    }
    return 0;
}

/* Sample 4 has no frame with a loss. */
static int feed(ckpt_program *p)
{
    struct rng r = {.state = 6};
    float x[BATCH * IN], target[BATCH * OUT];
    int32_t mask[BATCH * FRAMES];
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = (float)rng_normal(&r);
    for (int i = 0; i < BATCH * OUT; i++)
        target[i] = (float)rng_normal(&r);
    for (int i = 0; i < BATCH * FRAMES; i++)
        mask[i] = i / FRAMES != 4 && rng_range(&r, 0, 2) > 0;
    int e = ckpt_feed(p, "x", x, sizeof(x));
    e = e ? e : ckpt_feed(p, "target", target, sizeof(target));
    return e ? e : ckpt_feed(p, "mask", mask, sizeof(mask));
}

static int collect(ckpt *c, ckpt_program *p, const struct model *m, struct outcome *o)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    int e = ckpt_fetch(p, "noise", o->noise, sizeof(o->noise));
    e = e ? e : ckpt_fetch(p, "pred", o->pred, sizeof(o->pred));
    for (int i = 0; i < PARAMS; i++) {
        int64_t n = shapes[i][0] * shapes[i][1];
        e = e ? e : ckpt_fetch(p, names[i], o->gradient[i], n * 4);
        e = e ? e : ckpt_param_get(c, m->param[i], CKPT_VALUE, o->value[i], n);
    }
    ckpt_program_info(p, &info);
    o->norm = info.grad_norm;
    return e;
}

static int run(int64_t micro_batch, struct outcome *o)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct model m;
    ckpt *c = NULL;
    ckpt_program *p = NULL;
    options.micro_batch = micro_batch;
    options.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    options.verify = true;
    adamw.lr = 1e-2f;
    adamw.eps = 1e-3f; /* so that an update depends smoothly on the gradient */
    adamw.clip_norm = 0.1f;
    memset(o, 0, sizeof(*o));
    int e = ckpt_open(&c, &options);
    e = e ? e : create(c, &m);
    e = e ? e : ckpt_compile(c, record, &m, ckpt_adamw(c, &adamw), BATCH, &p);
    e = e ? e : feed(p);
    e = e ? e : ckpt_step(p, &o->loss);
    e = e ? e : collect(c, p, &m, o);
    if (e)
        printf("FAIL micro-batch %lld: %s: %s\n", (long long)micro_batch, ckpt_error_name(e),
               ckpt_error(c));
    ckpt_program_free(p);
    ckpt_close(c);
    return e;
}

static int compare(const char *what, int64_t micro_batch, const float *a, const float *b, int64_t n)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (a[i] - b[i]) * (double)(a[i] - b[i]);
        norm += b[i] * (double)b[i];
    }
    if (norm > 0 && sqrt(error / norm) <= 1e-6)
        return 0;
    printf("FAIL %s at micro-batch %lld differs by %.2e\n", what, (long long)micro_batch,
           sqrt(error / norm));
    return 1;
}

int main(void)
{
    static const int64_t sizes[] = {3, 2, 1};
    static struct outcome whole, parts;
    int failures = 0;
    if (run(BATCH, &whole))
        return 1;
    for (int k = 0; k < 3; k++) {
        if (run(sizes[k], &parts))
            return 1;
        if (memcmp(parts.noise, whole.noise, sizeof(whole.noise)) != 0)
            failures += printf("FAIL noise at micro-batch %lld differs\n", (long long)sizes[k]) > 0;
        failures += compare("loss", sizes[k], &parts.loss, &whole.loss, 1);
        failures += compare("pred", sizes[k], parts.pred, whole.pred, BATCH * OUT);
        failures +=
            compare("norm", sizes[k], &(float){(float)parts.norm}, &(float){(float)whole.norm}, 1);
        for (int i = 0; i < PARAMS; i++) {
            int64_t n = shapes[i][0] * shapes[i][1];
            failures += compare(names[i], sizes[k], parts.gradient[i], whole.gradient[i], n);
            failures += compare("updated weight", sizes[k], parts.value[i], whole.value[i], n);
        }
    }
    printf("%s: 6, 3, 2, 1 samples a micro-step\n", failures ? "FAIL" : "ok");
    return failures ? 1 : 0;
}
