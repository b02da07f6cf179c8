/* SPDX-License-Identifier: Apache-2.0 */
/* From prompts to features: see encoder.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_dist.h"
#include "encoder.h"

int text_family(const char *name, enum text_family *family)
{
    static const char *const names[] = {
        [TEXT_OPENSORA] = "opensora", [TEXT_COGVIDEOX] = "cogvideox", [TEXT_WAN] = "wan"};

    for (int i = 0; name && i < 3; i++) {
        if (!strcmp(name, names[i])) {
            *family = (enum text_family)i;
            return 0;
        }
    }
    return say_fail("--family %s: give opensora, cogvideox or wan", name ? name : "is missing");
}

struct text_reading text_reading(enum text_family family)
{
    static const struct text_reading all[] = {[TEXT_OPENSORA] = {300, true, TEXT_CLEANED},
                                              [TEXT_COGVIDEOX] = {226, false, TEXT_UNCHANGED},
                                              [TEXT_WAN] = {512, true, TEXT_UNESCAPED}};

    return all[family];
}

/* The subdirectory `name` if it has the file, else the directory itself. */
static const char *inside(const char *directory, const char *name, const char *file,
                          char path[4096])
{
    if (snprintf(path, 4096, "%s/%s/%s", directory, name, file) >= 4096 || access(path, R_OK))
        return directory;
    snprintf(path, 4096, "%s/%s", directory, name);
    return path;
}

const char *text_model_path(const char *directory, char path[4096])
{
    return inside(directory, "text_encoder", "config.json", path);
}

const char *text_tokenizer_path(const char *directory, char path[4096])
{
    const char *found = inside(directory, "tokenizer", "spiece.model", path);

    return found == path ? path : inside(directory, "tokenizer", "tokenizer.json", path);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct text_encoder *e = user;
    ckpt_tensor ids = ckpt_input(t, "tokens", CKPT_I32, 2, (int64_t[]){batch, e->reading.length});
    ckpt_tensor lengths =
        e->reading.masked ? ckpt_input(t, "lengths", CKPT_I32, 1, &batch) : CKPT_NONE;
    ckpt_tensor x = t5_encode(&e->model, t, ids, lengths);

    ckpt_output(t, "features", x);
    return x;
}

/* Weights are loaded after the compile, directly into their final place. */
static int make(struct text_encoder *e, const struct ckpt_options *library, const char *path)
{
    struct t5_config config;

    if (t5_config_read(&config, path))
        return -1;
    e->width = config.width;
    if (say_open(&e->context, library))
        return -1;
    if (ckpt_ranks(e->context) > 1)
        return say_fail("--ranks: prompts are not divided among ranks");
    if (t5_create(&e->model, e->context, &config, e->dtype))
        return say_fail("no memory for %lld layers", (long long)config.layers);
    if (ckpt_compile(e->context, record, e, NULL, e->batch, &e->program))
        return say_fail("%s", ckpt_error(e->context));
    return library->plan_only ? 0 : t5_load(e->context, path);
}

int text_encoder_open(struct text_encoder *e, const struct ckpt_options *library,
                      const char *directory, enum ckpt_dtype dtype, struct text_reading reading,
                      int64_t batch)
{
    char path[4096];

    *e = (struct text_encoder){.reading = reading, .batch = batch, .dtype = dtype};
    return make(e, library, text_model_path(directory, path));
}

void text_encoder_close(struct text_encoder *e)
{
    ckpt_close(e->context);
    t5_free(&e->model);
    *e = (struct text_encoder){.context = NULL};
}

int text_encoder_check(const struct text_encoder *e, int64_t pieces)
{
    if (pieces > e->model.config.vocabulary)
        return say_fail("the tokenizer has %lld pieces and the model %lld: they do not belong "
                        "together",
                        (long long)pieces, (long long)e->model.config.vocabulary);
    return 0;
}

int64_t text_encoder_row(const struct text_encoder *e)
{
    return e->reading.length * e->width * ckpt_dtype_size(e->dtype);
}

int text_encoder_submit(struct text_encoder *e, const int32_t *ids, const int32_t *lengths)
{
    int64_t bytes = e->batch * (int64_t)sizeof *lengths;

    if (ckpt_feed(e->program, "tokens", ids, bytes * e->reading.length) ||
        (e->reading.masked && ckpt_feed(e->program, "lengths", lengths, bytes)) ||
        ckpt_submit(e->program))
        return say_fail("%s", ckpt_error(e->context));
    return 0;
}

int text_encoder_take(struct text_encoder *e, void *rows)
{
    if (ckpt_wait(e->program, NULL) ||
        ckpt_fetch(e->program, "features", rows, e->batch * text_encoder_row(e)))
        return say_fail("%s", ckpt_error(e->context));
    return 0;
}
