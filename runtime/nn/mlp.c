/* SPDX-License-Identifier: Apache-2.0 */
/* Two-layer perceptrons, plain and gated. */
#include "call.h"
#include "nn/nn.h"

struct ckpt_nn_mlp nn_mlp(struct nn_maker *m, const struct ckpt_nn_mlp_spec *spec)
{
    struct ckpt_nn_mlp_spec s = CKPT_NN_MLP_INIT;
    struct ckpt_nn_mlp mlp = {.gate = {CKPT_NONE, CKPT_NONE}};

    nn_read_spec(m, "struct ckpt_nn_mlp_spec", &s, sizeof s, spec);
    struct nn_maker gate = nn_part(m, s.gate_name), up = nn_part(m, s.up_name);
    struct nn_maker down = nn_part(m, s.down_name);
    if (s.down_weight)
        down.nn.weight = s.down_weight;
    mlp.activation = s.activation;
    if (s.gate_up_name && !s.gated)
        nn_refuse(m, "one projection of gate and up is for a gated MLP");
    if (s.gate_up_name)
        up = nn_part(m, s.gate_up_name);
    else if (s.gated)
        mlp.gate = nn_linear(&gate, s.width, s.inner, s.bias);
    mlp.up = nn_linear(&up, s.width, s.gate_up_name ? 2 * s.inner : s.inner, s.bias);
    mlp.down = nn_linear(&down, s.inner, s.width, s.bias);
    nn_check_parts(m, s.inner, "columns of an MLP");
    nn_split_rows(m, &mlp.gate, 1);
    nn_split_rows(m, &mlp.up, s.gate_up_name ? 2 : 1);
    nn_split_columns(m, &mlp.down);
    return mlp;
}

struct ckpt_nn_mlp ckpt_nn_mlp(const struct ckpt_nn *nn, const struct ckpt_nn_mlp_spec *spec,
                               const char *name, ...)
{
    NN_OPEN(m);
    return nn_mlp(&m, spec);
}

static ckpt_tensor activate(ckpt_tape *t, enum ckpt_nn_activation kind, ckpt_tensor x)
{
    switch (kind) {
    case CKPT_NN_GELU_TANH:
        return ckpt_gelu_tanh(t, x);
    case CKPT_NN_GELU_ERF:
        return ckpt_gelu_erf(t, x);
    case CKPT_NN_SILU:
        return ckpt_silu(t, x);
    case CKPT_NN_RELU:
        return ckpt_relu(t, x);
    }
    ckpt_tape_fail(t, CKPT_EINVAL, "an MLP has no activation of number %d", (int)kind);
    return CKPT_NONE;
}

/* Whether the projection up has the rows of gate and up. */
static bool is_both(ckpt_tape *t, const struct ckpt_nn_mlp *m)
{
    const struct ckpt_desc up = ckpt_desc_of(t, m->up.weight),
                           down = ckpt_desc_of(t, m->down.weight);

    return up.ndim == 2 && down.ndim == 2 && up.shape[0] == 2 * down.shape[1];
}

static ckpt_tensor hidden(ckpt_tape *t, const struct ckpt_nn_mlp *m, ckpt_tensor x)
{
    ckpt_tensor part[2] = {CKPT_NONE, CKPT_NONE}, up = ckpt_nn_apply_linear(t, &m->up, x);

    if (is_both(t, m)) {
        ckpt_split(t, up, ckpt_desc_of(t, up).ndim - 1, 2, part);
        return ckpt_mul(t, activate(t, m->activation, part[0]), part[1]);
    }
    if (!m->gate.weight.id)
        return activate(t, m->activation, up);
    return ckpt_mul(t, activate(t, m->activation, ckpt_nn_apply_linear(t, &m->gate, x)), up);
}

ckpt_tensor ckpt_nn_apply_mlp(ckpt_tape *t, const struct ckpt_nn_mlp *m, ckpt_tensor x)
{
    OPS_CALL(t);
    return m ? ckpt_nn_apply_linear(t, &m->down, hidden(t, m, x)) : nn_no_module(t, __func__);
}

ckpt_tensor ckpt_nn_apply_mlp_add(ckpt_tape *t, const struct ckpt_nn_mlp *m, ckpt_tensor x,
                                  ckpt_tensor a)
{
    OPS_CALL(t);
    return m ? ckpt_linear_add(t, hidden(t, m, x), m->down.weight, m->down.bias, a)
             : nn_no_module(t, __func__);
}
