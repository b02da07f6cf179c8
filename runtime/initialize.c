/* Initial values of parameters: they follow from (seed, name), not from the order of creation. */
#include <math.h>
#include "context.h"
#include "random.h"

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

/* U(-bound, bound) */
static void fill_symmetric(const struct random_stream *s, float *dst, int64_t n, float bound)
{
    random_uniform(s, 0, dst, n);
    for (int64_t i = 0; i < n; i++)
        dst[i] = (2.f * dst[i] - 1.f) * bound;
}

static void fill_scaled_normal(const struct random_stream *s, float *dst, int64_t n, float sigma)
{
    random_normal(s, 0, dst, n);
    for (int64_t i = 0; i < n; i++)
        dst[i] *= sigma;
}

void param_initialize(const struct param *p, uint64_t seed, float *dst)
{
    struct random_stream s = {.seed = mix(hash_name(p->name) + mix(seed))};
    int64_t n = desc_numel(&p->desc);
    switch (p->init.kind) {
    case CKPT_INIT_ZEROS:
        fill_constant(dst, n, 0.f);
        break;
    case CKPT_INIT_ONES:
        fill_constant(dst, n, 1.f);
        break;
    case CKPT_INIT_NORMAL:
        fill_scaled_normal(&s, dst, n, p->init.a);
        break;
    case CKPT_INIT_UNIFORM:
        fill_symmetric(&s, dst, n, p->init.a);
        break;
    case CKPT_INIT_XAVIER_UNIFORM:
        fill_symmetric(&s, dst, n, xavier_bound(&p->desc));
        break;
    }
}
