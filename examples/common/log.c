/* SPDX-License-Identifier: Apache-2.0 */
/* A run's log for other programs: see log.h.  Lines are appended, so a resumed run continues the
 * file; each is flushed as it ends. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "directory.h"
#include "log.h"
#include "say.h"

/* Opens the file of this rank for appending; without --log there is none, and log->f stays NULL. */
static int open_lines(struct run_log *log, const char *path, int rank)
{
    if (!path)
        return 0;
    int n = rank ? snprintf(log->path, sizeof log->path, "%s.%d", path, rank)
                 : snprintf(log->path, sizeof log->path, "%s", path);
    if (n >= (int)sizeof log->path)
        return say_fail("--log %s: %s", path, strerror(ENAMETOOLONG));
    return ckpt_log_open(&log->f, log->path) ? say_fail("--log %s", ckpt_error(NULL)) : 0;
}

int log_open(struct run_log *log, const struct training_options *t, int rank, int64_t first)
{
    *log = (struct run_log){.step = first};
    if (open_lines(log, t->log, rank))
        return -1;
    return events_open(&log->events, rank ? NULL : t->tensorboard, first + 1);
}

/* Reports a write error, the first and only time: log_close then returns -1. */
static void lose(struct run_log *log)
{
    say_fail("--log %s: %s; the run continues without it", log->path, strerror(errno));
    directory_remove_empty_file(log->path);
    log->failed = true;
}

/* A reader that follows the file sees whole lines.  After an error nothing more is written. */
static void flush(struct run_log *log)
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
    return events_close(&log->events) || log->failed ? -1 : 0;
}

/* The only functions that need a file: their caller checks log->f. */
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
    log->ranks = ckpt_ranks(c);
    json_put_int(f, "ranks", log->ranks);
    json_put_string(f, "place", ckpt_rank_location(c, ckpt_rank(c)));
    json_put_int(f, "micro_batch", info.micro_batch);
    json_put_int(f, "steps", t->steps);
    json_put_int(f, "warmup", t->warmup);
    json_put_string(f, "schedule", t->schedule);
    json_put_int(f, "vram", library->vram);
    json_put_string(f, "device", library->device);
    json_put_int(f, "seed", library->seed);
    json_put_float(f, "clip_norm", t->clip_norm, ", ");
    json_put_float(f, "ema_decay", t->ema_decay, ", ");
    json_put_float(f, "lr", t->lr, "}}\n");
    flush(log);
}

/* ---- lines ----------------------------------------------------------------------------------- */

void log_line_begin(struct run_log *log, const char *key, int64_t step)
{
    log->step = step;
    if (!log->f)
        return;
    fputc('{', log->f);
    json_put_int(log->f, key, step);
}

void log_text(struct run_log *log, const char *key, const char *text)
{
    if (log->f)
        json_put_string(log->f, key, text);
}

void log_int(struct run_log *log, const char *key, int64_t value)
{
    if (log->f)
        json_put_int(log->f, key, value);
    events_number(&log->events, key, (double)value);
}

void log_float(struct run_log *log, const char *key, double value)
{
    if (log->f)
        json_put_float(log->f, key, value, ", ");
    events_number(&log->events, key, value);
}

/* Seconds since 1970, as TensorBoard wants them; durations are measured by other clocks. */
static double wall_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void log_line_end(struct run_log *log)
{
    double now = wall_time();

    if (log->f)
        fprintf(log->f, "\"time\": %.3f}\n", now);
    flush(log);
    events_write(&log->events, log->step, now);
}

/* Only an event: the line of the step is written, and it has no room for a picture. */
void log_picture(struct run_log *log, const char *name, const char *path)
{
    events_picture(&log->events, name, path);
    events_write(&log->events, log->step, wall_time());
}

void log_step_begin(struct run_log *log, int64_t step, double loss,
                    const struct ckpt_program_info *info)
{
    log_line_begin(log, "step", step);
    log_float(log, "loss", loss);
    log_float(log, "grad_norm", info->grad_norm);
}

/* Of several ranks, each time all have told theirs. */
static void put_ranks(const struct run_log *log)
{
    fputs("\"rank_ms\": [", log->f);
    for (int r = 0; r < log->ranks; r++)
        fprintf(log->f, "%s%.3f", r ? ", " : "", log->rank_seconds[r] * 1e3);
    fputs("], ", log->f);
}

void log_step_end(struct run_log *log, const struct ckpt_program_info *info)
{
    log_int(log, "planned_peak", info->planned_peak);
    log_int(log, "arena_bytes", info->arena_bytes);
    log_int(log, "process_bytes", info->process_bytes);
    log_float(log, "predicted_ms", info->step_seconds * 1e3);
    if (log->f && log->rank_seconds)
        put_ranks(log);
    log_int(log, "rss", say_rss());
    log_line_end(log);
}
