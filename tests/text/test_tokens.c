/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of prompts for T5 match those of SentencePiece's own binding (make_tokens_reference.py);
 * prompts by a tokenizer.json are padded and cut alike. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>
#include "../../examples/common/say.h"
#include "../../examples/text/tokens.h"
#include "../../examples/tokenizer/tokenizer.h"

const char say_program[] = "test_tokens";

enum { MOST = 4096 };

static const char *in_source(char path[4096], const char *name)
{
    const char *root = getenv("srcdir");

    snprintf(path, 4096, "%s/tests/text/%s", root ? root : ".", name);
    return path;
}

static void open_tokenizer(struct t5_tokenizer *t)
{
    char path[4096];

    assert_int_equal(t5_tokenizer_open(t, in_source(path, "tokenizer")), 0);
}

/* The tokens after the tab of a line. */
static int64_t expected_tokens(const char *at, int32_t *ids)
{
    int64_t n = 0;
    char *end;

    for (long id = strtol(at, &end, 10); end != at; id = strtol(at, &end, 10)) {
        ids[n++] = (int32_t)id;
        at = end;
    }
    return n;
}

/* With exactly enough space, with more, and with less: </s> is always the last token. */
static void check_line(const struct t5_tokenizer *t, const char *text, const int32_t *wanted,
                       int64_t n)
{
    static int32_t ids[MOST];
    int64_t tokens;

    for (int64_t room = n + 3; room > 0 && room >= n - 2; room--) {
        assert_int_equal(t5_tokenizer_encode(t, text, ids, room, &tokens), 0);
        assert_int_equal(tokens, n);
        for (int64_t i = 0; i < room; i++) {
            int32_t want = i >= n ? t->pad : room < n && i == room - 1 ? t->end : wanted[i];
            if (ids[i] != want)
                fail_msg("\"%s\": token %d of %d is %d, not %d", text, (int)i, (int)room,
                         (int)ids[i], (int)want);
        }
    }
}

static void test_prompts(void **state)
{
    static int32_t wanted[MOST];
    char path[4096], *line = NULL;
    struct t5_tokenizer t;
    size_t size = 0;
    int lines = 0;

    (void)state;
    open_tokenizer(&t);
    FILE *f = fopen(in_source(path, "tokens.txt"), "r");
    assert_non_null(f);
    for (; getline(&line, &size, f) > 0; lines++) {
        char *tab = strrchr(line, '\t');
        assert_non_null(tab);
        *tab = 0;
        json_t *text = json_loads(line, JSON_DECODE_ANY, NULL);
        assert_non_null(text);
        check_line(&t, json_string_value(text), wanted, expected_tokens(tab + 1, wanted));
        json_decref(text);
    }
    assert_true(lines > 15);
    free(line);
    fclose(f);
    t5_tokenizer_close(&t);
}

/* Invalid UTF-8 becomes the unknown piece, and reading ends. */
static void test_invalid(void **state)
{
    struct t5_tokenizer t;
    int32_t ids[16];
    int64_t tokens;

    (void)state;
    open_tokenizer(&t);
    assert_int_equal(t5_tokenizer_encode(&t, "\xff\xfe a", ids, 16, &tokens), 0);
    assert_true(tokens > 1 && tokens < 16);
    assert_int_equal(ids[tokens - 1], t.end);
    assert_int_equal(t5_tokenizer_encode(&t, "", ids, 16, &tokens), 0);
    assert_int_equal(tokens, 1);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[15], 0);
    t5_tokenizer_close(&t);
}

static void test_files(void **state)
{
    static const char cut[] = "\x0a\x20<pad>";
    char path[4096];
    struct t5_tokenizer t;

    (void)state;
    assert_int_equal(t5_tokenizer_open(&t, "no/such/place"), -1);
    assert_int_equal(t5_tokenizer_open(&t, in_source(path, "t5")), -1); /* no spiece.model */
    assert_int_equal(t5_tokenizer_open(&t, in_source(path, "tokens.txt")), -1);
    char name[] = "/tmp/test_tokens_XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0 && write(fd, cut, sizeof cut) == (ssize_t)sizeof cut);
    close(fd);
    assert_int_equal(t5_tokenizer_open(&t, name), -1);
    unlink(name);
}

#ifdef HAVE_PCRE2
/* A tokenizer.json: its own template has </s>, once. */
static void test_json(void **state)
{
    char path[4096];
    struct t5_tokenizer t;
    int32_t ids[8], few[2];
    int64_t tokens;

    (void)state;
    assert_int_equal(t5_tokenizer_open(&t, in_source(path, "../tokenizer/t5.json")), 0);
    assert_int_equal(t5_tokenizer_encode(&t, "<extra_id_3> <unk>", ids, 8, &tokens), 0);
    const int32_t want[] = {tokenizer_find(t.json, "<extra_id_3>"), 2, 1, 0, 0, 0, 0, 0};
    assert_int_equal(tokens, 3);
    assert_int_equal(t.count, t.json->n);
    assert_memory_equal(ids, want, sizeof want);
    assert_int_equal(t5_tokenizer_encode(&t, "<unk><unk><unk>", few, 2, &tokens), 0);
    assert_int_equal(tokens, 4);
    assert_memory_equal(few, ((int32_t[]){2, 1}), sizeof few);
    assert_int_equal(t5_tokenizer_encode(&t, "\xff", ids, 8, &tokens), -1);
    t5_tokenizer_close(&t);
    assert_int_equal(t5_tokenizer_open(&t, in_source(path, "../tokenizer/bert.json")), -1);
}
#endif

/* A run of unknown characters is one token, however long: a million bytes of it would take minutes
 * where time is quadratic in the length. */
static void test_long(void **state)
{
    static const char *const parts[] = {"\xf0\x9f\x98\x80", "<", "\xe2\x98\x83\xf0\x9f\x98\x80"};
    enum { BYTES = 1 << 20, ROOM = 16 };
    char *text = malloc(BYTES + 16), few[32];
    int32_t long_ids[ROOM], short_ids[ROOM];
    struct t5_tokenizer t;

    (void)state;
    open_tokenizer(&t);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t at = (size_t)sprintf(text, "a ");
        while (at + strlen(parts[i]) < BYTES)
            at += (size_t)sprintf(text + at, "%s", parts[i]);
        strcpy(text + at, " b");
        snprintf(few, sizeof few, "a %s b", parts[i]);
        int64_t n, m;
        assert_int_equal(t5_tokenizer_encode(&t, text, long_ids, ROOM, &n), 0);
        assert_int_equal(t5_tokenizer_encode(&t, few, short_ids, ROOM, &m), 0);
        assert_int_equal(n, m);
        assert_memory_equal(long_ids, short_ids, sizeof long_ids);
    }
    free(text);
    t5_tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_files),
#ifdef HAVE_PCRE2
        cmocka_unit_test(test_json),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
