/* SPDX-License-Identifier: Apache-2.0 */
/* Records a recording on a tape. */
#include <stdio.h>
#include "recording.h"

static const char *const kind_names[] = {
#define X(name, call, shape, fp64) #name,
#include "kinds.def"
#undef X
};

/* ---- constants -------------------------------------------------------------------------------*/

static ckpt_tensor index_of(ckpt_tape *t, const struct recording *r, const struct call *c,
                            int which)
{
    struct value shape;
    int32_t index[MAX_NUMEL];
    char name[24];
    recording_indices(r, c, which, &shape, index);
    snprintf(name, sizeof name, "i%d.%d", c->out, which);
    return ckpt_constant(t, name, CKPT_I32, shape.ndim, shape.shape, index);
}

static ckpt_tensor table_of(ckpt_tape *t, const struct recording *r, const struct call *c)
{
    struct value shape;
    float table[MAX_NUMEL];
    char name[24];
    recording_table(r, c, &shape, table);
    snprintf(name, sizeof name, "t%d", c->out);
    return ckpt_constant(t, name, CKPT_F32, shape.ndim, shape.shape, table);
}

/* ---- settings ---------------------------------------------------------------------------------*/

struct played {
    const struct recording *r;
    const struct call *c;
    const struct value *v; /* the results */
    const ckpt_tensor *in;
    ckpt_tensor param;
    ckpt_tensor *out;
};

/* Each fills in the settings at x. */
static const struct ckpt_conv_spec *conv_of(const struct played *p, struct ckpt_conv_spec *x)
{
    for (int k = 0; k < p->v->ndim - 2; k++) {
        x->stride[k] = p->c->axes[0];
        x->dilation[k] = p->c->axes[1];
        x->before[k] = x->after[k] = p->c->axes[3];
    }
    x->groups = p->c->axes[2];
    return x;
}

static const struct ckpt_attention_spec *attention_of(ckpt_tape *t, const struct played *p,
                                                      struct ckpt_attention_spec *x)
{
    x->scale = p->c->a;
    x->causal = p->c->flag[0];
    x->window = p->c->begin;
    if (p->c->mask & 1)
        x->lengths = index_of(t, p->r, p->c, 0);
    if (p->c->mask & 2)
        x->first = index_of(t, p->r, p->c, 1);
    return x;
}

static const struct ckpt_pool_spec *pool_of(const struct played *p, struct ckpt_pool_spec *x)
{
    x->stride[0] = x->stride[1] = p->c->end;
    for (int k = 0; k < p->v->ndim - 2; k++)
        x->before[k] = x->after[k] = p->c->axes[0];
    x->count_include_pad = p->c->flag[0];
    return x;
}

static const struct ckpt_cross_entropy_spec *entropy_of(const struct played *p,
                                                        struct ckpt_cross_entropy_spec *x)
{
    x->label_smoothing = p->c->a;
    x->z_loss = p->c->b;
    x->ignore_index = p->c->flag[0] ? 0 : -100;
    return x;
}

/* ---- calls -----------------------------------------------------------------------------------*/

static ckpt_tensor play_unary(ckpt_tape *t, enum unary f, ckpt_tensor x)
{
#define X(name, f, d, distance)                                                                    \
    case UNARY_##name:                                                                             \
        return ckpt_##name(t, x);
    switch (f) {
        UNARY(X)
    default:
        return CKPT_NONE;
    }
#undef X
}

static ckpt_tensor play_split(ckpt_tape *t, ckpt_tensor x, int axis, int n, ckpt_tensor *out)
{
    ckpt_split(t, x, axis, n, out);
    return *out;
}

/* What stands in the calls of kinds.def. */
#undef ckpt_split
#define ckpt_split          play_split
#define ckpt_leaf(t)        p->param
#define ckpt_FUNCTION(t, x) play_unary(t, p->c->unary, x)
#define A                   p->in[0]
#define B                   p->in[1]
#define C                   p->in[2]
#define D                   p->in[3]
#define OPERANDS            p->c->n_in, p->in
#define RESULTS             p->c->n_out, p->out
#define AXIS                p->c->axis
#define MASK                p->c->mask
#define PADDING             (enum ckpt_padding) p->c->mask
#define BEGIN               (int)p->c->begin
#define END                 (int)p->c->end
#define NUMBER              p->c->a
#define NUMBER2             p->c->b
#define FLAG                p->c->flag[0]
#define FLAG2               p->c->flag[1]
#define AXES                p->c->axes
#define TIMES               ((int64_t[]){AXES[0], AXES[1], AXES[2], AXES[3]})
#define SIZES               ((int64_t[]){BEGIN, BEGIN})
#define SHAPE               p->v->ndim, p->v->shape
#define DTYPE               p->v->dtype
#define NAME                name
#define INDICES             index_of(t, p->r, p->c, 0)
#define TABLE               table_of(t, p->r, p->c)
#define CONV_SPEC           conv_of(p, &(struct ckpt_conv_spec)CKPT_CONV_INIT)
#define ATTENTION_SPEC      attention_of(t, p, &(struct ckpt_attention_spec)CKPT_ATTENTION_INIT)
#define POOL_SPEC           pool_of(p, &(struct ckpt_pool_spec)CKPT_POOL_INIT)
#define ENTROPY_SPEC        entropy_of(p, &(struct ckpt_cross_entropy_spec)CKPT_CROSS_ENTROPY_INIT)

/* Returns the result of a call with one, or the first one. */
static ckpt_tensor play_call(ckpt_tape *t, const struct played *p)
{
    char name[24];
    snprintf(name, sizeof name, "x%d", p->c->out);
    switch (p->c->kind) {
#define X(kind, call, shape, fp64)                                                                 \
    case CALL_##kind:                                                                              \
        return ckpt_##call;
#include "kinds.def"
#undef X
    default:
        return CKPT_NONE;
    }
}

/* ---- a recording -----------------------------------------------------------------------------*/

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
    ckpt_tensor v[MAX_VALUES] = {{0}}, in[MAX_IN] = {{0}};
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        const struct value *of = &r->value[c->out];
        for (int k = 0; k < c->n_in; k++)
            in[k] = c->in[k] < 0 ? CKPT_NONE : v[c->in[k]];
        v[c->out] = play_call(t, &(struct played){r, c, of, in, param[c->out], &v[c->out]});
        for (int k = 0; k < c->n_out && c->kind != CALL_PARAM; k++)
            check_shape(t, c, v[c->out + k], of + k);
    }
    return v[r->loss];
}
