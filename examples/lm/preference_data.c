/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of texts: see preference_data.h. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include "../common/digest.h"
#include "../common/json_keys.h"
#include "../common/say.h"
#include "../common/text_file.h"
#include "dataset.h"
#include "preference_data.h"
#include "run.h"

/* Columns of published data sets that say where a sample is from, or how good a text is. */
#define NOTES                                                                                      \
    "id prompt_id source dataset messages question chosen_score rejected_score score_chosen "      \
    "score_rejected chosen_model rejected_model chosen-rating rejected-rating margin"

static const struct json_keys pair_keys[] = {JSON_READ("prompt chosen rejected"),
                                             JSON_UNUSED(NOTES), JSON_END};
static const struct json_keys labelled_keys[] = {JSON_READ("prompt completion label"),
                                                 JSON_UNUSED(NOTES), JSON_END};

/* A line of a file. */
struct line {
    const char *path;
    int64_t number;
    json_t *row;
};

struct lines {
    struct line *line;
    int64_t n, room;
};

struct reader {
    struct preference_data *d;
    struct lm_run *run;
    glob_t files;
    struct lines lines;
    char where[4200]; /* FILE:LINE of the line being read, for messages */
};

static enum lm_loss loss_of(const struct reader *r)
{
    return r->run->options.preference.loss;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void set_place(struct reader *r, const char *path, int64_t number)
{
    snprintf(r->where, sizeof r->where, "%s:%lld", path, (long long)number);
}

/* The keys of completions. */
static const char *const *completions(enum lm_loss loss)
{
    static const char *const pair[] = {"chosen", "rejected", NULL}, *const one[] = {"completion",
                                                                                    NULL};

    return loss == LM_KTO ? one : pair;
}

/* A completion is a text, or messages. */
static int check_completion(const char *where, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    if (!value || json_is_null(value))
        return say_fail("%s: \"%s\" is missing", where, key);
    if (!json_is_string(value) && !json_is_array(value))
        return say_fail("%s: \"%s\" is neither a text nor a list of messages", where, key);
    if (json_is_string(value) ? !*json_string_value(value) : !json_array_size(value))
        return say_fail("%s: \"%s\" is empty", where, key);
    return 0;
}

/* The messages from number `from` to `to` as a new list; NULL: no memory. */
static json_t *part_of(const json_t *messages, size_t from, size_t to)
{
    json_t *part = json_array();

    for (size_t i = from; i < to && part; i++)
        json_array_append(part, json_array_get(messages, i));
    return part;
}

/* Makes what both conversations begin with the prompt. */
static int split_prompt(const char *where, json_t *row)
{
    const json_t *a = json_object_get(row, "chosen"), *b = json_object_get(row, "rejected");
    const size_t n = json_array_size(a), m = json_array_size(b), most = (n < m ? n : m) - 1;
    size_t same = 0;

    while (same < most && json_equal(json_array_get(a, same), json_array_get(b, same)))
        same++;
    if (!same)
        return say_fail("%s: there is no prompt: \"chosen\" and \"rejected\" begin with different "
                        "messages, or have only one",
                        where);
    json_t *parts[] = {part_of(a, 0, same), part_of(a, same, n), part_of(b, same, m)};
    return json_object_set_new(row, "prompt", parts[0]) ||
                   json_object_set_new(row, "chosen", parts[1]) ||
                   json_object_set_new(row, "rejected", parts[2])
               ? say_fail("%s: no memory", where)
               : 0;
}

static int check_line(const char *where, json_t *row, enum lm_loss loss)
{
    const char *const *keys = completions(loss);

    if (json_keys_check(where, "", row, loss == LM_KTO ? labelled_keys : pair_keys))
        return -1;
    for (int i = 0; keys[i]; i++)
        if (check_completion(where, row, keys[i]))
            return -1;
    const json_t *prompt = json_object_get(row, "prompt");
    const bool messages = json_is_array(json_object_get(row, keys[0]));
    if (loss == LM_KTO && !json_is_boolean(json_object_get(row, "label")))
        return say_fail("%s: \"label\" is missing, or neither true nor false", where);
    if (messages && !json_is_array(prompt) && loss != LM_KTO)
        return split_prompt(where, row);
    if (messages ? !json_is_array(prompt) : !json_is_string(prompt))
        return say_fail("%s: \"prompt\" is missing, or not %s as its completions are", where,
                        messages ? "a list of messages" : "a text");
    return 0;
}

static int add_line(struct reader *r, const char *path, int64_t number, const char *text)
{
    struct lines *ls = &r->lines;

    if (ls->n == ls->room) {
        int64_t room = ls->room ? 2 * ls->room : 256;
        struct line *grown = realloc(ls->line, (size_t)room * sizeof *grown);
        if (!grown)
            return say_fail("%s: no memory for its lines", path);
        ls->line = grown;
        ls->room = room;
    }
    struct line *l = &ls->line[ls->n];
    set_place(r, path, number);
    *l = (struct line){path, number, json_keys_parse(r->where, text, strlen(text))};
    if (!l->row)
        return -1;
    ls->n++;
    return check_line(r->where, l->row, loss_of(r));
}

static int read_file(struct reader *r, const char *path)
{
    struct text_file f;
    char *text;
    int rc = text_file_open(&f, path);

    for (int more = 1; !rc && more > 0;) {
        const int64_t number = f.line;
        more = text_file_line(&f, &text);
        rc = more < 0 ? -1 : 0;
        if (more > 0 && *text_strip(text))
            rc = add_line(r, path, number, text);
    }
    text_file_close(&f);
    return rc;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int grow(struct preference_data *d, int64_t more)
{
    if (d->tokens + more <= d->room)
        return 0;
    const int64_t room = 2 * (d->tokens + more);
    int32_t *id = realloc(d->id, (size_t)room * sizeof *id);
    if (id)
        d->id = id;
    bool *trained = realloc(d->trained, (size_t)room * sizeof *trained);
    if (trained)
        d->trained = trained;
    if (!id || !trained)
        return say_fail("no memory for %lld tokens of preferences", (long long)room);
    d->room = room;
    return 0;
}

static int add_tokens(struct reader *r, const int32_t *id, int64_t n, bool trained)
{
    struct preference_data *d = r->d;

    if (grow(d, n))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (id[i] < 0 || id[i] >= r->run->options.config.vocabulary)
            return say_fail("%s: token %ld; the model has %lld", r->where, (long)id[i],
                            (long long)r->run->options.config.vocabulary);
        d->id[d->tokens + i] = id[i];
        d->trained[d->tokens + i] = trained;
    }
    d->tokens += n;
    return 0;
}

/* Adds the tokens of a text, without those that begin every text if it continues one. */
static int add_text(struct reader *r, const json_t *text, bool continues)
{
    const struct tokenizer *t = &r->run->tokenizer;
    const char *words = json_string_value(text);
    int64_t n, before = continues && !t->bytes ? tokenizer_before(t) : 0;
    int32_t *id =
        tokenizer_encode((void *)t, r->where, words, (int64_t)json_string_length(text), &n);

    if (!id)
        return -1;
    before = before < n ? before : n;
    int rc = add_tokens(r, id + before, n - before, continues);
    free(id);
    return rc;
}

static int add_end(struct reader *r)
{
    const struct preference_data *d = r->d;
    const struct lm_ids *ends = &r->run->options.ends;
    const int32_t end = ends->n ? (int32_t)ends->id[0] : -1;

    return end < 0 || d->id[d->tokens - 1] == end ? 0 : add_tokens(r, &end, 1, true);
}

/* Adds a conversation; only turns of its completion are trained on. */
static int add_messages(struct reader *r, const json_t *prompt, const json_t *completion)
{
    struct preference_data *d = r->d;
    struct chat_ids ids = {.n = 0};
    json_t *all = json_copy((json_t *)prompt), *messages = NULL;

    if (!r->run->chat.template && lm_chat_open(r->run)) {
        json_decref(all);
        return -1;
    }
    int rc = !all || json_array_extend(all, (json_t *)completion)
                 ? say_fail("%s: no memory", r->where)
                 : 0;
    if (!rc)
        messages = conversation_messages(r->where, all, NULL);
    if (!messages || chat_encode(&r->run->chat, r->where, messages, NULL,
                                 (int64_t)json_array_size(prompt), &ids))
        rc = -1;
    json_decref(all);
    json_decref(messages);
    if (rc)
        return -1;
    rc = add_tokens(r, ids.id, ids.n, false);
    for (int64_t i = 0; i < ids.n && !rc; i++)
        d->trained[d->tokens - ids.n + i] = ids.trained[i];
    chat_ids_close(&ids);
    return rc;
}

static int add_both(struct reader *r, const json_t *prompt, const json_t *completion)
{
    if (json_is_array(prompt) != json_is_array(completion))
        return say_fail(
            "%s: its completion is a text, and that of another line a list of messages, "
            "or the other way round",
            r->where);
    if (json_is_array(prompt))
        return add_messages(r, prompt, completion);
    return add_text(r, prompt, false) || add_text(r, completion, true) || add_end(r) ? -1 : 0;
}

/* Cuts a text to one token more than the model reads, its last target. */
static void cut(struct reader *r, struct preference_text *s)
{
    struct preference_data *d = r->d;
    const int64_t most = r->run->options.length + 1;

    if (s->n <= most)
        return;
    d->cut++;
    d->cut_tokens += s->n - most;
    s->n = (int32_t)most;
    d->tokens = s->begin + most;
}

/* Adds a text.  Returns 1 if it can be trained on, 0 if it has no target, -1 after an error. */
static int add_pair(struct reader *r, const json_t *prompt, const json_t *completion,
                    struct preference_text *s)
{
    struct preference_data *d = r->d;
    bool any = false;

    s->begin = d->tokens;
    if (add_both(r, prompt, completion))
        return -1;
    s->n = (int32_t)(d->tokens - s->begin);
    const struct preference_text whole = *s;
    cut(r, s);
    for (int64_t i = 1; i < s->n; i++)
        any |= d->trained[s->begin + i];
    if (!any && whole.n == s->n)
        return say_fail("%s: a completion has no token that another one is before", r->where);
    return any;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The nearest line before, around the end, with another prompt; the line before if all have one. */
static const struct line *other_line(const struct lines *ls, int64_t i)
{
    const json_t *prompt = json_object_get(ls->line[i].row, "prompt");

    for (int64_t k = 1; k < ls->n; k++) {
        const struct line *l = &ls->line[(i + ls->n - k) % ls->n];
        if (!json_equal(json_object_get(l->row, "prompt"), prompt))
            return l;
    }
    return &ls->line[(i + ls->n - 1) % ls->n];
}

static int grow_rows(struct preference_data *d)
{
    if (d->rows < d->rows_room)
        return 0;
    const int64_t room = d->rows_room ? 2 * d->rows_room : 256;
    void *text = realloc(d->text, (size_t)room * sizeof *d->text);
    if (text)
        d->text = text;
    float *desired = realloc(d->desired, (size_t)room * sizeof *desired);
    if (desired)
        d->desired = desired;
    if (!text || !desired)
        return say_fail("no memory for %lld samples", (long long)room);
    d->rows_room = room;
    return 0;
}

static int add_row(struct reader *r, int64_t i)
{
    struct preference_data *d = r->d;
    const struct line *l = &r->lines.line[i];
    const bool kto = loss_of(r) == LM_KTO;
    const json_t *prompt = json_object_get(l->row, "prompt");
    const json_t *of[] = {json_object_get(l->row, kto ? "completion" : "chosen"),
                          kto ? json_object_get(other_line(&r->lines, i)->row, "completion")
                              : json_object_get(l->row, "rejected")};
    const int64_t begin = d->tokens, texts_cut = d->cut, tokens_cut = d->cut_tokens;

    set_place(r, l->path, l->number);
    if (grow_rows(d))
        return -1;
    struct preference_text *s = d->text[d->rows];
    for (int k = 0; k < PREFERENCE_TEXTS; k++) {
        int rc = add_pair(r, prompt, of[k], &s[k]);
        if (rc < 0)
            return -1;
        if (!rc) { /* the sample is left out */
            d->too_long++;
            d->tokens = begin;
            d->cut = texts_cut;
            d->cut_tokens = tokens_cut;
            return 0;
        }
        d->longest = s[k].n > d->longest ? s[k].n : d->longest;
    }
    d->desired[d->rows++] = kto && json_is_true(json_object_get(l->row, "label"));
    return 0;
}

static void digest_all(struct preference_data *d)
{
    uint64_t sum = digest_bytes(DIGEST_START, d->id, (size_t)d->tokens * sizeof *d->id);

    sum = digest_bytes(sum, d->trained, (size_t)d->tokens * sizeof *d->trained);
    sum = digest_bytes(sum, d->desired, (size_t)d->rows * sizeof *d->desired);
    for (int64_t i = 0; i < d->rows; i++)
        for (int k = 0; k < PREFERENCE_TEXTS; k++)
            sum = digest_bytes(sum, &d->text[i][k].n, sizeof d->text[i][k].n);
    d->digest = sum;
}

static int read_all(struct reader *r, const char *pattern)
{
    int rc = glob(pattern, GLOB_NOCHECK, NULL, &r->files)
                 ? say_fail("%s: no memory for the names of files", pattern)
                 : 0;

    for (size_t i = 0; !rc && i < r->files.gl_pathc; i++)
        rc = read_file(r, r->files.gl_pathv[i]);
    if (!rc && loss_of(r) == LM_KTO && r->lines.n == 1)
        rc = say_fail("%s: has one sample; the reference point of KTO needs the completion of "
                      "another one",
                      pattern);
    for (int64_t i = 0; !rc && i < r->lines.n; i++)
        rc = add_row(r, i);
    if (!rc && !r->d->rows)
        rc = say_fail("%s: has no sample%s", pattern,
                      r->lines.n ? " whose completions begin within --length" : "");
    return rc;
}

int preference_data_open(struct preference_data *d, const char *pattern, struct lm_run *run)
{
    struct reader r = {.d = d, .run = run};

    *d = (struct preference_data){.rows = 0};
    int rc = read_all(&r, pattern);
    for (int64_t i = 0; i < r.lines.n; i++)
        json_decref(r.lines.line[i].row);
    free(r.lines.line);
    globfree(&r.files);
    if (rc)
        preference_data_close(d);
    else
        digest_all(d);
    return rc;
}

void preference_data_close(struct preference_data *d)
{
    free(d->id);
    free(d->trained);
    free(d->text);
    free(d->desired);
    free(d->reference);
    *d = (struct preference_data){.rows = 0};
}

void preference_data_read(const struct preference_data *d, int64_t row, int64_t length,
                          int32_t *tokens, int32_t *targets)
{
    for (int k = 0; k < PREFERENCE_TEXTS; k++, tokens += length, targets += length) {
        const struct preference_text *s = &d->text[row][k];
        const int32_t *id = d->id + s->begin;
        for (int64_t i = 0; i < length; i++) {
            const bool next = i + 1 < s->n;
            tokens[i] = i < s->n ? id[i] : 0;
            targets[i] = next && d->trained[s->begin + i + 1] ? id[i + 1] : DATASET_IGNORED;
        }
    }
}
