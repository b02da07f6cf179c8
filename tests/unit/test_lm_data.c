/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of lm-train: token files of each kind, the order of samples, tokenizers against
 * Hugging Face's, and invalid files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/lm/dataset.c"
#include "../../examples/lm/tokens.c"
#include "../../examples/tokenizer/tokenizer.h"
#include "said.h"

static char directory[64], path[128];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/test_lm_data_XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static const char *in_source(const char *name)
{
    static char whole[512];
    const char *srcdir = getenv("srcdir");

    snprintf(whole, sizeof whole, "%s/tests/model/lm/%s", srcdir ? srcdir : ".", name);
    return whole;
}

/* ---- files of tokens ----------------------------------------------------------------------- */

/* A header of 256 words, then bytes. */
static void write_file(const char *name, const int32_t *header, int words, const void *data,
                       size_t bytes)
{
    int32_t all[256] = {0};
    FILE *f;

    memcpy(all, header, (size_t)words * sizeof *header);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(all, 1, sizeof all, f);
    fwrite(data, 1, bytes, f);
    fclose(f);
}

static void check_refused(const char *pattern, const char *text)
{
    struct tokens t;

    *said = 0;
    assert_int_equal(tokens_open(&t, pattern, NULL, NULL), -1);
    if (!strstr(said, text))
        fail_msg("no '%s' in: %s", text, said);
}

static const uint16_t few[] = {5, 6, 7, 65535, 9};

static void test_kinds(void **state)
{
    static const uint32_t wide[] = {128000, 1, 2};
    static const char llmq[] = "BIN.TOK\n";
    int32_t header[7] = {0, 0, 1, 4, 3, 200000, 1}, got[8] = {0};
    char with_mask[13];
    bool trained[8] = {false};
    struct tokens t;

    (void)state;
    write_file("a.bin", (int32_t[]){20240520, 1, 5}, 3, few, sizeof few);
    write_file("b.bin", (int32_t[]){20240801, 7, 3}, 3, wide, sizeof wide);
    memcpy(header, llmq, 8);
    memcpy(with_mask, wide, sizeof wide);
    with_mask[12] = 5;
    write_file("c.bin", header, 7, with_mask, sizeof with_mask);
    snprintf(path, sizeof path, "%s/[abc].bin", directory);
    assert_int_equal(tokens_open(&t, path, NULL, NULL), 0);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.count, 11);
    assert_int_equal(t.shard[2].vocabulary, 200000);
    assert_int_equal(tokens_read(&t, 0, 1, 4, 65536, got, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(got[i], few[i + 1]);
    assert_int_equal(tokens_read(&t, 1, 0, 3, 200000, got, trained), 0);
    assert_int_equal(got[0], 128000);
    assert_true(trained[0] && trained[1] && trained[2]);
    assert_int_equal(tokens_read(&t, 2, 1, 2, 200000, got, trained), 0);
    assert_int_equal(got[0], 1);
    assert_true(!trained[0] && trained[1]);
    assert_int_equal(tokens_read(&t, 0, 2, 2, 50257, got, NULL), -1);
    assert_non_null(strstr(said, "token 3 is 65535, and the model has 50257"));
    truncate(t.shard[0].path, 1026);
    assert_int_equal(tokens_read(&t, 0, 2, 2, 65536, got, NULL), -1);
    assert_non_null(strstr(said, "shorter"));
    tokens_close(&t);
}

static void test_broken(void **state)
{
    (void)state;
    write_file("cut.bin", (int32_t[]){20240520, 1, 6}, 3, few, sizeof few);
    check_refused(path, "the file is truncated");
    write_file("long.bin", (int32_t[]){20240520, 1, 4}, 3, few, sizeof few);
    check_refused(path, "does not match its header");
    write_file("old.bin", (int32_t[]){20240520, 3, 5}, 3, few, sizeof few);
    check_refused(path, "version 3");
    write_file("less.bin", (int32_t[]){20240520, 1, -1}, 3, few, sizeof few);
    check_refused(path, "announces -1");
    write_file("magic.bin", (int32_t[]){20240521, 1, 5}, 3, few, sizeof few);
    check_refused(path, "neither a token file");
    write_file("choices.bin", (int32_t[]){20240522, 1, 5}, 3, few, sizeof few);
    check_refused(path, "multiple choices");
    truncate(path, 600);
    check_refused(path, "multiple choices");
    write_file("head.bin", (int32_t[]){20240520, 1, 5}, 3, few, 0);
    truncate(path, 600);
    check_refused(path, "header of 1024 bytes is truncated");
    snprintf(path, sizeof path, "%s/nothing*", directory);
    check_refused(path, "no such file");
    check_refused(directory, "directory");
}

/* ---- samples ------------------------------------------------------------------------------- */

/* Shards of 10, 3 and 25 consecutive tokens; a text of 7 bytes has no sample of 8. */
static void open_counted(struct dataset *d, bool shuffled, uint64_t seed)
{
    static const int sizes[] = {10, 3, 25};
    uint16_t data[25];
    struct tokens t;

    for (int i = 0, at = 0; i < 3; i++) {
        char name[16];
        for (int k = 0; k < sizes[i]; k++)
            data[k] = (uint16_t)at++;
        snprintf(name, sizeof name, "count%d.bin", i);
        write_file(name, (int32_t[]){20240520, 1, sizes[i]}, 3, data,
                   (size_t)sizes[i] * sizeof *data);
    }
    snprintf(path, sizeof path, "%s/count*.bin", directory);
    assert_int_equal(tokens_open(&t, path, NULL, NULL), 0);
    assert_int_equal(dataset_open(d, &t, 4, 100, seed, shuffled, NULL), 0);
}

static void test_rows(void **state)
{
    static const int begin[] = {0, 4, 13, 17, 21, 25, 29, 33};
    int32_t in[8 * 4], out[8 * 4];
    struct dataset d;

    (void)state;
    open_counted(&d, false, 1);
    assert_int_equal(d.rows, 8);
    assert_int_equal(dataset_read(&d, 0, 8, in, out), 0);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(in[i], begin[i / 4] + i % 4);
        assert_int_equal(out[i], begin[i / 4] + i % 4 + 1);
    }
    dataset_close(&d);
}

static void test_order(void **state)
{
    struct dataset d, other;
    int same = 0, moved = 0;

    (void)state;
    open_counted(&d, true, 1);
    open_counted(&other, true, 2);
    for (int epoch = 0; epoch < 20; epoch++) {
        bool seen[8] = {false};
        for (int i = 0; i < 8; i++) {
            int64_t row = dataset_row(&d, 8 * epoch + i);
            assert_true(row >= 0 && row < 8 && !seen[row]);
            seen[row] = true;
            moved += row != i;
            same += row == dataset_row(&other, 8 * epoch + i);
        }
    }
    assert_true(moved > 100 && same < 60); /* of 160 */
    dataset_close(&other);
    d.rows = 1000003; /* a permutation of many, too */
    char *seen = calloc((size_t)d.rows, 1);
    for (int64_t i = 0; i < d.rows; i++) {
        int64_t row = dataset_row(&d, i);
        assert_true(!seen[row]);
        seen[row] = 1;
    }
    free(seen);
    dataset_close(&d);
}

static void test_too_few(void **state)
{
    struct tokens t;
    struct dataset d;

    (void)state;
    write_file("few.bin", (int32_t[]){20240520, 1, 5}, 3, few, sizeof few);
    assert_int_equal(tokens_open(&t, path, NULL, NULL), 0);
    assert_int_equal(dataset_open(&d, &t, 5, 70000, 1, true, NULL), -1);
    assert_non_null(strstr(said, "5 tokens are too few for a sample of 5"));
}

static long resident_pages(void)
{
    long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (f && fscanf(f, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident;
}

/* 64 MB of tokens, read from end to end: memory does not grow. */
static void test_memory(void **state)
{
    enum { COUNT = 32 << 20, LONG = 4096 };
    int32_t *in = calloc(2 * LONG, sizeof *in);
    struct tokens t;
    struct dataset d;

    (void)state;
    write_file("large.bin", (int32_t[]){20240520, 1, COUNT}, 3, few, 0);
    assert_int_equal(truncate(path, 1024 + 2 * (off_t)COUNT), 0);
    assert_int_equal(tokens_open(&t, path, NULL, NULL), 0);
    assert_int_equal(dataset_open(&d, &t, LONG, 100, 1, true, NULL), 0);
    assert_int_equal(dataset_read(&d, 0, 1, in, in + LONG), 0);
    long before = resident_pages();
    for (int64_t i = 1; i < d.rows; i++)
        assert_int_equal(dataset_read(&d, i, 1, in, in + LONG), 0);
#ifndef __SANITIZE_ADDRESS__                       /* which keeps pages of its own */
    assert_true(resident_pages() - before < 1024); /* 4 MiB */
#endif
    (void)before;
    free(in);
    dataset_close(&d);
}

static void test_text(void **state)
{
    int32_t in[6], out[6];
    struct tokens t;
    struct dataset d;
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/a.txt", directory);
    f = fopen(path, "wb");
    fputs("ab\303\251 cd", f);
    fclose(f);
    assert_int_equal(tokens_open(&t, path, NULL, NULL), 0);
    assert_int_equal(dataset_open(&d, &t, 6, 256, 1, true, NULL), 0);
    assert_int_equal(dataset_read(&d, 5, 1, in, out), 0);
    assert_true(in[0] == 'a' && in[2] == 0303 && out[5] == 'd');
    dataset_close(&d);
    assert_int_equal(tokens_open(&t, path, NULL, NULL), 0);
    assert_int_equal(dataset_open(&d, &t, 6, 128, 1, true, NULL), -1);
    assert_non_null(strstr(said, "has 256 tokens, the model's has 128"));
}

/* ---- tokenizers ---------------------------------------------------------------------------- */

#ifdef HAVE_PCRE2
/* The tokens of text.txt equal those of Hugging Face's tokenizer, and decode to the text. */
static void check_tokenizer(const char *file, const char *expected)
{
    struct tokenizer t;
    struct tokens want, got;
    int32_t *tokens = calloc(1000, sizeof *tokens);

    assert_int_equal(tokens_open(&want, in_source(expected), NULL, NULL), 0);
    assert_int_equal(tokens_read(&want, 0, 0, want.count, 100000, tokens, NULL), 0);
    if (tokenizer_open(&t, in_source(file)) ||
        tokens_open(&got, in_source("text.txt"), tokenizer_encode, &t))
        fail_msg("%s", said);
    assert_int_equal(got.count, want.count);
    assert_memory_equal(got.shard[0].held, tokens, (size_t)want.count * sizeof *tokens);
    FILE *f = fopen(in_source("text.txt"), "rb");
    for (int64_t i = 0; i < got.count; i++) {
        int32_t n;
        const char *bytes = tokenizer_decode(&t, got.shard[0].held[i], &n);
        for (int32_t k = 0; k < n; k++)
            assert_int_equal((unsigned char)bytes[k], getc(f));
    }
    assert_int_equal(getc(f), EOF);
    fclose(f);
    free(tokens);
    tokens_close(&want);
    tokens_close(&got);
    tokenizer_close(&t);
}

static void test_tokenizers(void **state)
{
    (void)state;
    check_tokenizer("gpt2-tokenizer.json", "gpt2-text.bin");
    check_tokenizer("llama-tokenizer.json", "llama-text.bin");
    check_tokenizer("pair", "gpt2-text.bin");
}

/* Long pieces use a separate heap; a million equal letters take no longer than other text. */
static void test_long_piece(void **state)
{
    enum { N = 1000000 };
    struct tokenizer t;
    char *text = malloc(N);
    int64_t n = 0, bytes = 0;

    (void)state;
    memset(text, 'a', N);
    assert_int_equal(tokenizer_open(&t, in_source("gpt2-tokenizer.json")), 0);
    int32_t *tokens = tokenizer_encode(&t, "text", text, N, &n);
    assert_non_null(tokens);
    for (int64_t i = 0; i < n; i++) {
        int32_t length;
        tokenizer_decode(&t, tokens[i], &length);
        bytes += length;
    }
    assert_int_equal(bytes, N);
    assert_true(n < N / 2);
    free(tokens);
    free(text);
    tokenizer_close(&t);
}

static void check_no_tokenizer(const char *text, const char *sentence)
{
    struct tokenizer t;
    FILE *f;

    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    f = fopen(path, "wb");
    fputs(text, f);
    fclose(f);
    assert_int_equal(tokenizer_open(&t, path), -1);
    if (!strstr(said, sentence))
        fail_msg("no '%s' in: %s", sentence, said);
}

static void test_no_tokenizer(void **state)
{
    struct tokenizer t;
    int64_t n;

    (void)state;
    check_no_tokenizer("{", "line");
    check_no_tokenizer("{}", "its model is of no known type; BPE, Unigram and WordPiece");
    check_no_tokenizer("{\"model\": {\"type\": \"WordLevel\"}}", "its model is WordLevel");
    check_no_tokenizer("{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}",
                       "\"unk_token\" is missing");
    check_no_tokenizer(
        "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": "
        "\"a\", \"max_input_chars_per_word\": 0}}",
        "\"model.max_input_chars_per_word\" is not in 1 to 1000");
    check_no_tokenizer("{\"model\": {\"type\": \"BPE\"}}", "no vocabulary");
    check_no_tokenizer("{\"model\": {\"type\": \"BPE\", \"dropout\": 0.5}}",
                       "\"model.dropout\" is");
    check_no_tokenizer("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "no merges");
    check_no_tokenizer("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -5}}}", "no vocabulary");
#define MODEL "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}"
    check_no_tokenizer("{" MODEL ", \"pre_tokenizer\": {\"type\": \"FixedLength\"}}",
                       "pre_tokenizer of type FixedLength is not supported");
    check_no_tokenizer("{" MODEL ", \"normalizer\": {\"type\": \"StripAccents\"}}",
                       "normalizer of type StripAccents is not supported");
    check_no_tokenizer("{" MODEL ", \"added_tokens\": [{\"id\": 0, \"content\": \"x\"}]}",
                       "the added token x has the number of the token a");
    check_no_tokenizer("{" MODEL ", \"post_processor\": {\"type\": \"TemplateProcessing\","
                       " \"single\": []}}",
                       "has no text");
    assert_int_equal(tokenizer_open(&t, in_source("gpt2-tokenizer.json")), 0);
    assert_null(tokenizer_encode(&t, "a.txt", "abc \xff def", 9, &n));
    assert_non_null(strstr(said, "a.txt: not UTF-8 at byte 4"));
    tokenizer_close(&t);
}
#else
static void test_without(void **state)
{
    struct tokenizer t;

    (void)state;
    assert_int_equal(tokenizer_open(&t, in_source("gpt2-tokenizer.json")), -1);
    assert_non_null(strstr(said, "without PCRE2"));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_order),
        cmocka_unit_test(test_too_few),      cmocka_unit_test(test_text),
        cmocka_unit_test(test_memory),
#ifdef HAVE_PCRE2
        cmocka_unit_test(test_tokenizers),   cmocka_unit_test(test_long_piece),
        cmocka_unit_test(test_no_tokenizer),
#else
        cmocka_unit_test(test_without),
#endif
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
