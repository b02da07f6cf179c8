/* Opening and closing a context; its error text; the budget. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_path.h"
#include "context.h"
#include "exec/program.h"
#include "homes.h"
#include "ranks.h"
#include "shard/layout.h"
#include "report/options.h"

#define STRING(x)        #x
#define VERSION(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

const char *ckpt_version(void)
{
    return VERSION(CKPT_VERSION_MAJOR, CKPT_VERSION_MINOR, CKPT_VERSION_PATCH);
}

const char *ckpt_error(const ckpt *c)
{
    return c ? c->message : error_get();
}

int context_fail(ckpt *c, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(c->message, sizeof c->message, code, fmt, ap);
    va_end(ap);
    return code;
}

int error_null(ckpt *c, const char *call, const char *argument)
{
    if (c)
        return context_fail(c, CKPT_EINVAL, "%s: %s is NULL", call, argument);
    return error_set(CKPT_EINVAL, "%s: %s is NULL", call, argument);
}

/* Options of an older caller are shorter; what they lack keeps its default. */
static int copy_options(ckpt *c, const struct ckpt_options *opt)
{
    c->options = (struct ckpt_options)CKPT_OPTIONS_INIT;
    if (!opt)
        return 0;
    if (opt->size < offsetof(struct ckpt_options, verify) || opt->size > sizeof *opt)
        return error_set(CKPT_EINVAL, "options of %zu bytes: set them with CKPT_OPTIONS_INIT",
                         opt->size);
    memcpy(&c->options, opt, opt->size);
    return 0;
}

static int check_options(const struct ckpt_options *o)
{
    if (o->micro_batch < 0 && o->micro_batch != CKPT_AUTO)
        return error_set(CKPT_EINVAL,
                         "--micro-batch %lld: give a number of samples, 0 for all, or auto",
                         (long long)o->micro_batch);
    if (o->micro_batch == CKPT_AUTO && o->plan_in)
        return error_set(CKPT_EINVAL,
                         "--micro-batch auto with --plan-in: the plan is for one size; name it");
    if (o->threads < 0 || o->threads > 4096)
        return error_set(CKPT_EINVAL, "--threads %lld: give 0 to 4096", (long long)o->threads);
    if (o->vram < -100)
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
    if (o->shard_over && *o->shard_over && strcmp(o->shard_over, "auto") &&
        strcmp(o->shard_over, "all") && strcmp(o->shard_over, "host"))
        return error_set(CKPT_EINVAL, "--shard-over %s: there are 'auto', 'all' and 'host'",
                         o->shard_over);
    if (o->plan_only && o->machine_out)
        return error_set(CKPT_EINVAL, "--machine-out %s: no step is timed with --plan-only",
                         o->machine_out);
    if (o->host < 0)
        return error_set(CKPT_EINVAL, "--host %lld%%: give it in bytes, as 64G",
                         (long long)-o->host);
    if (o->device && strcmp(o->device, "auto") && strcmp(o->device, "cpu") &&
        strcmp(o->device, "cuda"))
        return error_set(CKPT_EDEVICE, "--device %s: there are 'auto', 'cpu' and 'cuda'",
                         o->device);
    return 0;
}

/* What the options name and the planner needs. */
static int read_options(ckpt *c)
{
    char message[CKPT_MESSAGE];
    const char *machine = c->options.machine;
    if (c->options.nvme && *c->options.nvme) {
        int rc = option_nvme(c->options.nvme, &c->directories);
        if (rc)
            return rc;
    }
    c->machine = machine_cpu;
    int rc = machine && *machine ? machine_read(machine, &c->machine, message) : 0;
    return rc ? error_set(rc, "%s", message) : 0;
}

bool context_plans_for_another(const ckpt *c)
{
    return c->options.plan_only && c->options.machine && *c->options.machine;
}

struct tape_env context_tape_env(const ckpt *c)
{
    return (struct tape_env){.backend = c->backend,
                             .deterministic = c->options.deterministic,
                             .params = &c->params,
                             .sharing = c->sharing};
}

static int open_cpu(ckpt *c)
{
    return device_open_cpu(&c->device, c->options.vram > 0 ? c->options.vram : INT64_MAX,
                           c->options.threads);
}

/* Without --machine: the rates of a file for this GPU, or what any reaches.  Ops that the file has
 * no time for are timed before the plan is made. */
static void find_machine(ckpt *c)
{
    if (machine_for_device(c->device->name, &c->machine))
        return;
    c->machine = machine_cuda;
    snprintf(c->machine.name, sizeof c->machine.name, "%s", c->device->name);
}

static int open_gpu(ckpt *c)
{
    int index = 0;
    int rc = ranks_seat(c, &index);
    return rc ? rc : device_open_cuda(&c->device, index, c->options.deterministic);
}

static int open_device(ckpt *c)
{
    const char *name = c->options.device ? c->options.device : "auto";
    if (context_plans_for_another(c)) {
        c->backend = c->machine.backend;
        c->overhead = c->machine.process;
        return open_cpu(c);
    }
    int rc = strcmp(name, "cpu") ? open_gpu(c) : 0;
    if (rc && (!strcmp(name, "cuda") || rc == CKPT_ECOMM))
        return rc;
    if (rc)
        snprintf(c->no_gpu, sizeof c->no_gpu, "%s", error_get());
    if (!c->device)
        rc = open_cpu(c);
    if (rc)
        return rc;
    c->backend = c->device->ops->backend;
    if (c->backend == CKPT_ON_CUDA && !(c->options.machine && *c->options.machine))
        find_machine(c);
    return 0;
}

static void set_budget(ckpt *c)
{
    int64_t have = c->device->ops->available(c->device);
    /* Another machine's memory counts where a plan is made for it. */
    if (context_plans_for_another(c))
        have = c->machine.memory;
    int64_t asked = c->options.vram;
    if (asked < 0)
        asked = (int64_t)((double)have * (double)-asked / 100.);
    c->budget = asked ? asked : c->backend == CKPT_ON_CUDA ? have : INT64_MAX;
    /* A plan that will not run here may be for a larger device. */
    if (!asked || asked <= have || c->options.plan_only)
        return;
    c->asked = asked;
    c->budget = have;
}

/* The device first: nothing of it may be under way when the tiers go. */
static void close_all(ckpt *c)
{
    bool ended = !c->device || c->device->ops->stop(c->device);
    homes_close(c, !ended);
    if (c->noted)
        c->device->ops->host_free(c->device, c->noted);
    if (c->device)
        c->device->ops->close(c->device);
    machine_free(&c->machine);
    free(c);
}

int ckpt_open(ckpt **out, const struct ckpt_options *opt)
{
    NOT_NULL(NULL, out);
    *out = NULL;
    ckpt *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(CKPT_ENOMEM, "no memory for a context");
    int rc = copy_options(c, opt);
    if (!rc)
        rc = check_options(&c->options);
    if (!rc)
        rc = read_options(c);
    if (!rc)
        rc = ranks_open(c);
    /* Of several ranks the first one writes. */
    if (!rc)
        rc = ckpt_paths_check(&c->options, NULL, 0);
    if (!rc)
        rc = open_device(c);
    if (!rc)
        rc = ranks_open_device(c);
    if (!rc)
        rc = homes_open(c);
    if (rc) {
        ranks_close(c, rc);
        close_all(c);
        return rc;
    }
    set_budget(c);
    *out = c;
    return 0;
}

void ckpt_close(ckpt *c)
{
    if (!c)
        return;
    while (c->programs)
        ckpt_program_free(c->programs);
    for (int32_t i = 0; i < c->params.n; i++) {
        free(c->params.data[i].name);
        free(c->params.data[i].initial);
    }
    free(c->params.data);
    free(c->warm.data);
    note_list_free(&c->notes);
    layout_free(c->sharing.layout);
    ranks_close(c, 0);
    close_all(c);
}
