/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the keys that JSON files may have: what they allow, and the message of a refusal. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/common/json_keys.h"
#include "examples/common/say.h"

const char say_program[] = "test";

static const struct json_keys part[] = {JSON_READ("factor"),
                                        JSON_ONLY("type kind", "default|llama3"), JSON_END};
static const struct json_keys more[] = {JSON_UNUSED("notes"), JSON_END};
static const struct json_keys table[] = {JSON_MORE(more),
                                         JSON_READ("width layers"),
                                         JSON_READ_INSIDE("scaling parts", part),
                                         JSON_ONLY("act", "silu|swish"),
                                         JSON_ONLY("bias window", "false"),
                                         JSON_ONLY("dropout", "0|-1"),
                                         JSON_ONLY("shift", ""),
                                         JSON_END};

/* The message without the name of the program; "": allowed. */
static const char *check(const char *text)
{
    static char message[512];
    json_t *root = json_loads(text, 0, NULL);

    assert_non_null(root);
    *message = 0;
    say_keep(message, sizeof message);
    int rc = json_keys_check("F", "", root, table);
    say_keep(NULL, 0);
    json_decref(root);
    assert_int_equal(rc, *message ? -1 : 0);
    return message;
}

static void test_allowed(void **state)
{
    static const char *const good[] = {
        "{}",
        "{\"width\": 3, \"layers\": [1], \"notes\": {\"any\": 1}}",
        "{\"_name_or_path\": \"x\"}",
        "{\"unknown\": null, \"act\": null, \"shift\": null}",
        "{\"act\": \"swish\", \"bias\": false}",
        "{\"act\": [\"silu\", \"swish\"], \"shift\": {}, \"window\": []}",
        "{\"dropout\": 0.0}",
        "{\"dropout\": -0.0}",
        "{\"dropout\": -1}",
        "{\"scaling\": {\"type\": \"llama3\", \"factor\": 2}}",
        "{\"parts\": [{\"factor\": 1}, {\"kind\": \"default\"}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_string_equal(check(good[i]), "");
}

static void test_refused(void **state)
{
    static const char *const bad[][2] = {
        {"{\"widths\": 3}", "\"widths\" is 3: this setting is not known"},
        {"{\"widt\": 3}", "\"widt\" is 3: this setting is not known"},
        {"{\"width layers\": 3}", "is not known"},
        {"{\"\": 3}", "is not known"},
        {"{\"act\": \"gelu\"}",
         "\"act\" is \"gelu\", which is not supported; supported: silu|swish"},
        {"{\"act\": \"silu|swish\"}", "not supported"},
        {"{\"act\": [\"silu\", \"gelu\"]}", "\"act\" is [\"silu\",\"gelu\"], which"},
        {"{\"bias\": true}", "\"bias\" is true, which"},
        {"{\"dropout\": 0.1}", "\"dropout\" is 0.1"},
        {"{\"dropout\": \"none\"}", "\"dropout\" is \"none\""},
        {"{\"dropout\": false}", "\"dropout\" is false"},
        {"{\"dropout\": 1e300}", "\"dropout\" is "},
        {"{\"shift\": 1}", "\"shift\" is 1, which is not supported; only null is"},
        {"{\"shift\": {\"a\": 1}}", "only null is"},
        {"{\"scaling\": {\"type\": \"yarn\"}}", "F: \"scaling.type\" is \"yarn\""},
        {"{\"scaling\": {\"beta\": 1}}", "\"scaling.beta\" is 1: this setting"},
        {"{\"scaling\": 3}", "\"scaling\" is not an object"},
        {"{\"parts\": [{\"factor\": 1}, {\"fact\": 2}]}", "\"parts[1].fact\" is 2"},
        {"{\"notes\": 1, \"a\": 2}", "\"a\" is 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *message = check(bad[i][0]);
        if (!strstr(message, bad[i][1]))
            fail_msg("%s: '%s' is not in '%s'", bad[i][0], bad[i][1], message);
    }
}

static void test_file(void **state)
{
    char path[] = "/tmp/test_json_keys_XXXXXX", message[512] = "";
    static const char twice[] = "{\"a\": 1,\n \"a\": 2}";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && write(fd, twice, strlen(twice)) == (ssize_t)strlen(twice));
    close(fd);
    say_keep(message, sizeof message);
    assert_null(json_keys_read(path));
    assert_non_null(strstr(message, "line 2: duplicate"));
    unlink(path);
    *message = 0;
    assert_null(json_keys_read(path));
    assert_non_null(strstr(message, path));
    say_keep(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
