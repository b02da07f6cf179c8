/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long ranks wait for each other in an epoch, by predicted times; runs nothing.
 *
 *   bench_balance clips TABLE PLAN CLIPS   drawn clips in the buckets of a table; PLAN is what
 *                                stdit-train --plan-only prints with that table: the time of each
 *                                size and length, taken for all its ratios, by their pixels
 *   bench_balance rows LENGTH WHOLE HALVES SAMPLES   packed rows; WHOLE and HALVES are predicted
 *                                seconds of a row with one sample, and with two of half the length
 *
 * Dealings of clips: Open-Sora 1.2's, in which every rank takes the next batch; the same with
 * batches of equal tokens; one bucket for all ranks; batches sorted by tokens, and by time.  The
 * last line is the dealing by time where the true time of each bucket is up to 3 % beside the
 * predicted one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../examples/common/balance.h"
#include "../../examples/common/say.h"
#include "../../examples/lm/dataset.h"
#include "../../examples/video/buckets.h"

const char say_program[] = "bench_balance";

enum { ENTRIES = 64, SEED = 42, MOST_RANKS = 256, TIMES = 3 };
static const int ranks_of[TIMES] = {8, 64, MOST_RANKS};

static double draw(void)
{
    static uint64_t x = 7;

    x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(x >> 11) * 0x1p-53;
}

/* ---- clips ----------------------------------------------------------------------------------- */

/* Of a size and length: the tokens and the predicted seconds of a clip, for each pixel. */
struct price {
    double tokens, seconds;
};

/* Seven of ten clips are wide; three of ten are pictures, some of them large; most have 720 lines,
 * and lengths up to 650 frames, the short ones more often. */
static struct bucket_sample draw_clip(void)
{
    static const int64_t lines[] = {360, 360, 540, 540, 720, 720, 720, 720, 720, 1080};
    struct bucket_sample s = {.height = lines[(int)(draw() * 10)]};
    const double shape = draw(), length = draw();

    s.frames = draw() < 0.3 ? 1 : 52 + (int64_t)(600 * length * length);
    s.height *= s.frames == 1 && draw() < 0.3 ? 2 : 1;
    s.width = shape < 0.85 ? s.height * 16 / 9 : shape < 0.93 ? s.height * 4 / 3 : s.height;
    if (shape >= 0.7 && shape < 0.85)
        s = (struct bucket_sample){s.frames, s.width, s.height};
    return s;
}

static void set_price(const struct buckets *b, struct price *price, const char *size,
                      int64_t frames, double pixels, double seconds)
{
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->row[i].n; k++) {
            const struct bucket_entry *e = &b->row[i].entry[k];
            if (strcmp(b->row[i].size->name, size) || e->frames != frames)
                continue;
            /* 17 frames have 5 latents; a token is 16 x 16 pixels */
            const int64_t latents = frames / 17 * 5 + (frames % 17 + 3) / 4;
            price[e->number] =
                (struct price){(double)latents / 256, seconds / (double)e->batch / pixels};
        }
}

/* Lines such as "144p 51 0.56  256x144  3000  51  51  10.42 MiB  8.9 ms". */
static int read_plan(const char *path, const struct buckets *b, struct price *price)
{
    char line[512], size[32];
    FILE *f = fopen(path, "r");
    long long frames, width, height;

    if (!f)
        return say_fail("%s: cannot be read", path);
    while (fgets(line, sizeof line, f)) {
        const char *ms = strstr(line, " ms");
        if (!ms || sscanf(line, "%31s %lld %*s %lldx%lld", size, &frames, &width, &height) != 4)
            continue;
        while (ms > line && ms[-1] != ' ')
            ms--;
        set_price(b, price, size, frames, (double)(width * height), atof(ms) * 1e-3);
    }
    fclose(f);
    return 0;
}

struct clips {
    struct buckets table;
    struct bucket_sample *sample;
    int64_t n;
    struct price price[ENTRIES];
};

static const struct price *price_of(const struct clips *c, const struct bucket *b)
{
    return &c->price[c->table.row[b->row].entry[b->entry].number];
}

/* Of a batch of a list. */
static double of_list(const struct clips *c, const struct bucket_list *l, bool seconds)
{
    int64_t height, width;
    const struct price *p = price_of(c, &l->bucket);

    aspect_frame(c->table.row[l->bucket.row].size, l->bucket.ratio, &height, &width);
    return (double)(l->batch * height * width) * (seconds ? p->seconds : p->tokens);
}

enum dealing { NEXT, ONE_BUCKET, BY_TOKENS, BY_TIME };

struct result {
    double slowest, mean; /* seconds of all steps: of their slowest rank, of the mean rank */
    int64_t steps, clips;
};

static void sort(const double *weight, int n, int *order)
{
    for (int i = 0, at; i < n; i++) {
        for (at = i; at && weight[order[at - 1]] > weight[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static bool deal(struct bucket_epoch *e, enum dealing how, int ranks, const int *order,
                 struct bucket_deal *deals)
{
    if (how == ONE_BUCKET)
        return bucket_epoch_next(e, ranks, deals);
    if (how != NEXT)
        return bucket_epoch_balance(e, ranks, order, SEED, deals);
    for (int r = 0; r < ranks; r++)
        deals[r].list = (int)e->order[e->next++];
    return true;
}

/* wrong: how far the true time of a bucket may be beside the predicted one. */
static struct result run(const struct clips *c, enum dealing how, int ranks, double wrong)
{
    struct bucket_epoch e;
    struct result result = {0};
    struct bucket_deal deals[MOST_RANKS];

    if (bucket_epoch_make(&e, &c->table, c->sample, NULL, c->n, 1, SEED, 0))
        exit(1);
    double *weight = calloc((size_t)e.n + 1, sizeof *weight);
    double *seconds = calloc((size_t)e.n + 1, sizeof *seconds);
    int *order = calloc((size_t)e.n + 1, sizeof *order);
    if (!weight || !seconds || !order)
        exit(1);
    for (int i = 0; i < e.n; i++) {
        weight[i] = of_list(c, &e.list[i], how == BY_TIME);
        seconds[i] = of_list(c, &e.list[i], true) * (1 + wrong * (2 * draw() - 1));
    }
    sort(weight, e.n, order);
    const int64_t whole = e.n_order / ranks;
    while ((how != NEXT || result.steps < whole) && deal(&e, how, ranks, order, deals)) {
        double most = 0;
        for (int r = 0; r < ranks; r++) {
            most = fmax(most, seconds[deals[r].list]);
            result.mean += seconds[deals[r].list] / ranks;
            result.clips += e.list[deals[r].list].batch;
        }
        result.slowest += most;
        result.steps++;
    }
    free(weight);
    free(seconds);
    free(order);
    bucket_epoch_free(&e);
    return result;
}

/* Batches of about as many tokens as those of the table have in the mean. */
static void equal_tokens(struct clips *c)
{
    double all = 0, n = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < c->table.n; i++)
            for (int k = 0; k < c->table.row[i].n; k++) {
                struct bucket_entry *e = &c->table.row[i].entry[k];
                const double clip =
                    (double)c->table.row[i].size->pixels * c->price[e->number].tokens;
                if (e->keep <= 0)
                    continue;
                if (pass)
                    e->batch = (int64_t)fmax(1, round(all / n / clip));
                all += pass ? 0 : clip * (double)e->batch;
                n += !pass;
            }
}

static void print(const char *name, int ranks, const struct clips *c, const struct result *r)
{
    printf("| %d | %s | %lld | %.1f %% | %.1f %% | %.3f |\n", ranks, name, (long long)r->steps,
           100 * (double)r->clips / (double)c->n, 100 * fmax(0, r->slowest / r->mean - 1),
           r->mean / r->slowest);
}

static int bench_clips(char **argument)
{
    struct clips c = {.n = atoll(argument[2])}, equal;
    struct result r;

    if (buckets_read(&c.table, argument[0]) || read_plan(argument[1], &c.table, c.price))
        return 1;
    c.sample = calloc((size_t)c.n, sizeof *c.sample);
    for (int64_t i = 0; c.sample && i < c.n; i++)
        c.sample[i] = draw_clip();
    equal = c;
    if (!c.sample || buckets_read(&equal.table, argument[0]))
        return 1;
    equal_tokens(&equal);
    printf("| ranks | dealing | steps | clips used | slowest above mean | of the time ranks "
           "compute |\n"
           "|---|---|---|---|---|---|\n");
    for (int i = 0; i < TIMES; i++) {
        const int ranks = ranks_of[i];
        r = run(&c, NEXT, ranks, 0);
        print("Open-Sora's: the next batches", ranks, &c, &r);
        r = run(&equal, NEXT, ranks, 0);
        print("the next batches, of equal tokens", ranks, &c, &r);
        r = run(&c, ONE_BUCKET, ranks, 0);
        print("`none`: one bucket", ranks, &c, &r);
        r = run(&c, BY_TOKENS, ranks, 0);
        print("`tokens`", ranks, &c, &r);
        r = run(&c, BY_TIME, ranks, 0);
        print("`time`", ranks, &c, &r);
        r = run(&c, BY_TIME, ranks, 0.03);
        print("`time`, predicted within 3 %", ranks, &c, &r);
    }
    buckets_free(&c.table);
    buckets_free(&equal.table);
    free(c.sample);
    return 0;
}

/* ---- packed rows ----------------------------------------------------------------------------- */

/* Lengths of samples: log-normal, with a median of a sixteenth of a row. */
static struct piece draw_sample(int64_t length)
{
    const double normal = sqrt(-2 * log(1 - draw())) * cos(6.283185307179586 * draw());
    const double n = (double)length / 16 * exp(1.2 * normal);

    return (struct piece){.n = (int32_t)fmax(1, fmin(n, (double)length))};
}

/* How far the slowest rank is above the mean in the steps of an epoch; weights: NULL: the next
 * rows.
 */
static double excess(const double *seconds, const struct dataset *d, int ranks, int64_t batch,
                     bool balanced)
{
    const int64_t n = ranks * batch;
    double slowest = 0, mean = 0, *step = calloc((size_t)n, sizeof *step);
    int64_t *dealt = calloc((size_t)n, sizeof *dealt);

    for (int64_t first = 0; step && dealt && first + n <= d->rows; first += n) {
        double most = 0;
        for (int64_t i = 0; i < n; i++) {
            step[i] = seconds[dataset_row(d, first + i)];
            dealt[i] = i;
        }
        if (balanced && balance_deal(step, n, ranks, dealt))
            exit(1);
        for (int r = 0; r < ranks; r++) {
            double own = 0;
            for (int64_t i = 0; i < batch; i++)
                own += step[dealt[r * batch + i]];
            most = fmax(most, own);
            mean += own / ranks;
        }
        slowest += most;
    }
    free(step);
    free(dealt);
    return 100 * (slowest / mean - 1);
}

static int bench_rows(char **argument)
{
    const int64_t length = atoll(argument[0]), n = atoll(argument[3]);
    const double whole = atof(argument[1]), halves = atof(argument[2]);
    const double square = (double)length * (double)length, pair = 2 * (whole - halves) / square;
    struct piece *sample = calloc((size_t)n, sizeof *sample);
    const struct tokens none = {.n = 0};
    struct dataset d;

    for (int64_t i = 0; sample && i < n; i++)
        sample[i] = draw_sample(length);
    if (!sample || dataset_open_samples(&d, &none, sample, n, true, length, 1, SEED, true))
        return 1;
    double *seconds = calloc((size_t)d.rows, sizeof *seconds);
    for (int64_t i = 0; seconds && i < d.rows; i++) {
        seconds[i] = whole - pair * square;
        for (int64_t k = d.first_piece[i]; k < d.first_piece[i + 1]; k++)
            seconds[i] += pair * (double)d.piece[k].n * (double)d.piece[k].n;
    }
    if (!seconds)
        return 1;
    printf("| ranks | rows of each | equal tokens | `time` |\n|---|---|---|---|\n");
    for (int i = 0; i < TIMES; i++)
        for (int64_t batch = 1; batch <= 16; batch *= 2)
            printf("| %d | %lld | %.1f %% | %.1f %% |\n", ranks_of[i], (long long)batch,
                   excess(seconds, &d, ranks_of[i], batch, false),
                   excess(seconds, &d, ranks_of[i], batch, true));
    free(seconds);
    dataset_close(&d);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "clips"))
        return bench_clips(argv + 2);
    if (argc == 6 && !strcmp(argv[1], "rows"))
        return bench_rows(argv + 2);
    return say_fail("give clips TABLE PLAN CLIPS, or rows LENGTH WHOLE HALVES SAMPLES") ? 2 : 0;
}
