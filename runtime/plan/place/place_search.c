/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree search.  A valley is a run of sections with one floor between higher floors.  At its
 * first section only two things can follow: an item that begins there and ends inside the valley is
 * placed on the floor, or nothing is placed at this height.  The same holds at its last section.
 * The search branches where there are fewest choices.  Parts of time that no open item connects are
 * solved separately.  States without a solution are memoized, across attempts too.
 */
#include <time.h>
#include "plan/place/place_tree.h"

#define MEMO_BITS   18
#define FIRST_NODES 2500 /* per attempt; doubled after each round of all tactics */

/* Which decision comes first among those with equally few choices, and which item is tried first.
 * With the first two tactics alone one minimalloc instance is not placed within 10 s. */
enum where { BY_SLACK, BY_FLOOR, WEIGHTED };
enum which { LONG, LARGE };

struct tactic {
    enum where where;
    enum which which;
};

static const struct tactic tactics[] = {
    {BY_SLACK, LONG}, {BY_FLOOR, LONG}, {WEIGHTED, LONG}, {BY_SLACK, LARGE}};
enum { N_TACTICS = sizeof(tactics) / sizeof(tactics[0]) };

/* A candidate item; candidates are tried in descending order of value. */
struct option {
    double value;
    int32_t item;
};

struct search {
    struct tree t;
    struct place_limit *limit;
    int64_t nodes_left; /* of this attempt */
    struct tactic tactic;
    bool perturb;
    uint64_t random;
    uint64_t *names, *memo;
    LIST(struct option) options;
    int64_t n_options;
    int32_t depth;
    int32_t near; /* the section of the last branch */
    bool stopped;
};

/* A decision at the first or the last section of a valley. */
struct branch {
    int32_t section;
    bool at_start;
    int64_t waste; /* the next floor if no item is placed on this one; -1: capacity forbids it */
};

double place_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e6c63d0876a9a35;
    x ^= x >> 29;
    x *= 0xbf8c7d4a63d8e2c7;
    return x ^ x >> 32;
}

static uint32_t draw(struct search *s, uint32_t n)
{
    s->random += 0x9e3779b97f4a7c15;
    return (uint32_t)(mix(s->random) >> 33) % n;
}

/* A hash of all that decides whether sections [from, to) can still be solved. */
static uint64_t state_key(const struct search *s, int32_t from, int32_t to)
{
    const struct tree *t = &s->t;
    uint64_t key = mix((uint64_t)from << 32 | (uint32_t)to);
    for (int32_t k = from; k < to; k++) {
        key = mix(key ^ (uint64_t)t->floor[k]);
        for (int32_t p = t->starting.start[k]; p < t->starting.start[k + 1]; p++)
            if (!t->placed[t->starting.data[p]])
                key ^= s->names[t->starting.data[p]];
    }
    return mix(key);
}

/* The items whose first section, or whose last section, this is. */
static const int32_t *edge_items(const struct tree *t, int32_t section, bool at_start, int32_t *n)
{
    const struct rows *r = at_start ? &t->starting : &t->ending;
    *n = r->start[section + 1] - r->start[section];
    return r->data + r->start[section];
}

static bool is_option(const struct tree *t, int32_t i, int32_t section)
{
    return !t->placed[i] && t->base[i] == t->floor[section];
}

/* The lowest possible end of an open item on which an item of this edge could rest. */
static int64_t lowest_support(const struct tree *t, int32_t section, bool at_start)
{
    int32_t n, reach = section;
    int64_t lowest = INT64_MAX;
    const int32_t *list = edge_items(t, section, at_start, &n);
    for (int32_t j = 0; j < n; j++) {
        int32_t i = list[j], far = at_start ? t->s->upper[i] - 1 : t->s->lower[i];
        if (is_option(t, i, section) && (at_start ? far > reach : far < reach))
            reach = far;
    }
    for (int32_t k = section; k != reach;) {
        k += at_start ? 1 : -1;
        list = edge_items(t, k, at_start, &n);
        for (int32_t j = 0; j < n; j++)
            if (!t->placed[list[j]])
                lowest = min_i64(lowest, t->base[list[j]] + t->bytes[list[j]]);
    }
    return lowest;
}

/*
 * The next floor of the section if no item is placed on the current floor: each item that could lie
 * there then rests on another item, which lies beside the section.
 */
static int64_t wasted_floor(const struct tree *t, int32_t section, bool at_start)
{
    int64_t floor = lowest_support(t, section, at_start);
    const int32_t *row = t->alive.data + t->alive.start[section];
    for (int32_t j = 0; j < t->prefix[section]; j++)
        if (!t->placed[row[j]] && t->base[row[j]] > t->floor[section])
            floor = min_i64(floor, t->base[row[j]]);
    return floor;
}

/* Fewer choices give a lower score; the tactic breaks ties. */
static double branch_score(struct search *s, int32_t section, int32_t choices)
{
    const struct tree *t = &s->t;
    double capacity = (double)t->capacity;
    double low = (double)t->floor[section] / capacity, score = choices;
    switch (s->tactic.where) {
    case BY_SLACK:
        score += 0.99 * (1 - low - (double)t->left[section] / capacity);
        break;
    case BY_FLOOR:
        score += 0.99 * low;
        break;
    case WEIGHTED:
        score /= 1 + (double)t->failures[section];
    }
    return s->perturb ? score + 1e-4 * draw(s, 1000) : score;
}

/* Returns false if there is at most one choice, so no other branch need be considered. */
static bool consider(struct search *s, int32_t section, bool at_start, int32_t width,
                     double *best_score, struct branch *best)
{
    const struct tree *t = &s->t;
    int32_t n, choices = 0;
    const int32_t *list = edge_items(t, section, at_start, &n);
    for (int32_t j = 0; j < n; j++)
        choices += is_option(t, list[j], section);
    int64_t waste = wasted_floor(t, section, at_start);
    if (waste > t->capacity - t->left[section])
        waste = -1;
    choices += waste >= 0;
    double score = branch_score(s, section, choices);
    s->t.work += n + t->prefix[section] + width;
    if (score < *best_score || choices <= 1) {
        *best_score = score;
        *best = (struct branch){section, at_start, waste};
    }
    return choices > 1;
}

/* Considers the valleys of the part [from, to) that begin in [begin, end). */
static bool consider_valleys(struct search *s, int32_t begin, int32_t end, int32_t from, int32_t to,
                             double *score, struct branch *best)
{
    const int64_t *floor = s->t.floor;
    for (int32_t a = begin, b; a < end; a = b) {
        for (b = a + 1; b < to && floor[b] == floor[a];)
            b++;
        if ((a > from && floor[a - 1] < floor[a]) || (b < to && floor[b] < floor[a]))
            continue;
        if (!consider(s, a, true, b - a, score, best) ||
            !consider(s, b - 1, false, b - a, score, best))
            return false;
    }
    return true;
}

/* Starts with the valleys near the last branch, because choices became few there. */
static struct branch choose_branch(struct search *s, int32_t from, int32_t to)
{
    const int64_t *floor = s->t.floor;
    struct branch best = {from, true, -1};
    double score = 1e300;
    int32_t middle = s->near > from && s->near < to ? s->near : from;
    while (middle > from && floor[middle - 1] == floor[middle])
        middle--;
    if (consider_valleys(s, middle, to, from, to, &score, &best))
        consider_valleys(s, from, middle, from, to, &score, &best);
    s->near = best.section;
    return best;
}

static double item_value(struct search *s, int32_t i)
{
    double value =
        s->tactic.which == LARGE ? (double)s->t.bytes[i] : s->t.s->upper[i] - s->t.s->lower[i];
    return s->perturb ? value * (1 + 5e-5 * draw(s, 1000)) : value;
}

/* Pushes the items to try at a branch, the best first.  Returns how many, or -1. */
static int32_t push_options(struct search *s, const struct branch *b)
{
    int32_t n, count = 0;
    const int32_t *list = edge_items(&s->t, b->section, b->at_start, &n);
    for (int32_t j = 0; j < n; j++) {
        if (!is_option(&s->t, list[j], b->section))
            continue;
        if (POOL_RESERVE(&s->t.memory, &s->options, s->n_options + count))
            return -1;
        struct option *sorted = s->options.data + s->n_options;
        struct option o = {item_value(s, list[j]), list[j]};
        int32_t q = count++;
        for (; q > 0 && sorted[q - 1].value < o.value; q--)
            sorted[q] = sorted[q - 1];
        sorted[q] = o;
    }
    s->n_options += count;
    return count;
}

static bool solve(struct search *s, int32_t from, int32_t to);

/* Solves each part that open items connect, one after the other; all must succeed. */
static bool solve_parts(struct search *s, int32_t from, int32_t to)
{
    for (int32_t a = from, b; a < to; a = b) {
        for (b = a + 1; b < to && s->t.crossing[b - 1] > 0;)
            b++;
        if (s->t.open[a] > 0 && !solve(s, a, b))
            return false;
    }
    return true;
}

static bool out_of_limit(struct search *s)
{
    s->limit->work -= s->t.work + 1;
    s->t.work = 0;
    if (s->nodes_left-- <= 0 || s->limit->work <= 0 || s->depth > 4 * s->t.s->n_items)
        return true;
    return s->limit->until > 0 && s->nodes_left % 16 == 0 && place_clock() > s->limit->until;
}

static bool try_branch(struct search *s, int32_t from, int32_t to, const struct branch *b)
{
    int64_t mark = s->t.n_trail, first = s->n_options;
    int32_t n = push_options(s, b);
    bool found = false;
    if (n < 0)
        s->stopped = true;
    for (int32_t j = 0; j < n && !found && !s->stopped; j++) {
        found = tree_place(&s->t, s->options.data[first + j].item) && solve_parts(s, from, to);
        if (!found)
            tree_undo(&s->t, mark);
    }
    if (!found && !s->stopped && b->waste >= 0) {
        found = tree_raise(&s->t, b->section, b->waste) && solve_parts(s, from, to);
        if (!found)
            tree_undo(&s->t, mark);
    }
    s->n_options = first;
    return found;
}

static bool solve(struct search *s, int32_t from, int32_t to)
{
    uint64_t key = state_key(s, from, to), *memo = &s->memo[key >> (64 - MEMO_BITS)];
    if (*memo == key)
        return false;
    if (out_of_limit(s) || s->t.memory.failed) {
        s->stopped = true;
        return false;
    }
    struct branch b = choose_branch(s, from, to);
    s->depth++;
    bool found = try_branch(s, from, to, &b);
    s->depth--;
    if (!found && !s->stopped)
        *memo = key;
    return found;
}

/* Tries every tactic in turn.  Each round has twice the nodes; all but the first are randomized. */
static enum tree_answer attempts(struct search *s)
{
    if (!tree_root(&s->t))
        return TREE_NONE;
    int64_t first = FIRST_NODES + s->t.s->n_items;
    for (int64_t nodes = first;; nodes *= 2) {
        for (int k = 0; k < N_TACTICS; k++) {
            s->tactic = tactics[k];
            s->perturb = nodes > first;
            s->nodes_left = nodes;
            s->stopped = false;
            int64_t mark = s->t.n_trail;
            if (solve_parts(s, 0, s->t.s->n))
                return TREE_FOUND;
            tree_undo(&s->t, mark);
            if (s->t.memory.failed)
                return TREE_NO_MEMORY;
            if (!s->stopped)
                return TREE_NONE;
            if (s->limit->work <= 0 || (s->limit->until > 0 && place_clock() > s->limit->until))
                return TREE_LIMIT;
        }
    }
}

enum tree_answer tree_search(const struct sections *sections, const int64_t *bytes,
                             int64_t capacity, struct place_limit *limit, int64_t *offsets)
{
    struct search s = {.limit = limit, .random = 1};
    int32_t n = sections->n_items;
    enum tree_answer answer = TREE_NO_MEMORY;
    if (tree_init(&s.t, sections, bytes, capacity))
        return answer;
    POOL_ARRAY(&s.t.memory, s.names, n);
    POOL_ARRAY(&s.t.memory, s.memo, 1 << MEMO_BITS);
    if (!s.t.memory.failed) {
        for (int32_t i = 0; i < n; i++)
            s.names[i] = mix((uint64_t)i + 0x5851f42d4c957f2d);
        s.t.work = s.t.alive.start[sections->n];
        answer = attempts(&s);
    }
    for (int32_t i = 0; answer == TREE_FOUND && i < n; i++)
        offsets[i] = s.t.offset[i];
    tree_free(&s.t);
    return answer;
}
