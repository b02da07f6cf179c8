/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in Hugging Face's file formats: see tokenizer.h. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "tokenizer.h"

/* GPT-2's pattern for splitting text; other tokenizers have theirs in their file. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- names --------------------------------------------------------------------------------- */

/* Finds tokens by their bytes: a hash table of token ids, -1 for an empty slot. */
struct token_names {
    int64_t places; /* a power of 2 */
    int32_t token[];
};

static int64_t first_place(const struct token_names *names, const char *bytes, int64_t n)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (int64_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return (int64_t)((hash ^ hash >> 32) & (uint64_t)(names->places - 1));
}

/* The slot of these bytes: the one that holds them, or the empty one where they belong. */
static int64_t find_place(const struct tokenizer *t, const char *bytes, int64_t n)
{
    const struct token_names *names = t->names;
    int64_t at = first_place(names, bytes, n);

    for (;; at = (at + 1) & (names->places - 1)) {
        int32_t token = names->token[at];
        if (token < 0 || (t->length[token] == n && !memcmp(t->text[token], bytes, (size_t)n)))
            return at;
    }
}

int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, int64_t n)
{
    return t->bytes ? (n == 1 ? (unsigned char)*bytes : -1)
                    : t->names->token[find_place(t, bytes, n)];
}

static int make_names(struct tokenizer *t)
{
    int64_t places = 16;

    while (places < 2 * (int64_t)t->n)
        places *= 2;
    t->names = malloc(sizeof *t->names + (size_t)places * sizeof t->names->token[0]);
    if (!t->names)
        return -1;
    t->names->places = places;
    for (int64_t i = 0; i < places; i++)
        t->names->token[i] = -1;
    for (int32_t i = 0; i < t->n; i++)
        if (t->text[i])
            t->names->token[find_place(t, t->text[i], t->length[i])] = i;
    return 0;
}

/* ---- bytes as characters ------------------------------------------------------------------- */

/* Files write each byte as a printable character: bytes that are printable in Latin-1 unchanged,
 * the others mapped in order to U+0100 and up. */
static bool is_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* The bytes that a token's name in a file stands for, malloc'ed; NULL: a character stands for no
 * byte. */
static char *to_bytes(const char *name, int32_t *length)
{
    char *bytes = malloc(strlen(name) + 1);
    int16_t of[512];
    int n = 256;

    memset(of, -1, sizeof of);
    for (int i = 0; i < 256; i++)
        of[is_itself(i) ? i : n++] = (int16_t)i;
    *length = 0;
    for (const unsigned char *p = (const unsigned char *)name; bytes && *p; p++) {
        int code = *p;
        if (code >= 0xc0 && code < 0xe0 && (p[1] & 0xc0) == 0x80)
            code = (code & 0x1f) << 6 | (*++p & 0x3f);
        else if (code >= 0x80)
            code = 511;
        if (code > 511 || of[code] < 0) {
            free(bytes);
            return NULL;
        }
        bytes[(*length)++] = (char)of[code];
    }
    return bytes;
}

/* ---- vocabulary ---------------------------------------------------------------------------- */

static int64_t number_of(const json_t *value)
{
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static int32_t highest(const json_t *vocab, const json_t *added)
{
    const char *name;
    json_t *value, *v = (json_t *)vocab;
    int64_t most = -1, id;
    size_t i;

    json_object_foreach(v, name, value) most = (id = number_of(value)) > most ? id : most;
    json_array_foreach(added, i, value) most =
        (id = number_of(json_object_get(value, "id"))) > most ? id : most;
    return most < 1 << 24 ? (int32_t)most : -1;
}

static void add_special(struct tokenizer *t, int32_t token)
{
    t->special[t->n_special++] = token;
    t->begins_special[(unsigned char)*t->text[token]] = true;
}

static int put_token(struct tokenizer *t, const char *path, int64_t id, const char *name,
                     bool special)
{
    if (id < 0)
        return say_fail("%s: token '%s' has no number", path, name);
    free(t->text[id]);
    t->text[id] = special ? strdup(name) : to_bytes(name, &t->length[id]);
    if (special)
        t->length[id] = (int32_t)strlen(name);
    if (!t->text[id])
        return say_fail("%s: '%s' is not a token of byte-level BPE", path, name);
    if (special)
        add_special(t, (int32_t)id);
    return 0;
}

static int read_vocabulary(struct tokenizer *t, const char *path, const json_t *vocab,
                           const json_t *added)
{
    const char *name;
    json_t *value, *v = (json_t *)vocab;
    size_t i;
    int rc = 0;

    t->n = highest(vocab, added) + 1;
    if (!json_is_object(vocab) || t->n < 1)
        return say_fail("%s: there is no vocabulary of tokens and numbers", path);
    t->text = calloc((size_t)t->n, sizeof *t->text);
    t->length = calloc((size_t)t->n, sizeof *t->length);
    t->special = calloc(json_array_size(added) + 1, sizeof *t->special);
    if (!t->text || !t->length || !t->special)
        return say_fail("%s: no memory", path);
    json_object_foreach(v, name,
                        value) if (!rc && !(json_array_size(added) && number_of(value) < 0)) rc =
        put_token(t, path, number_of(value), name, false);
    json_array_foreach(added, i, value)
    {
        const char *content = json_string_value(json_object_get(value, "content"));
        if (!rc)
            rc = content && *content
                     ? put_token(t, path, number_of(json_object_get(value, "id")), content, true)
                     : say_fail("%s: an added token has no content", path);
    }
    if (!rc && make_names(t))
        rc = say_fail("%s: no memory", path);
    for (int b = 0; b < 256 && !rc; b++) {
        char byte = (char)b;
        t->of_byte[b] = tokenizer_find(t, &byte, 1);
        if (t->of_byte[b] < 0)
            rc = say_fail("%s: there is no token for byte %d: this is no byte-level BPE", path, b);
    }
    return rc;
}

/* ---- merges -------------------------------------------------------------------------------- */

static int make_pairs(struct tokenizer *t, int64_t n)
{
    t->pairs = 16;
    while (t->pairs < 2 * n)
        t->pairs *= 2;
    t->pair = malloc((size_t)t->pairs * sizeof *t->pair);
    for (int64_t i = 0; t->pair && i < t->pairs; i++)
        t->pair[i].left = -1;
    return t->pair ? 0 : -1;
}

static int32_t find_name(const struct tokenizer *t, const char *name)
{
    int32_t length, token = -1;
    char *bytes = to_bytes(name, &length);

    if (bytes)
        token = tokenizer_find(t, bytes, length);
    free(bytes);
    return token;
}

static int put_merge(struct tokenizer *t, const char *path, const char *left, const char *right,
                     int32_t rank)
{
    int32_t a = find_name(t, left), b = find_name(t, right), token = -1;
    char whole[1024];

    if (snprintf(whole, sizeof whole, "%s%s", left, right) < (int)sizeof whole)
        token = find_name(t, whole);
    if (a < 0 || b < 0 || token < 0)
        return say_fail("%s: merge %d, '%s %s', has a token that is not in the vocabulary", path,
                        (int)rank, left, right);
    struct bpe_pair *p = bpe_find(t, a, b);
    if (p->left < 0)
        *p = (struct bpe_pair){a, b, rank, token};
    return 0;
}

/* Adds the merge "a b"; modifies line. */
static int put_line(struct tokenizer *t, const char *path, char *line, int32_t rank)
{
    char *blank = strchr(line, ' ');

    if (!blank)
        return say_fail("%s: merge %d does not have two parts: '%s'", path, (int)rank, line);
    *blank = 0;
    return put_merge(t, path, line, blank + 1, rank);
}

static int read_merges(struct tokenizer *t, const char *path, const json_t *merges)
{
    json_t *value;
    size_t i;
    int rc = 0;

    if (!json_is_array(merges))
        return say_fail("%s: there are no merges", path);
    if (make_pairs(t, (int64_t)json_array_size(merges)))
        return say_fail("%s: no memory", path);
    json_array_foreach(merges, i, value)
    {
        const char *left = json_string_value(json_array_get(value, 0));
        const char *right = json_string_value(json_array_get(value, 1));
        char *line = json_is_string(value) ? strdup(json_string_value(value)) : NULL;
        if (line)
            rc = put_line(t, path, line, (int32_t)i);
        else
            rc = left && right ? put_merge(t, path, left, right, (int32_t)i)
                               : say_fail("%s: merge %zu is not valid", path, i);
        free(line);
        if (rc)
            break;
    }
    return rc;
}

static int read_merges_text(struct tokenizer *t, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int32_t rank = 0;
    FILE *f;

    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = make_pairs(t, t->n) ? say_fail("%s: no memory", path) : 0;
    while (!rc && (n = getline(&line, &room, f)) > 0) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (!n || !strncmp(line, "#version", 8))
            continue;
        rc = rank < t->n ? put_line(t, path, line, rank)
                         : say_fail("%s: more merges than tokens", path);
        rank++;
    }
    free(line);
    fclose(f);
    return rc;
}

/* ---- files --------------------------------------------------------------------------------- */

static json_t *read_json(const char *path)
{
    json_error_t e;
    FILE *f;

    if (ckpt_input_open(&f, path)) {
        say_fail("%s", ckpt_error(NULL));
        return NULL;
    }
    json_t *root = json_loadf(f, 0, &e);
    fclose(f);
    if (!root)
        say_fail("%s: line %d: %s", path, e.line, e.text);
    return root;
}

static bool is_type(const json_t *part, const char *type)
{
    const char *is = json_string_value(json_object_get(part, "type"));

    return is && !strcmp(is, type);
}

/* The split pattern of the pre-tokenizer `cutter`; NULL after an error message. */
static const char *find_pattern(const char *path, const json_t *cutter)
{
    const json_t *parts = json_object_get(cutter, "pretokenizers"),
                 *split = json_array_get(parts, 0);
    const json_t *bytes = is_type(cutter, "Sequence") ? json_array_get(parts, 1) : cutter;
    const char *pattern = gpt2_pattern;

    if (is_type(cutter, "Sequence"))
        pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    if (is_type(bytes, "ByteLevel") && !json_is_true(json_object_get(bytes, "add_prefix_space")) &&
        (bytes == cutter || (is_type(split, "Split") && json_array_size(parts) == 2 && pattern)))
        return pattern;
    say_fail("%s: its pre_tokenizer is not supported: neither ByteLevel of GPT-2 nor a pattern "
             "with ByteLevel",
             path);
    return NULL;
}

static int read_tokenizer(struct tokenizer *t, const char *path)
{
    json_t *root = read_json(path);
    const json_t *model = json_object_get(root, "model");
    const json_t *normalizer = json_object_get(root, "normalizer");

    if (!root)
        return -1;
    int rc = is_type(model, "BPE") ? 0 : say_fail("%s: its model is not BPE", path);
    const char *pattern = rc ? NULL : find_pattern(path, json_object_get(root, "pre_tokenizer"));
    if (!pattern ||
        read_vocabulary(t, path, json_object_get(model, "vocab"),
                        json_object_get(root, "added_tokens")) ||
        read_merges(t, path, json_object_get(model, "merges")))
        rc = -1;
    if (!rc && json_is_object(normalizer)) {
        if (is_type(normalizer, "NFC"))
            say_note("%s: it is for text in the normal form NFC, which is not checked", path);
        else
            rc = say_fail("%s: its normalizer is not supported", path);
    }
    t->whole_first = json_is_true(json_object_get(model, "ignore_merges"));
    rc = rc ? rc : splitter_open(&t->split, path, pattern);
    json_decref(root);
    return rc;
}

/* Reads vocab.json, and merges.txt in the same directory.  These files do not list special tokens,
 * so the only one is known by its name. */
static int read_pair(struct tokenizer *t, const char *path)
{
    const char *slash = strrchr(path, '/');
    char merges[4096];
    json_t *vocab = read_json(path);

    snprintf(merges, sizeof merges, "%.*smerges.txt", slash ? (int)(slash - path) + 1 : 0, path);
    int rc = vocab ? read_vocabulary(t, path, vocab, NULL) : -1;
    json_decref(vocab);
    rc = rc ? rc : read_merges_text(t, merges);
    if (rc)
        return rc;
    int32_t end = tokenizer_find(t, "<|endoftext|>", 13);
    if (end >= 0)
        add_special(t, end);
    return splitter_open(&t->split, path, gpt2_pattern);
}

static bool find_file(const char *directory, const char *name, char path[4096])
{
    return snprintf(path, 4096, "%s/%s", directory, name) < 4096 && !access(path, R_OK);
}

bool tokenizer_is_in(const char *directory)
{
    char path[4096];

    return find_file(directory, "tokenizer.json", path) || find_file(directory, "vocab.json", path);
}

/* Whether the file is a plain JSON object of token names and ids. */
static bool is_vocabulary(const char *path)
{
    size_t n = strlen(path);

    return n >= 10 && !strcmp(path + n - 10, "vocab.json");
}

int tokenizer_open(struct tokenizer *t, const char *path)
{
    char inside[4096];

    *t = (struct tokenizer){.bytes = !path || !strcmp(path, "bytes"), .n = 256};
    for (int i = 0; i < 256; i++)
        t->alphabet[i] = (char)i;
    if (t->bytes)
        return 0;
    t->n = 0;
    if (find_file(path, "tokenizer.json", inside) || find_file(path, "vocab.json", inside))
        path = inside;
    int rc = is_vocabulary(path) ? read_pair(t, path) : read_tokenizer(t, path);
    if (rc)
        tokenizer_close(t);
    return rc;
}

void tokenizer_close(struct tokenizer *t)
{
    for (int32_t i = 0; i < t->n && t->text; i++)
        free(t->text[i]);
    free(t->text);
    free(t->length);
    free(t->special);
    free(t->pair);
    free(t->names);
    splitter_close(t->split);
    *t = (struct tokenizer){.bytes = true, .n = 256};
}

/* ---- text ---------------------------------------------------------------------------------- */

const char *tokenizer_decode(const struct tokenizer *t, int32_t token, int32_t *bytes)
{
    *bytes = 0;
    if (token < 0 || token >= t->n || (!t->bytes && !t->text[token]))
        return "";
    *bytes = t->bytes ? 1 : t->length[token];
    return t->bytes ? &t->alphabet[token] : t->text[token];
}

struct encoding {
    const struct tokenizer *t;
    int32_t *token;
    int64_t n;
};

static int take_piece(void *user, const char *piece, int64_t bytes)
{
    struct encoding *e = user;
    int64_t n = bpe_merge(e->t, piece, bytes, e->token + e->n);

    if (n < 0)
        return say_fail("no memory for a word of %lld bytes", (long long)bytes);
    e->n += n;
    return 0;
}

/* The longest special token at the start of the text, or -1. */
static int32_t special_at(const struct tokenizer *t, const char *text, int64_t bytes)
{
    int32_t best = -1;

    if (!t->begins_special[(unsigned char)*text])
        return best;
    for (int32_t i = 0; i < t->n_special; i++) {
        int32_t token = t->special[i], n = t->length[token];
        if (n <= bytes && !memcmp(text, t->text[token], (size_t)n) &&
            (best < 0 || n > t->length[best]))
            best = token;
    }
    return best;
}

/* Text between two special tokens is split and merged. */
static int encode_all(struct encoding *e, const char *path, const char *text, int64_t bytes)
{
    int64_t begin = 0;

    for (int64_t at = 0; at <= bytes; at++) {
        int32_t special = at < bytes ? special_at(e->t, text + at, bytes - at) : -1;
        if (special < 0 && at < bytes)
            continue;
        if (at > begin && splitter_run(e->t->split, path, text + begin, at - begin, take_piece, e))
            return -1;
        if (special < 0)
            break;
        e->token[e->n++] = special;
        begin = at + e->t->length[special];
        at = begin - 1;
    }
    return 0;
}

int32_t *tokenizer_encode(void *user, const char *path, const char *text, int64_t bytes, int64_t *n)
{
    const struct tokenizer *t = user;
    struct encoding e = {t, malloc((size_t)(bytes + 1) * sizeof *e.token), 0};

    if (!e.token) {
        say_fail("%s: no memory for its tokens", path);
        return NULL;
    }
    for (int64_t i = 0; i < bytes && t->bytes; i++)
        e.token[e.n++] = (unsigned char)text[i];
    if (!t->bytes && encode_all(&e, path, text, bytes)) {
        free(e.token);
        return NULL;
    }
    *n = e.n;
    int32_t *fitted = realloc(e.token, (size_t)(e.n + 1) * sizeof *fitted);
    return fitted ? fitted : e.token;
}
