/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notes of a run: what its bits depend on besides parameters and counts.  A state carries them,
 * and a resumed run compares them; its program decides which differences are allowed.
 */
#include <stdlib.h>
#include <string.h>
#include "core/checksum.h"
#include "ckpt_files.h"
#include "state/state_counts.h"
#include "state/run_notes.h"

int ckpt_state_note(ckpt *c, const char *name, const char *text)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    if (!name || !*name || !text || !strncmp(name, "ckpt.", 5))
        return error_set(CKPT_EINVAL,
                         "ckpt_state_note: a note needs a text, and a name that does not begin "
                         "with \"ckpt.\"");
    if (note_set(&c->notes, name, text))
        return error_set(CKPT_ENOMEM, "no memory for the note '%s'", name);
    return 0;
}

int state_list_notes(const ckpt *c, struct note_list *l)
{
    int rc = 0;

    for (int32_t i = 0; i < c->notes.n && !rc; i++)
        rc = note_set(l, c->notes.data[i].name, c->notes.data[i].text);
    return rc ? rc : programs_list_notes(&c->programs, l);
}

char *state_note_key(const char *name)
{
    char *key;

    return asprintf(&key, NOTE_RUN "%s", name) < 0 ? NULL : key;
}

static const char *or_default(const char *name, const char *text)
{
    static const char *const modes[] = {NOTE_MATMUL, NOTE_FROZEN, NOTE_ACTIVATIONS};

    if (!text && !strcmp(name, NOTE_STATE))
        return "fp32";
    if (!text && !strcmp(name, NOTE_QAT))
        return "no rounding";
    if (!text && !strncmp(name, NOTE_OPTIMIZER, strlen(NOTE_OPTIMIZER)))
        return "plain adamw";
    for (size_t i = 0; !text && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(name, modes[i]))
            return "bf16";
    return text;
}

/* Without a callback, notes that only one side has are ignored: older states have fewer notes. */
static void note_difference(struct differences *d, const char *name, const char *was,
                            const char *is)
{
    size_t n = strlen(d->text);

    was = or_default(name, was);
    is = or_default(name, is);
    if (d->allow ? d->allow(d->user, name, was, is) : !was || !is)
        return;
    snprintf(d->text + n, sizeof d->text - n, "%s%s %.200s, this run has %.200s",
             d->refused++ ? "; " : "", name, was ? was : "unknown", is ? is : "none");
}

static bool is_summed(const ckpt_file *f)
{
    bool all = true;

    for (int i = 0; i < f->n_parts; i++)
        all &= f->parts[i].summed;
    return all;
}

/* Compares the notes of this run with the file, then looks for notes that only the file has. */
static int compare_notes(const struct note_list *l, const ckpt_file *f, struct differences *d)
{
    json_t *metadata = file_notes(f), *value;
    const char *key;

    for (int32_t i = 0; i < l->n; i++) {
        char *name = state_note_key(l->data[i].name);
        if (!name)
            return error_set(CKPT_ENOMEM, "%s: no memory to compare its notes", f->path);
        const char *was = file_find_note(f, name);
        free(name);
        if (!was || strcmp(was, l->data[i].text))
            note_difference(d, l->data[i].name, was, l->data[i].text);
    }
    json_object_foreach(metadata, key, value)
    {
        const char *name = key + strlen(NOTE_RUN);
        if (!strncmp(key, NOTE_RUN, strlen(NOTE_RUN)) && !note_find(l, name))
            note_difference(d, name, json_string_value(value), NULL);
    }
    if (!is_summed(f))
        note_difference(d, "ckpt.checksum", NULL, CHECKSUM_NAME);
    return 0;
}

int state_compare_notes(const ckpt *c, const ckpt_file *f, struct differences *d)
{
    struct note_list l = {0};
    int rc = state_list_notes(c, &l);

    if (rc)
        error_set(rc, "%s: no memory to compare its notes", f->path);
    else
        rc = compare_notes(&l, f, d);
    note_list_free(&l);
    if (rc || !d->refused)
        return rc;
    return error_set(CKPT_EINVAL, "%s: is of another run: it was made with %s", f->path, d->text);
}
