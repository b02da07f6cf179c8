/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a context: the device with its arena, the lower tiers, the budgets of both, and access
 * to the values of parameters in their backing tiers.
 *
 * The memory room decides where bytes are stored, never which bytes:
 *
 * - the device (device.h) has one arena of reserved addresses, mapped at compile, and queues that
 *   run commands in order.  CPU and CUDA are two files with one table of functions;
 * - the tiers (tier.h) are host memory that copies access by address, bound to the device's NUMA
 *   node and pinned, and files on drives, which are only read and written;
 * - a slot of a parameter has one place between steps: at the bottom of the arena, where offsets
 *   grow as programs add parameters, or where the first plan that offloads it put it.  Once it has
 *   a place it keeps it (memory_place_slot);
 * - the budget is that of the whole process: bytes used by libraries and the device's context
 *   (overhead) are inside it, the arena gets the rest.
 *
 * Values are read and written as fp32 and rounded on the way if a slot is bf16; slots that only the
 * device or a file holds pass through staging memory in pieces.  Every call waits for the device
 * first.  A failure of the device is passed to the context by the callback `failed`, which makes
 * the sentence: this room knows no programs.
 *
 * It may use the core, the constants of plans (sizes of staging slots, alignment) and the function
 * that binds threads to a node.  Only its device folder includes CUDA headers.  Nothing here is
 * allocated while steps run.
 */
#ifndef CKPT_MEMORY_H
#define CKPT_MEMORY_H

#include "memory/device/device.h"
#include "core/params.h"
#include "plan/plan.h"
#include "memory/tier/tier.h"

struct memory {
    const struct ckpt_options *options; /* borrowed from the context, as is error */
    struct device *device;
    struct tier *tiers[TIER_COUNT];      /* NULL: not requested, or only planned */
    struct tier_directories directories; /* of options.nvme */
    struct tier_pin pin;
    bool host_steps;      /* QUEUE_HOST is open */
    char *staging;        /* slots between device and files: those out, then those in; its addresses
                             are reserved at first, and it takes memory once a plan uses NVMe */
    int64_t slot;         /* bytes of each */
    bool staged;          /* it takes memory */
    void *rounding;       /* ROUNDING bytes to round bf16 values in; NULL until needed */
    int64_t budget;       /* bytes of the device; INT64_MAX: none.  Set once, when it opens */
    int64_t overhead;     /* bytes of the process outside the arena, inside the budget */
    int64_t asked;        /* the requested budget, if the device has less; else 0 */
    int64_t host;         /* bytes of the host tier: options.host, or what a system limit leaves */
    int64_t margin;       /* --vram auto: bytes that were free and are left to others; else 0 */
    int64_t host_left;    /* --plan-only: what the limit leaves here, if host is more; else 0 */
    char host_limit[160]; /* the name of the limit of host; "": options.host */
    bool free_first; /* --vram auto and none: use the plan of no budget if the device holds it */
    char least[96];  /* "--vram of rank 2": the smallest budgets, if those of ranks differ; or "" */
    int64_t saves, saves_at;   /* --save-async: bytes of the host tier that hold a state while it is
                                  written, and their offset */
    int64_t persistent;        /* bytes at the bottom of the arena that hold parameters */
    int64_t arena;             /* bytes of it that are mapped for programs */
    char no_gpu[CKPT_MESSAGE]; /* why --device auto selected the CPU; "" if it did not */
    /* Callback that makes the sentence of a failure of the device; the weights count as lost from
     * then on.  Returns rc. */
    int (*failed)(void *user, int rc);
    /* Callback that does the updates that the last step left to the next one, on an idle device.
     * Returns 0 or a code, with the sentence. */
    int (*run_pending)(void *user);
    void *user;
};

/* Sets host and host_limit: options.host, or what available memory and control groups leave, and
 * `held` bytes that this process has already and options.host counts.  Ranks of one host each see
 * all that is left; what they reserve together is checked when they do. */
void memory_set_host(struct memory *m, int64_t held);
/* Opens the tiers that the options ask for.  Returns 0 or a code, with the sentence. */
int memory_open(struct memory *m);
/* untouched: a file operation hangs, so the memory it may still access is not freed. */
void memory_close(struct memory *m, bool untouched);

/* Sets budget, asked, margin and free_first from options.vram, for a program of this backend on
 * this machine; alone: there is one rank.  The device is open.  Returns 0 or CKPT_EINVAL, with
 * the sentence. */
int memory_set_budget(struct memory *m, const struct machine *machine, enum ckpt_backend backend,
                      bool alone);

/* Waits until the device is idle, and all updates of the last step are done.  Returns 0 or a code:
 * the device's are reported through failed(). */
int memory_sync(struct memory *m);

/* Assigns a slot its place if it has none: offset `offset` of a tier or, if backing is
 * BACKING_DEVICE, the end of the persistent region. */
void memory_place_slot(struct memory *m, struct param *p, int slot, enum backing backing,
                       int64_t offset);

/* The end of the parameters in a tier, in bytes. */
int64_t memory_tier_bytes(const struct params *params, int tier);
/* Makes each tier at least this many bytes long.  Returns 0 or a code. */
int memory_reserve(struct memory *m, const int64_t bytes[TIER_COUNT]);

/* Before the first step on the host: opens QUEUE_HOST with its threads on the device's NUMA node;
 * `ranks` ranks share the node's cores.  Returns 0 or a code. */
int memory_open_steps(struct memory *m, int ranks);
/* Keeps the calling thread on the device's NUMA node, whose cores `processes` processes share, and
 * starts its team for updates.  Returns 0 or CKPT_ENOMEM. */
int memory_start_team(struct device *d, int processes);

/* Write or read n elements of a slot as fp32, rounded if the slot is bf16.  Return 0 or a code. */
int memory_write(struct memory *m, const struct param *p, int slot, const float *src, int64_t n);
int memory_read(struct memory *m, const struct param *p, int slot, float *dst, int64_t n);
/* The same for n elements from `first` on; not of codes, nor of slots in files, which are read
 * whole (memory_reads_runs). */
bool memory_reads_runs(const struct param *p, int slot);
int memory_read_run(struct memory *m, const struct param *p, int slot, int64_t first, float *dst,
                    int64_t n);
/* Fills a slot with zeros. */
int memory_clear(struct memory *m, const struct param *p, int slot);

#endif
