/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a context: the device with its arena, the tiers below, how much of them may be taken,
 * and bytes of parameters in and out of wherever they live between steps.
 *
 * The memory room decides where bytes are, never which:
 *
 * - the device (device.h) has one arena of reserved addresses, mapped at compile, and queues that
 *   run commands in order.  CPU and CUDA are two files behind one table of functions;
 * - the tiers (tier.h) are host memory that copies reach by its address, bound to the device's
 *   node and known to it, and files on drives, which are only read and written;
 * - a slot of a parameter has one place between steps: at the bottom of the arena, where offsets
 *   grow as programs bring parameters, or where the first plan that offloads it put it.  Once it
 *   has a place it keeps it (memory_place_slot);
 * - the budget is of the whole process: what libraries and the device's context take (overhead) is
 *   inside it, the arena gets the rest.
 *
 * Values go in and out as fp32 and are rounded on the way where a slot is bf16, in pieces through
 * staging memory where only the device or a file has it.  Every call waits for the device
 * first.  A failure of the device is told to the context through `failed`, which makes the
 * sentence: this room knows no programs.
 *
 * It may know the core, the constants of plans (sizes of staging slots, alignment) and the
 * function that binds threads to a node.  Only its device folder includes headers of
 * CUDA.  Nothing here is allocated while steps run.
 */
#ifndef CKPT_MEMORY_H
#define CKPT_MEMORY_H

#include "memory/device/device.h"
#include "core/params.h"
#include "plan/plan.h"
#include "memory/tier/tier.h"

struct memory {
    const struct ckpt_options *options; /* of the context, as is the error */
    struct error *error;
    struct device *device;
    struct tier *tiers[TIER_COUNT];      /* NULL: not asked for, or only planned */
    struct tier_directories directories; /* of options.nvme */
    struct tier_pin pin;
    bool host_steps;  /* the queue of steps on the host is open */
    char *staging;    /* the slots between device and files: those out, then those in */
    void *rounding;   /* PLAN_STAGING_SLOT for bf16 values to and from the device, once needed */
    int64_t budget;   /* bytes of the device; INT64_MAX: none */
    int64_t overhead; /* of the process, outside the arena, inside the budget */
    int64_t asked;    /* what was asked for, if the device has less; else 0 */
    int64_t margin;   /* --vram auto: bytes that were free and are left to others; else 0 */
    bool
        free_first; /* --vram auto and none: the plan without a budget, where the device holds it */
    char least[96]; /* "--vram of rank 2": where ranks have other budgets, the smallest; or "" */
    int64_t persistent;        /* bytes at the bottom of the arena that hold parameters */
    char no_gpu[CKPT_MESSAGE]; /* why --device auto took the CPU; "" if it did not look further */
    /* Makes the sentence of a failure that the device returned; the weights count as lost from then
     * on.  Returns rc. */
    int (*failed)(void *user, int rc);
    void *user;
};

/* Opens the tiers that the options ask for.  Returns 0 or a code, the sentence in error_get(). */
int memory_open(struct memory *m);
/* untouched: a file operation has no end, so what it may still use is left alone. */
void memory_close(struct memory *m, bool untouched);

/* Sets budget, asked, margin and free_first by options.vram, for a program of this backend on this
 * machine; alone: one rank.  The device is open.  Returns 0 or CKPT_EINVAL, the sentence in
 * error_get(). */
int memory_set_budget(struct memory *m, const struct machine *machine, enum ckpt_backend backend,
                      bool alone);

/* Waits until the device is idle.  Returns 0 or its code, as failed() says it. */
int memory_sync(struct memory *m);

/* Gives a slot its place, if it has none: in a tier from `offset` on or, where backing is
 * BACKING_DEVICE, at the end of the persistent region. */
void memory_place_slot(struct memory *m, struct param *p, int slot, enum backing backing,
                       int64_t offset);

/* Where parameters end in a tier. */
int64_t memory_tier_bytes(const struct params *params, int tier);
/* Makes the tiers at least so long.  Returns 0 or a code. */
int memory_reserve(struct memory *m, const int64_t bytes[TIER_COUNT]);

/* Before the first step on the host: opens their queue, its threads on the node of the device, of
 * which so many ranks have a part.  Returns 0 or a code. */
int memory_open_steps(struct memory *m, int ranks);

/* Copies n elements of a slot in or out as fp32, rounding where the slot is bf16.  Return 0 or a
 * code. */
int memory_write(struct memory *m, const struct param *p, int slot, const float *src, int64_t n);
int memory_read(struct memory *m, const struct param *p, int slot, float *dst, int64_t n);
/* Fills a slot with zeros. */
int memory_clear(struct memory *m, const struct param *p, int slot);

#endif
