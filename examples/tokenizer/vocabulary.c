/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by their numbers, and by their names with a hash table. */
#include <stdlib.h>
#include <string.h>
#include "../common/digest.h"
#include "../common/say.h"
#include "parts.h"

struct token_names {
    int64_t places;  /* a power of 2 */
    int32_t token[]; /* -1: an empty slot */
};

static int64_t first_place(const struct token_names *names, const char *bytes, int64_t n)
{
    const uint64_t hash = digest_bytes(DIGEST_START, bytes, (size_t)n);

    return (int64_t)((hash ^ hash >> 32) & (uint64_t)(names->places - 1));
}

/* The slot of these bytes: the one that holds them, or the empty one where they belong. */
static int64_t find_place(const struct vocabulary *v, const char *bytes, int64_t n)
{
    const struct token_names *names = v->names;
    int64_t at = first_place(names, bytes, n);

    for (;; at = (at + 1) & (names->places - 1)) {
        int32_t token = names->token[at];
        if (token < 0 || (v->bytes[token] == n && !memcmp(v->name[token], bytes, (size_t)n)))
            return at;
    }
}

int32_t vocabulary_find(const struct vocabulary *v, const char *name, int64_t bytes)
{
    return v->names->token[find_place(v, name, bytes)];
}

int vocabulary_open(struct vocabulary *v, const char *path, int64_t n)
{
    enum { MOST = 1 << 24 };

    if (n < 1 || n > MOST)
        return say_fail("%s: there is no vocabulary of tokens and numbers", path);
    v->n = (int32_t)n;
    v->name = calloc((size_t)n, sizeof *v->name);
    v->bytes = calloc((size_t)n, sizeof *v->bytes);
    return v->name && v->bytes ? 0 : say_fail("%s: no memory", path);
}

int vocabulary_put(struct vocabulary *v, const char *path, int64_t id, const char *name)
{
    if (id < 0 || id >= v->n)
        return say_fail("%s: token '%s' has no number", path, name);
    free(v->name[id]);
    v->name[id] = strdup(name);
    v->bytes[id] = (int32_t)strlen(name);
    return v->name[id] ? 0 : say_fail("%s: no memory", path);
}

int vocabulary_index(struct vocabulary *v, const char *path)
{
    int64_t places = 16;

    free(v->names);
    while (places < 2 * (int64_t)v->n)
        places *= 2;
    v->names = malloc(sizeof *v->names + (size_t)places * sizeof v->names->token[0]);
    if (!v->names)
        return say_fail("%s: no memory", path);
    v->names->places = places;
    for (int64_t i = 0; i < places; i++)
        v->names->token[i] = -1;
    for (int32_t i = 0; i < v->n; i++)
        if (v->name[i])
            v->names->token[find_place(v, v->name[i], v->bytes[i])] = i;
    return 0;
}

void vocabulary_close(struct vocabulary *v)
{
    for (int32_t i = 0; i < v->n && v->name; i++)
        free(v->name[i]);
    free(v->name);
    free(v->bytes);
    free(v->names);
    *v = (struct vocabulary){.n = 0};
}

bool model_bytes(const struct token_model *m, const char *at, int64_t bytes, struct ids *to,
                 int *rc)
{
    for (int64_t i = 0; i < bytes; i++)
        if (!m->falls_back || m->of_byte[(unsigned char)at[i]] < 0)
            return false;
    for (int64_t i = 0; i < bytes && !*rc; i++)
        *rc = ids_add(to, m->of_byte[(unsigned char)at[i]]);
    return true;
}
