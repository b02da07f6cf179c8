/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a context knows of an optimizer, and which update each parameter gets.
 *
 * An optimizer is a recorder of update ops with named state (the slots of core/params.h):
 *
 * - Kinds of which each element is updated by itself (AdamW, SGD, Lion) are one op for many
 *   parameters.  Host and device have one kernel each for all of these kinds, made from a function
 *   of one element (update_math.h).  The state of such a kind may live on the host, where its
 *   update then runs, and ranks update flat shares of it.
 * - Kinds that look at whole matrices (Adafactor, Muon) are recorded in ops that any model uses:
 *   products, sums, expressions.  So both devices have them and they are planned like all else.
 *   `assign` writes their state, `step` their weights; both leave alone what a step that is not
 *   finite must not change.  Their state may stay or be offloaded; the update is on the device.
 *
 * All settings that an update follows from are a struct optim_rule: one for the optimizer and one
 * for each group.  optim_resolve gives every parameter its rule: the last group that matches, or
 * none.  What is common to a step (clip_norm, the EMA, the dtype of gradients) belongs to the
 * optimizer alone.
 *
 * - Frozen parameters take no gradient: the tape is told before the model is recorded.
 * - Learning rates: a program has one, which moves; a rule has a factor of it, fixed.
 * - Several ranks update buckets, so the layout never mixes groups in one (layout.h), and a bucket
 *   has the rule of its parameters.  Matrices are not whole there: those kinds are refused.
 * - A state says which optimizer it is of (optim_describe); for an AdamW without groups that is the
 *   notes which older files have.
 */
#ifndef CKPT_OPTIM_OPTIMIZER_H
#define CKPT_OPTIM_OPTIMIZER_H

#include "attr.h"
#include "core/params.h"

enum optim_kind { OPTIM_ADAMW, OPTIM_SGD, OPTIM_LION, OPTIM_ADAFACTOR, OPTIM_MUON };

/* What the update of a parameter follows from. */
struct optim_rule {
    enum optim_kind kind;
    bool frozen;
    /* Of the kinds that are one op, all of it; else that of the `step` at the end. */
    struct update_attr update;
    float d, eps2; /* adafactor; beta2 of update is its beta2_decay */
    int ns_steps;  /* muon; momentum is beta1 of update */
    bool match_rms;
};

struct optim_group {
    char *pattern;
    int min_ndim, max_ndim;
    struct optim_rule rule;
};

struct ckpt_optimizer {
    struct ckpt_optimizer *next; /* of the context */
    struct params *params;       /* of the context, where errors stick */
    struct error *error;
    float lr, clip_norm;
    enum ckpt_dtype grad_dtype;
    struct optim_rule rule; /* of what no group has */
    struct optim_group *groups;
    int n_groups;
    bool keeps_buffers; /* ckpt_update_buffer has no effect */
    bool compiled;      /* a program was given it: no more groups */
    /* Updates by it so far, of all its programs: what corrections of means go by.  It begins with
     * those that the context had when it was made, for means may go on. */
    int64_t updates;
    /* Steps of its programs that were handed over, and those of them that were waited for. */
    int64_t submitted, waited;
    /* Set by a step that failed, so that those behind it change nothing: a word that the device
     * reaches, NULL before the first program. */
    int32_t *halt;
};

enum { OPTIM_GROUPS = 64 /* of one optimizer at most */ };

/* The optimizer's own kind and settings as flat numbers; lr_factor is 1. */
struct update_attr optim_adamw_attr(const struct ckpt_adamw *settings);

/* Frees an optimizer with its groups. */
void optim_free(struct ckpt_optimizer *o);

/* Checks the settings of a rule.  Returns 0, or CKPT_EINVAL and the sentence. */
int optim_check(struct error *e, const struct ckpt_optimizer *o);

/*
 * of[i] becomes the group of parameter i, or -1 where none has it; hidden ones, which are buckets,
 * are left out.  Returns 0, or CKPT_EINVAL and the sentence: a group that nothing belongs to.
 */
int optim_resolve(struct error *e, const struct ckpt_optimizer *o, const struct params *ps,
                  int32_t *of);

static inline const struct optim_rule *optim_rule_at(const struct ckpt_optimizer *o, int32_t group)
{
    return group < 0 ? &o->rule : &o->groups[group].rule;
}

/* Whether it is an AdamW whose settings the notes of older states tell. */
bool optim_is_plain_adamw(const struct ckpt_optimizer *o);

/* All that the bits of an update follow from, but for the learning rate, as one line; to be freed.
 * NULL without memory. */
char *optim_describe(const struct ckpt_optimizer *o);

/* The name of a kind, as its function has it. */
const char *optim_kind_name(enum optim_kind kind);

#endif
