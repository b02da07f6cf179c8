/* SPDX-License-Identifier: Apache-2.0 */
/* Text and lists that grow, and UTF-8. */
#include <stdlib.h>
#include <string.h>
#include "parts.h"

int text_add(struct text *t, const char *bytes, int64_t n)
{
    if (t->n + n > t->room) {
        int64_t room = 2 * (t->n + n) + 64;
        char *grown = realloc(t->bytes, (size_t)room);
        if (!grown)
            return -1;
        t->bytes = grown;
        t->room = room;
    }
    if (n)
        memcpy(t->bytes + t->n, bytes, (size_t)n);
    t->n += n;
    return 0;
}

int ids_add(struct ids *ids, int32_t id)
{
    if (ids->n == ids->room) {
        int64_t room = 2 * ids->room + 64;
        int32_t *grown = realloc(ids->id, (size_t)room * sizeof *grown);
        if (!grown)
            return -1;
        ids->id = grown;
        ids->room = room;
    }
    ids->id[ids->n++] = id;
    return 0;
}

/* No surrogates, no overlong forms, nothing above U+10FFFF. */
int utf8_length(const char *at, int64_t bytes)
{
    const unsigned char *p = (const unsigned char *)at;
    int n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

    if (n > bytes)
        return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    uint32_t code = utf8_code(at, n);
    bool valid = n < 3 || (n == 3 ? code >= 0x800 && (code < 0xd800 || code > 0xdfff)
                                  : code >= 0x10000 && code <= 0x10ffff);
    return valid ? n : 0;
}

uint32_t utf8_code(const char *at, int length)
{
    static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const unsigned char *p = (const unsigned char *)at;
    uint32_t code = *p & mask[length];

    for (int i = 1; i < length; i++)
        code = code << 6 | (p[i] & 0x3f);
    return code;
}

int utf8_put(char dst[4], uint32_t code)
{
    int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (int i = n - 1; i > 0; i--, code >>= 6)
        dst[i] = (char)(0x80 | (code & 0x3f));
    dst[0] = (char)(lead[n] | code);
    return n;
}

bool utf8_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

uint32_t utf8_before(const char *text, int64_t end, int *length)
{
    int n = end > 0;

    while (n && n < 4 && n < end && (text[end - n] & 0xc0) == 0x80)
        n++;
    *length = n;
    return n ? utf8_code(text + end - n, n) : 0;
}

int64_t utf8_skip_spaces(const char *text, int64_t at, int64_t bytes)
{
    for (int n = 0; at < bytes; at += n) {
        n = utf8_length(text + at, bytes - at);
        if (!n || !utf8_is_space(utf8_code(text + at, n)))
            break;
    }
    return at;
}

int64_t utf8_drop_spaces(const char *text, int64_t from, int64_t end)
{
    for (int n = 0; end > from; end -= n)
        if (!utf8_is_space(utf8_before(text, end, &n)))
            break;
    return end;
}
