/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding token by token: see decode.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/memory.h"
#include "../common/say.h"
#include "decode.h"

/* ---- recording ----------------------------------------------------------------------------- */

/* Writes the keys (value 0) or values (1) of a layer to its cache, for each sample from its
 * position `place` on. */
static ckpt_tensor keep(const struct lm_decoder *d, ckpt_tape *t, int layer, int value,
                        ckpt_tensor x, ckpt_tensor place)
{
    return ckpt_cache_append(t, d->cache[2 * layer + value], x, place);
}

/* The row of x [B, T, C] at each sample's last token; last is i32 [B]. */
static ckpt_tensor last_rows(ckpt_tape *t, ckpt_tensor x, ckpt_tensor last)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor begin = ckpt_affine(t, ckpt_iota(t, CKPT_F32, 1, d.shape, 0), (float)d.shape[1], 0);
    ckpt_tensor row = ckpt_cast(t, ckpt_add(t, begin, ckpt_cast(t, last, CKPT_F32)), CKPT_I32);
    ckpt_tensor rows = ckpt_reshape(t, x, 2, (int64_t[]){-1, d.shape[2]});

    return ckpt_index_select(t, rows, 0, row);
}

/* What a program knows of the texts: where the new tokens are. */
struct recording {
    const struct lm_decoder *decoder;
    ckpt_tensor place; /* i32 [B] */
};

static ckpt_tensor attend_whole(void *user, ckpt_tape *t, int i, ckpt_tensor q, ckpt_tensor k,
                                ckpt_tensor v, const struct ckpt_attention_spec *seen)
{
    const struct recording *r = user;

    keep(r->decoder, t, i, 0, k, r->place);
    keep(r->decoder, t, i, 1, v, r->place);
    return ckpt_attention(t, q, k, v, CKPT_NONE, seen);
}

/* q [B, heads, head], k and v [B, kv_heads, head]: one position of each sample. */
static ckpt_tensor attend_next(void *user, ckpt_tape *t, int i, ckpt_tensor q, ckpt_tensor k,
                               ckpt_tensor v, const struct ckpt_attention_spec *seen)
{
    const struct recording *r = user;

    k = keep(r->decoder, t, i, 0, ckpt_unsqueeze(t, k, 1), r->place);
    v = keep(r->decoder, t, i, 1, ckpt_unsqueeze(t, v, 1), r->place);
    return ckpt_squeeze(t, ckpt_attention(t, ckpt_unsqueeze(t, q, 1), k, v, CKPT_NONE, seen), 1);
}

/* Processes the whole text buffer.  Positions after the end of the text are computed, too, but are
 * not used. */
static ckpt_tensor record_whole(ckpt_tape *t, int64_t batch, void *user)
{
    struct recording r = {.decoder = user};
    const struct lm *m = r.decoder->model;
    const int64_t length = r.decoder->length;
    ckpt_tensor text = ckpt_input(t, "text", CKPT_I32, 2, (int64_t[]){batch, length});
    ckpt_tensor last = ckpt_input(t, "last", CKPT_I32, 1, &batch);
    struct lm_pass pass = lm_pass(m, t, length);
    ckpt_tensor x = lm_embed(m, t, text, CKPT_NONE);

    r.place = ckpt_cast(t, ckpt_affine(t, ckpt_cast(t, last, CKPT_F32), 0, 0), CKPT_I32);
    pass.attend = attend_whole;
    pass.user = &r;
    for (int i = 0; i < m->config.layers; i++)
        x = lm_block(m, t, i, x, &pass);
    x = lm_norm(m, t, &m->norm, x);
    ckpt_output(t, "scores", lm_scores(m, t, last_rows(t, x, last)));
    return x;
}

static ckpt_tensor record_next(ckpt_tape *t, int64_t batch, void *user)
{
    struct recording r = {.decoder = user};
    const struct lm *m = r.decoder->model;
    ckpt_tensor token = ckpt_input(t, "token", CKPT_I32, 1, &batch);
    ckpt_tensor place = r.place = ckpt_input(t, "place", CKPT_I32, 1, &batch);
    struct lm_pass pass = lm_pass(m, t, r.decoder->length);
    ckpt_tensor x = lm_embed_at(m, t, token, place);

    for (int i = 0; i < 2; i++)
        if (pass.table[i].id)
            pass.table[i] = ckpt_index_select(t, pass.table[i], 0, place);
    pass.seen.lengths = ckpt_cast(t, ckpt_affine(t, ckpt_cast(t, place, CKPT_F32), 1, 1), CKPT_I32);
    pass.attend = attend_next;
    pass.user = &r;
    for (int i = 0; i < m->config.layers; i++)
        x = lm_block(m, t, i, x, &pass);
    x = lm_norm(m, t, &m->norm, x);
    ckpt_output(t, "scores", lm_scores(m, t, x));
    return x;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int run(struct lm_decoder *d, ckpt_program *p)
{
    int64_t bytes = d->samples * d->model->config.vocabulary * (int64_t)sizeof *d->scores;

    return ckpt_step(p, NULL) || ckpt_fetch(p, "scores", d->scores, bytes)
               ? say_fail("%s", ckpt_error(d->context))
               : 0;
}

/* Processes the n tokens that each sample's text has. */
static int read_whole(struct lm_decoder *d, int64_t n)
{
    int64_t all = d->samples * d->length * (int64_t)sizeof *d->text;
    int32_t *last = malloc((size_t)d->samples * sizeof *last);

    if (!last)
        return say_fail("no memory for a text");
    for (int64_t s = 0; s < d->samples; s++) {
        last[s] = (int32_t)(n - 1);
        for (int64_t i = n; i < d->length; i++)
            d->text[s * d->length + i] = 0;
    }
    int rc = ckpt_feed(d->whole, "text", d->text, all) ||
                     ckpt_feed(d->whole, "last", last, d->samples * (int64_t)sizeof *last)
                 ? say_fail("%s", ckpt_error(d->context))
                 : 0;
    free(last);
    d->at = n;
    return rc ? rc : run(d, d->whole);
}

int lm_decoder_begin(struct lm_decoder *d, const int32_t *tokens, int64_t n)
{
    for (int64_t s = 0; s < d->samples; s++)
        memcpy(d->text + s * d->length, tokens, (size_t)n * sizeof *tokens);
    return read_whole(d, n);
}

/* Keeps the second half of each text, to make room.  Returns its length. */
static int64_t halve(struct lm_decoder *d)
{
    int64_t n = d->at / 2;

    for (int64_t s = 0; s < d->samples; s++)
        memmove(d->text + s * d->length, d->text + s * d->length + d->at - n,
                (size_t)n * sizeof *d->text);
    return n;
}

int lm_decoder_next(struct lm_decoder *d, const int32_t *tokens)
{
    bool full = d->at == d->length;
    int64_t n = d->samples * (int64_t)sizeof *tokens;

    if (full)
        d->at = halve(d);
    for (int64_t s = 0; s < d->samples; s++)
        d->text[s * d->length + d->at] = tokens[s];
    if (full)
        return read_whole(d, d->at + 1);
    int32_t *place = MEMORY_FOR(sizeof *place, d->samples);
    if (!place)
        return say_fail("no memory for a token");
    for (int64_t s = 0; s < d->samples; s++)
        place[s] = (int32_t)d->at;
    int rc = ckpt_feed(d->next, "token", tokens, n) || ckpt_feed(d->next, "place", place, n)
                 ? say_fail("%s", ckpt_error(d->context))
                 : 0;
    free(place);
    rc = rc ? rc : run(d, d->next);
    d->at++;
    return rc;
}

/* Cache names are "cache.k.3", or "cache2.k.3" for a second decoder. */
static int make_caches(struct lm_decoder *d)
{
    const struct lm_config *g = &d->model->config;
    const int64_t shape[] = {d->samples, d->length, g->kv_heads, g->head};
    ckpt_tensor other;
    char name[64];
    int of = 1;

    do
        snprintf(name, sizeof name, of > 1 ? "cache%d.k.0" : "cache.k.0", of);
    while (!ckpt_param_find(d->context, name, &other) && of++ < 100);
    for (int i = 0; i < 2 * g->layers; i++) {
        char number[16] = "";
        if (of > 1)
            snprintf(number, sizeof number, "%d", of);
        snprintf(name, sizeof name, "cache%s.%c.%d", number, i % 2 ? 'v' : 'k', i / 2);
        d->cache[i] = ckpt_cache(d->context, name, d->model->dtype, 4, shape);
        if (!d->cache[i].id)
            return say_fail("%s", ckpt_error(d->context));
    }
    return 0;
}

int lm_decoder_make(struct lm_decoder *d, const struct lm *model, ckpt *c, int64_t samples,
                    int64_t length)
{
    *d = (struct lm_decoder){.model = model, .context = c, .samples = samples, .length = length};
    d->text = MEMORY_FOR(sizeof *d->text, samples, length);
    d->scores = MEMORY_FOR(sizeof *d->scores, samples, model->config.vocabulary);
    d->cache = MEMORY_FOR(sizeof *d->cache, 2, model->config.layers);
    if (!d->text || !d->scores || !d->cache)
        return say_fail("no memory for %lld tokens", (long long)(samples * length));
    return make_caches(d);
}

int lm_decoder_compile(struct lm_decoder *d)
{
    int rc = ckpt_compile(d->context, record_whole, d, NULL, d->samples, &d->whole);
    if (compiled(d->context, rc, d->whole, ""))
        return -1;
    rc = ckpt_compile(d->context, record_next, d, NULL, d->samples, &d->next);
    return compiled(d->context, rc, d->next, "");
}

void lm_decoder_close(struct lm_decoder *d)
{
    free(d->text);
    free(d->scores);
    free(d->cache);
    *d = (struct lm_decoder){.text = NULL};
}
