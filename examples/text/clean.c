/* SPDX-License-Identifier: Apache-2.0 */
/* Cleans captions as Open-Sora 1.x does: see clean.h.  Most rules are patterns, applied in
 * order. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "clean.h"
#include "markup.h"

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define ENDINGS "(?:png|jpe?g|bmp|webp|eps|pdf|apk|mp4)"
#define SITE    "[a-z0-9.\\-]+\\.(?:com|co|ru|net|org|edu|gov|it)[\\w/\\-]*\\b/?(?!@)"

/* Replaces each match by `to`.  Rules are in groups, with code between the groups. */
struct rule {
    const char *from, *to;
};

static const struct rule capitals[] = {{"\\p{Lu}+", "\\L$0"}};

static const struct rule addresses[] = {
    {"<person>", "person"},
    {"\\b(?:https?:(?:/{1,3}|[a-z0-9%])|" SITE ")", ""},
    {"\\b(?:www:(?:/{1,3}|[a-z0-9%])|" SITE ")", ""},
};

static const struct rule marks[] = {
    {"@\\w+\\b", ""},
    {"[\\x{31c0}-\\x{31ef}]+", ""},
    {"[\\x{31f0}-\\x{31ff}]+", ""},
    {"[\\x{3200}-\\x{4dff}]+", ""},
    {"[\\x{4e00}-\\x{9fff}]+", ""},
    {"[-\\x{58a}\\x{5be}\\x{1400}\\x{1806}\\x{2010}-\\x{2015}\\x{2e17}\\x{2e1a}\\x{2e3a}\\x{2e3b}"
     "\\x{2e40}\\x{301c}\\x{3030}\\x{30a0}\\x{fe31}\\x{fe32}\\x{fe58}\\x{fe63}\\x{ff0d}]+",
     "-"},
    {"[`\\x{b4}\\x{ab}\\x{bb}\\x{201c}\\x{201d}\\x{a8}]", "\""},
    {"[\\x{2018}\\x{2019}]", "'"},
    {"&quot;?", ""},
    {"&amp", ""},
    {"\\d{1,3}\\.\\d{1,3}\\.\\d{1,3}\\.\\d{1,3}", " "},
    {"\\d:\\d\\d\\s+$", ""},
    {"\\\\n", " "},
    {"#\\d{1,3}\\b", ""},
    {"#\\d{5,}\\b", ""},
    {"\\b\\d{6,}\\b", ""},
    {"\\S+\\." ENDINGS, ""},
    {"[\"']{2,}", "\""},
    {"\\.{2,}", " "},
    {"[#\\x{ae}\\x{2022}\\x{a9}\\x{2122}&@\\x{b7}\\x{ba}\\x{bd}\\x{be}\\x{bf}\\x{a1}\\x{a7}~()\\["
     "\\]"
     "{}|\\\\/*]+",
     " "},
    {"\\s+\\.\\s+", " "},
};

static const struct rule joints[] = {{"[-_]", " "}};
static const struct rule edges[] = {{"^\\s+|\\s+$", ""}};

static const struct rule words[] = {
    {"^\\s+|\\s+$", ""},
    {"\\b[a-zA-Z]{1,3}\\d{3,15}\\b", ""},
    {"\\b[a-zA-Z]+\\d+[a-zA-Z]+\\b", ""},
    {"\\b\\d+[a-zA-Z]+\\d+\\b", ""},
    {"(?:worldwide\\s+)?(?:free\\s+)?shipping", ""},
    {"(?:free\\s)?download(?:\\sfree)?", ""},
    {"\\bclick\\b\\s(?:for|on)\\s\\w+", ""},
    {"\\b" ENDINGS "(?:\\simages?)?", ""},
    {"\\bpage\\s+\\d+\\b", ""},
    {"\\b\\d*[a-zA-Z]+\\d+[a-zA-Z]+\\d+[a-zA-Z\\d]*\\b", " "},
    {"\\b\\d+\\.?\\d*[x\\x{445}\\x{d7}]\\d+\\.?\\d*\\b", ""},
    {"\\b\\s+:\\s+", ": "},
    {"(\\D[,./])\\b", "$1 "},
    {"\\s+", " "},
    {"^\\s+|\\s+$", ""},
    {"(?s)^[\"'](.*)[\"']$", "$1"},
    {"^['_,\\-:;]", ""},
    {"['_,\\-:+]$", ""},
    {"^\\.\\S+$", ""},
    {"^\\s+|\\s+$", ""},
};

/* Characters that ftfy would repair: C1 controls, combining marks, ligatures, full- and half-width
 * forms, U+FFFD, and UTF-8 that was decoded as Latin-1 or Windows-1252. */
static const struct rule broken[] = {
    {"[\\x{80}-\\x{84}\\x{86}-\\x{9f}\\x{300}-\\x{36f}\\x{fb00}-\\x{fb06}\\x{ff01}-\\x{ff0c}"
     "\\x{ff0e}-\\x{ffef}\\x{fffd}]|[\\x{c2}\\x{c3}][\\x{80}-\\x{bf}\\x{201a}-\\x{2122}]|"
     "\\x{e2}\\x{20ac}",
     ""},
};

enum group { CAPITALS, ADDRESSES, MARKS, JOINTS, WORDS, EDGES, BROKEN, GROUPS };
enum { MOST_RULES = 24 };

static const struct {
    const struct rule *rule;
    int n;
} group[GROUPS] = {
#define GROUP(rules)                                                                               \
    {                                                                                              \
        rules, sizeof rules / sizeof *rules                                                        \
    }
    [CAPITALS] = GROUP(capitals), [ADDRESSES] = GROUP(addresses), [MARKS] = GROUP(marks),
    [JOINTS] = GROUP(joints),     [WORDS] = GROUP(words),         [EDGES] = GROUP(edges),
    [BROKEN] = GROUP(broken),
};

struct cleaner {
    pcre2_code *code[GROUPS][MOST_RULES];
};

static int compile(pcre2_code **code, const char *pattern)
{
    int error;
    PCRE2_SIZE at;

    *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                          &at, NULL);
    if (!*code)
        return say_fail("PCRE2 does not accept \"%s\"", pattern);
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* if it fails, the pattern is interpreted */
    return 0;
}

int cleaner_open(struct cleaner **c)
{
    *c = calloc(1, sizeof **c);
    if (!*c)
        return say_fail("no memory to clean captions");
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < group[g].n; i++) {
            if (compile(&(*c)->code[g][i], group[g].rule[i].from)) {
                cleaner_close(*c);
                *c = NULL;
                return -1;
            }
        }
    }
    return 0;
}

void cleaner_close(struct cleaner *c)
{
    for (int g = 0; c && g < GROUPS; g++)
        for (int i = 0; i < group[g].n; i++)
            pcre2_code_free(c->code[g][i]);
    free(c);
}

/* Replaces all matches of a pattern; frees text.  NULL without memory. */
static char *replace(const pcre2_code *code, const char *to, char *text)
{
    uint32_t flags =
        PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH | PCRE2_SUBSTITUTE_EXTENDED;
    PCRE2_SIZE size = 2 * strlen(text) + 64;

    for (int turn = 0; text && turn < 2; turn++) {
        char *out = malloc(size);
        int n = out ? pcre2_substitute(code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, flags,
                                       NULL, NULL, (PCRE2_SPTR)to, PCRE2_ZERO_TERMINATED,
                                       (PCRE2_UCHAR *)out, &size)
                    : 0;
        if (out && n >= 0) {
            free(text);
            return out;
        }
        free(out);
        if (n != PCRE2_ERROR_NOMEMORY)
            break;
    }
    free(text);
    return NULL;
}

static char *apply(const struct cleaner *c, enum group g, char *text)
{
    for (int i = 0; text && i < group[g].n; i++)
        text = replace(c->code[g][i], group[g].rule[i].to, text);
    return text;
}

static bool matches(const struct cleaner *c, enum group g, const char *text)
{
    pcre2_match_data *found = pcre2_match_data_create(1, NULL);
    int n = found ? pcre2_match(c->code[g][0], (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, found,
                                NULL)
                  : -1;

    pcre2_match_data_free(found);
    return n >= 0;
}

static int count_joints(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '-' || *text == '_';
    return n;
}

/* Applies all rules once; frees text. */
static char *clean_once(const struct cleaner *c, char *text, const char **left)
{
    bool entity = false;

    text = apply(c, EDGES, markup_decode_url(text));
    text = apply(c, ADDRESSES, apply(c, CAPITALS, text));
    text = apply(c, MARKS, text ? markup_text(text, &entity) : NULL);
    if (text && count_joints(text) > 3)
        text = apply(c, JOINTS, text);
    for (int i = 0; text && i < 2; i++)
        text = markup_unescape(text, &entity);
    if (entity)
        *left = "an entity of HTML";
    return apply(c, WORDS, text);
}

char *cleaner_clean(const struct cleaner *c, const char *text, const char **left)
{
    char *out = markup_valid(text);

    *left = out && matches(c, BROKEN, out) ? "text that ftfy would repair" : NULL;
    for (int i = 0; out && i < 2; i++)
        out = clean_once(c, out, left);
    if (!out)
        say_fail("no memory to clean a caption of %zu bytes", strlen(text));
    return out;
}

#else

int cleaner_open(struct cleaner **c)
{
    *c = NULL;
    return say_fail("captions cannot be cleaned: this program was built without PCRE2; on Debian "
                    "or Ubuntu: apt install libpcre2-dev, and configure again");
}

void cleaner_close(struct cleaner *c)
{
    (void)c;
}

char *cleaner_clean(const struct cleaner *c, const char *text, const char **left)
{
    (void)c;
    (void)text;
    *left = NULL;
    return NULL;
}

#endif
