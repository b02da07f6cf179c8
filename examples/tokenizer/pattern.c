/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of tokenizers.  They are written for Oniguruma (Ruby's syntax) and matched
 * with PCRE2: what the two read differently is translated, and the rest is refused by name.
 *   \s and \w   as Unicode's properties, also inside of [...]
 *   [a[bc]]     a class inside of a class adds its characters
 *   ^ and $     match at every line
 */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "parts.h"

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct pattern {
    char *text; /* to be found as it is; NULL: code */
    int64_t bytes;
    pcre2_code *code;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- translation ----------------------------------------------------------------------------- */

/* \w of Oniguruma has all digits of Latin-1, as superscripts, and no others of their kind. */
#define WORD_PROPERTIES "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe"

static int put(struct text *to, const char *text)
{
    return text_add(to, text, (int64_t)strlen(text)) ? say_fail("no memory for a pattern") : 0;
}

static int unsupported(const char *path, const char *whole, const char *at)
{
    return say_fail("%s: a pattern has %.3s, which is not supported: %s", path, at, whole);
}

/* What a letter behind a backslash stands for; NULL: itself or not supported. */
static const char *translate_letter(char letter, bool in_class)
{
    switch (letter) {
    case 's':
        return "\\p{White_Space}";
    case 'S':
        return "\\P{White_Space}";
    case 'd':
        return "\\p{Nd}";
    case 'D':
        return "\\P{Nd}";
    case 'w':
        return in_class ? WORD_PROPERTIES : "[" WORD_PROPERTIES "]";
    case 'W':
        return in_class ? NULL : "[^" WORD_PROPERTIES "]";
    case 'v':
        return "\\x0b";
    default:
        return NULL;
    }
}

/* *at is a backslash; afterwards the last character of the escape. */
static int translate_escape(struct text *to, const char *path, const char *whole, const char **at,
                            bool in_class)
{
    const char *p = *at, *known = translate_letter(p[1], in_class);
    char hex[16];

    if (known) {
        *at = p + 1;
        return put(to, known);
    }
    if (p[1] == 'u' && strspn(p + 2, "0123456789abcdefABCDEF") >= 4) {
        snprintf(hex, sizeof hex, "\\x{%.4s}", p + 2);
        *at = p + 5;
        return put(to, hex);
    }
    if (!p[1] || p[1] == '0' || strchr("123456789", p[1]) ||
        (((p[1] | 32) >= 'a' && (p[1] | 32) <= 'z') &&
         !strchr(in_class ? "nrtfxpP" : "nrtfxpPAzX", p[1])))
        return unsupported(path, whole, p);
    *at = p + 1;
    return text_add(to, p, 2) ? say_fail("no memory for a pattern") : 0;
}

/* *at is the [; afterwards the closing ].  Characters of inner classes join those of the outer. */
static int translate_class(struct text *to, const char *path, const char *whole, const char **at)
{
    const char *p = *at + 1;
    int depth = 1, rc = put(to, "[");

    if (*p == '^' && !rc)
        rc = put(to, (p++, "^"));
    for (; *p && !rc; p++) {
        if (*p == ']' && !--depth)
            break;
        if (*p == ']')
            continue;
        if (*p == '\\')
            rc = translate_escape(to, path, whole, &p, true);
        else if ((*p == '[' && (p[1] == '^' || p[1] == ':')) || (*p == '&' && p[1] == '&'))
            rc = unsupported(path, whole, p);
        else if (*p == '[')
            depth++;
        else if (text_add(to, p, 1))
            rc = say_fail("no memory for a pattern");
    }
    if (!rc && !*p)
        return say_fail("%s: a pattern has [ without ]: %s", path, whole);
    *at = p;
    return rc ? rc : put(to, "]");
}

static bool is_known_group(const char *at)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(at, known[i], strlen(known[i])))
            return true;
    return at[1] != '?' && at[1] != '*';
}

/* {1,2}+ repeats the repetition in Ruby, and is possessive in PCRE2; \p{L}+ is something else. */
static bool is_repeated_count(const char *whole, const char *at)
{
    return *at == '}' && at[1] == '+' && at > whole && strchr("0123456789,", at[-1]);
}

static int translate(struct text *to, const char *path, const char *whole)
{
    int rc = 0;

    for (const char *p = whole; *p && !rc; p++) {
        if (*p == '\\')
            rc = translate_escape(to, path, whole, &p, false);
        else if (*p == '[')
            rc = translate_class(to, path, whole, &p);
        else if ((*p == '(' && !is_known_group(p)) || is_repeated_count(whole, p))
            rc = unsupported(path, whole, p);
        else if (text_add(to, p, 1))
            rc = say_fail("no memory for a pattern");
    }
    return rc || text_add(to, "", 1) ? -1 : 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Text may have a run of millions of blanks, and a pattern may try each of its ends: no limit of
 * steps.  Memory of the interpreter and of compiled code has one. */
static int set_limits(struct pattern *p)
{
    enum { STACK = 32 << 10, MOST = 64 << 20 };

    p->context = pcre2_match_context_create(NULL);
    p->stack = pcre2_jit_stack_create(STACK, MOST, NULL);
    if (!p->context || !p->stack)
        return say_fail("no memory for a pattern");
    pcre2_set_match_limit(p->context, UINT32_MAX);
    pcre2_set_depth_limit(p->context, UINT32_MAX);
    pcre2_jit_stack_assign(p->context, NULL, p->stack);
    return 0;
}

static int compile(struct pattern *p, const char *path, const char *expression, const char *shown)
{
    int error;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[160];

    p->code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, NULL);
    if (!p->code) {
        pcre2_get_error_message(error, text, sizeof text);
        return say_fail("%s: its pattern cannot be used: %s at %zu of %s", path, (char *)text, at,
                        shown);
    }
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* else the pattern is interpreted */
    return set_limits(p);
}

int pattern_open(struct pattern **p, const char *path, const char *expression, bool is_text)
{
    struct text translated = {NULL, 0, 0};
    int rc = 0;

    *p = calloc(1, sizeof **p);
    if (!*p)
        return say_fail("%s: no memory", path);
    if (is_text) {
        (*p)->text = strdup(expression);
        (*p)->bytes = (int64_t)strlen(expression);
        rc = (*p)->text ? 0 : say_fail("%s: no memory", path);
    } else if (translate(&translated, path, expression) ||
               compile(*p, path, translated.bytes, expression)) {
        rc = -1;
    }
    free(translated.bytes);
    return rc;
}

void pattern_close(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    free(p->text);
    free(p);
}

/* ---- matching -------------------------------------------------------------------------------- */

static int each_text(const struct pattern *p, const char *text, int64_t bytes, pattern_taker take,
                     void *user)
{
    int64_t done = 0, at = 0;
    int rc = 0;

    while (!rc && p->bytes && at + p->bytes <= bytes) {
        const char *found = memmem(text + at, (size_t)(bytes - at), p->text, (size_t)p->bytes);
        if (!found)
            break;
        at = found - text;
        rc = at > done ? take(user, done, at, false) : 0;
        rc = rc ? rc : take(user, at, at + p->bytes, true);
        at = done = at + p->bytes;
    }
    return rc || done == bytes ? rc : take(user, done, bytes, false);
}

/* The next match from `at` on: 1, 0: none, -1 after an error message. */
static int next(const struct pattern *p, const char *path, const char *text, int64_t bytes,
                int64_t at, pcre2_match_data *match)
{
    int found = pcre2_match(p->code, (PCRE2_SPTR)text, (size_t)bytes, (size_t)at,
                            PCRE2_NO_UTF_CHECK, match, p->context);

    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter has its state on the heap */
        found = pcre2_match(p->code, (PCRE2_SPTR)text, (size_t)bytes, (size_t)at,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, p->context);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return say_fail("%s: the text cannot be split at byte %lld: no memory for its pattern",
                        path, (long long)at);
    return found >= 0;
}

/* An empty match counts, but not right behind another match. */
static int each_match(const struct pattern *p, const char *path, const char *text, int64_t bytes,
                      pcre2_match_data *match, pattern_taker take, void *user)
{
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(match);
    int64_t done = 0, at = 0, last = -1;
    int rc = 0, found = 0;

    while (!rc && at <= bytes && (found = next(p, path, text, bytes, at, match)) > 0) {
        int64_t begin = (int64_t)place[0], end = (int64_t)place[1];
        at = end > begin ? end : end + (end < bytes ? utf8_length(text + end, bytes - end) : 1);
        if (end == begin && begin == last)
            continue;
        rc = begin > done ? take(user, done, begin, false) : 0;
        rc = rc ? rc : take(user, begin, end, true);
        done = last = end;
    }
    if (rc || found < 0)
        return rc ? rc : -1;
    return done < bytes ? take(user, done, bytes, false) : 0;
}

int pattern_each(const struct pattern *p, const char *path, const char *text, int64_t bytes,
                 pattern_taker take, void *user)
{
    if (p->text)
        return each_text(p, text, bytes, take, user);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (!match)
        return say_fail("%s: no memory", path);
    int rc = each_match(p, path, text, bytes, match, take, user);
    pcre2_match_data_free(match);
    return rc;
}

#else

int pattern_open(struct pattern **p, const char *path, const char *expression, bool is_text)
{
    (void)expression, (void)is_text;
    *p = NULL;
    return say_fail("%s: this program was built without PCRE2, which splits text into words; give "
                    "files of tokens, or --tokenizer bytes",
                    path);
}

void pattern_close(struct pattern *p)
{
    (void)p;
}

int pattern_each(const struct pattern *p, const char *path, const char *text, int64_t bytes,
                 pattern_taker take, void *user)
{
    (void)p, (void)text, (void)bytes, (void)take, (void)user;
    return say_fail("%s: built without PCRE2", path);
}

#endif

int pattern_read(struct pattern **p, const char *path, const json_t *pattern)
{
    const char *text = json_string_value(json_object_get(pattern, "String"));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));

    *p = NULL;
    if (!text == !regex)
        return say_fail("%s: a pattern is neither {\"String\": ...} nor {\"Regex\": ...}", path);
    return pattern_open(p, path, text ? text : regex, text != NULL);
}
