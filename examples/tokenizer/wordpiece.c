/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WordPiece (Wu et al. 2016): a word is the longest token that it begins with, then the longest of
 * those that continue a word, and so on.  A word for which there is none at some place is unknown.
 */
#include <string.h>
#include "../common/say.h"
#include "parts.h"

enum { MOST_CHARACTERS = 1000 };

int wordpiece_read(struct wordpiece *w, const char *path, const json_t *model)
{
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const char *text = prefix ? json_string_value(prefix) : "##";

    w->most = most ? json_integer_value(most) : 100;
    if (w->most < 1 || w->most > MOST_CHARACTERS)
        return say_fail("%s: \"model.max_input_chars_per_word\" is not in 1 to %d", path,
                        MOST_CHARACTERS);
    if (!text || snprintf(w->prefix, sizeof w->prefix, "%s", text) >= (int)sizeof w->prefix)
        return say_fail("%s: \"model.continuing_subword_prefix\" is no text of up to %zu bytes",
                        path, sizeof w->prefix - 1);
    return 0;
}

/* The longest token at the start of a text, and its *n bytes there; -1: none. */
static int32_t find_longest(const struct wordpiece *w, const char *text, int64_t bytes, bool inside,
                            int64_t *n)
{
    char name[sizeof w->prefix + 4 * MOST_CHARACTERS];
    const int64_t before = inside ? (int64_t)strlen(w->prefix) : 0;
    int32_t token = -1;

    memcpy(name, w->prefix, (size_t)before);
    memcpy(name + before, text, (size_t)bytes);
    for (*n = bytes; *n > 0; --*n)
        if ((token = vocabulary_find(w->model.vocabulary, name, before + *n)) >= 0)
            break;
    return token;
}

int wordpiece_encode(const struct wordpiece *w, const char *word, int64_t bytes, struct ids *to)
{
    const int64_t first = to->n;
    int64_t characters = 0, n;
    int32_t token = 0;

    for (int64_t i = 0; i < bytes; i++)
        characters += (word[i] & 0xc0) != 0x80;
    for (int64_t at = 0; characters <= w->most && at < bytes; at += n) {
        token = find_longest(w, word + at, bytes - at, at > 0, &n);
        if (token < 0)
            break;
        if (ids_add(to, token))
            return -1;
    }
    if (characters <= w->most && token >= 0)
        return 0;
    to->n = first;
    return ids_add(to, w->model.unknown);
}
