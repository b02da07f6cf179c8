/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleans captions as Open-Sora 1.x and Wan do: see clean.h.  Most rules are patterns, applied in
 * order.
 *
 * Time is linear in the length of a caption: a pattern that begins with a run of characters is only
 * tried where the run begins, since a match from within it would begin there, too.
 */
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
#define SITE                                                                                       \
    "(?:(?<![a-z0-9.\\-])|\\G)(?>[a-z0-9.\\-]*?\\b)\\K"                                            \
    "[a-z0-9.\\-]+\\.(?:com|co|ru|net|org|edu|gov|it)[\\w/\\-]*\\b/?(?!@)"
#define ENDS "^\\s+|(?<!\\s)\\s+$"
/* Letters with case, and what may lie between them in a word (Unicode's Case_Ignorable). */
#define CASED "[\\p{L&}\\x{aa}\\x{ba}\\x{2160}-\\x{217f}\\x{24b6}-\\x{24e9}]"
#define BETWEEN                                                                                    \
    "[\\p{Mn}\\p{Me}\\p{Cf}\\p{Lm}\\p{Sk}'.:\\x{b7}\\x{387}\\x{55f}\\x{5f4}\\x{2018}\\x{2019}"     \
    "\\x{2024}\\x{2027}\\x{fe13}\\x{fe52}\\x{fe55}\\x{ff07}\\x{ff0e}\\x{ff1a}]"

/* Replaces each match by `to`.  Rules are in groups, with code between the groups. */
struct rule {
    const char *from, *to;
};

/* Lower case as in Python: a sigma at the end of a word has its own letter, and the dotted capital
 * I becomes two characters.  PCRE2 changes letters only; markup_lower changes the other symbols. */
static const struct rule capitals[] = {
    {CASED BETWEEN "*+\\K\\x{3a3}(?!" BETWEEN "*+" CASED ")", "\xcf\x82"},
    {"\\x{130}", "i\xcc\x87"},
    {"[\\p{Lu}\\p{Lt}]+", "\\L$0"},
};

static const struct rule addresses[] = {
    {"<person>", "person"},
    {"\\bhttps?:(?:/{1,3}|[a-z0-9%])|" SITE, ""},
    {"\\bwww:(?:/{1,3}|[a-z0-9%])|" SITE, ""},
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
    {"(?<!\\S)\\S+\\." ENDINGS, ""},
    {"[\"']{2,}", "\""},
    {"\\.{2,}", " "},
    {"[#\\x{ae}\\x{2022}\\x{a9}\\x{2122}&@\\x{b7}\\x{ba}\\x{bd}\\x{be}\\x{bf}\\x{a1}\\x{a7}~()\\["
     "\\]"
     "{}|\\\\/*]+",
     " "},
    {"(?<!\\s)\\s+\\.\\s+", " "},
};

static const struct rule joints[] = {{"[-_]", " "}};
static const struct rule edges[] = {{ENDS, ""}};
static const struct rule blanks[] = {{"\\s+", " "}};

/* What ftfy does to text whose characters are the right ones. */
static const struct rule repairs[] = {
    {"\\x{1b}\\[[\\d;]*[a-zA-Z]", ""},
    {"\\x{132}|\\x{133}", "ij"},
    {"\\x{149}", "\xca\xbcn"},
    {"[\\x{1c4}-\\x{1c6}]", "d\xc5\xbe"},
    {"[\\x{1c7}-\\x{1c9}]", "lj"},
    {"[\\x{1ca}-\\x{1cc}]", "nj"},
    {"[\\x{1f1}-\\x{1f3}]", "dz"},
    {"\\x{fb00}", "ff"},
    {"\\x{fb01}", "fi"},
    {"\\x{fb02}", "fl"},
    {"\\x{fb03}", "ffi"},
    {"\\x{fb04}", "ffl"},
    {"\\x{fb05}", "\xc5\xbft"},
    {"\\x{fb06}", "st"},
    {"\\x{3000}", " "},
    {"[\\x{2bc}\\x{2018}-\\x{201b}]", "'"},
    {"[\\x{201c}-\\x{201f}]", "\""},
    {"\\r\\n?|[\\x{2028}\\x{2029}\\x{85}]", "\n"},
    {"[\\x{1}-\\x{8}\\x{b}\\x{e}-\\x{1f}\\x{7f}\\x{206a}-\\x{206f}\\x{feff}\\x{fff9}-\\x{fffc}]",
     ""},
};

static const struct rule words[] = {
    {"\\b[a-zA-Z]{1,3}\\d{3,15}\\b", ""},
    {"\\b[a-zA-Z]+\\d+[a-zA-Z]+\\b", ""},
    {"\\b\\d+[a-zA-Z]+\\d+\\b", ""},
    {"(?:worldwide\\s+)?(?:free\\s+)?shipping", ""},
    {"(?:free\\s)?download(?:\\sfree)?", ""},
    {"\\bclick\\b\\s(?:for|on)\\s\\w+", ""},
    {"\\b" ENDINGS "(?:\\simages?)?", ""},
    {"\\bpage\\s+\\d+\\b", ""},
    {"\\b\\d*[a-zA-Z]+\\d+[a-zA-Z]+\\d+[a-zA-Z\\d]*\\b", " "},
    {"\\b\\d+(?:\\.\\d*)?[x\\x{445}\\x{d7}]\\d+(?:\\.\\d*)?\\b", ""},
    {"\\b\\s+:\\s+", ": "},
    {"(\\D[,./])\\b", "$1 "},
    {"\\s+", " "},
    {"(?s)^[\"'](.+)[\"']$", "$1"},
    {"^['_,\\-:;]", ""},
    {"['_,\\-:+]$", ""},
    {"^\\.\\S+$", ""},
};

/* What ftfy would repair: C1 controls, combining marks, full- and half-width forms, U+FFFD, and
 * UTF-8 that was decoded as Latin-1 or Windows-1252: a first byte, and one or two later ones. */
#define LATER                                                                                      \
    "[\\x{80}-\\x{bf}\\x{152}\\x{153}\\x{160}\\x{161}\\x{178}\\x{17d}\\x{17e}\\x{192}\\x{2c6}\\x{" \
    "2dc}"                                                                                         \
    "\\x{2013}\\x{2014}\\x{2018}-\\x{2022}\\x{2026}\\x{2030}\\x{2039}\\x{203a}\\x{20ac}\\x{2122}]"
static const struct rule broken[] = {
    {"[\\x{80}-\\x{84}\\x{86}-\\x{9f}\\x{300}-\\x{36f}\\x{ff01}-\\x{ff0c}\\x{ff0e}-\\x{ffef}"
     "\\x{fffd}]|[\\x{c2}\\x{c3}\\x{d7}\\x{df}]" LATER
     "|[\\x{c0}-\\x{cf}\\x{e0}-\\x{ef}]" LATER LATER "|\\x{e2}\\x{20ac}",
     ""},
};

enum group { CAPITALS, ADDRESSES, MARKS, JOINTS, REPAIRS, WORDS, EDGES, BLANKS, BROKEN, GROUPS };
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
    [JOINTS] = GROUP(joints),     [REPAIRS] = GROUP(repairs),     [WORDS] = GROUP(words),
    [EDGES] = GROUP(edges),       [BLANKS] = GROUP(blanks),       [BROKEN] = GROUP(broken),
};

struct cleaner {
    enum text_cleaning cleaning;
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

int cleaner_open(struct cleaner **c, enum text_cleaning cleaning)
{
    *c = calloc(1, sizeof **c);
    if (!*c)
        return say_fail("no memory to clean captions");
    (*c)->cleaning = cleaning;
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

/* Removes white space at both ends; *trims becomes true if there was any. */
static char *trim(const struct cleaner *c, char *text, bool *trims)
{
    size_t n = text ? strlen(text) : 0;
    char *out = apply(c, EDGES, text);

    *trims |= out && strlen(out) != n;
    return out;
}

/* Applies all rules once; frees text.  trims, in: whether white space at the ends is removed before
 * the rules about words; out: whether there was any. */
static char *clean_once(const struct cleaner *c, char *text, bool *trims, bool *entity)
{
    text = apply(c, EDGES, markup_decode_url(text));
    text = markup_lower(apply(c, CAPITALS, text));
    text = apply(c, ADDRESSES, text);
    text = apply(c, MARKS, text ? markup_text(text, true, entity) : NULL);
    if (text && count_joints(text) > 3)
        text = apply(c, JOINTS, text);
    text = apply(c, REPAIRS, text);
    bool had = false;
    if (*trims)
        text = trim(c, text, &had);
    *trims = had;
    return apply(c, EDGES, apply(c, WORDS, text));
}

/* The published cleaning applies its rules twice.  *trims as in clean_once. */
static char *clean_twice(const struct cleaner *c, const char *text, bool *trims, bool *entity)
{
    bool trim_at_all = *trims, had = false;
    char *out = markup_valid(text);

    for (int i = 0; out && i < 2; i++) {
        bool once = trim_at_all;
        out = clean_once(c, out, &once, entity);
        had |= once;
    }
    *trims = had;
    return out;
}

/* Open-Sora trims before the rules about words; the pipelines of diffusers, which have the same
 * rules otherwise, do not. */
static bool is_other_untrimmed(const struct cleaner *c, const char *text, const char *trimmed)
{
    bool trims = false, entity;
    char *other = clean_twice(c, text, &trims, &entity);
    bool differs = other && strcmp(other, trimmed) != 0;

    free(other);
    return differs;
}

static char *unescape(const struct cleaner *c, const char *text, bool *entity)
{
    char *out = apply(c, REPAIRS, markup_valid(text));

    out = markup_text(markup_text(out, false, entity), false, entity);
    return apply(c, EDGES, apply(c, BLANKS, out));
}

char *cleaner_clean(const struct cleaner *c, const char *text, const char **left)
{
    bool entity = false, trims = c->cleaning == TEXT_CLEANED;
    char *valid = markup_valid(text);
    char *out = !valid  ? NULL
                : trims ? clean_twice(c, valid, &trims, &entity)
                        : unescape(c, valid, &entity);

    *left = NULL;
    if (!out)
        say_fail("no memory to clean a caption of %zu bytes", strlen(text));
    else if (entity)
        *left = "an entity of HTML";
    else if (matches(c, BROKEN, valid))
        *left = "text that ftfy would repair";
    else if (trims && is_other_untrimmed(c, valid, out))
        *left = "ends that Open-Sora and diffusers clean in different ways";
    free(valid);
    return out;
}

#else

int cleaner_open(struct cleaner **c, enum text_cleaning cleaning)
{
    (void)cleaning;
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
