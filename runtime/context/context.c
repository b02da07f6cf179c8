/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a context.  Options are copied and checked first, without touching a device;
 * then ranks connect, and the device, memory and the budget follow.  Options that the device cannot
 * satisfy are refused here, before any planning, with those that it can.  If one of these steps
 * fails, everything opened so far is closed again and there is no context.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "context/context.h"
#include "core/options.h"
#include "core/sized.h"
#include "dist/peers.h"
#include "optim/optimizer.h"

const char *ckpt_error(const ckpt *c)
{
    return c ? c->error.text : error_get();
}

static int copy_options(ckpt *c, const struct ckpt_options *opt)
{
    c->options = (struct ckpt_options)CKPT_OPTIONS_INIT;
    int rc = opt ? sized_read("struct ckpt_options", &c->options, sizeof c->options, opt) : 0;
    return rc ? rc : options_own_texts(&c->options, &c->texts);
}

static int check_options(const struct ckpt_options *o)
{
    if (o->micro_batch < 0 && o->micro_batch != CKPT_AUTO)
        return error_set(CKPT_EINVAL,
                         "--micro-batch %lld: give a number of samples, 0 for all, or auto",
                         (long long)o->micro_batch);
    if (o->micro_batch == CKPT_AUTO && o->plan_in)
        return error_set(
            CKPT_EINVAL,
            "--micro-batch auto with --plan-in: the plan is for one size; give that size");
    if (o->threads < 0 || o->threads > 4096)
        return error_set(CKPT_EINVAL, "--threads %lld: give 0 to 4096", (long long)o->threads);
    if (o->vram < -100 && o->vram != CKPT_VRAM_AUTO)
        return error_set(CKPT_EINVAL, "--vram %lld%%: more than the whole device",
                         (long long)-o->vram);
    if (!(o->io_deadline >= 0))
        return error_set(CKPT_EINVAL, "--io-deadline %g: give seconds, 0 for the default",
                         o->io_deadline);
    if (!(o->comm_deadline >= 0))
        return error_set(CKPT_EINVAL, "--comm-deadline %g: give seconds, 0 for the default",
                         o->comm_deadline);
    if (o->check_ranks < 0)
        return error_set(CKPT_EINVAL, "--check-ranks %lld: give a number of steps, 0 for never",
                         (long long)o->check_ranks);
    if (o->zero != CKPT_AUTO && (o->zero < 0 || o->zero > 3))
        return error_set(CKPT_EINVAL, "--zero %lld: give 0, 1, 2, 3 or auto", (long long)o->zero);
    if (o->sequence != CKPT_AUTO && o->sequence < 0)
        return error_set(CKPT_EINVAL, "--sequence %lld: give 1 or more, or auto",
                         (long long)o->sequence);
    if (o->tensor != CKPT_AUTO && o->tensor < 0)
        return error_set(CKPT_EINVAL, "--tensor %lld: give 1 or more, or auto",
                         (long long)o->tensor);
    if (o->stages != CKPT_AUTO && o->stages < 0)
        return error_set(CKPT_EINVAL, "--stages %lld: give 1 or more, or auto",
                         (long long)o->stages);
    if (o->shard_over && *o->shard_over && strcmp(o->shard_over, "auto") &&
        strcmp(o->shard_over, "all") && strcmp(o->shard_over, "host"))
        return error_set(CKPT_EINVAL, "--shard-over %s: there are 'auto', 'all' and 'host'",
                         o->shard_over);
    if (o->state && *o->state && strcmp(o->state, "fp32") && strcmp(o->state, "bf16") &&
        strcmp(o->state, "8bit"))
        return error_set(CKPT_EINVAL, "--state %s: there are 'fp32', 'bf16' and '8bit'", o->state);
    if (o->matmul && !strcmp(o->matmul, "fp8-block"))
        return error_set(CKPT_EINVAL, "--matmul fp8-block is gone: give fp8, which is faster and "
                                      "whose losses are alike; --resume-changed continues states "
                                      "of fp8-block");
    if (matmul_dtype_of(o->matmul) < 0)
        return error_set(CKPT_EINVAL, "--matmul %s: there are 'bf16' and 'fp8'", o->matmul);
    if (o->activations && *o->activations && strcmp(o->activations, "bf16") &&
        strcmp(o->activations, "8bit"))
        return error_set(CKPT_EINVAL, "--activations %s: there are 'bf16' and '8bit'",
                         o->activations);
    if (qat_check(o))
        return CKPT_EINVAL;
    if (o->deterministic && o->unordered)
        return error_set(CKPT_EINVAL, "--deterministic and --unordered exclude each other: give "
                                      "--unordered alone, or neither for the same bits every time");
    if (o->plan_only && (o->machine_out || o->trace_out))
        return error_set(CKPT_EINVAL, "--%s %s: no step is timed with --plan-only",
                         o->machine_out ? "machine-out" : "trace-out",
                         o->machine_out ? o->machine_out : o->trace_out);
    if (o->host < 0)
        return error_set(CKPT_EINVAL, "--host %lld%%: give it in bytes, as 64G",
                         (long long)-o->host);
    if (o->device && strcmp(o->device, "auto") && strcmp(o->device, "cpu") &&
        strcmp(o->device, "cuda"))
        return error_set(CKPT_EDEVICE, "--device %s: there are 'auto', 'cpu' and 'cuda'",
                         o->device);
    return 0;
}

/* Reads the directories and the machine file that the options name. */
static int read_options(ckpt *c)
{
    const char *machine = c->options.machine;
    if (c->options.nvme && *c->options.nvme) {
        int rc = tier_read_directories(&c->memory.directories, c->options.nvme);
        if (rc)
            return rc;
    }
    c->programs.machine = machine_cpu;
    return machine && *machine ? machine_read(machine, &c->programs.machine) : 0;
}

static int open_cpu(ckpt *c)
{
    return device_open_cpu(&c->memory.device, c->options.vram > 0 ? c->options.vram : INT64_MAX,
                           c->options.threads);
}

/* Without --machine: the rates of a shipped file for this GPU, or default rates.  Ops that the file
 * has no time for are timed before the plan is made. */
static void find_machine(ckpt *c)
{
    if (machine_for_device(c->memory.device->name, &c->programs.machine))
        return;
    c->programs.machine = machine_cuda;
    snprintf(c->programs.machine.name, sizeof c->programs.machine.name, "%s",
             c->memory.device->name);
}

static int open_gpu(ckpt *c)
{
    return device_open_cuda(&c->memory.device, c->ranks.gpu, c->options.unordered);
}

static int open_foreign(ckpt *c)
{
    const struct machine *m = &c->programs.machine;
    c->programs.backend = m->backend;
    c->memory.overhead = m->process;
    return open_cpu(c);
}

static int open_device(ckpt *c)
{
    const char *name = c->options.device ? c->options.device : "auto";
    if (machine_is_foreign(&c->options))
        return open_foreign(c);
    int rc = strcmp(name, "cpu") ? open_gpu(c) : 0;
    if (rc && (!strcmp(name, "cuda") || rc == CKPT_ECOMM))
        return rc;
    if (rc)
        snprintf(c->memory.no_gpu, sizeof c->memory.no_gpu, "%s", error_get());
    if (!c->memory.device)
        rc = open_cpu(c);
    if (rc)
        return rc;
    c->programs.backend = c->memory.device->ops->backend;
    if (c->programs.backend == CKPT_ON_CUDA && !(c->options.machine && *c->options.machine))
        find_machine(c);
    c->programs.machine.capability = c->memory.device->capability;
    return 0;
}

/* Ada, 8.9, was the first to multiply 8-bit floating-point values. */
enum { FP8_CAPABILITY = 89 };

static int check_fp8(const ckpt *c)
{
    const struct device *d = c->memory.device;
    if (!c->programs.matmul || d->ops->backend != CKPT_ON_CUDA)
        return 0;
    if (d->capability < FP8_CAPABILITY)
        return error_set(CKPT_EDEVICE,
                         "--matmul %s: %s has compute capability %d.%d, and 8-bit products need "
                         "8.9 or more; use bf16",
                         matmul_dtype_name(c->programs.matmul), d->name, d->capability / 10,
                         d->capability % 10);
    return 0;
}

/* Stops the device first: no operation on a tier may be in flight when the tiers are closed. */
static void close_all(ckpt *c)
{
    bool ended = !c->memory.device || c->memory.device->ops->stop(c->memory.device);
    memory_close(&c->memory, !ended);
    if (c->ranks.noted)
        c->memory.device->ops->host_free(c->memory.device, c->ranks.noted);
    if (c->memory.device)
        c->memory.device->ops->close(c->memory.device);
    machine_free(&c->programs.machine);
    free(c->texts);
    free(c);
}

static int fail_device(void *user, int rc)
{
    return programs_fail_device(user, NULL, rc);
}

/* Gives each part pointers to the parts that it uses. */
static void join_parts(ckpt *c)
{
    c->memory.options = &c->options;
    c->memory.failed = fail_device;
    c->memory.run_pending = programs_run_pending;
    c->memory.user = &c->programs;
    c->ranks.options = &c->options;
    c->ranks.params = &c->params;
    c->ranks.memory = &c->memory;
    c->ranks.machine = &c->programs.machine;
    c->programs.options = &c->options;
    c->programs.params = &c->params;
    c->programs.memory = &c->memory;
    c->programs.ranks = &c->ranks;
    c->programs.error = &c->error;
}

/* Nothing reports a collective on a device that makes no progress, so waiting calls poll for it. */
static void poll_collectives(ckpt *c)
{
    if (!c->ranks.noted)
        return;
    c->memory.device->poll = programs_poll;
    c->memory.device->poll_user = &c->programs;
}

const char *ckpt_no_gpu(const ckpt *c)
{
    return c && device_expected() ? c->memory.no_gpu : "";
}

/* The options were refused on this rank, perhaps on no other. */
static int refuse_ranks(struct ranks *job, int rc)
{
    char reason[CKPT_MESSAGE];
    snprintf(reason, sizeof reason, "%s", error_get());
    ranks_refuse(job, reason);
    return error_set(rc, "%s", reason);
}

int ckpt_open(ckpt **out, const struct ckpt_options *opt)
{
    NOT_NULL(out);
    *out = NULL;
    const double begin = clock_seconds();
    ckpt *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(CKPT_ENOMEM, "no memory for a context");
    join_parts(c);
    c->programs.opened = begin;
    c->params.owner = handle_owner();
    int rc = copy_options(c, opt);
    if (!rc)
        rc = check_options(&c->options);
    c->programs.matmul = rc ? MATMUL_BF16 : (enum matmul_dtype)matmul_dtype_of(c->options.matmul);
    c->programs.int8 = !rc && c->options.activations && !strcmp(c->options.activations, "8bit");
    const char *state = !rc && c->options.state ? c->options.state : "fp32";
    c->params.byte_state = !strcmp(state, "8bit");
    c->params.half_state = c->params.byte_state || !strcmp(state, "bf16");
    if (!rc)
        rc = read_options(c);
    rc = rc ? refuse_ranks(&c->ranks, rc) : ranks_open(&c->ranks);
    /* Of several ranks only the first writes. */
    if (!rc)
        rc = ckpt_paths_check(&c->options, NULL, 0);
    if (!rc)
        rc = open_device(c);
    if (!rc)
        rc = check_fp8(c);
    if (!rc)
        rc = ranks_open_device(&c->ranks);
    if (!rc)
        poll_collectives(c);
    if (!rc) {
        memory_set_host(&c->memory, peers_held(c->ranks.peers));
        rc = memory_open(&c->memory);
    }
    if (!rc)
        rc = memory_set_budget(&c->memory, &c->programs.machine, c->programs.backend,
                               !c->ranks.comm);
    c->programs.budget = c->memory.budget;
    if (rc) {
        ranks_close(&c->ranks, rc);
        close_all(c);
        return rc;
    }
    startup_add(&c->programs, STARTUP_OPEN, begin);
    *out = c;
    return 0;
}

int ckpt_give_up(ckpt *c, const struct ckpt_options *opt, const char *reason)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(reason);
    if (c && c->ranks.comm)
        c->ranks.comm->ops->give_up(c->ranks.comm, reason);
    if (c)
        return 0;
    NOT_NULL(opt);
    ckpt *none = calloc(1, sizeof *none);
    if (!none)
        return error_set(CKPT_ENOMEM, "no memory for a context");
    join_parts(none);
    int rc = copy_options(none, opt);
    if (!rc)
        rc = ranks_refuse(&none->ranks, reason);
    close_all(none);
    return rc;
}

void ckpt_close(ckpt *c)
{
    if (!c)
        return;
    if (c->saving)
        c->close_saving(c->saving);
    while (c->programs.first)
        ckpt_program_free(c->programs.first);
    while (c->programs.optimizers) {
        struct ckpt_optimizer *o = c->programs.optimizers;
        c->programs.optimizers = o->next;
        c->memory.device->ops->host_free(c->memory.device, o->halt);
        optim_free(o);
    }
    params_free(&c->params);
    free(c->programs.warm.data);
    programs_forget_searches(&c->programs);
    note_list_free(&c->notes);
    layout_free(c->ranks.sharing.layout);
    ranks_close(&c->ranks, 0);
    close_all(c);
}

/* Names the first output file that the options of c request and that was not written. */
int ckpt_unwritten(ckpt *c)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    const struct {
        const char *option, *path;
        enum written written;
    } all[] = {
        {"--plan-out", c->options.plan_out, WRITTEN_PLAN},
        {"--graph-out", c->options.graph_out, WRITTEN_GRAPH},
        {"--machine-out", c->options.machine_out, WRITTEN_MACHINE},
        {"--trace-out", c->options.trace_out, WRITTEN_TRACE},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].path && !(c->programs.written & all[i].written))
            return error_set(
                CKPT_EINVAL, "%s %.300s: nothing was written: %s", all[i].option, all[i].path,
                all[i].written >= WRITTEN_MACHINE ? "no step of a program that trains was timed"
                                                  : "no program that trains was compiled");
    return 0;
}
