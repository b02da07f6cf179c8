/* SPDX-License-Identifier: Apache-2.0 */
/* Every macro of the public headers, in words that C11 and C++11 share: see test_headers.sh. */
#include "ckpt.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_import.h"
#include "ckpt_nn.h"
#include "ckpt_op.h"
#include "ckpt_tools.h"

struct settings {
    int64_t steps;
    double rate;
};

static const struct ckpt_option table[] = {
    CKPT_OPTION(struct settings, "steps", INT, steps, "N", "steps to run"),
    CKPT_OPTION_RANGE(struct settings, "rate", FLOAT, rate, "X", "learning rate", 0, 1),
    {NULL, CKPT_OPT_FLAG, 0, NULL, NULL, {0, 0}},
};

static int times_two(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const ckpt_tensor *w = (const ckpt_tensor *)user;
    static const struct ckpt_op_def op = {
        sizeof(struct ckpt_op_def), "twice", CKPT_OP_STRIDED, times_two, NULL, NULL, NULL, NULL};
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    struct ckpt_pool_spec pool = CKPT_POOL_INIT;
    const int64_t window[2] = {2, 2};
    int64_t shape[4] = {batch, 8, 8, 4};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 4, shape), y, part[2];

    spec.invariant = true;
    if (ckpt_record(t, &op, 1, &x, 1, &y, NULL, 0))
        return CKPT_NONE;
    y = ckpt_relu(t, ckpt_conv(t, y, w[0], CKPT_NONE, &spec));
    y = ckpt_batch_norm(t, y, CKPT_NONE, CKPT_NONE, CKPT_NONE, CKPT_NONE, 0.1f, 1e-5f);
    spec.invariant = false;
    y = ckpt_conv_transpose(t, y, w[0], CKPT_NONE, &spec);
    y = ckpt_max_pool(t, y, window, &pool);
    ckpt_split(t, y, 3, 2, part);
    ckpt_output(t, "y", y);
    return ckpt_mse(t, part[0], part[1], CKPT_NONE);
}

int main(void)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct ckpt_lion lion = CKPT_LION_INIT;
    struct ckpt_adafactor adafactor = CKPT_ADAFACTOR_INIT;
    struct ckpt_muon muon = CKPT_MUON_INIT;
    struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_schedule schedule = CKPT_SCHEDULE_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    static const struct ckpt_init init[] = {{CKPT_INIT_ZEROS, 0.f}};
    int64_t shape[4] = {4, 3, 3, 4};
    ckpt_tensor w[5];
    ckpt_program *p;
    ckpt *c;

    if (ckpt_open(&c, &options))
        return 1;
    w[0] = ckpt_param(c, "w", CKPT_F32, 4, shape, CKPT_XAVIER, true);
    w[1] = ckpt_param(c, "zeros", CKPT_F32, 4, shape, CKPT_ZEROS, true);
    w[2] = ckpt_param(c, "ones", CKPT_F32, 4, shape, CKPT_ONES, true);
    w[3] = ckpt_param(c, "normal", CKPT_F32, 4, shape, CKPT_NORMAL(0.02f), true);
    w[4] = ckpt_param(c, "uniform", CKPT_F32, 4, shape, CKPT_UNIFORM(1.f), false);
    ckpt_param(c, "own", CKPT_F32, 4, shape, init[0], false);
    nn.context = c;
    mlp.width = mlp.inner = 4;
    ckpt_nn_mlp(&nn, &mlp, "mlp.%d", 1);
    ckpt_option_table_help(table, stdout);
    ckpt_sgd(c, &sgd);
    ckpt_lion(c, &lion);
    ckpt_adafactor(c, &adafactor);
    group.optimizer = ckpt_muon(c, &muon);
    adamw.lr = (float)ckpt_schedule(&schedule, 1e-3, 0);
    ckpt_optimizer *optimizer = ckpt_adamw(c, &adamw);
    ckpt_optimizer_group(optimizer, "w", &group);
    ckpt_lora(NULL, &lora);
    int rc = ckpt_compile(c, record, w, optimizer, 2, &p);
    ckpt_close(c);
    return rc || CKPT_VERSION_MAJOR < 0 || CKPT_MAX_PARTS < 1 || CKPT_AUTO > 0;
}
