/* SPDX-License-Identifier: Apache-2.0 */
/* Files of conversations as training data: see chat_data.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/digest.h"
#include "../common/say.h"
#include "chat_data.h"

static const char *const choices[] = {
    [CHAT_REFUSE] = "refuse", [CHAT_CUT] = "cut", [CHAT_DROP] = "drop"};

int chat_too_long(const char *name)
{
    if (!name)
        return CHAT_REFUSE;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, choices[i]))
            return i;
    return say_fail("--too-long %s: give refuse, cut or drop", name);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

bool chat_is_data(const char *pattern)
{
    return ends_with(pattern, ".jsonl") || ends_with(pattern, ".json");
}

/* The files as they are read: tokens of the open one, samples of all. */
struct files {
    const struct chat_opening *how;
    struct chat_counts *counts;
    int32_t *id; /* of the open file */
    bool *trained;
    int64_t n, room;
    struct piece *sample;
    int64_t samples, sample_room;
    bool **all_trained; /* of each file that was read */
    int32_t read;
};

static void add_digest(struct chat_counts *c, const struct chat_ids *ids)
{
    uint64_t h = (uint64_t)c->digest ^ DIGEST_START;

    for (int64_t i = 0; i < ids->n; i++)
        h = digest_word(h, (uint64_t)(uint32_t)ids->id[i] << 1 | ids->trained[i]);
    c->digest = (int64_t)(h & INT64_MAX);
}

static int64_t count_trained(const struct chat_ids *ids)
{
    int64_t n = 0;

    for (int64_t i = 1; i < ids->n; i++)
        n += ids->trained[i];
    return n;
}

static int make_room(struct files *f, int64_t n)
{
    if (f->n + n > f->room) {
        const int64_t room = 2 * (f->n + n);
        int32_t *id = realloc(f->id, (size_t)room * sizeof *id);
        f->id = id ? id : f->id;
        bool *trained = realloc(f->trained, (size_t)room * sizeof *trained);
        f->trained = trained ? trained : f->trained;
        if (!id || !trained)
            return say_fail("no memory for %lld tokens", (long long)room);
        f->room = room;
    }
    if (f->samples == f->sample_room) {
        const int64_t room = 2 * f->sample_room + 256;
        struct piece *grown = realloc(f->sample, (size_t)room * sizeof *grown);
        if (!grown)
            return say_fail("no memory for %lld samples", (long long)room);
        f->sample = grown;
        f->sample_room = room;
    }
    return 0;
}

/* Sets *kept: false: the conversation is left out, as the options say. */
static int check_length(struct files *f, const char *where, struct chat_ids *ids, bool *kept)
{
    const int64_t most = f->how->length + 1;
    bool cut = ids->n > most;

    *kept = true;
    if (cut && f->how->too_long == CHAT_REFUSE)
        return say_fail("%s: %lld tokens are more than --length %lld and the next one: give a "
                        "longer --length, or --too-long cut or drop",
                        where, (long long)ids->n, (long long)f->how->length);
    if (cut && f->how->too_long == CHAT_CUT)
        ids->n = most;
    else
        *kept = !cut;
    if (*kept && !count_trained(ids)) {
        if (!cut)
            return say_fail("%s: there is no token to train on", where);
        *kept = false;
    }
    f->counts->cut += cut && *kept;
    f->counts->dropped += !*kept;
    return 0;
}

static int check_ids(const struct files *f, const char *where, const struct chat_ids *ids)
{
    for (int64_t i = 0; i < ids->n; i++)
        if (ids->id[i] >= f->how->limit)
            return say_fail("%s: token %ld, and the model has %lld", where, (long)ids->id[i],
                            (long long)f->how->limit);
    return 0;
}

static int add_ids(struct files *f, const char *where, struct chat_ids *ids)
{
    bool kept;

    if (check_ids(f, where, ids) || check_length(f, where, ids, &kept))
        return -1;
    if (!kept)
        return 0;
    if (make_room(f, ids->n))
        return -1;
    f->sample[f->samples++] = (struct piece){f->n, (int32_t)(ids->n - 1), f->read};
    memcpy(f->id + f->n, ids->id, (size_t)ids->n * sizeof *f->id);
    memcpy(f->trained + f->n, ids->trained, (size_t)ids->n * sizeof *f->trained);
    f->n += ids->n;
    f->counts->trained += count_trained(ids);
    add_digest(f->counts, ids);
    return 0;
}

static int take(void *user, const char *where, const json_t *object)
{
    struct files *f = user;
    struct chat_ids ids;
    const json_t *tools;
    json_t *messages = conversation_messages(where, object, &tools);

    if (!messages)
        return -1;
    int rc = chat_encode(f->how->chat, where, messages, tools, 0, &ids);
    if (!rc) {
        f->counts->conversations++;
        f->counts->turns += ids.turns;
        f->counts->untrained += ids.untrained;
        rc = add_ids(f, where, &ids);
        chat_ids_close(&ids);
    }
    json_decref(messages);
    return rc;
}

/* A token_encoder. */
static int32_t *encode(void *user, const char *path, const char *text, int64_t bytes, int64_t *n)
{
    struct files *f = user;
    bool **grown = realloc(f->all_trained, (size_t)(f->read + 1) * sizeof *grown);

    f->all_trained = grown ? grown : f->all_trained;
    if (!grown || conversations_each(path, text, bytes, take, f))
        return NULL;
    if (!f->n) {
        say_fail("%s: there is no conversation in it%s", path,
                 f->counts->dropped ? " that is short enough" : "");
        return NULL;
    }
    int32_t *ids = f->id;
    grown[f->read++] = f->trained;
    *n = f->n;
    f->id = NULL;
    f->trained = NULL;
    f->n = f->room = 0;
    return ids;
}

/* The masks go to the shards. */
static int hand_over(struct files *f, struct tokens *t)
{
    int rc = f->read == t->n ? 0
                             : say_fail("%s: files of tokens are among those of conversations",
                                        t->shard[0].path);

    for (int i = 0; i < f->read && !rc; i++) {
        t->shard[i].held_trained = f->all_trained[i];
        f->all_trained[i] = NULL;
    }
    if (rc)
        tokens_close(t);
    return rc;
}

int chat_data_open(struct dataset *d, const char *pattern, const struct chat_opening *how,
                   struct chat_counts *counts)
{
    struct files f = {.how = how, .counts = counts};
    struct tokens t;

    *counts = (struct chat_counts){0};
    int rc = tokens_open(&t, pattern, encode, &f) ? -1 : hand_over(&f, &t);
    if (!rc) {
        rc = dataset_open_samples(d, &t, f.sample, f.samples, how->packs, how->length, how->limit,
                                  how->seed, how->shuffled);
        f.sample = NULL;
    }
    for (int i = 0; i < f.read; i++)
        free(f.all_trained[i]);
    free(f.all_trained);
    free(f.id);
    free(f.trained);
    free(f.sample);
    return rc;
}
