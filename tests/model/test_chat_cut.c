/* SPDX-License-Identifier: Apache-2.0 */
/* A thousand and more wrong conversations and templates: the committed ones, ended early or with a
 * part of them changed.  Each is accepted, or refused with one sentence that has its place. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "examples/common/say.h"
#include "examples/lm/chat.h"

const char say_program[] = "test_chat_cut";

enum { ENDS = 12, TEMPLATE_ENDS = 60, MOST = 1 << 20 };

static char said[4096];

/* The file of tests/model/chat, in memory of the caller. */
static char *read_chat(const char *name)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];

    snprintf(path, sizeof path, "%s/tests/model/chat/%s", srcdir ? srcdir : ".", name);
    FILE *f = fopen(path, "r");
    char *text = calloc(1, MOST);
    assert_true(f && text && fread(text, 1, MOST - 1, f) > 0);
    fclose(f);
    return text;
}

/* Whether something was refused: with one sentence, which begins with its place. */
static int refused(int rc, const char *place, const char *what)
{
    const size_t n = strlen(said);

    if (!rc)
        return 0;
    if (rc == -1 && !strncmp(said, place, strlen(place)) && n > strlen(place) + 8 &&
        strchr(said, '\n') == said + n - 1)
        return 1;
    fail_msg("%d, \"%s\": %s", rc, said, what);
    return 0;
}

/* ---- conversations --------------------------------------------------------------------------- */

static int take(void *user, const char *where, const json_t *object)
{
    json_t *messages = conversation_messages(where, object, NULL);

    (void)user;
    json_decref(messages);
    return messages ? 0 : -1;
}

static int converse(const char *line)
{
    *said = 0;
    return refused(conversations_each("f", line, (int64_t)strlen(line), take, NULL), "f:1:", line);
}

/* The line with the n-th `from` replaced; false: there are not so many. */
static bool replace(char *to, const char *line, const char *from, const char *by, int n)
{
    const char *at = line;

    for (at = strstr(at, from); at && n > 0; n--)
        at = strstr(at + 1, from);
    if (at)
        snprintf(to, MOST, "%.*s%s%s", (int)(at - line), line, by, at + strlen(from));
    return at;
}

static int wrong_conversation(const char *line, char *scratch)
{
    static const char *const changes[][2] = {
        {"\"role\"", "\"rule\""},      {"\"user\"", "\"assistant\""},
        {"\"assistant\"", "\"user\""}, {"\"content\": ", "\"x\": "},
        {"\"messages\"", "\"turns\""}, {"{\"role\"", "[\"role\""},
        {"\"user\"", "\"moderator\""}, {"\"content\": \"", "\"content\": 3, \"y\": \""}};
    int n = 0;

    for (int i = 1; i < ENDS; i++) {
        snprintf(scratch, MOST, "%.*s", (int)(strlen(line) * (size_t)i / ENDS), line);
        n += converse(scratch);
    }
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        for (int at = 0; at < 2 && replace(scratch, line, changes[i][0], changes[i][1], at); at++)
            n += converse(scratch);
    return n;
}

static void test_conversations(void **state)
{
    char *all = read_chat("conversations.jsonl"), *scratch = malloc(MOST), *next = NULL;
    int n = 0;

    (void)state;
    assert_non_null(scratch);
    for (char *line = strtok_r(all, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        assert_int_equal(converse(line), 0);
        n += wrong_conversation(line, scratch);
    }
    print_message("%d wrong conversations\n", n);
    assert_true(n >= 900);
    free(scratch);
    free(all);
}

/* ---- templates ------------------------------------------------------------------------------- */

static int render(const char *text)
{
    struct rendered to;

    *said = 0;
    struct template *t = template_open("t", text, (int64_t)strlen(text));
    json_t *given = json_loads("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                               "{\"role\":\"assistant\",\"content\":\"b\"}]}",
                               0, NULL);
    int rc = t ? template_render(t, "it", NULL, given, &to) : -1;

    if (!rc)
        rendered_close(&to);
    template_close(t);
    json_decref(given);
    return refused(rc, rc && !t ? "t:" : "it: ", text);
}

static int wrong_template(const char *text, char *scratch)
{
    static const char *const changes[][2] = {{"{%- if", "{%- uf"},   {"endif", "endfor"},
                                             {"endfor", "endif"},    {"==", "="},
                                             {"['", "[["},           {" in ", " im "},
                                             {"-%}", "-}}"},         {"messages", "messages.x.y"},
                                             {"%}", "%} {% else %}"}};
    int n = 0;

    for (int i = 1; i < TEMPLATE_ENDS; i++) {
        snprintf(scratch, MOST, "%.*s", (int)(strlen(text) * (size_t)i / TEMPLATE_ENDS), text);
        n += render(scratch);
    }
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        for (int at = 0; at < 3 && replace(scratch, text, changes[i][0], changes[i][1], at); at++)
            n += render(scratch);
    return n;
}

static void test_templates(void **state)
{
    static const char *const names[] = {
        "blanks.jinja", "channels.jinja", "chatml.jinja", "ends.jinja",     "headers.jinja",
        "inst.jinja",   "marked.jinja",   "plain.jinja",  "thinking.jinja", "turns.jinja"};
    char *scratch = malloc(MOST);
    int n = 0;

    (void)state;
    assert_non_null(scratch);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text = read_chat(names[i]);
        n += wrong_template(text, scratch);
        free(text);
    }
    print_message("%d wrong templates\n", n);
    assert_true(n >= 500);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_templates),
    };

    say_keep(said, sizeof said);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
