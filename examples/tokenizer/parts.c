/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tokenizer.json, or vocab.json with merges.txt: see parts.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "parts.h"
#include "read.h"

/* ---- keys ------------------------------------------------------------------------------------ */

/* Padding and truncation are for batches: a call for one text has neither, as in transformers. */
static const struct json_keys added_keys[] = {
    JSON_READ("id content single_word lstrip rstrip normalized special"), JSON_END};
static const struct json_keys file_keys[] = {
    JSON_READ("model normalizer pre_tokenizer post_processor decoder"),
    JSON_READ_INSIDE("added_tokens", added_keys), JSON_UNUSED("truncation padding"),
    JSON_ONLY("version", "1.0"), JSON_END};
static const struct json_keys bpe_keys[] = {
    JSON_READ("type vocab merges unk_token fuse_unk byte_fallback ignore_merges"),
    JSON_ONLY("dropout", "0"), JSON_ONLY("continuing_subword_prefix end_of_word_suffix", "|"),
    JSON_END};
static const struct json_keys unigram_keys[] = {JSON_READ("type vocab unk_id byte_fallback"),
                                                JSON_END};
static const struct json_keys wordpiece_keys[] = {
    JSON_READ("type vocab unk_token continuing_subword_prefix max_input_chars_per_word"), JSON_END};

/* ---- the model ------------------------------------------------------------------------------- */

static int64_t number_of(const json_t *value)
{
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* One more than the highest number of a token. */
static int64_t count(const json_t *vocab, const json_t *added)
{
    const char *name;
    json_t *value;
    int64_t n = (int64_t)json_array_size(vocab), id;
    size_t i;

    json_object_foreach((json_t *)vocab, name, value) n =
        (id = number_of(value)) >= n && id < INT32_MAX ? id + 1 : n;
    json_array_foreach(added, i, value) n =
        (id = number_of(json_object_get(value, "id"))) >= n && id < INT32_MAX ? id + 1 : n;
    return n;
}

static int read_names(struct vocabulary *v, const char *path, const json_t *vocab)
{
    const char *name;
    json_t *value;
    size_t i;
    int rc = 0;

    json_object_foreach((json_t *)vocab, name, value)
    {
        rc = rc ? rc : vocabulary_put(v, path, number_of(value), name);
    }
    json_array_foreach(vocab, i, value)
    {
        name = json_string_value(json_array_get(value, 0));
        if (!rc)
            rc = name ? vocabulary_put(v, path, (int64_t)i, name)
                      : say_fail("%s: token %zu has no name", path, i);
    }
    return rc ? rc : vocabulary_index(v, path);
}

static void find_bytes(struct token_model *m)
{
    char name[8];

    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        m->of_byte[b] = vocabulary_find(m->vocabulary, name, 6);
    }
}

static int find_unknown(struct token_model *m, const char *path, const char *name)
{
    m->unknown = name ? vocabulary_find(m->vocabulary, name, (int64_t)strlen(name)) : -1;
    return name && m->unknown < 0
               ? say_fail("%s: \"unk_token\" is %s, which is no token", path, name)
               : 0;
}

static int read_bpe(struct tokenizer_parts *p, const char *path, const json_t *model)
{
    struct token_model *m = &p->bpe.model;
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));

    m->vocabulary = &p->vocabulary;
    m->fuses_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    m->falls_back = json_is_true(json_object_get(model, "byte_fallback"));
    m->whole_first = json_is_true(json_object_get(model, "ignore_merges"));
    find_bytes(m);
    return find_unknown(m, path, unknown) ||
                   bpe_read(&p->bpe, path, json_object_get(model, "merges"))
               ? -1
               : 0;
}

static int read_unigram(struct tokenizer_parts *p, const char *path, const json_t *model)
{
    struct token_model *m = &p->unigram.model;

    m->vocabulary = &p->vocabulary;
    m->falls_back = json_is_true(json_object_get(model, "byte_fallback"));
    m->unknown = (int32_t)number_of(json_object_get(model, "unk_id"));
    if (m->unknown >= p->vocabulary.n)
        return say_fail("%s: \"model.unk_id\" is %d, which is no token", path, (int)m->unknown);
    find_bytes(m);
    return unigram_read(&p->unigram, path, json_object_get(model, "vocab"));
}

static int read_wordpiece(struct tokenizer_parts *p, const char *path, const json_t *model)
{
    struct token_model *m = &p->wordpiece.model;
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));

    m->vocabulary = &p->vocabulary;
    return find_unknown(m, path, unknown ? unknown : "missing") ||
                   wordpiece_read(&p->wordpiece, path, model)
               ? -1
               : 0;
}

static const struct model_reader {
    const char *type;
    int (*read)(struct tokenizer_parts *p, const char *path, const json_t *model);
    const struct json_keys *keys;
} models[] = {[MODEL_BPE] = {"BPE", read_bpe, bpe_keys},
              [MODEL_UNIGRAM] = {"Unigram", read_unigram, unigram_keys},
              [MODEL_WORDPIECE] = {"WordPiece", read_wordpiece, wordpiece_keys}};

/* Old files have no type. */
static int find_kind(struct tokenizer_parts *p, const char *path, const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));

    if (!type && json_object_get(model, "merges"))
        type = "BPE";
    if (!type && json_is_array(json_object_get(model, "vocab")))
        type = "Unigram";
    for (p->kind = MODEL_BPE; p->kind <= MODEL_WORDPIECE && type; p->kind++)
        if (!strcmp(type, models[p->kind].type))
            return 0;
    return say_fail("%s: its model is %s; BPE, Unigram and WordPiece are supported", path,
                    type ? type : "of no known type");
}

static int read_model(struct tokenizer_parts *p, const char *path, const json_t *root)
{
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");

    if (find_kind(p, path, model) || json_keys_check(path, "model", model, models[p->kind].keys))
        return -1;
    const bool scored = p->kind == MODEL_UNIGRAM;
    if (scored ? !json_is_array(vocab) : !json_is_object(vocab))
        return say_fail("%s: there is no vocabulary of tokens and %s", path,
                        scored ? "scores" : "numbers");
    if (vocabulary_open(&p->vocabulary, path,
                        count(vocab, json_object_get(root, "added_tokens"))) ||
        read_names(&p->vocabulary, path, vocab))
        return -1;
    return models[p->kind].read(p, path, model);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* In a list, or in the object "added_tokens_decoder" of tokenizer_config.json. */
static bool flag(const json_t *token, const char *key, bool fallback)
{
    const json_t *v = json_object_get(token, key);

    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

static void forget(struct added_list *list, int32_t id)
{
    for (int i = 0; i < list->n; i++) {
        if (list->token[i].id != id)
            continue;
        free(list->token[i].text);
        list->token[i] = list->token[--list->n];
    }
}

static int append(struct added_list *list, const char *path, struct added a)
{
    struct added *grown = realloc(list->token, (size_t)(list->n + 1) * sizeof *grown);

    list->token = grown ? grown : list->token;
    if (!grown || !a.text) {
        free(a.text);
        return say_fail("%s: no memory", path);
    }
    if (a.bytes)
        grown[list->n++] = a;
    else
        free(a.text); /* a normalizer that leaves nothing: it is never found */
    return 0;
}

int parts_put_added(struct tokenizer_parts *p, const char *path, int64_t id, const json_t *token)
{
    const char *content = json_string_value(json_object_get(token, "content"));
    struct text text = {NULL, 0, 0};

    if (!content)
        return say_fail("%s: an added token has no content", path);
    if (id < 0 || id >= p->vocabulary.n)
        return say_fail("%s: the added token %s has no number below %ld", path, content,
                        (long)p->vocabulary.n);
    if (p->vocabulary.name[id] && strcmp(p->vocabulary.name[id], content))
        return say_fail("%s: the added token %s has the number of the token %s", path, content,
                        p->vocabulary.name[id]);
    if (!p->vocabulary.name[id] && vocabulary_put(&p->vocabulary, path, id, content))
        return -1;
    bool normalized = flag(token, "normalized", !flag(token, "special", false));
    forget(&p->added, (int32_t)id);
    forget(&p->added_normalized, (int32_t)id);
    if (normalizer_run(normalized ? p->normalizer : NULL, path, content, (int64_t)strlen(content),
                       &text)) {
        free(text.bytes);
        return -1;
    }
    struct added a = {text.bytes,
                      (int32_t)text.n,
                      (int32_t)id,
                      flag(token, "single_word", false),
                      flag(token, "lstrip", false),
                      flag(token, "rstrip", false),
                      flag(token, "special", false)};
    return *content ? append(normalized ? &p->added_normalized : &p->added, path, a) : 0;
}

static int read_added(struct tokenizer_parts *p, const char *path, const json_t *added)
{
    json_t *token;
    size_t i;
    int rc = 0;

    json_array_foreach(added, i, token)
    {
        rc = rc ? rc : parts_put_added(p, path, number_of(json_object_get(token, "id")), token);
    }
    return rc;
}

/* ---- text of tokens -------------------------------------------------------------------------- */

/* A name in the characters that stand for bytes; false: one of them stands for none. */
static bool from_characters(struct text *to, const char *name)
{
    int64_t bytes = (int64_t)strlen(name);

    for (int64_t at = 0, n; at < bytes; at += n) {
        n = utf8_length(name + at, bytes - at);
        int byte = n ? splitter_byte(utf8_code(name + at, (int)n)) : -1;
        char c = (char)byte;
        if (byte < 0 || text_add(to, &c, 1))
            return false;
    }
    return true;
}

/* Pieces of SentencePiece: U+2581 is a blank, and <0x41> is a byte. */
static int from_piece(struct text *to, const char *name)
{
    unsigned byte;
    int end = 0;

    if (sscanf(name, "<0x%2X>%n", &byte, &end) == 1 && end == 6 && !name[6])
        return text_add(to, (char[]){(char)byte}, 1);
    for (const char *p = name; *p; p++) {
        bool blank = !strncmp(p, "\xe2\x96\x81", 3);
        if (text_add(to, blank ? " " : p, 1))
            return -1;
        p += blank ? 2 : 0;
    }
    return 0;
}

static bool is_added(const struct added_list *list, int32_t id)
{
    for (int i = 0; i < list->n; i++)
        if (list->token[i].id == id)
            return true;
    return false;
}

static int make_text(struct tokenizer_parts *p, const char *path, int32_t id, bool of_bytes)
{
    const char *name = p->vocabulary.name[id];
    struct text text = {NULL, 0, 0};
    int rc = 0;

    if (is_added(&p->added, id) || is_added(&p->added_normalized, id)) {
        rc = text_add(&text, name, (int64_t)strlen(name));
    } else if (!of_bytes) {
        rc = from_piece(&text, name);
    } else if (!from_characters(&text, name)) {
        text.n = 0; /* no byte-level token: as it is */
        rc = text_add(&text, name, (int64_t)strlen(name));
    }
    p->text[id] = text.bytes;
    p->bytes[id] = (int32_t)text.n;
    return rc ? say_fail("%s: no memory", path) : 0;
}

static int make_texts(struct tokenizer_parts *p, const char *path, bool of_bytes)
{
    int rc = 0;

    added_sort(&p->added);
    added_sort(&p->added_normalized);
    p->text = calloc((size_t)p->vocabulary.n, sizeof *p->text);
    p->bytes = calloc((size_t)p->vocabulary.n, sizeof *p->bytes);
    if (!p->text || !p->bytes)
        return say_fail("%s: no memory", path);
    for (int32_t i = 0; i < p->vocabulary.n && !rc; i++)
        if (p->vocabulary.name[i])
            rc = make_text(p, path, i, of_bytes);
    return rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool has_type(const json_t *part, const char *type)
{
    const char *is = json_string_value(json_object_get(part, "type"));

    return is && !strcmp(is, type);
}

int parts_read_root(struct tokenizer_parts *p, const char *path, const json_t *root)
{
    if (json_keys_check(path, "", root, file_keys) || read_model(p, path, root) ||
        normalizer_read(&p->normalizer, path, json_object_get(root, "normalizer")) ||
        splitter_read(&p->splitter, path, json_object_get(root, "pre_tokenizer")) ||
        tokenizer_config_open(p, path) || tokenizer_config_class(p, path) ||
        read_added(p, path, json_object_get(root, "added_tokens")) ||
        template_read(p, path, json_object_get(root, "post_processor")) ||
        tokenizer_config_tokens(p))
        return -1;
    return make_texts(p, path,
                      has_type(json_object_get(root, "decoder"), "ByteLevel") ||
                          splitter_has_bytes(p->splitter));
}

int parts_read(struct tokenizer_parts *p, const char *path)
{
    json_t *root = json_keys_read(path);
    int rc = root ? parts_read_root(p, path, root) : -1;

    json_decref(root);
    return rc;
}

/* The only added token of these files is known by its name. */
static int read_pair(struct tokenizer_parts *p, const char *path, const json_t *vocab,
                     const char *merges)
{
    static const char end[] = "<|endoftext|>";
    struct token_model *m = &p->bpe.model;

    m->vocabulary = &p->vocabulary;
    m->unknown = -1;
    if (!json_is_object(vocab))
        return say_fail("%s: there is no vocabulary of tokens and numbers", path);
    if (tokenizer_config_open(p, path) || tokenizer_config_is_gpt2(p, path) ||
        vocabulary_open(&p->vocabulary, path, count(vocab, NULL)) ||
        read_names(&p->vocabulary, path, vocab) || bpe_read_text(&p->bpe, merges) ||
        splitter_gpt2(&p->splitter, path))
        return -1;
    int32_t token = vocabulary_find(&p->vocabulary, end, (int64_t)strlen(end));
    if (token >= 0 &&
        append(&p->added, path,
               (struct added){.text = strdup(end), .bytes = sizeof end - 1, .id = token}))
        return -1;
    return tokenizer_config_tokens(p) ? -1 : make_texts(p, path, true);
}

int parts_read_pair(struct tokenizer_parts *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    char merges[4096];
    json_t *vocab = json_keys_read(path);

    snprintf(merges, sizeof merges, "%.*smerges.txt", slash ? (int)(slash - path) + 1 : 0, path);
    int rc = vocab ? read_pair(p, path, vocab, merges) : -1;
    json_decref(vocab);
    return rc;
}

void parts_close(struct tokenizer_parts *p)
{
    for (int32_t i = 0; i < p->vocabulary.n && p->text; i++)
        free(p->text[i]);
    free(p->text);
    free(p->bytes);
    added_close(&p->added);
    added_close(&p->added_normalized);
    normalizer_close(p->normalizer);
    splitter_close(p->splitter);
    bpe_close(&p->bpe);
    unigram_close(&p->unigram);
    json_decref(p->config);
    free(p->before.id);
    free(p->behind.id);
    vocabulary_close(&p->vocabulary);
}
