/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of masked models: see masked.h. */
#include <math.h>
#include <stdlib.h>
#include "../common/say.h"
#include "masked.h"

enum { STREAM_MASK = 0x4c4d0004, MARKS = 2 };

/* Draws of a sample: four, then three for each of its tokens. */
enum { DRAW_OTHER, DRAW_CUT, DRAW_ROW, DRAW_ROW_LOW, DRAWS };

int64_t masking_room(int64_t length, bool pairs)
{
    return length - MARKS - pairs;
}

int64_t masking_count(int64_t n, double share)
{
    int64_t count = (int64_t)floor((double)n * share + 0.5);

    return count < 1 ? 1 : count;
}

/* A word of the sample: tokens [begin, begin + n). */
struct word {
    float key; /* words are taken by ascending key */
    int32_t begin, n;
};

struct sample {
    const struct masking *m;
    int32_t *token;    /* [room] */
    int64_t n, cut;    /* tokens; those before `cut` are the first text */
    int32_t other;     /* 1: the second text is of another document */
    float *draw;       /* [DRAWS + 3 * room] */
    struct word *word; /* [room] */
    bool *chosen;      /* [room] */
};

/* ---- texts ----------------------------------------------------------------------------------- */

/* A row of another document than that of `row`. */
static int64_t other_row(const struct dataset *d, const struct sample *s, int64_t row)
{
    double at = s->draw[DRAW_ROW] + s->draw[DRAW_ROW_LOW] / 16777216.; /* 24 bits each */
    int64_t other = (int64_t)(at * (double)d->rows);

    other = other < d->rows ? other : d->rows - 1;
    while (d->piece[other].document == d->piece[row].document)
        other = (other + 1) % d->rows;
    return other;
}

/* A single token is too short to be cut: its neighbour is another text. */
static int read_texts(struct dataset *d, struct sample *s, int64_t row)
{
    int n = dataset_read_piece(d, row, d->length, s->token);

    if (n < 0)
        return -1;
    s->n = s->cut = n;
    s->other = 0;
    if (!s->m->pairs)
        return 0;
    s->other = s->draw[DRAW_OTHER] < 0.5f || n == 1;
    if (n > 1)
        s->cut = 1 + (int64_t)(s->draw[DRAW_CUT] * (float)(n - 1));
    if (!s->other)
        return 0;
    n = dataset_read_piece(d, other_row(d, s, row), d->length - s->cut, s->token + s->cut);
    s->n = s->cut + n;
    return n < 0 ? -1 : 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    const struct word *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->begin - y->begin;
}

static int64_t find_words(struct sample *s)
{
    int64_t words = 0;

    for (int64_t i = 0; i < s->n; i++) {
        bool goes_on =
            s->m->words && i && i != s->cut && tokenizer_continues(s->m->words, s->token[i]);
        if (goes_on)
            s->word[words - 1].n++;
        else
            s->word[words++] = (struct word){s->draw[DRAWS + i], (int32_t)i, 1};
        s->chosen[i] = false;
    }
    return words;
}

/* Words in the order of their keys, without those that would exceed the number of predictions. */
static void choose(struct sample *s)
{
    int64_t words = find_words(s), left = masking_count(s->n, s->m->share);

    qsort(s->word, (size_t)words, sizeof *s->word, by_key);
    for (int64_t i = 0; i < words && left; i++) {
        const struct word *w = &s->word[i];
        if (w->n > left)
            continue;
        left -= w->n;
        for (int32_t k = 0; k < w->n; k++)
            s->chosen[w->begin + k] = true;
    }
}

static int32_t replace(const struct sample *s, int64_t i)
{
    const struct masking *m = s->m;
    float kind = s->draw[DRAWS + s->n + i], which = s->draw[DRAWS + 2 * s->n + i];

    if (kind < 0.8f)
        return m->marks.mask;
    return kind < 0.9f ? (int32_t)(which * (float)m->vocabulary) : s->token[i];
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The input of sample b; width: its values of a sample. */
static int32_t *input(int32_t *const in[LM_INPUTS], enum lm_input which, int64_t b, int64_t width)
{
    return in[which] ? in[which] + b * width : NULL;
}

static void write_sample(const struct sample *s, int64_t b, int32_t *const in[LM_INPUTS])
{
    const struct masking *m = s->m;
    int32_t *token = input(in, LM_TOKENS, b, m->length);
    int32_t *segment = input(in, LM_SEGMENTS, b, m->length);
    int32_t *target = input(in, LM_TARGETS, b, m->most), *place = input(in, LM_PLACES, b, m->most);
    int64_t at = 0, k = 0;

    token[at++] = m->marks.begin;
    for (int64_t i = 0; i < s->n; i++) {
        if (i && i == s->cut)
            token[at++] = m->marks.end;
        if (s->chosen[i]) {
            place[k] = (int32_t)at;
            target[k++] = s->token[i];
        }
        token[at++] = s->chosen[i] ? replace(s, i) : s->token[i];
    }
    token[at++] = m->marks.end;
    const int64_t second = m->pairs ? s->cut + MARKS : at;
    for (int64_t i = 0; i < m->length; i++)
        segment[i] = i >= second && i < at;
    if (in[LM_LENGTHS])
        in[LM_LENGTHS][b] = (int32_t)at;
    if (in[LM_PAIRS])
        in[LM_PAIRS][b] = s->other;
    for (; at < m->length; at++)
        token[at] = m->marks.pad;
    for (; k < m->most; k++) {
        place[k] = 0;
        target[k] = DATASET_IGNORED;
    }
}

static int make_sample(struct dataset *d, struct sample *s, int64_t number)
{
    const struct masking *m = s->m;

    ckpt_fill_uniform(m->seed, (uint64_t)number, STREAM_MASK, s->draw, DRAWS + 3 * d->length);
    if (read_texts(d, s, dataset_row(d, number)))
        return -1;
    choose(s);
    return 0;
}

int masked_read(struct dataset *d, const struct masking *m, int64_t first, int64_t n,
                int32_t *const in[LM_INPUTS])
{
    size_t room = (size_t)d->length;
    struct sample s = {.m = m,
                       .token = malloc(room * sizeof *s.token),
                       .draw = malloc((DRAWS + 3 * room) * sizeof *s.draw),
                       .word = malloc(room * sizeof *s.word),
                       .chosen = malloc(room * sizeof *s.chosen)};
    bool whole = s.token && s.draw && s.word && s.chosen;
    int rc = whole ? 0 : say_fail("no memory for a sample of %zu tokens", room);

    for (int64_t i = 0; i < n && !rc; i++) {
        rc = make_sample(d, &s, first + i);
        if (!rc)
            write_sample(&s, i, in);
    }
    free(s.token);
    free(s.draw);
    free(s.word);
    free(s.chosen);
    return rc;
}
