/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes text from URLs and HTML: see markup.h. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "markup.h"

/* ---- UTF-8 --------------------------------------------------------------------------------- */

enum { REPLACEMENT = 0xfffd };

/* The length in bytes of the UTF-8 character at s, at most n; 0: invalid. */
static size_t character(const unsigned char *s, size_t n)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = *s < 0x80 ? 1 : *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : *s >= 0xc2 ? 2 : 0;
    uint32_t c = size > 1 ? *s & (0x7fu >> size) : *s;

    if (!size || size > n || *s > 0xf4)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    return c < smallest[size] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : size;
}

static char *put_character(char *out, uint32_t c)
{
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};

    *out++ = (char)(first[more] | c >> 6 * more);
    while (more-- > 0)
        *out++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return out;
}

char *markup_valid(const char *text)
{
    size_t n = strlen(text);
    char *out = malloc(3 * n + 1), *to = out;

    for (size_t at = 0; out && at < n;) {
        size_t size = character((const unsigned char *)text + at, n - at);
        if (size) {
            memcpy(to, text + at, size);
            to += size;
        } else
            to = put_character(to, REPLACEMENT);
        at += size ? size : 1;
    }
    if (out)
        *to = 0;
    return out;
}

/* Roman numerals are U+2160 to 216f, letters in circles U+24b6 to 24cf: three bytes each, and so
 * are the small ones, 16 and 26 further. */
char *markup_lower(char *text)
{
    for (unsigned char *s = (unsigned char *)text; text && *s; s++) {
        if (s[0] != 0xe2)
            continue;
        unsigned c = 0x2000u | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        c += c >= 0x2160 && c <= 0x216f ? 16 : c >= 0x24b6 && c <= 0x24cf ? 26 : 0;
        s[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        s[2] = (unsigned char)(0x80 | (c & 0x3f));
        s += 2;
    }
    return text;
}

/* ---- URLs ---------------------------------------------------------------------------------- */

static int hex(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

char *markup_decode_url(char *text)
{
    char *to = text;

    for (const char *at = text; text && *at; at++) {
        bool coded = *at == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0;
        int byte = coded ? 16 * hex(at[1]) + hex(at[2]) : *at == '+' ? ' ' : *at;
        *to++ = (char)(byte ? byte : ' '); /* a zero byte would end the text */
        at += coded ? 2 : 0;
    }
    if (!text)
        return NULL;
    *to = 0;
    char *out = markup_valid(text);
    free(text);
    return out;
}

/* ---- HTML ---------------------------------------------------------------------------------- */

/* The character of &#65; or &#x41; at `at`, and its end; 0: no such entity. */
static uint32_t numbered(const char *at, const char **end)
{
    bool sixteen = at[2] == 'x' || at[2] == 'X';
    const char *digits = at + (sixteen ? 3 : 2);
    char *stop;

    if (!(sixteen ? isxdigit((unsigned char)*digits) : isdigit((unsigned char)*digits)))
        return 0;
    unsigned long c = strtoul(digits, &stop, sixteen ? 16 : 10);
    *end = stop + (*stop == ';');
    return !c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? REPLACEMENT : (uint32_t)c;
}

static uint32_t named(const char *at, const char **end)
{
    static const struct {
        const char *name;
        uint32_t c;
        bool bare; /* also valid without the semicolon */
    } all[] = {{"amp", '&', true},  {"lt", '<', true},     {"gt", '>', true},
               {"quot", '"', true}, {"apos", '\'', false}, {"nbsp", 0xa0, true}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].name);
        if (strncmp(at + 1, all[i].name, n) || (at[1 + n] != ';' && !all[i].bare))
            continue;
        *end = at + 1 + n + (at[1 + n] == ';');
        return all[i].c;
    }
    return 0;
}

/* "&", letters or digits, ";" */
static bool is_entity(const char *at)
{
    const char *p = at + 1;

    while (isalnum((unsigned char)*p))
        p++;
    return p > at + 1 && *p == ';';
}

/* Marks that no text has from some place on, so that they are not searched again. */
struct ends {
    bool no_tag, no_comment;
};

/* The place after `end`, from `at` on; NULL: there is none, and *none is set. */
static const char *after(const char *at, const char *end, bool *none)
{
    const char *found = *none ? NULL : strstr(at, end);

    *none = !found;
    return found ? found + strlen(end) : NULL;
}

/* Whether the tag at `at` has that name. */
static bool is_tag(const char *at, const char *name)
{
    size_t n = strlen(name);

    return !strncmp(at + 1, name, n) && !isalnum((unsigned char)at[1 + n]);
}

/* The end of what a tag at `at` hides, which itself ends at `end`: a script up to its end tag. */
static const char *skip_hidden(const char *at, const char *end)
{
    const char *closing = is_tag(at, "script")  ? strstr(end, "</script")
                          : is_tag(at, "style") ? strstr(end, "</style")
                                                : end;

    return closing ? closing : end + strlen(end);
}

/* The end of the tag or comment at `at`; `at` itself if there is none. */
static const char *skip_tag(const char *at, struct ends *e)
{
    const char *end;

    if (!strncmp(at, "<!--", 4)) {
        end = after(at + 4, "-->", &e->no_comment);
        return end ? end : at;
    }
    if (!isalpha((unsigned char)at[1]) && !strchr("/!?", at[1]))
        return at;
    end = at[1] ? after(at, ">", &e->no_tag) : NULL;
    return end ? skip_hidden(at, end) : at;
}

char *markup_text(char *text, bool tags, bool *unknown)
{
    char *out = text ? malloc(strlen(text) + 1) : NULL, *to = out;
    struct ends ends = {false, false};

    for (const char *at = text; out && *at;) {
        const char *end = at;
        if (tags && *at == '<' && (end = skip_tag(at, &ends)) > at) {
            at = end;
            continue;
        }
        *unknown |= *at == '&' && ends.no_tag; /* within a tag that is not closed */
        uint32_t c = *at != '&' ? 0 : at[1] == '#' ? numbered(at, &end) : named(at, &end);
        if (c) {
            to = put_character(to, c); /* never longer than the entity it replaces */
            at = end;
            continue;
        }
        *unknown |= *at == '&' && is_entity(at);
        *to++ = *at++;
    }
    if (out)
        *to = 0;
    free(text);
    return out;
}
