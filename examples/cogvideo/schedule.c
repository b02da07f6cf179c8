/* SPDX-License-Identifier: Apache-2.0 */
/* Noise levels and sampling steps of CogVideoX: see schedule.h.  All in double. */
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "schedule.h"

#define PI 3.14159265358979323846

enum { STREAM_TIME = 0x43560001, SIZE = 4096 };

/* Betas with evenly spaced square roots, then the shift.  Then the square roots of the signal are
 * shifted and scaled so that the first keeps its value and the last is 0. */
void cogvideo_schedule(struct cogvideo_schedule *s, double shift)
{
    const double first = sqrt(0.00085), last = sqrt(0.012);
    double product = 1, begin, end;

    for (int t = 0; t < COGVIDEO_TIMES; t++) {
        double root = first + (last - first) * t / (COGVIDEO_TIMES - 1);
        product *= 1 - root * root;
        s->signal[t] = sqrt(product / (shift + (1 - shift) * product));
    }
    begin = s->signal[0];
    end = s->signal[COGVIDEO_TIMES - 1];
    for (int t = 0; t < COGVIDEO_TIMES; t++) {
        double root = (s->signal[t] - end) * begin / (begin - end);
        s->signal[t] = root * root;
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

static bool near(const json_t *root, const char *key, double wanted)
{
    const json_t *v = json_object_get(root, key);

    return !v || (json_is_number(v) && fabs(json_number_value(v) - wanted) < 1e-9);
}

static bool says(const json_t *root, const char *key, const char *wanted)
{
    const json_t *v = json_object_get(root, key);

    return !v || (json_is_string(v) && !strcmp(json_string_value(v), wanted));
}

/* The first key with a value that this program does not support, or NULL. */
static const char *find_other(const json_t *root)
{
    if (!near(root, "beta_start", 0.00085))
        return "beta_start";
    if (!near(root, "beta_end", 0.012))
        return "beta_end";
    if (!near(root, "num_train_timesteps", COGVIDEO_TIMES))
        return "num_train_timesteps";
    if (!says(root, "beta_schedule", "scaled_linear"))
        return "beta_schedule";
    if (!says(root, "prediction_type", "v_prediction"))
        return "prediction_type";
    return json_is_false(json_object_get(root, "rescale_betas_zero_snr")) ? "rescale_betas_zero_snr"
                                                                          : NULL;
}

static int read_root(const char *path, const json_t *root, double *shift)
{
    const json_t *value = json_object_get(root, "snr_shift_scale");
    const char *name = json_string_value(json_object_get(root, "_class_name")), *other;

    if (!name || strncmp(name, "CogVideoX", 9))
        return say_fail("%s: \"_class_name\" is %.80s, which is not a scheduler of CogVideoX", path,
                        name ? name : "missing");
    other = find_other(root);
    if (other)
        return say_fail("%s: \"%s\" differs from CogVideoX, and other values are not supported",
                        path, other);
    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return say_fail("%s: \"snr_shift_scale\" is missing, or not a positive number", path);
    *shift = json_number_value(value);
    return 0;
}

int cogvideo_schedule_read(const char *model, double *shift)
{
    static const char *const places[] = {"scheduler", "../scheduler"};
    char path[SIZE];
    json_error_t e;
    FILE *f = NULL;

    for (int i = 0; i < 2 && !f; i++)
        if (snprintf(path, sizeof path, "%s/%s/scheduler_config.json", model, places[i]) >= SIZE ||
            access(path, F_OK))
            continue;
        else if (ckpt_input_open(&f, path))
            return say_fail("%s", ckpt_error(NULL));
    if (!f)
        return 1;
    json_t *root = json_loadf(f, 0, &e);
    fclose(f);
    int rc =
        root ? read_root(path, root, shift) : say_fail("%s: line %d: %s", path, e.line, e.text);
    json_decref(root);
    return rc;
}

/* ---- training ------------------------------------------------------------------------------ */

void cogvideo_draw_times(uint64_t seed, int64_t step, int64_t n, float *t)
{
    ckpt_fill_uniform(seed, (uint64_t)step, STREAM_TIME, t, n);
    for (int64_t i = 0; i < n; i++)
        t[i] = (float)floor((double)t[i] * COGVIDEO_TIMES);
}

/* ---- sampling ------------------------------------------------------------------------------ */

int64_t cogvideo_time(int64_t n, int64_t i)
{
    return (int64_t)nearbyint(COGVIDEO_TIMES - (double)i * COGVIDEO_TIMES / (double)n) - 1;
}

static double log_ratio(double a)
{
    return 0.5 * log(a / (1 - a));
}

static void ddim(struct cogvideo_step *x, double b)
{
    x->keep = sqrt((1 - b) / (1 - x->a));
    x->clean = sqrt(b) - sqrt(x->a) * x->keep;
}

/* Where x has no x0 yet (a = 0) the formulas use their limits. */
static void dpm(struct cogvideo_step *x, double b, const double *back)
{
    double h = log_ratio(b) - log_ratio(x->a), shrink = x->a > 0 ? exp(-2 * h) : 0;
    double ratio = back && *back > 0 ? (log_ratio(x->a) - log_ratio(*back)) / h : INFINITY;
    double extra = back ? 1 / (2 * ratio) : 0, clean = sqrt(b) * (1 - shrink);

    x->keep = x->a > 0 ? sqrt((1 - b) / (1 - x->a)) * exp(-h) : 0;
    x->clean = clean * (1 + extra);
    x->old = -clean * extra;
    x->noise = sqrt(1 - b) * sqrt(1 - shrink);
}

/* The step ends at t - 1000/n rounded down, which may differ from the next timestep. */
struct cogvideo_step cogvideo_step(const struct cogvideo_schedule *s, enum cogvideo_solver solver,
                                   int64_t n, int64_t i)
{
    struct cogvideo_step x = {.t = cogvideo_time(n, i)};
    int64_t to = x.t - COGVIDEO_TIMES / n;
    const double *back = i ? &s->signal[cogvideo_time(n, i - 1)] : NULL;

    x.a = s->signal[x.t];
    if (to < 0)
        x.clean = 1;
    else if (solver == COGVIDEO_DDIM)
        ddim(&x, s->signal[to]);
    else
        dpm(&x, s->signal[to], back);
    return x;
}

double cogvideo_guidance(enum cogvideo_guidance_kind kind, double guidance, int64_t n, int64_t i)
{
    double at = (double)(kind == COGVIDEO_REFERENCE ? cogvideo_time(n, i) : i);

    if (kind == COGVIDEO_CONSTANT)
        return guidance;
    return 1 + guidance * (1 - cos(PI * pow(((double)n - at) / (double)n, 5))) / 2;
}
