/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token files: see tokens.h.
 *
 *   llm.c   1024 bytes of header, int32: magic, version, number of tokens; then uint16 (GPT-2) or
 *           uint32 (Llama 3) tokens.
 *   LLMQ    1024 bytes of header: "BIN.TOK\n", int32: version, bytes of a token, number of tokens,
 *           vocabulary, whether there is a mask; then int32 tokens, then the mask, a bit a token.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "tokens.h"

enum {
    HEADER = 1024,
    MAGIC_GPT2 = 20240520,
    MAGIC_LLAMA3 = 20240801,
    MAGIC_CHOICES = 20240522,
    MAGIC_MODEL = 20240326
};
static const char magic_llmq[8] = {'B', 'I', 'N', '.', 'T', 'O', 'K', '\n'};

static int32_t word(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                     (uint32_t)at[3] << 24);
}

/* ---- headers ------------------------------------------------------------------------------- */

/* The file must end where the header says; a truncated or different file is refused. */
static int check_size(const struct token_shard *s, int64_t size)
{
    int64_t mask = s->mask_begin ? (s->count + 7) / 8 : 0;
    int64_t want = s->begin + s->count * s->width + mask;

    if (size == want)
        return 0;
    return say_fail("%s: its header announces %lld tokens, %lld bytes in all; it has %lld: %s",
                    s->path, (long long)s->count, (long long)want, (long long)size,
                    size < want ? "the file is truncated" : "the file does not match its header");
}

static int read_llmc(struct token_shard *s, const unsigned char *h, int64_t size)
{
    int32_t magic = word(h), version = word(h + 4);

    s->width = magic == MAGIC_GPT2 ? 2 : 4;
    s->count = word(h + 8);
    if (version != (magic == MAGIC_GPT2 ? 1 : 7))
        return say_fail("%s: a token file of llm.c of version %d, which is not supported", s->path,
                        version);
    if (s->count < 0)
        return say_fail("%s: its header announces %lld tokens", s->path, (long long)s->count);
    return check_size(s, size);
}

static int read_llmq(struct token_shard *s, const unsigned char *h, int64_t size)
{
    int32_t version = word(h + 8), bytes = word(h + 12);

    s->width = 4;
    s->count = word(h + 16);
    s->vocabulary = word(h + 20);
    if ((version != 1 && version != 2) || bytes != 4)
        return say_fail("%s: a token file of LLMQ of version %d with tokens of %d bytes, which is "
                        "not supported",
                        s->path, version, bytes);
    if (s->count < 0 || s->vocabulary < 0)
        return say_fail("%s: its header announces %lld tokens of %lld", s->path,
                        (long long)s->count, (long long)s->vocabulary);
    s->mask_begin = word(h + 24) ? HEADER + s->count * 4 : 0;
    return check_size(s, size);
}

/* Returns 1: this is a token file and its header was read; 0: it is no token file; -1 after an
 * error message. */
static int read_header(struct token_shard *s, const unsigned char *h, int64_t n, int64_t size)
{
    int32_t magic = n >= 4 ? word(h) : 0;
    bool llmc = magic == MAGIC_GPT2 || magic == MAGIC_LLAMA3;
    bool llmq = n >= 8 && !memcmp(h, magic_llmq, sizeof magic_llmq);

    if (magic == MAGIC_CHOICES || magic == MAGIC_MODEL)
        return say_fail("%s: this is llm.c's file of %s, not of tokens to train on", s->path,
                        magic == MAGIC_MODEL ? "a model" : "multiple choices");
    if (!llmc && !llmq)
        return 0;
    if (n < HEADER)
        return say_fail("%s: its header of %d bytes is truncated", s->path, HEADER);
    s->begin = HEADER;
    return (llmq ? read_llmq : read_llmc)(s, h, size) ? -1 : 1;
}

/* ---- text ---------------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n >= m && !strcmp(path + n - m, end);
}

static char *read_all(FILE *f, const char *path, int64_t size)
{
    char *text = malloc((size_t)size + 1);

    if (!text) {
        say_fail("%s: no memory for %lld bytes of text", path, (long long)size);
        return NULL;
    }
    rewind(f);
    if (fread(text, 1, (size_t)size, f) != (size_t)size) {
        say_fail("%s: cannot be read: %s", path, ferror(f) ? strerror(errno) : "it has shrunk");
        free(text);
        return NULL;
    }
    text[size] = 0;
    return text;
}

static int read_text(struct token_shard *s, FILE *f, const unsigned char *h, int64_t n,
                     int64_t size, token_encoder encode, void *user)
{
    if (ends_with(s->path, ".bin") || memchr(h, 0, (size_t)n))
        return say_fail("%s: neither a token file of llm.c or LLMQ, by its first bytes, nor text",
                        s->path);
    s->width = 1;
    s->count = size;
    s->vocabulary = 256;
    if (!encode)
        return 0;
    char *text = read_all(f, s->path, size);
    s->held = text ? encode(user, s->path, text, size, &s->count) : NULL;
    s->width = 4;
    s->vocabulary = 0;
    free(text);
    return s->held ? 0 : -1;
}

/* ---- shards -------------------------------------------------------------------------------- */

static int open_shard(struct token_shard *s, const char *path, token_encoder encode, void *user)
{
    unsigned char h[HEADER];
    struct stat st;
    FILE *f;

    *s = (struct token_shard){.path = strdup(path)};
    if (!s->path)
        return say_fail("no memory for %s", path);
    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    size_t n = fread(h, 1, sizeof h, f);
    int rc = ferror(f) || fstat(fileno(f), &st) ? say_fail("%s: %s", path, strerror(errno)) : 0;
    if (!rc)
        rc = read_header(s, h, (int64_t)n, st.st_size);
    if (!rc)
        rc = read_text(s, f, h, (int64_t)n, st.st_size, encode, user);
    fclose(f);
    return rc < 0 ? -1 : 0;
}

int tokens_open(struct tokens *t, const char *pattern, token_encoder encode, void *user)
{
    glob_t found = {.gl_pathc = 0};
    char *exact[] = {(char *)(uintptr_t)pattern};
    bool exists = !access(pattern, F_OK); /* a name is no pattern, whatever its characters */
    int rc = exists ? 0 : glob(pattern, 0, NULL, &found);
    char **name = exists ? exact : found.gl_pathv;
    size_t n = exists ? 1 : found.gl_pathc;

    *t = (struct tokens){.open = -1, .fd = -1};
    if (rc)
        return say_fail("%s: %s", pattern,
                        rc == GLOB_NOMATCH ? "there is no such file" : "cannot be searched for");
    t->shard = calloc(n, sizeof *t->shard);
    rc = t->shard ? 0 : say_fail("no memory for %zu files", n);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = open_shard(&t->shard[i], name[i], encode, user);
        t->count += t->shard[i].count;
        t->n++;
    }
    globfree(&found);
    if (rc)
        tokens_close(t);
    return rc;
}

void tokens_close(struct tokens *t)
{
    for (int i = 0; i < t->n; i++) {
        free(t->shard[i].path);
        free(t->shard[i].held);
        free(t->shard[i].held_trained);
    }
    if (t->shard && t->fd >= 0)
        close(t->fd);
    free(t->shard);
    *t = (struct tokens){.open = -1, .fd = -1};
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The descriptor of a shard; only one file is open at a time. */
static int open_file(struct tokens *t, int shard)
{
    if (t->open == shard)
        return 0;
    if (t->fd >= 0)
        close(t->fd);
    t->open = -1;
    t->fd = open(t->shard[shard].path, O_RDONLY | O_CLOEXEC);
    if (t->fd < 0)
        return say_fail("%s: %s", t->shard[shard].path, strerror(errno));
    t->open = shard;
    return 0;
}

static int read_bytes(struct tokens *t, int shard, int64_t at, int64_t bytes, void *dst)
{
    char *to = dst;

    if (open_file(t, shard))
        return -1;
    while (bytes > 0) {
        ssize_t n = pread(t->fd, to, (size_t)bytes, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return say_fail("%s: %s", t->shard[shard].path,
                            n ? strerror(errno) : "it has become shorter since it was opened");
        to += n;
        at += n;
        bytes -= n;
    }
    return 0;
}

/* Widens tokens packed at the end of dst's n * 4 bytes. */
static void widen(int32_t *dst, int64_t n, int width)
{
    const unsigned char *src = (const unsigned char *)(dst + n) - n * width;

    for (int64_t i = 0; i < n; i++, src += width)
        dst[i] = width == 1 ? src[0] : width == 2 ? src[0] | src[1] << 8 : word(src);
}

static int read_mask(struct tokens *t, int shard, int64_t first, int64_t n, bool *trained)
{
    const struct token_shard *s = &t->shard[shard];
    int64_t begin = first / 8, bytes = (first + n + 7) / 8 - begin;
    unsigned char *bits;

    for (int64_t i = 0; i < n; i++)
        trained[i] = !s->held_trained || s->held_trained[first + i];
    if (!s->mask_begin || !n)
        return 0;
    bits = malloc((size_t)bytes);
    int rc = bits ? read_bytes(t, shard, s->mask_begin + begin, bytes, bits)
                  : say_fail("no memory for a mask");
    for (int64_t i = 0; i < n && !rc; i++)
        trained[i] = bits[(first + i) / 8 - begin] >> (first + i) % 8 & 1;
    free(bits);
    return rc;
}

int tokens_check(const struct token_shard *s, int64_t first, int64_t n, int64_t limit,
                 const int32_t *ids)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= limit)
            return say_fail("%s: token %lld is %ld, and the model has %lld", s->path,
                            (long long)(first + i), (long)ids[i], (long long)limit);
    return 0;
}

int tokens_read(struct tokens *t, int shard, int64_t first, int64_t n, int64_t limit, int32_t *dst,
                bool *trained)
{
    const struct token_shard *s = &t->shard[shard];
    char *end = (char *)(dst + n);

    if (s->held)
        memcpy(dst, s->held + first, (size_t)n * sizeof *dst);
    else if (read_bytes(t, shard, s->begin + first * s->width, n * s->width, end - n * s->width))
        return -1;
    else
        widen(dst, n, s->width);
    if (tokens_check(s, first, n, limit, dst))
        return -1;
    return trained ? read_mask(t, shard, first, n, trained) : 0;
}
