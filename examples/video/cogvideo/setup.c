/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a run and its weights. */
#include <string.h>
#include <unistd.h>
#include "../../common/names.h"
#include "../../common/say.h"
#include "../../common/trainer.h"
#include "ckpt_files.h"
#include "run.h"
#include "vae.h"

struct load {
    struct names missing, unexpected;
};

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm' && (cogvae_owns(name) || ckpt_lora_only(NULL, name)))
        return; /* adapters have their own files */
    names_add(*what == 'm' ? &l->missing : &l->unexpected, name);
}

/* Loads weights.  Missing and unexpected tensors are both reported: other trainers may drop a
 * learned position table, which is a buffer, and a model without one cannot use it. */
static int load_weights(struct cogvideo_run *r, const char *path)
{
    struct load l = {{{{0}}, 0}, {{{0}}, 0}};
    int rc = ckpt_load_params(r->context, path, report, &l, NULL);

    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    if (l.unexpected.n)
        return say_fail("%s: these are not the weights of %s", path,
                        cogvideo_config_name(&r->model.config));
    if (l.missing.n && !r->options.train.partial)
        return say_fail("%s: %lld parameter%s missing; --partial initializes them", path,
                        (long long)l.missing.n, l.missing.n > 1 ? "s are" : " is");
    return 0;
}

/* --load names adapters, or the weights of a whole transformer. */
const char *cogvideo_weights(const struct cogvideo_options *o, char path[COGVIDEO_PATH])
{
    if (o->train.load && !o->lora.n)
        return o->train.load;
    if (o->random)
        return NULL;
    if (snprintf(path, COGVIDEO_PATH, "%s/transformer", o->model) >= COGVIDEO_PATH ||
        access(path, F_OK))
        snprintf(path, COGVIDEO_PATH, "%s", o->model);
    return path;
}

static int load_model(struct cogvideo_run *r)
{
    char text[COGVIDEO_PATH];
    const char *path = cogvideo_weights(&r->options, text);

    return path ? load_weights(r, path) : 0;
}

int cogvideo_take_size(struct cogvideo_options *o)
{
    int64_t *side[] = {&o->width, &o->height};

    return o->size ? option_sizes("size", o->size, "720x480", 2, side) : 0;
}

static int set_schedule(struct cogvideo_run *r)
{
    double shift = r->options.snr_shift;
    int rc = cogvideo_schedule_read(&r->schedule, r->options.model, shift);

    if (rc > 0 && (shift > 0 || r->options.random)) {
        cogvideo_schedule(&r->schedule, shift > 0 ? shift : 1); /* noise: any shift will do */
        rc = 0;
    }
    if (rc > 0)
        return say_fail("%s: there is no scheduler_config.json with the shift of the noise levels; "
                        "give --snr-shift 3 for CogVideoX-2B, 1 for the others",
                        r->options.model);
    return rc;
}

int cogvideo_make_model(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    enum ckpt_dtype dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;

    if (set_schedule(r))
        return -1;
    if (cogvideo_create(&r->model, r->context, &o->config, dtype))
        return say_fail("no memory for %lld layers", (long long)o->config.layers);
    /* Before the load, so that the host holds frozen weights only in their quantized form. */
    if (o->rank && cogvideo_add_adapters(r))
        return -1;
    if (!o->library.plan_only && load_model(r))
        return -1;
    if (o->lora.n && !o->lora.is_state && !o->library.plan_only && cogvideo_load_adapters(r))
        return -1;
    r->trainable = trainer_count(r->context);
    return 0;
}
