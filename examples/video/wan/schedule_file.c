/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler_config.json of two classes of diffusers: see schedule.h.  A key that a file lacks has
 * the default of its class. */
#include <string.h>
#include "../../common/say.h"
#include "../../common/settings.h"
#include "schedule.h"

#define SIGMAS                                                                                     \
    JSON_ONLY("num_train_timesteps", "1000"),                                                      \
        JSON_ONLY("use_karras_sigmas use_exponential_sigmas use_beta_sigmas "                      \
                  "use_dynamic_shifting",                                                          \
                  "false"),                                                                        \
        JSON_ONLY("shift_terminal sigma_min sigma_max", ""), JSON_UNUSED("time_shift_type")

/* Betas have no effect on the levels of a flow, nor has the spacing. */
static const struct json_keys unipc[] = {
    JSON_READ("flow_shift use_flow_sigmas prediction_type"),
    JSON_ONLY("solver_order", "2"),
    JSON_ONLY("solver_type", "bh2"),
    JSON_ONLY("predict_x0 lower_order_final", "true"),
    JSON_ONLY("thresholding rescale_betas_zero_snr", "false"),
    JSON_ONLY("disable_corrector solver_p", ""),
    JSON_ONLY("final_sigmas_type", "zero"),
    SIGMAS,
    JSON_UNUSED("beta_start beta_end beta_schedule trained_betas timestep_spacing steps_offset "
                "dynamic_thresholding_ratio sample_max_value"),
    JSON_END};

static const struct json_keys euler[] = {
    JSON_READ("shift"), JSON_ONLY("invert_sigmas stochastic_sampling", "false"), SIGMAS,
    JSON_UNUSED("base_shift max_shift base_image_seq_len max_image_seq_len"), JSON_END};

static bool is(const struct settings *s, const char *key, const char *value)
{
    const json_t *v = settings_find(s, key);

    return json_is_string(v) && !strcmp(json_string_value(v), value);
}

static int read_root(struct settings *f, struct wan_schedule *s)
{
    const bool is_unipc = is(f, "_class_name", "UniPCMultistepScheduler");

    if (!is_unipc && !is(f, "_class_name", "FlowMatchEulerDiscreteScheduler"))
        return say_fail("%s: \"_class_name\" is none of UniPCMultistepScheduler and "
                        "FlowMatchEulerDiscreteScheduler, the schedulers of Wan",
                        f->path);
    settings_allow(f, is_unipc ? unipc : euler);
    if (is_unipc && !settings_flag(f, "use_flow_sigmas", false))
        settings_refuse(f, "use_flow_sigmas", "is not true: this is not a scheduler of a flow");
    if (is_unipc && !is(f, "prediction_type", "flow_prediction"))
        settings_refuse(f, "prediction_type", "is not flow_prediction, which Wan predicts");
    s->solver = is_unipc ? WAN_UNIPC : WAN_EULER;
    s->shift = settings_real(f, f->root, is_unipc ? "flow_shift" : "shift", 1);
    return f->failed;
}

int wan_schedule_read(struct wan_schedule *s, const char *model, double shift)
{
    struct settings f;
    int rc = settings_open_scheduler(&f, model);

    *s = (struct wan_schedule){.shift = 1};
    if (!rc)
        rc = read_root(&f, s);
    settings_close(&f);
    if (shift > 0)
        s->shift = shift;
    return rc;
}
