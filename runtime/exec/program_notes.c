/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a state of training records about its programs, beside parameters and counts: other
 * optimizer settings, inputs of another shape or weights of another dtype give other bits.  The
 * learning rate is left out, since it belongs to a step, and so is everything that a plan chose.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/program.h"
#include "core/notes.h"
#include "core/number.h"
#include "optim/optimizer.h"

/* ---- the optimizer ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} settings[] = {
    {"ckpt.beta1", offsetof(struct ckpt_optimizer, rule.update.beta1)},
    {"ckpt.beta2", offsetof(struct ckpt_optimizer, rule.update.beta2)},
    {"ckpt.eps", offsetof(struct ckpt_optimizer, rule.update.eps)},
    {"ckpt.weight-decay", offsetof(struct ckpt_optimizer, rule.update.weight_decay)},
    {"ckpt.clip-norm", offsetof(struct ckpt_optimizer, clip_norm)},
    {"ckpt.ema-decay", offsetof(struct ckpt_optimizer, rule.update.ema_decay)},
};

static float setting_of(const struct ckpt_program *p, size_t i)
{
    return *(const float *)((const char *)p->optimizer + settings[i].offset);
}

/* The value of a setting, once if all programs share it; else of each program, the last compiled
 * one first. */
static void put_setting(FILE *f, const struct programs *ps, size_t i)
{
    const struct ckpt_program *first = NULL;
    bool same = true;

    for (const struct ckpt_program *p = ps->first; p; p = p->next)
        if (p->trains) {
            first = first ? first : p;
            same &= setting_of(p, i) == setting_of(first, i);
        }
    for (const struct ckpt_program *p = first; p; p = same ? NULL : p->next)
        if (p->trains) {
            char text[NUMBER_TEXT];
            number_format_float(text, setting_of(p, i));
            fprintf(f, "%s%s", p == first ? "" : " ", text);
        }
}

/* ---- shapes -------------------------------------------------------------------------------- */

/* The first axis counts the samples of a micro-step, which a plan may choose: it is written "*". */
static void put_inputs(FILE *f, const struct ckpt_program *p)
{
    const ckpt_tape *t = p->tape;
    const char *between = "";

    for (int32_t i = 0; i < t->n_feeds; i++) {
        const struct feed *feed = &t->feeds.data[i];
        const struct ckpt_desc *d = &t->tensors.data[feed->tensor].desc;
        if (feed->constant || program_name_is_own(feed->name))
            continue;
        fprintf(f, "%s%s %s [", between, feed->name, dtype_name(d->dtype));
        for (int k = 0; k < d->ndim; k++)
            fprintf(f, k ? ", %lld" : "*", (long long)d->shape[k]);
        fputc(']', f);
        between = "; ";
    }
}

static void put_dtypes(FILE *f, const struct programs *ps)
{
    int32_t n[2] = {0}; /* not bf16, bf16 */

    for (int32_t i = 0; i < ps->params->n - ps->params->n_hidden; i++)
        if (!ps->params->data[i].cache)
            n[ps->params->data[i].desc.dtype == CKPT_BF16]++;
    fprintf(f, "%d bf16, %d fp32", (int)n[1], (int)n[0]);
}

/* ---- the list of notes --------------------------------------------------------------------- */

/* Adds a note: the inputs of p, a setting, or the dtypes. */
static int add(struct note_list *l, const char *name, const struct programs *ps,
               const struct ckpt_program *p, int setting)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return CKPT_ENOMEM;
    if (p)
        put_inputs(f, p);
    else if (setting >= 0)
        put_setting(f, ps, (size_t)setting);
    else
        put_dtypes(f, ps);
    int rc = text_close(f, &text);
    if (!rc)
        rc = note_set(l, name, text);
    free(text);
    return rc;
}

/* Notes what the settings above leave out: another kind of optimizer, groups. */
static int add_optimizer(struct note_list *l, const struct ckpt_program *p, int at)
{
    char name[64], *text = optim_describe(p->optimizer);
    snprintf(name, sizeof name, NOTE_OPTIMIZER " %d", at);
    int rc = text ? note_set(l, name, text) : CKPT_ENOMEM;
    free(text);
    return rc;
}

static int add_rounding(struct note_list *l, const struct ckpt_options *o)
{
    char *text;
    if (asprintf(&text, "%s, ranges %s%s%s", o->qat, o->qat_ranges ? o->qat_ranges : "average",
                 o->qat_skip ? ", without " : "", o->qat_skip ? o->qat_skip : "") < 0)
        return CKPT_ENOMEM;
    int rc = note_set(l, NOTE_QAT, text);
    free(text);
    return rc;
}

int programs_list_notes(const struct programs *ps, struct note_list *l)
{
    int rc = add(l, "ckpt.dtypes", ps, NULL, -1), at = programs_count_training(ps);

    if (!rc && params_small_state(ps->params))
        rc = note_set(l, NOTE_STATE, params_small_state(ps->params));
    if (!rc && params_frozen(ps->params))
        rc = note_set(l, NOTE_FROZEN, params_frozen(ps->params));
    if (!rc && ps->matmul)
        rc = note_set(l, NOTE_MATMUL, matmul_dtype_name(ps->matmul));
    if (!rc && ps->int8)
        rc = note_set(l, NOTE_ACTIVATIONS, "8bit");
    if (!rc && ps->options->qat)
        rc = add_rounding(l, ps->options);
    for (int i = 0; i < (int)(sizeof settings / sizeof *settings) && !rc; i++)
        rc = add(l, settings[i].name, ps, NULL, i);
    for (const struct ckpt_program *p = ps->first; p && !rc; p = p->next) {
        char name[64];
        if (!p->trains)
            continue;
        snprintf(name, sizeof name, "ckpt.grad-dtype of program %d", at);
        rc = note_set(l, name, dtype_name(p->optimizer->grad_dtype));
        if (!rc && !optim_is_plain_adamw(p->optimizer))
            rc = add_optimizer(l, p, at);
        snprintf(name, sizeof name, "ckpt.inputs of program %d", at--);
        if (!rc)
            rc = add(l, name, ps, p, -1);
    }
    return rc;
}
