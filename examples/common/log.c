/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run for other programs: see log.h. */
#include <errno.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "log.h"
#include "say.h"

int log_open(struct run_log *log, const char *path, int rank)
{
    *log = (struct run_log){.f = NULL};
    if (!path)
        return 0;
    int n = rank ? snprintf(log->path, sizeof log->path, "%s.%d", path, rank)
                 : snprintf(log->path, sizeof log->path, "%s", path);
    if (n >= (int)sizeof log->path)
        return say_fail("--log %s: %s", path, strerror(ENAMETOOLONG));
    return ckpt_log_open(&log->f, log->path) ? say_fail("--log %s", ckpt_error(NULL)) : 0;
}

static void lose(struct run_log *log)
{
    say_fail("--log %s: %s; the run goes on without it", log->path, strerror(errno));
    log->failed = true;
}

void log_flush(struct run_log *log)
{
    if (!log->f || (!fflush(log->f) && !ferror(log->f)))
        return;
    lose(log);
    fclose(log->f);
    log->f = NULL;
}

int log_close(struct run_log *log)
{
    if (log->f && fclose(log->f))
        lose(log);
    log->f = NULL;
    return log->failed ? -1 : 0;
}

void log_config_begin(struct run_log *log)
{
    fputs("{\"config\": {", log->f);
    json_put_string(log->f, "libckpt", ckpt_version());
}

void log_config_end(struct run_log *log, const ckpt *c, const ckpt_program *p,
                    const struct training_options *t, const struct ckpt_options *library)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    FILE *f = log->f;

    ckpt_program_info(p, &info);
    json_put_int(f, "batch", t->batch);
    json_put_int(f, "ranks", ckpt_ranks(c));
    json_put_string(f, "place", ckpt_rank_location(c, ckpt_rank(c)));
    json_put_int(f, "micro_batch", info.micro_batch);
    json_put_int(f, "steps", t->steps);
    json_put_int(f, "warmup", t->warmup);
    json_put_string(f, "schedule", t->schedule ? t->schedule : "constant");
    json_put_int(f, "vram", library->vram);
    json_put_string(f, "device", library->device);
    json_put_int(f, "seed", library->seed);
    json_put_float(f, "clip_norm", t->clip_norm, ", ");
    json_put_float(f, "ema_decay", t->ema_decay, ", ");
    json_put_float(f, "lr", t->lr, "}}\n");
    log_flush(log);
}

void log_step_begin(struct run_log *log, int64_t step, double loss,
                    const struct ckpt_program_info *info)
{
    fputc('{', log->f);
    json_put_int(log->f, "step", step);
    json_put_float(log->f, "loss", loss, ", ");
    json_put_float(log->f, "grad_norm", info->grad_norm, ", ");
}

void log_step_end(struct run_log *log, const struct ckpt_program_info *info)
{
    json_put_int(log->f, "planned_peak", info->planned_peak);
    json_put_int(log->f, "arena_bytes", info->arena_bytes);
    json_put_int(log->f, "process_bytes", info->process_bytes);
    json_put_float(log->f, "predicted_ms", info->step_seconds * 1e3, ", ");
    fprintf(log->f, "\"rss\": %lld}\n", (long long)say_rss());
    log_flush(log);
}
