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

/* Documents of random tokens behind the marks, which fill whole samples. */
static void fill_documents(const struct lm_run *r, const float *u, int64_t n, int32_t *token)
{
    const struct masking *m = &r->masking;
    const int64_t room = masking_room(m->length, m->pairs), first = m->marks.mask + 1;

    for (int64_t i = 0; i < n; i++)
        token[i] = i % (room + 1) == room
                       ? m->marks.end
                       : (int32_t)(first + (int64_t)(u[i] * (float)(m->vocabulary - first)));
}

static int64_t noise_count(const struct lm_run *r)
{
    return r->options.train.batch * ckpt_sample_groups(r->context) * r->options.length + 1;
}

/* Random tokens for one step, for timings. */
static int noise(struct tokens *t, const struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    const bool masked = lm_traits(&o->config)->masked;
    int64_t n = noise_count(r);
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
    for (int64_t i = 0; i < n && !masked; i++)
        t->shard->held[i] = (int32_t)(u[i] * (float)o->config.vocabulary);
    if (masked) {
        const int64_t whole = masking_room(o->length, o->next_sentence) + 1;
        t->count = t->shard->count = n / whole * whole;
        fill_documents(r, u, t->count, t->shard->held);
    }
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

/* ---- masked models --------------------------------------------------------------------------- */

/* Without a tokenizer: the numbers of the published vocabularies; those behind the bytes of a text.
 */
static const struct marks published = {101, 102, 103, 0}, behind_bytes = {257, 258, 259, 256};

static int find_mark(const struct tokenizer *t, const char *name, int32_t *mark)
{
    *mark = tokenizer_find(t, name);
    return *mark < 0 ? say_fail("the tokenizer has no %s, which BERT needs", name) : 0;
}

static int read_marks(const struct tokenizer *t, struct marks *m)
{
    return find_mark(t, "[CLS]", &m->begin) || find_mark(t, "[SEP]", &m->end) ||
                   find_mark(t, "[MASK]", &m->mask) || find_mark(t, "[PAD]", &m->pad)
               ? -1
               : 0;
}

static int set_marks(struct masking *m, const struct marks *to)
{
    const int32_t all[] = {to->begin, to->end, to->mask, to->pad};

    m->marks = *to;
    for (int i = 0; i < 4; i++)
        if (all[i] >= m->vocabulary)
            return say_fail("[CLS], [SEP], [MASK] and [PAD] are tokens %ld, %ld, %ld and %ld, and "
                            "the model has %lld; give --tokenizer FILE",
                            (long)all[0], (long)all[1], (long)all[2], (long)all[3],
                            (long long)m->vocabulary);
    return 0;
}

static int begin_masking(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct marks marks = published;

    r->masking = (struct masking){.length = o->length,
                                  .most = lm_options_targets(o),
                                  .vocabulary = o->config.vocabulary,
                                  .share = o->mask_share,
                                  .words = o->whole_words ? &r->tokenizer : NULL,
                                  .pairs = o->next_sentence,
                                  .seed = (uint64_t)o->library.seed};
    if (r->tokenizer.bytes && o->whole_words)
        return say_fail("--whole-words needs --tokenizer FILE, whose tokens say where words begin");
    if (!r->tokenizer.bytes && read_marks(&r->tokenizer, &marks))
        return -1;
    return set_marks(&r->masking, &marks);
}

/* The first blank line from `at` on, or the end; *next: behind it. */
static int64_t document_end(const char *text, int64_t at, int64_t bytes, int64_t *next)
{
    for (int64_t i = at; i < bytes; i++) {
        int64_t k = i + 1;
        while (text[i] == '\n' && k < bytes &&
               (text[k] == ' ' || text[k] == '\t' || text[k] == '\r'))
            k++;
        *next = k + 1;
        if (text[i] == '\n' && k < bytes && text[k] == '\n')
            return i;
    }
    return *next = bytes;
}

static int append(struct lm_run *r, int32_t **ids, int64_t *n, const int32_t *more, int64_t m)
{
    int32_t *grown = realloc(*ids, (size_t)(*n + m + 1) * sizeof *grown);

    if (!grown)
        return say_fail("no memory for the tokens of a text");
    memcpy(grown + *n, more, (size_t)m * sizeof *grown);
    *n += m;
    grown[(*n)++] = r->masking.marks.end;
    *ids = grown;
    return 0;
}

/* The documents of a text, which blank lines divide, each with a mark behind it. */
static int32_t *encode_documents(void *user, const char *path, const char *text, int64_t bytes,
                                 int64_t *n)
{
    struct lm_run *r = user;
    int32_t *ids = NULL;
    int rc = 0;

    *n = 0;
    if (r->tokenizer.bytes)
        rc = lm_options_check_bytes(&r->options) || set_marks(&r->masking, &behind_bytes) ? -1 : 0;
    for (int64_t at = 0, next; at < bytes && !rc; at = next) {
        int64_t end = document_end(text, at, bytes, &next), m;
        int32_t *one = tokenizer_encode(&r->tokenizer, path, text + at, end - at, &m);
        rc = one ? append(r, &ids, n, one, m) : -1;
        free(one);
    }
    if (!rc && !ids)
        rc = say_fail("%s: is empty", path);
    if (!rc)
        return ids;
    free(ids);
    return NULL;
}

/* What a masked model asks of its data, which may be none. */
static int check_documents(const struct lm_run *r, const struct dataset *d)
{
    const struct masking *m = &r->masking;

    for (int i = 0; i < d->tokens.n; i++)
        if (m->marks.mask == behind_bytes.mask && !d->tokens.shard[i].held)
            return say_fail("%s: tokens in a file and a text as bytes have different marks; give "
                            "--tokenizer FILE",
                            d->tokens.shard[i].path);
    if (m->pairs && d->rows && d->piece[0].document == d->piece[d->rows - 1].document)
        return say_fail("%s: has one document; --next-sentence needs two: blank lines divide those "
                        "of a text, [SEP] those of a file of tokens",
                        d->tokens.shard[0].path);
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int open_conversations(struct lm_run *r, struct dataset *d, const char *pattern,
                              bool shuffled, struct chat_counts *counts)
{
    const struct lm_options *o = &r->options;
    const struct chat_opening how = {.chat = &r->chat,
                                     .too_long = o->too_long,
                                     .packs = o->pack,
                                     .shuffled = shuffled,
                                     .length = o->length,
                                     .limit = o->config.vocabulary,
                                     .seed = (uint64_t)o->library.seed};

    if (lm_traits(&o->config)->masked)
        return say_fail("%s: BERT fills in masked tokens, and learns no conversations", pattern);
    if (o->longest)
        return say_fail("--length auto: %s has conversations, whose rows need a length; give one",
                        pattern);
    if (!r->chat.template && (lm_options_check_bytes(o) || lm_chat_open(r)))
        return -1;
    return chat_data_open(d, pattern, &how, counts);
}

static int64_t longest_sample(const struct tokens *t)
{
    int64_t most = 0;

    for (int i = 0; i < t->n; i++)
        most = t->shard[i].count - 1 > most ? t->shard[i].count - 1 : most;
    return most;
}

static int open_files(struct lm_run *r, struct dataset *d, const char *pattern, bool shuffled)
{
    const struct lm_options *o = &r->options;
    struct chat_counts counts;

    if (chat_is_data(pattern))
        return open_conversations(r, d, pattern, shuffled,
                                  d == &r->data ? &r->conversations : &counts);
    if (o->pack)
        return say_fail("--pack: %s has no conversations, whose files end with .jsonl or .json; "
                        "samples of other files fill their rows",
                        pattern);
    const bool encodes = !r->tokenizer.bytes, masked = lm_traits(&o->config)->masked;
    struct tokens t;

    if (!strcmp(pattern, "random")) {
        if (noise(&t, r))
            return -1;
        shuffled = false;
    } else if (masked
                   ? tokens_open(&t, pattern, encode_documents, r)
                   : tokens_open(&t, pattern, encodes ? tokenizer_encode : NULL, &r->tokenizer)) {
        return -1;
    }
    if (has_bytes(&t) && lm_options_check_bytes(o)) {
        tokens_close(&t);
        return -1;
    }
    if (o->longest && strcmp(pattern, "random"))
        lm_options_shorten(&r->options, longest_sample(&t));
    const struct marks *m = &r->masking.marks;
    const struct document_ends ends = {{m->begin, m->end, m->pad}};
    int64_t length = masked ? masking_room(o->length, o->next_sentence) : o->length;
    return dataset_open(d, &t, length, o->config.vocabulary, (uint64_t)o->library.seed, shuffled,
                        masked ? &ends : NULL);
}

/* The inputs of a sample.  Without padding in the data there are no lengths: attention to all
 * tokens has faster kernels. */
static void set_widths(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    int64_t *w = r->width;

    w[LM_TOKENS] = o->length;
    w[LM_TARGETS] = lm_options_targets(o);
    w[LM_STARTS] = o->pack ? o->length : 0;
    if (!lm_traits(&o->config)->masked)
        return;
    w[LM_PLACES] = w[LM_TARGETS];
    w[LM_SEGMENTS] = o->length;
    w[LM_LENGTHS] = r->data.padded || r->validation.padded;
    w[LM_PAIRS] = o->next_sentence;
}

/* Questions are turns of a conversation if the options or the data have a template. */
static int open_eval(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    const struct eval_opening how = {&r->chat, &r->tokenizer, o->length, o->config.vocabulary};

    if (o->chat_template && !r->chat.template && lm_chat_open(r))
        return -1;
    return lm_options_check_bytes(o) || eval_open(&r->eval, o->eval, &how) ? -1 : 0;
}

/* What became of the conversations, in numbers. */
static void describe_conversations(struct lm_run *r)
{
    const struct chat_counts *c = &r->conversations;
    const double places = (double)r->data.rows * (double)r->data.length;
    const int64_t filled = dataset_filled(&r->data);
    const size_t n = strlen(r->title);

    snprintf(r->title + n, sizeof r->title - n,
             "; %lld conversations, %lld of %lld targets trained, %.1f %% of the rows filled",
             (long long)c->conversations, (long long)c->trained, (long long)filled,
             100 * (double)filled / places);
    if (c->cut || c->dropped)
        say_note("--too-long %s: of %lld conversations %lld are cut and %lld left out",
                 c->cut ? "cut" : "drop", (long long)c->conversations, (long long)c->cut,
                 (long long)c->dropped);
    if (c->untrained)
        say_note("%s: %lld of %lld turns of the assistant are not trained on, because the text of "
                 "a turn is another one once others follow",
                 r->options.data, (long long)c->untrained, (long long)c->turns);
}

static void set_title(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    char tokens[32], rows[32];

    snprintf(r->title, sizeof r->title, "data: %s, %s tokens in %d file%s, %s samples of %lld",
             o->data ? o->data : shipped(), say_count(tokens, r->data.tokens.count),
             r->data.tokens.n, r->data.tokens.n > 1 ? "s" : "", say_count(rows, r->data.rows),
             (long long)o->length);
}

/* Random tokens are those of a run with this length. */
int lm_data_cut(struct lm_run *r, int64_t length)
{
    r->options.length = length;
    if (r->options.data && !strcmp(r->options.data, "random"))
        r->data.tokens.count = r->data.tokens.shard->count = noise_count(r);
    if (dataset_cut(&r->data, length) ||
        (r->validation.rows && dataset_cut(&r->validation, length)))
        return -1;
    set_widths(r);
    set_title(r);
    return 0;
}

int lm_data_open(void *run)
{
    struct lm_run *r = run;
    const struct lm_options *o = &r->options;
    const char *data = o->data ? o->data : shipped();

    if (o->preference.loss)
        return tokenizer_open(&r->tokenizer, lm_options_tokenizer(o)) ? -1 : preference_open(r);
    if (!data || tokenizer_open(&r->tokenizer, lm_options_tokenizer(o)) ||
        (lm_traits(&o->config)->masked && begin_masking(r)) ||
        open_files(r, &r->data, data, !o->in_order))
        return -1;
    if (o->validation && open_files(r, &r->validation, o->validation, false))
        return -1;
    if (o->eval && open_eval(r))
        return -1;
    if (check_documents(r, &r->data) || check_documents(r, &r->validation))
        return -1;
    if (o->longest)
        return lm_data_cut(r, 1); /* until the length is chosen */
    set_widths(r);
    if (distill_open(r))
        return -1;
    set_title(r);
    if (r->data.first_piece)
        describe_conversations(r);
    return 0;
}
