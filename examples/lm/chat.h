/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations as tokens: messages go through the model's own chat template, and the tokens of the
 * assistant's parts are those to train on.
 *
 * Special tokens in the text of the template become their ids.  Those in the text of a message do
 * not: there they are plain text, so that no message can end a turn or begin another one.
 */
#ifndef LM_CHAT_H
#define LM_CHAT_H

#include <jansson.h>
#include "../tokenizer/tokenizer.h"
#include "template.h"

/* ---- conversations (conversation.c) ---------------------------------------------------------- */

/* An object of a file; where: "FILE:LINE".  Returns 0, or -1 after an error message. */
typedef int (*conversation_taker)(void *user, const char *where, const json_t *object);

/* Calls take for each object of a text: JSON Lines, or one array of objects.  Returns 0, the first
 * nonzero value of take, or -1 after an error message. */
int conversations_each(const char *path, const char *text, int64_t bytes, conversation_taker take,
                       void *user);

/*
 * The messages of an object in one form, a new array of {"role", "content", ...}: of "messages",
 * "conversations" (ShareGPT), "instruction" with "input" and "output", "prompt" with "completion"
 * or "response", or of an array of messages itself.  Roles and their order are checked.  tools
 * becomes its "tools", borrowed, or NULL.  NULL after an error message.
 */
json_t *conversation_messages(const char *where, const json_t *object, const json_t **tools);

/* As conversation_messages, of an array of messages that may end with any turn.  */
json_t *conversation_prompt(const char *where, const json_t *messages);

/* ---- tokens (chat.c) ------------------------------------------------------------------------- */

struct chat {
    const struct tokenizer *tokenizer; /* borrowed */
    struct template *template;
    json_t *own; /* bos_token and the other special tokens */
};

/* The tokens of a conversation, and which of them are trained on. */
struct chat_ids {
    int32_t *id;
    bool *trained;
    int64_t n;
    int64_t turns, untrained; /* turns of the assistant; those that could not be found exactly */
};

/* path: chat_template.jinja, or tokenizer_config.json with a "chat_template".  Returns 0, or -1
 * after an error message; close c in either case. */
int chat_open(struct chat *c, const struct tokenizer *t, const char *path);
void chat_close(struct chat *c);

/*
 * The tokens of messages from conversation_messages().  Turns of the assistant before message
 * number `from` are not trained on: 0: all are.  tools may be NULL.  Returns 0, or -1 after an
 * error message that begins with where; close `to` after 0.
 *
 * Trained is what {% generation %} encloses, if the template has it.  Otherwise it is what a turn
 * adds to the text of the messages before it with a generation prompt.  Where the text of a turn
 * changes once others follow, this turn is not trained on, and counted in untrained; if no turn is
 * left, that is an error.
 */
int chat_encode(const struct chat *c, const char *where, const json_t *messages,
                const json_t *tools, int64_t from, struct chat_ids *to);

/* The tokens of messages and the beginning of the assistant's turn; none is trained on. */
int chat_prompt(const struct chat *c, const char *where, const json_t *messages,
                struct chat_ids *to);
void chat_ids_close(struct chat_ids *ids);

/* The token that ends the assistant's turn; -1: there is none. */
int32_t chat_end(const struct chat *c);

#endif
