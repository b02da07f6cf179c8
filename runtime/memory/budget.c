/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budget of the device, decided once when the context opens: memory that somebody frees later
 * changes no plan of this context.
 */
#include "memory/memory.h"
#include "memory/tier/host_limits.h"

/* What the host has left for this process beside its host tier.  Ranks would each take all. */
static int take_host(struct memory *m, bool alone)
{
    if (!alone)
        return error_set(CKPT_EINVAL, "--vram auto: ranks on the CPU share the memory of their "
                                      "host; give each a part, as --vram 8G");
    struct host_limit l =
        host_limits_check("", &(struct host_need){.bytes = INT64_MAX / 2, .node = -1});
    m->budget = l.left == INT64_MAX ? INT64_MAX : max_i64(1, l.left - m->options->host);
    return 0;
}

/* Another process can open the card beside this one. */
static void leave_margin(struct memory *m, const struct machine *machine, int64_t have)
{
    m->margin = machine_margin(machine, have);
    m->budget = have - m->margin;
}

static void take_asked(struct memory *m, int64_t asked, int64_t have)
{
    if (asked < 0)
        asked = (int64_t)((double)have * (double)-asked / 100.);
    m->budget = asked;
    /* A plan that will not run here may be for a larger device. */
    if (asked <= have || m->options->plan_only)
        return;
    m->asked = asked;
    m->budget = have;
}

int memory_set_budget(struct memory *m, const struct machine *machine, enum ckpt_backend backend,
                      bool alone)
{
    /* Another machine's memory counts where a plan is made for it. */
    bool foreign = machine_is_foreign(m->options), gpu = backend == CKPT_ON_CUDA;
    int64_t have = foreign ? machine->memory : m->device->ops->available(m->device);
    int64_t asked = m->options->vram;

    m->free_first = !asked || asked == CKPT_VRAM_AUTO || asked == CKPT_VRAM_NONE;
    if (!m->free_first)
        take_asked(m, asked, have);
    else if (asked == CKPT_VRAM_NONE || (!asked && !gpu))
        m->budget = gpu && !m->options->plan_only ? have : INT64_MAX;
    else if (gpu || foreign)
        leave_margin(m, machine, have);
    else
        return take_host(m, alone);
    return 0;
}
