/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong conversations and wrong templates: each is refused with a sentence that names it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/common/say.h"
#include "examples/lm/chat.h"

const char say_program[] = "test_chat_refused";

static char said[4096];

struct wrong {
    const char *text, *says;
};

#define U      "{\"role\":\"user\",\"content\":\"a\"}"
#define A      "{\"role\":\"assistant\",\"content\":\"b\"}"
#define M(...) "{\"messages\":[" __VA_ARGS__ "]}"

static const struct wrong conversations[] = {
    {"x", "f:1:"},
    {"{", "f:1:"},
    {"[", "no end"},
    {"[{}", "there are no \"messages\""},
    {"[" M(U "," A), "no end"},
    {"[" M(U "," A) ",]", "comma"},
    {"[" M(U "," A) "] 3", "more behind the array"},
    {"[" M(U "," A) " " M(U "," A) "]", "without a comma"},
    {M(U "," A) M(U "," A), "two values in one line"},
    {M(U "," A) "\n3", "f:2: this is not an object"},
    {"[1]", "not an object"},
    {"\"a\"", "not an object"},
    {"\xff", "not UTF-8"},
    {M(U "," A) "\n{\"messages\":[\xc3]}", "f:2: not UTF-8"},
    {"{\"messages\":[],\"messages\":[]}", "duplicate"},
    {"{\"a\":1}", "there are no \"messages\""},
    {"{}", "there are no \"messages\""},
    {"{\"messages\":null}", "there are no \"messages\""},
    {"{\"messages\":[]}", "there is no message"},
    {"{\"messages\":3}", "no array"},
    {"{\"messages\":{}}", "no array"},
    {M("3"), "message 1: it is not an object"},
    {M(U "," A ",[]"), "message 3: it is not an object"},
    {M("{\"content\":\"a\"}"), "its role is missing"},
    {M("{\"role\":3,\"content\":\"a\"}"), "its role is missing"},
    {M("{\"role\":\"bot\",\"content\":\"a\"}"), "its role is bot"},
    {M("{\"role\":\"developer\",\"content\":\"a\"}"), "its role is developer"},
    {M("{\"role\":\"function_call\",\"content\":\"a\"}"), "its role is function_call"},
    {M("{\"role\":\"user\",\"content\":\"\"}," A), "the turn of user is empty"},
    {M("{\"role\":\"user\"}," A), "the turn of user is empty"},
    {M(U ",{\"role\":\"assistant\",\"content\":\"\"}"),
     "message 2: the turn of assistant is empty"},
    {M(U ",{\"role\":\"assistant\",\"content\":null}"), "the turn of assistant is empty"},
    {M(U ",{\"role\":\"assistant\",\"content\":[]}"), "the turn of assistant is empty"},
    {M(U ",{\"role\":\"assistant\",\"tool_calls\":[]}"), "the turn of assistant is empty"},
    {M("{\"role\":\"user\",\"content\":3}"), "neither text nor a list"},
    {M("{\"role\":\"user\",\"content\":{}}"), "neither text nor a list"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}"), "of type image"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"), "of type text; only text"},
    {M("{\"role\":\"user\",\"content\":[3]}"), "that is missing"},
    {M("{\"role\":\"user\",\"content\":\"a\",\"weight\":0}"), "\"weight\""},
    {M("{\"role\":\"user\",\"content\":\"a\",\"images\":[1]}"), "\"images\""},
    {M(U), "the last turn is of user"},
    {M(U "," A "," U), "the last turn is of user"},
    {M(A), "message 1: a turn of assistant follows nothing"},
    {M(U "," U "," A), "message 2: a turn of user follows one of user"},
    {M(U "," A "," A), "message 3: a turn of assistant follows one of assistant"},
    {M(U ",{\"role\":\"system\",\"content\":\"s\"}," A), "a turn of system follows one of user"},
    {M("{\"role\":\"system\",\"content\":\"s\"}," A), "a turn of assistant follows one of system"},
    {M("{\"role\":\"system\",\"content\":\"s\"}"), "the last turn is of system"},
    {M("{\"role\":\"tool\",\"content\":\"s\"}"), "a turn of tool follows nothing"},
    {M(U ",{\"role\":\"tool\",\"content\":\"s\"}"), "a turn of tool follows one of user"},
    {M(U "," A ",{\"role\":\"tool\",\"content\":\"s\"}"), "the last turn is of tool"},
    {"{\"messages\":[" U "," A "],\"weight\":1}", "\"weight\""},
    {"{\"messages\":[" U "," A "],\"tools\":3}", "its tools are no array"},
    {"{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"}]}", "the last turn is of user"},
    {"{\"conversations\":[{\"from\":\"robot\",\"value\":\"a\"}]}", "its role is robot"},
    {"{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\"}]}", "follows nothing"},
    {"{\"conversations\":[{\"from\":\"human\",\"text\":\"a\"}]}", "\"text\""},
    {"{\"instruction\":\"a\"}", "not all text"},
    {"{\"instruction\":3,\"output\":\"b\"}", "not all text"},
    {"{\"instruction\":\"a\",\"input\":[],\"output\":\"b\"}", "not all text"},
    {"{\"instruction\":\"a\",\"output\":\"\"}", "the turn of assistant is empty"},
    {"{\"instruction\":\"\",\"output\":\"b\"}", "the turn of user is empty"},
    {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":[]}", "\"history\""},
    {"{\"prompt\":\"a\"}", "is missing"},
    {"{\"prompt\":3,\"completion\":\"b\"}", "is missing"},
    {"{\"prompt\":\"a\",\"completion\":\"\"}", "the turn of assistant is empty"},
    {"{\"prompt\":\"a\",\"completion\":3}", "neither text nor a list"},
    {"{\"prompt\":\"a\",\"completion\":\"b\",\"label\":true}", "\"label\""},
    {"{\"prompt\":[" U "],\"completion\":[" U "]}", "a turn of user follows one of user"},
};

/* Rendered with one user's and one assistant's message. */
static const struct wrong templates[] = {
    {"{{", "t:1:1: a tag has no end"},
    {"a\n {% if", "t:2:2: a tag has no end"},
    {"{# a", "a comment has no end"},
    {"{{ 'a }}", "a string has no end"},
    {"{{ a", "a tag has no end"},
    {"{{ }}", "not a value"},
    {"{{ a b }}", "\"b\" is here, and not }}"},
    {"{{ a. }}", "not a name"},
    {"{{ a[] }}", "an index is missing"},
    {"{{ a[1 }}", "t:1:9: a bracket ends"},
    {"{{ a) }}", "a bracket ends that was not begun"},
    {"{{ [1, }}", "a bracket ends"},
    {"{{ {1: 2} }}", "a key that is a number"},
    {"{{ {'a'} }}", "not \":\""},
    {"{{ 1 ** 2 }}", "the operator **"},
    {"{{ 'a' 1 }}", "not }}"},
    {"{{ a ? b }}", "this character is not part"},
    {"{{ 01 }}", "begins with 0"},
    {"{{ 1x }}", "a number in this form"},
    {"{{ 1e }}", "a number in this form"},
    {"{{ 99999999999999999999 }}", "a number is too long"},
    {"{{ '\\N{x}' }}", "this escape"},
    {"{{ '\\ud800' }}", "names no character"},
    {"{{ f(*a) }}", "arguments from a list"},
    {"{{ a|nothing }}", "the filter nothing is not supported"},
    {"{{ a|safe }}", "the filter safe is not supported"},
    {"{{ a|sort }}", "the filter sort is not supported"},
    {"{{ a is strange }}", "the test strange is not supported"},
    {"{{ a is callable }}", "the test callable is not supported"},
    {"{{ not }}", "not a value"},
    {"{% if %}", "not a value"},
    {"{% if a %}", "has no endif"},
    {"{% if a %}{% endfor %}", "not the endif of the block of line 1"},
    {"{% for %}", "not a name"},
    {"{% for a %}", "not \"in\""},
    {"{% for a in b recursive %}{% endfor %}", "a recursive loop"},
    {"{% for a in b %}", "has no endfor"},
    {"{% endif %}", "ends no block"},
    {"{% else %}", "ends no block"},
    {"{% set %}", "not a name"},
    {"{% set a, b = 1, 2 %}", "this form of set"},
    {"{% set a = 1, 2 %}", "this form of set"},
    {"{% set a.b %}x{% endset %}", "not \"=\""},
    {"{% set a %}", "has no endset"},
    {"{% set a.b = 1 %}", "a is no namespace"},
    {"{% macro %}", "not a name"},
    {"{% macro a( %}", "a tag has no end"},
    {"{% macro a() %}{% macro b() %}{% endmacro %}{% endmacro %}", "a macro inside"},
    {"{% macro a() %}{% endmacro %}{{ a(1) }}", "no such parameters"},
    {"{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "levels deep"},
    {"{% include 'a' %}", "the tag \"include\" is not supported"},
    {"{% import 'a' as b %}", "the tag \"import\" is not supported"},
    {"{% extends 'a' %}", "the tag \"extends\" is not supported"},
    {"{% block a %}{% endblock %}", "the tag \"block\" is not supported"},
    {"{% raw %}{% endraw %}", "the tag \"raw\" is not supported"},
    {"{% with %}{% endwith %}", "the tag \"with\" is not supported"},
    {"{% filter trim %}{% endfilter %}", "the tag \"filter\" is not supported"},
    {"{% do a %}", "the tag \"do\" is not supported"},
    {"{% break %}", "in no loop"},
    {"{% continue %}", "in no loop"},
    {"{% generation %}", "has no endgeneration"},
    {"{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}",
     "generation inside of generation"},
    {"{% set a %}{% generation %}x{% endgeneration %}{% endset %}", "generation inside of set"},
    {"{{ messages }}", "a list is printed"},
    {"{{ messages[0] }}", "a mapping is printed"},
    {"{{ messages[0].role.x.y }}", "x is not defined, and y of it is asked for"},
    {"{{ nothing.a }}", "nothing is not defined"},
    {"{{ nothing[0] }}", "nothing is not defined"},
    {"{{ nothing() }}", "something undefined (nothing) is called"},
    {"{{ 'a' + 1 }}", "+ of a string and a number"},
    {"{{ 'a' + none }}", "+ of a string and none"},
    {"{{ 'a' + nothing }}", "+ of a string and something undefined"},
    {"{{ 1 / 0 }}", "a division by 0"},
    {"{{ 1 % 0 }}", "a division by 0"},
    {"{{ 999999999999999999 * 999999999999999999 }}", "too large"},
    {"{{ 'a' < 1 }}", "have no order"},
    {"{{ 1 in 2 }}", "in a number"},
    {"{{ -'a' }}", "- of a string"},
    {"{{ 1[0:1] }}", "a slice of a number"},
    {"{{ 'abc'[::0] }}", "this step of a slice"},
    {"{{ 'abc'['a':] }}", "as a bound of a slice"},
    {"{{ 1|length }}", "length of a number"},
    {"{{ 'a'|items }}", "items of a string"},
    {"{{ 'é'|upper }}", "beyond ASCII"},
    {"{{ 'x'|int }}", "no number"},
    {"{{ 'x'|replace('', 'a') }}", "replace needs two strings"},
    {"{{ 'x'|trim('a', 'b') }}", "trim has 2 arguments"},
    {"{{ 'x'|tojson(sort_keys=true) }}", "the argument sort_keys of tojson"},
    {"{{ 'x'|tojson(ensure_ascii=true) }}", "ensure_ascii"},
    {"{{ messages|map('nothing')|list|length }}", "map has neither"},
    {"{{ messages|selectattr('role', 'strange')|list|length }}", "is not supported"},
    {"{{ messages|selectattr('role', 'equalto')|list|length }}", "equalto has 0 arguments"},
    {"{{ 'a'.format(1) }}", "the method format of a string"},
    {"{{ 'a'.split('') }}", "an empty one"},
    {"{{ 'a'.strip }}", "the method strip is not called"},
    {"{{ messages[0].items }}", "the method items is not called"},
    {"{{ messages[0]['items'] }}", "the name of a method"},
    {"{{ messages[0].pop('role') }}", "the method pop of a mapping"},
    {"{{ messages.append(1) }}", "the method append of a list"},
    {"{{ none.x() }}", "the method x of none"},
    {"{{ range(0) }}", "a list is printed"},
    {"{{ range() }}", "these arguments"},
    {"{{ range(10000000)|length }}", "these arguments"},
    {"{{ namespace(1) }}", "an argument without a name"},
    {"{{ raise_exception('Not so.') }}", "the template refuses this: Not so."},
    {"{{ strftime_now('%q') }}", "a part of the format"},
    {"{{ strftime_now(3) }}", "no format"},
    {"{% for a, b in messages[:1] %}{{ a }}{{ b }}{% endfor %}{% for a, b in [[1]] %}{% endfor %}",
     "not as many"},
    {"{% for a in 3 %}{% endfor %}", "a number has no elements"},
    {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "too large"},
    {"{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}{% for a in range(99) %}{% set n.s = n.s + n.s "
     "%}{% endfor %}",
     "too large"},
    {"{{ "
     "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((("
     "((((((((((((((((((((((((((((((((((((((((1",
     "a tag has no end"},
    {"{% if not not not not not not not not not not not not not not not not not not not not not "
     "not "
     "not not not not not not not not not not not not not not not not not not not not not not not "
     "not not not not not not not not not not not not not not not not not not not not not not not "
     "not not not not not not not not not not not not not not not not not not not not not not not "
     "not not not not not not not not not not not not not not not not not not not a %}{% endif %}",
     "levels"},
    {"\xff", "not UTF-8"},
};

static int take(void *user, const char *where, const json_t *object)
{
    json_t *messages = conversation_messages(where, object, NULL);

    (void)user;
    json_decref(messages);
    return messages ? 0 : -1;
}

/* Whether it is refused as the table says. */
static int check(int rc, const struct wrong *w)
{
    if (rc == -1 && strstr(said, w->says))
        return 0;
    print_error("%s: %d, not \"%s\": %s", w->text, rc, w->says, said);
    return 1;
}

static void test_conversations(void **state)
{
    int failed = 0;

    (void)state;
    for (size_t i = 0; i < sizeof conversations / sizeof *conversations; i++) {
        const struct wrong *w = &conversations[i];
        *said = 0;
        failed += check(conversations_each("f", w->text, (int64_t)strlen(w->text), take, NULL), w);
    }
    assert_int_equal(failed, 0);
}

static int render(const char *text)
{
    struct template *t = template_open("t", text, (int64_t)strlen(text));
    json_t *given = json_loads(M(U "," A), 0, NULL);
    struct rendered to;
    int rc = t ? template_render(t, "it", NULL, given, &to) : -1;

    if (!rc)
        rendered_close(&to);
    template_close(t);
    json_decref(given);
    return rc;
}

static void test_templates(void **state)
{
    int failed = 0;

    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        *said = 0;
        failed += check(render(templates[i].text), &templates[i]);
    }
    assert_int_equal(failed, 0);
}

static void test_number(void **state)
{
    (void)state;
    assert_true((sizeof conversations + sizeof templates) / sizeof(struct wrong) >= 150);
    assert_int_equal(render("{{ messages[0].content ~ nothing }}"), 0);
}

/* A long sum in a long loop. */
static void test_steps(void **state)
{
    char text[1024] = "{% for a in range(90000) %}{{ 0";

    (void)state;
    for (int i = 0; i < 300; i++)
        strcat(text, "+0");
    strcat(text, " }}{% endfor %}");
    const struct wrong w = {text, "steps"};
    *said = 0;
    assert_int_equal(check(render(text), &w), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_number),
        cmocka_unit_test(test_steps),
    };

    say_keep(said, sizeof said);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
