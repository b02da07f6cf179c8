/* The log for other programs: JSON lines, the first with the configuration. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "run.h"

int64_t stdit_rss(void)
{
    long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f)
        return 0;
    if (fscanf(f, "%lld %lld", &pages, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

const char *stdit_bytes(char dst[32], int64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int i = 0;

    for (; value >= 1024 && i < 4; i++)
        value /= 1024;
    snprintf(dst, 32, i ? "%.2f %s" : "%.0f %s", value, unit[i]);
    return dst;
}

static void put_string(FILE *f, const char *key, const char *text)
{
    fprintf(f, "\"%s\": ", key);
    if (!text) {
        fputs("null, ", f);
        return;
    }
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(f, "\\u%04x", *p);
        else
            fputc(*p, f);
    }
    fputs("\", ", f);
}

static void put_int(FILE *f, const char *key, int64_t value)
{
    fprintf(f, "\"%s\": %lld, ", key, (long long)value);
}

/* JSON knows no NaN: such a value becomes null. */
static void put_float(FILE *f, const char *key, double value, const char *after)
{
    if (isfinite(value))
        fprintf(f, "\"%s\": %.9g%s", key, value, after);
    else
        fprintf(f, "\"%s\": null%s", key, after);
}

static void put_model(FILE *f, const struct stdit_run *r)
{
    const struct stdit_config *m = &r->model.config;
    const struct stdit_geometry *g = &r->data.geometry;

    put_int(f, "hidden", m->hidden);
    put_int(f, "heads", m->heads);
    put_int(f, "depth", m->depth);
    put_float(f, "mlp_ratio", m->mlp_ratio, ", ");
    put_int(f, "in_channels", m->in_channels);
    put_int(f, "caption_channels", m->caption_channels);
    put_int(f, "text_tokens", m->text_tokens);
    put_int(f, "frames", g->frames);
    put_int(f, "height", g->height);
    put_int(f, "width", g->width);
    put_int(f, "parameters", r->trainable);
}

static void put_config(FILE *f, const struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;
    struct ckpt_program_info info;

    ckpt_program_info(r->training, &info);
    fputs("{\"config\": {", f);
    put_string(f, "libckpt", ckpt_version());
    put_string(f, "model", o->model);
    put_string(f, "dtype", o->dtype);
    put_string(f, "data", r->data.title);
    put_model(f, r);
    put_int(f, "rows", r->data.rows);
    put_int(f, "batch", o->batch);
    put_int(f, "micro_batch", info.micro_batch);
    put_int(f, "steps", o->steps);
    put_int(f, "warmup", o->warmup);
    put_string(f, "mask_stage", o->mask_stage);
    put_int(f, "vram", o->library.vram);
    put_string(f, "device", o->library.device);
    put_int(f, "seed", o->library.seed);
    put_float(f, "clip_norm", o->clip_norm, ", ");
    put_float(f, "ema_decay", o->ema_decay, ", ");
    put_float(f, "lr", o->lr, "}}\n");
}

int stdit_log_open(struct stdit_run *r)
{
    if (!r->options.log)
        return 0;
    r->log = fopen(r->options.log, "a");
    if (!r->log)
        return stdit_fail("--log %s: %s", r->options.log, strerror(errno));
    put_config(r->log, r);
    fflush(r->log);
    return 0;
}

void stdit_log_step(const struct stdit_run *r, int64_t step, double loss, double lr, double ms)
{
    struct ckpt_program_info info;

    if (!r->log)
        return;
    ckpt_program_info(r->training, &info);
    fprintf(r->log, "{\"step\": %lld, ", (long long)step);
    put_float(r->log, "loss", loss, ", ");
    put_float(r->log, "grad_norm", info.grad_norm, ", ");
    put_float(r->log, "lr", lr, ", ");
    put_float(r->log, "ms", ms, ", ");
    put_int(r->log, "planned_peak", info.planned_peak);
    put_int(r->log, "arena_bytes", info.arena_bytes);
    put_int(r->log, "process_bytes", info.process_bytes);
    put_float(r->log, "predicted_ms", info.step_seconds * 1e3, ", ");
    fprintf(r->log, "\"rss\": %lld}\n", (long long)stdit_rss());
    fflush(r->log);
}

void stdit_log_close(struct stdit_run *r)
{
    if (r->log && fclose(r->log))
        stdit_fail("--log %s: %s", r->options.log, strerror(errno));
    r->log = NULL;
}
