/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selects the weights that are kept in codes (core/frozen.h).  This is a property of a parameter,
 * set before the first program is compiled: plans, tiers, files and ranks then see a value of fewer
 * bytes, and models read the tensor that an op decodes from it (tape.c).  And those that are stored
 * below the device, which is their place before there is a plan.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include "context/context.h"
#include "core/frozen.h"
#include "plan/plan.h"

static int fail(ckpt *c, const char *pattern, const char *why)
{
    return params_fail(&c->params, error_set(CKPT_EINVAL, "ckpt_quantize_frozen '%s': %s",
                                             pattern ? pattern : "", why));
}

static bool may_be_coded(const struct param *p, const char *pattern)
{
    return !p->training.adapter && !p->training.whole && !p->cache && p->desc.ndim == 2 &&
           frozen_takes(desc_numel(&p->desc)) && !fnmatch(pattern, p->name, 0);
}

static const char *find_fault(const ckpt *c, const char *pattern, int format)
{
    int32_t found = 0;

    if (!pattern)
        return "it needs a pattern";
    if (format != FROZEN_INT8 && format != FROZEN_NF4)
        return "there are the formats 'int8' and 'nf4'";
    if (c->programs.first)
        return "choose formats before a program is compiled";
    for (int32_t i = 0; i < c->params.n; i++) {
        const struct param *p = &c->params.data[i];
        if (!may_be_coded(p, pattern))
            continue;
        if (p->trainable)
            return "a weight of that name is trained: call ckpt_lora before, or create it frozen";
        if (p->training.codes && p->training.codes != format)
            return "a weight of that name has another format already";
        found++;
    }
    return found ? NULL
                 : "no parameter of two axes and a multiple of 64 elements, 4096 or more, has such "
                   "a name";
}

/* Encodes an initial value at once, so that the host keeps only the codes. */
static int encode_initial(ckpt *c, struct param *p, int to)
{
    const int64_t n = desc_numel(&p->desc);
    float *values = p->place.initial ? malloc((size_t)n * sizeof *values) : NULL;
    int rc = !p->place.initial || values ? 0 : CKPT_ENOMEM;

    if (values)
        param_read_initial(p, 0, n, values);
    if (!rc)
        p->training.codes = to;
    if (values)
        rc = param_keep_initial(p, values);
    free(values);
    if (!rc)
        return 0;
    rc = error_set(CKPT_ENOMEM, "no memory for the codes of '%s'", p->name);
    return params_fail(&c->params, rc);
}

int ckpt_quantize_frozen(ckpt *c, const char *pattern, const char *format)
{
    int n = 0, rc = 0;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    const int to = format ? frozen_format_of(format) : -1;
    if (c->params.failed.code)
        return (c->error = c->params.failed).code;
    const char *fault = find_fault(c, pattern, to);
    if (fault)
        return fail(c, pattern, fault);
    for (int32_t i = 0; i < c->params.n && !rc; i++) {
        struct param *p = &c->params.data[i];
        if (!may_be_coded(p, pattern))
            continue;
        if (!p->training.codes)
            rc = encode_initial(c, p, to);
        n++;
    }
    params_trim_heap();
    return rc ? rc : n;
}

/* ---- weights below the device -----------------------------------------------------------------
 */

enum { MIN_OFFLOADED = 1 << 20 /* smaller ones are never worth a copy: idle_gaps.c */ };

static bool may_be_offloaded(const struct param *p, const char *pattern)
{
    return !p->trainable && !p->training.adapter && !p->cache && p->place.offset[SLOT_VALUE] < 0 &&
           param_slot_bytes(p, SLOT_VALUE) >= MIN_OFFLOADED && !fnmatch(pattern, p->name, 0);
}

/* The rest of the host tier is for activations and copies from files.  Returns false if no tier has
 * space. */
static bool offload(ckpt *c, struct param *p)
{
    const int64_t bytes = param_slot_bytes(p, SLOT_VALUE), files = c->memory.directories.bytes;
    const int64_t slots = files ? plan_staging(c->memory.host) : 0;
    const int64_t host = memory_tier_bytes(&c->params, TIER_HOST);
    const int64_t nvme =
        round_up(memory_tier_bytes(&c->params, TIER_NVME), (int64_t)PLAN_NVME_ALIGN);

    if (bytes <= c->memory.host / 8 * 7 - slots - host)
        memory_place_slot(&c->memory, p, SLOT_VALUE, BACKING_HOST, host);
    else if (bytes <= files - nvme)
        memory_place_slot(&c->memory, p, SLOT_VALUE, BACKING_NVME, nvme);
    return p->place.offset[SLOT_VALUE] >= 0;
}

int ckpt_offload_frozen(ckpt *c, const char *pattern)
{
    int64_t bytes = 0;
    int n = 0;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(pattern);
    if (c->programs.first)
        return error_set(CKPT_EINVAL, "ckpt_offload_frozen: choose weights before a program is "
                                      "compiled");
    for (int32_t i = 0; i < c->params.n; i++)
        if (may_be_offloaded(&c->params.data[i], pattern))
            bytes += param_slot_bytes(&c->params.data[i], SLOT_VALUE);
    for (int32_t i = 0; i < c->params.n && bytes > c->programs.budget / 2; i++)
        n += may_be_offloaded(&c->params.data[i], pattern) && offload(c, &c->params.data[i]);
    return n;
}
