/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens that are found in the text before anything else, as <|endoftext|>: the leftmost first, the
 * longest of those that begin there.  They may take the white space beside them, or count only as
 * whole words.
 */
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_ICU
#include <unicode/uchar.h>
#endif
#include "parts.h"

void added_close(struct added_list *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->token[i].text);
    free(list->token);
    *list = (struct added_list){.n = 0};
}

static int compare(const void *a, const void *b)
{
    const struct added *x = a, *y = b;
    int first = (unsigned char)*x->text - (unsigned char)*y->text;

    return first ? first : y->bytes != x->bytes ? y->bytes - x->bytes : x->id - y->id;
}

void added_sort(struct added_list *list)
{
    if (list->n)
        qsort(list->token, (size_t)list->n, sizeof *list->token, compare);
    for (int b = 0, i = 0; b <= 256; b++) {
        while (i < list->n && (unsigned char)*list->token[i].text < b)
            i++;
        list->first[b] = i;
    }
}

static bool is_plain(const struct added *a, const bool *plain)
{
    bool found = false;

    for (int32_t i = 0; i < a->bytes && plain && a->special && !found; i++)
        found = plain[i];
    return found;
}

/* The longest token at the start of the text, or NULL. */
static const struct added *token_at(const struct added_list *list, const char *text, int64_t bytes,
                                    const bool *plain)
{
    int b = (unsigned char)*text;

    for (int i = list->first[b]; i < list->first[b + 1]; i++)
        if (list->token[i].bytes <= bytes &&
            !memcmp(text, list->token[i].text, (size_t)list->token[i].bytes) &&
            !is_plain(&list->token[i], plain))
            return &list->token[i];
    return NULL;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

/* Letters, marks, decimal digits, connectors, joiners.  Without ICU all that is not ASCII is one.
 */
static bool is_word(uint32_t c)
{
#ifdef HAVE_ICU
    return u_hasBinaryProperty((UChar32)c, UCHAR_ALPHABETIC) ||
           u_hasBinaryProperty((UChar32)c, UCHAR_JOIN_CONTROL) ||
           (U_GET_GC_MASK((UChar32)c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK));
#else
    return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
#endif
}

static bool is_alone(const char *text, int64_t begin, int64_t end, int64_t bytes)
{
    int before, behind = end < bytes ? utf8_length(text + end, bytes - end) : 0;
    uint32_t code = utf8_before(text, begin, &before);

    return !(before && is_word(code)) && !(behind && is_word(utf8_code(text + end, behind)));
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Widens a match over the white space beside it, but not before `done`. */
static void strip(const struct added *a, const char *text, int64_t done, int64_t bytes,
                  int64_t *begin, int64_t *end)
{
    if (a->strips_left)
        *begin = utf8_drop_spaces(text, done, *begin);
    if (a->strips_right)
        *end = utf8_skip_spaces(text, *end, bytes);
}

int added_each(const struct added_list *list, const char *text, int64_t bytes, const bool *plain,
               int (*take)(void *user, const char *text, int64_t bytes, int32_t id), void *user)
{
    int64_t done = 0;
    int rc = 0;

    for (int64_t at = 0; list->n && at < bytes && !rc; at++) {
        const struct added *a = token_at(list, text + at, bytes - at, plain ? plain + at : NULL);
        if (!a)
            continue;
        int64_t begin = at, end = at + a->bytes;
        at = end - 1;
        if (a->single_word && !is_alone(text, begin, end, bytes))
            continue;
        strip(a, text, done, bytes, &begin, &end);
        if (begin > done)
            rc = take(user, text + done, begin - done, -1);
        rc = rc ? rc : take(user, text + begin, end - begin, a->id);
        done = end;
    }
    return rc || done >= bytes ? rc : take(user, text + done, bytes - done, -1);
}
