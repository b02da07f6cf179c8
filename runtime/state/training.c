/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads the state of training: see ckpt_files.h. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "core/frozen.h"
#include "core/mean8.h"
#include "dist/values.h"
#include "state/base_weights.h"
#include "state/state_counts.h"
#include "state/run_notes.h"
#include "state/saving.h"

int64_t ckpt_updates(const ckpt *c)
{
    if (!c)
        return 0;
    return c->params.updates;
}

/* ---- what there is ------------------------------------------------------------------------- */

/* Values come first, because setting them may reset the moving averages. */
static const struct {
    enum ckpt_slot slot;
    const char *prefix;
} kinds[] = {{CKPT_VALUE, "value/"},
             {CKPT_EXP_AVG, "exp_avg/"},
             {CKPT_EXP_AVG_SQ, "exp_avg_sq/"},
             {CKPT_EMA, "ema/"},
             {CKPT_EXP_AVG_SQ_ROW, "exp_avg_sq_row/"},
             {CKPT_EXP_AVG_SQ_COL, "exp_avg_sq_col/"}};

enum { KINDS = sizeof kinds / sizeof *kinds };

struct state {
    ckpt *c;
    const char *path;
    struct save_item *items;        /* slots of the context */
    struct training_count *program; /* the training programs, in the order they were compiled */
    int n_items, n_programs;
};

/* all: also those that states leave out. */
static void list_items(struct state *s, bool all)
{
    for (int i = 0; i < ckpt_param_count(s->c); i++)
        for (int k = 0; k < KINDS; k++) {
            ckpt_tensor param = ckpt_param_at(s->c, i);
            const struct param *p = params_at(&s->c->params, param);
            const bool apart = kinds[k].slot == CKPT_VALUE && param_is_apart(&s->c->params, p);
            if (!p->cache && (all || !apart) && values_kept(&s->c->ranks, p, kinds[k].slot))
                s->items[s->n_items++] = (struct save_item){.c = s->c,
                                                            .param = param,
                                                            .slot = kinds[k].slot,
                                                            .prefix = kinds[k].prefix,
                                                            .as_stored = true};
        }
}

static int check_idle(const struct state *s)
{
    if (!s->n_programs)
        return error_set(CKPT_EINVAL, "%s: no program of this context trains: compile it first",
                         s->path);
    if (!programs_are_idle(&s->c->programs))
        return error_set(CKPT_EINVAL, "%s: a step is under way: call ckpt_wait before", s->path);
    if (s->c->options.plan_only)
        return error_set(CKPT_EINVAL,
                         "%s: programs that were only planned (--plan-only) have no state",
                         s->path);
    return params_check_lost(&s->c->params);
}

static int state_open(struct state *s, ckpt *c, const char *path, bool all)
{
    *s = (struct state){.c = c, .path = path, .n_programs = programs_count_training(&c->programs)};
    s->items = calloc((size_t)ckpt_param_count(c) * KINDS + 1, sizeof *s->items);
    s->program = calloc((size_t)s->n_programs + 1, sizeof *s->program);
    if (!s->items || !s->program)
        return error_set(CKPT_ENOMEM, "%s: no memory to list its contents", path);
    list_items(s, all);
    programs_get_counts(&c->programs, s->program);
    return check_idle(s);
}

static void state_close(struct state *s)
{
    free(s->items);
    free(s->program);
}

/* ---- saving -------------------------------------------------------------------------------- */

/* The steps or the samples per step of each program, separated by blanks.  The caller frees it. */
static char *format_counts(const struct state *s, bool steps)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (int i = 0; i < s->n_programs; i++)
        fprintf(f, "%s%lld", i ? " " : "",
                (long long)(steps ? s->program[i].steps : s->program[i].samples));
    text_close(f, &text);
    return text;
}

/* The weights that the state leaves out, if there are some. */
static int note_base(const struct state *s, struct note_list *all)
{
    bool any;
    char *text = s->c->params.base ? base_describe(&s->c->params, &any) : NULL;
    int rc = text || !s->c->params.base ? 0 : CKPT_ENOMEM;

    if (text && any)
        rc = note_set(all, NOTE_BASE, text);
    if (text && any && !rc)
        rc = note_set(all, NOTE_BASE_FROM, s->c->params.base);
    free(text);
    return rc;
}

/* The counts, then the notes of the run.  Returns 0 or CKPT_ENOMEM. */
static int fill_notes(const struct state *s, const struct note_list *run, struct note_list *all)
{
    char updates[24], seed[24];
    char *steps = format_counts(s, true), *batches = format_counts(s, false);

    snprintf(updates, sizeof updates, "%lld", (long long)s->c->params.updates);
    snprintf(seed, sizeof seed, "%lld", (long long)s->c->options.seed);
    int rc = steps && batches ? note_set(all, NOTE_VERSION, STATE_VERSION) : CKPT_ENOMEM;
    if (!rc)
        rc = note_set(all, NOTE_UPDATES, updates);
    if (!rc)
        rc = note_set(all, NOTE_SEED, seed);
    if (!rc)
        rc = note_set(all, NOTE_STEPS, steps);
    if (!rc)
        rc = note_set(all, NOTE_BATCHES, batches);
    free(steps);
    free(batches);
    if (!rc)
        rc = note_base(s, all);
    for (int32_t i = 0; i < run->n && !rc; i++) {
        char *key = state_note_key(run->data[i].name);
        rc = key ? note_set(all, key, run->data[i].text) : CKPT_ENOMEM;
        free(key);
    }
    return rc;
}

static bool is_kept(const char *path)
{
    return !strcmp(path, CKPT_PEERS);
}

static int save(struct state *s)
{
    struct note_list run = {0}, all = {0};
    int rc = state_list_notes(s->c, &run);

    if (!rc)
        rc = fill_notes(s, &run, &all);
    note_list_free(&run);
    if (rc)
        rc = ranks_give_up(&s->c->ranks, error_set(rc, "%s: no memory to write it", s->path));
    else if (is_kept(s->path))
        rc = saving_keep(s->c, s->items, s->n_items, &all);
    else
        rc = saving_begin(s->c, s->path, s->items, s->n_items, &all);
    note_list_free(&all);
    return rc;
}

int64_t ckpt_state_bytes(ckpt *c)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    struct state s;
    int64_t bytes = state_open(&s, c, "the size of a state", false);

    for (int i = 0; i < s.n_items && bytes >= 0; i++)
        bytes += save_item_bytes(&s.items[i]);
    state_close(&s);
    return bytes;
}

int ckpt_save_state(ckpt *c, const char *path)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    struct state s;
    int rc = is_kept(path) ? 0 : saving_wait(c);

    if (rc)
        return rc;
    rc = state_open(&s, c, path, false);
    if (!rc)
        rc = params_check_whole(&c->params);
    if (!rc)
        rc = save(&s);
    state_close(&s);
    return ranks_give_up(&c->ranks, rc);
}

int ckpt_save_wait(ckpt *c)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    return saving_wait(c);
}

bool ckpt_is_saving(const ckpt *c)
{
    return c && c->saving;
}

/* ---- is it of such a run ------------------------------------------------------------------- */

/* May a program use another number of samples per step than the state? */
static bool allow_samples(const struct differences *d, int64_t was, int64_t is)
{
    char before[24], now[24];

    snprintf(before, sizeof before, "%lld", (long long)was);
    snprintf(now, sizeof now, "%lld", (long long)is);
    return was == is || (d->allow && d->allow(d->user, "ckpt.step_samples", before, now));
}

static int check_programs(const struct state *s, const ckpt_file *f, const struct state_counts *n,
                          const struct differences *d)
{
    if (n->seed != s->c->options.seed)
        return error_set(CKPT_EINVAL, "%s: was made with --seed %lld, this run has %lld", f->path,
                         (long long)n->seed, (long long)s->c->options.seed);
    if (n->n_programs != s->n_programs)
        return error_set(CKPT_EINVAL, "%s: has %d trained program%s, this run has %d", f->path,
                         n->n_programs, n->n_programs == 1 ? "" : "s", s->n_programs);
    for (int i = 0; i < s->n_programs; i++)
        if (!allow_samples(d, n->batches[i], s->program[i].samples))
            return error_set(
                CKPT_EINVAL, "%s: program %d trained on %lld samples a step, here it takes %lld",
                f->path, i + 1, (long long)n->batches[i], (long long)s->program[i].samples);
    return 0;
}

/* ---- loading ------------------------------------------------------------------------------- */

static bool is_mean(const struct save_item *item)
{
    return item->slot == CKPT_EXP_AVG || item->slot == CKPT_EXP_AVG_SQ;
}

/* Does the tensor hold codes, of an 8-bit mean or a frozen weight? */
static bool is_coded(const struct save_item *item, const struct file_tensor *e)
{
    const struct ckpt_desc *d = &params_at(&item->c->params, item->param)->desc;
    bool weight = item->slot == CKPT_VALUE && frozen_takes(desc_numel(d));

    return (is_mean(item) || weight) && !strcmp(e->dtype->name, "I32");
}

/* Number of words for n coded values; for weights, the word count in the file determines the
 * format. */
static int64_t count_words(const struct save_item *item, const struct file_tensor *e, int64_t n)
{
    const int format = frozen_format_of_words(n, e->numel);

    return is_mean(item) ? mean8_words(n) : frozen_words(format ? format : FROZEN_NF4, n);
}

static int check_tensor(const ckpt_file *f, const struct save_item *item, int entry)
{
    const struct file_tensor *e = &f->tensors[entry];
    const struct param *p = params_at(&item->c->params, item->param);
    struct ckpt_desc d = values_file_desc(p, item->slot);

    /* dtype and shape of this run, unless another dtype was allowed: see NOTE_STATE and
     * NOTE_FROZEN. */
    if (is_coded(item, e))
        d = (struct ckpt_desc){.ndim = 1, .shape = {count_words(item, e, desc_numel(&p->desc))}};
    else if (strcmp(e->dtype->name, "F32") && strcmp(e->dtype->name, "BF16"))
        return file_bad(f->path, "tensor '%s' is %s; a state is fp32, bf16 or 8bit", e->name,
                        e->dtype->name);
    if (e->ndim == d.ndim && !memcmp(e->shape, d.shape, (size_t)d.ndim * sizeof *d.shape))
        return 0;
    return file_shape_unfit(f->path, e, &d);
}

/* What to do where the state has other ranges of --qat, or "". */
static const char *cure(const char *name)
{
    return strstr(name, ".input_range") || strstr(name, ".input_scale_")
               ? ": give --qat and --qat-ranges as in the saved run, or start from its weights"
               : "";
}

static int lacks(const ckpt_file *f, const char *name)
{
    return error_set(CKPT_ENAME, "%s: lacks '%s', which this run keeps%s", f->path, name,
                     cure(name));
}

/* Validates the entry of an item and marks it as used.  Returns 1 if the state leaves it out. */
static int match_item(const ckpt_file *f, const struct base *base, const struct save_item *item,
                      bool *used)
{
    char *name = save_name(item);

    if (!name)
        return error_set(CKPT_ENOMEM, "%s: no memory to match its names", f->path);
    const int entry = ckpt_file_find(f, name);
    const bool may_lack = entry < 0 && item->slot == CKPT_VALUE;
    int rc = may_lack ? base_match(base, params_at(&item->c->params, item->param)) : 0;
    if (!rc && entry < 0)
        rc = lacks(f, name);
    free(name);
    if (rc)
        return rc;
    used[entry] = true;
    return check_tensor(f, item, entry);
}

/* Keeps the items that the file has. */
static int match_all(struct state *s, const ckpt_file *f)
{
    bool *used = calloc((size_t)f->count + 1, sizeof *used);
    struct base base = {.all = NULL};
    int kept = 0, rc = used ? base_open(&base, f)
                            : error_set(CKPT_ENOMEM, "%s: no memory to match its names", f->path);

    for (int i = 0; i < s->n_items && rc >= 0; i++) {
        rc = match_item(f, &base, &s->items[i], used);
        if (!rc)
            s->items[kept++] = s->items[i];
    }
    s->n_items = kept;
    rc = rc < 0 ? rc : base_check_names(&base, &s->c->params);
    base_close(&base);
    for (int i = 0; i < f->count && !rc; i++)
        if (!used[i])
            rc = error_set(CKPT_ENAME, "%s: has '%s', which this run does not keep%s", f->path,
                           f->tensors[i].name, cure(f->tensors[i].name));
    free(used);
    return rc;
}

/* Reads the values of an item.  They are in the axis order of files, or if *own, in the
 * parameter's. */
static int read_item(ckpt_file *f, const struct save_item *item, float *dst, int64_t n, bool *own)
{
    char *name = save_name(item);
    int entry = name ? ckpt_file_find(f, name) : -1;

    free(name);
    if (!name)
        return error_set(CKPT_ENOMEM, "%s: no memory for a name", f->path);
    *own = is_coded(item, &f->tensors[entry]);
    if (!*own)
        return ckpt_file_read_f32(f, entry, dst, n);
    const int64_t count = f->tensors[entry].numel;
    int32_t *words = malloc((size_t)count * sizeof *words);
    int rc = words ? ckpt_file_read_i32(f, entry, words, count)
                   : error_set(CKPT_ENOMEM, "%s: no memory to read a tensor", f->path);
    if (!rc && is_mean(item))
        mean8_from(words, n, item->slot == CKPT_EXP_AVG_SQ, dst);
    else if (!rc)
        frozen_decode_as(words, n, frozen_format_of_words(n, count),
                         params_at(&item->c->params, item->param)->desc.dtype, dst);
    free(words);
    return rc;
}

static int fail_values(const ckpt_file *f, const struct save_item *item)
{
    char *name = save_name(item);
    int rc = file_bad(f->path, "tensor '%s' has values that are not finite", name ? name : "");

    free(name);
    return rc;
}

/* 1: a file of weights has set this value, which states leave out; 0: none has; else a code. */
static int has_value(const struct save_item *item, const float *value, int64_t n, float *own)
{
    const struct param *p = params_at(&item->c->params, item->param);

    if (item->slot != CKPT_VALUE || !param_is_apart(&item->c->params, p))
        return 0;
    const int rc = values_get(&item->c->ranks, p, CKPT_VALUE, own);
    return rc ? rc : !memcmp(value, own, (size_t)n * sizeof *own);
}

/* buffer holds the largest parameter three times. */
static int load_item(ckpt_file *f, const struct save_item *item, float *buffer, int64_t largest)
{
    const struct param *p = params_at(&item->c->params, item->param);
    struct ckpt_desc d = values_file_desc(p, item->slot);
    int64_t n = desc_numel(&d);
    float *value = buffer;
    bool own = false;
    int rc = read_item(f, item, buffer, n, &own);

    if (!rc && !floats_are_finite(buffer, n))
        rc = fail_values(f, item);
    if (rc)
        return rc;
    if (p->reordered && !own && !values_is_factor(item->slot)) {
        value = buffer + largest;
        param_from_file(p, buffer, value);
    }
    rc = has_value(item, value, n, buffer + 2 * largest);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = ckpt_param_set(item->c, item->param, item->slot, value, n);
    return rc ? error_set(rc, "%s: %s", f->path, ckpt_error(item->c)) : 0;
}

static int load_all(const struct state *s, ckpt_file *f)
{
    int64_t largest = 0;
    int rc = 0;

    for (int i = 0; i < s->n_items; i++)
        largest = max_i64(largest, desc_numel(&params_at(&s->c->params, s->items[i].param)->desc));
    float *buffer = malloc(3 * (size_t)largest * sizeof *buffer + 1);
    if (!buffer)
        return error_set(CKPT_ENOMEM, "%s: no memory to read a tensor of %s", f->path,
                         human_bytes(largest * (int64_t)sizeof *buffer));
    s->c->params.torn = TORN_STATE; /* until all items are set */
    for (int i = 0; i < s->n_items && !rc; i++)
        rc = load_item(f, &s->items[i], buffer, largest);
    if (!rc)
        s->c->params.torn = TORN_NOT;
    free(buffer);
    return rc;
}

static int load(struct state *s, ckpt_file *f, struct differences *d)
{
    struct state_counts n;
    int rc = state_counts_read(f, &n);

    if (!rc)
        rc = check_programs(s, f, &n, d);
    if (!rc)
        rc = state_compare_notes(s->c, f, d);
    if (!rc)
        rc = match_all(s, f);
    if (!rc)
        rc = load_all(s, f);
    if (!rc) {
        programs_set_counts(&s->c->programs, n.steps, n.updates);
    }
    state_counts_free(&n);
    return rc;
}

int ckpt_load_state_changed(ckpt *c, const char *path, ckpt_state_change allow, void *user)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    struct state s;
    struct differences d = {.allow = allow, .user = user};
    struct kept_state kept = {.c = c};
    ckpt_file *f = NULL;
    int rc = saving_wait(c);

    if (rc)
        return rc;
    rc = state_open(&s, c, path, true);
    if (!rc) {
        rc = is_kept(path) ? saving_open_kept(c, &kept, &f) : ckpt_file_open(&f, path);
        if (!rc)
            rc = load(&s, f, &d);
        ckpt_file_close(f);
        peers_state_free(&kept.peers);
    }
    if (!rc) /* each rank has read the file by itself */
        rc = ranks_agree_loaded(&c->ranks, programs_digest_steps(&c->programs));
    state_close(&s);
    return ranks_give_up(&c->ranks, rc);
}

int ckpt_load_state(ckpt *c, const char *path)
{
    return ckpt_load_state_changed(c, path, NULL, NULL);
}
