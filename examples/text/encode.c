/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text-encode: from prompts to files of features, for trainers and samplers of video models.  A
 * file is computed in batches; the next batch is submitted while the device computes.
 */
#include <math.h>
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "features.h"
#include "options.h"
#include "prompts.h"
#include "reader.h"

const char say_program[] = "text-encode";

struct encoding {
    struct text_options options;
    struct prompts prompts;
    struct text_reader reader;
    struct text_encoder encoder;
    struct text_features features; /* of the current file */
    ckpt_progress *progress;
    int64_t done, kept; /* prompts encoded; prompts in files that existed */
};

static void show(void *user, int64_t n)
{
    struct encoding *e = user;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    e->done += n;
    ckpt_program_info(e->encoder.program, &info);
    ckpt_progress_step(e->progress, e->done, NAN, info.arena_bytes);
}

/* ---- files --------------------------------------------------------------------------------- */

static int fill_file(struct encoding *e, int64_t first, const char *path)
{
    struct text_features *f = &e->features;
    const struct prompts *p = &e->prompts;

    for (int64_t i = 0; i < f->n; i++)
        if (text_reader_read(&e->reader, p->text[first + i], p->line[first + i],
                             f->ids + i * f->length, f->length, &f->lengths[i]))
            return -1;
    if (e->options.resume && text_features_are_in(f, path)) {
        e->done += f->n;
        e->kept += f->n;
        return 0;
    }
    return text_features_encode(f, &e->encoder, show, e) || text_features_write(f, path) ? -1 : 0;
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

/* ---- main ---------------------------------------------------------------------------------- */

static void report(const struct encoding *e)
{
    const struct text_options *o = &e->options;

    text_reader_report(&e->reader, o->csv ? o->csv : o->prompts, e->features.length);
    if (e->kept)
        printf("kept: %lld prompts in existing files\n", (long long)e->kept);
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
    return text_reader_open(&e->reader, text_options_tokenizer(o, path), text_reading(o->family));
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
    if (text_encoder_check(&e->encoder, e->reader.tokenizer.count))
        return -1;
    e->progress = ckpt_progress_open(stderr, "encode", e->prompts.n);
    int rc = encode_files(e);
    ckpt_progress_close(e->progress);
    if (!rc)
        report(e);
    ckpt_profile_print(e->encoder.program, stdout);
    return rc;
}

int main(int argc, char **argv)
{
    struct encoding e = {.prompts = {.n = 0}};

    say_begin();
    int rc = text_options_parse(&e.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&e);
    text_encoder_close(&e.encoder);
    text_reader_close(&e.reader);
    prompts_free(&e.prompts);
    return say_finish(rc ? 1 : 0);
}
