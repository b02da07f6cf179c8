/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheduler_config.json: see schedule.h.  Two classes of diffusers are known, which differ in their
 * solver alone.  Their keys about clipping have no effect in diffusers either: step() of both
 * classes does not read them.
 */
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "../../common/settings.h"
#include "schedule.h"

static const struct json_keys known[] = {
    JSON_READ("trained_betas beta_start beta_end beta_schedule snr_shift_scale "
              "rescale_betas_zero_snr set_alpha_to_one steps_offset timestep_spacing "
              "prediction_type"),
    JSON_UNUSED("clip_sample clip_sample_range sample_max_value"),
    JSON_ONLY("num_train_timesteps", "1000"), JSON_END};

static double number(struct settings *f, const char *key, double fallback, double least,
                     double most)
{
    const json_t *v = settings_find(f, key);

    if (!v)
        return fallback;
    double x = json_is_number(v) ? json_number_value(v) : -1;
    if (!(x >= least && x <= most))
        settings_refuse(f, key, "is not a number that a schedule can have");
    return x;
}

/* The index of a word among `words`, up to NULL; the first is the default of the class. */
static int word(struct settings *f, const char *key, const char *const *words, const char *why)
{
    const json_t *v = settings_find(f, key);
    int i = 0;

    while (v && words[i] && (!json_is_string(v) || strcmp(json_string_value(v), words[i])))
        i++;
    if (!words[i])
        settings_refuse(f, key, "%s", why);
    return words[i] ? i : 0;
}

/* A missing prediction_type means epsilon, which no CogVideoX predicts. */
static void check_prediction(struct settings *f)
{
    const json_t *v = settings_find(f, "prediction_type");

    if (!v)
        settings_refuse(
            f, "prediction_type",
            "is missing, which means epsilon to this class; only v_prediction is supported: "
            "write it into the file");
    else if (!json_is_string(v) || strcmp(json_string_value(v), "v_prediction"))
        settings_refuse(f, "prediction_type", "is not v_prediction, the only supported prediction");
}

/* Returns betas of malloc, or NULL: none in the file, or an error. */
static double *read_betas(struct settings *f)
{
    const json_t *list = settings_find(f, "trained_betas");
    double *betas = list ? malloc(COGVIDEO_TIMES * sizeof *betas) : NULL;

    if (list && !betas)
        settings_refuse(f, "trained_betas", "has no memory");
    if (list && json_array_size(list) != COGVIDEO_TIMES)
        settings_refuse(f, "trained_betas", "is not a list of 1000 numbers");
    for (int t = 0; t < COGVIDEO_TIMES && betas && !f->failed; t++) {
        const json_t *v = json_array_get(list, (size_t)t);
        betas[t] = json_is_number(v) ? json_number_value(v) : -1;
        if (!(betas[t] >= 0 && betas[t] < 1))
            settings_refuse(f, "trained_betas",
                            "has an element that is not a number from 0 to below 1");
    }
    return betas;
}

static void read_noise(struct settings *f, struct cogvideo_schedule *s, double shift)
{
    static const char *const kinds[] = {"scaled_linear", "linear", "squaredcos_cap_v2", NULL};
    struct cogvideo_noise n = {
        .kind = kinds[word(f, "beta_schedule", kinds,
                           "is not scaled_linear, linear or squaredcos_cap_v2")],
        .first = number(f, "beta_start", 0.00085, 0, 0.9999),
        .last = number(f, "beta_end", 0.012, 0, 0.9999),
        .shift = number(f, "snr_shift_scale", 3, 1e-6, 1e6),
        .rescaled = settings_flag(f, "rescale_betas_zero_snr", false),
    };
    double *betas = read_betas(f);

    n.betas = betas;
    n.shift = shift > 0 ? shift : n.shift;
    if (!f->failed)
        cogvideo_levels(s, &n);
    free(betas);
}

static void read_steps(struct settings *f, struct cogvideo_schedule *s)
{
    static const char *const spacings[] = {"leading", "linspace", "trailing", NULL};
    double offset = number(f, "steps_offset", 0, 0, COGVIDEO_TIMES - 1);

    if (offset != (double)(int64_t)offset)
        settings_refuse(f, "steps_offset", "is not a whole number");
    s->spacing = (enum cogvideo_spacing)word(f, "timestep_spacing", spacings,
                                             "is not leading, linspace or trailing");
    s->offset = (int64_t)offset;
    s->end = settings_flag(f, "set_alpha_to_one", true) || f->failed ? 1 : s->signal[0];
}

static int read_root(struct settings *f, struct cogvideo_schedule *s, double shift)
{
    const char *name = json_string_value(json_object_get(f->root, "_class_name"));

    if (!name || (strcmp(name, "CogVideoXDDIMScheduler") && strcmp(name, "CogVideoXDPMScheduler")))
        return say_fail("%s: \"_class_name\" is %.80s; this program has the solvers of "
                        "CogVideoXDDIMScheduler and CogVideoXDPMScheduler",
                        f->path, name ? name : "missing");
    settings_allow(f, known);
    s->solver = strcmp(name, "CogVideoXDPMScheduler") ? COGVIDEO_DDIM : COGVIDEO_DPM;
    check_prediction(f);
    read_noise(f, s, shift);
    read_steps(f, s);
    return f->failed;
}

int cogvideo_schedule_read(struct cogvideo_schedule *s, const char *model, double shift)
{
    struct settings f;
    int rc = settings_open_scheduler(&f, model);

    if (!rc)
        rc = read_root(&f, s, shift);
    settings_close(&f);
    return rc;
}
