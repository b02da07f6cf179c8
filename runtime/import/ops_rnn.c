/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers and cells: LSTM, GRU and the simple ones, in two directions, with projections of
 * the state.  The products of all steps' inputs are one product; the rest is a step after the
 * other.
 */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

enum kind { RNN_TANH, RNN_RELU, RNN_GRU, RNN_LSTM };

/* Weights of one layer in one direction; of biases and projection CKPT_NONE where there is none. */
struct cell {
    enum kind kind;
    ckpt_tensor ih, hh, bias_ih, bias_hh, projection;
};

struct state {
    ckpt_tensor h, c;
};

static enum kind kind_of(const struct call *c)
{
    static const char *const names[] = {
        [RNN_TANH] = "rnn_tanh", [RNN_RELU] = "rnn_relu", [RNN_GRU] = "gru"};
    const char *name = c->op->name + strlen("aten.");

    for (int k = 0; k < RNN_LSTM; k++)
        if (!strncmp(name, names[k], strlen(names[k])))
            return k;
    return RNN_LSTM;
}

/* ---- a step ---------------------------------------------------------------------------------- */
/* a: the product of the input, [B, gates width]. */

static ckpt_tensor gate(ckpt_tape *t, ckpt_tensor a, int k, int gates)
{
    const struct ckpt_desc d = ckpt_desc_of(t, a);
    const int64_t width = d.ndim == 2 ? d.shape[1] / gates : 0;

    return ckpt_slice(t, a, 1, k * width, (k + 1) * width);
}

static void lstm_step(ckpt_tape *t, const struct cell *m, ckpt_tensor a, struct state *s)
{
    ckpt_tensor g = ckpt_linear_add(t, s->h, m->hh, m->bias_hh, a);
    ckpt_tensor kept = ckpt_mul(t, ckpt_sigmoid(t, gate(t, g, 1, 4)), s->c);
    ckpt_tensor new =
        ckpt_mul(t, ckpt_sigmoid(t, gate(t, g, 0, 4)), ckpt_tanh(t, gate(t, g, 2, 4)));

    s->c = ckpt_add(t, kept, new);
    s->h = ckpt_mul(t, ckpt_sigmoid(t, gate(t, g, 3, 4)), ckpt_tanh(t, s->c));
    if (m->projection.id)
        s->h = ckpt_linear(t, s->h, m->projection, CKPT_NONE);
}

static void gru_step(ckpt_tape *t, const struct cell *m, ckpt_tensor a, struct state *s)
{
    ckpt_tensor b = ckpt_linear(t, s->h, m->hh, m->bias_hh);
    ckpt_tensor reset = ckpt_sigmoid(t, ckpt_add(t, gate(t, a, 0, 3), gate(t, b, 0, 3)));
    ckpt_tensor keep = ckpt_sigmoid(t, ckpt_add(t, gate(t, a, 1, 3), gate(t, b, 1, 3)));
    ckpt_tensor new = ckpt_add(t, gate(t, a, 2, 3), ckpt_mul(t, reset, gate(t, b, 2, 3)));

    new = ckpt_tanh(t, new);
    s->h = ckpt_add(t, new, ckpt_mul(t, keep, ckpt_sub(t, s->h, new)));
}

static void step(ckpt_tape *t, const struct cell *m, ckpt_tensor a, struct state *s)
{
    if (m->kind == RNN_LSTM) {
        lstm_step(t, m, a, s);
    } else if (m->kind == RNN_GRU) {
        gru_step(t, m, a, s);
    } else {
        a = ckpt_linear_add(t, s->h, m->hh, m->bias_hh, a);
        s->h = m->kind == RNN_TANH ? ckpt_tanh(t, a) : ckpt_relu(t, a);
    }
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* The k-th tensor of an argument, a list or a tensor alone, in the dtype of the result. */
static struct tensor listed(struct call *c, const char *name, int k)
{
    struct variable **list;
    const struct pt2_arg *a = pt2_arg_find(c->node, name);

    if (!a || a->kind != ARG_LIST)
        return math_cast(c->r, call_tensor(c, name), c->dtype);
    if (k >= call_variables(c, name, &list) || !list[k]) {
        recording_fail(c->r, CKPT_EFORMAT, "argument '%s' has no tensor %d", name, k);
        return tensor_number(c->r, c->dtype, 0, 0);
    }
    return math_cast(c->r, *variable_read(c->r, list[k]), c->dtype);
}

static struct tensor op_cell(struct call *c, int part)
{
    struct tensor x = math_cast(c->r, call_tensor(c, "input"), c->dtype);
    struct cell m = {.kind = kind_of(c)};
    struct tensor h = listed(c, "hx", 0), state = m.kind == RNN_LSTM ? listed(c, "hx", 1) : h;
    struct state s = {tensor_record(c->r, &h), tensor_record(c->r, &state)};

    m.ih = call_operand(c, "w_ih", c->dtype);
    m.hh = call_operand(c, "w_hh", c->dtype);
    m.bias_ih = call_operand(c, "b_ih", c->dtype);
    m.bias_hh = call_operand(c, "b_hh", c->dtype);
    tensor_record(c->r, &x);
    if (c->r->failed)
        return x;
    step(c->r->t, &m, ckpt_linear(c->r->t, x.x, m.ih, m.bias_ih), &s);
    return tensor_of(c->r, c->dtype, part ? s.c : s.h);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* What a call of a layer gives: all are of the same steps. */
struct rnn_results {
    const struct pt2_node *node;
    struct tensor part[3]; /* the last layer's h of all steps, the last h, the last c */
    struct rnn_results *before;
};

/* A layer: how often weights are listed, and which is next. */
struct reader {
    struct call *c;
    int next, each;
    bool biases;
};

static ckpt_tensor weight(struct reader *w, bool present)
{
    struct tensor a;

    if (!present || w->c->r->failed)
        return CKPT_NONE;
    a = listed(w->c, "params", w->next++);
    return tensor_record(w->c->r, &a);
}

static struct cell read_cell(struct reader *w)
{
    struct cell m = {.kind = kind_of(w->c)};

    m.ih = weight(w, true);
    m.hh = weight(w, true);
    m.bias_ih = weight(w, w->biases);
    m.bias_hh = weight(w, w->biases);
    m.projection = weight(w, w->each > (w->biases ? 4 : 2));
    return m;
}

/* The state before the first step of the k-th direction, counted over all layers. */
static ckpt_tensor state_of(struct call *c, int list, int k)
{
    struct tensor a = listed(c, "hx", list);

    if (a.ndim != 3 || k >= a.shape[0])
        recording_fail(c->r, CKPT_EFORMAT, "there is no state for layer and direction %d", k);
    if (c->r->failed)
        return CKPT_NONE;
    a = view_slice(c->r, a, 0, k, k + 1, 1);
    a = c->r->failed ? a : view_squeeze(c->r, a, 0);
    return tensor_record(c->r, &a);
}

/* All steps of x [L, B, in]; returns h of each, [L, B, width]. */
static struct tensor run_direction(struct call *c, const struct cell *m, const struct tensor *x,
                                   bool backward, struct state *s)
{
    const int64_t n = x->ndim == 3 ? x->shape[0] : 0;
    struct tensor *all = heap_zeros(&c->r->heap, n + 1, sizeof *all);
    ckpt_tape *t = c->r->t;

    if (!n || !all)
        recording_fail(c->r, CKPT_EFORMAT, "a recurrent layer without steps");
    ckpt_tensor a = c->r->failed ? CKPT_NONE : ckpt_linear(t, x->x, m->ih, m->bias_ih);
    for (int64_t i = 0; i < n && !c->r->failed; i++) {
        const int64_t at = backward ? n - 1 - i : i;
        step(t, m, ckpt_squeeze(t, ckpt_slice(t, a, 0, at, at + 1), 0), s);
        all[at] = tensor_of(c->r, c->dtype, ckpt_unsqueeze(t, s->h, 0));
    }
    return c->r->failed ? *x : join_tensors(c->r, 0, (int)n, all);
}

static struct tensor between_layers(struct call *c, struct tensor x)
{
    const double p = call_double(c, "dropout");

    tensor_record(c->r, &x);
    if (p == 0 || !call_bool(c, "train") || c->r->failed)
        return x;
    return tensor_of(c->r, c->dtype, ckpt_dropout(c->r->t, x.x, (float)p));
}

/* Runs layer after layer; the states of layers and directions are joined. */
static void run_layers(struct call *c, int layers, int directions, struct rnn_results *to)
{
    struct variable **list;
    struct reader w = {.c = c, .biases = call_bool(c, "has_biases")};
    struct tensor x = math_cast(c->r, call_tensor(c, "input"), c->dtype), y[2];
    struct tensor *last = heap_zeros(&c->r->heap, 2 * layers * directions, sizeof *last);
    const bool lstm = kind_of(c) == RNN_LSTM, first = call_bool(c, "batch_first");

    w.each = call_variables(c, "params", &list) / (layers * directions);
    x = first && x.ndim == 3 ? view_swap(c->r, x, 0, 1) : x;
    tensor_record(c->r, &x);
    for (int i = 0; i < layers && last && !c->r->failed; i++) {
        for (int k = 0; k < directions && !c->r->failed; k++) {
            const int at = i * directions + k;
            const struct cell m = read_cell(&w);
            struct state s = {state_of(c, 0, at), lstm ? state_of(c, 1, at) : CKPT_NONE};
            y[k] = run_direction(c, &m, &x, k == 1, &s);
            for (int of = 0; of < 1 + lstm && !c->r->failed; of++)
                last[of * layers * directions + at] =
                    tensor_of(c->r, c->dtype, ckpt_unsqueeze(c->r->t, of ? s.c : s.h, 0));
        }
        x = c->r->failed ? x : join_tensors(c->r, 2, directions, y);
        x = i + 1 < layers ? between_layers(c, x) : x;
    }
    if (!last || c->r->failed)
        return;
    to->part[0] = first ? view_swap(c->r, x, 0, 1) : x;
    for (int of = 0; of < 1 + lstm; of++)
        to->part[1 + of] =
            join_tensors(c->r, 0, layers * directions, last + of * layers * directions);
}

static struct tensor op_layers(struct call *c, int part)
{
    struct rnn_results *found = c->r->rnns;
    const int64_t layers = call_int(c, "num_layers");

    while (found && found->node != c->node)
        found = found->before;
    if (layers < 1 || layers > 1000)
        recording_fail(c->r, CKPT_EFORMAT, "%lld recurrent layers", (long long)layers);
    if (!found && !c->r->failed) {
        found = heap_zeros(&c->r->heap, 1, sizeof *found);
        if (!found) {
            recording_fail(c->r, CKPT_ENOMEM, "%s", error_get());
            return tensor_number(c->r, c->dtype, 0, 0);
        }
        *found = (struct rnn_results){.node = c->node, .before = c->r->rnns};
        c->r->rnns = found;
        run_layers(c, (int)layers, call_bool(c, "bidirectional") ? 2 : 1, found);
    }
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    return found->part[part];
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_rnn[] = {
    OP("lstm.input", op_layers),          OP("gru.input", op_layers),
    OP("rnn_tanh.input", op_layers),      OP("rnn_relu.input", op_layers),
    OP("lstm_cell.default", op_cell),     OP("gru_cell.default", op_cell),
    OP("rnn_tanh_cell.default", op_cell), OP("rnn_relu_cell.default", op_cell),
    {NULL, NULL, NULL, NULL, false},
};
