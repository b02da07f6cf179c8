/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the files of language models: config.json, tokenizers, tokens, text. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../examples/lm/config.h"
#include "../examples/lm/dataset.h"
#include "../examples/tokenizer/tokenizer.h"
#include "fuzz/fuzz_readers.h"

static int read_config(const char *path, const char *directory)
{
    struct lm_config c;

    (void)path;
    return lm_config_read(&c, directory);
}

/* A text with every character of one byte, and words that special tokens may be. */
static void encode(const struct tokenizer *t)
{
    static const char words[] = "It's 1234 <|endoftext|>  the\n\n end of it\xc3\xa9 </s>";
    char text[128 + sizeof words];
    int64_t n = 0;

    for (int i = 0; i < 128; i++)
        text[i] = (char)i;
    memcpy(text + 128, words, sizeof words);
    int32_t *tokens = tokenizer_encode((void *)(uintptr_t)t, "text", text, sizeof text - 1, &n);
    for (int64_t i = 0; tokens && i < n; i++) {
        int32_t bytes;
        const char *is = tokenizer_decode(t, tokens[i], &bytes);
        if (tokens[i] < 0 || tokens[i] >= t->n || bytes < 0 || (bytes && !is))
            abort();
    }
    free(tokens);
}

static int read_tokenizer(const char *path, const char *directory)
{
    struct tokenizer t;

    (void)directory;
    if (tokenizer_open(&t, path))
        return -1;
    encode(&t);
    tokenizer_close(&t);
    return 0;
}

/* The other file of the pair is valid. */
static int read_pair(const char *path, const char *directory)
{
    char here[4096], there[4096];
    bool merges = strstr(path, "merges");

    snprintf(here, sizeof here, "%s/%s", directory, merges ? "vocab.json" : "merges.txt");
    fuzz_source(there,
                merges ? "tests/model/lm/pair/vocab.json" : "tests/model/lm/pair/merges.txt");
    char *full = realpath(there, NULL);
    if (!full || (symlink(full, here) && access(here, F_OK)))
        abort();
    free(full);
    int rc = read_tokenizer(directory, directory);
    remove(here);
    return rc;
}

/* Rows of tokens, or pieces of documents. */
static int read_rows(struct tokens *tokens, int64_t length, const struct document_ends *ends)
{
    struct dataset d;

    if (dataset_open(&d, tokens, length, 1 << 16, 1, true, ends))
        return -1;
    int32_t *row = malloc(2 * (size_t)length * sizeof *row);
    int rc = row ? 0 : -1;
    for (int64_t i = 0; i < d.rows && i < 8 && !rc; i++)
        rc = ends ? dataset_read_piece(&d, i, length, row) < 0
                  : dataset_read(&d, i, 1, row, row + length);
    free(row);
    dataset_close(&d);
    return rc;
}

static int read_tokens(const char *path, const char *directory)
{
    static const struct document_ends ends = {{0, 10, ' '}};
    struct tokens t;

    (void)directory;
    int rc = tokens_open(&t, path, NULL, NULL) ? -1 : read_rows(&t, 8, NULL);
    return rc || tokens_open(&t, path, NULL, NULL) ? -1 : read_rows(&t, 8, &ends);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_reader readers[] = {
        {"config", "config.json", read_config},  {"tokenizer", "tokenizer.json", read_tokenizer},
        {"vocabulary", "vocab.json", read_pair}, {"merges", "merges.txt", read_pair},
        {"words", "vocab.txt", read_tokenizer},  {"tokens", "tokens.bin", read_tokens},
        {"text", "text.txt", read_tokens}};

    fuzz_readers_run(readers, sizeof readers / sizeof *readers, data, size);
    return 0;
}
