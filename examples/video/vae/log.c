/* SPDX-License-Identifier: Apache-2.0 */
/* The machine-readable log: JSON lines, the first with the configuration. */
#include "run.h"

static void put_widths(FILE *f, const char *key, const struct vae_widths *w)
{
    fprintf(f, "\"%s\": [", key);
    for (int i = 0; i < w->levels; i++)
        fprintf(f, "%s%lld", i ? ", " : "", (long long)w->width[i]);
    fputs("], ", f);
}

static void put_model(FILE *f, const struct vae_run *r)
{
    const struct vae_config *m = &r->model.config;

    json_put_int(f, "latent", m->latent);
    json_put_int(f, "groups", m->groups);
    put_widths(f, "spatial_widths", &m->spatial);
    json_put_int(f, "spatial_layers", m->spatial.layers);
    put_widths(f, "temporal_widths", &m->temporal);
    json_put_int(f, "temporal_layers", m->temporal.layers);
    json_put_int(f, "parameters", r->trainable);
}

static void put_data(FILE *f, const struct vae_run *r)
{
    const struct vae_options *o = &r->options;

    json_put_string(f, "data", r->data.title);
    json_put_int(f, "rows", r->data.rows);
    json_put_int(f, "frames", r->data.frames);
    json_put_int(f, "height", r->data.height);
    json_put_int(f, "width", r->data.width);
    fputs("\"lengths\": [", f);
    for (int i = 0; i < o->n_lengths; i++)
        fprintf(f, "%s%lld", i ? ", " : "", (long long)o->length[i]);
    fputs("], ", f);
    json_put_float(f, "image_share", o->image_share, ", ");
}

void vae_describe(const void *run, FILE *f)
{
    const struct vae_run *r = run;
    const struct vae_options *o = &r->options;

    json_put_string(f, "model", o->model.model);
    json_put_string(f, "dtype", o->model.dtype);
    json_put_int(f, "stage", o->stage);
    put_model(f, r);
    put_data(f, r);
    json_put_int(f, "frames_2d", r->program[o->n_lengths - 1].part);
    json_put_string(f, "quantizer", o->quantizer);
    json_put_string(f, "lpips", o->lpips);
    json_put_float(f, "kl_weight", o->kl_weight, ", ");
}

void vae_log_step(struct vae_run *r, const struct vae_program *p, int64_t step,
                  const struct vae_result *result)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(p->program, &info);
    log_step_begin(&r->log, step, result->loss, &info);
    log_float(&r->log, "l1", result->l1);
    log_float(&r->log, "kl", result->kl);
    log_float(&r->log, "lpips", result->lpips);
    log_float(&r->log, "commitment", result->commitment);
    log_int(&r->log, "codebook_used", result->codes.used);
    log_int(&r->log, "codebook_moved", result->codes.moved);
    log_float(&r->log, "codebook_perplexity", result->codes.perplexity);
    log_float(&r->log, "lr", result->lr);
    log_int(&r->log, "frames", p->frames);
    log_float(&r->log, "ms", result->ms);
    if (r->options.video_dir)
        log_float(&r->log, "data_ms", result->data_ms);
    log_step_end(&r->log, &info);
}
