/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a tokenizer of Hugging Face, in the order that text passes through them: added
 * tokens that are found in the text as it is, normalizers, added tokens that are found in
 * normalized text, splitters (pre-tokenizers), the model, and the tokens before and behind.
 */
#ifndef TOKENIZER_PARTS_H
#define TOKENIZER_PARTS_H

#include <jansson.h>
#include "tokenizer.h"

/* ---- text that grows ------------------------------------------------------------------------- */

struct text {
    char *bytes;
    int64_t n, room;
};

/* Appends.  Returns 0, or -1 without memory. */
int text_add(struct text *t, const char *bytes, int64_t n);

/* The bytes of the UTF-8 character at `at`, 1 to 4; 0: none. */
int utf8_length(const char *at, int64_t bytes);
/* Its code point, if there is one. */
uint32_t utf8_code(const char *at, int length);
/* White space of Unicode. */
bool utf8_is_space(uint32_t code);
/* The first place from `at` on that is no white space, and the end without white space before it.
 */
int64_t utf8_skip_spaces(const char *text, int64_t at, int64_t bytes);
int64_t utf8_drop_spaces(const char *text, int64_t from, int64_t end);
/* The character that ends at `end`, and its bytes; 0 bytes at the beginning. */
uint32_t utf8_before(const char *text, int64_t end, int *length);
/* Writes a code point to dst; returns its bytes. */
int utf8_put(char dst[4], uint32_t code);

/* ---- patterns (pattern.c) ---------------------------------------------------------------------
 */

struct pattern; /* a regular expression of Oniguruma, or a text */

/* Returns 0, or -1 after an error message: it is invalid, not supported, or PCRE2 is missing. */
int pattern_open(struct pattern **p, const char *path, const char *expression, bool is_text);
void pattern_close(struct pattern *p);

/* Calls take for each match and for each piece between matches, in order; pieces may be empty.
 * Returns 0, the first nonzero value of take, or -1 after an error message. */
typedef int (*pattern_taker)(void *user, int64_t begin, int64_t end, bool is_match);
int pattern_each(const struct pattern *p, const char *path, const char *text, int64_t bytes,
                 pattern_taker take, void *user);

/* Opens the pattern {"String": text} or {"Regex": expression} of a part of the file. */
int pattern_read(struct pattern **p, const char *path, const json_t *pattern);

/* ---- added tokens (added.c) -------------------------------------------------------------------
 */

struct added {
    char *text; /* to look for; normalized in the list of normalized tokens */
    int32_t bytes, id;
    bool single_word, strips_left, strips_right, special;
};

/* Sorted by first byte, then the longest first; those with a first byte b are first[b] ..
 * first[b + 1]. */
struct added_list {
    struct added *token;
    int n, first[257];
};

void added_sort(struct added_list *list);
void added_close(struct added_list *list);
/* Calls take for each added token (id >= 0) and each other text (id -1), in order, never empty.
 * plain: of each byte, whether it can be in no special token; NULL: each can. */
int added_each(const struct added_list *list, const char *text, int64_t bytes, const bool *plain,
               int (*take)(void *user, const char *text, int64_t bytes, int32_t id), void *user);

/* ---- normalizers (normalize.c) ----------------------------------------------------------------
 */

struct normalizer;

int normalizer_read(struct normalizer **n, const char *path, const json_t *part);
void normalizer_close(struct normalizer *n);
/* Appends the normalized text.  NULL: the same text.  Returns 0, or -1 after an error message. */
int normalizer_run(const struct normalizer *n, const char *path, const char *text, int64_t bytes,
                   struct text *to);
/* Whether text gets a prefix. */
bool normalizer_has_prefix(const struct normalizer *n);

/* ---- splitters (split.c) ----------------------------------------------------------------------
 */

struct splitter;

/* NULL: text is not split. */
int splitter_read(struct splitter **s, const char *path, const json_t *part);
/* GPT-2's, and Metaspace of pieces with U+2581 without splits. */
int splitter_gpt2(struct splitter **s, const char *path);
int splitter_metaspace(struct splitter **s, const char *path, bool prefix, bool only_first);
void splitter_close(struct splitter *s);
/* first: the text is the beginning of the whole.  take gets each piece; none is empty. */
int splitter_run(const struct splitter *s, const char *path, const char *text, int64_t bytes,
                 bool first, int (*take)(void *user, const char *piece, int64_t bytes), void *user);
bool splitter_has_prefix(const struct splitter *s);
/* Whether bytes are written as characters (byte-level BPE). */
bool splitter_has_bytes(const struct splitter *s);
/* The byte that a character stands for, or -1. */
int splitter_byte(uint32_t code);

/* ---- models -----------------------------------------------------------------------------------
 */

struct token_names;

/* Tokens by their numbers and names. */
struct vocabulary {
    int32_t n;
    char **name; /* NULL: no token of the model */
    int32_t *bytes;
    struct token_names *names;
};

int vocabulary_open(struct vocabulary *v, const char *path, int64_t n);
int vocabulary_put(struct vocabulary *v, const char *path, int64_t id, const char *name);
int vocabulary_index(struct vocabulary *v, const char *path);
void vocabulary_close(struct vocabulary *v);
int32_t vocabulary_find(const struct vocabulary *v, const char *name, int64_t bytes);

/* Tokens that grow. */
struct ids {
    int32_t *id;
    int64_t n, room;
};

int ids_add(struct ids *ids, int32_t id);

/* What the models share. */
struct token_model {
    const struct vocabulary *vocabulary;
    int32_t unknown;      /* token of unknown characters; -1: none, they are left out */
    bool fuses_unknown;   /* neighbouring unknown characters are one token */
    bool falls_back;      /* unknown characters are tokens of their bytes, if all exist */
    bool whole_first;     /* a piece that is itself a token is not built by merges */
    int32_t of_byte[256]; /* tokens <0x00> to <0xFF>; -1: none */
};

/* Two neighbouring tokens that merge into one. */
struct bpe_pair {
    int32_t left, right; /* left -1: an empty slot of the table */
    int32_t rank, token; /* pairs of lower rank merge first; token: the result */
};

struct bpe {
    struct token_model model;
    struct bpe_pair *pair; /* a hash table of `pairs` slots, a power of 2 */
    int64_t pairs;
};

int bpe_read(struct bpe *b, const char *path, const json_t *merges);
int bpe_read_text(struct bpe *b, const char *path); /* merges.txt */
void bpe_close(struct bpe *b);
/* Appends the tokens of a piece.  Returns 0, or -1 if memory is short. */
int bpe_encode(const struct bpe *b, const char *piece, int64_t bytes, struct ids *to);

struct unigram {
    struct token_model model;
    double *score; /* logarithms of probabilities */
    double lowest;
    int32_t longest; /* bytes of a token */
};

int unigram_read(struct unigram *u, const char *path, const json_t *vocab);
void unigram_close(struct unigram *u);
int unigram_encode(const struct unigram *u, const char *piece, int64_t bytes, struct ids *to);

struct wordpiece {
    struct token_model model;
    char prefix[16]; /* of pieces that continue a word */
    int64_t most;    /* characters of a word; a longer one is unknown */
};

int wordpiece_read(struct wordpiece *w, const char *path, const json_t *model);
int wordpiece_encode(const struct wordpiece *w, const char *word, int64_t bytes, struct ids *to);

/* Appends the tokens of an unknown character: those of its bytes, or none and false. */
bool model_bytes(const struct token_model *m, const char *at, int64_t bytes, struct ids *to,
                 int *rc);

/* ---- the whole --------------------------------------------------------------------------------
 */

struct tokenizer_parts {
    struct vocabulary vocabulary; /* with added tokens */
    struct added_list added, added_normalized;
    struct normalizer *normalizer;
    struct splitter *splitter;
    enum token_model_kind { MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE } kind;
    struct bpe bpe;
    struct unigram unigram;
    struct wordpiece wordpiece;
    struct ids before, behind; /* put around every text */
    json_t *config;            /* tokenizer_config.json, or NULL */
    char config_path[4096];
    char **text; /* of each token when decoded, or NULL */
    int32_t *bytes;
};

/* tokenizer.json, and tokenizer_config.json beside it. */
int parts_read(struct tokenizer_parts *p, const char *path);
/* vocab.json, and merges.txt beside it; and vocab.txt of BERT, a token a line. */
int parts_read_pair(struct tokenizer_parts *p, const char *path);
int parts_read_words(struct tokenizer_parts *p, const char *path);
void parts_close(struct tokenizer_parts *p);

#endif
