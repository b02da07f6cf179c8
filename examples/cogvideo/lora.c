/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters under diffusers' names, in files that it and PEFT read. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/names.h"
#include "../common/say.h"
#include "ckpt_files.h"
#include "run.h"
#include "vae.h"

#define PREFIX "transformer."

/* ---- making -------------------------------------------------------------------------------- */

/* The settings of PEFT's LoraConfig, which diffusers reads.  Without them diffusers would use a
 * scale of 1. */
static char *make_note(const struct cogvideo_options *o, json_t *targets)
{
    json_t *all = json_pack("{sI,sf,sO,ss,sf}", PREFIX "r", (json_int_t)o->rank,
                            PREFIX "lora_alpha", o->alpha, PREFIX "target_modules", targets,
                            PREFIX "bias", "none", PREFIX "lora_dropout", 0.);
    char *text = all ? json_dumps(all, JSON_SORT_KEYS | JSON_COMPACT) : NULL;

    json_decref(all);
    return text;
}

static int add_target(struct cogvideo_run *r, const char *name, json_t *targets)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    char pattern[256];

    snprintf(pattern, sizeof pattern, "transformer_blocks.*.%s.weight", name);
    lora.pattern = pattern;
    lora.rank = r->options.rank;
    lora.alpha = (float)r->options.alpha;
    lora.prefix = PREFIX;
    if (ckpt_lora(r->context, &lora) < 0)
        return say_fail("--lora-targets %s: %s", name, ckpt_error(r->context));
    return json_array_append_new(targets, json_string(name)) ? say_fail("no memory for adapters")
                                                             : 0;
}

int cogvideo_add_adapters(struct cogvideo_run *r)
{
    char *list = strdup(r->options.targets), *at = NULL;
    json_t *targets = json_array();
    int rc = list && targets ? 0 : say_fail("no memory for adapters");

    for (char *name = rc ? NULL : strtok_r(list, ",", &at); name && !rc;
         name = strtok_r(NULL, ",", &at))
        rc = add_target(r, name, targets);
    if (!rc && !json_array_size(targets))
        rc = say_fail("--lora-targets: give layers, as to_q,to_k,to_v,to_out.0");
    if (!rc && strcmp(r->options.frozen, "bf16") &&
        ckpt_quantize_frozen(r->context, "transformer_blocks.*.weight", r->options.frozen) < 0)
        rc = say_fail("--frozen %s: %s", r->options.frozen, ckpt_error(r->context));
    if (!rc) {
        r->note = make_note(&r->options, targets);
        rc = r->note ? 0 : say_fail("no memory for adapters");
    }
    json_decref(targets);
    free(list);
    return rc;
}

/* ---- loading ------------------------------------------------------------------------------- */

static double number_under(const json_t *all, const char *name)
{
    const json_t *v = json_object_get(all, name);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Warns when the scale differs from the scale in the file: it is valid, but may be a mistake. */
static void compare_scale(const struct cogvideo_options *o, const char *path)
{
    double own = o->alpha / (double)o->rank, theirs = 1;
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return; /* the load reports the error */
    const char *text = ckpt_file_note(f, COGVIDEO_LORA_NOTE);
    json_t *all = text ? json_loads(text, 0, NULL) : NULL;
    if (all)
        theirs = number_under(all, PREFIX "lora_alpha") / number_under(all, PREFIX "r");
    json_decref(all);
    ckpt_file_close(f);
    if (!(fabs(theirs - own) < 1e-6 * own))
        say_note("%s: %s a scale of %g, and this run has --lora-alpha / --lora-rank = %g", path,
                 text ? "its adapters have" : "it has no alpha, which means", theirs, own);
}

struct load {
    struct names missing, unexpected;
};

static void report(void *user, const char *what, const char *name)
{
    struct load *l = user;

    if (*what != 'm')
        names_add(&l->unexpected, name);
    else if (ckpt_lora_only(NULL, name))
        names_add(&l->missing, name);
}

int cogvideo_load_adapters(struct cogvideo_run *r, const char *path)
{
    struct load l = {{{{0}}, 0}, {{{0}}, 0}};
    int rc = ckpt_load_params(r->context, path, report, &l, NULL);

    names_report(&l.missing, path, "missing");
    names_report(&l.unexpected, path, "unexpected");
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    if (l.unexpected.n)
        return say_fail(
            "%s: these adapters do not match this run: other --lora-targets, or another model",
            path);
    if (l.missing.n && !r->options.train.partial)
        return say_fail("%s: %lld adapter%s missing; --partial initializes them", path,
                        (long long)l.missing.n, l.missing.n > 1 ? "s are" : " is");
    compare_scale(&r->options, path);
    return 0;
}

/* ---- merging ------------------------------------------------------------------------------- */

static bool is_weight(void *user, const char *name)
{
    (void)user;
    return !cogvae_owns(name);
}

int cogvideo_merge_adapters(struct cogvideo_run *r, const char *path)
{
    if (ckpt_save_params_merged(r->context, path, is_weight, NULL))
        return say_fail("%s", ckpt_error(r->context));
    say_print("weights with adapters: %s\n", path);
    return 0;
}
