/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a run: which are loaded, trained, adapted, stored in codes, and saved. */
#include <stdlib.h>
#include <string.h>
#include "../common/names.h"
#include "../common/patterns.h"
#include "../common/trainer.h"
#include "ckpt_optim.h"
#include "run.h"

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

/* ---- adapters and codes ---------------------------------------------------------------------- */

/* Files of adapters have the names that PEFT gives them in the model that was exported. */
static const struct adapter_names names = {.prefix = "base_model.model.", .archive = true};

static int add_adapters(struct pt2_run *r)
{
    const struct adapter_run run = {.context = r->context,
                                    .options = &r->options.adapters,
                                    .names = &names,
                                    .model = r->options.model};

    return adapters_add(&run);
}

/* The weights below come from the archive, or from --load where that has them. */
static int leave_base(const struct pt2_run *r)
{
    const struct adapter_run run = {.context = r->context};
    const char *load = r->options.train.load;
    char model[4200];

    snprintf(model, sizeof model, "--model %s%s", r->options.model, load ? " --load" : "");
    return adapters_leave_base(&run, model, load);
}

static int quantize(struct pt2_run *r)
{
    const struct pt2_options *o = &r->options;
    char pattern[PATTERN_NAME];
    int n = 0;

    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        const struct ckpt_param_info p = param_info_at(r->context, i);
        if (p.trainable || p.desc.ndim != 2 || p.numel < 4096 || p.numel % 64 ||
            !ends_in(p.name, "weight"))
            continue;
        if (ckpt_quantize_frozen(r->context, param_pattern(p.name, pattern), o->adapters.frozen) <
            0)
            return say_fail("--frozen %s: %s", o->adapters.frozen, ckpt_error(r->context));
        n++;
    }
    return n ? 0
             : say_fail("--frozen %s: no large matrix is untrained: train adapters with "
                        "--lora-rank, or export the model with requires_grad_(False) on those",
                        o->adapters.frozen);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* What a file of weights lacks, and has beside. */
struct unmatched {
    struct names adapters, others, unexpected;
};

static void report(void *user, const char *what, const char *name)
{
    struct unmatched *u = user;

    names_add(*what != 'm'                 ? &u->unexpected
              : ckpt_lora_only(NULL, name) ? &u->adapters
                                           : &u->others,
              name);
}

/* torch.compile has its own name in front of those of a model. */
static bool alias(void *user, const char *name, int i, char *to, size_t size)
{
    (void)user;
    return !i && snprintf(to, size, "_orig_mod.%s", name) < (int)size;
}

/* With adapters a file has them, or the weights below, or both. */
static int check_loaded(const struct pt2_run *r, const struct unmatched *u)
{
    const struct training_options *t = &r->options.train;
    const bool whole = !u->others.n || (r->options.adapters.rank && !u->adapters.n);

    names_report(&u->unexpected, t->load, "not in the model");
    if (names_refuse_layers(&u->unexpected, t->load))
        return -1;
    if (whole || (t->partial && !ckpt_import_missing(r->model)))
        return 0;
    names_report(&u->others, t->load, "missing");
    return say_fail("%s: has not all parameters of %s%s", t->load, r->options.model,
                    ckpt_import_missing(r->model) ? ", which was exported without values"
                                                  : "; accept that with --partial");
}

static int load(struct pt2_run *r)
{
    const struct training_options *t = &r->options.train;
    struct unmatched u = {.adapters = {.n = 0}};

    if (r->options.library.plan_only)
        return 0;
    if (!t->load && ckpt_import_missing(r->model) && !t->state.from)
        return say_fail("%s: was exported without values: give the weights with --load FILE",
                        r->options.model);
    if (!t->load)
        return 0;
    if (ckpt_load_params_aliased(r->context, t->load, alias, report, &u, NULL))
        return say_fail("%s", ckpt_error(r->context));
    return check_loaded(r, &u);
}

static int check_trained(const struct pt2_run *r)
{
    const struct pt2_options *o = &r->options;
    bool has_bf16 = false;

    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        const struct ckpt_param_info p = param_info_at(r->context, i);
        has_bf16 = has_bf16 || (p.trainable && p.desc.dtype == CKPT_BF16);
    }
    if (!r->trainable)
        return say_fail("%s: no parameter is trained: export it without requires_grad_(False), or "
                        "train adapters with --lora-rank",
                        o->model);
    return has_bf16 || strcmp(o->train.grad_dtype, "bf16")
               ? 0
               : say_fail("--grad-dtype bf16 would change nothing: no trained weight of %s is "
                          "bf16; leave it out",
                          o->model);
}

int pt2_make_model(void *run)
{
    struct pt2_run *r = run;
    const struct pt2_options *o = &r->options;

    if (o->adapters.rank && leave_base(r))
        return -1;
    if (ckpt_import_open(r->context, o->model, &r->model))
        return say_fail("%s", ckpt_error(r->context));
    if (signature_apply(&r->signature, r->context, r->model))
        return -1;
    for (int i = 0; i < ckpt_param_count(r->context); i++)
        r->parameters += param_info_at(r->context, i).numel;
    if (o->adapters.rank && add_adapters(r))
        return -1;
    /* Before the load, so that the host holds frozen weights only in codes. */
    if (strcmp(o->adapters.frozen, "model") && quantize(r))
        return -1;
    r->trainable = trainer_count(r->context);
    return check_trained(r) ? -1 : load(r);
}

/* ---- the end --------------------------------------------------------------------------------- */

int pt2_save(struct pt2_run *r)
{
    const struct pt2_options *o = &r->options;

    if (adapters_merge(r->context, &o->adapters, NULL, NULL))
        return -1;
    if (o->save_pt2 && o->adapters.rank && ckpt_lora_merge(r->context))
        return say_fail("%s", ckpt_error(r->context));
    if (o->save_pt2 && ckpt_import_save(r->model, o->save_pt2))
        return say_fail("%s", ckpt_error(r->context));
    if (o->save_pt2)
        say_print("archive: %s\n", o->save_pt2);
    return 0;
}
