/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The losses of preferences, from sums of log-probabilities of the trained tokens of a text: see
 * preference_options.h.  With p and q these sums of the model and of the reference:
 *
 *   dpo   z = beta (p[0] - q[0] - p[1] + q[1]);  -(1 - e) log s(z) - e log s(-z)
 *   orpo  cross entropy of the chosen tokens - lambda log s(z), with means over the tokens in place
 *         of sums, and z the logarithm of their odds ratio
 *   kto   k = max(0, mean over the batch of p[1] - q[1]), without a gradient;  z = beta (p[0] -
 * q[0]
 *         - k);  w s(-z) for a desirable completion, w s(z) for another one
 *
 * where s is the logistic function.  Texts 0 and 1 are the chosen and the rejected one.
 */
#include "../common/dump.h"
#include "ckpt_optim.h"
#include "preference.h"
#include "run.h"

enum { CHOSEN, REJECTED };

/* What a batch is given. */
struct inputs {
    ckpt_tensor tokens, targets; /* [B, 2, T] */
    ckpt_tensor known, desired;  /* [B, 2] and [B]; CKPT_NONE: not needed */
};

static struct inputs record_inputs(const struct lm_run *r, ckpt_tape *t, int64_t batch, bool loss)
{
    const struct preference_options *o = &r->options.preference;
    const int64_t shape[] = {batch, PREFERENCE_TEXTS, r->preference.length};
    struct inputs in = {.tokens = ckpt_input(t, "tokens", CKPT_I32, 3, shape),
                        .targets = ckpt_input(t, "targets", CKPT_I32, 3, shape)};

    if (loss && preference_is_cached(r))
        in.known = ckpt_input(t, "reference", CKPT_F32, 2, shape);
    if (loss && o->loss == LM_KTO)
        in.desired = ckpt_input(t, "desired", CKPT_F32, 1, shape);
    return in;
}

/* Minus the log-probability of each target of texts [B, n, T]; 0 where there is none. */
static ckpt_tensor record_tokens(const struct lm_run *r, ckpt_tape *t, ckpt_tensor tokens,
                                 ckpt_tensor targets, int64_t chunk)
{
    const struct ckpt_desc d = ckpt_desc_of(t, tokens);
    const int64_t flat[] = {d.shape[0] * d.shape[1], d.shape[2]};
    ckpt_tensor in[LM_INPUTS] = {[LM_TOKENS] = ckpt_reshape(t, tokens, 2, flat)};
    ckpt_tensor x = lm_rows(&r->model, t, lm_hidden(&r->model, t, in, NULL), CKPT_NONE);

    x = lm_cross_entropy(&r->model, t, x, ckpt_reshape(t, targets, 2, flat), chunk,
                         CKPT_REDUCE_NONE);
    return ckpt_reshape(t, x, 3, d.shape);
}

/* Sums over the last axis of [B, n, T]: [B, n]. */
static ckpt_tensor sum_tokens(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_squeeze(t, ckpt_sum(t, x, 1u << 2), 2);
}

static ckpt_tensor record_logps(const struct lm_run *r, ckpt_tape *t, ckpt_tensor tokens,
                                ckpt_tensor targets, int64_t chunk)
{
    return ckpt_neg(t, sum_tokens(t, record_tokens(r, t, tokens, targets, chunk)));
}

/* The log-probabilities of the reference, [B, 2]. */
static ckpt_tensor record_reference(const struct lm_run *r, ckpt_tape *t, const struct inputs *in,
                                    int64_t chunk)
{
    if (in->known.id)
        return in->known;
    ckpt_use_adapters(t, false);
    ckpt_tensor known = record_logps(r, t, in->tokens, in->targets, chunk);
    ckpt_use_adapters(t, true);
    return ckpt_stop_gradient(t, known);
}

/* Text k of [B, 2, ...], which stays an axis. */
static ckpt_tensor text(ckpt_tape *t, ckpt_tensor x, int k)
{
    return ckpt_slice(t, x, 1, k, k + 1);
}

/* Text k of [B, 2]: [B]. */
static ckpt_tensor column(ckpt_tape *t, ckpt_tensor x, int k)
{
    return ckpt_squeeze(t, text(t, x, k), 1);
}

/* -log s(z) */
static ckpt_tensor log_loss(ckpt_tape *t, ckpt_tensor z)
{
    return ckpt_softplus(t, ckpt_neg(t, z));
}

static ckpt_tensor mean(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, ckpt_mean(t, x, CKPT_ALL_AXES), 0, NULL);
}

/* What the losses of samples are computed from. */
struct recording {
    const struct lm_run *r;
    ckpt_tape *t;
    struct inputs in;
    int64_t chunk;
    bool trains;
    ckpt_tensor logps, each; /* results: [B, 2] of the model; [B], the loss of each sample */
};

static ckpt_tensor record_dpo(struct recording *k)
{
    const struct preference_options *o = &k->r->options.preference;
    ckpt_tape *t = k->t;
    ckpt_tensor known = record_reference(k->r, t, &k->in, k->chunk);

    k->logps = record_logps(k->r, t, k->in.tokens, k->in.targets, k->chunk);
    ckpt_output(t, "reference_logps", known);
    ckpt_tensor ratio = ckpt_sub(t, k->logps, known);
    ckpt_tensor z = ckpt_sub(t, column(t, ratio, CHOSEN), column(t, ratio, REJECTED));
    z = ckpt_affine(t, z, (float)o->beta, 0);
    k->each = log_loss(t, z);
    if (o->smoothing > 0)
        k->each = ckpt_add(t, ckpt_affine(t, k->each, (float)(1 - o->smoothing), 0),
                           ckpt_affine(t, ckpt_softplus(t, z), (float)o->smoothing, 0));
    return mean(t, k->each);
}

/* log(p / (1 - p)) of a mean log-probability. */
static ckpt_tensor log_odds(ckpt_tape *t, ckpt_tensor p)
{
    return ckpt_sub(t, p, ckpt_log1p(t, ckpt_neg(t, ckpt_exp(t, p))));
}

static ckpt_tensor record_orpo(struct recording *k)
{
    const struct preference_options *o = &k->r->options.preference;
    ckpt_tape *t = k->t;
    ckpt_tensor none = ckpt_full(t, DATASET_IGNORED, CKPT_I32, 0, NULL);
    ckpt_tensor counts = ckpt_cast(t, ckpt_ne(t, k->in.targets, none), CKPT_F32);
    ckpt_tensor losses = record_tokens(k->r, t, k->in.tokens, k->in.targets, k->chunk);

    k->logps = ckpt_neg(t, ckpt_div(t, sum_tokens(t, losses), sum_tokens(t, counts)));
    ckpt_tensor odds = log_odds(t, k->logps);
    ckpt_tensor z = ckpt_sub(t, column(t, odds, CHOSEN), column(t, odds, REJECTED));
    ckpt_output(t, "log_odds", z);
    k->each = ckpt_affine(t, log_loss(t, z), (float)o->lambda, 0);
    ckpt_tensor chosen = text(t, losses, CHOSEN);
    if (!k->trains)
        ckpt_output(t, "nll", ckpt_squeeze(t, sum_tokens(t, chosen), 1));
    ckpt_tensor nll = ckpt_masked_mean(t, chosen, text(t, counts, CHOSEN));
    ckpt_output(t, "nll_loss", nll);
    return ckpt_add(t, nll, mean(t, k->each));
}

/* The reference point: the divergence from the reference, estimated from completions of other
 * prompts. */
static ckpt_tensor record_point(struct recording *k, ckpt_tensor known)
{
    ckpt_tape *t = k->t;
    ckpt_tensor p = record_logps(k->r, t, text(t, k->in.tokens, REJECTED),
                                 text(t, k->in.targets, REJECTED), k->chunk);

    p = ckpt_stop_gradient(t, p);
    ckpt_couple_samples(t, "the reference point of KTO is a mean over the batch");
    ckpt_tensor point = mean(t, ckpt_sub(t, p, text(t, known, REJECTED)));
    return ckpt_maximum(t, point, ckpt_full(t, 0, CKPT_F32, 0, NULL));
}

static ckpt_tensor record_kto(struct recording *k)
{
    const struct preference_options *o = &k->r->options.preference;
    const float desirable = (float)o->desirable, undesirable = (float)o->undesirable;
    ckpt_tape *t = k->t;
    ckpt_tensor known = record_reference(k->r, t, &k->in, k->chunk);
    ckpt_tensor point = record_point(k, known);
    ckpt_tensor p = record_logps(k->r, t, text(t, k->in.tokens, CHOSEN),
                                 text(t, k->in.targets, CHOSEN), k->chunk);

    k->logps = p;
    ckpt_output(t, "reference_logps", text(t, known, CHOSEN));
    ckpt_output(t, "kl", point);
    ckpt_tensor z = ckpt_squeeze(t, ckpt_sub(t, p, text(t, known, CHOSEN)), 1);
    z = ckpt_mul(t, ckpt_sub(t, z, point), ckpt_affine(t, k->in.desired, -2, 1));
    ckpt_tensor weight = ckpt_affine(t, k->in.desired, desirable - undesirable, undesirable);
    k->each = ckpt_mul(t, weight, ckpt_sigmoid(t, ckpt_affine(t, z, (float)o->beta, 0)));
    return mean(t, k->each);
}

ckpt_tensor preference_record(const struct lm_run *r, ckpt_tape *t, int64_t batch, int64_t chunk,
                              bool trains, bool dump)
{
    static ckpt_tensor (*const losses[LM_LOSSES])(struct recording *) = {
        [LM_DPO] = record_dpo, [LM_ORPO] = record_orpo, [LM_KTO] = record_kto};
    struct recording k = {.r = r, .t = t, .chunk = chunk, .trains = trains};

    k.in = record_inputs(r, t, batch, true);
    ckpt_tensor loss = losses[r->options.preference.loss](&k);
    ckpt_output(t, "logps", k.logps);
    if (!trains)
        ckpt_output(t, "losses", k.each);
    if (dump)
        dump_record(r->context, t, k.logps);
    return loss;
}

ckpt_tensor preference_record_texts(const struct lm_run *r, ckpt_tape *t, int64_t batch,
                                    int64_t chunk)
{
    const struct inputs in = record_inputs(r, t, batch, false);
    ckpt_tensor logps = record_logps(r, t, in.tokens, in.targets, chunk);

    ckpt_output(t, "logps", logps);
    return mean(t, logps);
}
