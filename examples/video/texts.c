/* SPDX-License-Identifier: Apache-2.0 */
/* Captions, encoded before the first step: see texts.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cache/caption_pass.h"
#include "../common/lock.h"
#include "../common/memory.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "dataset.h"

enum { SHARD = 64 /* captions */ };

static bool is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool video_texts_asked(const struct video_options *o)
{
    return o->text_encoder || (o->text && is_directory(o->text));
}

/* ---- captions ------------------------------------------------------------------------------ */

static uint64_t sum_captions(const struct prompts *p)
{
    uint64_t sum[2] = {0};

    for (int64_t i = 0; i < p->n; i++) {
        sum[1] = cache_sum(p->text[i], strlen(p->text[i]));
        sum[0] = cache_sum(sum, sizeof sum);
    }
    return sum[0];
}

static bool has_caption(const struct video_data *d)
{
    int64_t i = 0;

    while (i < d->shapes.rows && !videos_caption(&d->videos, i))
        i++;
    return i < d->shapes.rows;
}

static int list_captions(struct video_texts *t, const struct video_data *d,
                         const struct video_options *o)
{
    const int64_t rows = d->shapes.rows;

    if (!has_caption(d))
        return say_fail("%s: no clip has a caption; leave out --text-encoder and --text to train "
                        "with the null caption",
                        o->video_dir);
    if (videos_check_captions(&d->videos, rows, o->empty_captions, o->video_dir))
        return -1;
    const char **text = MEMORY_FOR(sizeof *text, rows);
    t->of = MEMORY_FOR(sizeof *t->of, rows);
    int rc = text && t->of ? 0 : say_fail("no memory for the captions of %lld clips",
                                          (long long)rows);
    for (int64_t i = 0; i < rows && !rc; i++) {
        const char *caption = videos_caption(&d->videos, i);
        text[i] = caption ? caption : "";
    }
    rc = rc ? rc : prompts_distinct(&t->caption, text, rows, t->of);
    free(text);
    t->rows = t->caption.n;
    t->sum = sum_captions(&t->caption);
    return rc;
}

static const char *caption_of(void *user, int64_t row)
{
    const struct video_texts *t = user;

    return t->caption.text[row];
}

static const char *name_of(void *user, int64_t row, char dst[CACHE_PATH])
{
    (void)user;
    snprintf(dst, CACHE_PATH, "caption %lld", (long long)row);
    return dst;
}

/* ---- in memory ----------------------------------------------------------------------------- */

static int keep(struct video_texts *t, const struct caption_pass *p, int64_t first)
{
    const struct text_features *f = &p->features;
    size_t size = (size_t)ckpt_dtype_size(f->dtype);

    for (int64_t i = 0; i < f->n; i++) {
        int64_t tokens = caption_pass_tokens(p, i);
        size_t bytes = (size_t)(tokens * f->width) * size;
        t->row[first + i] = malloc(bytes);
        if (!t->row[first + i])
            return say_fail(
                "no memory for the features of %lld captions; --text DIR stores them in files",
                (long long)t->rows);
        memcpy(t->row[first + i], f->rows + (size_t)(i * f->length * f->width) * size, bytes);
        t->tokens[first + i] = tokens;
        t->longest = tokens > t->longest ? tokens : t->longest;
    }
    return 0;
}

static int64_t shard_rows(const struct video_texts *t, int64_t shard)
{
    int64_t left = t->rows - shard * SHARD;

    return left < SHARD ? left : SHARD;
}

static int make_in_memory(struct video_texts *t, struct caption_pass *p)
{
    t->row = calloc((size_t)t->rows, sizeof *t->row);
    t->tokens = calloc((size_t)t->rows, sizeof *t->tokens);
    if (!t->row || !t->tokens)
        return say_fail("no memory for %lld captions", (long long)t->rows);
    t->half = p->dtype == CKPT_BF16;
    for (int64_t i = 0; i * SHARD < t->rows; i++)
        if (caption_pass_make(p, i * SHARD, shard_rows(t, i)) || keep(t, p, i * SHARD))
            return -1;
    caption_pass_report(p);
    return 0;
}

/* ---- in files ------------------------------------------------------------------------------ */

/* Shards while they are written into a directory. */
struct making {
    struct video_texts *texts;
    struct caption_pass *pass;
    const char *dir;
    ckpt *context;
    json_t *setup;
    uint64_t sum;      /* of the captions */
    int64_t *shard, n; /* shards to be written */
};

static json_t *make_setup(const struct video_texts *t)
{
    char sum[CACHE_SUM];

    return json_pack("{s:s,s:s,s:I,s:I}", "family", t->family, "captions",
                     cache_sum_text(sum, t->sum), "rows", (json_int_t)t->rows, "shard",
                     (json_int_t)SHARD);
}

static int find_missing(struct making *m)
{
    int64_t shards = (m->texts->rows + SHARD - 1) / SHARD;
    char path[CACHE_PATH];

    m->shard = MEMORY_FOR(sizeof *m->shard, shards);
    if (!m->shard)
        return say_fail("no memory for %lld captions", (long long)m->texts->rows);
    for (int64_t i = 0; i < shards; i++) {
        cache_shard_path(path, m->dir, CACHE_TEXT, i);
        int rc = cache_shard_is_there(path, m->sum, i * SHARD, shard_rows(m->texts, i));
        if (rc < 0)
            return -1;
        if (!rc)
            m->shard[m->n++] = i;
    }
    return 0;
}

/* Compares facts of the ranks: all have the same directory, and continue together. */
static int meet(const struct making *m, const char *what, const void *data, size_t bytes)
{
    const struct ckpt_fact fact = {what, data, bytes};

    return ckpt_ranks(m->context) > 1 && ckpt_agree(m->context, &fact, 1)
               ? say_fail("%s", ckpt_error(m->context))
               : 0;
}

/* Each rank writes every ranks-th shard.  Ranks synchronize after each shard, so that waiting ranks
 * know that the others are alive. */
static int make_shards(struct making *m)
{
    int64_t ranks = ckpt_ranks(m->context), own = ckpt_rank(m->context);
    char path[CACHE_PATH];

    if (m->n && caption_pass_open(m->pass))
        return -1;
    for (int64_t i = 0; i < m->n; i += ranks) {
        int64_t shard = i + own < m->n ? m->shard[i + own] : -1;
        cache_shard_path(path, m->dir, CACHE_TEXT, shard);
        if (shard >= 0 &&
            caption_pass_shard(m->pass, path, m->sum, shard * SHARD, shard_rows(m->texts, shard)))
            return -1;
        if (meet(m, "captions", &i, sizeof i))
            return -1;
    }
    if (m->n)
        caption_pass_report(m->pass);
    if (own == 0 && cache_manifest_write(m->dir, m->setup, m->texts->rows, SHARD, NULL, 0))
        return -1;
    return meet(m, "captions", &m->n, sizeof m->n);
}

static int make_in_files(struct video_texts *t, struct caption_pass *p,
                         const struct video_options *o, ckpt *c)
{
    struct making m = {.texts = t, .pass = p, .dir = o->text, .context = c, .setup = make_setup(t)};
    int rc = caption_pass_describe(m.setup, o->text_encoder, o->tokenizer, o->dtype, p->length);

    m.sum = cache_setup_sum(m.setup);
    if (!rc && mkdir(o->text, 0777) && !is_directory(o->text))
        rc = say_fail("--text %s: is not a directory; with --text-encoder features are stored in a "
                      "directory, and a file of features needs no encoder",
                      o->text);
    if (!rc)
        rc = find_missing(&m);
    if (!rc)
        rc =
            meet(&m, "features of captions that are there", m.shard, (size_t)m.n * sizeof *m.shard);
    if (!rc)
        rc = make_shards(&m);
    free(m.shard);
    json_decref(m.setup);
    return rc;
}

static int open_files(struct video_texts *t, const struct video_options *o)
{
    if (cache_open_texts(&t->cache, o->text))
        return -1;
    const char *captions = cache_setup_text(&t->cache, "captions");
    if (!captions || strtoull(captions, NULL, 16) != t->sum || t->cache.rows != t->rows)
        return say_fail("--text %s: has features of other captions than %s", o->text, o->video_dir);
    t->width = t->cache.width;
    t->longest = t->cache.tokens;
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* The encoder has the whole budget; options for the training steps do not apply to it. */
static struct ckpt_options alone(const struct ckpt_options *library)
{
    struct ckpt_options own = *library;

    own.micro_batch = 0;
    own.plan_in = own.plan_out = own.graph_out = own.machine_out = own.trace_out = NULL;
    own.ranks = NULL;
    own.profile = false;
    return own;
}

static struct caption_pass pass_of(struct video_texts *t, const struct video_data *d,
                                   const struct video_options *o,
                                   const struct ckpt_options *library)
{
    return (struct caption_pass){.library = library,
                                 .encoder = o->text_encoder,
                                 .tokenizer = o->tokenizer,
                                 .from = o->video_dir,
                                 .family = t->reader,
                                 .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                                 .length = d->tokens,
                                 .caption = caption_of,
                                 .name = name_of,
                                 .user = t};
}

/* Fails if the encoder does not fit the budget; sets the width of its features. */
static int plan(struct video_texts *t, const struct video_data *d, const struct video_options *o)
{
    struct ckpt_options library = alone(&o->library);
    struct caption_pass p = pass_of(t, d, o, &library);

    library.plan_only = true;
    int rc = caption_pass_open(&p);
    t->width = p.model.width;
    caption_pass_close(&p);
    return rc;
}

static void report(const struct video_texts *t, const struct video_options *o, int64_t rows)
{
    char bytes[32];
    int64_t n = 0;

    for (int64_t i = 0; t->tokens && i < t->rows; i++)
        n += t->tokens[i] * t->width * (t->half ? 2 : 4);
    say_print("text: %lld captions, %lld of them different, up to %lld tokens, in %s%s\n",
              (long long)rows, (long long)t->rows, (long long)t->longest,
              t->tokens ? say_bytes(bytes, n) : o->text, t->tokens ? " of host memory" : "");
}

int video_texts_open(struct video_texts *t, struct video_data *d, const struct video_options *o)
{
    d->tokens = o->text_tokens ? o->text_tokens : text_reading(t->reader).length;
    if (list_captions(t, d, o) || (o->text_encoder ? plan(t, d, o) : open_files(t, o)))
        return -1;
    d->text_rows = t->rows;
    d->text_of = t->of;
    d->text_width = t->width;
    return 0;
}

bool video_texts_lack(const struct video_texts *t, const struct video_options *o)
{
    char path[CACHE_PATH];

    if (!t->rows || !o->text_encoder || !o->text)
        return t->rows && o->text_encoder;
    snprintf(path, sizeof path, "%s/manifest.json", o->text);
    return access(path, F_OK) != 0;
}

static int make(struct video_texts *t, const struct video_data *d, const struct video_options *o,
                ckpt *c)
{
    const struct ckpt_options library = alone(&o->library);
    struct caption_pass p = pass_of(t, d, o, &library);
    int rc = o->text ? make_in_files(t, &p, o, c) : caption_pass_open(&p) || make_in_memory(t, &p);

    caption_pass_close(&p);
    return rc || (o->text && open_files(t, o)) ? -1 : 0;
}

int video_texts_make(struct video_texts *t, const struct video_data *d,
                     const struct video_options *o, ckpt *c)
{
    if (!t->rows)
        return 0;
    if (o->text_encoder && make(t, d, o, c))
        return -1;
    if (o->text)
        lock_release(o->text); /* from here on it is read, and other runs may read it, too */
    if (t->longest > d->tokens)
        return say_fail("--text %s: has %lld tokens per caption; --text-tokens is %lld", o->text,
                        (long long)t->longest, (long long)d->tokens);
    report(t, o, d->shapes.rows);
    return 0;
}

void video_texts_close(struct video_texts *t)
{
    for (int64_t i = 0; t->row && i < t->rows; i++)
        free(t->row[i]);
    free(t->row);
    free(t->tokens);
    free(t->of);
    prompts_free(&t->caption);
    cache_close(&t->cache);
    *t = (struct video_texts){.rows = 0};
}

int64_t video_texts_read(const struct video_texts *t, int64_t row, int64_t tokens, float *y)
{
    if (t->cache.rows)
        return cache_read_text(&t->cache, row, tokens, y) ? -1 : t->cache.row[row].tokens;
    int64_t n = t->tokens[row] * t->width;
    memset(y + n, 0, (size_t)(tokens * t->width - n) * sizeof *y);
    if (t->half)
        ckpt_from_bf16((const uint16_t *)(const void *)t->row[row], y, n);
    else
        memcpy(y, t->row[row], (size_t)n * sizeof *y);
    return t->tokens[row];
}
