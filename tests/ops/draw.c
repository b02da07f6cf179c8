/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers, shapes and operands of the op tests; see harness.h. */
#include "ckpt_tools.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers ------------------------------------------------------------------------- */

static uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t rng_range(struct rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

double rng_normal(struct rng *r)
{
    double u = ((double)(rng_next(r) >> 11) + 1) / 9007199254740993.0;
    double v = (double)(rng_next(r) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

int64_t rng_dim(struct rng *r, int64_t high)
{
    return rng_range(r, 0, 4) == 0 ? 1 : rng_range(r, 1, high * r->scale);
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* About 40,000 elements: several of the chunks and column blocks of kernels. */
static const int64_t large[][5] = {
    {40001}, {133, 301}, {7, 19, 301}, {3, 5, 9, 301}, {2, 3, 5, 9, 151}};

/* Random sizes for ndim axes; 1 everywhere in the first trial. */
void draw_shape(struct rng *r, int trial, int ndim, int64_t high, int64_t *shape)
{
    for (int i = 0; i < ndim; i++) {
        if (trial == TRIAL_LARGE)
            shape[i] = large[ndim - 1][i];
        else
            shape[i] = trial == TRIAL_TINY ? 1 : rng_dim(r, high);
    }
    if (trial > TRIAL_LARGE) /* rows that come in vectors of 16 bytes */
        shape[ndim - 1] = (shape[ndim - 1] + 15) / 16 * 16;
}

int draw_rank(struct rng *r, int low, int high)
{
    return (int)rng_range(r, low, high);
}

/* One operand of 1 to 4 axes. */
struct operand *draw_one(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 6, shape);
    return case_add(c, r, ROLE_PARAM, ndim, shape);
}

/* Zeros and ones, ones more often. */
void draw_mask(struct operand *o, struct rng *r)
{
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = rng_range(r, 0, 2) > 0;
}

/* An operand that broadcasts to `shape`: axes of size 1, leading axes left out. */
void draw_broadcast(struct op_case *c, struct rng *r, enum role role, int ndim,
                    const int64_t *shape)
{
    int64_t own[CKPT_MAX_DIMS];
    int skip = (int)rng_range(r, 0, 2) == 0 ? (int)rng_range(r, 0, ndim - 1) : 0;
    for (int i = skip; i < ndim; i++)
        own[i - skip] = rng_range(r, 0, 2) == 0 ? 1 : shape[i];
    case_add(c, r, role, ndim - skip, own);
}

/* ---- operands ------------------------------------------------------------------------------- */

struct operand *case_add(struct op_case *c, struct rng *r, enum role role, int ndim,
                         const int64_t *shape)
{
    struct operand *o = &c->in[c->n_in++];
    o->role = role;
    array_init(&o->value, ndim, shape);
    for (int64_t i = 0; role != ROLE_INDEX && i < o->value.n; i++)
        o->value.x[i] = rng_normal(r);
    return o;
}

void case_add_absent(struct op_case *c)
{
    c->in[c->n_in++].value.ndim = -1;
}

void case_free(struct op_case *c)
{
    for (int k = 0; k < c->n_in; k++) {
        array_free(&c->in[k].value);
        array_free(&c->in[k].map);
    }
    array_free(&c->weight);
}

/* Values that the dtype represents exactly, so that only the op is tested. */
static void round_values(struct operand *o, enum ckpt_dtype dtype)
{
    for (int64_t i = 0; i < o->value.n; i++) {
        float x = (float)o->value.x[i];
        uint16_t bits;
        if (dtype == CKPT_BF16 && !o->keep_f32 && o->role == ROLE_PARAM) {
            ckpt_to_bf16(&x, &bits, 1);
            ckpt_from_bf16(&bits, &x, 1);
        }
        o->value.x[i] = x;
    }
}

static void shuffle(struct rng *r, int *axes, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)rng_range(r, 0, i), swap = axes[i];
        axes[i] = axes[j];
        axes[j] = swap;
    }
}

/* Chooses how the op sees the parameter, and the parameter's shape. */
static void draw_view(struct operand *o, struct rng *r)
{
    int64_t cut[CKPT_MAX_DIMS];
    int ndim = o->value.ndim;
    memcpy(cut, o->value.shape, sizeof(cut));
    for (int i = 0; i < CKPT_MAX_DIMS; i++)
        o->axes[i] = i;
    o->permuted = o->role == ROLE_PARAM && ndim > 1 && rng_range(r, 0, 2) == 0;
    o->sliced = o->role == ROLE_PARAM && ndim > 0 && rng_range(r, 0, 2) == 0;
    if (o->permuted)
        shuffle(r, o->axes, ndim - (o->keep_last ? 1 : 0));
    if (o->sliced) {
        o->axis = (int)rng_range(r, 0, ndim - 1);
        o->begin = rng_range(r, 0, 2);
        cut[o->axis] += o->begin + rng_range(r, 0, 2);
    }
    o->base_ndim = ndim;
    for (int i = 0; i < ndim; i++)
        o->base_shape[o->axes[i]] = cut[i];
}

/* Maps the places 0, 1, 2 ... of the parameter through the same permutation and slice. */
static void map_view(struct operand *o)
{
    struct array base, permuted;
    struct op_attr attr = {.axis = o->axis, .begin = o->begin};
    array_init(&base, o->base_ndim, o->base_shape);
    for (int64_t i = 0; i < base.n; i++)
        base.x[i] = (double)i;
    memcpy(attr.axes, o->axes, sizeof(attr.axes));
    ref_permute(&base, &permuted, &attr);
    attr.end = o->begin + (o->sliced ? o->value.shape[o->axis] : 0);
    (o->sliced ? ref_slice : ref_identity)(&permuted, &o->map, &attr);
    o->base_n = base.n;
    array_free(&base);
    array_free(&permuted);
}

void case_prepare(struct op_case *c, struct rng *r)
{
    for (int k = 0; k < c->n_in; k++) {
        if (c->in[k].role == ROLE_ABSENT)
            continue;
        round_values(&c->in[k], c->dtype);
        draw_view(&c->in[k], r);
        map_view(&c->in[k]);
    }
}
