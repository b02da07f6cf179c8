/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a step for its ranks: see balance.h. */
#include "balance.h"
#include <stdlib.h>
#include <string.h>
#include "say.h"

int balance_read(const char *text, enum balance *kind)
{
    static const char *const names[] = {"none", "tokens", "time"};

    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(text ? text : "none", names[i])) {
            *kind = (enum balance)i;
            return 0;
        }
    return say_fail("--balance %s: give time, tokens or none", text);
}

struct sample {
    double weight;
    int64_t number;
};

static int heavier_first(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1;
    return x->number < y->number ? -1 : 1;
}

struct rank {
    double load;
    int64_t n;
};

static void deal(const struct sample *sample, int64_t n, struct rank *rank, int ranks,
                 int64_t *dealt)
{
    const int64_t each = n / ranks;

    for (int64_t i = 0; i < each * ranks; i++) {
        int least = -1;
        for (int r = 0; r < ranks; r++)
            if (rank[r].n < each && (least < 0 || rank[r].load < rank[least].load))
                least = r;
        rank[least].load += sample[i].weight;
        dealt[least * each + rank[least].n++] = sample[i].number;
    }
}

int balance_deal(const double *weight, int64_t n, int ranks, int64_t *dealt)
{
    struct sample *sample = calloc((size_t)n + 1, sizeof *sample);
    struct rank *rank = calloc((size_t)ranks, sizeof *rank);
    int rc = sample && rank ? 0 : say_fail("no memory to deal %lld samples", (long long)n);

    for (int64_t i = 0; i < n && !rc; i++)
        sample[i] = (struct sample){weight[i], i};
    if (!rc) {
        qsort(sample, (size_t)n, sizeof *sample, heavier_first);
        deal(sample, n, rank, ranks, dealt);
    }
    free(sample);
    free(rank);
    return rc;
}
