/*
 * stdit-train: trains STDiT3, the video diffusion transformer of Open-Sora 1.2, inside a memory
 * budget, on a video file or on precomputed features, and samples from what it learned.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "ckpt_ranks.h"
#include "run.h"
#include "schedule.h"

/* ---- weights ------------------------------------------------------------------------------- */

struct names {
    const char *path;
    int missing;
    bool older; /* keys of STDiT 1 or 2 were seen */
};

/* The null caption and the rotary frequencies may be absent; the latter are computed anyway. */
static bool may_be_missing(const char *name)
{
    return !strcmp(name, "y_embedder.y_embedding") || !strcmp(name, "rope.freqs");
}

static void report_name(void *user, const char *what, const char *name)
{
    struct names *n = user;

    fprintf(stderr, "stdit-train: %s: %s: %s\n", n->path, what, name);
    if (!strcmp(what, "missing") && !may_be_missing(name))
        n->missing++;
    n->older |= strstr(name, "attn_temp") != NULL;
}

static int load(struct stdit_run *r)
{
    struct names names = {.path = r->options.load};

    if (!r->options.load)
        return 0;
    if (ckpt_load(r->context, r->options.load, report_name, &names, NULL))
        return say_fail("%s", ckpt_error(r->context));
    if (names.missing && !r->options.partial)
        return say_fail("%s: %d parameters are missing%s; --partial starts them afresh", names.path,
                        names.missing,
                        names.older ? " (the file looks like one of Open-Sora 1.0 or 1.1)" : "");
    if (stdit_set_rope(&r->model, r->context))
        return say_fail("%s", ckpt_error(r->context));
    return 0;
}

/* ---- the model ----------------------------------------------------------------------------- */

static int create_model(struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;
    struct stdit_config config = {
        .hidden = o->hidden,
        .heads = o->heads,
        .depth = o->depth,
        .in_channels = o->in_channels,
        .caption_channels = o->caption_channels,
        .text_tokens = o->text_tokens,
        .mlp_ratio = o->mlp_ratio,
        .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
        .freeze_caption = o->freeze_caption,
        .exact_timestep = o->exact_timestep,
    };

    if (stdit_create(&r->model, r->context, &config))
        return say_fail("%s", ckpt_error(r->context));
    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        struct ckpt_param_info info;
        if (!ckpt_param_info(r->context, ckpt_param_at(r->context, i), &info) && info.trainable)
            r->trainable += info.numel;
    }
    return 0;
}

static void introduce(const struct stdit_run *r)
{
    const struct stdit_config *c = &r->model.config;
    char count[32];

    printf("model: STDiT3 %s, %s trainable parameters (hidden %lld, %lld heads, depth %lld, %s)\n",
           r->options.model, say_count(count, r->trainable), (long long)c->hidden,
           (long long)c->heads, (long long)c->depth, r->options.dtype);
    printf("%s\n", r->data.title);
    if (r->options.demo_budget)
        printf("budget: half of what it would take without one; --vram SIZE sets another\n");
}

/* ---- places to write to -------------------------------------------------------------------- */

static int check_outputs(const struct stdit_options *o)
{
    if (o->library.plan_only)
        return 0;
    if (say_check_writable("save", o->save) || say_check_writable("save-ema", o->save_ema) ||
        say_check_writable("dump", o->dump))
        return -1;
    if (o->sample_steps > 0 && mkdir(o->out, 0777) && errno != EEXIST)
        return say_fail("--out %s: %s", o->out, strerror(errno));
    return 0;
}

/* ---- the run ------------------------------------------------------------------------------- */

static int train(struct stdit_run *r)
{
    if (stdit_compile(r))
        return -1;
    ckpt_plan_print(r->training, stdout);
    fflush(stdout);
    if (r->options.library.plan_only)
        return 0;
    if (stdit_log_open(r))
        return -1;
    int rc = stdit_train(r);
    stdit_log_close(r);
    return rc;
}

static int go(struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;
    const struct stdit_geometry *g = &r->data.geometry;

    if (check_outputs(o) || stdit_data_open(&r->data, &r->options))
        return -1;
    r->shift = stdit_shift(g->pixel_height, g->pixel_width, g->frames);
    r->masked = r->data.x_mask || (strcmp(o->mask_stage, "none") && g->frames > 1);
    r->drops = !r->data.t && !r->data.eps;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    if (ckpt_ranks(r->context) > 1)
        return say_fail("--ranks: this program does not divide its data among ranks yet");
    if (create_model(r) || load(r))
        return -1;
    introduce(r);
    if ((o->steps > 0 || o->library.plan_only) && train(r))
        return -1;
    return o->sample_steps > 0 && !o->library.plan_only ? stdit_sample(r) : 0;
}

int main(int argc, char **argv)
{
    struct stdit_run run = {0};
    int rc = stdit_options_parse(&run.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&run);
    ckpt_close(run.context);
    stdit_free(&run.model);
    stdit_data_close(&run.data);
    return rc ? 1 : 0;
}
