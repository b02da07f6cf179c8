/* SPDX-License-Identifier: Apache-2.0 */
/* Text generation: a prompt, then one token at a time. */
#include <stdlib.h>
#include <string.h>
#include "../common/json_keys.h"
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

/* The turns of --chat or --messages. */
static json_t *read_turns(const struct lm_options *o)
{
    json_t *turns = o->chat ? json_pack("[{ss,ss}]", "role", "user", "content", o->chat)
                            : json_keys_read(o->messages),
           *inside = json_object_get(turns, "messages");
    const char *name = o->chat ? "--chat" : o->messages;
    json_t *messages = turns ? conversation_prompt(name, inside ? inside : turns) : NULL;

    if (o->chat && !turns)
        say_fail("--chat: not UTF-8, or no memory");
    json_decref(turns);
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || (strcmp(role, "assistant") && strcmp(role, "system")))
        return messages;
    say_fail("%s: the last turn is of %s, and not one to be answered", name, role);
    json_decref(messages);
    return NULL;
}

static int32_t *read_chat(const struct lm_run *r, int64_t *n)
{
    const struct lm_options *o = &r->options;
    const char *name = o->chat ? "--chat" : o->messages;
    json_t *messages = read_turns(o);
    struct chat_ids ids = {.id = NULL};
    int rc = messages ? chat_prompt(&r->chat, name, messages, &ids) : -1;

    json_decref(messages);
    free(ids.trained);
    *n = ids.n;
    if (!rc && ids.n >= r->decoder.length)
        rc = say_fail("%s: %lld tokens, and --length %lld has no room for an answer", name,
                      (long long)ids.n, (long long)r->decoder.length);
    if (!rc)
        return ids.id;
    free(ids.id);
    return NULL;
}

static bool is_chat(const struct lm_run *r)
{
    return r->options.chat || r->options.messages;
}

static int32_t *read_text(const struct lm_run *r, int64_t *n)
{
    const char *text = r->options.prompt;
    int32_t *tokens =
        tokenizer_encode((void *)&r->tokenizer, "--prompt", text, (int64_t)strlen(text), n);

    if (tokens)
        begin_once(r, tokens, n);
    return tokens;
}

/* The tokens of the prompt.  An empty prompt becomes the start token, or token 0 without one. */
static int32_t *read_prompt(const struct lm_run *r, int64_t *n)
{
    int32_t *tokens = is_chat(r) ? read_chat(r, n) : read_text(r, n);

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
static int choose(const struct lm_run *r, const struct lm_choice *how, int64_t place,
                  int32_t *token, bool *ended)
{
    const struct lm_options *o = &r->options;
    const struct lm_decoder *d = &r->decoder;
    int64_t n = o->config.vocabulary;

    for (int64_t s = 0; s < d->samples; s++) {
        float u;
        ckpt_fill_uniform((uint64_t)o->sample_seed, (uint64_t)(place * d->samples + s),
                          STREAM_CHOICE, &u, 1);
        float *scores = d->scores + s * n;
        if (lm_penalize(how, scores, n, d->text + s * d->length, d->at) ||
            (token[s] = lm_choose(how, scores, n, u)) < 0)
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

static int write_all(struct lm_run *r, const struct lm_choice *how, const int32_t *prompt,
                     int64_t n, FILE **text, bool *ended)
{
    struct lm_decoder *d = &r->decoder;
    int64_t kept = n < d->length ? n : d->length - 1;
    int32_t *token = malloc((size_t)d->samples * sizeof *token);
    int rc =
        token ? lm_decoder_begin(d, prompt + n - kept, kept) : say_fail("no memory for a token");

    for (int64_t i = 0; i < r->options.sample_tokens && !rc && !all_ended(ended, d->samples); i++) {
        rc = i ? lm_decoder_next(d, token) : 0;
        rc = rc ? rc : choose(r, how, i, token, ended);
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

/* Makes a text for each sample: bytes[s], malloc'ed also after an error. */
static int generate(struct lm_run *r, const struct lm_choice *how, const int32_t *prompt, int64_t n,
                    char **bytes)
{
    const int64_t samples = r->decoder.samples;
    FILE **text = calloc((size_t)samples, sizeof *text);
    size_t *size = calloc((size_t)samples, sizeof *size);
    bool *ended = calloc((size_t)samples, sizeof *ended);
    int rc = text && size && ended ? 0 : say_fail("no memory for text");

    for (int64_t s = 0; s < samples && !rc; s++) {
        text[s] = open_memstream(&bytes[s], &size[s]);
        rc = text[s] ? 0 : say_fail("no memory for text");
    }
    rc = rc ? rc : write_all(r, how, prompt, n, text, ended);
    for (int64_t s = 0; text && s < samples; s++)
        if (text[s])
            fclose(text[s]);
    free(text);
    free(size);
    free(ended);
    return rc;
}

static void free_texts(char **bytes, int64_t n)
{
    for (int64_t s = 0; bytes && s < n; s++)
        free(bytes[s]);
    free(bytes);
}

/* An answer of a chat stands alone. */
int lm_write_text(struct lm_run *r, FILE *f)
{
    int64_t samples = r->decoder.samples, n;
    int32_t *prompt = read_prompt(r, &n);
    char **bytes = calloc((size_t)samples, sizeof *bytes);
    int rc = !prompt ? -1 : bytes ? 0 : say_fail("no memory for text");

    rc = rc ? rc : generate(r, &r->options.choice, prompt, n, bytes);
    for (int64_t s = 0; s < samples && !rc; s++)
        print(f, is_chat(r) ? "" : r->options.prompt, bytes[s]);
    free_texts(bytes, samples);
    free(prompt);
    fflush(f);
    return rc;
}

int lm_answer(struct lm_run *r, int64_t *right)
{
    static const struct lm_choice greedy = {0, 0, 1, 1};
    const int64_t samples = r->decoder.samples;
    int rc = 0;

    *right = 0;
    for (int64_t i = 0; i < r->eval.n && !rc; i++) {
        const struct eval_item *item = &r->eval.item[i];
        char **bytes = calloc((size_t)samples, sizeof *bytes);
        rc =
            bytes ? generate(r, &greedy, item->id, item->n, bytes) : say_fail("no memory for text");
        *right += !rc && eval_is_right(item, bytes[0]);
        free_texts(bytes, samples);
        if (training_is_stopped(r->context)) {
            *right = -1;
            break;
        }
    }
    return rc;
}
