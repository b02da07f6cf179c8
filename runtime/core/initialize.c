/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values of parameters: they follow from (seed, name, element), not from the order of
 * creation nor from the number of threads that draw them.
 */
#include <math.h>
#include "core/params.h"
#include "core/clones.h"
#include "core/thread_team.h"
#include "core/random.h"

#define BLOCK (INT64_C(1) << 14) /* elements drawn and scaled while they are in the cache */
#define SHARE (INT64_C(1) << 20) /* elements: fewer do not justify another thread */

/* FNV-1a. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

/* Spreads every bit over the word (the finalizer of SplitMix64; Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static float xavier_bound(const struct ckpt_desc *d)
{
    double fan_out = d->ndim > 0 ? (double)d->shape[0] : 1;
    double fan_in = (double)desc_numel(d) / fan_out;
    return (float)sqrt(6.0 / (fan_in + fan_out));
}

static void fill_constant(float *dst, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = value;
}

/* [0, 1) to U(-bound, bound) */
CKPT_CLONES static void make_symmetric(float *dst, int64_t n, float bound)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = (2.f * dst[i] - 1.f) * bound;
}

CKPT_CLONES static void scale(float *dst, int64_t n, float sigma)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] *= sigma;
}

struct draw {
    struct random_stream stream;
    struct ckpt_init init;
    const struct param *split; /* dst is in the order of its parts; NULL: in that of its axes */
    int64_t first;             /* element of dst[0] */
    float *dst;
};

static void draw_block(const struct draw *d, int64_t first, float *dst, int64_t n)
{
    switch (d->init.kind) {
    case CKPT_INIT_ZEROS:
        fill_constant(dst, n, 0.f);
        break;
    case CKPT_INIT_ONES:
        fill_constant(dst, n, 1.f);
        break;
    case CKPT_INIT_NORMAL:
        random_normal(&d->stream, first, dst, n);
        scale(dst, n, d->init.a);
        break;
    case CKPT_INIT_UNIFORM:
    case CKPT_INIT_XAVIER_UNIFORM:
        random_uniform(&d->stream, first, dst, n);
        make_symmetric(dst, n, d->init.a);
        break;
    }
}

static void draw_share(void *user, int64_t from, int64_t end)
{
    const struct draw *d = user;
    for (int64_t at = from, n; at < end; at += n) {
        int64_t element = d->first + at;
        n = BLOCK;
        if (d->split)
            element = param_split_element(d->split, element, &n);
        n = min_i64(min_i64(BLOCK, n), end - at);
        draw_block(d, element, d->dst + at, n);
    }
}

void param_initialize(const struct param *p, uint64_t seed, int64_t first, int64_t n, float *dst)
{
    struct draw d = {.stream.seed = mix(hash_name(p->name) + mix(seed)),
                     .init = p->init,
                     .split = p->split.ranks > 1 ? p : NULL,
                     .first = first,
                     .dst = dst};
    if (d.init.kind == CKPT_INIT_XAVIER_UNIFORM)
        d.init.a = xavier_bound(&p->desc);
    thread_team_run(thread_team_size(0, n, SHARE), n, BLOCK, draw_share, &d);
}
