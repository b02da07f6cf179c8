/* SPDX-License-Identifier: Apache-2.0 */
/* Converts files: see convert.h. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/json.h"
#include "ckpt_files.h"
#include "state/base_weights.h"
#include "state/convert.h"
#include "state/safetensors.h"

struct conversion {
    struct convert *o;
    ckpt_file *f;
    struct file_note *notes; /* of the input; the last place is for NOTE_BOXES */
    int n_notes;
    int *file_of; /* per tensor: the number of its file, or -1 */
    int written;  /* files */
};

/* ---- what goes where ----------------------------------------------------------------------- */

static bool is_chosen(const struct convert *o, const struct file_tensor *e)
{
    return !o->only || !strncmp(e->name, o->only, strlen(o->only));
}

static int64_t bytes_of(const struct file_tensor *e)
{
    return e->numel * e->dtype->size;
}

static int place_tensors(struct conversion *c)
{
    struct convert *o = c->o;
    int64_t filled = 0;

    o->files = 1;
    for (int i = 0; i < c->f->count; i++) {
        const struct file_tensor *e = &c->f->tensors[i];
        c->file_of[i] = -1;
        if (!is_chosen(o, e))
            continue;
        if (o->form != CONVERT_FILE && filled && filled + bytes_of(e) > o->most) {
            o->files++;
            filled = 0;
        }
        filled += bytes_of(e);
        c->file_of[i] = o->files - 1;
        o->tensors++;
    }
    if (o->tensors)
        return 0;
    return o->only ? error_set(CKPT_ENAME, "%s: has no tensor whose name begins with '%s'",
                               o->from, o->only)
                   : error_set(CKPT_ENAME, "%s: has no tensors", o->from);
}

/* Checksums and pieces are of the files that were read. */
static bool stays(const char *key)
{
    static const char *const own[] = {"format",    NOTE_SUM,   NOTE_SUM_HEADER, NOTE_SUM_DATA,
                                      NOTE_PIECES, NOTE_BOXES, NOTE_PARTS};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(key, own[i]))
            return false;
    return true;
}

/* Weights alone are no state, so they get no notes of one. */
static int take_notes(struct conversion *c)
{
    json_t *all = file_notes(c->f), *value;
    const char *key;

    c->notes = calloc(json_object_size(all) + 1, sizeof *c->notes);
    if (!c->notes)
        return error_set(CKPT_ENOMEM, "%s: no memory to convert it", c->o->from);
    json_object_foreach(all, key, value)
    {
        if (json_is_string(value) && stays(key) && !(c->o->only && !strncmp(key, "ckpt.", 5)))
            c->notes[c->n_notes++] = (struct file_note){key, json_string_value(value)};
    }
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

/* File i of a directory. */
static char *name_file(const struct convert *o, int i)
{
    char *name;
    int n = o->form == CONVERT_DCP
                ? asprintf(&name, "%s/shard-%05d-model-00001-of-00001.safetensors", o->to, i + 1)
            : o->files == 1
                ? asprintf(&name, "%s/model.safetensors", o->to)
                : asprintf(&name, "%s/model-%05d-of-%05d.safetensors", o->to, i + 1, o->files);

    return n < 0 ? NULL : name;
}

static const char *new_name(const struct convert *o, const struct file_tensor *e)
{
    return e->name + (o->only ? strlen(o->only) : 0);
}

static int read_tensor(void *user, void *dst, int64_t bytes)
{
    (void)bytes;
    return file_read_stored(user, dst);
}

static int fill(struct conversion *c, ckpt_file_writer *w, int file)
{
    int rc = 0;

    for (int i = 0; i < c->f->count && !rc; i++) {
        struct file_tensor *e = &c->f->tensors[i];
        if (c->file_of[i] == file)
            rc = file_add_source(w, new_name(c->o, e), CKPT_F32, e->dtype, e->ndim, e->shape,
                                 read_tensor, e);
    }
    return rc;
}

/* PyTorch reads where the box of each tensor begins in it: at its beginning. */
static char *describe_boxes(const ckpt_file_writer *w)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (int64_t i = 0; i < w->count; i++) {
        fputs(i ? ", " : "{", f);
        json_write_string(f, w->tensors.data[i].name);
        fputs(": {\"saved_offsets\": [", f);
        for (int k = 0; k < w->tensors.data[i].ndim; k++)
            fputs(k ? ", 0" : "0", f);
        fputs("]}", f);
    }
    fputs(w->count ? "}" : "{}", f);
    text_close(f, &text);
    return text;
}

static int write_file(struct conversion *c, int i, const char *path)
{
    ckpt_file_writer *w;
    char *boxes = NULL;
    int rc = ckpt_file_create(&w, path);

    if (rc)
        return rc;
    w->notes = c->notes;
    w->n_notes = c->o->form == CONVERT_HF && c->o->files > 1 ? 0 : c->n_notes;
    rc = fill(c, w, i);
    if (!rc && c->o->form == CONVERT_DCP) {
        boxes = describe_boxes(w);
        c->notes[w->n_notes++] = (struct file_note){NOTE_BOXES, boxes};
        rc = boxes ? 0 : error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    }
    if (rc)
        ckpt_file_abandon(w);
    else
        rc = ckpt_file_commit(w);
    c->written += !rc;
    free(boxes);
    return rc;
}

/* The index of several files; they are opened again, so it says what is there. */
static int write_index(const struct conversion *c)
{
    ckpt_file *f = calloc(1, sizeof *f);
    char *path = NULL;
    int rc = f && (f->path = strdup(c->o->to)) &&
                     asprintf(&path, "%s/model.safetensors.index.json", c->o->to) > 0
                 ? 0
                 : error_set(CKPT_ENOMEM, "%s: no memory to write it", c->o->to);

    for (int i = 0; i < c->o->files && !rc; i++) {
        char *part = name_file(c->o, i);
        rc = part ? file_open_parts(f, part, true)
                  : error_set(CKPT_ENOMEM, "%s: no memory to write it", c->o->to);
        free(part);
    }
    if (!rc)
        rc = file_join_parts(f);
    if (!rc)
        rc = file_write_index(f, path, c->notes, c->n_notes);
    free(path);
    ckpt_file_close(f);
    return rc;
}

static int is_entry(const struct dirent *e)
{
    return strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
}

static int make_directory(const char *path)
{
    struct dirent **all = NULL;

    if (mkdir(path, 0777) && errno != EEXIST)
        return file_io_error(path, "cannot be made");
    const int n = scandir(path, &all, is_entry, NULL);
    for (int i = 0; i < n; i++)
        free(all[i]);
    free(all);
    if (n < 0)
        return file_io_error(path, "cannot be written to");
    return n ? error_set(CKPT_EINVAL, "%s: is not empty: its files would be read with the new ones",
                         path)
             : 0;
}

/* The first files of a directory alone could be taken for all of it. */
static void remove_written(const struct conversion *c)
{
    for (int i = 0; i < c->written; i++) {
        char *path = name_file(c->o, i);
        if (path)
            unlink(path);
        free(path);
    }
}

/* A file in place of an index leaves no parts that nothing names. */
static int write_one(struct conversion *c)
{
    json_t *old = file_read_parts(c->o->to);
    int rc = write_file(c, 0, c->o->to);

    if (!rc && old)
        file_sweep_parts(c->o->to);
    json_decref(old);
    return rc;
}

static int write_directory(struct conversion *c)
{
    int rc = make_directory(c->o->to);

    for (int i = 0; i < c->o->files && !rc; i++) {
        char *path = name_file(c->o, i);
        rc = path ? write_file(c, i, path)
                  : error_set(CKPT_ENOMEM, "%s: no memory to write it", c->o->to);
        free(path);
    }
    if (!rc && c->o->form == CONVERT_HF && c->o->files > 1)
        rc = write_index(c);
    if (rc)
        remove_written(c);
    return rc;
}

int convert_files(struct convert *o)
{
    struct conversion c = {.o = o};
    int rc = ckpt_file_open(&c.f, o->from);

    if (rc)
        return rc;
    const char *base = file_find_note(c.f, NOTE_BASE_FROM);
    snprintf(o->base, sizeof o->base, "%s", base ? base : "");
    c.file_of = calloc((size_t)c.f->count + 1, sizeof *c.file_of);
    if (!c.file_of)
        rc = error_set(CKPT_ENOMEM, "%s: no memory to convert it", o->from);
    if (!rc)
        rc = place_tensors(&c);
    if (!rc)
        rc = take_notes(&c);
    if (!rc)
        rc = o->form == CONVERT_FILE ? write_one(&c) : write_directory(&c);
    free(c.file_of);
    free(c.notes);
    ckpt_file_close(c.f);
    return rc;
}
