/* SPDX-License-Identifier: Apache-2.0 */
/* A run with buckets: its printed table, and the notes in its states. */
#include <stdlib.h>
#include "../common/names.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "../common/say.h"
#include "step_order.h"

/* ---- the table before the first step --------------------------------------------------------- */

static bool is_open(const struct video_shapes *d, const struct video_shape *s)
{
    return d->buckets.row[s->bucket.row].entry[s->bucket.entry].open;
}

static bool any_is_open(const struct video_shapes *d)
{
    bool any = false;

    for (int i = 0; i < d->n; i++)
        any |= is_open(d, &d->shape[i]);
    return any;
}

/* open: this batch was chosen; any_open: at least one batch was chosen. */
static void print_bucket(const struct video_shape *s, bool open, bool any_open)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    char peak[32], frame[32], time[32] = "";

    ckpt_program_info(s->training, &info);
    snprintf(frame, sizeof frame, "%.0fx%.0f", s->geometry.pixel_width, s->geometry.pixel_height);
    if (info.step_seconds > 0)
        snprintf(time, sizeof time, "%.1f ms", info.step_seconds * 1e3);
    printf("%-16s %10s %8lld %6lld%s %6lld %11s %12s\n", s->name, frame, (long long)s->possible,
           (long long)s->batch,
           open       ? " auto"
           : any_open ? "     "
                      : "",
           (long long)info.micro_batch, say_bytes(peak, info.planned_peak), time);
}

/* Clips that no step of an epoch takes. */
struct left {
    int64_t homeless;   /* that are in no bucket */
    int64_t few;        /* in buckets that no step can use */
    int64_t rest;       /* that are left when no more steps can be made */
    struct names small; /* the buckets of `few` */
};

/* used: samples of the list that steps take. */
static void leave(struct left *left, const struct video_shapes *d, const struct bucket_list *l,
                  int64_t used)
{
    char name[VIDEO_BUCKET_NAME], text[NAMES_LENGTH];

    if (used || (d->balanced && l->n)) {
        left->rest += l->assigned - used;
        return;
    }
    video_bucket_name(&d->buckets, &l->bucket, name);
    snprintf(text, sizeof text, "%s (%lld of a batch of %lld)", name, (long long)l->assigned,
             (long long)l->batch);
    names_add(&left->small, text);
    left->few += l->assigned;
}

/* What is left in the first epoch; another one draws other buckets where the table says so. */
static struct left count_left(struct video_order *t)
{
    struct bucket_epoch *e = &t->bucket;
    struct left left = {.homeless = t->data->rows};

    if (t->by_weight)
        bucket_epoch_balanced(e, t->ranks);
    for (int i = 0; i < e->n; i++) {
        const struct bucket_list *l = &e->list[i];
        left.homeless -= l->assigned;
        leave(&left, t->data, l,
              (t->by_weight ? e->left[i] : l->n / l->batch / t->ranks * t->ranks) * l->batch);
    }
    return left;
}

static void print_left(const struct left *left, int64_t rows, bool balanced)
{
    char names[NAMES_TEXT];
    int64_t all = left->homeless + left->few + left->rest;

    if (all)
        printf("%lld of %lld clips are in no step of the first epoch:\n", (long long)all,
               (long long)rows);
    if (left->few)
        say_print("  %lld in buckets with less than a batch%s: %s\n", (long long)left->few,
                  balanced ? "" : " for each rank", names_text(&left->small, names));
    if (left->rest)
        printf("  %lld that fill no batch%s\n", (long long)left->rest,
               balanced ? ", or no step of all ranks" : " for each rank");
    if (left->homeless)
        printf("  %lld in no bucket of the table\n", (long long)left->homeless);
}

/* The steps of the first epoch, in the lists' batches alone, which are then as before. */
static void print_balance(struct video_order *t)
{
    struct bucket_epoch *e = &t->bucket;
    const int64_t steps = bucket_epoch_balanced(e, t->ranks);
    double slowest = 0, all = 0;

    for (int64_t i = 0; i < steps; i++) {
        double most = 0, sum = 0;
        bucket_epoch_balance(e, t->ranks, t->by_weight, t->seed, t->deal);
        for (int r = 0; r < t->ranks; r++) {
            const double weight = t->shape[t->deal[r].list]->weight;
            most = weight > most ? weight : most;
            sum += weight;
        }
        slowest += most;
        all += sum / t->ranks;
    }
    for (int i = 0; i < e->n; i++)
        e->list[i].taken = 0;
    if (steps)
        printf(
            "%lld steps in the first epoch, in which the slowest rank is %.1f %% above the mean\n",
            (long long)steps, 100 * (slowest / all - 1));
}

void video_print_buckets(struct video_order *t, const ckpt *c)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    const struct video_shapes *d = t->data;
    char arena[32];
    int64_t peak = 0;

    if (ckpt_rank(c))
        return;
    bool any_open = any_is_open(d);
    printf("%-16s %10s %8s %6s%s %6s %11s %12s\n", "bucket", "frame", "clips", "batch",
           any_open ? "     " : "", "micro", "peak", "step");
    for (int i = 0; i < d->n; i++) {
        print_bucket(&d->shape[i], is_open(d, &d->shape[i]), any_open);
        ckpt_program_info(d->shape[i].training, &info);
        peak = info.planned_peak > peak ? info.planned_peak : peak;
    }
    printf("%d buckets in one arena of %s; clips: how many fit the bucket\n", d->n,
           say_bytes(arena, peak));
    const struct left left = count_left(t);
    print_left(&left, d->rows, d->balanced);
    if (d->balanced && t->ranks > 1)
        print_balance(t);
}

/* ---- states --------------------------------------------------------------------------------- */

int video_note_place(struct video_order *t, ckpt *c, const char *place)
{
    place = place ? place : video_order_place(t);
    if (!place)
        return say_fail("no memory for the place in the buckets");
    return ckpt_state_note(c, VIDEO_PLACE, place) ? say_fail("%s", ckpt_error(c)) : 0;
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, int64_t value)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ ((uint64_t)value >> (8 * i) & 255)) * UINT64_C(1099511628211);
    return hash;
}

/* Hash of all inputs, beside the seed, that determine the order of the steps. */
static uint64_t digest(const struct video_shapes *d)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (int i = 0; i < d->buckets.n; i++)
        for (int k = 0; k < d->buckets.row[i].n; k++) {
            const struct bucket_entry *e = &d->buckets.row[i].entry[k];
            hash = mix(mix(mix(hash, d->buckets.row[i].size->pixels), e->frames), e->batch);
            hash = mix(mix(hash, (int64_t)(e->keep * 1e9)), (int64_t)(e->look * 1e9));
        }
    for (int64_t i = 0; i < d->rows; i++)
        hash = mix(mix(mix(hash, d->size[i].frames), d->size[i].height), d->size[i].width);
    return hash;
}

int video_note_buckets(const struct video_shapes *d, ckpt *c)
{
    char text[24];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)digest(d));
    return ckpt_state_note(c, "digest of buckets and clips", text) ? say_fail("%s", ckpt_error(c))
                                                                   : 0;
}
