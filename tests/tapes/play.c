/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records a recording on a tape, or prints the C function that does.  Not by the writer of imported
 * models (import/source.h): that one writes calls that a tape has taken, and a recording that fails
 * may have one that is refused, or whose result has another shape than it should.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "recording.h"

static const char *const kind_names[] = {
#define X(name) #name,
    CALLS(X)
#undef X
};

/* ---- on a tape -------------------------------------------------------------------------------*/

static ckpt_tensor play_unary(ckpt_tape *t, enum unary f, ckpt_tensor x)
{
#define X(name, f, d)                                                                              \
    case UNARY_##name:                                                                             \
        return ckpt_##name(t, x);
    switch (f) {
        UNARY(X)
    default:
        return CKPT_NONE;
    }
#undef X
}

static ckpt_tensor indices(ckpt_tape *t, const struct call *c, int64_t limit, int ndim,
                           const int64_t *shape)
{
    int32_t index[MAX_NUMEL];
    char name[24];
    int64_t n = 1;
    for (int k = 0; k < ndim; k++)
        n *= shape[k];
    snprintf(name, sizeof name, "i%d", c->out);
    recording_indices(c, limit, index, n);
    return ckpt_constant(t, name, CKPT_I32, ndim, shape, index);
}

static ckpt_tensor play_conv(ckpt_tape *t, const struct call *c, const ckpt_tensor *in)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    spec.before[0] = spec.after[0] = c->begin;
    return ckpt_conv(t, in[0], in[1], in[2], &spec);
}

/* The result of a call with one result. */
static ckpt_tensor play_call(const struct recording *r, ckpt_tape *t, const struct call *c,
                             const ckpt_tensor *in)
{
    const struct value *v = &r->value[c->out], *x = c->n_in ? &r->value[c->in[0]] : v;
    char name[24];
    switch (c->kind) {
    case CALL_INPUT:
        snprintf(name, sizeof name, "x%d", c->out);
        return ckpt_input(t, name, v->dtype, v->ndim, v->shape);
    case CALL_UNARY:
        return play_unary(t, c->unary, in[0]);
    case CALL_AFFINE:
        return ckpt_affine(t, in[0], c->a, c->b);
    case CALL_ADD:
        return ckpt_add(t, in[0], in[1]);
    case CALL_SUB:
        return ckpt_sub(t, in[0], in[1]);
    case CALL_MUL:
        return ckpt_mul(t, in[0], in[1]);
    case CALL_DIV:
        return ckpt_div(t, in[0], in[1]);
    case CALL_MAXIMUM:
        return ckpt_maximum(t, in[0], in[1]);
    case CALL_WHERE:
        return ckpt_where(t, ckpt_lt(t, in[0], in[1]), in[2], in[3]);
    case CALL_CAST:
        return ckpt_cast(t, in[0], v->dtype);
    case CALL_SUM:
        return ckpt_sum(t, in[0], c->mask);
    case CALL_MEAN:
        return ckpt_mean(t, in[0], c->mask);
    case CALL_AMAX:
        return ckpt_amax(t, in[0], c->mask);
    case CALL_LOGSUMEXP:
        return ckpt_logsumexp(t, in[0], c->mask);
    case CALL_SOFTMAX:
        return ckpt_softmax(t, in[0], c->axis);
    case CALL_CUMSUM:
        return ckpt_cumsum(t, in[0], c->axis);
    case CALL_LAYER_NORM:
        return ckpt_layer_norm(t, in[0], in[1], in[2], 1e-3f);
    case CALL_RMS_NORM:
        return ckpt_rms_norm(t, in[0], in[1], 1e-3f);
    case CALL_GROUP_NORM:
        return ckpt_group_norm_silu(t, in[0], in[1], in[2], (int)c->begin, 1e-3f, c->flag[0]);
    case CALL_MODULATE:
        return ckpt_modulate(t, in[0], in[1], in[2]);
    case CALL_GATED:
        return ckpt_gated_residual(t, in[0], in[1], in[2]);
    case CALL_LINEAR:
        return ckpt_linear(t, in[0], in[1], in[2]);
    case CALL_MATMUL:
        return ckpt_matmul(t, in[0], in[1], c->flag[0], c->flag[1]);
    case CALL_CONV:
        return play_conv(t, c, in);
    case CALL_SLICE:
        return ckpt_slice(t, in[0], c->axis, c->begin, c->end);
    case CALL_CONCAT:
        return ckpt_concat(t, c->axis, c->n_in, in);
    case CALL_RESHAPE:
        return ckpt_reshape(t, in[0], v->ndim, v->shape);
    case CALL_PERMUTE:
        return ckpt_permute(t, in[0], c->axes);
    case CALL_EXPAND:
        return ckpt_expand(t, in[0], v->ndim, v->shape);
    case CALL_PAD:
        return ckpt_pad(t, in[0], c->axis, c->begin, c->end, CKPT_PAD_CONSTANT, 0.f);
    case CALL_FLIP:
        return ckpt_flip(t, in[0], c->axis);
    case CALL_ROWS:
        return ckpt_index_select(t, in[0], c->axis,
                                 indices(t, c, x->shape[c->axis], 1, &v->shape[c->axis]));
    case CALL_CROSS_ENTROPY:
        return ckpt_cross_entropy(
            t, in[0], indices(t, c, x->shape[x->ndim - 1], x->ndim - 1, x->shape), NULL);
    case CALL_MSE:
        return ckpt_mse(t, in[0], in[1], CKPT_NONE);
    default:
        return CKPT_NONE;
    }
}

static void check_shape(ckpt_tape *t, const struct call *c, ckpt_tensor x, const struct value *v)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    bool same = x.id && d.dtype == v->dtype && d.ndim == v->ndim;
    for (int k = 0; k < v->ndim && same; k++)
        same = d.shape[k] == v->shape[k];
    if (!same)
        ckpt_tape_fail(t, CKPT_ESHAPE, "value %d, of %s, has another shape or dtype than it should",
                       c->out, kind_names[c->kind]);
}

ckpt_tensor recording_play(const struct recording *r, ckpt_tape *t, const ckpt_tensor *param)
{
    ckpt_tensor v[MAX_VALUES] = {{0}}, in[MAX_IN];
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        for (int k = 0; k < c->n_in; k++)
            in[k] = c->in[k] < 0 ? CKPT_NONE : v[c->in[k]];
        if (c->kind == CALL_PARAM)
            v[c->out] = param[c->out];
        else if (c->kind == CALL_SPLIT)
            ckpt_split(t, in[0], c->axis, c->n_out, &v[c->out]);
        else
            v[c->out] = play_call(r, t, c, in);
        for (int k = 0; k < c->n_out && c->kind != CALL_PARAM; k++)
            check_shape(t, c, v[c->out + k], &r->value[c->out + k]);
    }
    return v[r->loss];
}

/* ---- as C ------------------------------------------------------------------------------------*/

static void print_shape(FILE *f, const struct value *v, int ndim)
{
    fprintf(f, "%d, ", ndim);
    if (!ndim)
        fprintf(f, "NULL");
    for (int k = 0; k < ndim; k++)
        fprintf(f, "%s%" PRId64 "%s", k ? ", " : "(int64_t[]){", v->shape[k],
                k + 1 < ndim ? "" : "}");
}

static const char *dtype_name(enum ckpt_dtype dtype)
{
    return dtype == CKPT_BF16 ? "CKPT_BF16" : "CKPT_F32";
}

static void print_in(FILE *f, const struct call *c)
{
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k] < 0)
            fprintf(f, ", CKPT_NONE");
        else
            fprintf(f, ", v[%d]", c->in[k]);
}

static void print_indices(FILE *f, const struct call *c, int64_t limit, const struct value *x,
                          int first, int ndim)
{
    struct value v = {.ndim = ndim};
    int32_t index[MAX_NUMEL];
    memcpy(v.shape, x->shape + first, (size_t)ndim * sizeof *v.shape);
    recording_indices(c, limit, index, value_numel(&v));
    fprintf(f, ", ckpt_constant(t, \"i%d\", CKPT_I32, ", c->out);
    print_shape(f, &v, ndim);
    for (int64_t i = 0; i < value_numel(&v); i++)
        fprintf(f, "%s%d", i ? ", " : ", (int32_t[]){", (int)index[i]);
    fprintf(f, "})");
}

/* What follows the operands. */
static void print_rest(FILE *f, const struct recording *r, const struct call *c)
{
    const struct value *v = &r->value[c->out], *x = c->n_in ? &r->value[c->in[0]] : v;
    switch (c->kind) {
    case CALL_AFFINE:
        fprintf(f, ", %#gf, %#gf", (double)c->a, (double)c->b);
        break;
    case CALL_CAST:
        fprintf(f, ", %s", dtype_name(v->dtype));
        break;
    case CALL_SUM:
    case CALL_MEAN:
    case CALL_AMAX:
    case CALL_LOGSUMEXP:
        fprintf(f, ", %uu", c->mask);
        break;
    case CALL_SOFTMAX:
    case CALL_CUMSUM:
    case CALL_FLIP:
        fprintf(f, ", %d", c->axis);
        break;
    case CALL_LAYER_NORM:
    case CALL_RMS_NORM:
        fprintf(f, ", 1e-3f");
        break;
    case CALL_GROUP_NORM:
        fprintf(f, ", %d, 1e-3f, %s", (int)c->begin, c->flag[0] ? "true" : "false");
        break;
    case CALL_MATMUL:
        fprintf(f, ", %s, %s", c->flag[0] ? "true" : "false", c->flag[1] ? "true" : "false");
        break;
    case CALL_CONV:
        fprintf(f,
                ", &(struct ckpt_conv_spec){sizeof(struct ckpt_conv_spec), {1, 1, 1}, {%d}, "
                "{%d}, false, {1, 1, 1}, 1, {0}}",
                (int)c->begin, (int)c->begin);
        break;
    case CALL_SLICE:
        fprintf(f, ", %d, %d, %d", c->axis, (int)c->begin, (int)c->end);
        break;
    case CALL_PAD:
        fprintf(f, ", %d, %d, %d, CKPT_PAD_CONSTANT, 0.f", c->axis, (int)c->begin, (int)c->end);
        break;
    case CALL_RESHAPE:
    case CALL_EXPAND:
        fprintf(f, ", ");
        print_shape(f, v, v->ndim);
        break;
    case CALL_PERMUTE:
        for (int k = 0; k < v->ndim; k++)
            fprintf(f, "%s%d%s", k ? ", " : ", (int[]){", c->axes[k], k + 1 < v->ndim ? "" : "}");
        break;
    case CALL_ROWS:
        fprintf(f, ", %d", c->axis);
        print_indices(f, c, x->shape[c->axis], v, c->axis, 1);
        break;
    case CALL_CROSS_ENTROPY:
        print_indices(f, c, x->shape[x->ndim - 1], x, 0, x->ndim - 1);
        fprintf(f, ", NULL");
        break;
    case CALL_MSE:
        fprintf(f, ", CKPT_NONE");
        break;
    default:
        break;
    }
}

static const char *function_name(const struct call *c)
{
    static const char *const unaries[] = {
#define X(name, f, d) #name,
        UNARY(X)
#undef X
    };
    static const char *const others[CALL_KINDS] = {[CALL_AFFINE] = "affine",
                                                   [CALL_ADD] = "add",
                                                   [CALL_SUB] = "sub",
                                                   [CALL_MUL] = "mul",
                                                   [CALL_DIV] = "div",
                                                   [CALL_MAXIMUM] = "maximum",
                                                   [CALL_CAST] = "cast",
                                                   [CALL_SUM] = "sum",
                                                   [CALL_MEAN] = "mean",
                                                   [CALL_AMAX] = "amax",
                                                   [CALL_LOGSUMEXP] = "logsumexp",
                                                   [CALL_SOFTMAX] = "softmax",
                                                   [CALL_CUMSUM] = "cumsum",
                                                   [CALL_LAYER_NORM] = "layer_norm",
                                                   [CALL_RMS_NORM] = "rms_norm",
                                                   [CALL_GROUP_NORM] = "group_norm_silu",
                                                   [CALL_MODULATE] = "modulate",
                                                   [CALL_GATED] = "gated_residual",
                                                   [CALL_LINEAR] = "linear",
                                                   [CALL_MATMUL] = "matmul",
                                                   [CALL_CONV] = "conv",
                                                   [CALL_SLICE] = "slice",
                                                   [CALL_RESHAPE] = "reshape",
                                                   [CALL_PERMUTE] = "permute",
                                                   [CALL_EXPAND] = "expand",
                                                   [CALL_PAD] = "pad",
                                                   [CALL_FLIP] = "flip",
                                                   [CALL_ROWS] = "index_select",
                                                   [CALL_MSE] = "mse",
                                                   [CALL_CROSS_ENTROPY] = "cross_entropy"};
    return c->kind == CALL_UNARY ? unaries[c->unary] : others[c->kind];
}

static void print_call(FILE *f, const struct recording *r, const struct call *c)
{
    const struct value *v = &r->value[c->out];
    if (c->kind == CALL_PARAM) {
        fprintf(f, "    v[%d] = param[%d];\n", c->out, c->out);
    } else if (c->kind == CALL_INPUT) {
        fprintf(f, "    v[%d] = ckpt_input(t, \"x%d\", %s, ", c->out, c->out, dtype_name(v->dtype));
        print_shape(f, v, v->ndim);
        fprintf(f, ");\n");
    } else if (c->kind == CALL_SPLIT) {
        fprintf(f, "    ckpt_split(t, v[%d], %d, %d, &v[%d]);\n", c->in[0], c->axis, c->n_out,
                c->out);
    } else if (c->kind == CALL_CONCAT) {
        fprintf(f, "    v[%d] = ckpt_concat(t, %d, %d, (ckpt_tensor[]){", c->out, c->axis, c->n_in);
        for (int k = 0; k < c->n_in; k++)
            fprintf(f, "%sv[%d]", k ? ", " : "", c->in[k]);
        fprintf(f, "});\n");
    } else if (c->kind == CALL_WHERE) {
        fprintf(f, "    v[%d] = ckpt_where(t, ckpt_lt(t, v[%d], v[%d]), v[%d], v[%d]);\n", c->out,
                c->in[0], c->in[1], c->in[2], c->in[3]);
    } else {
        fprintf(f, "    v[%d] = ckpt_%s(t", c->out, function_name(c));
        print_in(f, c);
        print_rest(f, r, c);
        fprintf(f, ");\n");
    }
}

static void print_leaves(FILE *f, const struct recording *r)
{
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        const struct value *v = &r->value[c->out];
        const int64_t n = value_numel(v) * (c->kind == CALL_INPUT ? r->n_micro : 1);
        if (c->kind == CALL_PARAM) {
            fprintf(f, "    param[%d] = ckpt_param(c, \"w%d\", %s, ", c->out, c->out,
                    dtype_name(v->dtype));
            print_shape(f, v, v->ndim);
            fprintf(f, ", CKPT_ZEROS, true);\n    ckpt_param_set(c, param[%d], CKPT_VALUE, ",
                    c->out);
            fprintf(f, "values(%d, %#gf, %" PRId64 "), %" PRId64 ");\n", (int)c->seed, (double)c->a,
                    n, n);
        } else if (c->kind == CALL_INPUT) {
            fprintf(f, "    /* feed x%d, %s, all micro-steps: values(%d, %#gf, %" PRId64 ") */\n",
                    c->out, dtype_name(v->dtype), (int)c->seed, (double)c->a, n);
        }
    }
}

void recording_print(const struct recording *r, FILE *f)
{
    fprintf(f,
            "static ckpt_tensor param[%d];\n\n"
            "/* n values of a leaf. */\n"
            "static const float *values(int64_t seed, float scale, int64_t n)\n{\n"
            "    static float x[%d];\n    for (int64_t i = 0; i < n; i++) {\n"
            "        uint64_t u = (uint64_t)(seed * 1000003 + i) + 0x9e3779b97f4a7c15u;\n"
            "        u = (u ^ u >> 30) * 0xbf58476d1ce4e5b9u;\n"
            "        u = (u ^ u >> 27) * 0x94d049bb133111ebu;\n"
            "        x[i] = scale * (float)((int64_t)((u ^ u >> 31) %% 255) - 127) / 64;\n"
            "    }\n    return x;\n}\n\n"
            "static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)\n{\n"
            "    ckpt_tensor v[%d];\n    (void)batch, (void)user;\n",
            r->n_values, 2 * MAX_NUMEL, r->n_values);
    for (int i = 0; i < r->n_calls; i++)
        print_call(f, r, &r->call[i]);
    fprintf(f, "    return v[%d];\n}\n\n", r->loss);
    fprintf(f, "/* %s%s, %" PRId64 " micro-step%s%s */\nstatic void make_params(ckpt *c)\n{\n",
            r->adamw ? "AdamW" : "SGD", r->bf16_gradient ? " with bf16 gradients" : "", r->n_micro,
            r->n_micro > 1 ? "s" : "", r->verify ? ", --verify" : "");
    print_leaves(f, r);
    fprintf(f, "}\n");
}
