/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of tokenizers with the parts of published ones equal those of Hugging Face's library, for a
 * thousand texts of all kinds (make_tokenizers.py); and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>
#include "examples/common/say.h"
#include "examples/tokenizer/tokenizer.h"

const char say_program[] = "test_tokenizer";

static char said[1024], directory[] = "/tmp/test_tokenizer_XXXXXX";

static FILE *open_source(char path[4096], const char *name, const char *ending)
{
    const char *srcdir = getenv("srcdir");

    snprintf(path, 4096, "%s/tests/tokenizer/%s%s", srcdir ? srcdir : ".", name, ending);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

static uint32_t hash(const int32_t *ids, int64_t n)
{
    uint32_t h = 0x811c9dc5; /* FNV-1a */

    for (int64_t i = 0; i < n; i++)
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ ((uint32_t)ids[i] >> shift & 0xff)) * 0x01000193;
    return h;
}

static void check_text(const struct tokenizer *t, const char *name, const char *line, FILE *ids)
{
    json_t *text = json_loads(line, JSON_DECODE_ANY, NULL);
    uint32_t want = 0;
    int64_t n = 0;

    assert_true(json_is_string(text) && fscanf(ids, "%" SCNx32, &want) == 1);
    int32_t *got = tokenizer_encode((void *)(uintptr_t)t, "text", json_string_value(text),
                                    (int64_t)json_string_length(text), &n);
    if (!got || hash(got, n) != want)
        fail_msg("%s: other ids for %.200s %s", name, line, got ? "" : said);
    free(got);
    json_decref(text);
}

/* The ids of `name`, from the file or directory `at`. */
static void check_tokenizer(const char *name, const char *at)
{
    char path[4096], *line = NULL;
    struct tokenizer t;
    size_t room = 0;
    int n = 0;
    FILE *texts = open_source(path, "texts", ".txt"), *ids = open_source(path, name, ".ids");

    if (tokenizer_open(&t, at))
        fail_msg("%s", said);
    for (; getline(&line, &room, texts) > 0; n++)
        check_text(&t, name, line, ids);
    assert_true(n > 900);
    tokenizer_close(&t);
    free(line);
    fclose(texts);
    fclose(ids);
}

static void test_published(void **state)
{
    static const char *const names[] = {"gpt2",      "llama2",   "llama3", "qwen2", "mistral",
                                        "gemma",     "t5",       "umt5",   "neox",  "bloom",
                                        "starcoder", "deepseek", "other",  "bert",  "bertcased"};
    char path[4096];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fclose(open_source(path, names[i], ".json"));
#ifndef HAVE_ICU
        if (strcmp(names[i], "qwen2") && strcmp(names[i], "neox") && strcmp(names[i], "other") &&
            strncmp(names[i], "bert", 4))
#endif
            check_tokenizer(names[i], path);
    }
}

/* ---- tokenizer_config.json ------------------------------------------------------------------- */

/* A directory with the tokenizer `name` and a tokenizer_config.json. */
static int open_with(struct tokenizer *t, const char *name, const char *config)
{
    char from[4096], to[4096], command[9000];

    fclose(open_source(from, name, ".json"));
    snprintf(command, sizeof command, "cp %s %s/tokenizer.json", from, directory);
    assert_int_equal(system(command), 0);
    snprintf(to, sizeof to, "%s/tokenizer_config.json", directory);
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    return tokenizer_open(t, directory);
}

static void check_ids(const struct tokenizer *t, const char *text, const char *want)
{
    char got[256] = "";
    int64_t n;
    int32_t *ids = tokenizer_encode((void *)(uintptr_t)t, "text", text, (int64_t)strlen(text), &n);

    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++) {
        int32_t bytes;
        const char *piece = tokenizer_decode(t, ids[i], &bytes);
        size_t at = strlen(got);
        snprintf(got + at, sizeof got - at, "%.*s|", (int)bytes, piece);
    }
    assert_string_equal(got, want);
    free(ids);
}

static void test_config(void **state)
{
    struct tokenizer t;

    (void)state;
    assert_int_equal(open_with(&t, "llama2",
                               "{\"add_bos_token\": false, \"add_eos_token\": true, "
                               "\"bos_token\": \"<s>\", \"eos_token\": {\"content\": "
                               "\"</s>\"}, \"model_max_length\": "
                               "1000000000000000019884624838656}"),
                     0);
    check_ids(&t, "the <s>", " the| |<s>|</s>|");
    assert_int_equal(tokenizer_before(&t), 0);
    tokenizer_close(&t);
    assert_int_equal(open_with(&t, "gpt2",
                               "{\"added_tokens_decoder\": {\"480\": {\"content\": "
                               "\"<|endoftext|>\", \"lstrip\": true, \"special\": "
                               "true, \"normalized\": false}}}"),
                     0);
    check_ids(&t, "a  <|endoftext|>", "a|<|endoftext|>|");
    tokenizer_close(&t);
}

static void check_refused(const char *name, const char *config, const char *sentence)
{
    struct tokenizer t;

    *said = 0;
    say_keep(said, sizeof said);
    assert_int_equal(open_with(&t, name, config), -1);
    if (!strstr(said, sentence))
        fail_msg("'%s' is not in '%s'", sentence, said);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("gpt2", "{\"split_special_tokens\": true}", "\"split_special_tokens\" is true");
    check_refused("gpt2", "{\"add_prefix_space\": true}", "\"add_prefix_space\" is true, and");
    check_refused("llama2", "{\"add_prefix_space\": false}", "\"add_prefix_space\" is false, and");
    check_refused("gpt2", "{\"add_blank\": 1}", "\"add_blank\" is 1.0: this setting is not known");
    check_refused("gpt2", "{\"add_bos_token\": true, \"bos_token\": \"<x>\"}", "which is no token");
#ifdef HAVE_ICU
    check_refused("bert", "{\"never_split\": [\"a\"]}", "\"never_split\" is");
    check_refused("bert", "{\"do_lower\": true}",
                  "\"do_lower\" is true: this setting is not known");
#endif
}

/* vocab.json and merges.txt say nothing of the pattern: they are GPT-2's, or refused. */
static void test_pair(void **state)
{
    char command[9000], source[4096];
    const char *srcdir = getenv("srcdir");
    struct tokenizer t;

    (void)state;
    snprintf(source, sizeof source, "%s/tests/model/lm/pair", srcdir ? srcdir : ".");
    snprintf(command, sizeof command,
             "rm -f %s/*; cp %s/* %s && echo '{\"tokenizer_class\": \"Qwen2Tokenizer\"}' "
             ">%s/tokenizer_config.json",
             directory, source, directory, directory);
    assert_int_equal(system(command), 0);
    *said = 0;
    say_keep(said, sizeof said);
    assert_int_equal(tokenizer_open(&t, directory), -1);
    assert_non_null(strstr(said, "the tokenizer of Qwen2Tokenizer splits text otherwise"));
    snprintf(command, sizeof command,
             "rm %s/tokenizer_config.json; echo '{\"model_type\": \"gpt2\"}' >%s/config.json",
             directory, directory);
    assert_int_equal(system(command), 0);
    assert_int_equal(tokenizer_open(&t, directory), 0);
    tokenizer_close(&t);
}

#ifdef HAVE_ICU
/* vocab.txt with the tokens of `name`, and a tokenizer_config.json. */
static void check_words(const char *name, const char *config)
{
    char path[4096], command[9000];
    json_t *root, *vocab, *id;
    const char *token;

    fclose(open_source(path, name, ".json"));
    root = json_load_file(path, 0, NULL);
    vocab = json_object_get(json_object_get(root, "model"), "vocab");
    snprintf(command, sizeof command, "rm -f %s/*; sort -n | cut -f 2 >%s/vocab.txt", directory,
             directory);
    FILE *f = popen(command, "w");
    assert_true(vocab && f);
    json_object_foreach(vocab, token, id)
    {
        fprintf(f, "%lld\t%s\n", (long long)json_integer_value(id), token);
    }
    assert_int_equal(pclose(f), 0);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
    check_tokenizer(name, directory);
    json_decref(root);
}

static void test_words(void **state)
{
    struct tokenizer t;

    (void)state;
    check_words("bert", "{}");
    check_words("bertcased", "{\"do_lower_case\": false, \"tokenizer_class\": \"BertTokenizer\"}");
    assert_int_equal(tokenizer_open(&t, directory), 0);
    assert_true(tokenizer_continues(&t, tokenizer_find(&t, "##e")));
    assert_false(tokenizer_continues(&t, tokenizer_find(&t, "e")));
    tokenizer_close(&t);
}
#endif

/* A text of blanks alone, for which a pattern tries each end. */
static void test_long_space(void **state)
{
    enum { N = 12000000 };
    struct tokenizer t;
    char path[4096], *text = malloc(N + 2);
    int64_t n = 0;

    (void)state;
    fclose(open_source(path, "llama3", ".json"));
    assert_int_equal(tokenizer_open(&t, path), 0);
    assert_non_null(text);
    memset(text, ' ', N);
    text[0] = 'a';
    text[N] = 'b';
    int32_t *ids = tokenizer_encode(&t, "text", text, N + 1, &n);
    if (!ids)
        fail_msg("%s", said);
    assert_true(n > 2 && n <= N + 1);
    free(ids);
    free(text);
    tokenizer_close(&t);
}

static int clean(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),  cmocka_unit_test(test_config),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_pair),
        cmocka_unit_test(test_long_space),
#ifdef HAVE_ICU
        cmocka_unit_test(test_words),
#endif
    };

    if (!mkdtemp(directory))
        return 1;
    say_keep(said, sizeof said);
    return cmocka_run_group_tests(tests, NULL, clean);
}
