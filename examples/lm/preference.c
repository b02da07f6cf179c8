/* SPDX-License-Identifier: Apache-2.0 */
/* The data, batches and numbers of a run that learns from preferences: see preference.h. */
#include <math.h>
#include <stdlib.h>
#include "../common/memory.h"
#include "preference.h"
#include "run.h"

enum { CHOSEN, REJECTED, TEXTS };

/* ---- data ------------------------------------------------------------------------------------ */

static void describe(const struct preference_data *d, const char *name)
{
    char count[32];

    if (d->cut || d->too_long)
        say_note(
            "%s: %lld of %s texts lose their end, %lld tokens in all, and %lld samples are left "
            "out, because a prompt alone has more tokens than --length",
            name, (long long)d->cut, say_count(count, TEXTS * d->rows), (long long)d->cut_tokens,
            (long long)d->too_long);
}

/* Opens one set; `order` becomes the order of its rows. */
static int open_set(struct lm_run *r, const char *name, bool shuffled, struct preference_data *d,
                    struct dataset *order)
{
    const struct lm_options *o = &r->options;

    if (preference_data_open(d, name, r))
        return -1;
    describe(d, name);
    *order = (struct dataset){.rows = d->rows,
                              .tokens = {.count = d->tokens, .open = -1, .fd = -1},
                              .seed = (uint64_t)o->library.seed,
                              .shuffled = shuffled};
    return 0;
}

/* Texts are padded to the longest, whose last token is only a target; a multiple of 8 is no slower.
 */
static void set_length(struct preference *p, int64_t most)
{
    enum { ROUND = 8 };
    const int64_t a = p->data.longest, b = p->validation.longest, longest = a > b ? a : b;
    const int64_t rounded = (longest - 1 + ROUND - 1) / ROUND * ROUND;

    p->length = rounded < most ? rounded : most;
}

int preference_open(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct preference *p = &r->preference;
    char rows[32], tokens[32];

    if (!o->data)
        return say_fail("--loss %s needs --data FILES, lines of JSON", o->preference.name);
    if (r->tokenizer.bytes && lm_options_check_bytes(o))
        return -1;
    if (open_set(r, o->data, !o->in_order, &p->data, &r->data) ||
        (o->validation && open_set(r, o->validation, false, &p->validation, &r->validation)))
        return -1;
    set_length(p, o->length);
    snprintf(r->title, sizeof r->title,
             "data: %s, %s samples of two texts, %s tokens, padded to %lld", o->data,
             say_count(rows, p->data.rows), say_count(tokens, p->data.tokens),
             (long long)p->length);
    return 0;
}

void preference_close(struct preference *p)
{
    preference_data_close(&p->data);
    preference_data_close(&p->validation);
}

/* ---- batches --------------------------------------------------------------------------------- */

int preference_begin(struct lm_run *r)
{
    const int64_t batch = r->options.train.batch, length = r->preference.length;
    struct preference *p = &r->preference;

    p->tokens = MEMORY_FOR(sizeof *p->tokens, batch, TEXTS, length);
    p->targets = MEMORY_FOR(sizeof *p->targets, batch, TEXTS, length);
    p->known = MEMORY_FOR(sizeof *p->known, batch, TEXTS);
    p->desired = MEMORY_FOR(sizeof *p->desired, batch);
    p->result = MEMORY_FOR(sizeof *p->result, batch, TEXTS);
    if (!p->tokens || !p->targets || !p->known || !p->desired || !p->result)
        return say_fail("no memory for a batch of %lld samples", (long long)batch);
    return preference_is_cached(r) ? preference_cache_open(r) : 0;
}

void preference_end(struct preference *p)
{
    free(p->tokens);
    free(p->targets);
    free(p->known);
    free(p->desired);
    free(p->result);
    p->tokens = p->targets = NULL;
    p->known = p->desired = p->result = NULL;
}

static int feed_input(const struct lm_run *r, ckpt_program *p, const char *name, const void *values,
                      int64_t n)
{
    struct ckpt_desc d;

    if (ckpt_program_desc(p, name, &d)) /* this program has no such input */
        return 0;
    return ckpt_feed(p, name, values, n * (int64_t)sizeof(float))
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

int preference_feed(struct lm_run *r, ckpt_program *to, bool validates, int64_t first, int64_t n)
{
    struct preference *p = &r->preference;
    const struct preference_data *d = validates ? &p->validation : &p->data;
    const struct dataset *order = validates ? &r->validation : &r->data;
    const int64_t batch = r->options.train.batch, length = r->preference.length;

    for (int64_t i = 0; i < batch; i++) {
        const int64_t row = dataset_row(order, first + (i < n ? i : n - 1));
        preference_data_read(d, row, length, p->tokens + i * TEXTS * length,
                             p->targets + i * TEXTS * length);
        p->desired[i] = d->desired[row];
        for (int k = 0; k < TEXTS && d->reference; k++)
            p->known[i * TEXTS + k] = d->reference[row][k];
    }
    return feed_input(r, to, "tokens", p->tokens, batch * TEXTS * length) ||
                   feed_input(r, to, "targets", p->targets, batch * TEXTS * length) ||
                   feed_input(r, to, "reference", p->known, batch * TEXTS) ||
                   feed_input(r, to, "desired", p->desired, batch)
               ? -1
               : 0;
}

/* ---- validation ------------------------------------------------------------------------------ */

static int fetch(const struct lm_run *r, ckpt_program *p, const char *name, float *to, int64_t n)
{
    return ckpt_fetch(p, name, to, n * (int64_t)sizeof *to) ? say_fail("%s", ckpt_error(r->context))
                                                            : 0;
}

static int add_nll(struct lm_run *r, int64_t n, struct lm_sums *m)
{
    const struct preference *p = &r->preference;
    const int64_t length = r->preference.length;

    if (fetch(r, r->measuring, "nll", p->result, r->options.train.batch))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        m->loss += (double)p->result[i];
        for (int64_t k = 0; k < length; k++)
            m->targets += p->targets[i * TEXTS * length + k] != DATASET_IGNORED;
    }
    return 0;
}

int preference_measured(struct lm_run *r, int64_t n, struct lm_sums *m)
{
    const struct preference *p = &r->preference;

    if (fetch(r, r->measuring, "losses", p->result, r->options.train.batch))
        return -1;
    for (int64_t i = 0; i < n; i++)
        m->pairs_loss += (double)p->result[i];
    m->pairs += (double)n;
    return r->options.preference.loss == LM_ORPO ? add_nll(r, n, m) : 0;
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Means over the chosen and over the rejected texts of a batch. */
struct means {
    double sum[TEXTS], n[TEXTS];
};

static double mean_of(const struct means *m, int k)
{
    return m->sum[k] / m->n[k]; /* NaN: the batch has no such text */
}

static void log_means(struct run_log *log, const char *what, const struct means *m)
{
    static const char *const names[TEXTS] = {"chosen", "rejected"};
    char key[64];

    for (int k = 0; k < TEXTS; k++) {
        snprintf(key, sizeof key, "%s/%s", what, names[k]);
        if (m->n[k] > 0)
            log_float(log, key, mean_of(m, k));
    }
}

static int log_scalar(struct lm_run *r, ckpt_program *p, const char *name)
{
    float x;

    if (fetch(r, p, name, &x, 1))
        return -1;
    log_float(&r->log, name, (double)x);
    return 0;
}

static int log_odds(struct lm_run *r, ckpt_program *p)
{
    const int64_t batch = r->options.train.batch;
    const float *z = r->preference.result;
    double odds = 0, ratio = 0;

    if (log_scalar(r, p, "nll_loss") || fetch(r, p, "log_odds", r->preference.result, batch))
        return -1;
    for (int64_t i = 0; i < batch; i++) {
        odds += (double)z[i] / (double)batch;
        ratio -= log1p(exp(-(double)z[i])) / (double)batch;
    }
    log_float(&r->log, "log_odds_chosen", odds);
    log_float(&r->log, "log_odds_ratio", ratio);
    return 0;
}

/* Whether value i of [batch][texts] of a step is of a chosen or of a rejected text: of kto, of one
 * that is desirable or not. */
static int kind_of(const struct lm_run *r, int64_t step, int64_t i, int texts)
{
    if (texts == TEXTS)
        return (int)(i % TEXTS);
    const int64_t row = dataset_row(&r->data, lm_first_sample(r, step) + i);
    return r->preference.data.desired[row] > 0 ? CHOSEN : REJECTED;
}

static void log_rewards(struct run_log *log, const struct means *rewards, double accuracy)
{
    log_means(log, "rewards", rewards);
    if (accuracy >= 0)
        log_float(log, "rewards/accuracies", accuracy);
    if (rewards->n[CHOSEN] > 0 && rewards->n[REJECTED] > 0)
        log_float(log, "rewards/margins", mean_of(rewards, CHOSEN) - mean_of(rewards, REJECTED));
}

int preference_log(struct lm_run *r, ckpt_program *p, int64_t step)
{
    const struct preference_options *o = &r->options.preference;
    const int64_t batch = r->options.train.batch;
    const int texts = o->loss == LM_KTO ? 1 : TEXTS;
    const double scale = o->loss == LM_ORPO ? o->lambda : o->beta;
    struct means logps = {{0}, {0}}, rewards = {{0}, {0}};
    double *reward = calloc((size_t)(batch * texts), sizeof *reward), better = 0;
    float *x = r->preference.result;
    int rc = reward ? 0 : say_fail("no memory for the rewards of a batch");

    if (!rc && preference_has_reference(o)) {
        rc = fetch(r, p, "reference_logps", x, batch * texts);
        for (int64_t i = 0; i < batch * texts && !rc; i++)
            reward[i] = -(double)x[i];
    }
    rc = rc ? rc : fetch(r, p, "logps", x, batch * texts);
    for (int64_t i = 0; i < batch * texts && !rc; i++) {
        const int kind = kind_of(r, step, i, texts);
        logps.sum[kind] += (double)x[i];
        logps.n[kind]++;
        rewards.sum[kind] += reward[i] = scale * (reward[i] + (double)x[i]);
        rewards.n[kind]++;
        if (texts == TEXTS && kind == REJECTED)
            better += reward[i - 1] > reward[i];
    }
    if (!rc) {
        log_rewards(&r->log, &rewards, texts == TEXTS ? better / (double)batch : -1);
        log_means(&r->log, "logps", &logps);
    }
    free(reward);
    if (rc || o->loss == LM_DPO)
        return rc;
    return o->loss == LM_KTO ? log_scalar(r, p, "kl") : log_odds(r, p);
}
