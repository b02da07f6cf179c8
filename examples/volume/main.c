/* SPDX-License-Identifier: Apache-2.0 */
/* volume-train: trains a 3-D U-Net to segment volumes inside a memory budget. */
#include <string.h>
#include "../common/compiled.h"
#include "../common/names.h"
#include "../common/trainer.h"
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

static int make_model(void *run)
{
    struct volume_run *r = run;
    const struct volume_options *o = &r->options;
    struct unet_shape shape = {.levels = o->levels,
                               .width = o->width,
                               .widest = o->widest,
                               .inputs = 1,
                               .classes = r->data.classes,
                               .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16};

    unet_create(&r->model, r->context, &shape);
    r->trainable = trainer_count(r->context);
    return o->train.load ? load(r) : 0;
}

static void introduce(const void *run)
{
    const struct volume_run *r = run;
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

/* ---- what trainer_main calls ----------------------------------------------------------------- */

static int check_outputs(const void *run)
{
    const struct volume_options *o = &((const struct volume_run *)run)->options;
    struct training_files files = volume_files(o);
    const struct ckpt_path inputs[] = {{"--data", o->data, CKPT_PATH_INPUT, 0}};

    return outputs_check(&files, inputs, 1);
}

static int open_data(void *run)
{
    struct volume_run *r = run;
    const struct volume_options *o = &r->options;

    r->data.classes = !o->data && !o->classes ? 2 : o->classes;
    r->data.intensity = o->scaling;
    return o->data ? volume_set_open(&r->data, o->data, o->unpack) : 0;
}

static int facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS])
{
    const struct volume_set *d = &((const struct volume_run *)run)->data;

    fact[0] = (struct ckpt_fact){"number of volumes", &d->n, sizeof d->n};
    fact[1] = (struct ckpt_fact){"number of classes", &d->classes, sizeof d->classes};
    return 2;
}

/* A run without steps compiles nothing: no other program exists. */
static int compile(void *run, bool trains)
{
    return trains ? volume_compile(run) : 0;
}

static void close(void *run)
{
    volume_set_close(&((struct volume_run *)run)->data);
}

int main(int argc, char **argv)
{
    static struct volume_run r;
    const struct trainer t = {TRAINER_RUN(r),
                              .reading = volume_options_reading(&r.options),
                              .check = volume_options_check,
                              .outputs = check_outputs,
                              .data = open_data,
                              .facts = facts,
                              .model = make_model,
                              .introduce = introduce,
                              .compile = compile,
                              .program = &r.training,
                              .counted = "volumes of the data",
                              .samples = &r.data.n,
                              .describe = volume_describe,
                              .open_steps = volume_open_steps,
                              .close_steps = volume_close_steps,
                              .close = close};

    return trainer_main(&t, argc, argv);
}
