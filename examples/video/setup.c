/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a run and its weights. */
#include <string.h>
#include <unistd.h>
#include "../common/names.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "../common/trainer.h"
#include "ckpt_files.h"
#include "run.h"

bool video_owns(void *run, const char *name)
{
    const struct video_run *r = run;

    return !autoencoder_owns(r->options.net.model->autoencoder, name);
}

bool video_is_pair(const struct video_run *r)
{
    return r->options.low.model != NULL;
}

const struct video_net *video_net_of(const struct video_run *r, bool second)
{
    return second ? &r->options.low : &r->options.net;
}

struct load {
    struct video_run *run;
    const struct video_net *net;
    struct names missing, unexpected;
};

/* Whether a parameter is in the file of this model. */
static bool is_of(const struct load *l, const char *name)
{
    const char *begin = l->net->begin ? l->net->begin : "";

    return video_owns(l->run, name) && !strncmp(name, begin, strlen(begin));
}

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what == 'm' && (!is_of(l, name) || ckpt_lora_only(NULL, name)))
        return; /* adapters have their own files */
    if (*what != 'm' && l->net->model->unread && strstr(name, l->net->model->unread))
        return;
    names_add(*what == 'm' ? &l->missing : &l->unexpected, name);
}

/* Files of a model's own code and of ComfyUI have other names. */
static bool name_in_file(void *user, const char *name, int i, char *alias, size_t size)
{
    const struct load *l = user;

    return is_of(l, name) && adapter_weight_name(l->net->model->adapters, name, i, alias, size);
}

/* Loads weights.  Missing and unexpected tensors are both reported: other trainers may drop a
 * learned position table, which is a buffer, and a model without one cannot use it. */
static int load_weights(struct video_run *r, const struct video_net *net, const char *path)
{
    struct load l = {.run = r, .net = net};
    int rc = ckpt_load_params_aliased(r->context, path, name_in_file, report, &l, NULL);

    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    if (l.unexpected.n)
        return say_fail("%s: these are not the weights of %s", path, r->options.net.sizes.name);
    if (l.missing.n && !r->options.train.partial)
        return say_fail("%s: %lld parameter%s missing; --partial initializes them", path,
                        (long long)l.missing.n, l.missing.n > 1 ? "s are" : " is");
    return 0;
}

/* --load names adapters, or the weights of a whole transformer; beside a state, which has its
 * adapters, either. */
static bool loads_weights(const struct video_options *o)
{
    const struct adapter_file *l = &o->adapters.file;

    return o->train.load &&
           (!l->n || (l->is_state && !adapter_file_is(o->net.model->adapters, o->train.load)));
}

const char *video_weights(const struct video_options *o, char path[VIDEO_PATH])
{
    if (loads_weights(o))
        return o->train.load;
    if (o->random)
        return NULL;
    if (o->net.model->weights)
        return o->net.model->weights(&o->net);
    if (snprintf(path, VIDEO_PATH, "%s/transformer", o->model) >= VIDEO_PATH || access(path, F_OK))
        snprintf(path, VIDEO_PATH, "%s", o->model);
    return path;
}

int video_leave_base(struct video_run *r)
{
    const struct video_options *o = &r->options;
    const struct adapter_run adapters = video_adapters(r);
    char text[VIDEO_PATH];

    if (!o->adapters.rank || !video_weights(o, text))
        return 0;
    return loads_weights(o) ? adapters_leave_base(&adapters, "--load", o->train.load)
                            : adapters_leave_base(&adapters, "--model", o->model);
}

static int load_model(struct video_run *r)
{
    char text[VIDEO_PATH];
    const char *path = video_weights(&r->options, text);

    if (!path || load_weights(r, &r->options.net, path))
        return path ? -1 : 0;
    const struct video_net *low = &r->options.low;
    return video_is_pair(r) ? load_weights(r, low, low->model->weights(low)) : 0;
}

int video_take_size(struct video_options *o)
{
    int64_t *side[] = {&o->width, &o->height};

    return o->size ? option_sizes("size", o->size, "720x480", 2, side) : 0;
}

struct adapter_run video_adapters(struct video_run *r)
{
    struct video_options *o = &r->options;

    return (struct adapter_run){.context = r->context,
                                .options = &o->adapters,
                                .names = o->net.model->adapters,
                                .model = o->net.sizes.name,
                                .trains = o->train.steps > 0};
}

/* Makes the parameters of one model. */
static int make_net(struct video_run *r, struct video_net *net)
{
    const struct video_options *o = &r->options;

    net->dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    return net->model->schedule(net, o->model, o->snr_shift, o->random) ||
                   net->model->create(net, r->context)
               ? -1
               : 0;
}

static int code_weights(const struct adapter_run *adapters, const struct video_net *net)
{
    char blocks[64];

    snprintf(blocks, sizeof blocks, "%s%s*.weight", net->begin ? net->begin : "",
             net->model->adapters->blocks);
    return adapters_code(adapters, "bf16", blocks);
}

/* The frozen weights of a pair are stored below the device where it cannot hold both models; a
 * program copies its own in. */
static int offload_pair(struct video_run *r)
{
    if (!video_is_pair(r) || !r->options.adapters.rank)
        return 0;
    const int n = ckpt_offload_frozen(r->context, "*.blocks.*");
    if (n > 0)
        say_print(
            "%d weights of both experts are stored on the host or in files, and copied to the "
            "device in their steps\n",
            n);
    return n < 0 ? say_fail("%s", ckpt_error(r->context)) : 0;
}

int video_make_model(struct video_run *r)
{
    const struct video_options *o = &r->options;
    const struct adapter_run adapters = video_adapters(r);
    const bool introduced = o->adapters.file.matched; /* of a run with two contexts */

    if (make_net(r, &r->options.net) || (video_is_pair(r) && make_net(r, &r->options.low)))
        return -1;
    /* Before the load, so that the host holds frozen weights only in their quantized form. */
    if (o->adapters.rank && (adapters_add(&adapters) || code_weights(&adapters, &o->net) ||
                             (video_is_pair(r) && code_weights(&adapters, &o->low))))
        return -1;
    if (!introduced)
        adapters_introduce(&o->adapters);
    if (!o->library.plan_only && load_model(r))
        return -1;
    if ((o->adapters.rank && !o->library.plan_only && adapters_begin(&adapters)) || offload_pair(r))
        return -1;
    r->trainable = trainer_count(r->context);
    return 0;
}

/* ---- callbacks ----------------------------------------------------------------------------- */

int video_check_outputs(const void *run)
{
    const struct video_options *o = &((const struct video_run *)run)->options;
    const struct adapter_options *a = &o->adapters;
    struct training_files files = video_training_files(o);
    bool stores_text = o->video_dir && o->text_encoder; /* of the captions of its videos */
    char beside[2][4096];
    const struct ckpt_path more[] = {
        {"--features", o->features, CKPT_PATH_INPUT, 0},
        {"--null-text", o->null_text, CKPT_PATH_INPUT, 0},
        {"--videos", o->videos, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--csv", o->csv, CKPT_PATH_INPUT, 0},
        {"--video", o->video && *o->video ? o->video : NULL, CKPT_PATH_INPUT, 0},
        {"--video-dir", o->video_dir, CKPT_PATH_INPUT, 0},
        {"--cache", o->cache, CKPT_PATH_INPUT, 0},
        {"--buckets", o->buckets, CKPT_PATH_INPUT, 0},
        {"--vae", o->vae, CKPT_PATH_INPUT, 0},
        {"--text", stores_text ? NULL : o->text, CKPT_PATH_INPUT, 0},
        {"--text", stores_text && !o->library.plan_only ? o->text : NULL, CKPT_PATH_DIRECTORY, 0},
        {"--tokenizer", o->tokenizer, CKPT_PATH_INPUT, 0},
        {"--load", adapter_input(a), CKPT_PATH_INPUT, FAMILY_WEIGHTS},
        {"--lora-merge", a->merge, CKPT_PATH_FILE, 0},
        adapter_beside(a, &o->train, false, beside[0]),
        adapter_beside(a, &o->train, true, beside[1]),
        {"--sample-text", o->sample_text, CKPT_PATH_INPUT, 0},
        {"--sample-prompts", o->sample_prompts, CKPT_PATH_INPUT, 0},
        {"--sample-image", o->image, CKPT_PATH_INPUT, 0},
        {"--negative", o->negative, CKPT_PATH_INPUT, 0},
        {"--save-low", o->train.save_low, CKPT_PATH_FILE, FAMILY_WEIGHTS},
        {"--images", o->images, CKPT_PATH_INPUT, 0},
        {"--val", o->validation.file, CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, more, sizeof more / sizeof *more);
}

int video_facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS])
{
    const struct video_data *d = &((const struct video_run *)run)->data;
    const struct video_shapes *s = &d->shapes;
    size_t rows = (size_t)s->rows, texts = d->y ? (size_t)d->text_rows : 0;
    const struct ckpt_fact all[] = {
        {"number of clips", &s->rows, sizeof s->rows},
        {"shape of the latents", &s->shape->geometry, sizeof s->shape->geometry},
        {"data", d->z, d->z ? rows * (size_t)video_data_z(d, s->shape) * sizeof *d->z : 0},
        {"sizes of the clips", s->size, s->size ? rows * sizeof *s->size : 0},
        {"text", d->y, texts * (size_t)video_data_y(d) * sizeof *d->y},
        {"captions", &d->texts.sum, sizeof d->texts.sum},
        {"text mask", d->mask, texts * (size_t)d->tokens * sizeof *d->mask},
        {"frame rate of the data", d->fps, d->fps ? rows * sizeof *d->fps : 0},
    };

    memcpy(fact, all, sizeof all);
    return sizeof all / sizeof *all;
}
