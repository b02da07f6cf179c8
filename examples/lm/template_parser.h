/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of statements (template_parse.c) and expressions (template_expression.c) share.
 */
#ifndef LM_TEMPLATE_PARSER_H
#define LM_TEMPLATE_PARSER_H

#include "template_parts.h"

struct parser {
    struct template *t;
    const struct template_token *token; /* the next one */
    int depth, loops, spans;
    bool in_macro, failed;
};

/* Reports the first error.  Returns NULL. */
struct node *parser_refuse(struct parser *p, struct place at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct node *parser_unexpected(struct parser *p, const char *wanted);
struct node *parser_make(struct parser *p, enum node_kind kind, struct place at);
/* Reports if there are too many levels. */
bool parser_is_deep(struct parser *p);

struct string token_string(const struct template_token *k);
/* What a message calls a token. */
const char *token_shown(const struct template_token *k, char dst[64]);
/* Whether the next token is a mark or a word; and takes it, if so. */
bool parser_at(const struct parser *p, const char *mark);
bool parser_at_word(const struct parser *p, const char *word);
bool parser_skip(struct parser *p, enum token_type type, const char *text);
bool parser_skip_mark(struct parser *p, const char *mark);
/* Take it, or report that it is missing. */
bool parser_want(struct parser *p, const char *mark);
bool parser_name(struct parser *p, struct string *name);

/* An expression; the second one without "if". */
struct node *parser_expression(struct parser *p);
struct node *parser_plain(struct parser *p);

#endif
