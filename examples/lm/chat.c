/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations as tokens: see chat.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/json_keys.h"
#include "../common/say.h"
#include "../common/text_file.h"
#include "chat.h"

enum { MOST_BYTES = 1 << 20 };

/* ---- the template ---------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && !strcmp(path + n - m, end);
}

/* "chat_template" is a text, or a list of {"name", "template"}: then the default one. */
static const char *template_of(const json_t *value)
{
    const json_t *one;
    size_t i;

    json_array_foreach(value, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default"))
            return json_string_value(json_object_get(one, "template"));
    }
    return json_string_value(value);
}

static int open_json(struct chat *c, const char *path)
{
    json_t *root = json_keys_read_wide(path);
    const char *text = template_of(json_object_get(root, "chat_template"));

    if (text)
        c->template = template_open(path, text, (int64_t)strlen(text));
    else if (root)
        say_fail("%s: has no \"chat_template\"", path);
    json_decref(root);
    return c->template ? 0 : -1;
}

static int open_text(struct chat *c, const char *path)
{
    struct text_file f;
    char *text = text_file_open(&f, path) ? NULL : text_file_all(&f, MOST_BYTES);

    text_file_close(&f);
    if (text)
        c->template = template_open(path, text, (int64_t)strlen(text));
    free(text);
    return c->template ? 0 : -1;
}

int chat_open(struct chat *c, const struct tokenizer *t, const char *path)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

    *c = (struct chat){.tokenizer = t, .own = json_object()};
    if (!c->own)
        return say_fail("no memory for a template");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = tokenizer_config_text(t, names[i]);
        if (text && json_object_set_new(c->own, names[i], json_string(text)))
            return say_fail("no memory for a template");
    }
    return ends_with(path, ".json") ? open_json(c, path) : open_text(c, path);
}

void chat_close(struct chat *c)
{
    template_close(c->template);
    json_decref(c->own);
    *c = (struct chat){.template = NULL};
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The first n messages as text. */
static int render(const struct chat *c, const char *where, const json_t *messages, size_t n,
                  const json_t *tools, bool prompts, struct rendered *to)
{
    json_t *some = json_array(), *given, *one;
    size_t i;
    int rc = json_object_set_new(c->own, "add_generation_prompt", json_boolean(prompts));

    json_array_foreach((json_t *)(uintptr_t)messages, i, one)
    {
        if (i < n && json_array_append(some, one))
            rc = -1;
    }
    given = json_pack("{sO,sO?,sn}", "messages", some, "tools", tools, "documents");
    if (given && !tools)
        rc |= json_object_set_new(given, "tools", json_null());
    if (rc || !given)
        rc = say_fail("%s: no memory for its messages", where);
    else
        rc = template_render(c->template, where, c->own, given, to);
    json_decref(given);
    json_decref(some);
    return rc;
}

static bool begins_with(const struct rendered *whole, const struct rendered *part)
{
    return part->n <= whole->n && !memcmp(whole->text, part->text, (size_t)part->n);
}

/* ---- spans of the assistant's text ----------------------------------------------------------- */

struct finding {
    const struct chat *c;
    const char *where;
    const json_t *messages, *tools;
    struct rendered whole;
    struct chat_ids *to;
    struct tokenizer_cut *cut; /* two for each span */
    int64_t cuts;
};

static int add_span(struct finding *f, int64_t begin, int64_t end)
{
    struct tokenizer_cut *grown = realloc(f->cut, (size_t)(f->cuts + 2) * sizeof *grown);

    if (!grown)
        return say_fail("%s: no memory for its turns", f->where);
    f->cut = grown;
    grown[f->cuts++] = (struct tokenizer_cut){begin, 0, 0};
    grown[f->cuts++] = (struct tokenizer_cut){end, 0, 0};
    return 0;
}

static bool is_assistant(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));

    return role && !strcmp(role, "assistant");
}

/* What message i adds to the text before it.  A span that the whole text does not have, or not
 * behind the others, is none. */
static int find_turn(struct finding *f, size_t i)
{
    const bool last = i + 1 == json_array_size(f->messages);
    struct rendered before = {.text = NULL}, with = {.text = NULL};
    int rc = render(f->c, f->where, f->messages, i, f->tools, true, &before);

    if (!rc && !last)
        rc = render(f->c, f->where, f->messages, i + 1, f->tools, false, &with);
    const struct rendered *end = last ? &f->whole : &with;
    const int64_t done = f->cuts ? f->cut[f->cuts - 1].at : 0;
    const bool found = !rc && begins_with(&f->whole, &before) && begins_with(&f->whole, end) &&
                       end->n > before.n && before.n >= done;
    if (found)
        rc = add_span(f, before.n, end->n);
    f->to->untrained += !rc && !found;
    rendered_close(&before);
    rendered_close(&with);
    return rc;
}

static int find_turns(struct finding *f, int64_t from)
{
    for (size_t i = (size_t)from; i < json_array_size(f->messages); i++)
        if (is_assistant(f->messages, i)) {
            f->to->turns++;
            if (find_turn(f, i))
                return -1;
        }
    if (f->cuts)
        return 0;
    return f->to->turns
               ? say_fail("%s: the template gives no turn of the assistant the same text with the "
                          "messages before it and in the whole; mark the turns in the template "
                          "with {%% generation %%}",
                          f->where)
               : say_fail("%s: there is no turn of the assistant to train on", f->where);
}

/* The marks of the template, from the first message that is trained on. */
static int take_marks(struct finding *f, int64_t from)
{
    struct rendered before = {.text = NULL};
    int rc = from ? render(f->c, f->where, f->messages, (size_t)from, f->tools, false, &before) : 0;

    for (int64_t i = before.spans; i < f->whole.spans && !rc; i++) {
        f->to->turns++;
        if (f->whole.span[i].end > f->whole.span[i].begin)
            rc = add_span(f, f->whole.span[i].begin, f->whole.span[i].end);
    }
    rendered_close(&before);
    if (!rc && !f->cuts)
        rc = say_fail("%s: the template marks no text of the assistant", f->where);
    return rc;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int encode(struct finding *f)
{
    struct chat_ids *to = f->to;

    to->id = tokenizer_encode_parts(f->c->tokenizer, f->where, f->whole.text, f->whole.n,
                                    f->whole.given, f->cut, f->cuts, &to->n);
    to->trained = to->id ? calloc((size_t)to->n + 1, sizeof *to->trained) : NULL;
    if (!to->trained)
        return to->id ? say_fail("%s: no memory for its tokens", f->where) : -1;
    for (int64_t i = 0; i < f->cuts; i += 2)
        for (int64_t k = f->cut[i].begin; k < f->cut[i + 1].end; k++)
            to->trained[k] = true;
    return 0;
}

static int finish(struct finding *f, int rc)
{
    rc = rc ? rc : encode(f);
    rendered_close(&f->whole);
    free(f->cut);
    if (rc)
        chat_ids_close(f->to);
    return rc;
}

int chat_encode(const struct chat *c, const char *where, const json_t *messages,
                const json_t *tools, int64_t from, struct chat_ids *to)
{
    struct finding f = {.c = c, .where = where, .messages = messages, .tools = tools, .to = to};

    *to = (struct chat_ids){.id = NULL};
    int rc = render(c, where, messages, json_array_size(messages), tools, false, &f.whole);
    if (!rc)
        rc = template_has_spans(c->template) ? take_marks(&f, from) : find_turns(&f, from);
    return finish(&f, rc);
}

int chat_prompt(const struct chat *c, const char *where, const json_t *messages,
                struct chat_ids *to)
{
    struct finding f = {.c = c, .where = where, .messages = messages, .to = to};

    *to = (struct chat_ids){.id = NULL};
    return finish(&f, render(c, where, messages, json_array_size(messages), NULL, true, &f.whole));
}

void chat_ids_close(struct chat_ids *ids)
{
    free(ids->id);
    free(ids->trained);
    *ids = (struct chat_ids){.id = NULL};
}

/* The last special token of what is trained on, or the one behind it. */
static int32_t end_of(const struct chat *c, const struct chat_ids *ids)
{
    int32_t end = -1;

    for (int64_t i = 0; i < ids->n; i++) {
        const bool special = tokenizer_is_special(c->tokenizer, ids->id[i]);
        if (special && (ids->trained[i] || (end < 0 && i && ids->trained[i - 1])))
            end = ids->id[i];
    }
    return end;
}

int32_t chat_end(const struct chat *c)
{
    json_t *messages = json_pack("[{ssss}{ssss}]", "role", "user", "content", "a", "role",
                                 "assistant", "content", "b");
    struct chat_ids ids = {.id = NULL};
    char said[4096];

    say_keep(said, sizeof said); /* a template that refuses this says nothing about ends */
    int rc = messages ? chat_encode(c, "a turn", messages, NULL, 0, &ids) : -1;
    say_keep(NULL, 0);
    const int32_t end = rc ? -1 : end_of(c, &ids);
    chat_ids_close(&ids);
    json_decref(messages);
    return end;
}
