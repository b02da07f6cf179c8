/* Bytes per step in parts: a stretch is a few steps of the parts at its ends, and whole ones. */
#include <stdlib.h>
#include <string.h>
#include "plan/ledger.h"

static int32_t parts_of(int32_t n)
{
    return n / LEDGER_PART + 1;
}

int ledger_new(struct ledger *l, int32_t n)
{
    size_t parts = (size_t)parts_of(n);
    l->n = n;
    l->bytes = calloc((size_t)n + 1, sizeof(*l->bytes));
    l->all = calloc(parts, sizeof(*l->all));
    l->most = calloc(parts, sizeof(*l->most));
    return l->bytes && l->all && l->most ? 0 : CKPT_ENOMEM;
}

void ledger_free(struct ledger *l)
{
    free(l->bytes);
    free(l->all);
    free(l->most);
}

static int32_t part_end(const struct ledger *l, int32_t part)
{
    return (int32_t)min_i64(l->n, (int64_t)(part + 1) * LEDGER_PART);
}

static void find_most(struct ledger *l, int32_t part)
{
    int64_t most = INT64_MIN;
    for (int32_t k = part * LEDGER_PART; k < part_end(l, part); k++)
        most = max_i64(most, l->bytes[k]);
    l->most[part] = most == INT64_MIN ? most : most + l->all[part];
}

void ledger_set(struct ledger *l, const int64_t *bytes)
{
    memcpy(l->bytes, bytes, (size_t)l->n * sizeof(*bytes));
    for (int32_t part = 0; part < parts_of(l->n); part++) {
        l->all[part] = 0;
        find_most(l, part);
    }
}

void ledger_add(struct ledger *l, int32_t from, int32_t to, int64_t bytes)
{
    while (from < to) {
        int32_t part = from / LEDGER_PART, end = (int32_t)min_i64(to, part_end(l, part));
        if (from == part * LEDGER_PART && end == part_end(l, part)) {
            l->all[part] += bytes;
            l->most[part] += bytes;
        } else {
            for (int32_t k = from; k < end; k++)
                l->bytes[k] += bytes;
            find_most(l, part);
        }
        from = end;
    }
}

int32_t ledger_clear_from(const struct ledger *l, int32_t from, int32_t to, int64_t limit)
{
    while (to > from) {
        int32_t part = (to - 1) / LEDGER_PART, start = part * LEDGER_PART;
        if (l->most[part] <= limit) {
            to = start > from ? start : from;
            continue;
        }
        for (; to > start && to > from; to--)
            if (ledger_at(l, to - 1) > limit)
                return to;
    }
    return from;
}
