/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of files that belong together: its text, and the parts of a state that it replaces.
 * Parts have names of their own for each save, so an index is whole at any time: the old one until
 * the new one takes its name.  A hard link of an index keeps its parts.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    fprintf(f, "{\"metadata\":{\"total_size\":%lld", (long long)bytes);
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

/* Whether this is the last name of a regular file, which may be an index. */
static bool is_last_name(const char *path)
{
    struct stat st;

    return !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_size < HEADER_MAX;
}

json_t *file_list_parts(const char *path)
{
    struct error ignored = {.code = 0};
    ERRORS_TO(&ignored);

    return is_last_name(path) ? file_read_parts(path) : NULL;
}

void file_remove_parts(const char *path, json_t *parts)
{
    const char *name;
    json_t *seal;

    json_object_foreach(parts, name, seal)
    {
        char *whole = strchr(name, '/') ? NULL : file_beside(path, name);
        if (whole && strstr(name, PART_MARK))
            unlink(whole); /* one that stays only takes space */
        free(whole);
    }
    json_decref(parts);
}

/* Whether an entry is a part of the index, or one that was being written. */
static bool is_part(const char *entry, const char *name)
{
    const size_t n = strlen(name);

    return !strncmp(entry, name, n) && !strncmp(entry + n, PART_MARK, strlen(PART_MARK));
}

/* Adds the parts that an entry names if it is the index or a kept one. */
static int add_named(json_t *named, const char *path, const char *entry)
{
    const char *name = file_name_of(path);
    const size_t n = strlen(name);
    char *whole = NULL;
    int rc = 0;

    if (strncmp(entry, name, n) || (entry[n] && entry[n] != '-'))
        return 0;
    whole = file_beside(path, entry);
    struct error ignored = {.code = 0};
    ERRORS_TO(&ignored);
    json_t *parts = whole ? file_read_parts(whole) : NULL;
    rc = !whole || (parts && json_object_update(named, parts));
    json_decref(parts);
    free(whole);
    return rc;
}

void file_sweep_parts(const char *path)
{
    char *folder = strndup(path, (size_t)(file_name_of(path) - path));
    json_t *named = json_object();
    DIR *d = folder && named ? opendir(*folder ? folder : ".") : NULL;
    int rc = 0;

    for (struct dirent *e = d ? readdir(d) : NULL; e && !rc; e = readdir(d))
        rc = add_named(named, path, e->d_name);
    if (d)
        rewinddir(d);
    for (struct dirent *e = d && !rc ? readdir(d) : NULL; e; e = readdir(d))
        if (is_part(e->d_name, file_name_of(path)) && !json_object_get(named, e->d_name))
            file_remove_unlocked(dirfd(d), e->d_name);
    if (d)
        closedir(d);
    json_decref(named);
    free(folder);
}

int ckpt_file_remove(const char *path)
{
    NOT_NULL(path);
    json_t *parts = file_list_parts(path);
    int rc = unlink(path) ? file_io_error(path, "cannot be removed") : 0;

    file_remove_parts(path, rc ? NULL : parts);
    if (rc)
        json_decref(parts);
    return rc;
}
