/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chat templates: the part of Jinja that chat_template.jinja and tokenizer_config.json of published
 * models use, with the settings of transformers (trim_blocks, lstrip_blocks, break and continue,
 * {% generation %}).  What is outside of it is refused by name, with its line and column.  Steps,
 * depth and memory of a rendering are bounded.
 */
#ifndef LM_TEMPLATE_H
#define LM_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct template;

/* Reads a template; name: for messages.  NULL after an error message. */
struct template *template_open(const char *name, const char *text, int64_t bytes);
void template_close(struct template *t);
/* Whether it has {% generation %}. */
bool template_has_spans(const struct template *t);

struct rendered_span {
    int64_t begin, end; /* bytes of the text */
};

struct rendered {
    char *text;  /* malloc'ed */
    bool *given; /* of each byte: from the conversation, not from the template */
    int64_t n;
    struct rendered_span *span; /* what was between generation and endgeneration */
    int64_t spans;
};

/*
 * Renders with two objects of variables: `own` are the program's, as bos_token, and their text
 * counts as the template's; `given` are a conversation's.  where: of the conversation, for
 * messages. Returns 0, or -1 after an error message; close `to` after 0.
 */
int template_render(const struct template *t, const char *where, const json_t *own,
                    const json_t *given, struct rendered *to);
void rendered_close(struct rendered *r);

#endif
