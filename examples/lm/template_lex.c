/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: text to tokens, with the rules of Jinja about white space around tags. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "../tokenizer/parts.h"
#include "template_parts.h"

enum { MOST_BYTES = 1 << 20 };

/* ---- memory ---------------------------------------------------------------------------------- */

enum { PART = 1 << 16 };

struct arena_part {
    struct arena_part *before;
    int64_t used, room;
    _Alignas(16) char bytes[];
};

void *arena_take(struct arena *a, int64_t bytes)
{
    struct arena_part *p = a->last;

    bytes = (bytes + 15) & ~(int64_t)15;
    if (bytes < 0 || bytes > a->most - a->bytes)
        return NULL;
    if (!p || bytes > p->room - p->used) {
        int64_t room = bytes > PART ? bytes : PART;
        p = calloc(1, sizeof *p + (size_t)room);
        if (!p)
            return NULL;
        p->room = room;
        p->before = a->last;
        a->last = p;
    }
    p->used += bytes;
    a->bytes += bytes;
    return p->bytes + p->used - bytes;
}

void arena_free(struct arena *a)
{
    for (struct arena_part *p = a->last, *before; p; p = before) {
        before = p->before;
        free(p);
    }
    a->last = NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

struct lexer {
    struct arena *arena;
    const char *name, *text, *at, *end;
    const char *counted; /* place.line lines end before it, the last one at line_begin */
    const char *line_begin;
    int32_t line;
    bool line_starts; /* the tag or text before ended with a line */
    struct template_token *token;
    int64_t n, room;
};

static struct place place_of(struct lexer *l, const char *at)
{
    for (; l->counted < at; l->counted++)
        if (*l->counted == '\n') {
            l->line++;
            l->line_begin = l->counted + 1;
        }
    return (struct place){l->line, (int32_t)(at - l->line_begin) + 1};
}

static int refuse(struct lexer *l, const char *at, const char *what)
{
    struct place p = place_of(l, at);

    return say_fail("%s:%d:%d: %s", l->name, p.line, p.column, what);
}

static int put(struct lexer *l, enum token_type type, const char *at, const char *text, int64_t n)
{
    if (l->n == l->room) {
        int64_t room = 2 * l->room + 256;
        struct template_token *grown = arena_take(l->arena, room * (int64_t)sizeof *grown);
        if (!grown)
            return say_fail("%s: the template is too large", l->name);
        if (l->n)
            memcpy(grown, l->token, (size_t)l->n * sizeof *grown);
        l->token = grown;
        l->room = room;
    }
    l->token[l->n++] = (struct template_token){type, text, n, place_of(l, at)};
    return 0;
}

/* ---- white space ----------------------------------------------------------------------------- */

/* As Python's str.isspace, which has four control characters more than Unicode. */
static bool is_space_at(const char *at, int n)
{
    uint32_t c = utf8_code(at, n);

    return utf8_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static const char *skip_spaces(const struct lexer *l, const char *at)
{
    for (int n; at < l->end && is_space_at(at, n = utf8_length(at, l->end - at)); at += n)
        ;
    return at;
}

static const char *drop_spaces(const char *begin, const char *end)
{
    for (int n; end > begin; end -= n) {
        utf8_before(begin, end - begin, &n);
        if (!is_space_at(end - n, n))
            break;
    }
    return end;
}

/* lstrip_blocks: blanks between the beginning of a line and a tag go. */
static const char *drop_indent(const struct lexer *l, const char *begin, const char *end)
{
    const char *line = end;

    while (line > begin && line[-1] != '\n')
        line--;
    bool starts = line > begin || l->line_starts;
    return starts && drop_spaces(line, end) == line ? line : end;
}

/* ---- tags ------------------------------------------------------------------------------------ */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int lex_name(struct lexer *l)
{
    const char *begin = l->at;

    while (l->at < l->end && (is_letter(*l->at) || is_digit(*l->at)))
        l->at++;
    return put(l, T_NAME, begin, begin, l->at - begin);
}

static void skip_digits(struct lexer *l)
{
    while (l->at < l->end && is_digit(*l->at))
        l->at++;
}

static int lex_number(struct lexer *l)
{
    const char *begin = l->at;
    enum token_type type = T_WHOLE;

    skip_digits(l);
    if (l->end - l->at > 1 && *l->at == '.' && is_digit(l->at[1])) {
        type = T_REAL;
        l->at++;
        skip_digits(l);
    }
    const char *power = l->at;
    if (l->at < l->end && (*l->at | 32) == 'e') {
        power += 1 + (l->end - l->at > 1 && (l->at[1] == '-' || l->at[1] == '+'));
        type = T_REAL;
        l->at = power;
        skip_digits(l);
    }
    if ((l->at < l->end && is_letter(*l->at)) || (power > begin && !is_digit(l->at[-1])))
        return refuse(l, begin, "a number in this form is not supported");
    if (type == T_WHOLE && l->at - begin > 1 && *begin == '0')
        return refuse(l, begin, "a number that begins with 0 is not supported");
    if (l->at - begin > 18)
        return refuse(l, begin, "a number is too long");
    return put(l, type, begin, begin, l->at - begin);
}

/* Hexadecimal digits of \x, \u and \U; -1: they are wrong. */
static int64_t hex(const char *at, const char *end, int n)
{
    int64_t code = 0;

    if (end - at < n)
        return -1;
    for (int i = 0; i < n; i++) {
        char c = (char)(at[i] | 32);
        if (!is_digit(at[i]) && (c < 'a' || c > 'f'))
            return -1;
        code = 16 * code + (is_digit(at[i]) ? at[i] - '0' : c - 'a' + 10);
    }
    return code;
}

/* The escape behind a backslash at *at: its bytes go to `to`.  Others stay as they are. */
static int lex_escape(struct lexer *l, const char **at, const char *end, char **to)
{
    static const char from[] = "ntrabfv\\'\"", is[] = "\n\t\r\a\b\f\v\\'\"";
    const char c = (*at)[1], *known = c ? strchr(from, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    int64_t code = digits ? hex(*at + 2, end, digits) : -1;

    if (known) {
        *(*to)++ = is[known - from];
        *at += 2;
    } else if (digits) {
        if (code <= 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return refuse(l, *at, "an escape of a string names no character");
        *to += utf8_put(*to, (uint32_t)code);
        *at += 2 + digits;
    } else if (is_digit(c) || c == 'N' || c == '\n') {
        return refuse(l, *at, "this escape of a string is not supported");
    } else {
        *(*to)++ = *(*at)++;
    }
    return 0;
}

static int lex_string(struct lexer *l)
{
    const char *begin = l->at, *at = l->at + 1, *end = at;

    while (end < l->end && *end != *begin)
        end += *end == '\\' && l->end - end > 1 ? 2 : 1;
    if (end >= l->end)
        return refuse(l, begin, "a string has no end");
    char *text = arena_take(l->arena, end - at + 8), *to = text;
    if (!text)
        return say_fail("%s: the template is too large", l->name);
    while (at < end)
        if (*at != '\\')
            *to++ = *at++;
        else if (lex_escape(l, &at, end, &to))
            return -1;
    l->at = end + 1;
    return put(l, T_STRING, begin, text, to - text);
}

static int lex_mark(struct lexer *l, int *depth)
{
    static const char *const marks[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ","};

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        int64_t n = (int64_t)strlen(marks[i]);
        if (l->end - l->at < n || memcmp(l->at, marks[i], (size_t)n))
            continue;
        *depth += strchr("[({", *l->at) ? 1 : strchr("])}", *l->at) ? -1 : 0;
        if (*depth < 0)
            return refuse(l, l->at, "a bracket ends that was not begun");
        int rc = put(l, T_MARK, l->at, l->at, n);
        l->at += n;
        return rc;
    }
    return refuse(l, l->at, "this character is not part of an expression");
}

/* Whether a tag ends here, with its sign; a line behind the end of a block goes (trim_blocks). */
static bool ends_tag(struct lexer *l, const char *end, bool prints)
{
    const char *at = l->at;
    char sign = *at == '-' || (*at == '+' && !prints) ? *at : 0;

    at += sign != 0;
    if (l->end - at < 2 || memcmp(at, end, 2))
        return false;
    l->at = at + 2;
    if (sign == '-')
        l->at = skip_spaces(l, l->at);
    else if (!sign && !prints && l->at < l->end && *l->at == '\n')
        l->at++;
    l->line_starts = l->at[-1] == '\n';
    return true;
}

static int lex_tag(struct lexer *l, const char *begin, bool prints)
{
    int depth = 0, rc = 0;

    while (!rc) {
        l->at = skip_spaces(l, l->at);
        const char *at = l->at;
        if (at == l->end)
            return refuse(l, begin, "a tag has no end");
        if (!depth && ends_tag(l, prints ? "}}" : "%}", prints))
            return put(l, prints ? T_PRINT_END : T_BLOCK_END, at, "", 0);
        rc = is_letter(*at)              ? lex_name(l)
             : is_digit(*at)             ? lex_number(l)
             : *at == '\'' || *at == '"' ? lex_string(l)
                                         : lex_mark(l, &depth);
    }
    return rc;
}

static int lex_comment(struct lexer *l, const char *begin)
{
    for (; l->end - l->at >= 2; l->at++)
        if (!memcmp(l->at, "#}", 2)) {
            char sign = l->at[-1];
            /* The sign must be inside of the comment. */
            sign = l->at - 1 > begin + 1 && (sign == '-' || sign == '+') ? sign : 0;
            l->at += 2;
            if (sign == '-')
                l->at = skip_spaces(l, l->at);
            else if (!sign && l->at < l->end && *l->at == '\n')
                l->at++;
            l->line_starts = l->at[-1] == '\n';
            return 0;
        }
    return refuse(l, begin, "a comment has no end");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const char *find_tag(const struct lexer *l)
{
    for (const char *at = l->at; l->end - at >= 2; at++)
        if (*at == '{' && (at[1] == '%' || at[1] == '{' || at[1] == '#'))
            return at;
    return NULL;
}

/* The text up to the next tag, and the tag. */
static int lex_part(struct lexer *l)
{
    const char *begin = l->at, *tag = find_tag(l), *end = tag ? tag : l->end;
    char kind = tag ? tag[1] : 0, sign = tag && l->end - tag > 2 ? tag[2] : 0;

    if (sign == '-')
        end = drop_spaces(begin, end);
    else if (tag && sign != '+' && kind != '{')
        end = drop_indent(l, begin, end);
    if (end > begin && put(l, T_TEXT, begin, begin, end - begin))
        return -1;
    l->line_starts = false;
    l->at = tag ? tag + 2 + (sign == '-' || sign == '+') : l->end;
    if (!tag)
        return 0;
    if (kind == '#')
        return lex_comment(l, tag);
    return put(l, kind == '{' ? T_PRINT : T_BLOCK, tag, "", 0) || lex_tag(l, tag, kind == '{') ? -1
                                                                                               : 0;
}

/* A copy with line feeds as the ends of lines, without the last one. */
static int copy(struct lexer *l, const char *text, int64_t bytes)
{
    char *to = arena_take(l->arena, bytes + 1);

    if (!to || bytes > MOST_BYTES)
        return say_fail("%s: a template of %lld bytes is too large", l->name, (long long)bytes);
    l->text = l->at = l->counted = l->line_begin = to;
    for (int64_t i = 0; i < bytes; i++) {
        bool pair = text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
        *to++ = text[i] == '\r' ? '\n' : text[i];
        i += pair;
    }
    l->end = to;
    for (const char *at = l->text; at < to;) {
        int n = utf8_length(at, to - at);
        if (!n || !*at)
            return refuse(l, at, "this byte is not UTF-8 text");
        at += n;
    }
    l->end -= l->end > l->text && l->end[-1] == '\n';
    return 0;
}

struct template_token *template_lex(struct arena *a, const char *name, const char *text,
                                    int64_t bytes)
{
    struct lexer l = {.arena = a, .name = name, .line = 1, .line_starts = true};

    if (copy(&l, text, bytes))
        return NULL;
    while (l.at < l.end)
        if (lex_part(&l))
            return NULL;
    return put(&l, T_END, l.end, "", 0) ? NULL : l.token;
}
