/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budgets of the device and of the host tier, set once when the context opens: memory that
 * another process frees later does not change any plan of this context.
 */
#include "memory/memory.h"
#include "memory/tier/host_limits.h"

#define PAGE INT64_C(4096)

void memory_set_host(struct memory *m, int64_t held)
{
    struct host_limit l = host_limits_check("", INT64_MAX / 2);
    m->host = m->options->host;
    if (!m->host || l.left >= m->host - held)
        return;
    if (m->options->plan_only) { /* the plan may be for a larger machine */
        m->host_left = machine_is_foreign(m->options) ? 0 : max_i64(PAGE, l.left + held);
        snprintf(m->host_limit, sizeof m->host_limit, "%s", m->host_left ? l.name : "");
        return;
    }
    m->host = max_i64(PAGE, (l.left + held) / PAGE * PAGE);
    snprintf(m->host_limit, sizeof m->host_limit, "%s", l.name);
}

/* --vram auto on the CPU: the free host memory minus the host tier; refused for several ranks, of
 * which each would use all of it. */
static int use_host_memory(struct memory *m, bool alone)
{
    if (!alone)
        return error_set(CKPT_EINVAL, "--vram auto: ranks on the CPU share the memory of their "
                                      "host; give each a part, as --vram 8G");
    struct host_limit l = host_limits_check("", INT64_MAX / 2);
    m->budget = l.left == INT64_MAX ? INT64_MAX : max_i64(1, l.left - m->host);
    return 0;
}

/* Leaves a margin in which another process can open a context on the GPU. */
static void leave_margin(struct memory *m, const struct machine *machine, int64_t have)
{
    m->margin = machine_margin(machine, have);
    m->budget = have - m->margin;
}

/* On the CPU only a part of the device's memory is free for this program. */
static void use_requested(struct memory *m, int64_t requested, int64_t have, bool gpu)
{
    if (requested < 0)
        requested = (int64_t)((double)have * (double)-requested / 100.);
    m->budget = requested;
    /* With --plan-only the plan may be for a larger device. */
    if (m->options->plan_only)
        return;
    have = gpu ? have : min_i64(have, max_i64(PAGE, host_limits_check("", INT64_MAX / 2).left));
    if (requested <= have)
        return;
    m->asked = requested;
    m->budget = have;
}

int memory_set_budget(struct memory *m, const struct machine *machine, enum ckpt_backend backend,
                      bool alone)
{
    /* If the plan is for another machine, that machine's memory counts. */
    bool foreign = machine_is_foreign(m->options), gpu = backend == CKPT_ON_CUDA;
    int64_t have = foreign ? machine->memory : m->device->ops->available(m->device);
    int64_t requested = m->options->vram;

    m->free_first = !requested || requested == CKPT_VRAM_AUTO || requested == CKPT_VRAM_NONE;
    if (!m->free_first)
        use_requested(m, requested, have, gpu);
    else if (requested == CKPT_VRAM_NONE || (!requested && !gpu))
        m->budget = gpu && !m->options->plan_only ? have : INT64_MAX;
    else if (gpu || foreign)
        leave_margin(m, machine, have);
    else
        return use_host_memory(m, alone);
    return 0;
}
