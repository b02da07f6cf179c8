/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of --save-logits and --distill: safetensors, of all rows of the data in the order of its
 * files.
 *
 *   ids, logps  I32 and F32 [rows, length, K], the most probable tokens first
 *   digest      I32 [2]: of all tokens and targets, 64 bits
 *
 * It is written a batch at a time, and read by position.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "../common/digest.h"
#include "../common/memory.h"
#include "../common/tensors.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "distill.h"
#include "run.h"

enum { IDS, LOGPS, TENSORS, DIGEST = 2, WORD = 4, HEADER = 512 };

int distill_options_check(struct distill_options *o, const char *loss, bool masked,
                          int64_t vocabulary)
{
    if (!o->from && (o->weight >= 0 || o->temperature >= 0))
        return say_fail("--distill-weight and --distill-temperature are for --distill FILE");
    if (o->top && !o->to)
        return say_fail("--logits-top is for --save-logits FILE");
    if (o->from && o->to)
        return say_fail(
            "--save-logits writes the scores of a teacher, and --distill reads them: take "
            "two runs");
    if ((o->from || o->to) && (loss || masked))
        return say_fail("%s: %s predicts no next tokens", o->from ? "--distill" : "--save-logits",
                        loss ? loss : "BERT");
    o->weight = o->weight < 0 ? 0.5 : o->weight;
    o->temperature = o->temperature < 0 ? 1 : o->temperature;
    if (o->top > vocabulary)
        return say_fail("--logits-top %lld: the vocabulary has %lld tokens", (long long)o->top,
                        (long long)vocabulary);
    if (!o->top)
        o->top = vocabulary < 32 ? vocabulary : 32;
    return 0;
}

/* Of inputs and targets of all rows. */
static int digest_data(struct lm_run *r, int32_t digest[DIGEST])
{
    struct dataset *d = &r->data;
    const bool shuffled = d->shuffled;
    int32_t *row = MEMORY_FOR(sizeof *row, 2, d->length);
    uint64_t sum = DIGEST_START;
    int rc = row ? 0 : say_fail("no memory for a row of %lld tokens", (long long)d->length);

    d->shuffled = false;
    for (int64_t i = 0; i < d->rows && !rc; i++) {
        rc = dataset_read(d, i, 1, row, row + d->length);
        for (int64_t k = 0; k < 2 * d->length && !rc; k++)
            sum = digest_word(sum, (uint32_t)row[k]);
    }
    d->shuffled = shuffled;
    free(row);
    digest[0] = (int32_t)(uint32_t)sum;
    digest[1] = (int32_t)(uint32_t)(sum >> 32);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int check_digest(struct lm_run *r)
{
    const char *path = r->options.distill.from;
    struct ckpt_file_entry e;
    int32_t want[DIGEST], has[DIGEST];
    int i = tensor_find(r->distill.file, path, "digest", 1, (int64_t[]){DIGEST}, &e);

    if (i < 0 || digest_data(r, want))
        return -1;
    if (ckpt_file_read_i32(r->distill.file, i, has, DIGEST))
        return say_fail("%s: %s", path, ckpt_error(NULL));
    if (memcmp(want, has, sizeof want))
        return say_fail(
            "--distill %s: was written for other data or tokens; give --save-logits and "
            "--distill the same --data",
            path);
    return 0;
}

int distill_open(struct lm_run *r)
{
    static const char *const names[TENSORS] = {"ids", "logps"};
    struct distill *d = &r->distill;
    const char *path = r->options.distill.from;
    struct ckpt_file_entry e;

    if ((path || r->options.distill.to) && r->data.first_piece)
        return say_fail("%s: is for tokens and text, not for conversations",
                        path ? "--distill" : "--save-logits");
    if (!path)
        return 0;
    if (ckpt_file_open(&d->file, path))
        return say_fail("--distill %s: %s", path, ckpt_error(NULL));
    for (int k = 0; k < TENSORS; k++) {
        const int64_t shape[] = {r->data.rows, r->data.length, k ? d->top : -1};
        d->tensor[k] = tensor_find(d->file, path, names[k], 3, shape, &e);
        if (d->tensor[k] < 0)
            return -1;
        d->top = e.shape[2];
    }
    return check_digest(r);
}

void distill_close(struct distill *d)
{
    if (d->file)
        ckpt_file_close(d->file);
    free(d->ids);
    free(d->logps);
    *d = (struct distill){.file = NULL};
}

/* Makes the buffers of a batch with `top` tokens at each place. */
static int open_batch(struct lm_run *r, int64_t top)
{
    struct distill *d = &r->distill;
    const int64_t batch = r->options.train.batch, length = r->data.length;

    if (d->ids)
        return 0;
    d->ids = MEMORY_FOR(sizeof *d->ids, batch, length, top);
    d->logps = MEMORY_FOR(sizeof *d->logps, batch, length, top);
    return d->ids && d->logps
               ? 0
               : say_fail("no memory for a teacher's numbers of %lld samples", (long long)batch);
}

static int check_ids(const struct lm_run *r, int64_t n)
{
    const int64_t vocabulary = r->options.config.vocabulary;

    for (int64_t i = 0; i < n; i++)
        if (r->distill.ids[i] < 0 || r->distill.ids[i] >= vocabulary)
            return say_fail("--distill %s: has token %ld; the model has %lld",
                            r->options.distill.from, (long)r->distill.ids[i],
                            (long long)vocabulary);
    return 0;
}

int distill_feed(struct lm_run *r, ckpt_program *p, int64_t first)
{
    struct distill *d = &r->distill;
    const int64_t batch = r->options.train.batch, n = r->data.length * d->top;
    int rc = open_batch(r, d->top);

    for (int64_t i = 0; i < batch && !rc; i++) {
        const int64_t at = dataset_row(&r->data, first + i) * n;
        if (ckpt_file_read_part_i32(d->file, d->tensor[IDS], at, d->ids + i * n, n) ||
            ckpt_file_read_part_f32(d->file, d->tensor[LOGPS], at, d->logps + i * n, n))
            rc = say_fail("--distill %s: %s", r->options.distill.from, ckpt_error(NULL));
    }
    if (rc || check_ids(r, batch * n))
        return -1;
    return ckpt_feed(p, "teacher", d->ids, batch * n * WORD) ||
                   ckpt_feed(p, "teacher_logps", d->logps, batch * n * WORD)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The file being written; stream NULL: by another rank. */
struct writer {
    struct ckpt_replacement *file;
    FILE *stream;
    int64_t row; /* bytes of a row of one tensor */
    int64_t rows;
};

static int write_header(struct writer *w, struct lm_run *r)
{
    const int64_t all = w->row * w->rows;
    char text[HEADER + 1];
    int32_t digest[DIGEST];
    const unsigned char size[8] = {HEADER & 255, HEADER >> 8};

    int n = snprintf(text, sizeof text,
                     "{\"ids\":{\"dtype\":\"I32\",\"shape\":[%" PRId64 ",%" PRId64 ",%" PRId64
                     "],\"data_offsets\":[0,%" PRId64 "]},\"logps\":{\"dtype\":\"F32\",\"shape\":["
                     "%" PRId64 ",%" PRId64 ",%" PRId64 "],\"data_offsets\":[%" PRId64 ",%" PRId64
                     "]},\"digest\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[%" PRId64
                     ",%" PRId64 "]}}",
                     w->rows, r->data.length, r->options.distill.top, all, w->rows, r->data.length,
                     r->options.distill.top, all, 2 * all, 2 * all, 2 * all + DIGEST * WORD);
    memset(text + n, ' ', (size_t)(HEADER - n));
    if (digest_data(r, digest))
        return -1;
    bool ok = fwrite(size, sizeof size, 1, w->stream) && fwrite(text, HEADER, 1, w->stream) &&
              !fseeko(w->stream, 8 + HEADER + 2 * all, SEEK_SET) &&
              fwrite(digest, sizeof digest, 1, w->stream);
    return ok ? 0 : say_fail("--save-logits %s: %s", r->options.distill.to, strerror(errno));
}

static int write_rows(struct writer *w, const struct lm_run *r, int k, int64_t first, int64_t n,
                      const void *values)
{
    const int64_t at = 8 + HEADER + (k * w->rows + first) * w->row;

    if (!fseeko(w->stream, at, SEEK_SET) &&
        fwrite(values, (size_t)w->row, (size_t)n, w->stream) == (size_t)n)
        return 0;
    return say_fail("--save-logits %s: %s", r->options.distill.to, strerror(errno));
}

/* Runs the program on the rows from `first` on, around the end of the data. */
static int run_rows(struct lm_run *r, int64_t first)
{
    struct distill *d = &r->distill;
    const int64_t batch = r->options.train.batch, length = r->data.length;
    const int64_t n = batch * length * r->options.distill.top * WORD;

    for (int64_t i = 0; i < batch; i++)
        if (dataset_read(&r->data, (first + i) % r->data.rows, 1, r->in[LM_TOKENS] + i * length,
                         r->in[LM_TARGETS] + i * length))
            return -1;
    return ckpt_feed(d->writing, "tokens", r->in[LM_TOKENS], batch * length * WORD) ||
                   ckpt_step(d->writing, NULL) || ckpt_fetch(d->writing, "ids", d->ids, n) ||
                   ckpt_fetch(d->writing, "logps", d->logps, n)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

/* The batches of the first rank of each group, one after another. */
static void take_groups(const struct lm_run *r, int64_t bytes, char *all)
{
    const int groups = ckpt_sample_groups(r->context), each = ckpt_ranks(r->context) / groups;

    for (int g = 1; g < groups && each > 1; g++)
        memcpy(all + g * bytes, all + g * each * bytes, (size_t)bytes);
}

/* Each group of ranks computes a batch of every `groups` of them, and rank 0 writes. */
static int write_round(struct writer *w, struct lm_run *r, int64_t first, void *all)
{
    const int64_t batch = r->options.train.batch, groups = ckpt_sample_groups(r->context);
    const int64_t left = w->rows - first, n = left < groups * batch ? left : groups * batch;
    const void *const own[TENSORS] = {r->distill.ids, r->distill.logps};

    if (run_rows(r, first + ckpt_sample_group(r->context) * batch))
        return -1;
    for (int k = 0; k < TENSORS; k++) {
        if (ckpt_gather_ranks(r->context, own[k], (size_t)(batch * w->row), all))
            return say_fail("%s", ckpt_error(r->context));
        take_groups(r, batch * w->row, all);
        if (w->stream && write_rows(w, r, k, first, n, all))
            return -1;
    }
    return 0;
}

static int write_all(struct writer *w, struct lm_run *r)
{
    const int64_t batch = r->options.train.batch, ranks = ckpt_ranks(r->context);
    void *all = MEMORY_FOR(1, ranks, batch, w->row);
    const bool shuffled = r->data.shuffled;
    int rc = all ? 0 : say_fail("no memory for the scores of %lld samples", (long long)batch);

    if (!rc && w->stream)
        rc = write_header(w, r);
    r->data.shuffled = false;
    for (int64_t first = 0; first < w->rows && !rc;
         first += ckpt_sample_groups(r->context) * batch)
        rc = write_round(w, r, first, all);
    r->data.shuffled = shuffled;
    free(all);
    return rc;
}

int distill_write(struct lm_run *r)
{
    const char *path = r->options.distill.to;
    struct writer w = {.rows = r->data.rows, .row = r->data.length * r->options.distill.top * WORD};

    if (lm_open_batch(r) || open_batch(r, r->options.distill.top))
        return -1;
    if (!ckpt_rank(r->context) && ckpt_replace_open(&w.file, path))
        return say_fail("--save-logits %s", ckpt_error(NULL));
    w.stream = w.file ? ckpt_replace_stream(w.file) : NULL;
    int rc = w.file && !w.stream ? say_fail("--save-logits %s: no memory", path) : write_all(&w, r);
    lm_close_steps(r);
    if (!w.file || rc) {
        ckpt_replace_abandon(w.file);
        return rc;
    }
    if (ckpt_replace_commit(w.file, true))
        return say_fail("--save-logits %s", ckpt_error(NULL));
    say_print("scores: %lld tokens at each of %lld places in %s\n",
              (long long)r->options.distill.top, (long long)(w.rows * r->data.length), path);
    return 0;
}
