/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations as tokens.  Ten templates with the constructs of published ones give the text
 * that Jinja gives, for 50 conversations (make_chat_reference.py); what is trained on; special
 * tokens in messages; and what is refused.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/common/say.h"
#include "examples/lm/chat.h"

const char say_program[] = "test_chat";

enum { CONVERSATIONS = 50 };

static char said[4096];

static char *read_source(const char *folder, const char *name)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];

    snprintf(path, sizeof path, "%s/tests/%s/%s", srcdir ? srcdir : ".", folder, name);
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    assert_true(f && text && fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* ---- text ------------------------------------------------------------------------------------ */

static uint64_t fnv(uint64_t h, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3;
    return h;
}

static uint64_t hash(const struct rendered *r)
{
    uint64_t h = fnv(0xcbf29ce484222325, r->text, (size_t)r->n + 1);
    char places[64];

    for (int64_t i = 0; i < r->spans; i++) {
        int n = snprintf(places, sizeof places, "%lld-%lld,", (long long)r->span[i].begin,
                         (long long)r->span[i].end);
        h = fnv(h, places, (size_t)n);
    }
    return h;
}

struct reference {
    json_t *conversation[CONVERSATIONS];
    int n;
};

static int keep(void *user, const char *where, const json_t *object)
{
    struct reference *r = user;
    char want[64];

    snprintf(want, sizeof want, "conversations.jsonl:%d", r->n + 1);
    assert_string_equal(where, want);
    assert_in_range(r->n, 0, CONVERSATIONS - 1);
    r->conversation[r->n++] = json_incref((json_t *)(uintptr_t)object);
    return 0;
}

static void open_reference(struct reference *r)
{
    char *text = read_source("model/chat", "conversations.jsonl");

    r->n = 0;
    assert_int_equal(
        conversations_each("conversations.jsonl", text, (int64_t)strlen(text), keep, r), 0);
    assert_int_equal(r->n, CONVERSATIONS);
    free(text);
}

static void close_reference(struct reference *r)
{
    for (int i = 0; i < r->n; i++)
        json_decref(r->conversation[i]);
}

static struct template *open_template(const char *name)
{
    char file[64];

    snprintf(file, sizeof file, "%s.jinja", name);
    char *text = read_source("model/chat", file);
    struct template *t = template_open(file, text, (int64_t)strlen(text));
    if (!t)
        fail_msg("%s", said);
    free(text);
    return t;
}

static void check_text(struct template *t, const char *name, const json_t *conversation, int i,
                       const char *want)
{
    const json_t *tools = json_object_get(conversation, "tools");
    json_t *own = json_pack("{ss,ss,sb}", "bos_token", "<s>", "eos_token", "</s>",
                            "add_generation_prompt", i % 2 == 0);
    json_t *given = json_pack("{sO,sO?,sn}", "messages", json_object_get(conversation, "messages"),
                              "tools", tools, "documents");
    struct rendered text;
    char got[32] = "refused";

    if (!tools)
        json_object_set_new(given, "tools", json_null());
    *said = 0;
    if (!template_render(t, "it", own, given, &text)) {
        snprintf(got, sizeof got, "%016" PRIx64, hash(&text));
        if (getenv("CHAT_SHOW"))
            fputs(text.text, stderr);
        rendered_close(&text);
    }
    if (strcmp(got, want))
        fail_msg("%s %d: %s, not %s %s", name, i, got, want, said);
    json_decref(own);
    json_decref(given);
}

static void test_text(void **state)
{
    char *expected = read_source("model/chat", "expected.txt"), name[32], open[32] = "", want[32];
    struct template *t = NULL;
    struct reference r;
    int i, n, templates = 0;

    (void)state;
    setenv("SOURCE_DATE_EPOCH", "1735689600", 1);
    open_reference(&r);
    for (const char *at = expected; sscanf(at, "%31s %d %31s\n%n", name, &i, want, &n) == 3;
         at += n) {
        if (strcmp(name, open)) {
            template_close(t);
            t = open_template(name);
            strcpy(open, name);
            templates++;
        }
        check_text(t, name, r.conversation[i], i, want);
    }
    template_close(t);
    assert_int_equal(templates, 10);
    close_reference(&r);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
    };

    say_keep(said, sizeof said);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
