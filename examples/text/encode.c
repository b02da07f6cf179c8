/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text-encode: prompts to files of features, for trainers and samplers of video models.  A file is
 * made of batches; while the device computes one the next is handed over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/names.h"
#include "../common/say.h"
#include "../common/signals.h"
#include "ckpt_tools.h"
#include "clean.h"
#include "features.h"
#include "options.h"
#include "prompts.h"

const char say_program[] = "text-encode";

struct encoding {
    struct text_options options;
    struct prompts prompts;
    struct t5_tokenizer tokenizer;
    struct cleaner *cleaner; /* NULL: captions stay as they are */
    struct text_encoder encoder;
    struct text_features features; /* of the file that is made */
    int32_t *ids, *lengths;        /* of a batch */
    char *rows;
    ckpt_progress *progress;
    struct names cut, left; /* prompts that are too long, that could not be cleaned whole */
    int64_t done, kept;     /* prompts; those of files that were there */
};

static void note_line(struct names *l, int64_t line, const char *what)
{
    char text[64];

    snprintf(text, sizeof text, "line %lld%s%s", (long long)line, what ? ": " : "",
             what ? what : "");
    names_add(l, text);
}

/* ---- tokens -------------------------------------------------------------------------------- */

static int read_prompt(struct encoding *e, int64_t prompt, int64_t row)
{
    struct text_features *f = &e->features;
    const char *text = e->prompts.text[prompt], *left = NULL;
    char *cleaned = e->cleaner ? cleaner_clean(e->cleaner, text, &left) : NULL;
    int64_t tokens, line = e->prompts.line[prompt];

    if (e->cleaner && !cleaned)
        return -1;
    if (left)
        note_line(&e->left, line, left);
    int rc = t5_tokenizer_encode(&e->tokenizer, cleaned ? cleaned : text, f->ids + row * f->length,
                                 f->length, &tokens);
    if (!rc && tokens > f->length)
        note_line(&e->cut, line, NULL);
    f->lengths[row] = (int32_t)(tokens < f->length ? tokens : f->length);
    free(cleaned);
    return rc;
}

static int check_vocabulary(const struct encoding *e)
{
    int64_t rows = e->encoder.model.config.vocabulary;

    if (e->tokenizer.count > rows)
        return say_fail("the tokenizer has %d pieces and the model %lld: they do not belong "
                        "together",
                        (int)e->tokenizer.count, (long long)rows);
    return 0;
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Prompts from `first` on; behind the last one the batch is filled up with it. */
static int submit(struct encoding *e, int64_t first)
{
    const struct text_features *f = &e->features;

    for (int64_t i = 0; i < e->encoder.batch; i++) {
        int64_t row = first + i < f->n ? first + i : f->n - 1;
        memcpy(e->ids + i * f->length, f->ids + row * f->length,
               (size_t)f->length * sizeof *f->ids);
        e->lengths[i] = f->lengths[row];
    }
    return text_encoder_submit(&e->encoder, e->ids, e->lengths);
}

static int take(struct encoding *e, int64_t first)
{
    struct text_features *f = &e->features;
    int64_t row = text_encoder_row(&e->encoder), n = f->n - first;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    n = n < e->encoder.batch ? n : e->encoder.batch;
    if (text_encoder_take(&e->encoder, e->rows))
        return -1;
    memcpy(f->rows + first * row, e->rows, (size_t)(n * row));
    e->done += n;
    ckpt_program_info(e->encoder.program, &info);
    ckpt_progress_step(e->progress, e->done, NAN, info.arena_bytes);
    return 0;
}

static int encode_rows(struct encoding *e)
{
    int64_t n = e->features.n, batch = e->encoder.batch;

    for (int64_t at = 0; at < n; at += batch)
        if (submit(e, at) || (at && take(e, at - batch)))
            return -1;
    return take(e, (n - 1) / batch * batch);
}

/* ---- files --------------------------------------------------------------------------------- */

static int fill_file(struct encoding *e, int64_t first, const char *path)
{
    struct text_features *f = &e->features;

    for (int64_t i = 0; i < f->n; i++)
        if (read_prompt(e, first + i, i))
            return -1;
    if (e->options.resume && text_features_are_in(f, path)) {
        e->done += f->n;
        e->kept += f->n;
        return 0;
    }
    return text_features_room(f) || encode_rows(e) || text_features_write(f, path) ? -1 : 0;
}

static int encode_files(struct encoding *e)
{
    const struct text_options *o = &e->options;
    int64_t all = e->prompts.n, most = o->shard && o->shard < all ? o->shard : all;
    int64_t files = (all + most - 1) / most;
    char path[4096];
    int rc = 0;

    for (int64_t i = 0; i < files && !rc; i++) {
        int64_t n = i + 1 < files ? most : all - i * most;
        if (!text_features_name(path, o->output, i, files))
            return say_fail("--output %s: the name is too long", o->output);
        rc = text_features_open(&e->features, n) || fill_file(e, i * most, path);
        text_features_close(&e->features);
    }
    return rc ? -1 : 0;
}

static int make_buffers(struct encoding *e)
{
    const struct text_encoder *t = &e->encoder;

    e->ids = MEMORY_FOR(sizeof *e->ids, t->batch, t->reading.length);
    e->lengths = MEMORY_FOR(sizeof *e->lengths, t->batch);
    e->rows = MEMORY_FOR(1, t->batch, text_encoder_row(t));
    return e->ids && e->lengths && e->rows ? 0 : say_fail("no memory for a batch of prompts");
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void report(const struct encoding *e)
{
    const struct text_options *o = &e->options;
    const char *path = o->csv ? o->csv : o->prompts;
    char text[NAMES_TEXT];

    if (e->cut.n)
        say_note("%s: %lld prompt%s longer than %lld tokens and cut: %s", path, (long long)e->cut.n,
                 e->cut.n > 1 ? "s are" : " is", (long long)e->features.length,
                 names_text(&e->cut, text));
    if (e->left.n)
        say_note("%s: %lld prompt%s what was not cleaned: %s", path, (long long)e->left.n,
                 e->left.n > 1 ? "s have" : " has", names_text(&e->left, text));
    if (e->kept)
        printf("kept: %lld prompts of files that were there\n", (long long)e->kept);
    say_print("%lld prompts of %lld tokens to features of %lld, %s, in %s\n", (long long)e->done,
              (long long)e->features.length, (long long)e->features.width, o->dtype, o->output);
}

static int open_prompts(struct encoding *e)
{
    const struct text_options *o = &e->options;
    char path[4096];

    if (o->csv ? prompts_read_csv(&e->prompts, o->csv, o->column ? o->column : "text")
               : prompts_read(&e->prompts, o->prompts))
        return -1;
    return t5_tokenizer_open(&e->tokenizer, text_options_tokenizer(o, path)) ||
                   (text_reading(o->family).cleaned && cleaner_open(&e->cleaner))
               ? -1
               : 0;
}

static int open_encoder(struct encoding *e)
{
    const struct text_options *o = &e->options;
    struct text_reading reading = text_reading(o->family);
    enum ckpt_dtype dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    int64_t batch = e->prompts.n && e->prompts.n < o->batch ? e->prompts.n : o->batch;

    reading.length = o->length;
    if (text_encoder_open(&e->encoder, &o->library, o->model, dtype, reading, batch))
        return -1;
    e->features = (struct text_features){
        .family = o->family, .dtype = dtype, .length = reading.length, .width = e->encoder.width};
    ckpt_plan_print(e->encoder.program, stdout);
    fflush(stdout);
    return 0;
}

static int go(struct encoding *e)
{
    bool plan_only = e->options.library.plan_only;

    if ((!plan_only && open_prompts(e)) || open_encoder(e))
        return -1;
    if (plan_only)
        return 0;
    if (check_vocabulary(e) || make_buffers(e))
        return -1;
    e->progress = ckpt_progress_open(stderr, "encode", e->prompts.n);
    int rc = encode_files(e);
    ckpt_progress_close(e->progress);
    if (!rc)
        report(e);
    return rc;
}

int main(int argc, char **argv)
{
    struct encoding e = {.prompts = {.n = 0}};

    say_begin();
    signals_open();
    int rc = text_options_parse(&e.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&e);
    text_encoder_close(&e.encoder);
    t5_tokenizer_close(&e.tokenizer);
    cleaner_close(e.cleaner);
    prompts_free(&e.prompts);
    free(e.ids);
    free(e.lengths);
    free(e.rows);
    return say_finish(rc ? 1 : 0);
}
