/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations in files: several forms of JSON become one array of messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "../tokenizer/parts.h"
#include "chat.h"

enum { WHERE = 4352 };

/* ---- files ----------------------------------------------------------------------------------- */

struct reading {
    const char *path, *text, *at, *end;
    const char *counted;
    int64_t line;
};

static const char *where(struct reading *r, const char *at, char dst[WHERE])
{
    for (; r->counted < at; r->counted++)
        r->line += *r->counted == '\n';
    snprintf(dst, WHERE, "%.4096s:%lld", r->path, (long long)r->line);
    return dst;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct reading *r)
{
    while (r->at < r->end && is_blank(*r->at))
        r->at++;
}

static int check_text(struct reading *r)
{
    char place[WHERE];

    for (const char *at = r->text; at < r->end;) {
        int n = utf8_length(at, r->end - at);
        if (!n)
            return say_fail("%s: not UTF-8", where(r, at, place));
        at += n;
    }
    return 0;
}

/* One value; blanks and ends of lines may be behind it. */
static int read_value(struct reading *r, conversation_taker take, void *user)
{
    char place[WHERE];
    json_error_t e;
    json_t *value =
        json_loadb(r->at, (size_t)(r->end - r->at),
                   JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &e);

    where(r, r->at, place);
    if (!value)
        return say_fail("%s: %s", place, e.text);
    r->at += e.position;
    int rc = json_is_object(value) ? take(user, place, value)
                                   : say_fail("%s: this is not an object with messages", place);
    json_decref(value);
    return rc;
}

/* Between two values of an array is a comma, between two of JSON Lines the end of a line. */
static int read_between(struct reading *r, bool array)
{
    const char *from = r->at;
    char place[WHERE];

    skip_blanks(r);
    if (!array && r->at < r->end && !memchr(from, '\n', (size_t)(r->at - from)))
        return say_fail("%s: two values in one line", where(r, from, place));
    if (!array)
        return 0;
    if (r->at < r->end && *r->at == ',') {
        r->at++;
        skip_blanks(r);
        if (r->at == r->end || *r->at == ']')
            return say_fail("%s: a comma without a value behind it", where(r, from, place));
    } else if (r->at == r->end || *r->at != ']') {
        return say_fail("%s: the array goes on without a comma, or has no end",
                        where(r, r->at, place));
    }
    return 0;
}

int conversations_each(const char *path, const char *text, int64_t bytes, conversation_taker take,
                       void *user)
{
    struct reading r = {path, text, text, text + bytes, text, 1};
    char place[WHERE];
    int rc = check_text(&r);

    r.counted = text;
    r.line = 1;
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        r.at += 3;
    skip_blanks(&r);
    const bool array = r.at < r.end && *r.at == '[';
    r.at += array;
    skip_blanks(&r);
    while (!rc && r.at < r.end && !(array && *r.at == ']')) {
        rc = read_value(&r, take, user);
        rc = rc ? rc : read_between(&r, array);
    }
    if (rc || !array)
        return rc;
    if (r.at == r.end)
        return say_fail("%s: the array has no end", where(&r, r.at, place));
    r.at++;
    skip_blanks(&r);
    return r.at < r.end ? say_fail("%s: there is more behind the array", where(&r, r.at, place))
                        : 0;
}

/* ---- roles ----------------------------------------------------------------------------------- */

enum role { NO_ROLE, SYSTEM, USER, ASSISTANT, TOOL, ROLES };
static const char *const roles[ROLES] = {"nothing", "system", "user", "assistant", "tool"};

/* Names that ShareGPT and others use. */
static const struct {
    const char *name;
    enum role role;
} names[] = {{"system", SYSTEM},    {"user", USER},      {"assistant", ASSISTANT},
             {"tool", TOOL},        {"human", USER},     {"gpt", ASSISTANT},
             {"observation", TOOL}, {"model", ASSISTANT}};

static enum role find_role(const char *name)
{
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i].name))
            return names[i].role;
    return NO_ROLE;
}

/* [before][now] */
static const bool follows[ROLES][ROLES] = {[NO_ROLE] = {[SYSTEM] = true, [USER] = true},
                                           [SYSTEM] = {[USER] = true},
                                           [USER] = {[ASSISTANT] = true},
                                           [ASSISTANT] = {[USER] = true, [TOOL] = true},
                                           [TOOL] = {[TOOL] = true, [ASSISTANT] = true}};

/* ---- messages -------------------------------------------------------------------------------- */

static const struct json_keys message_keys[] = {
    JSON_READ("role from content value tool_calls tool_call_id name reasoning_content thinking"),
    JSON_END};

static bool is_empty(const json_t *content)
{
    const char *text = json_string_value(content);

    if (json_is_array(content))
        return !json_array_size(content);
    return !text || !*text;
}

static int check_content(const char *at, const json_t *content)
{
    const json_t *part;
    size_t i;

    if (!content || json_is_null(content) || json_is_string(content))
        return 0;
    if (!json_is_array(content))
        return say_fail("%s: its content is neither text nor a list of parts", at);
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") || !json_is_string(json_object_get(part, "text")))
            return say_fail("%s: part %zu of its content is of type %s; only text is supported", at,
                            i + 1, type ? type : "that is missing");
    }
    return 0;
}

/* A copy of a message with "role" and "content"; its other keys stay. */
static json_t *copy_message(const json_t *message, enum role role)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)message), *value;

    if (!copy)
        return NULL;
    value = json_object_get(copy, "value");
    if (value && json_object_set(copy, "content", value))
        return json_decref(copy), NULL;
    json_object_del(copy, "value");
    json_object_del(copy, "from");
    if (json_object_set_new(copy, "role", json_string(roles[role])))
        return json_decref(copy), NULL;
    return copy;
}

struct messages {
    const char *where;
    json_t *all;
    enum role last;
};

static int add_message(struct messages *m, const json_t *message)
{
    const size_t number = json_array_size(m->all) + 1;
    const json_t *role = json_object_get(message, "role");
    char at[WHERE + 64];

    snprintf(at, sizeof at, "%s: message %zu", m->where, number);
    if (json_keys_check(at, "", message, message_keys))
        return -1;
    role = role ? role : json_object_get(message, "from");
    const enum role now = find_role(json_string_value(role));
    if (!now)
        return say_fail("%s: its role is %s; system, user, assistant and tool are supported", at,
                        json_is_string(role) ? json_string_value(role) : "missing");
    if (!follows[m->last][now])
        return say_fail("%s: a turn of %s follows %s%s", at, roles[now], m->last ? "one of " : "",
                        roles[m->last]);
    const json_t *content = json_object_get(message, "content");
    content = content ? content : json_object_get(message, "value");
    if (check_content(at, content))
        return -1;
    if (is_empty(content) && !json_array_size(json_object_get(message, "tool_calls")) &&
        now != SYSTEM && now != TOOL)
        return say_fail("%s: the turn of %s is empty", at, roles[now]);
    json_t *copy = copy_message(message, now);
    if (!copy || json_array_append_new(m->all, copy))
        return say_fail("%s: no memory", m->where);
    m->last = now;
    return 0;
}

static int add_messages(struct messages *m, const json_t *list)
{
    const json_t *message;
    size_t i;
    int rc = json_is_array(list) ? 0 : say_fail("%s: its messages are no array", m->where);

    json_array_foreach(list, i, message)
    {
        rc = rc ? rc : add_message(m, message);
    }
    return rc;
}

/* A turn of one text, or several messages. */
static int add_text(struct messages *m, const char *role, const json_t *text)
{
    if (json_is_array(text))
        return add_messages(m, text);
    json_t *message = json_pack("{ss,sO}", "role", role, "content", text);
    int rc = message ? add_message(m, message) : say_fail("%s: no memory", m->where);
    json_decref(message);
    return rc;
}

/* ---- forms of conversations ------------------------------------------------------------------ */

static bool has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return value && !json_is_null(value);
}

static int add_system(struct messages *m, const json_t *object)
{
    const json_t *text = json_object_get(object, "system");

    return has(object, "system") && !is_empty(text) ? add_text(m, "system", text) : 0;
}

/* "instruction", an empty line and "input"; then "output". */
static int read_instruction(struct messages *m, const json_t *object)
{
    const char *task = json_string_value(json_object_get(object, "instruction")),
               *input = json_string_value(json_object_get(object, "input"));
    const json_t *output = json_object_get(object, "output");
    size_t n = (task ? strlen(task) : 0) + (input ? strlen(input) : 0) + 3;
    char *text = malloc(n);

    if (!text || !task || !json_is_string(output) || (has(object, "input") && !input)) {
        free(text);
        return say_fail("%s: \"instruction\", \"input\" and \"output\" are not all text", m->where);
    }
    snprintf(text, n, "%s%s%s", task, input && *input ? "\n\n" : "", input ? input : "");
    json_t *asked = json_string(text);
    int rc = asked ? 0 : say_fail("%s: no memory", m->where);
    rc = rc || add_system(m, object) || add_text(m, "user", asked) ||
                 add_text(m, "assistant", output)
             ? -1
             : 0;
    json_decref(asked);
    free(text);
    return rc;
}

static int read_pair(struct messages *m, const json_t *object)
{
    const json_t *answer =
        json_object_get(object, has(object, "completion") ? "completion" : "response");
    const json_t *prompt = json_object_get(object, "prompt");

    if (!answer || (!json_is_string(prompt) && !json_is_array(prompt)))
        return say_fail("%s: beside \"prompt\" a \"completion\" or \"response\" is missing",
                        m->where);
    return add_system(m, object) || add_text(m, "user", prompt) || add_text(m, "assistant", answer)
               ? -1
               : 0;
}

static int read_messages(struct messages *m, const json_t *object)
{
    const json_t *list = json_object_get(object, "messages");

    return add_system(m, object) ||
                   add_messages(m, list ? list : json_object_get(object, "conversations"))
               ? -1
               : 0;
}

static const struct json_keys list_keys[] = {JSON_READ("messages conversations tools system"),
                                             JSON_UNUSED("id source dataset category prompt_id"),
                                             JSON_END};
static const struct json_keys instruction_keys[] = {
    JSON_READ("instruction input output system tools"),
    JSON_UNUSED("id source dataset category text"), JSON_END};
static const struct json_keys pair_keys[] = {JSON_READ("prompt completion response system tools"),
                                             JSON_UNUSED("id source dataset category"), JSON_END};

static const struct form {
    const char *key;
    int (*read)(struct messages *m, const json_t *object);
    const struct json_keys *keys;
} forms[] = {{"messages", read_messages, list_keys},
             {"conversations", read_messages, list_keys},
             {"instruction", read_instruction, instruction_keys},
             {"prompt", read_pair, pair_keys}};

static int read_form(struct messages *m, const json_t *object)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (has(object, forms[i].key))
            return json_keys_check(m->where, "", object, forms[i].keys) ? -1
                                                                        : forms[i].read(m, object);
    return say_fail("%s: there are no \"messages\", \"conversations\", \"instruction\" or "
                    "\"prompt\" in it",
                    m->where);
}

static json_t *finish(struct messages *m, int rc)
{
    if (!rc && !json_array_size(m->all))
        rc = say_fail("%s: there is no message in it", m->where);
    if (!rc)
        return m->all;
    json_decref(m->all);
    return NULL;
}

json_t *conversation_prompt(const char *where, const json_t *messages)
{
    struct messages m = {where, json_array(), NO_ROLE};

    return finish(&m, m.all ? add_messages(&m, messages) : say_fail("%s: no memory", where));
}

json_t *conversation_messages(const char *where, const json_t *object, const json_t **tools)
{
    struct messages m = {where, json_array(), NO_ROLE};
    int rc = !m.all                  ? say_fail("%s: no memory", where)
             : json_is_array(object) ? add_messages(&m, object)
                                     : read_form(&m, object);

    if (tools)
        *tools = has(object, "tools") ? json_object_get(object, "tools") : NULL;
    if (!rc && has(object, "tools") && !json_is_array(json_object_get(object, "tools")))
        rc = say_fail("%s: its tools are no array", where);
    if (!rc && json_array_size(m.all) && m.last != ASSISTANT)
        rc = say_fail("%s: the last turn is of %s, and nothing follows that could be learned",
                      where, roles[m.last]);
    return finish(&m, rc);
}
