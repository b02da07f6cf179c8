/* SPDX-License-Identifier: Apache-2.0 */
/* Finds ranks that compute longer than the others: see stragglers.h. */
#include <stdlib.h>
#include <string.h>
#include "say.h"
#include "stragglers.h"

int stragglers_open(struct stragglers *s, int ranks)
{
    size_t n = (size_t)ranks;

    *s = (struct stragglers){.ranks = ranks > 1 ? ranks : 0};
    if (ranks < 2)
        return 0;
    s->seconds = calloc(n, sizeof *s->seconds);
    s->sorted = calloc(n, sizeof *s->sorted);
    s->slow = calloc(n, sizeof *s->slow);
    if (s->seconds && s->sorted && s->slow)
        return 0;
    stragglers_close(s);
    return say_fail("no memory for the times of %d ranks", ranks);
}

void stragglers_close(struct stragglers *s)
{
    free(s->seconds);
    free(s->sorted);
    free(s->slow);
    *s = (struct stragglers){0};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double stragglers_judge(struct stragglers *s, void (*name)(void *user, int rank, double median),
                        void *user)
{
    memcpy(s->sorted, s->seconds, (size_t)s->ranks * sizeof *s->sorted);
    qsort(s->sorted, (size_t)s->ranks, sizeof *s->sorted, compare);
    double median = s->sorted[(s->ranks - 1) / 2];

    for (int r = 0; r < s->ranks; r++) {
        struct slow_rank *slow = &s->slow[r];
        if (s->seconds[r] <= STRAGGLER_TIMES * median) {
            *slow = (struct slow_rank){0};
            continue;
        }
        slow->steps += s->ranks;
        if (slow->steps < STRAGGLER_STEPS || slow->named)
            continue;
        slow->named = true;
        name(user, r, median);
    }
    return median;
}

struct naming {
    const struct stragglers *s;
    const ckpt *c;
};

static void say_slow(void *user, int rank, double median)
{
    const struct naming *n = user;
    const char *place = ckpt_rank_location(n->c, rank);

    say_note("rank %d%s%s%s is slow: it computes %.1f ms in a step, the median of %d ranks is %.1f "
             "ms, and the others wait for it",
             rank, *place ? " (" : "", place, *place ? ")" : "", n->s->seconds[rank] * 1e3,
             n->s->ranks, median * 1e3);
}

const double *stragglers_look(struct stragglers *s, ckpt *c)
{
    struct naming n = {s, c};

    if (!s->ranks || ++s->steps < s->ranks || ckpt_rank_seconds(c, s->seconds))
        return NULL;
    for (int r = 0; r < s->ranks; r++)
        if (s->seconds[r] <= 0)
            return NULL;
    s->steps = 0;
    stragglers_judge(s, say_slow, &n);
    return s->seconds;
}
