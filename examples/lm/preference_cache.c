/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --reference-cache: the log-probabilities that the weights of the start give to all texts of
 * --data and --val, in a safetensors file:
 *
 *   data, validation   F32 [samples, 2]; validation is missing without --val
 *   digest             I32 [4]: of the tokens and labels of both, 64 bits each
 *
 * A run that begins computes the first batch again, so that a file of other weights is refused.  A
 * resumed run has other weights: its state has the digest of the file's values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/digest.h"
#include "../common/memory.h"
#include "../common/tensors.h"
#include "ckpt_dist.h"
#include "preference.h"
#include "run.h"

enum { TEXTS = PREFERENCE_TEXTS, DIGEST = 4 };

bool preference_is_cached(const struct lm_run *r)
{
    return r->options.preference.cache != NULL;
}

static const char *path_of(const struct lm_run *r)
{
    return r->options.preference.cache;
}

static bool is_begun(const struct lm_run *r)
{
    return r->options.train.state.from != NULL;
}

static void set_digest(const struct preference *p, int32_t digest[DIGEST])
{
    const uint64_t all[] = {p->data.digest, p->validation.digest};

    for (int i = 0; i < DIGEST; i++)
        digest[i] = (int32_t)(uint32_t)(all[i / 2] >> 32 * (i % 2));
}

/* ---- computing ------------------------------------------------------------------------------- */

/* Feeds `batch` rows of a set from `first` on, in the order of the file and around its end, and
 * runs the program; p->result has their log-probabilities. */
static int run_rows(struct lm_run *r, const struct preference_data *d, int64_t first)
{
    struct preference *p = &r->preference;
    const int64_t batch = r->options.train.batch, length = r->preference.length;
    const int64_t n = batch * TEXTS, bytes = n * length * (int64_t)sizeof *p->tokens;

    for (int64_t i = 0; i < batch; i++)
        preference_data_read(d, (first + i) % d->rows, length, p->tokens + i * TEXTS * length,
                             p->targets + i * TEXTS * length);
    return ckpt_feed(p->reference, "tokens", p->tokens, bytes) ||
                   ckpt_feed(p->reference, "targets", p->targets, bytes) ||
                   ckpt_step(p->reference, NULL) ||
                   ckpt_fetch(p->reference, "logps", p->result, n * (int64_t)sizeof(float))
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

/* Each group of ranks computes a batch of every `groups` of them; its first rank's is taken. */
static int compute_set(struct lm_run *r, struct preference_data *d)
{
    const int64_t batch = r->options.train.batch, ranks = ckpt_ranks(r->context);
    const int64_t groups = ckpt_sample_groups(r->context);
    const size_t bytes = (size_t)batch * sizeof *d->reference;
    float(*all)[TEXTS] = MEMORY_FOR(sizeof *all, ranks, batch);

    d->reference = MEMORY_FOR(sizeof *d->reference, d->rows ? d->rows : 1);
    int rc = all && d->reference
                 ? 0
                 : say_fail("no memory for the reference of %lld samples", (long long)d->rows);
    for (int64_t first = 0; first < d->rows && !rc; first += groups * batch) {
        rc = run_rows(r, d, first + ckpt_sample_group(r->context) * batch);
        if (!rc && ckpt_gather_ranks(r->context, r->preference.result, bytes, all))
            rc = say_fail("%s", ckpt_error(r->context));
        for (int64_t g = 0, at = first; g < groups && at < d->rows && !rc; g++, at += batch)
            memcpy(d->reference + at, all + g * (ranks / groups) * batch,
                   (size_t)(d->rows - at < batch ? d->rows - at : batch) * sizeof *all);
    }
    free(all);
    return rc;
}

static int write_file(const struct lm_run *r)
{
    const struct preference *p = &r->preference;
    int32_t digest[DIGEST];
    const struct tensor tensors[] = {
        {"data", CKPT_F32, 2, (int64_t[]){p->data.rows, TEXTS}, p->data.reference},
        {"validation", CKPT_F32, 2, (int64_t[]){p->validation.rows, TEXTS},
         p->validation.rows ? p->validation.reference : NULL},
        {"digest", CKPT_I32, 1, (int64_t[]){DIGEST}, digest}};

    set_digest(p, digest);
    return ckpt_rank(r->context) ? 0 : tensors_write(path_of(r), 3, tensors);
}

static int compute(struct lm_run *r)
{
    if (is_begun(r))
        return say_fail("--reference-cache %s: is not there, and the weights of a state are not "
                        "those of the start; give the file that the first run wrote",
                        path_of(r));
    if (compute_set(r, &r->preference.data) || compute_set(r, &r->preference.validation) ||
        write_file(r))
        return -1;
    say_print("reference: log-probabilities of %lld samples in %s\n",
              (long long)(r->preference.data.rows + r->preference.validation.rows), path_of(r));
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int check_digest(const struct lm_run *r, ckpt_file *f)
{
    struct ckpt_file_entry e;
    int32_t want[DIGEST], has[DIGEST];
    int i = tensor_find(f, path_of(r), "digest", 1, (int64_t[]){DIGEST}, &e);

    if (i < 0)
        return -1;
    if (ckpt_file_read_i32(f, i, has, DIGEST))
        return say_fail("%s: %s", path_of(r), ckpt_error(NULL));
    set_digest(&r->preference, want);
    if (memcmp(want, has, sizeof want))
        return say_fail("--reference-cache %s: was computed for other data, tokens or --length; "
                        "give another FILE, or remove this one",
                        path_of(r));
    return 0;
}

static int read_set(const struct lm_run *r, ckpt_file *f, const char *name,
                    struct preference_data *d)
{
    int64_t shape[] = {d->rows, TEXTS};

    if (!d->rows || d->reference)
        return 0;
    d->reference = (float(*)[TEXTS])tensor_read(f, path_of(r), name, 2, shape);
    return d->reference ? 0 : -1;
}

static int read_file(struct lm_run *r)
{
    ckpt_file *f;

    if (ckpt_file_open(&f, path_of(r)))
        return say_fail("--reference-cache %s: %s", path_of(r), ckpt_error(NULL));
    int rc = check_digest(r, f) || read_set(r, f, "data", &r->preference.data) ||
                     read_set(r, f, "validation", &r->preference.validation)
                 ? -1
                 : 0;
    ckpt_file_close(f);
    return rc;
}

/* The first batch again: rounding may differ on another device, and texts in bf16. */
static int check_weights(struct lm_run *r)
{
    const struct preference_data *d = &r->preference.data;
    const int64_t n = r->options.train.batch * TEXTS;
    const double share = strcmp(r->options.dtype, "bf16") ? 1e-4 : 2e-2;

    if (is_begun(r))
        return 0;
    if (run_rows(r, d, 0))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        const double was = (double)d->reference[i / TEXTS % d->rows][i % TEXTS];
        if (fabs((double)r->preference.result[i] - was) > share * (fabs(was) + 1))
            return say_fail("--reference-cache %s: was computed with other weights: %g is the "
                            "log-probability of the first text that differs, and %g there; give "
                            "another FILE, or remove this one",
                            path_of(r), (double)r->preference.result[i], was);
    }
    return 0;
}

/* All ranks must do the same. */
static int find_file(const struct lm_run *r, bool *found)
{
    const int ranks = ckpt_ranks(r->context);
    const char own = !access(path_of(r), F_OK);
    char *all = malloc((size_t)ranks);
    int rc = all ? 0 : say_fail("no memory for %d ranks", ranks);

    if (!rc && ckpt_gather_ranks(r->context, &own, 1, all))
        rc = say_fail("%s", ckpt_error(r->context));
    for (int i = 0; i < ranks && !rc; i++)
        if (all[i] != own)
            rc = say_fail("--reference-cache %s: some ranks see this file, and others do not",
                          path_of(r));
    *found = own;
    free(all);
    return rc;
}

int preference_cache_open(struct lm_run *r)
{
    bool found;

    if (r->preference.data.reference) /* a resumed run read it for its note */
        return 0;
    if (find_file(r, &found))
        return -1;
    return found ? read_file(r) || check_weights(r) ? -1 : 0 : compute(r);
}

/* ---- states ---------------------------------------------------------------------------------- */

static uint64_t sum_of(const struct preference_data *d)
{
    return digest_bytes(DIGEST_START, d->reference, (size_t)d->rows * sizeof *d->reference);
}

int preference_note(struct lm_run *r)
{
    char text[32];

    if (!preference_is_cached(r))
        return 0;
    if (is_begun(r) && preference_cache_open(r))
        return -1;
    if (!r->preference.data.reference) /* a run that begins computes it before its first step */
        return 0;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum_of(&r->preference.data));
    return ckpt_state_note(r->context, "log-probabilities of the reference", text)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}
