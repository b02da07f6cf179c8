/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that end a step together though their clips differ: --balance.  The weight of a bucket is
 * the predicted time of its step, or the tokens of its batch; step_order.c gives ranks batches of
 * about one weight.  Predicted times may change between two runs, where ops are timed, so a state
 * contains them, and a resumed run uses those.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "../common/say.h"
#include "shapes.h"

#define NOTE "predicted times of the buckets"

enum { NUMBER = 22 /* characters of one, with a blank */ };

/* ---- weights --------------------------------------------------------------------------------- */

/* Of a step of one rank: nanoseconds, or tokens of 2 x 2 cells. */
static int64_t weigh(const struct video_shape *s, enum balance kind)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    const struct video_geometry *g = &s->geometry;

    if (kind == BALANCE_TOKENS)
        return s->batch * g->frames * ((g->height + 1) / 2) * ((g->width + 1) / 2);
    ckpt_program_info(s->training, &info);
    return info.step_seconds > 0 ? (int64_t)(info.step_seconds * 1e9) : 0;
}

static int weigh_all(const struct video_shapes *d, enum balance kind, int64_t *weight)
{
    for (int i = 0; i < d->n; i++) {
        weight[i] = weigh(&d->shape[i], kind);
        if (!weight[i])
            return say_fail("--balance time: there is no predicted time for the step of bucket %s; "
                            "give --machine FILE, or --balance tokens",
                            d->shape[i].name);
    }
    return 0;
}

/* Rank 0's: others may have timed their ops themselves. */
static int use_first(const struct video_shapes *d, ckpt *c, int64_t *weight)
{
    const size_t bytes = (size_t)d->n * sizeof *weight;
    int64_t *all = calloc((size_t)ckpt_ranks(c), bytes);
    int rc = all ? 0 : say_fail("no memory for the weights of %d buckets", d->n);

    if (!rc && ckpt_gather_ranks(c, weight, bytes, all))
        rc = say_fail("%s", ckpt_error(c));
    if (!rc)
        memcpy(weight, all, bytes);
    free(all);
    return rc;
}

/* ---- states ---------------------------------------------------------------------------------- */

static bool parse(const char *text, int n, int64_t *weight)
{
    for (int i = 0; i < n; i++) {
        char *end;
        weight[i] = strtoll(text, &end, 10);
        if (end == text || weight[i] <= 0)
            return false;
        text = end;
    }
    return !*text;
}

/* Whether the resumed state has times of as many buckets. */
static bool take_from_state(const struct video_shapes *d, const char *from, int64_t *weight)
{
    ckpt_file *f;
    bool taken = false;

    if (!from || ckpt_file_open(&f, from))
        return false; /* resume reports the error */
    const char *was = ckpt_file_note(f, CKPT_STATE_NOTE NOTE);
    if (was)
        taken = parse(was, d->n, weight);
    ckpt_file_close(f);
    return taken;
}

static int note(const struct video_shapes *d, ckpt *c, const int64_t *weight)
{
    const size_t size = (size_t)d->n * NUMBER + 1;
    char *text = calloc(size, 1);
    int rc = text ? 0 : say_fail("no memory for the weights of %d buckets", d->n);
    size_t at = 0;

    for (int i = 0; i < d->n && !rc; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? " " : "", (long long)weight[i]);
    if (!rc && ckpt_state_note(c, NOTE, text))
        rc = say_fail("%s", ckpt_error(c));
    free(text);
    return rc;
}

/* ---- programs -------------------------------------------------------------------------------- */

static int mix(const struct video_shapes *d, ckpt *c)
{
    const ckpt_program *differs;

    if (!ckpt_mix_programs(c, &differs))
        return 0;
    for (int i = 0; i < d->n; i++)
        if (differs && d->shape[i].training == differs)
            return say_fail("--balance: bucket %s: %s", d->shape[i].name, ckpt_error(c));
    return say_fail("--balance: %s", ckpt_error(c));
}

/* ---- all of it ------------------------------------------------------------------------------- */

int video_balance(struct video_shapes *d, ckpt *c, enum balance kind,
                  const struct resume_options *state)
{
    if (kind == BALANCE_NONE)
        return 0;
    int64_t *weight = calloc((size_t)d->n, sizeof *weight);
    const bool timed = kind == BALANCE_TIME;
    int rc = weight ? 0 : say_fail("no memory for the weights of %d buckets", d->n);

    if (!rc && !(timed && take_from_state(d, state->from, weight)))
        rc = weigh_all(d, kind, weight);
    if (!rc)
        rc = use_first(d, c, weight);
    if (!rc && timed)
        rc = note(d, c, weight);
    if (!rc)
        rc = resume_note_count(c, RESUME_DEALT, ckpt_ranks(c));
    for (int i = 0; i < d->n && !rc; i++)
        d->shape[i].weight = (double)weight[i];
    rc = rc ? rc : mix(d, c);
    d->balanced = !rc;
    free(weight);
    return rc;
}
