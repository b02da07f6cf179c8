/* SPDX-License-Identifier: Apache-2.0 */
/* volume-train: trains a 3-D U-Net to segment volumes inside a memory budget. */
#include <string.h>
#include "../common/compiled.h"
#include "../common/names.h"
#include "../common/signals.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "run.h"

static void report_name(void *user, const char *what, const char *name)
{
    (void)what;
    names_add(user, name);
}

static int load(struct volume_run *r)
{
    const struct training_options *t = &r->options.train;
    struct names unmatched = {0};
    int n = 0;

    if (ckpt_load_params(r->context, t->load, report_name, &unmatched, &n))
        return say_fail("%s", ckpt_error(r->context));
    names_report(&unmatched, t->load, "parameters that only the file or only the model has");
    return n && !t->partial ? say_fail("%s: is not of this model (see --levels, --width, "
                                       "--max-width, --classes, --partial)",
                                       t->load)
                            : 0;
}

static int make_model(struct volume_run *r)
{
    const struct volume_options *o = &r->options;
    struct unet_shape shape = {.levels = o->levels,
                               .width = o->width,
                               .widest = o->widest,
                               .inputs = 1,
                               .classes = r->data.classes,
                               .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16};

    unet_create(&r->model, r->context, &shape);
    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        if (!ckpt_param_info(r->context, ckpt_param_at(r->context, i), &info) && info.trainable)
            r->trainable += info.numel;
    }
    return o->train.load ? load(r) : 0;
}

static void introduce(const struct volume_run *r)
{
    const struct volume_options *o = &r->options;
    const struct volume_intensity *k = &o->scaling;
    char count[32];

    printf("model: 3-D U-Net, %s trainable parameters (%lld levels, width %lld, %lld classes, "
           "%s)\n",
           say_count(count, r->trainable), (long long)o->levels, (long long)o->width,
           (long long)r->data.classes, o->dtype);
    if (!o->data)
        return;
    say_print("data: %s, %lld volumes, patches of %s\n", o->data, (long long)r->data.n, o->patch);
    if (k->window)
        printf("intensity: %g to %g mapped to 0 to 1, clipped\n", k->low, k->high);
    else
        printf("intensity: z-score of the voxels that are not 0\n");
}

static int check_outputs(const struct volume_options *o)
{
    struct training_files files = volume_files(o);
    const struct ckpt_path inputs[] = {{"--data", o->data, CKPT_PATH_INPUT, 0}};

    return outputs_check(&files, inputs, 1);
}

/* All ranks must have the same data: they share the patches of a step. */
static int agree_on_data(const struct volume_run *r)
{
    struct ckpt_fact facts[] = {
        {"number of volumes", &r->data.n, sizeof r->data.n},
        {"number of classes", &r->data.classes, sizeof r->data.classes},
    };

    return ckpt_agree(r->context, facts, 2) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

static int run(struct volume_run *r)
{
    const struct volume_options *o = &r->options;
    struct training_setup setup;

    training_setup_begin(&setup, r->context, r->trainable, o->library.plan_only);
    if (volume_compile(r) || compiled_all(r->context))
        return -1;
    ckpt_plan_print(r->training, stdout);
    training_setup_end(&setup);
    if (!o->library.plan_only && (resume_note_count(r->context, "volumes of the data", r->data.n) ||
                                  volume_options_note(o, r->context) ||
                                  resume_load(&o->train.state, r->context, NULL, &r->first) ||
                                  volume_log_open(r) || volume_train(r)))
        return -1;
    return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

static int go(struct volume_run *r)
{
    struct volume_options *o = &r->options;

    /* With several ranks the first one writes; ranks are known only after the rendezvous. */
    if (!o->library.ranks && check_outputs(o))
        return -1;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    say_as_rank(ckpt_rank(r->context), ckpt_ranks(r->context));
    if (volume_options_agree(o, r->context) || resume_find(&o->train.state, r->context) ||
        (o->library.ranks && !ckpt_rank(r->context) && check_outputs(o)))
        return -1;
    o->train.samples = o->train.batch * ckpt_ranks(r->context);
    if (o->train.dump && ckpt_ranks(r->context) > 1)
        return say_fail("--dump is for one rank alone");
    r->data.classes = !o->data && !o->classes ? 2 : o->classes;
    r->data.intensity = o->scaling;
    if ((o->data && volume_set_open(&r->data, o->data, o->unpack)) || agree_on_data(r) ||
        make_model(r))
        return -1;
    introduce(r);
    return run(r);
}

int main(int argc, char **argv)
{
    static struct volume_run r;

    say_begin();
    signals_open();
    int rc = volume_options_parse(&r.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&r);
    if (log_close(&r.log))
        rc = -1;
    ckpt_close(r.context);
    volume_set_close(&r.data);
    return say_finish(rc ? 1 : 0);
}
