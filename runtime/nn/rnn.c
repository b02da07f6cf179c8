/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers.  The products of all steps' inputs are one product with rows in order of time,
 * so that a step reads adjacent rows; the product with the state is one per step.
 */
#include <math.h>
#include <stdlib.h>
#include "call.h"
#include "nn/nn.h"
#include "ops.h"

static int gates_of(const struct ckpt_nn_rnn *m)
{
    return m->gru ? 3 : 4;
}

/* ---- parameters ---------------------------------------------------------------------------- */

/* NAME.kind_l0 with the rows of all gates; columns 0: a vector. */
static ckpt_tensor part(const struct nn_maker *m, const struct ckpt_nn_rnn *r, const char *kind,
                        int layer, int64_t columns)
{
    const struct ckpt_init *given = columns ? m->nn.weight : m->nn.bias;
    const int64_t shape[] = {gates_of(r) * r->width, columns};
    char name[32];

    snprintf(name, sizeof name, "%s_l%d", kind, layer);
    return nn_parameter(m, name, columns ? 2 : 1, shape,
                        given ? *given : CKPT_UNIFORM(1.f / sqrtf((float)r->width)));
}

static struct ckpt_nn_rnn make(struct nn_maker *m, int64_t in, int64_t width, int layer, bool bias,
                               bool gru)
{
    struct ckpt_nn_rnn r = {.width = width, .gru = gru};

    if (in < 1 || width < 1 || layer < 0)
        nn_refuse(m, "a recurrent layer has widths above 0 and a number");
    if (m->failed)
        return r;
    r.weight_ih = part(m, &r, "weight_ih", layer, in);
    r.weight_hh = part(m, &r, "weight_hh", layer, width);
    if (bias) {
        r.bias_ih = part(m, &r, "bias_ih", layer, 0);
        r.bias_hh = part(m, &r, "bias_hh", layer, 0);
    }
    return r;
}

struct ckpt_nn_rnn ckpt_nn_lstm(const struct ckpt_nn *nn, int64_t in, int64_t width, int layer,
                                bool bias, const char *name, ...)
{
    NN_OPEN(m);
    return make(&m, in, width, layer, bias, false);
}

struct ckpt_nn_rnn ckpt_nn_gru(const struct ckpt_nn *nn, int64_t in, int64_t width, int layer,
                               bool bias, const char *name, ...)
{
    NN_OPEN(m);
    return make(&m, in, width, layer, bias, true);
}

/* ---- recording ----------------------------------------------------------------------------- */

/* The input product of all steps.  The second bias of an LSTM is only added, so it is added here
 * once and not in each step. */
static ckpt_tensor input_product(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor x)
{
    ckpt_tensor bias = m->bias_ih;

    if (bias.id && !m->gru)
        bias = ckpt_add(t, bias, m->bias_hh);
    return ckpt_linear(t, x, m->weight_ih, bias);
}

/* a: the input product, [B, gates width]. */
static void lstm_step(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor a, ckpt_tensor *h,
                      ckpt_tensor *c)
{
    ckpt_tensor g[4] = {CKPT_NONE};

    ckpt_split(t, ckpt_linear_add(t, *h, m->weight_hh, CKPT_NONE, a), 1, 4, g);
    ckpt_tensor new = ckpt_mul(t, ckpt_sigmoid(t, g[0]), ckpt_tanh(t, g[2]));
    *c = ckpt_add(t, ckpt_mul(t, ckpt_sigmoid(t, g[1]), *c), new);
    *h = ckpt_mul(t, ckpt_sigmoid(t, g[3]), ckpt_tanh(t, *c));
}

static void gru_step(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor a, ckpt_tensor *h)
{
    ckpt_tensor x[3] = {CKPT_NONE}, s[3] = {CKPT_NONE};

    ckpt_split(t, a, 1, 3, x);
    ckpt_split(t, ckpt_linear(t, *h, m->weight_hh, m->bias_hh), 1, 3, s);
    ckpt_tensor reset = ckpt_sigmoid(t, ckpt_add(t, x[0], s[0]));
    ckpt_tensor keep = ckpt_sigmoid(t, ckpt_add(t, x[1], s[1]));
    ckpt_tensor new = ckpt_tanh(t, ckpt_add(t, x[2], ckpt_mul(t, reset, s[2])));
    *h = ckpt_add(t, new, ckpt_mul(t, keep, ckpt_sub(t, *h, new)));
}

static void step(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor a, ckpt_tensor *h,
                 ckpt_tensor *c)
{
    if (m->gru)
        gru_step(t, m, a, h);
    else
        lstm_step(t, m, a, h, c);
}

/* Zeros [rows, width] with the dtype of x, for a state that was not given. */
static void default_zero(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor x, ckpt_tensor *s)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);

    if (!s->id)
        *s = ckpt_full(t, 0, d.dtype, 2, (int64_t[]){d.shape[d.ndim > 2], m->width});
}

void ckpt_nn_rnn_step(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor x, ckpt_tensor *h,
                      ckpt_tensor *c)
{
    OPS_CALL(t);
    if (!m || !h || (!c && !m->gru)) {
        nn_no_module(t, __func__);
        return;
    }
    default_zero(t, m, x, h);
    if (!m->gru)
        default_zero(t, m, x, c);
    step(t, m, input_product(t, m, x), h, c);
}

/* y: the input products, [L, B, gates width].  Returns the states of all steps, [L, B, width]. */
static ckpt_tensor run(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor y, ckpt_tensor *h,
                       ckpt_tensor *c)
{
    const struct ckpt_desc d = ckpt_desc_of(t, y);
    ckpt_tensor *all = calloc((size_t)d.shape[0], sizeof *all);

    if (!all) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for %lld steps", (long long)d.shape[0]);
        return CKPT_NONE;
    }
    for (int64_t i = 0; i < d.shape[0]; i++) {
        ckpt_label(t, "step.%lld", (long long)i);
        step(t, m, ckpt_squeeze(t, ckpt_slice(t, y, 0, i, i + 1), 0), h, c);
        all[i] = ckpt_unsqueeze(t, *h, 0);
    }
    y = ops_concat(t, 0, d.shape[0], all);
    free(all);
    return y;
}

ckpt_tensor ckpt_nn_apply_rnn(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor x,
                              ckpt_tensor *h, ckpt_tensor *c)
{
    OPS_CALL(t);
    ckpt_tensor state[2] = {h ? *h : CKPT_NONE, c ? *c : CKPT_NONE};
    const struct ckpt_desc d = ckpt_desc_of(t, x);

    if (!m)
        return nn_no_module(t, __func__);
    if (d.ndim != 3) {
        ckpt_tape_fail(t, CKPT_ESHAPE, "a recurrent layer takes [B, L, in]; got %d axes", d.ndim);
        return CKPT_NONE;
    }
    ckpt_tensor y = input_product(t, m, ckpt_transpose(t, x, 0, 1));
    for (int i = 0; i < (m->gru ? 1 : 2); i++)
        default_zero(t, m, y, &state[i]);
    y = run(t, m, y, &state[0], &state[1]);
    if (h)
        *h = state[0];
    if (c)
        *c = state[1];
    return ckpt_transpose(t, y, 0, 1);
}
