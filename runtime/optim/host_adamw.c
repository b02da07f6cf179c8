/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on the host in one pass over memory, for several instruction sets: see host_adamw.h. */
#include <math.h>
#include <string.h>
#include "cpu.h"
#include "optim/adamw_math.h"
#include "optim/host_adamw.h"
#include "optim/optim.h"

/* Elements that stay in the first cache while one loop after the other goes over them: one loop for
 * all would be written once for each way to call it, for no gain. */
#define BLOCK 256

/* Elements [at, at + n), a block at most. */
ADAMW_FUNCTION void update_block(const struct adamw_constants *c, const struct host_adamw *p,
                                 int64_t at, int64_t n)
{
    float wide[BLOCK], *restrict w = p->w + at, *restrict m = p->m + at, *restrict v = p->v + at;
    const float *gradient = p->half ? wide : (const float *)p->gradient + at;
    const uint16_t *half = p->half ? (const uint16_t *)p->gradient + at : NULL;
    float *restrict ema = p->ema ? p->ema + at : NULL;
    uint16_t *value = p->value ? p->value + at : NULL; /* perhaps the gradient's own room */
#pragma omp simd
    for (int64_t i = 0; i < (half ? n : 0); i++)
        wide[i] = bf16_load(half[i]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float mean = m[i], square = v[i];
        w[i] = adamw_weight(c, gradient[i], w[i], &mean, &square);
        m[i] = mean;
        v[i] = square;
    }
    if (p->broken && !floats_are_finite(w, n))
        __atomic_store_n(p->broken, true, __ATOMIC_RELAXED);
#pragma omp simd
    for (int64_t i = 0; i < (value ? n : 0); i++)
        value[i] = bf16_round(w[i]);
#pragma omp simd
    for (int64_t i = 0; i < (ema ? n : 0); i++)
        ema[i] = adamw_ema(c, ema[i], w[i]);
}

ADAMW_FUNCTION void update(const struct adamw_constants *constants, const struct host_adamw *p)
{
    const struct adamw_constants c = *constants;
    for (int64_t at = 0; at < p->n; at += BLOCK)
        update_block(&c, p, at, min_i64(BLOCK, p->n - at));
}

/* ---- instruction sets ------------------------------------------------------------------------ */

/* On arm64 the plain one is NEON, which every such processor has. */
static void update_plain(const struct adamw_constants *c, const struct host_adamw *p)
{
    update(c, p);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void update_avx2(const struct adamw_constants *c,
                                                        const struct host_adamw *p)
{
    update(c, p);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void
update_avx512(const struct adamw_constants *c, const struct host_adamw *p)
{
    update(c, p);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static const struct {
    const char *name;
    void (*run)(const struct adamw_constants *c, const struct host_adamw *p);
    bool (*has)(void); /* NULL: always */
} sets[HOST_ADAMW_SETS] = {
#if defined(__aarch64__)
    [HOST_ADAMW_PLAIN] = {"NEON", update_plain, NULL},
#else
    [HOST_ADAMW_PLAIN] = {"plain", update_plain, NULL},
#endif
#ifdef __x86_64__
    [HOST_ADAMW_AVX2] = {"AVX2", update_avx2, has_avx2},
    [HOST_ADAMW_AVX512] = {"AVX-512", update_avx512, has_avx512},
#endif
};

const char *host_adamw_name(enum host_adamw_set set)
{
    return !sets[set].has || sets[set].has() ? sets[set].name : NULL;
}

void host_adamw_with(enum host_adamw_set set, const struct adamw_constants *c,
                     const struct host_adamw *p)
{
    sets[set].run(c, p);
}

/* ---- in threads ------------------------------------------------------------------------------ */

/* Elements [at, at + n). */
static struct host_adamw piece_of(const struct host_adamw *p, int64_t at, int64_t n)
{
    return (struct host_adamw){
        .w = p->w + at,
        .m = p->m + at,
        .v = p->v + at,
        .ema = p->ema ? p->ema + at : NULL,
        .value = p->value ? p->value + at : NULL,
        .gradient = (const char *)p->gradient + at * (p->half ? 2 : 4),
        .half = p->half,
        .n = n,
        .broken = p->broken,
    };
}

/* A thread that has to share its processor takes fewer pieces: all would wait for a fixed part. */
void host_adamw(const struct adamw_constants *c, const struct host_adamw *p)
{
    enum host_adamw_set best = HOST_ADAMW_SETS - 1;
    while (!host_adamw_name(best))
        best--;
#pragma omp parallel for schedule(dynamic) if (p->n > OPTIM_CHUNK)
    for (int64_t at = 0; at < p->n; at += OPTIM_CHUNK) {
        struct host_adamw piece = piece_of(p, at, min_i64(OPTIM_CHUNK, p->n - at));
        host_adamw_with(best, c, &piece);
    }
}
