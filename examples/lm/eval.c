/* SPDX-License-Identifier: Apache-2.0 */
/* Questions with exact answers: see eval.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "../common/text_file.h"
#include "eval.h"

enum { MOST_BYTES = 1 << 30 };

static const struct json_keys keys[] = {JSON_READ("prompt messages answer"),
                                        JSON_UNUSED("id source category"), JSON_END};

struct opening {
    struct eval *e;
    const struct eval_opening *how;
};

/* The tokens of a question. */
static int read_question(const struct opening *o, const char *where, const json_t *object,
                         struct eval_item *item)
{
    const json_t *prompt = json_object_get(object, "prompt"),
                 *given = json_object_get(object, "messages");
    const char *text = json_string_value(prompt);
    struct chat_ids ids = {.id = NULL};
    json_t *turns;

    if (!text == !(json_is_array(prompt) || json_is_array(given)))
        return say_fail("%s: \"prompt\" is neither text nor messages", where);
    if (!o->how->chat->template && !text)
        return say_fail("%s: messages need a chat template: give --chat-template FILE", where);
    if (!o->how->chat->template) {
        item->id = tokenizer_encode((void *)(uintptr_t)o->how->tokenizer, where, text,
                                    (int64_t)strlen(text), &item->n);
        return item->id ? 0 : -1;
    }
    turns = text ? json_pack("[{ss,ss}]", "role", "user", "content", text)
                 : json_incref((json_t *)(uintptr_t)(given ? given : prompt));
    json_t *messages = turns ? conversation_prompt(where, turns) : NULL;
    int rc = messages ? chat_prompt(o->how->chat, where, messages, &ids) : -1;
    free(ids.trained);
    item->id = ids.id;
    item->n = ids.n;
    json_decref(messages);
    json_decref(turns);
    return rc;
}

static int check_question(const struct opening *o, const char *where, const struct eval_item *item)
{
    if (!item->n)
        return say_fail("%s: the question is empty", where);
    if (item->n >= o->how->length)
        return say_fail("%s: the question has %lld tokens, and with an answer more than --length "
                        "%lld",
                        where, (long long)item->n, (long long)o->how->length);
    for (int64_t i = 0; i < item->n; i++)
        if (item->id[i] >= o->how->limit)
            return say_fail("%s: token %ld, and the model has %lld", where, (long)item->id[i],
                            (long long)o->how->limit);
    return 0;
}

static int take(void *user, const char *where, const json_t *object)
{
    const struct opening *o = user;
    struct eval *e = o->e;
    struct eval_item *grown;

    if (json_keys_check(where, "", object, keys))
        return -1;
    const char *answer = json_string_value(json_object_get(object, "answer"));
    if (!answer)
        return say_fail("%s: there is no \"answer\" that is text", where);
    grown = realloc(e->item, (size_t)(e->n + 1) * sizeof *grown);
    if (!grown)
        return say_fail("%s: no memory", where);
    e->item = grown;
    struct eval_item *item = &grown[e->n++];
    *item = (struct eval_item){.answer = strdup(answer)};
    if (!item->answer)
        return say_fail("%s: no memory", where);
    text_strip(item->answer);
    return read_question(o, where, object, item) ? -1 : check_question(o, where, item);
}

int eval_open(struct eval *e, const char *path, const struct eval_opening *how)
{
    struct opening o = {e, how};
    struct text_file f;
    char *text = text_file_open(&f, path) ? NULL : text_file_all(&f, MOST_BYTES);
    int rc = text ? conversations_each(path, text, (int64_t)strlen(text), take, &o) : -1;

    text_file_close(&f);
    free(text);
    if (!rc && !e->n)
        rc = say_fail("%s: there is no question in it", path);
    return rc;
}

void eval_close(struct eval *e)
{
    for (int64_t i = 0; i < e->n; i++) {
        free(e->item[i].id);
        free(e->item[i].answer);
    }
    free(e->item);
    *e = (struct eval){.n = 0};
}

bool eval_is_right(const struct eval_item *item, char *text)
{
    return !strcmp(text_strip(text), item->answer);
}
