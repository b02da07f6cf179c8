/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a run's outputs: see outputs.h. */
#include <sys/stat.h>
#include "ckpt_tools.h"
#include "outputs.h"
#include "say.h"

enum { MOST = 32 };

struct asked {
    const char *option, *path;
};

/* Fails on the first output that was requested; why ends the message. */
static int refuse_first(const struct asked *a, int n, const char *why)
{
    for (int i = 0; i < n; i++)
        if (a[i].path)
            return say_fail("%s %s: nothing would be written: %s", a[i].option, a[i].path, why);
    return 0;
}

int outputs_asked(const struct training_files *t)
{
    const struct ckpt_options *o = t->library;
    const struct training_options *r = t->train;
    const struct asked all[] = {
        {"--save", r->save},
        {"--save-ema", r->save_ema},
        {"--save-state", r->state.save},
        {"--log", r->log},
        {"--tensorboard", r->tensorboard},
        {"--dump", r->dump},
        {"--machine-out", o->machine_out},
        {"--trace-out", o->trace_out},
        /* these are written with --plan-only, too */
        {"--plan-out", o->plan_out},
        {"--graph-out", o->graph_out},
    };
    const struct asked average[] = {{"--save-ema", r->save_ema}};
    int n = sizeof all / sizeof *all;

    if (o->plan_only)
        return refuse_first(all, n - 2, "--plan-only ends before the first step");
    if (!r->steps && (!r->state.from || r->state.automatic) &&
        refuse_first(all, n, "--steps 0 trains nothing"))
        return -1;
    return r->ema_decay > 0 ? 0
                            : refuse_first(average, 1, "with --ema-decay 0 there is no average");
}

/* NULL for a directory: the next weights may be saved in the directory they were loaded from. */
static const char *file_only(const char *path)
{
    struct stat st;

    return path && !stat(path, &st) && S_ISDIR(st.st_mode) ? NULL : path;
}

int outputs_check(const struct training_files *t, const struct ckpt_path *more, int n)
{
    const struct training_options *r = t->train;
    struct ckpt_path all[MOST] = {
        {"--load", file_only(r->load), CKPT_PATH_INPUT, FAMILY_WEIGHTS},
        {"--save", r->save, CKPT_PATH_FILE, FAMILY_WEIGHTS},
        {"--save-ema", r->save_ema, CKPT_PATH_FILE, FAMILY_WEIGHTS},
        {"--resume", r->state.automatic ? NULL : r->state.from, CKPT_PATH_INPUT, FAMILY_STATE},
        {"--save-state", r->state.save, CKPT_PATH_FILE, FAMILY_STATE},
        {"--log", r->log, CKPT_PATH_LOG, 0},
        {"--tensorboard", r->tensorboard, CKPT_PATH_DIRECTORY, 0},
        {"--dump", r->dump, CKPT_PATH_FILE, 0},
        {t->out_option ? t->out_option : "--out", t->out, CKPT_PATH_DIRECTORY, 0},
    };
    int own = 9;

    if (n > MOST - own)
        return say_fail("more than %d files", MOST);
    for (int i = 0; i < n; i++)
        all[own + i] = more[i];
    return ckpt_paths_check(t->library, all, own + n) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

int outputs_untrained(const struct ckpt_options *o)
{
    const struct ckpt_options usual = CKPT_OPTIONS_INIT;
    const struct {
        const char *option;
        bool given;
    } all[] = {
        {"--plan-in", o->plan_in},
        {"--plan-out", o->plan_out},
        {"--graph-out", o->graph_out},
        {"--machine-out", o->machine_out},
        {"--trace-out", o->trace_out},
        {"--zero", o->zero != usual.zero},
        {"--shard-over", o->shard_over},
        {"--check-ranks", o->check_ranks != usual.check_ranks},
        {"--state", o->state},
        {"--activations", o->activations},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given)
            return say_fail("%s is for programs that train; this one does not: leave it out",
                            all[i].option);
    return 0;
}
