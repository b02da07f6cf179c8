/* SPDX-License-Identifier: Apache-2.0 */
/* Options of adapters, and what a file of adapters says in their place. */
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "adapters.h"
#include "resume.h"
#include "say.h"

static const char *const formats[] = {"diffusers", "peft", "original", "kohya"};

enum adapter_format adapter_format(const struct adapter_options *o)
{
    int i = 0;

    while (i < LORA_FORMATS && strcmp(o->format, formats[i]))
        i++;
    return (enum adapter_format)i;
}

/* The adapter_config.json beside a file, or NULL if --lora-format writes none. */
static const char *adapter_config(const struct adapter_options *o, const char *save,
                                  char path[4096])
{
    const char *slash = save ? strrchr(save, '/') : NULL;
    int stem = slash ? (int)(slash + 1 - save) : 0;

    return save && adapter_format(o) == LORA_PEFT &&
                   snprintf(path, 4096, "%.*s" LORA_PEFT_CONFIG, stem, save) < 4096
               ? path
               : NULL;
}

/* Both files may have one directory. */
struct ckpt_path adapter_beside(const struct adapter_options *o, const struct training_options *t,
                                bool average, char path[4096])
{
    struct ckpt_path row = {average ? "--save-ema" : "--save", NULL, CKPT_PATH_FILE, 0};
    char other[4096];

    if (o->rank)
        row.path = adapter_config(o, average ? t->save_ema : t->save, path);
    if (row.path && average && adapter_config(o, t->save, other) && !strcmp(other, path))
        row.path = NULL;
    return row;
}

/* ---- those of a file ------------------------------------------------------------------------- */

/* PEFT reads one adapter in a directory: its settings must not become those of another file. */
static int check_directory(const struct adapter_options *o, const char *option, const char *file,
                           const char *save)
{
    char path[4096 + 32];

    if (!adapter_config(o, file, path))
        return 0;
    strcpy(path + strlen(path) - strlen(LORA_PEFT_CONFIG), LORA_PEFT_FILE);
    return strcmp(path, file) && (!save || strcmp(path, save)) && !access(path, F_OK)
               ? say_fail("%s is another adapter, and adapter_config.json beside it would become "
                          "that of %s %s: save to another directory",
                          path, option, file)
               : 0;
}

/* The moving average of adapters is an adapter, too. */
int adapter_options_directories(const struct adapter_options *o, const struct training_options *t)
{
    return o->rank && (check_directory(o, "--save", t->save, NULL) ||
                       check_directory(o, "--save-ema", t->save_ema, t->save))
               ? -1
               : 0;
}

const char *adapter_input(const struct adapter_options *o)
{
    return o->file.n && !o->file.is_state ? o->file.path : NULL;
}

/* The file that the adapters of this run come from, or NULL.  --resume auto takes the newest intact
 * save, which is the file of --save-state unless it was damaged, and `given` before there is one.
 */
static const char *find_source(const struct resume_options *s, const char *given)
{
    if (!s->from)
        return given;
    if (strcmp(s->from, RESUME_AUTO))
        return s->from;
    return s->save && !access(s->save, F_OK) ? s->save : given;
}

/* A state has the option that its run had; it is compared behind the model (adapters.c). */
static int check_rank(const struct adapter_options *o)
{
    const struct adapter_file *l = &o->file;

    for (int i = 0; i < l->n && o->rank && !l->is_state; i++)
        if (l->layer[i].rank != o->rank)
            return say_fail("%s: its adapters have rank %lld (%s), and --lora-rank is %lld: leave "
                            "--lora-rank out",
                            l->path, (long long)l->layer[i].rank, l->layer[i].name,
                            (long long)o->rank);
    return 0;
}

/* --lora-alpha says what the file leaves open, or changes the options of a resumed run. */
static int set_alpha(const struct adapter_options *o, struct adapter_layer *x)
{
    const struct adapter_file *l = &o->file;
    const bool open = isnan(x->given) || (l->is_state && o->alpha != l->alpha);

    if (o->alpha < 0 && open && l->original)
        return say_fail("%s: the original code has the alpha of its adapters in the configuration "
                        "of a training, not in the file: give --lora-alpha X, 1 where lora_alpha "
                        "is not set there",
                        l->path);
    if (o->alpha >= 0 && open)
        x->alpha = o->alpha;
    else if (o->alpha >= 0 && !l->is_state && fabs(x->given - o->alpha) > 1e-6 * o->alpha)
        return say_fail("%s: %s has alpha %g, a scale of %g, and --lora-alpha is %g: leave "
                        "--lora-alpha out",
                        l->path, x->name, x->given, x->alpha / (double)x->rank, o->alpha);
    return 0;
}

/* What a file says of the kind of its adapters. */
static int check_kind(const struct adapter_options *o)
{
    const struct adapter_file *l = &o->file;

    if (l->n && o->dora && !l->dora)
        return say_fail("%s: these adapters are not of DoRA: leave --lora-dora out", l->path);
    if (l->n && o->rooted && !l->is_state)
        return say_fail("%s: the file has the scale of its adapters: leave --lora-rs out", l->path);
    return 0;
}

/* Options that the command line leaves open. */
static void take_kind(struct adapter_options *o)
{
    const struct adapter_file *l = &o->file;

    o->dora = o->dora || (l->n && l->dora);
    o->rooted = o->rooted || (l->n && l->rooted && o->alpha < 0);
    if (o->dropout < 0)
        o->dropout = l->n ? l->dropout : 0;
    if (l->n && l->is_state && !o->targets && *l->targets)
        o->targets = l->targets;
    if (l->n && l->is_state && !o->also && *l->also)
        o->also = l->also;
}

static int set_alphas(struct adapter_options *o)
{
    for (int i = 0; i < o->file.n; i++)
        if (set_alpha(o, &o->file.layer[i]))
            return -1;
    return 0;
}

/* The alpha of rsLoRA becomes scale times rank. */
static void root_alpha(struct adapter_options *o)
{
    if (!o->rooted || !o->rank)
        return;
    if (o->alpha < 0 && !o->file.n)
        o->alpha = (double)o->rank;
    if (o->alpha > 0)
        o->alpha *= sqrt((double)o->rank);
}

int adapter_options_read(struct adapter_options *o, const struct adapter_names *names,
                         const struct training_options *t, const char *given)
{
    const char *source = find_source(&t->state, given);
    struct adapter_file *l = &o->file;
    int rc = source ? adapter_file_open(l, names, source) : 1;

    if (rc < 0)
        return -1;
    if (!rc && l->is_state && !t->state.from)
        return say_fail("%s: is a state of training: --resume it, or --load what --save wrote",
                        l->path);
    if (rc > 0)
        l->n = 0;
    if (check_rank(o) || check_kind(o))
        return -1;
    if (l->n && !o->rank)
        o->rank = l->rank;
    root_alpha(o);
    if (set_alphas(o))
        return -1;
    take_kind(o);
    return adapter_options_directories(o, t);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Only weights that are not trained can be stored as int8 or nf4: an update is smaller than a step
 * of these codes. */
int adapter_options_check(const struct adapter_options *o, const char *plain)
{
    const char *given = o->alpha >= 0    ? "alpha"
                        : o->targets     ? "targets"
                        : o->merge       ? "merge"
                        : o->also        ? "also"
                        : o->dropout > 0 ? "dropout"
                        : o->rooted      ? "rs"
                        : o->dora        ? "dora"
                                         : NULL;

    if (!o->rank && given)
        return say_fail("--lora-%s is for --lora-rank N or a file of adapters", given);
    if (o->alpha == 0)
        return say_fail("--lora-alpha 0: such adapters add nothing and learn nothing");
    return strcmp(o->frozen, plain) && strcmp(o->frozen, "int8") && strcmp(o->frozen, "nf4")
               ? say_fail("--frozen %s: give %s, int8 or nf4", o->frozen, plain)
               : 0;
}

int adapter_options_trained(const struct adapter_options *o, const char *plain,
                            const struct training_options *t, bool plan_only)
{
    if (!o->rank && strcmp(o->frozen, plain))
        return say_fail(
            "--frozen %s is for --lora-rank N: without adapters all weights are trained",
            o->frozen);
    if (o->merge && plan_only)
        return say_fail("--lora-merge %s: nothing would be written: --plan-only ends before the "
                        "first step",
                        o->merge);
    return o->merge && !t->steps && !o->file.n && !t->state.from
               ? say_fail("--lora-merge %s: nothing would be written: there are no adapters yet",
                          o->merge)
               : 0;
}
