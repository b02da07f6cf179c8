/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram (Kudo 2018): the likeliest tokens that make up a piece, by dynamic programming over the
 * ends of tokens.  A character that is no token is unknown, with a score below all others.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "parts.h"

static int read_token(struct unigram *u, const char *path, const json_t *entry, size_t i)
{
    const char *name = json_string_value(json_array_get(entry, 0));
    const json_t *score = json_array_get(entry, 1);

    if (!name || !json_is_number(score))
        return say_fail("%s: token %zu is not a name and a score", path, i);
    u->score[i] = json_number_value(score);
    u->lowest = !i || u->score[i] < u->lowest ? u->score[i] : u->lowest;
    int32_t bytes = (int32_t)strlen(name);
    u->longest = bytes > u->longest ? bytes : u->longest;
    return 0;
}

int unigram_read(struct unigram *u, const char *path, const json_t *vocab)
{
    json_t *entry;
    size_t i;
    int rc = 0;

    u->score = calloc(json_array_size(vocab) + 1, sizeof *u->score);
    if (!u->score)
        return say_fail("%s: no memory", path);
    json_array_foreach(vocab, i, entry)
    {
        rc = rc ? rc : read_token(u, path, entry, i);
    }
    return rc;
}

void unigram_close(struct unigram *u)
{
    free(u->score);
    u->score = NULL;
}

/* The best path to a place of the piece; begin -1: none yet. */
struct path {
    double score;
    int64_t begin;
    int32_t token;
};

static void offer(struct path *w, double score, int64_t begin, int32_t token)
{
    if (w->begin < 0 || score > w->score)
        *w = (struct path){score, begin, token};
}

static void find_paths(const struct unigram *u, const char *text, int64_t bytes, struct path *path)
{
    const double unknown = u->lowest - 10;

    for (int64_t at = 0, one; at < bytes; at += one) {
        bool has_one = false;
        one = utf8_length(text + at, bytes - at);
        one = one ? one : 1;
        for (int64_t n = 1; n <= u->longest && at + n <= bytes; n++) {
            int32_t token = vocabulary_find(u->model.vocabulary, text + at, n);
            if (token < 0)
                continue;
            offer(&path[at + n], path[at].score + u->score[token], at, token);
            has_one |= n == one;
        }
        if (!has_one)
            offer(&path[at + one], path[at].score + unknown, at, -1);
    }
}

/* A run of unknown characters is a token if it has the name of one, its bytes, or unknown. */
static int put_unknown(const struct token_model *m, const char *text, int64_t bytes, struct ids *to)
{
    int32_t token = vocabulary_find(m->vocabulary, text, bytes);
    int rc = 0;

    if (token < 0 && model_bytes(m, text, bytes, to, &rc))
        return rc;
    token = token < 0 ? m->unknown : token;
    return token < 0 ? 0 : ids_add(to, token);
}

static bool is_unknown(const struct unigram *u, int32_t token)
{
    return token < 0 || token == u->model.unknown;
}

/* Neighbouring unknown tokens are one. */
static int put_paths(const struct unigram *u, const char *text, int64_t bytes, struct path *path,
                     struct ids *to)
{
    int64_t n = 0, end = 0;
    int rc = 0;

    for (int64_t at = bytes; at > 0; at = path[at].begin) /* turns the list: ends by begins */
        path[n++ + bytes + 1] = (struct path){0, at, path[at].token};
    for (int64_t begin = 0; n && !rc; begin = end) {
        const struct path *w = &path[bytes + n--];
        end = w->begin;
        while (is_unknown(u, w->token) && n && is_unknown(u, path[bytes + n].token))
            end = path[bytes + n--].begin;
        rc = is_unknown(u, w->token) ? put_unknown(&u->model, text + begin, end - begin, to)
                                     : ids_add(to, w->token);
    }
    return rc;
}

int unigram_encode(const struct unigram *u, const char *text, int64_t bytes, struct ids *to)
{
    struct path *path = malloc(2 * (size_t)(bytes + 1) * sizeof *path);

    if (!path)
        return -1;
    for (int64_t i = 0; i <= bytes; i++)
        path[i] = (struct path){0, -1, -1};
    find_paths(u, text, bytes, path);
    int rc = put_paths(u, text, bytes, path, to);
    free(path);
    return rc;
}
