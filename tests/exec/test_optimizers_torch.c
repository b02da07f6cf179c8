/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers against PyTorch's in float64 (make_torch_optimizers.py), from the same weights and
 * gradients: the loss is the sum of w x, whose gradient is x.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "small.h"
#include "torch_optimizers.h"

enum { NUMEL = TORCH_ROWS * TORCH_COLS };

struct net {
    int ndim;
    int64_t shape[2];
    ckpt_tensor w;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, NUMEL});
    return ckpt_sum(t, ckpt_mul(t, ckpt_reshape(t, x, m->ndim, m->shape), m->w),
                    m->ndim > 1 ? 3 : 1);
}

#define MAKE(name, kind, init, set)                                                                \
    static ckpt_optimizer *name(ckpt *c)                                                           \
    {                                                                                              \
        struct ckpt_##kind o = init;                                                               \
        o.lr = 0.1f;                                                                               \
        set;                                                                                       \
        return ckpt_##kind(c, &o);                                                                 \
    }
MAKE(make_sgd, sgd, CKPT_SGD_INIT, o.weight_decay = 0.05f)
MAKE(make_momentum, sgd, CKPT_SGD_INIT, o.momentum = 0.9f; o.dampening = 0.25f;
     o.weight_decay = 0.05f)
MAKE(make_nesterov, sgd, CKPT_SGD_INIT, o.momentum = 0.9f; o.nesterov = true;
     o.weight_decay = 0.05f)
MAKE(make_adamw, adamw, CKPT_ADAMW_INIT, o.beta1 = 0.8f; o.beta2 = 0.95f; o.weight_decay = 0.05f)
MAKE(make_adafactor, adafactor, CKPT_ADAFACTOR_INIT, o.eps1 = 1e-7f; o.weight_decay = 0.05f)
MAKE(make_vector, adafactor, CKPT_ADAFACTOR_INIT, o.eps1 = 1e-7f)
MAKE(make_tall, muon, CKPT_MUON_INIT, o.weight_decay = 0.05f)
MAKE(make_wide, muon, CKPT_MUON_INIT, o.match_rms = true; o.nesterov = false)

static const struct row {
    const char *name;
    ckpt_optimizer *(*make)(ckpt *c);
    const double *want;
    int ndim;
    int64_t shape[2];
    double tolerance; /* of Muon: both round to bf16, not at the same places; PyTorch is 0.024 from
                         double */
} table[] = {
    {"sgd", make_sgd, torch_sgd, 2, {TORCH_ROWS, TORCH_COLS}, 1e-6},
    {"momentum", make_momentum, torch_momentum, 2, {TORCH_ROWS, TORCH_COLS}, 1e-6},
    {"nesterov", make_nesterov, torch_nesterov, 2, {TORCH_ROWS, TORCH_COLS}, 1e-6},
    {"adamw", make_adamw, torch_adamw, 2, {TORCH_ROWS, TORCH_COLS}, 1e-6},
    {"adafactor", make_adafactor, torch_adafactor, 2, {TORCH_ROWS, TORCH_COLS}, 1e-6},
    {"adafactor, vector", make_vector, torch_adafactor_vector, 1, {NUMEL}, 1e-6},
    {"muon, tall", make_tall, torch_muon_tall, 2, {TORCH_ROWS, TORCH_COLS}, 0.06},
    {"muon, wide", make_wide, torch_muon_wide, 2, {TORCH_COLS, TORCH_ROWS}, 0.06},
};

static void check(const struct row *r)
{
    struct net m = {.ndim = r->ndim, .shape = {r->shape[0], r->shape[1]}};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    float values[NUMEL];
    double error = 0, change = 0;
    ckpt *c;
    ckpt_program *p;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    m.w = ckpt_param(c, "w", CKPT_F32, m.ndim, m.shape, CKPT_ZEROS, true);
    for (int i = 0; i < NUMEL; i++)
        values[i] = (float)torch_start[i];
    assert_int_equal(ckpt_param_set(c, m.w, CKPT_VALUE, values, NUMEL), 0);
    if (ckpt_compile(c, record, &m, r->make(c), 1, &p))
        fail_msg("%s: %s", r->name, ckpt_error(c));
    for (int s = 0; s < TORCH_STEPS; s++) {
        for (int i = 0; i < NUMEL; i++)
            values[i] = (float)torch_gradients[s * NUMEL + i];
        assert_int_equal(ckpt_feed(p, "x", values, sizeof values), 0);
        if (ckpt_step(p, NULL))
            fail_msg("%s: %s", r->name, ckpt_error(c));
    }
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, values, NUMEL), 0);
    for (int i = 0; i < NUMEL; i++) {
        error += pow((double)values[i] - r->want[i], 2);
        change += pow(r->want[i] - torch_start[i], 2);
    }
    print_message("%-18s %.1e of the change\n", r->name, sqrt(error / change));
    assert_true(sqrt(error / change) < r->tolerance);
    ckpt_close(c);
}

static void test_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        check(&table[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
