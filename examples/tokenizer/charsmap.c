/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table: the bytes of a double-array trie as u32 (little endian), the trie, and texts that end
 * with a zero byte.  The trie's values are offsets of texts.  A unit of the trie has its label in
 * bits 0 to 7, bit 8 where a value follows, and the offset of its children above.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "charsmap.h"

struct charsmap {
    uint32_t *unit;
    int64_t units;
    char *text; /* ends with a zero byte */
    int64_t bytes;
};

/* Decodes in place of a new buffer; NULL: not base64, or no memory. */
static unsigned char *decode(const char *base64, int64_t *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *to = malloc(strlen(base64) + 1);
    uint32_t bits = 0;
    int n = 0;

    *bytes = 0;
    for (const char *p = base64; to && *p && *p != '='; p++) {
        const char *digit = strchr(digits, *p);
        if (!digit) {
            free(to);
            return NULL;
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        n += 6;
        if (n >= 8)
            to[(*bytes)++] = (unsigned char)(bits >> (n -= 8));
    }
    return to;
}

static uint32_t word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int fill(struct charsmap *m, const unsigned char *all, int64_t bytes)
{
    int64_t trie = bytes >= 4 ? word(all) : 0;

    if (bytes < 4 || trie < 4 || trie % 4 || trie > bytes - 4)
        return -1;
    m->units = trie / 4;
    m->bytes = bytes - 4 - trie;
    m->unit = malloc((size_t)m->units * sizeof *m->unit);
    m->text = calloc(1, (size_t)m->bytes + 1);
    if (!m->unit || !m->text)
        return -1;
    for (int64_t i = 0; i < m->units; i++)
        m->unit[i] = word(all + 4 + 4 * i);
    memcpy(m->text, all + 4 + trie, (size_t)m->bytes);
    return 0;
}

int charsmap_open(struct charsmap **m, const char *path, const char *base64)
{
    int64_t bytes = 0;
    unsigned char *all = base64 ? decode(base64, &bytes) : NULL;

    *m = calloc(1, sizeof **m);
    int rc = all && *m && !fill(*m, all, bytes)
                 ? 0
                 : say_fail("%s: \"precompiled_charsmap\" is damaged, or memory is short", path);
    free(all);
    return rc;
}

void charsmap_close(struct charsmap *m)
{
    if (m) {
        free(m->unit);
        free(m->text);
    }
    free(m);
}

static uint32_t children(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The text at an offset; NULL: outside, or no UTF-8. */
static const char *text_at(const struct charsmap *m, int64_t offset)
{
    const char *text = offset < m->bytes ? m->text + offset : NULL;

    for (const char *p = text; p && *p;) {
        int n = utf8_length(p, m->text + m->bytes - p);
        if (!n)
            return NULL;
        p += n;
    }
    return text;
}

/* What the shortest known prefix of the text becomes; NULL: none is known.  The whole text becomes
 * this: so it is where the reference reads a table. */
static const char *find(const struct charsmap *m, const char *text, int64_t bytes)
{
    uint32_t at = children(m->unit[0]);

    for (int64_t i = 0; i < bytes && text[i]; i++) {
        at ^= (unsigned char)text[i];
        if (at >= m->units || (m->unit[at] & (1u << 31 | 0xff)) != (unsigned char)text[i])
            return NULL;
        uint32_t unit = m->unit[at];
        at ^= children(unit);
        if ((unit & 1u << 8) && at < m->units)
            return text_at(m, m->unit[at] & ~(1u << 31));
    }
    return NULL;
}

int charsmap_apply(const struct charsmap *m, const char *text, int64_t bytes, struct text *to)
{
    enum { LONGEST = 5 }; /* bytes that are looked up as a whole */
    const char *made = bytes <= LONGEST ? find(m, text, bytes) : NULL;
    int rc = 0;

    if (made)
        return text_add(to, made, (int64_t)strlen(made));
    for (int64_t at = 0, n; at < bytes && !rc; at += n) {
        n = utf8_length(text + at, bytes - at);
        made = find(m, text + at, n);
        rc = made ? text_add(to, made, (int64_t)strlen(made)) : text_add(to, text + at, n);
    }
    return rc;
}
