/* SPDX-License-Identifier: Apache-2.0 */
/* Samples one token from scores: temperature, top-k, top-p. */
#include <math.h>
#include <stdlib.h>
#include "decode.h"

struct scored {
    double p; /* first the score, then the unnormalized probability */
    int32_t token;
};

/* Sorts by descending score; equal scores by ascending token. */
static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->p != y->p)
        return x->p < y->p ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static int32_t highest(const float *scores, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (scores[i] > scores[best])
            best = i;
    return (int32_t)best;
}

/* Computes unnormalized probabilities of the first n sorted scores.  Returns how many of them form
 * the top-p set; *sum is their total. */
static int64_t make_shares(struct scored *s, int64_t n, const struct lm_choice *how, double *sum)
{
    double top = s[0].p, kept = 0;
    int64_t i = 0;

    *sum = 0;
    for (int64_t k = 0; k < n; k++)
        *sum += s[k].p = exp((s[k].p - top) / how->temperature);
    while (i < n && (i == 0 || kept < how->top_p * *sum))
        kept += s[i++].p;
    *sum = kept;
    return i;
}

int lm_penalize(const struct lm_choice *how, float *scores, int64_t n, const int32_t *tokens,
                int64_t count)
{
    bool *seen = how->repetition != 1 ? calloc((size_t)n, sizeof *seen) : NULL;

    if (how->repetition == 1)
        return 0;
    for (int64_t i = 0; seen && i < count; i++) {
        float *score = &scores[tokens[i]];
        if (!seen[tokens[i]])
            *score = *score < 0 ? *score * (float)how->repetition : *score / (float)how->repetition;
        seen[tokens[i]] = true;
    }
    free(seen);
    return seen ? 0 : -1;
}

int32_t lm_choose(const struct lm_choice *how, const float *scores, int64_t n, float u)
{
    struct scored *s;
    double sum;

    if (!(how->temperature > 0))
        return highest(scores, n);
    s = malloc((size_t)n * sizeof *s);
    if (!s)
        return -1;
    for (int64_t i = 0; i < n; i++)
        s[i] = (struct scored){scores[i], (int32_t)i};
    qsort(s, (size_t)n, sizeof *s, by_score);
    int64_t k = how->top_k > 0 && how->top_k < n ? how->top_k : n;
    k = make_shares(s, k, how, &sum);
    double left = (double)u * sum;
    int64_t i = 0;
    while (i + 1 < k && left >= s[i].p)
        left -= s[i++].p;
    int32_t token = s[i].token;
    free(s);
    return token;
}
