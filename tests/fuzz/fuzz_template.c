/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of chat templates and of files of conversations. */
#include <stdlib.h>
#include <string.h>
#include "../examples/lm/chat.h"
#include "fuzz/fuzz_readers.h"

/* The file, or NULL. */
static char *read_all(const char *path, int64_t *bytes)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "rb");
    char *text = malloc(MOST);

    if (!f || !text)
        abort();
    *bytes = (int64_t)fread(text, 1, MOST, f);
    fclose(f);
    return text;
}

/* A rendering must be UTF-8 text with spans inside of it. */
static void check(const struct rendered *r)
{
    int64_t done = 0;

    for (int64_t i = 0; i < r->spans; i++) {
        if (r->span[i].begin < done || r->span[i].end < r->span[i].begin || r->span[i].end > r->n)
            abort();
        done = r->span[i].end;
    }
    json_t *text = json_stringn(r->text, (size_t)r->n);
    if (!text)
        abort();
    json_decref(text);
}

static int render(const struct template *t)
{
    json_t *own = json_pack("{ss,ss,sb}", "bos_token", "<s>", "eos_token", "</s>",
                            "add_generation_prompt", 1);
    json_t *given =
        json_pack("{s[{ssss}{sss[{s{sss{sisf}}}]}{ssss}],sn}", "messages", "role", "user",
                  "content", " é\n", "role", "assistant", "tool_calls", "function", "name", "f",
                  "arguments", "a", 1, "b", 0.5, "role", "tool", "content", "x", "tools");
    struct rendered text;

    if (!own || !given)
        abort();
    int rc = template_render(t, "it", own, given, &text);
    if (!rc) {
        check(&text);
        rendered_close(&text);
    }
    json_decref(own);
    json_decref(given);
    return rc;
}

static int read_template(const char *path, const char *directory)
{
    int64_t bytes;
    char *text = read_all(path, &bytes);
    struct template *t = template_open("t", text, bytes);
    int rc = t ? render(t) : -1;

    (void)directory;
    template_close(t);
    free(text);
    return rc;
}

static int take(void *user, const char *where, const json_t *object)
{
    const struct chat *c = user;
    const json_t *tools;
    json_t *messages = conversation_messages(where, object, &tools);
    struct chat_ids ids;
    int rc = messages ? chat_encode(c, where, messages, tools, 0, &ids) : -1;

    if (!rc)
        chat_ids_close(&ids);
    json_decref(messages);
    return rc;
}

static int read_conversations(const char *path, const char *directory)
{
    char template[4096];
    struct tokenizer t;
    struct chat c;
    int64_t bytes;

    (void)directory;
    if (tokenizer_open(&t, NULL) ||
        chat_open(&c, &t, fuzz_source(template, "tests/model/chat/chatml.jinja")))
        abort();
    char *text = read_all(path, &bytes);
    int rc = conversations_each(path, text, bytes, take, &c);
    free(text);
    chat_close(&c);
    tokenizer_close(&t);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_reader readers[] = {
        {"template", "chat_template.jinja", read_template},
        {"conversations", "data.jsonl", read_conversations}};

    fuzz_readers_run(readers, sizeof readers / sizeof *readers, data, size);
    return 0;
}
