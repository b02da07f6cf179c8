/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache is state that an inference program writes while it runs: the keys and values of the
 * tokens read so far.  A step appends rows in place and reads the whole cache.
 *
 * The op writes the storage of a parameter, so a plan never recomputes it.  An op that read the
 * cache before the append could not be recomputed after it.  A tape may therefore append to a cache
 * once, and read it only after that.
 */
#include "cache.h"
#include "ckpt_nn.h"
#include "ops.h"
#include "tape/tape.h"

static int cache_append_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *cache = &call->in[CACHE], *x = &call->in[CACHE_ROWS];
    const struct ckpt_desc *at = &call->in[CACHE_AT];
    bool fits = x->ndim == cache->ndim && x->ndim >= 2 && x->shape[0] == cache->shape[0];
    for (int i = 2; fits && i < x->ndim; i++)
        fits = x->shape[i] == cache->shape[i];
    if (!fits)
        return ckpt_call_fail(call,
                              "a cache [B, S, ...] takes rows [B, T, ...], with B the samples "
                              "of a micro-step");
    if (x->dtype != cache->dtype)
        return ckpt_call_fail(call, "rows and cache must have one dtype");
    if (x->shape[1] > cache->shape[1])
        return ckpt_call_fail(call, "%lld rows do not fit into a cache of %lld",
                              (long long)x->shape[1], (long long)cache->shape[1]);
    if (at->dtype != CKPT_I32 || at->ndim != 1 || at->shape[0] != x->shape[0])
        return ckpt_call_fail(call, "the positions must be i32 [B]");
    call->out[0].ndim = -1;
    return CKPT_OK;
}

/* Reads and writes the new rows only; the rest of the cache is not touched. */
static void cache_append_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.bytes = 2.0 * (double)desc_bytes(&call->in[CACHE_ROWS])};
}

OPS_DEF(cache_append, .flags = CKPT_OP_INPLACE, .shape = cache_append_shape,
        .cost = cache_append_cost);

/* The reason why this tape cannot append to the cache, or NULL. */
static const char *find_fault(ckpt_tape *t, ckpt_tensor cache)
{
    const struct param *p = params_at(t->env.params, cache);
    if (!p || !p->cache)
        return "the first operand must be a cache of this context (ckpt_cache)";
    if (t->trains)
        return "a training program cannot append to a cache: a failed step must change nothing";
    return NULL;
}

/* Whether an op of this tape has the cache, or a view of it, as an operand. */
static bool is_used(const ckpt_tape *t, ckpt_tensor cache)
{
    return !uses_is_alone(t, cache.id) || uses_count(t, cache.id);
}

ckpt_tensor ckpt_cache_append(ckpt_tape *t, ckpt_tensor cache, ckpt_tensor x, ckpt_tensor at)
{
    if (!t || t->error.code)
        return CKPT_NONE;
    const char *fault = find_fault(t, cache);
    if (fault) {
        ckpt_tape_fail(t, CKPT_EINVAL, "cache_append: %s", fault);
        return CKPT_NONE;
    }
    const struct param *p = params_at(t->env.params, cache);
    cache = tape_resolve(t, cache);
    if (!t->error.code && is_used(t, cache))
        ckpt_tape_fail(
            t, CKPT_EINVAL,
            "cache_append: '%s' was read before; a program may append to a cache once, and "
            "read it only after that",
            p->name);
    return t->error.code ? CKPT_NONE
                         : OPS_RECORD(t, &op_cache_append, (const char *)NULL, cache, x, at);
}
