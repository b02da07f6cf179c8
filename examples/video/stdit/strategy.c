/* SPDX-License-Identifier: Apache-2.0 */
/* Mask strategies: see strategy.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "strategy.h"

enum { NUMBERS = 6, LARGEST = 1 << 24 };

/* ---- text ---------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t");
}

/* A number before the next comma, semicolon or the end; false: none. */
static bool take_number(const char **at, bool whole, double *value)
{
    const char *text = skip_blanks(*at);
    char *end;

    if (!strchr("+-.0123456789", *text) || !*text)
        return false;
    *value = whole ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    if (end == text || !(fabs(*value) <= LARGEST))
        return false;
    *at = skip_blanks(end);
    return !**at || strchr(",;", **at);
}

/* The numbers of one strategy.  Returns how many, or 0. */
static int take_numbers(const char **at, double number[NUMBERS])
{
    for (int i = 0; i < NUMBERS; i++) {
        if (!take_number(at, i < NUMBERS - 1, &number[i]))
            return 0;
        if (**at != ',')
            return i + 1;
        ++*at;
    }
    return 0;
}

static int check(const struct stdit_strategy *s, const char *what, const char *text)
{
    if (s->loop < 0 || s->reference < 0)
        return say_fail("%s %s: segments and references count from 0", what, text);
    if (s->length < 1)
        return say_fail("%s %s: a length of %lld must be at least 1 latent frame", what, text,
                        (long long)s->length);
    if (!(s->edit >= 0 && s->edit <= 1))
        return say_fail("%s %s: an edit ratio must be 0 to 1", what, text);
    return 0;
}

int stdit_strategies_read(struct stdit_strategies *s, const char *what, const char *text)
{
    const char *at = text;

    while (at && *skip_blanks(at)) {
        double n[NUMBERS] = {0, 0, 0, 0, 1, 0};
        bool found = take_numbers(&at, n) > 0;
        const struct stdit_strategy one = {(int64_t)n[0], (int64_t)n[1], (int64_t)n[2],
                                           (int64_t)n[3], (int64_t)n[4], n[5]};
        bool ends = *at == ';' && !*skip_blanks(at + 1);
        if (!found || ends)
            return say_fail("%s %s: give up to six numbers, such as 0,0,-1,0,1,0; separate several "
                            "strategies by ;",
                            what, text);
        if (check(&one, what, text) || stdit_strategies_add(s, &one))
            return -1;
        at += *at == ';';
    }
    return 0;
}

/* ---- list ---------------------------------------------------------------------------------- */

int stdit_strategies_add(struct stdit_strategies *s, const struct stdit_strategy *one)
{
    struct stdit_strategy *list = realloc(s->list, (size_t)(s->n + 1) * sizeof *list);

    if (!list)
        return say_fail("no memory for a mask strategy");
    s->list = list;
    list[s->n++] = *one;
    return 0;
}

void stdit_strategies_free(struct stdit_strategies *s)
{
    free(s->list);
    *s = (struct stdit_strategies){.n = 0};
}

/* ---- positions ----------------------------------------------------------------------------- */

/* The multiple of step nearest to a position; the lower one of two equally near; never less than a
 * whole step before the end. */
static int64_t nearest(int64_t place, int64_t step, int64_t frames)
{
    int64_t n = place / step;

    if (2 * (place % step) > step && n < frames / step - 1)
        n++;
    return n * step;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int stdit_strategy_place(const struct stdit_strategy *s, const char *what, int64_t reference,
                         int64_t clip, int64_t align, struct stdit_span *span)
{
    int64_t from = s->from < 0 ? s->from + reference : s->from;
    int64_t to = s->to < 0 ? s->to + clip : s->to;

    if (from < 0 || from >= reference)
        return say_fail("%s: a start of %lld in a reference of %lld latent frame%s", what,
                        (long long)s->from, (long long)reference, reference > 1 ? "s" : "");
    if (to < 0 || to >= clip)
        return say_fail("%s: a start of %lld in clips of %lld latent frame%s", what,
                        (long long)s->to, (long long)clip, clip > 1 ? "s" : "");
    from = align ? nearest(from, align, reference) : from;
    to = align ? nearest(to, align, clip) : to;
    *span =
        (struct stdit_span){from, to, least(s->length, least(reference - from, clip - to)), false};
    span->cut = span->length < s->length;
    return 0;
}
