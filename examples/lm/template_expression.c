/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: the expressions of a tree.  Precedence is Jinja's: filters and tests bind most
 * tightly.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "template_parser.h"

enum { MOST_DEPTH = 100 };

struct node *parser_refuse(struct parser *p, struct place at, const char *format, ...)
{
    char what[512];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (!p->failed)
        say_fail("%s:%d:%d: %s", p->t->name, at.line, at.column, what);
    p->failed = true;
    return NULL;
}

/* What a message calls a token. */
const char *token_shown(const struct template_token *k, char dst[64])
{
    static const char *const names[] = {[T_END] = "the end of the template",
                                        [T_TEXT] = "text",
                                        [T_BLOCK] = "{%",
                                        [T_BLOCK_END] = "%}",
                                        [T_PRINT] = "{{",
                                        [T_PRINT_END] = "}}"};

    if (k->type < sizeof names / sizeof *names && names[k->type])
        return names[k->type];
    snprintf(dst, 64, "\"%.*s\"", (int)(k->n < 40 ? k->n : 40), k->text);
    return dst;
}

struct node *parser_unexpected(struct parser *p, const char *wanted)
{
    char text[64];

    return parser_refuse(p, p->token->at, "%s is here, and not %s", token_shown(p->token, text),
                         wanted);
}

struct node *parser_make(struct parser *p, enum node_kind kind, struct place at)
{
    struct node *n = p->failed ? NULL : arena_take(&p->t->arena, sizeof *n);

    if (!n)
        return parser_refuse(p, at, "the template is too large");
    n->kind = kind;
    n->at = at;
    return n;
}

static struct node *make_on(struct parser *p, enum node_kind kind, struct node *a)
{
    struct node *n = a ? parser_make(p, kind, a->at) : NULL;

    if (n)
        n->a = a;
    return n;
}

struct string token_string(const struct template_token *k)
{
    return (struct string){k->text, NULL, k->n};
}

static bool is(const struct parser *p, enum token_type type, const char *text)
{
    return p->token->type == type && string_is(token_string(p->token), text);
}

bool parser_at(const struct parser *p, const char *text)
{
    return is(p, T_MARK, text);
}

bool parser_at_word(const struct parser *p, const char *text)
{
    return is(p, T_NAME, text);
}

bool parser_skip(struct parser *p, enum token_type type, const char *text)
{
    bool found = is(p, type, text);

    p->token += found;
    return found;
}

bool parser_skip_mark(struct parser *p, const char *text)
{
    return parser_skip(p, T_MARK, text);
}

bool parser_want(struct parser *p, const char *text)
{
    char quoted[8];

    if (p->failed || parser_skip_mark(p, text))
        return !p->failed;
    snprintf(quoted, sizeof quoted, "\"%s\"", text);
    parser_unexpected(p, quoted);
    return false;
}

bool parser_name(struct parser *p, struct string *name)
{
    if (!p->failed && p->token->type == T_NAME) {
        *name = token_string(p->token++);
        return true;
    }
    parser_unexpected(p, "a name");
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

static struct node *parse_unary(struct parser *p, bool filters);
static struct node *parse_postfix(struct parser *p, struct node *n);

static struct node *constant(struct parser *p, struct value v)
{
    struct node *n = parser_make(p, N_CONST, p->token->at);

    p->token++;
    if (n)
        n->value = v;
    return n;
}

/* Elements up to a bracket, in a list; a comma may be behind the last one. */
static struct node *parse_elements(struct parser *p, const char *end, bool pairs)
{
    struct node *first = NULL, **to = &first;

    while (!p->failed && !parser_at(p, end)) {
        if (first && !parser_want(p, ","))
            break;
        if (parser_at(p, end))
            break;
        for (int i = 0; i < 1 + pairs && !p->failed; i++) {
            if (i && !parser_want(p, ":"))
                break;
            *to = parser_expression(p);
            to = *to ? &(*to)->next : to;
        }
    }
    parser_want(p, end);
    return first;
}

static struct node *parse_brackets(struct parser *p, enum node_kind kind, const char *end)
{
    struct node *n = parser_make(p, kind, p->token->at);

    p->token++;
    struct node *elements = parse_elements(p, end, kind == N_MAP);
    if (n)
        n->e = elements;
    return p->failed ? NULL : n;
}

/* (a), or a tuple. */
static struct node *parse_group(struct parser *p)
{
    struct node *list = parser_make(p, N_LIST, p->token->at), *one;

    p->token++;
    if (parser_at(p, ")")) {
        p->token++;
        return list;
    }
    one = parser_expression(p);
    if (!one || parser_skip_mark(p, ")"))
        return one;
    if (!parser_want(p, ","))
        return NULL;
    one->next = parse_elements(p, ")", false);
    list->e = one;
    return p->failed ? NULL : list;
}

/* Neighbouring strings are one. */
static struct node *parse_string(struct parser *p)
{
    int64_t n = 0, strings = 0;
    char *text;

    while (p->token[strings].type == T_STRING)
        n += p->token[strings++].n;
    text = arena_take(&p->t->arena, n + 1);
    if (!text)
        return parser_refuse(p, p->token->at, "the template is too large");
    for (int64_t i = 0, at = 0; i < strings; at += p->token[i++].n)
        memcpy(text + at, p->token[i].text, (size_t)p->token[i].n);
    p->token += strings - 1;
    return constant(p, value_string((struct string){text, NULL, n}));
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct value value;
    } constants[] = {{"true", {.kind = TRUTH, .is.truth = true}},
                     {"True", {.kind = TRUTH, .is.truth = true}},
                     {"false", {.kind = TRUTH, .is.truth = false}},
                     {"False", {.kind = TRUTH, .is.truth = false}},
                     {"none", {.kind = NONE}},
                     {"None", {.kind = NONE}}};
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "else", NULL};

    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (parser_at_word(p, constants[i].name))
            return constant(p, constants[i].value);
    for (int i = 0; words[i]; i++)
        if (parser_at_word(p, words[i]))
            return parser_unexpected(p, "a value");
    struct node *n = parser_make(p, N_NAME, p->token->at);
    if (n)
        n->text = token_string(p->token++);
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    char digits[32];

    snprintf(digits, sizeof digits, "%.*s", (int)(p->token->n < 31 ? p->token->n : 31),
             p->token->text);
    switch (p->token->type) {
    case T_STRING:
        return parse_string(p);
    case T_WHOLE:
        return constant(p, value_whole(strtoll(digits, NULL, 10)));
    case T_REAL:
        return constant(p, (struct value){.kind = REAL, .is.real = strtod(digits, NULL)});
    case T_NAME:
        return parse_name(p);
    default:
        break;
    }
    if (parser_at(p, "("))
        return parse_group(p);
    if (parser_at(p, "["))
        return parse_brackets(p, N_LIST, "]");
    return parser_at(p, "{") ? parse_brackets(p, N_MAP, "}") : parser_unexpected(p, "a value");
}

/* ---- what follows a value -------------------------------------------------------------------- */

/* Arguments behind "(", also named ones. */
static struct node *parse_arguments(struct parser *p)
{
    struct node *first = NULL, **to = &first;

    p->token++;
    while (!p->failed && !parser_at(p, ")")) {
        if (first && !parser_want(p, ","))
            break;
        if (parser_at(p, ")"))
            break;
        if (parser_at(p, "*") || parser_at(p, "**"))
            return parser_refuse(p, p->token->at, "arguments from a list (*) are not supported");
        const struct template_token *k = p->token;
        bool named =
            k->type == T_NAME && k[1].type == T_MARK && string_is(token_string(k + 1), "=");
        p->token += named ? 2 : 0;
        struct node *value = parser_expression(p);
        *to = named ? make_on(p, N_NAMED, value) : value;
        if (named && *to)
            (*to)->text = token_string(k);
        to = *to ? &(*to)->next : to;
    }
    parser_want(p, ")");
    return first;
}

static bool ends_part(const struct parser *p)
{
    return parser_at(p, ":") || parser_at(p, "]");
}

/* a[i], a[b:c] and a[b:c:d]. */
static struct node *parse_item(struct parser *p, struct node *a)
{
    struct node *n = make_on(p, N_ITEM, a), *part[3] = {NULL, NULL, NULL};
    int parts = 0;

    for (p->token++; !p->failed; p->token++) {
        if (!ends_part(p))
            part[parts] = parser_expression(p);
        parts++;
        if (!parser_at(p, ":") || parts == 3)
            break;
    }
    if (!p->failed && parser_at(p, ","))
        return parser_refuse(p, p->token->at, "an index of several parts is not supported");
    if (!parser_want(p, "]"))
        return NULL;
    if (parts == 1 && !part[0])
        return parser_refuse(p, a->at, "an index is missing");
    n->kind = parts > 1 ? N_SLICE : N_ITEM;
    n->b = part[0];
    n->c = part[1];
    n->d = part[2];
    return n;
}

static struct node *parse_member(struct parser *p, struct node *a)
{
    struct node *n = make_on(p, N_MEMBER, a);

    p->token++;
    if (p->token->type == T_WHOLE && n) {
        n->kind = N_ITEM;
        n->b = parse_primary(p);
        return n;
    }
    return n && parser_name(p, &n->text) ? n : NULL;
}

static struct node *parse_call(struct parser *p, struct node *a)
{
    struct node *n = make_on(p, N_CALL, a), *arguments = parse_arguments(p);

    if (n)
        n->e = arguments;
    return p->failed ? NULL : n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n && !p->failed)
        if (parser_at(p, "."))
            n = parse_member(p, n);
        else if (parser_at(p, "["))
            n = parse_item(p, n);
        else if (parser_at(p, "("))
            n = parse_call(p, n);
        else
            break;
    return p->failed ? NULL : n;
}

static struct node *parse_filter(struct parser *p, struct node *a)
{
    struct node *n = make_on(p, N_FILTER, a);

    p->token++;
    const struct place at = p->token->at;
    if (!n || !parser_name(p, &n->text))
        return NULL;
    n->at = at;
    if (!filter_exists(n->text))
        return parser_refuse(p, at, "the filter %.*s is not supported", (int)n->text.n,
                             n->text.bytes);
    if (parser_at(p, "("))
        n->e = parse_arguments(p);
    return p->failed ? NULL : n;
}

/* The argument of a test may stand behind its name without brackets. */
static bool has_bare_argument(const struct parser *p)
{
    static const char *const none[] = {"else", "or", "and", "if", "is", "in", "not", NULL};

    for (int i = 0; none[i]; i++)
        if (parser_at_word(p, none[i]))
            return false;
    return p->token->type == T_NAME || p->token->type == T_STRING || p->token->type == T_WHOLE ||
           p->token->type == T_REAL || parser_at(p, "[") || parser_at(p, "{");
}

static struct node *parse_test(struct parser *p, struct node *a)
{
    struct node *n = make_on(p, N_TEST, a);

    p->token++;
    bool not = parser_skip(p, T_NAME, "not");
    const struct place at = p->token->at;
    if (!n)
        return NULL;
    if (p->token->type == T_MARK && !parser_at(p, "(")) /* "is ==" and so on */
        n->text = token_string(p->token++);
    else if (!parser_name(p, &n->text))
        return NULL;
    n->at = at;
    if (!test_exists(n->text))
        return parser_refuse(p, at, "the test %.*s is not supported", (int)n->text.n,
                             n->text.bytes);
    if (parser_at(p, "("))
        n->e = parse_arguments(p);
    else if (has_bare_argument(p))
        n->e = parse_postfix(p, parse_primary(p));
    return p->failed ? NULL : not ? make_on(p, N_NOT, n) : n;
}

static struct node *parse_filters(struct parser *p, struct node *n)
{
    while (n && !p->failed)
        if (parser_at(p, "|"))
            n = parse_filter(p, n);
        else if (parser_at_word(p, "is"))
            n = parse_test(p, n);
        else if (parser_at(p, "("))
            n = parse_call(p, n);
        else
            break;
    return p->failed ? NULL : n;
}

/* ---- operators ------------------------------------------------------------------------------- */

bool parser_is_deep(struct parser *p)
{
    if (p->depth < MOST_DEPTH)
        return false;
    parser_refuse(p, p->token->at, "there are more than %d levels here", MOST_DEPTH);
    return true;
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *n;
    const bool minus = parser_at(p, "-");

    if (p->failed || parser_is_deep(p))
        return NULL;
    p->depth++;
    if (minus || parser_at(p, "+")) {
        p->token++;
        n = parse_unary(p, false);
        n = minus ? make_on(p, N_MINUS, n) : n;
    } else {
        n = parse_primary(p);
    }
    n = n ? parse_postfix(p, n) : NULL;
    if (n && filters)
        n = parse_filters(p, n);
    p->depth--;
    if (!p->failed && parser_at(p, "**"))
        return parser_refuse(p, p->token->at, "the operator ** is not supported");
    return p->failed ? NULL : n;
}

/* Operators from the left, those of later levels bind more tightly. */
static struct node *parse_binary(struct parser *p, int level)
{
    static const char *const levels[][4] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
    enum { LEVELS = 3 };
    struct node *n = level == LEVELS ? parse_unary(p, true) : parse_binary(p, level + 1);

    for (bool found = true; n && level < LEVELS && found;) {
        found = false;
        for (int i = 0; i < 4 && levels[level][i] && !found; i++)
            found = parser_at(p, levels[level][i]);
        if (!found)
            break;
        struct node *pair = make_on(p, N_BINARY, n);
        const struct place at = p->token->at;
        const struct string op = token_string(p->token++);
        struct node *right = parse_binary(p, level + 1);
        if (!pair || !right)
            return NULL;
        pair->text = op;
        pair->at = at;
        pair->b = right;
        n = pair;
    }
    return p->failed ? NULL : n;
}

/* The operator of a comparison, if one is next. */
static bool take_comparison(struct parser *p, struct string *op)
{
    static const char *const marks[] = {"==", "!=", "<", "<=", ">", ">="};

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (parser_skip_mark(p, marks[i]))
            return *op = string_of(marks[i]), true;
    if (parser_skip(p, T_NAME, "in"))
        return *op = string_of("in"), true;
    if (!parser_at_word(p, "not") || p->token[1].type != T_NAME ||
        !string_is(token_string(p->token + 1), "in"))
        return false;
    p->token += 2;
    *op = string_of("not in");
    return true;
}

static struct node *parse_comparison(struct parser *p)
{
    struct node *first = parse_binary(p, 0), *whole = NULL, **to = NULL;
    struct string op;

    while (first && !p->failed) {
        const struct place at = p->token->at;
        if (!take_comparison(p, &op))
            break;
        struct node *operand = make_on(p, N_OPERAND, parse_binary(p, 0));
        if (!operand)
            return NULL;
        operand->text = op;
        operand->at = at;
        if (!whole) {
            whole = make_on(p, N_COMPARE, first);
            to = whole ? &whole->e : NULL;
        }
        if (!to)
            return NULL;
        *to = operand;
        to = &operand->next;
    }
    return p->failed ? NULL : whole ? whole : first;
}

static struct node *parse_not(struct parser *p)
{
    if (p->failed || parser_is_deep(p))
        return NULL;
    if (!parser_at_word(p, "not"))
        return parse_comparison(p);
    p->token++;
    p->depth++;
    struct node *n = make_on(p, N_NOT, parse_not(p));
    p->depth--;
    return n;
}

static struct node *parse_logic(struct parser *p, bool both)
{
    struct node *n = both ? parse_not(p) : parse_logic(p, true);

    while (n && !p->failed && parser_skip(p, T_NAME, both ? "and" : "or")) {
        struct node *pair = make_on(p, both ? N_AND : N_OR, n);
        struct node *right = both ? parse_not(p) : parse_logic(p, true);
        if (!pair || !right)
            return NULL;
        pair->b = right;
        n = pair;
    }
    return p->failed ? NULL : n;
}

/* The part of an expression before "if". */
struct node *parser_plain(struct parser *p)
{
    return parse_logic(p, false);
}

struct node *parser_expression(struct parser *p)
{
    if (p->failed || parser_is_deep(p))
        return NULL;
    p->depth++;
    struct node *n = parser_plain(p);
    while (n && !p->failed && parser_skip(p, T_NAME, "if")) {
        struct node *choice = parser_make(p, N_CHOICE, n->at);
        struct node *condition = parser_plain(p);
        struct node *other =
            condition && parser_skip(p, T_NAME, "else") ? parser_expression(p) : NULL;
        if (!choice || !condition || p->failed)
            return NULL;
        choice->a = condition;
        choice->b = n;
        choice->c = other;
        n = choice;
    }
    p->depth--;
    return p->failed ? NULL : n;
}
