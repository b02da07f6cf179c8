/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the counts of a training state into validated numbers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "state/state_counts.h"

/* Parses the next number in [low, high] of a note and advances *text.  Accepts digits and, if low
 * is negative, a minus sign; no blanks, which strtoll would skip. */
static bool next_number(const char **text, int64_t low, int64_t high, int64_t *value)
{
    const char *at = *text + (low < 0 && **text == '-');
    char *end;

    if (*at < '0' || *at > '9')
        return false;
    errno = 0;
    *value = strtoll(*text, &end, 10);
    *text = end;
    return !errno && *value >= low && *value <= high;
}

/* Reads exactly n numbers separated by single blanks; otherwise sets a CKPT_EFORMAT sentence. */
static int read_numbers(const ckpt_file *f, const char *key, int64_t low, int64_t high, int n,
                        int64_t *values)
{
    const char *text = file_find_note(f, key), *at = text;
    bool good = text != NULL;

    for (int i = 0; good && i < n; i++)
        good = (!i || *at++ == ' ') && next_number(&at, low, high, &values[i]);
    if (good && !*at)
        return 0;
    return file_bad(f->path, "the note '%s' is \"%.100s\", not %d whole number%s from %lld to %lld",
                    key, text ? text : "", n, n == 1 ? "" : "s", (long long)low, (long long)high);
}

static int check_version(const ckpt_file *f)
{
    const char *version = file_find_note(f, NOTE_VERSION);

    if (!version)
        return file_bad(f->path,
                        "is not a state of training; weights alone are read by ckpt_load_params "
                        "(--load)");
    if (strcmp(version, STATE_VERSION))
        return file_bad(f->path,
                        "is a state of version %.20s; this library reads version " STATE_VERSION,
                        version);
    return 0;
}

static int count_programs(const ckpt_file *f)
{
    const char *text = file_find_note(f, NOTE_STEPS);
    int n = text && *text ? 1 : 0;

    for (; text && *text; text++)
        n += *text == ' ';
    return n;
}

/* Every step was an update.  Programs that were closed may have made more updates. */
static int check_sum(const ckpt_file *f, const struct state_counts *n)
{
    int64_t sum = 0;

    for (int i = 0; i < n->n_programs && sum <= n->updates; i++)
        sum += n->steps[i];
    if (sum <= n->updates)
        return 0;
    return file_bad(f->path, "counts %lld updates, which are fewer than the steps of its programs",
                    (long long)n->updates);
}

int state_counts_read(const ckpt_file *f, struct state_counts *n)
{
    *n = (struct state_counts){0};
    int rc = check_version(f);

    if (rc)
        return rc;
    n->n_programs = count_programs(f);
    n->steps = calloc((size_t)n->n_programs + 1, sizeof *n->steps);
    n->batches = calloc((size_t)n->n_programs + 1, sizeof *n->batches);
    if (!n->steps || !n->batches)
        return error_set(CKPT_ENOMEM, "%s: no memory to read it", f->path);
    rc = read_numbers(f, NOTE_UPDATES, 0, COUNT_MAX, 1, &n->updates);
    if (!rc)
        rc = read_numbers(f, NOTE_SEED, INT64_MIN, INT64_MAX, 1, &n->seed);
    if (!rc)
        rc = read_numbers(f, NOTE_STEPS, 0, COUNT_MAX, n->n_programs, n->steps);
    if (!rc)
        rc = read_numbers(f, NOTE_BATCHES, 1, COUNT_MAX, n->n_programs, n->batches);
    return rc ? rc : check_sum(f, n);
}

void state_counts_free(struct state_counts *n)
{
    free(n->steps);
    free(n->batches);
    *n = (struct state_counts){0};
}
