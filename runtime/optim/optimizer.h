/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An optimizer as the context stores it, and the update rule of each parameter.
 *
 * An optimizer records update ops with named state (the slots of core/params.h):
 *
 * - Element-wise optimizers (AdamW, SGD, Lion) use one op for many parameters.  Host and device
 *   have one kernel each for all of them, made from a function of one element (update_math.h).
 *   Their state may stay on the host, where the update then runs, and ranks update flat shares of
 *   it.
 * - Matrix optimizers (Adafactor, Muon) are recorded in the ops that models use: products, sums,
 *   expressions.  So both devices support them and the planner handles them like other ops.
 *   `assign` writes their state, `step` their weights; neither writes anything in a step that is
 *   not finite.  Their state may be kept or offloaded; the update runs on the device.
 *
 * A struct optim_rule holds all settings of an update: one for the optimizer and one per group.
 * optim_resolve assigns to every parameter the last group that matches, or none.  Settings that a
 * step has once (clip_norm, the EMA, the dtype of gradients) belong to the optimizer only.
 *
 * - Frozen parameters have no gradient: the tape knows them before the model is recorded.
 * - Learning rates: a program has one, which may change; a rule has a constant factor of it.
 * - Several ranks update buckets, so the layout never mixes groups in a bucket (layout.h), and a
 *   bucket has the rule of its parameters.  For matrix optimizers a bucket is gathered, because
 *   matrices may span shares.
 * - A state names its optimizer (optim_describe); for AdamW without groups it uses the notes that
 *   older files have.
 */
#ifndef CKPT_OPTIM_OPTIMIZER_H
#define CKPT_OPTIM_OPTIMIZER_H

#include "attr.h"
#include "core/params.h"

enum optim_kind { OPTIM_ADAMW, OPTIM_SGD, OPTIM_LION, OPTIM_ADAFACTOR, OPTIM_MUON };

/* The settings of a parameter's update. */
struct optim_rule {
    enum optim_kind kind;
    bool frozen;
    /* The whole setting for element-wise kinds; for matrix kinds the setting of the final `step`
     * op. */
    struct update_attr update;
    float d, eps2; /* adafactor; its beta2_decay is in update.beta2 */
    int ns_steps;  /* muon; its momentum is in update.beta1 */
    bool match_rms;
};

struct optim_group {
    char *pattern;
    int min_ndim, max_ndim;
    struct optim_rule rule;
};

struct ckpt_optimizer {
    struct ckpt_optimizer *next; /* list of the context */
    struct params *params;       /* of the context */
    struct error *error;         /* of public calls on the optimizer */
    float lr, clip_norm;
    enum ckpt_dtype grad_dtype;
    struct optim_rule rule; /* for parameters without a group */
    struct optim_group *groups;
    int n_groups;
    bool keeps_buffers; /* ckpt_update_buffer has no effect */
    bool compiled;      /* used by a program: no more groups can be added */
    bool part;          /* a group of another optimizer uses it */
    /* Number of updates by this optimizer in all its programs; bias corrections use it.  It starts
     * with the context's count at creation, because existing means may continue. */
    int64_t updates;
    /* Steps of its programs that were submitted, and steps that were waited for. */
    int64_t submitted, waited;
    /* Set by a failed step, so that later steps change nothing; device-accessible.  NULL before the
     * first program. */
    int32_t *halt;
};

enum { OPTIM_GROUPS = 64 /* limit for one optimizer */ };

/* The optimizer's kind and settings as plain numbers; lr_factor is 1. */
struct update_attr optim_adamw_attr(const struct ckpt_adamw *settings);

/* Frees an optimizer with its groups. */
void optim_free(struct ckpt_optimizer *o);

/* Validates the settings of a rule.  Returns 0, or CKPT_EINVAL and the sentence. */
int optim_check(const struct ckpt_optimizer *o);

/*
 * Sets of[i] to the group of parameter i, or -1 if none matches; hidden parameters (buckets) are
 * skipped.  Returns 0, or CKPT_EINVAL and the sentence if a group matches no parameter.
 */
int optim_resolve(const struct ckpt_optimizer *o, const struct params *ps, int32_t *of);

/* Puts parameters in classes: equal numbers for those that every optimizer of the list treats
 * alike, -1 for those that all of them freeze.  Optimizers that are only parts of others do not
 * count, unless it is the one that is used.  Returns 0 or a code and the sentence. */
int optim_classes(const struct ckpt_optimizer *all, const struct ckpt_optimizer *used,
                  const struct params *ps, int32_t *class);

static inline const struct optim_rule *optim_rule_at(const struct ckpt_optimizer *o, int32_t group)
{
    return group < 0 ? &o->rule : &o->groups[group].rule;
}

/* Is it an AdamW whose settings fit in the notes of older states? */
bool optim_is_plain_adamw(const struct ckpt_optimizer *o);

/* All settings that the bits of an update depend on, except the learning rate, as one line.  The
 * caller frees it.  NULL if there is no memory. */
char *optim_describe(const struct ckpt_optimizer *o);

/* The name of a kind, as in its public function. */
const char *optim_kind_name(enum optim_kind kind);

#endif
