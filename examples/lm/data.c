/* SPDX-License-Identifier: Apache-2.0 */
/* Training and validation data: token files, text, or random tokens. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

enum { STREAM_NOISE = 0x4c4d0002 };

/* The path of the bundled text: in the source tree or where it was installed.  NULL after an error
 * message. */
static const char *shipped(void)
{
    static const char *const places[] = {"doc/design.md", CLIP_DIR "/design.md"};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!access(places[i], R_OK))
            return places[i];
    say_note("the included text is neither ./doc/design.md nor in %s: run \"make install\" "
             "or start in the source tree, or name a text with --data FILE",
             CLIP_DIR);
    return NULL;
}

/* Random tokens for one step, for timings. */
static int noise(struct tokens *t, const struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    int64_t n = o->train.batch * ckpt_ranks(r->context) * o->length + 1;
    float *u = malloc((size_t)n * sizeof *u);

    *t = (struct tokens){.open = -1, .fd = -1, .n = 1, .count = n};
    t->shard = calloc(1, sizeof *t->shard);
    if (t->shard) {
        t->shard->path = strdup("random tokens");
        t->shard->count = n;
        t->shard->width = 4;
        t->shard->held = malloc((size_t)n * sizeof *t->shard->held);
    }
    if (!u || !t->shard || !t->shard->path || !t->shard->held) {
        free(u);
        return say_fail("no memory for %lld tokens", (long long)n);
    }
    ckpt_fill_uniform((uint64_t)o->library.seed, 0, STREAM_NOISE, u, n);
    for (int64_t i = 0; i < n; i++)
        t->shard->held[i] = (int32_t)(u[i] * (float)o->config.vocabulary);
    free(u);
    return 0;
}

/* Whether a file is text of which each byte is a token. */
static bool has_bytes(const struct tokens *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->shard[i].width == 1)
            return true;
    return false;
}

static int open_files(struct lm_run *r, struct dataset *d, const char *pattern, bool shuffled)
{
    const struct lm_options *o = &r->options;
    bool encodes = !r->tokenizer.bytes;
    struct tokens t;

    if (!strcmp(pattern, "random")) {
        if (noise(&t, r))
            return -1;
        shuffled = false;
    } else if (tokens_open(&t, pattern, encodes ? tokenizer_encode : NULL, &r->tokenizer)) {
        return -1;
    }
    if (has_bytes(&t) && lm_options_check_bytes(o)) {
        tokens_close(&t);
        return -1;
    }
    return dataset_open(d, &t, o->length, o->config.vocabulary, (uint64_t)o->library.seed,
                        shuffled);
}

int lm_data_open(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    const char *data = o->data ? o->data : shipped();
    char tokens[32], rows[32];

    if (!data || tokenizer_open(&r->tokenizer, lm_options_tokenizer(o)) ||
        open_files(r, &r->data, data, !o->in_order))
        return -1;
    if (o->validation && open_files(r, &r->validation, o->validation, false))
        return -1;
    snprintf(r->title, sizeof r->title, "data: %s, %s tokens in %d file%s, %s samples of %lld",
             data, say_count(tokens, r->data.tokens.count), r->data.tokens.n,
             r->data.tokens.n > 1 ? "s" : "", say_count(rows, r->data.rows), (long long)o->length);
    return 0;
}
