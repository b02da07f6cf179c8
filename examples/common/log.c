/* The log of a run for other programs: see log.h. */
#include <errno.h>
#include <string.h>
#include "log.h"
#include "say.h"

int log_open(FILE **log, const char *path, int rank)
{
    char own[4096];

    *log = NULL;
    if (!path)
        return 0;
    snprintf(own, sizeof own, rank ? "%s.%d" : "%s", path, rank);
    *log = fopen(own, "a");
    return *log ? 0 : say_fail("--log %s: %s", own, strerror(errno));
}

void log_close(FILE **log, const char *path)
{
    if (*log && fclose(*log))
        say_fail("--log %s: %s", path, strerror(errno));
    *log = NULL;
}

void log_step_begin(FILE *log, int64_t step, double loss, const struct ckpt_program_info *info)
{
    fputc('{', log);
    json_int(log, "step", step);
    json_float(log, "loss", loss, ", ");
    json_float(log, "grad_norm", info->grad_norm, ", ");
}

void log_step_end(FILE *log, const struct ckpt_program_info *info)
{
    json_int(log, "planned_peak", info->planned_peak);
    json_int(log, "arena_bytes", info->arena_bytes);
    json_int(log, "process_bytes", info->process_bytes);
    json_float(log, "predicted_ms", info->step_seconds * 1e3, ", ");
    fprintf(log, "\"rss\": %lld}\n", (long long)say_rss());
    fflush(log);
}
