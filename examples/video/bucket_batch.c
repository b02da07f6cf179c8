/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch sizes that the table of buckets leaves open.  They are chosen before the first step, from
 * plans alone: for each size and length the batch with the most samples per second that fits the
 * budget and whose step is no longer than a base time, so that ranks stay in step with any bucket.
 * Open-Sora searches the same batches on a GPU, by running out of memory.
 *
 * The choice depends only on forecasts, which are the same on all ranks.  A saved state contains
 * it, and a resumed run uses it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "../common/say.h"
#include "shapes.h"

#define NOTE "batches of the buckets"

enum {
    CLOSE = 8,   /* the batch found is below the optimum by at most 1/CLOSE */
    NEARLY = 20, /* times within 1/NEARLY count as equal: the largest batch wins */
    MOST = 65536 /* samples, as in the table */
};

struct choice {
    const struct video_batches *asked;
    int64_t unit; /* a batch is a multiple of this: --micro-batch */
    double base;  /* seconds: upper limit of a step */
};

/* A batch and the forecast of its step; INFINITY: longer than the base, or does not fit. */
struct tried {
    int64_t n; /* units */
    double seconds;
    bool fits;
};

static bool is_open(const struct video_shapes *d, const struct bucket *b)
{
    return d->buckets.row[b->row].entry[b->entry].open;
}

static int count_open(const struct video_shapes *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += is_open(d, &d->shape[i].bucket);
    return n;
}

/* ---- forecasts ------------------------------------------------------------------------------- */

/* limit 0: no limit.  Returns 0, or -1 after a sentence. */
static int try_batch(const struct choice *c, struct video_shape *s, double limit, struct tried *t)
{
    struct ckpt_forecast f = CKPT_FORECAST_INIT;
    int rc = c->asked->forecast(c->asked->user, s, t->n * c->unit, limit, &f);

    if (rc && rc != CKPT_EBUDGET)
        return say_fail("bucket %s: %s", s->name, ckpt_error(c->asked->context));
    t->fits = !rc;
    t->seconds = rc ? INFINITY : f.step_seconds;
    return 0;
}

static int64_t clamp(double n, int64_t low, int64_t high)
{
    int64_t whole = n < (double)high ? (int64_t)n : high;

    return whole < low ? low : whole;
}

/*
 * The next number of units to try, above the largest feasible and below the smallest infeasible
 * one: where interpolated times reach the base.  While no infeasible number is known (n 0), at most
 * eight times the last one, because the fastest batch may be far below the largest.
 */
static int64_t next_to_try(const struct choice *c, const struct tried *good,
                           const struct tried *bad, int64_t most)
{
    if (!bad->n)
        return clamp((double)good->n * fmin(8, c->base / good->seconds), good->n + 1, most);
    if (isinf(bad->seconds))
        return good->n + (bad->n - good->n) / 2;
    double slope = (bad->seconds - good->seconds) / (double)(bad->n - good->n);
    return clamp((double)good->n + (c->base - good->seconds) / slope, good->n + 1, bad->n - 1);
}

static bool is_found(const struct tried *good, const struct tried *bad, int64_t most)
{
    return bad->n ? bad->n - good->n <= 1 + good->n / CLOSE : good->n >= most;
}

static double rate(const struct tried *t)
{
    return (double)t->n / t->seconds;
}

/* Searches from a batch of one unit, which is feasible, to the best.  Returns 0, or -1 after a
 * sentence. */
static int climb(const struct choice *c, struct video_shape *s, int64_t most, struct tried *best)
{
    struct tried good = *best, bad = {0};

    while (!is_found(&good, &bad, most)) {
        struct tried t = {.n = next_to_try(c, &good, &bad, most)};
        if (try_batch(c, s, c->base, &t))
            return -1;
        bool will_do = t.fits && t.seconds <= c->base;
        if (will_do && rate(&t) >= rate(best) * (1 - 1. / NEARLY))
            *best = t;
        *(will_do ? &good : &bad) = t;
    }
    return 0;
}

/* ---- one size and length --------------------------------------------------------------------- */

/* Tokens of a clip: one for 2 x 2 cells. */
static int64_t tokens(const struct video_shape *s)
{
    const struct video_geometry *g = &s->geometry;

    return g->frames * ((g->height + 1) / 2) * ((g->width + 1) / 2);
}

/* The ratio of an entry with the most tokens; NULL: the entry has no clips. */
static struct video_shape *largest_of(const struct video_shapes *d, int row, int entry)
{
    struct video_shape *s = NULL;

    for (int i = 0; i < d->n; i++) {
        struct video_shape *other = &d->shape[i];
        if (other->bucket.row == row && other->bucket.entry == entry &&
            (!s || tokens(other) > tokens(s)))
            s = other;
    }
    return s;
}

/* Expected units of an epoch for each rank, of the ratio with the most clips. */
static int64_t most_units(const struct choice *c, int row, int entry)
{
    const struct video_shapes *d = c->asked->shapes;
    const struct bucket_entry *e = &d->buckets.row[row].entry[entry];
    double chance = e->keep * (e->look < 0 ? 1 : e->look), most = 0;

    for (int i = 0; i < d->n; i++)
        if (d->shape[i].bucket.row == row && d->shape[i].bucket.entry == entry)
            most = fmax(most, (double)d->shape[i].possible);
    most *= chance / (double)(ckpt_sample_groups(c->asked->context) * c->unit);
    return clamp(most, 1, MOST / c->unit > 1 ? MOST / c->unit : 1);
}

static void set_batch(struct video_shapes *d, int row, int entry, int64_t batch)
{
    d->buckets.row[row].entry[entry].batch = batch;
    for (int i = 0; i < d->n; i++)
        if (d->shape[i].bucket.row == row && d->shape[i].bucket.entry == entry)
            d->shape[i].batch = batch;
}

/* *refused: number of entries that do not fit with any batch. */
static int choose(const struct choice *c, int row, int entry, int *refused)
{
    struct video_shapes *d = c->asked->shapes;
    struct video_shape *s = largest_of(d, row, entry);
    struct tried best = {.n = 1};

    if (!s)
        return 0;
    if (try_batch(c, s, 0, &best))
        return -1;
    if (!best.fits) {
        say_fail("bucket %s does not fit with a batch of %lld: %s", s->name, (long long)c->unit,
                 ckpt_error(c->asked->context));
        ++*refused;
        return 0;
    }
    if (best.seconds <= c->base && climb(c, s, most_units(c, row, entry), &best))
        return -1;
    set_batch(d, row, entry, best.n * c->unit);
    return 0;
}

/* ---- the base -------------------------------------------------------------------------------- */

/* The step time of the slowest bucket with a given batch, else of one unit of the largest
 * bucket. */
static int find_base(struct choice *c)
{
    struct video_shapes *d = c->asked->shapes;
    struct video_shape *largest = NULL;

    c->base = c->asked->seconds;
    if (c->base > 0)
        return 0;
    for (int row = 0; row < d->buckets.n; row++)
        for (int i = 0; i < d->buckets.row[row].n; i++) {
            const struct bucket_entry *e = &d->buckets.row[row].entry[i];
            struct video_shape *s = largest_of(d, row, i);
            struct choice given = *c;
            struct tried t = {.n = e->batch};
            if (s && (!largest || tokens(s) > tokens(largest)))
                largest = s;
            if (!s || e->open)
                continue;
            given.unit = 1;
            if (try_batch(&given, s, 0, &t))
                return -1;
            c->base = t.fits ? fmax(c->base, t.seconds) : c->base;
        }
    struct tried one = {.n = 1};
    if (c->base > 0 || !largest)
        return 0;
    if (try_batch(c, largest, 0, &one))
        return -1;
    c->base = one.seconds; /* INFINITY if it does not fit; an error follows */
    return 0;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* "144p 51 12; ...": size, frames and batch of all open entries, in the order of the table. */
static char *batches_text(const struct video_shapes *d)
{
    enum { LONGEST = 64 };
    size_t room = 1, at = 0;

    for (int i = 0; i < d->buckets.n; i++)
        room += (size_t)d->buckets.row[i].n * LONGEST;
    char *text = calloc(room, 1);
    for (int i = 0; text && i < d->buckets.n; i++)
        for (int k = 0; k < d->buckets.row[i].n; k++) {
            const struct bucket_entry *e = &d->buckets.row[i].entry[k];
            if (e->open)
                at += (size_t)snprintf(text + at, room - at, "%s%s %lld %lld", at ? "; " : "",
                                       d->buckets.row[i].size->name, (long long)e->frames,
                                       (long long)e->batch);
        }
    return text;
}

/* Sets the batches of a state if it has the same open entries. */
static bool take_batches(struct video_shapes *d, const char *was)
{
    for (int i = 0; i < d->buckets.n; i++)
        for (int k = 0; k < d->buckets.row[i].n; k++) {
            char name[32];
            long long frames, batch;
            int used = 0;
            if (!d->buckets.row[i].entry[k].open)
                continue;
            if (sscanf(was, "%31s %lld %lld%n", name, &frames, &batch, &used) != 3 ||
                strcmp(name, d->buckets.row[i].size->name) ||
                frames != d->buckets.row[i].entry[k].frames || batch < 1 || batch > MOST)
                return false;
            set_batch(d, i, k, batch);
            was += used;
            was += strspn(was, "; ");
        }
    return !*was;
}

/* *taken: the batches of the resumed state are used. */
static int take_from_state(const struct video_batches *b, bool *taken)
{
    const struct resume_options *o = b->state;
    ckpt_file *f;
    int rc = 0;

    *taken = false;
    if (!o->from || ckpt_file_open(&f, o->from))
        return 0; /* resume reports the error */
    const char *was = ckpt_file_note(f, CKPT_STATE_NOTE NOTE);
    if (was)
        *taken = take_batches(b->shapes, was);
    if (!*taken && !o->changed)
        rc =
            say_fail("%s: the state was made with batches of %s; --resume-changed selects new ones",
                     o->from, was ? "other buckets" : "the table, which leaves them open now");
    ckpt_file_close(f);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int note(const struct video_batches *b)
{
    char *text = batches_text(b->shapes);

    if (!text)
        return say_fail("no memory for the batches of buckets");
    int rc = ckpt_state_note(b->context, NOTE, text);
    free(text);
    return rc ? say_fail("%s", ckpt_error(b->context)) : 0;
}

static int choose_all(struct choice *c)
{
    const struct buckets *b = &c->asked->shapes->buckets;
    int refused = 0;

    if (find_base(c))
        return -1;
    for (int row = 0; row < b->n; row++)
        for (int i = 0; i < b->row[row].n; i++)
            if (b->row[row].entry[i].open && choose(c, row, i, &refused))
                return -1;
    return refused ? -1 : 0;
}

int video_choose_batches(const struct video_batches *b)
{
    struct choice c = {b, b->micro > 0 ? b->micro : 1, 0};
    bool taken;

    if (!count_open(b->shapes))
        return 0;
    if (take_from_state(b, &taken) || (!taken && choose_all(&c)))
        return -1;
    if (taken)
        say_print("batches: from %s\n", b->state->from);
    else
        say_print("batches: chosen by plans for steps of at most %.1f ms\n", c.base * 1e3);
    return note(b);
}
