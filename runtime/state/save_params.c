/* SPDX-License-Identifier: Apache-2.0 */
/* Saves parameters: which of them, under which names, and what their file says about them. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dist/values.h"
#include "state/adapters.h"

/* A parameter that is not trained (by its own flag or a frozen group) has only the value slot. */
static enum ckpt_slot kept_or_value(ckpt *c, const struct param *p, enum ckpt_slot slot)
{
    bool trained = p->trainable;

    if (slot < CKPT_VALUE || slot > CKPT_EXP_AVG_SQ_COL)
        return slot;
    for (int32_t i = 0; trained && slot != CKPT_VALUE && i < c->params.n; i++)
        if (values_kept(&c->ranks, &c->params.data[i], slot))
            trained = values_kept(&c->ranks, p, slot);
    return trained ? slot : CKPT_VALUE;
}

/* What a call selects, and how it is written. */
struct selection {
    enum ckpt_slot slot;
    ckpt_param_filter choose;
    ckpt_name_alias alias;
    void *user;
    const struct file_note *note; /* NULL: none */
    bool merged;
    bool int8; /* weights that --qat rounds as codes */
};

static int add_alias(struct save_item *s, const struct selection *by, const char *name)
{
    char alias[256];

    if (by->alias && by->alias(by->user, name, 0, alias, sizeof alias)) {
        s->alias = strdup(alias);
        return s->alias ? 0 : CKPT_ENOMEM;
    }
    return 0;
}

/* Copies of the item at the place `at`, one for each part. */
static int make_parts(struct save_item *items, int at, int n)
{
    for (int i = 0; i < n; i++) {
        items[at + i] = items[at];
        items[at + i].part = i + 1;
    }
    return n;
}

/* The items after that of a parameter; returns the number of all, or a negative code. */
static int add_others(struct save_item *items, const struct selection *by, const struct param *p)
{
    if (by->int8 && p->training.qat.used)
        return save_int8_items(items, p);
    return adapters_alpha_items(items);
}

/* Fills the items; returns their number, or a negative code. */
static int select_items(ckpt *c, const struct selection *by, struct save_item *items)
{
    int all = ckpt_param_count(c), n = 0, rc = 0;

    for (int i = 0; i < all && !rc; i++) {
        ckpt_tensor param = ckpt_param_at(c, i);
        const struct param *p = params_at(&c->params, param);
        bool left_out = p->cache || (by->merged && p->training.adapter) ||
                        (by->int8 && p->training.qat.is_range);
        if (left_out || (by->choose && !by->choose(by->user, p->name)))
            continue;
        items[n] = (struct save_item){.c = c,
                                      .param = param,
                                      .slot = kept_or_value(c, p, by->slot),
                                      .prefix = "",
                                      .merged = by->merged};
        if (p->n_file_parts && items[n].slot <= CKPT_EMA) {
            n += make_parts(items, n, p->n_file_parts);
            continue;
        }
        rc = add_alias(&items[n], by, p->name);
        int made = rc ? 1 : add_others(&items[n], by, p);
        rc = made < 0 ? made : rc;
        n += made < 0 ? 0 : made;
    }
    return rc ? rc : n;
}

/* Adapters alone carry their settings, unless the caller's note has that key. */
static int write_items(ckpt *c, const char *path, struct save_item *items, int n,
                       const struct file_note *note)
{
    const bool alone = adapters_alone(items, n) && !(note && !strcmp(note->key, ADAPTERS_NOTE));
    const char *base = note_find(&c->notes, ADAPTERS_BASE);
    struct adapters_texts texts = {NULL, NULL};
    struct file_note notes[3] = {{NULL, NULL}};
    int n_notes = 0, rc = alone ? adapters_describe(&texts, items, n) : 0;

    if (rc == CKPT_ENOMEM)
        error_set(rc, "%s: no memory to write it", path);
    if (note)
        notes[n_notes++] = *note;
    if (alone)
        notes[n_notes++] = (struct file_note){ADAPTERS_NOTE, texts.note};
    if (alone && base)
        notes[n_notes++] = (struct file_note){ADAPTERS_BASE, base};
    rc = rc ? ranks_give_up(&c->ranks, rc) : save_items(c, path, items, n, notes, n_notes);
    if (!rc && texts.config && !c->ranks.rank)
        rc = adapters_write_config(path, texts.config);
    adapters_free(&texts);
    return rc;
}

/* Most items of a file. */
static int count_items(const ckpt *c)
{
    int all = 4 * ckpt_param_count(c);

    for (int32_t i = 0; i < c->params.n; i++)
        all += c->params.data[i].n_file_parts;
    return all;
}

static int save_selected(ckpt *c, const char *path, const struct selection *by)
{
    const int all = count_items(c);
    struct save_item *items = calloc((size_t)all + 1, sizeof *items);
    int n = items ? select_items(c, by, items) : CKPT_ENOMEM;
    char *config = n > 0 && by->int8 ? save_int8_config(items, n) : NULL;
    const struct file_note settings = {"quantization_config", config};
    const bool failed = n < 0 || (by->int8 && !config);
    int rc =
        failed ? ranks_give_up(&c->ranks, error_set(CKPT_ENOMEM, "%s: no memory to write it", path))
               : write_items(c, path, items, n, config ? &settings : by->note);
    free(config);

    for (int i = 0; items && i < all; i++)
        free(items[i].alias);
    free(items);
    return rc;
}

int ckpt_save_params_filtered(ckpt *c, const char *path, enum ckpt_slot slot,
                              ckpt_param_filter choose, void *user)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    return save_selected(c, path,
                         &(struct selection){.slot = slot, .choose = choose, .user = user});
}

int ckpt_save_params_aliased(ckpt *c, const char *path, enum ckpt_slot slot,
                             ckpt_param_filter choose, ckpt_name_alias alias, void *user)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    return save_selected(
        c, path, &(struct selection){.slot = slot, .choose = choose, .alias = alias, .user = user});
}

int ckpt_save_params_int8(ckpt *c, const char *path, enum ckpt_slot slot, ckpt_param_filter choose,
                          ckpt_name_alias alias, void *user)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    bool any = false;
    for (int32_t i = 0; i < c->params.n; i++)
        any |= c->params.data[i].training.qat.used;
    if (!any)
        return error_set(CKPT_EINVAL,
                         "%s: no program rounds a weight of this context: open it with --qat int8, "
                         "and compile a program first",
                         path);
    return save_selected(
        c, path,
        &(struct selection){
            .slot = slot, .choose = choose, .alias = alias, .user = user, .int8 = true});
}

int ckpt_save_params_merged(ckpt *c, const char *path, ckpt_param_filter choose, void *user)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    return save_selected(
        c, path,
        &(struct selection){.slot = CKPT_VALUE, .choose = choose, .user = user, .merged = true});
}

static bool is_own_key(const char *key)
{
    return !strncmp(key, "ckpt.", 5) || !strcmp(key, "format");
}

int ckpt_save_params_noted(ckpt *c, const char *path, enum ckpt_slot slot, ckpt_param_filter choose,
                           void *user, const char *key, const char *text)
{
    const struct file_note note = {key, text};

    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(path);
    if (!key)
        return ckpt_save_params_filtered(c, path, slot, choose, user);
    NOT_NULL(text);
    if (is_own_key(key) || !text_is_utf8(key) || !text_is_utf8(text))
        return error_set(CKPT_EINVAL, "%s: a note under '%s' %s", path, key,
                         is_own_key(key) ? "is the library's own" : "is not UTF-8");
    return save_selected(
        c, path, &(struct selection){.slot = slot, .choose = choose, .user = user, .note = &note});
}

int ckpt_save_params(ckpt *c, const char *path, enum ckpt_slot slot)
{
    return ckpt_save_params_filtered(c, path, slot, NULL, NULL);
}
