/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of files that belong together: its text, and the parts that no index has any more.
 * Parts have names of their own for each save, so an index is whole at any time: the old one until
 * the new one takes its name.  An index under another name in the folder, a hard link or a copy,
 * keeps its parts.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/checksum.h"
#include "core/json.h"
#include "ckpt_files.h"
#include "state/safetensors.h"

/* ---- writing ------------------------------------------------------------------------------- */

struct index {
    const ckpt_file *f;
    const char *path;
    const struct file_note *notes;
    int n_notes;
};

static void put_text(FILE *f, const char *key, const char *text)
{
    json_write_string(f, key);
    fputc(':', f);
    json_write_string(f, text);
}

/* The header checksums of the files: no other file passes for one of them. */
static void put_seals(FILE *f, const ckpt_file *all)
{
    fputs(",\"" NOTE_PARTS "\":{", f);
    for (int i = 0; i < all->n_parts; i++) {
        const json_t *notes = json_object_get(all->parts[i].header, "__metadata__");
        fputs(i ? ",\n" : "\n", f);
        put_text(f, file_name_of(all->parts[i].path),
                 json_string_value(json_object_get(notes, NOTE_SUM_HEADER)));
    }
    fputc('}', f);
}

static void put_map(FILE *f, const ckpt_file *all)
{
    fputs("\"weight_map\":{", f);
    for (int i = 0; i < all->count; i++) {
        const struct file_tensor *e = &all->tensors[i];
        fputs(i ? ",\n" : "\n", f);
        json_write_string(f, e->name);
        fputs(e->n_pieces ? ":[" : ":", f);
        for (int k = 0; k < e->n_pieces; k++) {
            fputs(k ? "," : "", f);
            json_write_string(f, file_name_of(e->pieces[k].part->path));
        }
        if (e->n_pieces)
            fputc(']', f);
        else
            json_write_string(f, file_name_of(e->part->path));
    }
    fputs("}", f);
}

static char *make_text(const struct index *x)
{
    char *text = NULL;
    size_t size;
    int64_t bytes = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    for (int i = 0; i < x->f->count; i++)
        bytes += x->f->tensors[i].numel * x->f->tensors[i].dtype->size;
    fprintf(f, INDEX_BEGIN "%lld", (long long)bytes);
    for (int i = 0; i < x->n_notes; i++) {
        fputs(",\n", f);
        put_text(f, x->notes[i].key, x->notes[i].text);
    }
    put_seals(f, x->f);
    fputs(",\"" NOTE_SUM "\":\"" CHECKSUM_NAME "\",\"" NOTE_SUM_HEADER
          "\":\"0000000000000000\"},\n",
          f);
    put_map(f, x->f);
    fputs("}\n", f);
    text_close(f, &text);
    return text;
}

static int fill(void *user, int fd)
{
    const struct index *x = user;
    char *text = make_text(x);

    if (!text)
        return error_set(CKPT_ENOMEM, "%s: no memory for the index", x->path);
    const int64_t n = (int64_t)strlen(text);
    file_seal_header(text, n);
    int rc = file_write_all(x->path, fd, text, n);
    free(text);
    return rc;
}

int file_write_index(const ckpt_file *f, const char *path, const struct file_note *notes,
                     int n_notes)
{
    struct index x = {f, path, notes, n_notes};

    return file_replace(path, fill, &x);
}

/* ---- removing ------------------------------------------------------------------------------ */

/* Opens the folder of a path; NULL if it cannot be read. */
static DIR *open_folder(const char *path)
{
    char *folder = strndup(path, (size_t)(file_name_of(path) - path));
    DIR *d = folder ? opendir(*folder ? folder : ".") : NULL;

    free(folder);
    return d;
}

/* The names of all parts that an index in the folder of path has; NULL: no memory, or the folder
 * cannot be read. */
static json_t *list_named(const char *path, DIR *d)
{
    json_t *named = json_object();
    bool failed = !named;

    for (struct dirent *e = failed ? NULL : readdir(d); e && !failed; e = readdir(d)) {
        char *whole = strstr(e->d_name, PART_MARK) ? NULL : file_beside(path, e->d_name);
        json_t *parts = whole ? file_read_parts(whole) : NULL;
        failed = parts && json_object_update(named, parts);
        json_decref(parts);
        free(whole);
    }
    if (!failed)
        return named;
    json_decref(named);
    return NULL;
}

/* Whether an entry is a part of the index called so, or one that was being written. */
static bool is_part(const char *entry, const char *name)
{
    const size_t n = strlen(name);

    return !strncmp(entry, name, n) && !strncmp(entry + n, PART_MARK, strlen(PART_MARK));
}

/* Removes entries of the folder that no index in it has: those in parts, or if that is NULL all
 * parts of the path. */
static void remove_unnamed(const char *path, const json_t *parts)
{
    DIR *d = open_folder(path);
    json_t *named = d ? list_named(path, d) : NULL;

    if (named)
        rewinddir(d);
    for (struct dirent *e = named ? readdir(d) : NULL; e; e = readdir(d)) {
        const char *entry = e->d_name;
        bool goes = parts ? strstr(entry, PART_MARK) && json_object_get(parts, entry)
                          : is_part(entry, file_name_of(path));
        if (goes && !json_object_get(named, entry))
            file_remove_unlocked(dirfd(d), entry);
    }
    if (d)
        closedir(d);
    json_decref(named);
}

void file_sweep_parts(const char *path)
{
    remove_unnamed(path, NULL);
}

int ckpt_file_remove(const char *path)
{
    NOT_NULL(path);
    json_t *parts = file_read_parts(path);
    int rc = unlink(path) ? file_io_error(path, "cannot be removed") : 0;

    if (!rc && parts)
        remove_unnamed(path, parts);
    json_decref(parts);
    return rc;
}
