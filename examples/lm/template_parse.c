/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: the statements of a tree. */
#include <stddef.h>
#include "template_parser.h"

static struct node *parse_body(struct parser *p);

static bool want_end(struct parser *p)
{
    if (!p->failed && p->token->type == T_BLOCK_END) {
        p->token++;
        return true;
    }
    parser_unexpected(p, "%}");
    return false;
}

/* {% name: the next tag begins with one of the words, which ends a body. */
static bool is_at(const struct parser *p, const char *word)
{
    return p->token->type == T_BLOCK && p->token[1].type == T_NAME &&
           string_is(token_string(p->token + 1), word);
}

static bool want_tag(struct parser *p, const char *word, struct place begun)
{
    if (p->failed)
        return false;
    if (!is_at(p, word)) {
        if (p->token->type == T_END)
            parser_refuse(p, begun, "the block that begins here has no %s", word);
        else
            parser_refuse(p, p->token->at, "this tag is not the %s of the block of line %d", word,
                          begun.line);
        return false;
    }
    p->token += 2;
    return true;
}

static struct node *parse_if(struct parser *p, struct node *n)
{
    n->a = parser_expression(p);
    if (!want_end(p))
        return NULL;
    n->b = parse_body(p);
    if (!p->failed && is_at(p, "elif")) {
        n->c = parser_make(p, N_IF, p->token[1].at);
        p->token += 2;
        if (!n->c || parser_is_deep(p))
            return NULL;
        p->depth++;
        n->c = parse_if(p, n->c);
        p->depth--;
        return p->failed ? NULL : n;
    }
    if (!p->failed && is_at(p, "else")) {
        p->token += 2;
        if (!want_end(p))
            return NULL;
        n->c = parse_body(p);
    }
    return want_tag(p, "endif", n->at) && want_end(p) ? n : NULL;
}

/* Names joined by commas, perhaps in brackets. */
static struct node *parse_names(struct parser *p)
{
    struct node *first = NULL, **to = &first;
    const bool brackets = parser_skip_mark(p, "(");

    do {
        struct node *n = parser_make(p, N_NAME, p->token->at);
        if (!n || !parser_name(p, &n->text))
            return NULL;
        *to = n;
        to = &n->next;
    } while (parser_skip_mark(p, ","));
    return brackets && !parser_want(p, ")") ? NULL : first;
}

static struct node *parse_for(struct parser *p, struct node *n)
{
    n->e = parse_names(p);
    if (p->failed || !parser_skip(p, T_NAME, "in"))
        return parser_unexpected(p, "\"in\"");
    n->a = parser_plain(p);
    if (parser_skip(p, T_NAME, "if"))
        n->d = parser_expression(p);
    if (!p->failed && parser_at_word(p, "recursive"))
        return parser_refuse(p, p->token->at, "a recursive loop is not supported");
    if (!want_end(p))
        return NULL;
    p->loops++;
    n->b = parse_body(p);
    p->loops--;
    if (!p->failed && is_at(p, "else")) {
        p->token += 2;
        if (!want_end(p))
            return NULL;
        n->c = parse_body(p);
    }
    return want_tag(p, "endfor", n->at) && want_end(p) ? n : NULL;
}

static struct node *parse_set(struct parser *p, struct node *n)
{
    const struct place at = p->token->at;

    if (!parser_name(p, &n->text))
        return NULL;
    if (parser_at(p, ",") || parser_at(p, "|"))
        return parser_refuse(p, p->token->at, "this form of set is not supported");
    if (parser_skip_mark(p, ".")) {
        n->c = parser_make(p, N_NAME, at);
        if (!n->c || !parser_name(p, &n->c->text))
            return NULL;
    }
    if (parser_skip_mark(p, "=")) {
        n->a = parser_expression(p);
        if (!p->failed && parser_at(p, ","))
            return parser_refuse(p, p->token->at, "this form of set is not supported");
        return want_end(p) ? n : NULL;
    }
    if (n->c || !want_end(p))
        return n->c ? parser_unexpected(p, "\"=\"") : NULL;
    n->kind = N_SET_BODY;
    n->b = parse_body(p);
    return want_tag(p, "endset", n->at) && want_end(p) ? n : NULL;
}

static struct node *parse_macro(struct parser *p, struct node *n)
{
    struct node **to = &n->e;

    if (p->in_macro || p->loops || p->spans)
        return parser_refuse(p, n->at, "a macro inside of another block is not supported");
    if (!parser_name(p, &n->text) || !parser_want(p, "("))
        return NULL;
    while (!p->failed && !parser_at(p, ")")) {
        if (n->e && !parser_want(p, ","))
            return NULL;
        *to = parser_make(p, N_NAME, p->token->at);
        if (!*to || !parser_name(p, &(*to)->text))
            return NULL;
        if (parser_skip_mark(p, "="))
            (*to)->a = parser_expression(p);
        to = &(*to)->next;
    }
    if (!parser_want(p, ")") || !want_end(p))
        return NULL;
    p->in_macro = true;
    n->b = parse_body(p);
    p->in_macro = false;
    return want_tag(p, "endmacro", n->at) && want_end(p) ? n : NULL;
}

static struct node *parse_spans(struct parser *p, struct node *n)
{
    if (p->spans || p->in_macro)
        return parser_refuse(p, n->at, "generation inside of %s is not supported",
                             p->spans ? "generation" : "a macro");
    if (!want_end(p))
        return NULL;
    p->t->has_spans = true;
    p->spans++;
    n->b = parse_body(p);
    p->spans--;
    return want_tag(p, "endgeneration", n->at) && want_end(p) ? n : NULL;
}

static struct node *parse_jump(struct parser *p, struct node *n)
{
    if (!p->loops)
        return parser_refuse(p, n->at, "this jump is in no loop");
    return want_end(p) ? n : NULL;
}

static struct node *parse_tag(struct parser *p)
{
    static const struct {
        const char *word;
        enum node_kind kind;
        struct node *(*parse)(struct parser *p, struct node *n);
    } tags[] = {{"if", N_IF, parse_if},
                {"for", N_FOR, parse_for},
                {"set", N_SET, parse_set},
                {"macro", N_MACRO, parse_macro},
                {"generation", N_SPANS, parse_spans},
                {"break", N_BREAK, parse_jump},
                {"continue", N_CONTINUE, parse_jump}};
    char text[64];

    p->token++;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (parser_at_word(p, tags[i].word)) {
            struct node *n = parser_make(p, tags[i].kind, p->token->at);
            p->token++;
            return n ? tags[i].parse(p, n) : NULL;
        }
    return parser_refuse(p, p->token->at, "the tag %s is not supported",
                         token_shown(p->token, text));
}

static struct node *parse_print(struct parser *p)
{
    struct node *n = parser_make(p, N_PRINT, p->token->at);

    p->token++;
    if (n)
        n->a = parser_expression(p);
    if (!p->failed && p->token->type != T_PRINT_END)
        return parser_unexpected(p, "}}");
    p->token++;
    return p->failed ? NULL : n;
}

static struct node *parse_text(struct parser *p)
{
    struct node *n = parser_make(p, N_TEXT, p->token->at);

    if (n)
        n->text = token_string(p->token++);
    return n;
}

/* Tags that end the body of another one. */
static bool ends_body(const struct parser *p)
{
    static const char *const words[] = {"elif",   "else",     "endif",         "endfor",
                                        "endset", "endmacro", "endgeneration", NULL};

    for (int i = 0; words[i]; i++)
        if (is_at(p, words[i]))
            return true;
    return p->token->type == T_END;
}

static struct node *parse_body(struct parser *p)
{
    struct node *first = NULL, **to = &first;

    if (p->failed || parser_is_deep(p))
        return NULL;
    p->depth++;
    while (!p->failed && !ends_body(p)) {
        *to = p->token->type == T_TEXT    ? parse_text(p)
              : p->token->type == T_PRINT ? parse_print(p)
                                          : parse_tag(p);
        to = *to ? &(*to)->next : to;
    }
    p->depth--;
    return first;
}

int template_parse(struct template *t, const struct template_token *token)
{
    struct parser p = {.t = t, .token = token};
    char text[64];

    t->body = parse_body(&p);
    if (!p.failed && p.token->type != T_END)
        parser_refuse(&p, p.token[1].at, "the tag %s ends no block",
                      token_shown(p.token + 1, text));
    return p.failed ? -1 : 0;
}
