/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the model of a run, loads its weights and frees it. */
#include <stdlib.h>
#include <string.h>
#include "../../common/compiled.h"
#include "../../common/names.h"
#include "../../common/trainer.h"
#include "ckpt_files.h"
#include "run.h"

/* ---- weights ------------------------------------------------------------------------------- */

#define NULL_CAPTION "y_embedder.y_embedding"

struct load {
    struct names missing, unexpected, foreign;
    int64_t needed;    /* number of missing parameters that are needed */
    bool older;        /* keys of STDiT 1 or 2 were seen */
    bool null_caption; /* the null caption is used */
};

/* Guidance, videos without text and randomly dropped captions use the null caption. */
static bool sees_null_caption(const struct video_run *r)
{
    const struct video_options *o = &r->options;

    return r->data.null_caption || r->drops || (o->sample_steps > 0 && o->guidance != 1);
}

/* The rotary frequencies are always computed.  The null caption may be missing if it is not used;
 * it then keeps its random initial values. */
static bool may_be_missing(const struct load *l, const char *name)
{
    return !strcmp(name, "rope.freqs") || (!l->null_caption && !strcmp(name, NULL_CAPTION));
}

static void report_name(void *user, const char *what, const char *name)
{
    struct load *l = user;
    bool missing = *what == 'm';

    if (missing && stdit_vae_owns(name))
        return;
    names_add(missing ? &l->missing : names_is_of_layer(name) ? &l->foreign : &l->unexpected, name);
    l->needed += missing && !may_be_missing(l, name);
    l->older |= strstr(name, "attn_temp") != NULL;
}

/* The parameters without those of the autoencoder. */
static int64_t count_params(const ckpt *c)
{
    int64_t n = 0;

    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        n += !stdit_vae_owns(info.name);
    }
    return n;
}

int stdit_load(struct video_run *r)
{
    const char *path = r->options.train.load;
    struct load l = {.null_caption = sees_null_caption(r)};
    char count[32];

    if (!path)
        return 0;
    int rc = ckpt_load_params(r->context, path, report_name, &l, NULL);
    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    if (l.missing.n == count_params(r->context))
        return say_fail("%s: it has weights of the autoencoder only: give it to --vae", path);
    if (l.needed && !r->options.train.partial)
        return say_fail("%s: %s parameter%s missing%s; --partial initializes them", path,
                        say_count(count, l.needed), l.needed > 1 ? "s are" : " is",
                        l.older ? " (the file looks like one of Open-Sora 1.0 or 1.1)" : "");
    if (!r->options.train.partial && names_refuse_layers(&l.foreign, path))
        return -1;
    if (stdit_set_rope(r->stdit, r->context))
        return say_fail("%s", ckpt_error(r->context));
    return 0;
}

/* The number of rows of the null caption in a file under this name, or 0. */
static int64_t rows_in_file(const char *path, const char *name)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    ckpt_file *f;

    if (!path || ckpt_file_open(&f, path))
        return 0; /* loading it reports the error */
    int i = ckpt_file_find(f, name);
    bool found = i >= 0 && !ckpt_file_entry(f, i, &e) && e.ndim == 2;
    ckpt_file_close(f);
    return found ? e.shape[0] : 0;
}

/* The null caption keeps its length in the file: a shorter text uses its first rows, for a longer
 * one its last row is repeated, as in Open-Sora (embed.c). */
static int64_t caption_rows(const struct video_options *o)
{
    int64_t rows = rows_in_file(o->train.load, NULL_CAPTION);

    if (!rows)
        rows = rows_in_file(o->train.state.from, "value/" NULL_CAPTION);
    return rows ? rows : o->text_tokens;
}

/* ---- programs ------------------------------------------------------------------------------ */

/* Registers the clips that the autoencoder encodes and decodes. */
static int add_clips(struct video_run *r, bool trains)
{
    struct video_data *d = &r->data;
    bool encodes = r->options.video_dir && trains, decodes = r->options.sample_steps > 0;
    int rc = 0;

    for (int i = 0; i < d->shapes.n && d->vae.channels && !rc; i++) {
        struct video_clips *c = &d->shapes.shape[i].clips;
        rc = encodes ? stdit_vae_add(&d->vae, c, STDIT_ENCODE) : 0;
        if (!rc && decodes)
            rc = stdit_vae_add(&d->vae, c, STDIT_DECODE);
    }
    return rc;
}

/* The autoencoder shares the budget; see autoencoder.h for the order. */
int stdit_compile(struct video_run *r, int (*training)(struct video_run *r))
{
    if (add_clips(r, training != NULL) || stdit_vae_compile(&r->data.vae, true))
        return -1;
    if (training && training(r))
        return -1;
    if (r->options.sample_steps > 0 && stdit_compile_sampling(r))
        return -1;
    return stdit_vae_compile(&r->data.vae, false);
}

/* Frees the context with its programs and model. */
static int forget(struct video_run *r)
{
    ckpt_close(r->context);
    stdit_free(r->stdit);
    r->context = NULL;
    r->sampling = NULL;
    r->trainable = 0;
    for (int i = 0; i < r->data.shapes.n; i++)
        r->data.shapes.shape[i].training = NULL;
    if (r->options.validation.file)
        r->validation->run.data.shapes.shape->training = NULL;
    if (!r->data.vae.channels)
        return 0;
    stdit_vae_close(&r->data.vae);
    return stdit_vae_configure(&r->data.vae, &r->options);
}

/* Each of several ranks plans alone, for this number of ranks. */
int stdit_plan_ahead(struct video_run *r, int ranks, int (*compile)(struct video_run *r))
{
    const struct video_options asked = r->options;
    struct ckpt_options *library = &r->options.library;
    ckpt *context = r->context;
    char number[16];

    snprintf(number, sizeof number, "%d", ranks);
    library->plan_only = true;
    library->plan_out = library->graph_out = library->machine_out = library->trace_out = NULL;
    library->ranks = ranks > 1 ? number : NULL;
    r->options.vae = NULL; /* no weights are loaded */
    r->context = NULL;
    int rc = ckpt_open(&r->context, library)
                 ? say_fail("%s", ckpt_error(NULL))
                 : ckpt_plan_in_full(r->context, false) || ckpt_gather_refusals(r->context, true) ||
                       stdit_make_model(r) || compile(r) || compiled_all(r->context);
    r->options = asked;
    if (forget(r))
        rc = -1;
    r->context = context;
    return rc ? -1 : 0;
}

/* ---- the model ----------------------------------------------------------------------------- */

int stdit_make_model(struct video_run *r)
{
    const struct video_options *o = &r->options;
    struct stdit_config config = {
        .hidden = o->hidden,
        .heads = o->heads,
        .depth = o->depth,
        .in_channels = o->in_channels,
        .caption_channels = o->caption_channels,
        .text_tokens = caption_rows(o),
        .mlp_ratio = o->mlp_ratio,
        .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
        .freeze_caption = o->freeze_caption,
        .exact_timestep = o->exact_timestep,
    };

    if (r->data.vae.channels && stdit_vae_open(&r->data.vae, r->context, o))
        return -1;
    r->options.net.dtype = config.dtype;
    if (stdit_create(r->stdit, r->context, &config))
        return say_fail("%s", ckpt_error(r->context));
    r->trainable = trainer_count(r->context);
    return 0;
}

void stdit_note_caption(const struct video_run *r)
{
    int64_t rows = r->stdit->config.text_tokens;

    if (rows < r->data.tokens)
        printf("the null caption has %lld rows; a text of %lld tokens repeats its last row\n",
               (long long)rows, (long long)r->data.tokens);
}

void stdit_close(struct video_run *r)
{
    loader_hold_close(&r->hold);
    loader_hw_close(&r->options.loader);
    video_order_close(&r->order);
    stdit_free(r->stdit);
    video_data_close(&r->data);
    free(r->bad);
}
