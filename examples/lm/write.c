/* SPDX-License-Identifier: Apache-2.0 */
/* Text generation: a prompt, then one token at a time. */
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

enum { STREAM_CHOICE = 0x4c4d0003 };

/* A prompt that has the tokens which the tokenizer puts before a text has them once. */
static void begin_once(const struct lm_run *r, int32_t *tokens, int64_t *n)
{
    int64_t k = tokenizer_before(&r->tokenizer);

    if (!k || *n < 2 * k || memcmp(tokens, tokens + k, (size_t)k * sizeof *tokens))
        return;
    *n -= k;
    memmove(tokens, tokens + k, (size_t)*n * sizeof *tokens);
    say_note("--prompt: begins with what the tokenizer puts before a text; it is put there once");
}

/* The tokens of the prompt.  An empty prompt becomes the start token, or token 0 without one. */
static int32_t *read_prompt(const struct lm_run *r, int64_t *n)
{
    const char *text = r->options.prompt;
    int32_t *tokens =
        tokenizer_encode((void *)&r->tokenizer, "--prompt", text, (int64_t)strlen(text), n);

    if (tokens)
        begin_once(r, tokens, n);
    if (tokens && !*n)
        tokens[(*n)++] = r->options.config.begin >= 0 ? (int32_t)r->options.config.begin : 0;
    for (int64_t i = 0; tokens && i < *n; i++) {
        if (tokens[i] >= r->options.config.vocabulary) {
            say_fail("--prompt: token %ld, and the model has %lld", (long)tokens[i],
                     (long long)r->options.config.vocabulary);
            free(tokens);
            return NULL;
        }
    }
    return tokens;
}

static bool is_end(const struct lm_options *o, int32_t token)
{
    for (int i = 0; i < o->ends.n; i++)
        if (token == o->ends.id[i])
            return true;
    return false;
}

/* Samples the next token of every sequence; ended sequences repeat their last token. */
static int choose(const struct lm_run *r, int64_t place, int32_t *token, bool *ended)
{
    const struct lm_options *o = &r->options;
    const struct lm_decoder *d = &r->decoder;
    int64_t n = o->config.vocabulary;

    for (int64_t s = 0; s < d->samples; s++) {
        float u;
        ckpt_fill_uniform((uint64_t)o->sample_seed, (uint64_t)(place * d->samples + s),
                          STREAM_CHOICE, &u, 1);
        float *scores = d->scores + s * n;
        if (lm_penalize(&o->choice, scores, n, d->text + s * d->length, d->at) ||
            (token[s] = lm_choose(&o->choice, scores, n, u)) < 0)
            return say_fail("no memory to choose a token");
        ended[s] |= is_end(o, token[s]);
    }
    return 0;
}

/* Appends the bytes of each token to its sample's text. */
static void append(const struct lm_run *r, const int32_t *token, const bool *ended, FILE **text)
{
    for (int64_t s = 0; s < r->decoder.samples; s++) {
        int32_t n;
        const char *bytes = tokenizer_decode(&r->tokenizer, token[s], &n);
        if (!ended[s])
            fwrite(bytes, 1, (size_t)n, text[s]);
    }
}

static bool all_ended(const bool *ended, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!ended[i])
            return false;
    return true;
}

static int write_all(struct lm_run *r, const int32_t *prompt, int64_t n, FILE **text, bool *ended)
{
    struct lm_decoder *d = &r->decoder;
    int64_t kept = n < d->length ? n : d->length - 1;
    int32_t *token = malloc((size_t)d->samples * sizeof *token);
    int rc =
        token ? lm_decoder_begin(d, prompt + n - kept, kept) : say_fail("no memory for a token");

    for (int64_t i = 0; i < r->options.sample_tokens && !rc && !all_ended(ended, d->samples); i++) {
        rc = i ? lm_decoder_next(d, token) : 0;
        rc = rc ? rc : choose(r, i, token, ended);
        if (!rc)
            append(r, token, ended, text);
        if (training_is_stopped(r->context))
            break;
    }
    free(token);
    return rc;
}

/* Escapes control characters: a terminal must not obey generated text. */
static void print(FILE *f, const char *prompt, const char *text)
{
    size_t room = 4 * (strlen(prompt) + strlen(text)) + 1;
    char *shown = malloc(room);

    if (shown) {
        fputs(ckpt_escape(shown, room, prompt), f);
        fputs(ckpt_escape(shown, room, text), f);
    }
    fputc('\n', f);
    free(shown);
}

int lm_write_text(struct lm_run *r, FILE *f)
{
    int64_t samples = r->decoder.samples, n;
    int32_t *prompt = read_prompt(r, &n);
    FILE **text = calloc((size_t)samples, sizeof *text);
    char **bytes = calloc((size_t)samples, sizeof *bytes);
    size_t *size = calloc((size_t)samples, sizeof *size);
    bool *ended = calloc((size_t)samples, sizeof *ended);
    bool whole = text && bytes && size && ended;
    int rc = !prompt ? -1 : whole ? 0 : say_fail("no memory for text");

    for (int64_t s = 0; s < samples && !rc; s++) {
        text[s] = open_memstream(&bytes[s], &size[s]);
        rc = text[s] ? 0 : say_fail("no memory for text");
    }
    rc = rc ? rc : write_all(r, prompt, n, text, ended);
    for (int64_t s = 0; text && s < samples; s++) {
        if (text[s])
            fclose(text[s]);
        if (!rc)
            print(f, r->options.prompt, bytes[s]);
        if (bytes)
            free(bytes[s]);
    }
    free(prompt);
    free(text);
    free(bytes);
    free(size);
    free(ended);
    fflush(f);
    return rc;
}
