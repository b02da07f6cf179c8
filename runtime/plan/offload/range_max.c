/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes per step in parts: an interval consists of whole parts and some steps of the parts at its
 * ends. */
#include <string.h>
#include "core/clones.h"
#include "plan/offload/range_max.h"

/* ---- loops over the steps of a part ------------------------------------------------------ */

CKPT_CLONES static int64_t most_of_steps(const int64_t *bytes, int32_t n)
{
    int64_t a = INT64_MIN, b = a, c = a, d = a; /* none waits for another */
    for (; n >= 4; n -= 4, bytes += 4) {
        a = max_i64(a, bytes[0]);
        b = max_i64(b, bytes[1]);
        c = max_i64(c, bytes[2]);
        d = max_i64(d, bytes[3]);
    }
    for (; n > 0; n--)
        a = max_i64(a, *bytes++);
    return max_i64(max_i64(a, b), max_i64(c, d));
}

CKPT_CLONES static void raise_steps(int64_t *bytes, int32_t n, int64_t more)
{
#pragma omp simd
    for (int32_t k = 0; k < n; k++)
        bytes[k] += more;
}

CKPT_CLONES static int64_t steps_above(const int64_t *bytes, int32_t n, int64_t target)
{
    int64_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int32_t k = 0; k < n; k++)
        sum += max_i64(bytes[k] - target, 0);
    return sum;
}

/* ---- parts ---------------------------------------------------------------------------------- */

enum { BITS = 6 };  /* of parts; in a program of 2^16 steps or more they grow as their root */
enum { MANY = 16 }; /* parts looked at together */

static int32_t parts_of(const struct range_max *l)
{
    return (l->n >> l->bits) + 1;
}

int range_max_new(struct range_max *l, int32_t n, struct pool *m)
{
    *l = (struct range_max){.n = n, .target = INT64_MAX, .bits = BITS};
    while (n >> 2 * l->bits >= 16)
        l->bits++;
    POOL_ARRAY(m, l->bytes, n);
    POOL_ARRAY(m, l->all, parts_of(l));
    POOL_ARRAY(m, l->most, parts_of(l));
    POOL_ARRAY(m, l->above, parts_of(l));
    return pool_status(m);
}

static int32_t part_end(const struct range_max *l, int32_t part)
{
    return (int32_t)min_i64(l->n, (int64_t)(part + 1) << l->bits);
}

/* Recomputes the maximum of a part. */
static void find_most(struct range_max *l, int32_t part)
{
    int32_t from = part << l->bits;
    int64_t most = most_of_steps(l->bytes + from, part_end(l, part) - from);
    l->most[part] = most == INT64_MIN ? most : most + l->all[part];
}

/* Recomputes the excess of a part; cheap, because most parts are below the target. */
static void find_above(struct range_max *l, int32_t part)
{
    int32_t from = part << l->bits;
    int64_t sum = 0;
    if (l->most[part] > l->target)
        sum = steps_above(l->bytes + from, part_end(l, part) - from, l->target - l->all[part]);
    l->excess += sum - l->above[part];
    l->above[part] = sum;
}

void range_max_set(struct range_max *l, const int64_t *bytes)
{
    memcpy(l->bytes, bytes, (size_t)l->n * sizeof(*bytes));
    for (int32_t part = 0; part < parts_of(l); part++) {
        l->all[part] = 0;
        find_most(l, part);
        find_above(l, part);
    }
}

void range_max_aim(struct range_max *l, int64_t target)
{
    l->target = target;
    for (int32_t part = 0; part < parts_of(l); part++)
        find_above(l, part);
}

int32_t range_max_peak(const struct range_max *l)
{
    int32_t part = 0;
    for (int32_t i = 1; i < parts_of(l); i++)
        part = l->most[i] > l->most[part] ? i : part;
    int32_t k = part << l->bits;
    while (range_max_at(l, k) < l->most[part])
        k++;
    return k;
}

/* Adds to some steps of one part; recomputes its maximum only if one of them may have had it. */
static void add_in_part(struct range_max *l, int32_t part, int32_t from, int32_t to, int64_t bytes)
{
    int64_t most = most_of_steps(l->bytes + from, to - from), was = l->most[part] - l->all[part];
    raise_steps(l->bytes + from, to - from, bytes);
    if (bytes > 0)
        l->most[part] = max_i64(was, most + bytes) + l->all[part];
    else if (most == was)
        find_most(l, part);
}

static void add_to_parts(struct range_max *l, int32_t from, int32_t to, int64_t bytes)
{
    raise_steps(l->all + from, to - from, bytes);
    raise_steps(l->most + from, to - from, bytes);
}

/* One step, the most frequent change: no other is looked at unless it was the most of its part. */
static void add_to_step(struct range_max *l, int32_t k, int64_t bytes)
{
    int32_t part = k >> l->bits;
    int64_t was = l->bytes[k] + l->all[part], now = was + bytes;
    l->bytes[k] += bytes;
    if (now > l->most[part])
        l->most[part] = now;
    else if (was == l->most[part])
        find_most(l, part);
    if (l->target == INT64_MAX)
        return;
    int64_t more = max_i64(now - l->target, 0) - max_i64(was - l->target, 0);
    l->above[part] += more;
    l->excess += more;
}

void range_max_add(struct range_max *l, int32_t from, int32_t to, int64_t bytes)
{
    if (from >= to)
        return;
    if (from + 1 == to) {
        add_to_step(l, from, bytes);
        return;
    }
    int32_t first = from >> l->bits, last = (to - 1) >> l->bits;
    int32_t whole = first + (from > (first << l->bits)), end = last + (to == part_end(l, last));
    if (whole > first)
        add_in_part(l, first, from, (int32_t)min_i64(to, part_end(l, first)), bytes);
    if (end <= last && (last > first || whole == first))
        add_in_part(l, last, (last << l->bits), to, bytes);
    add_to_parts(l, whole, end, bytes);
    for (int32_t part = first; part <= last && l->target < INT64_MAX; part++)
        if (l->above[part] > 0 || l->most[part] > l->target)
            find_above(l, part);
}

/* The excess of the steps [from, to) of one part. */
static int64_t above_in_part(const struct range_max *l, int32_t part, int32_t from, int32_t to)
{
    if (l->above[part] == 0 || to - from == 1 << l->bits)
        return l->above[part];
    return steps_above(l->bytes + from, to - from, l->target - l->all[part]);
}

int64_t range_max_gain(const struct range_max *l, int32_t from, int32_t to, int64_t bytes,
                       int64_t enough)
{
    int64_t sum = 0;
    while (from < to && sum < enough) {
        int32_t part = from >> l->bits, end = (int32_t)min_i64(to, part_end(l, part));
        if (l->most[part] + max_i64(bytes, 0) > l->target)
            sum += steps_above(l->bytes + from, end - from, l->target - l->all[part] - bytes) -
                   above_in_part(l, part, from, end);
        from = end;
    }
    return sum;
}

int32_t range_max_clear_from(const struct range_max *l, int32_t from, int32_t to, int64_t limit)
{
    while (to > from) {
        int32_t part = (to - 1) >> l->bits, start = part << l->bits, many = part - MANY + 1;
        if (many > from >> l->bits && most_of_steps(l->most + many, MANY) <= limit) {
            to = many << l->bits;
            continue;
        }
        if (l->most[part] <= limit) {
            to = start > from ? start : from;
            continue;
        }
        for (; to > start && to > from; to--)
            if (range_max_at(l, to - 1) > limit)
                return to;
    }
    return from;
}
