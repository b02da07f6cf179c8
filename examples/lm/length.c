/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --length auto: the longest samples whose programs fit the budgets, by bisection over forecasts.
 * Candidates are multiples of 128 up to the positions of the model and the longest sample of the
 * data.  A plan depends on the graph and the budgets alone, so every run and every rank finds the
 * same length.
 */
#include "run.h"

enum { UNIT = LM_LENGTH_UNIT };

static int64_t whole_units(int64_t tokens)
{
    return tokens / UNIT * UNIT;
}

/* ---- bisection ----------------------------------------------------------------------------- */

static int try_length(struct lm_run *r, int64_t length, const struct lm_programs *p, bool *fits)
{
    return lm_data_cut(r, length) || lm_forecast(r, p, true, fits, NULL) ? -1 : 0;
}

/* Sets *length to the longest that fits, or to the shortest if none does. */
static int bisect(struct lm_run *r, const struct lm_programs *p, int64_t *length)
{
    int64_t fits = UNIT, fails = r->options.longest + UNIT;

    for (int64_t at = r->options.longest; fails - fits > UNIT;
         at = whole_units((fits + fails) / 2)) {
        bool good;
        if (try_length(r, at, p, &good))
            return -1;
        *(good ? &fits : &fails) = at;
    }
    *length = fits;
    return 0;
}

int lm_length_choose(struct lm_run *r, const struct lm_programs *p)
{
    bool fits;
    int64_t length;

    if (bisect(r, p, &length))
        return -1;
    if (length < r->options.longest &&
        (lm_data_cut(r, length + UNIT) || lm_forecast(r, p, false, &fits, &r->next_needs)))
        return -1;
    if (lm_data_cut(r, length))
        return -1;
    if (r->options.loss_chunk > lm_options_tokens(&r->options, true))
        r->options.loss_chunk = lm_options_tokens(&r->options, true);
    return 0;
}

void lm_length_print(const struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    const bool all = o->longest + UNIT > o->config.positions;
    char text[32];

    printf("length: %s tokens (--length auto)", say_count(text, o->length));
    if (r->training && !ckpt_program_info(r->training, &info) && info.min_budget)
        printf(", which need %s", say_bytes(text, info.min_budget));
    if (o->length == o->longest)
        printf("; %s",
               all ? "the model has positions for no more" : "the data have no longer samples");
    else if (r->next_needs)
        printf("; %lld tokens need %s", (long long)(o->length + UNIT),
               say_bytes(text, r->next_needs));
    printf("\n");
    say_print("%s\n", r->title);
}
