/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models and states of several files.  An index, such as model.safetensors.index.json, maps each
 * tensor name to a file in the same directory, or to a list of files that have pieces of it; a
 * directory contains such an index, or one file, or the files of a distributed checkpoint of
 * PyTorch.  Index and files must match in both directions before any tensor is read.  The index of
 * a state has a checksum, and the header checksum of each file, so no file of another save passes.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "state/safetensors.h"

/* ---- an index ------------------------------------------------------------------------------ */

static int parse_index(const char *path, int fd, int64_t size, json_t **root)
{
    json_error_t error;
    char why[JSON_ERROR_TEXT_LENGTH];

    if (size > HEADER_MAX)
        return file_bad(path, "is an index of %lld bytes; the limit is %lld", (long long)size,
                        (long long)HEADER_MAX);
    char *text = malloc((size_t)size + 1);
    if (!text)
        return error_set(CKPT_ENOMEM, "%s: no memory for an index of %lld bytes", path,
                         (long long)size);
    int rc = file_read_at(path, fd, text, size, 0);
    if (!rc)
        rc = file_check_seal(path, text, size);
    if (!rc)
        *root = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (rc || *root)
        return rc;
    if (json_error_code(&error) == json_error_out_of_memory)
        return error_set(CKPT_ENOMEM, "%s: no memory to parse the index", path);
    return file_bad(path, "is not valid JSON: %s, at byte %d",
                    text_shown(error.text, why, sizeof why), error.position);
}

/* Other JSON in the folder, such as logs, does not begin so and is not read. */
json_t *file_read_parts(const char *path)
{
    struct error ignored = {.code = 0};
    ERRORS_TO(&ignored);
    const char *why;
    char begin[sizeof INDEX_BEGIN - 1];
    json_t *root = NULL;
    int64_t size;
    int fd;

    if (file_open_regular(path, &fd, &size, &why))
        return NULL;
    if (size > (int64_t)sizeof begin && !file_read_at(path, fd, begin, sizeof begin, 0) &&
        !memcmp(begin, INDEX_BEGIN, sizeof begin))
        parse_index(path, fd, size, &root);
    close(fd);
    json_t *parts = json_incref(json_object_get(json_object_get(root, "metadata"), NOTE_PARTS));
    json_decref(root);
    return parts;
}

/* The name must denote a file beside the index: an index is untrusted input. */
static int check_shard(const char *path, const char *tensor, const char *shard)
{
    if (!shard || !*shard)
        return file_bad(path, "names no file for tensor '%s'", tensor);
    if (strpbrk(shard, "/\n\r") || !strcmp(shard, ".") || !strcmp(shard, ".."))
        return file_bad(path, "names '%s' for tensor '%s', which is not a file beside it", shard,
                        tensor);
    return 0;
}

char *file_beside(const char *path, const char *name)
{
    char *made;

    return asprintf(&made, "%.*s%s", (int)(file_name_of(path) - path), path, name) < 0 ? NULL
                                                                                       : made;
}

/* The i-th file of an entry of the index, or NULL; *last: there is no other. */
static const char *nth_shard(const json_t *entry, size_t i, bool *last)
{
    *last = !json_is_array(entry) || i + 1 >= json_array_size(entry);
    return json_string_value(json_is_array(entry) ? json_array_get(entry, i) : entry);
}

static int by_shard(const void *shard, const void *part)
{
    return strcmp(shard, file_name_of(((const struct file_part *)part)->path));
}

static const struct file_part *find_part(const ckpt_file *f, const char *shard)
{
    return bsearch(shard, f->parts, (size_t)f->n_parts, sizeof *f->parts, by_shard);
}

static int add_shard(ckpt_file *f, const char *path, const char *shard)
{
    char *whole = file_beside(path, shard);
    int rc = whole ? file_open_parts(f, whole, true)
                   : error_set(CKPT_ENOMEM, "%s: no memory to open %s", path, shard);

    if (whole && access(whole, F_OK) && errno == ENOENT) /* a damaged model or state, not a disk */
        rc = CKPT_EFORMAT;
    free(whole);
    return rc ? error_set(rc, "%s (named in %s)", error_get(), path) : 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of all files; with shards NULL only counts and checks them.  Returns 0 or a code. */
static int list_shards(const char *path, json_t *map, const char **shards, size_t *n)
{
    const char *tensor;
    json_t *entry;

    *n = 0;
    json_object_foreach(map, tensor, entry)
    {
        bool last = false;
        for (size_t i = 0; !last; i++, ++*n) {
            const char *shard = nth_shard(entry, i, &last);
            int rc = check_shard(path, tensor, shard);
            if (rc)
                return rc;
            if (shards)
                shards[*n] = shard;
        }
    }
    return 0;
}

/* Opens each listed file once, in the order of names. */
static int open_shards(ckpt_file *f, const char *path, json_t *map)
{
    size_t n;
    int rc = list_shards(path, map, NULL, &n);
    const char **shards = rc ? NULL : calloc(n + 1, sizeof *shards);

    if (!rc && !shards)
        rc = error_set(CKPT_ENOMEM, "%s: no memory to list its files", path);
    if (!rc)
        rc = list_shards(path, map, shards, &n);
    if (!rc && n)
        qsort(shards, n, sizeof *shards, by_text);
    for (size_t i = 0; i < n && !rc; i++)
        if (!i || strcmp(shards[i - 1], shards[i]))
            rc = add_shard(f, path, shards[i]);
    free(shards);
    return rc;
}

/* The file of the entry that is open as p; else its last one. */
static const char *shard_of(const ckpt_file *f, const json_t *entry, const struct file_part *p)
{
    const char *shard = NULL;
    bool last = false;

    for (size_t i = 0; !last; i++) {
        shard = nth_shard(entry, i, &last);
        if (shard && find_part(f, shard) == p)
            break;
    }
    return shard;
}

/* Every tensor of a file must be in the index under that file. */
static int check_part(const ckpt_file *f, const struct file_part *p, const char *path,
                      const json_t *map)
{
    for (int i = 0; i < p->count; i++) {
        const char *name = p->tensors[i].name;
        const char *shard = shard_of(f, json_object_get(map, name), p);
        if (!shard)
            return file_bad(path, "lacks tensor '%s', which %s has", name, p->path);
        if (find_part(f, shard) != p)
            return file_bad(path, "says that tensor '%s' is in %s, but it is in %s", name, shard,
                            file_name_of(p->path));
    }
    return 0;
}

/* The files of a tensor must have it; if there are several they have pieces. */
static int check_entry(const ckpt_file *f, const char *path, const char *name, const json_t *entry)
{
    bool last = false;

    for (size_t i = 0; !last; i++) {
        const char *shard = nth_shard(entry, i, &last);
        const struct file_part *p = find_part(f, shard);
        if (!strcmp(name, "__metadata__") || !json_object_get(p->header, name))
            return file_bad(path, "says that tensor '%s' is in %s, which lacks it", name, shard);
    }
    return 0;
}

/* The header checksums that the index of a state has of its files. */
static int check_seals(const ckpt_file *f, const char *path, const json_t *seals)
{
    for (int i = 0; i < f->n_parts && seals; i++) {
        const struct file_part *p = &f->parts[i];
        const json_t *notes = json_object_get(p->header, "__metadata__");
        const char *has = json_string_value(json_object_get(notes, NOTE_SUM_HEADER));
        const char *wants = json_string_value(json_object_get(seals, file_name_of(p->path)));
        if (!has || !wants || strcmp(has, wants))
            return file_bad(p->path, "is not the part that %s was saved with, but of another save",
                            file_name_of(path));
    }
    return 0;
}

/* Every tensor of the index must be in the files that the index names. */
static int check_map(const ckpt_file *f, const char *path, json_t *map)
{
    const char *name;
    json_t *entry;
    int rc = check_seals(f, path, json_object_get(f->notes, NOTE_PARTS));

    for (int i = 0; i < f->n_parts && !rc; i++)
        rc = check_part(f, &f->parts[i], path, map);
    if (rc)
        return rc;
    json_object_foreach(map, name, entry)
    {
        rc = check_entry(f, path, name, entry);
        if (rc)
            break;
    }
    return rc;
}

int file_open_index(ckpt_file *f, const char *path, int fd, int64_t size)
{
    json_t *root = NULL;
    int rc = parse_index(path, fd, size, &root);
    json_t *map = json_object_get(root, "weight_map");

    if (!rc && !json_is_object(map))
        rc = file_bad(path, "is JSON without a weight_map; give the index of a model "
                            "(*.safetensors.index.json) or a safetensors file");
    f->notes = json_incref(json_object_get(root, "metadata"));
    if (!rc)
        rc = open_shards(f, path, map);
    if (!rc)
        rc = check_map(f, path, map);
    json_decref(root);
    return rc;
}

/* ---- a directory --------------------------------------------------------------------------- */

static const char *const usual[] = {"model.safetensors", "diffusion_pytorch_model.safetensors",
                                    "model.safetensors.index.json",
                                    "diffusion_pytorch_model.safetensors.index.json"};
/* Names in directories that hold only PyTorch pickles. */
static const char *const pickled[] = {"pytorch_model.bin", "diffusion_pytorch_model.bin",
                                      "pytorch_model.bin.index.json"};

/* Finds which of the names exist, at most two.  Returns their number, or CKPT_ENOMEM. */
static int find_names(const char *directory, const char *const *names, int n, const char *found[2])
{
    int count = 0;

    for (int i = 0; i < n && count < 2; i++) {
        char *path = file_beside(directory, names[i]);
        if (!path)
            return CKPT_ENOMEM;
        if (!access(path, F_OK))
            found[count++] = names[i];
        free(path);
    }
    return count;
}

static int refuse_directory(const ckpt_file *f, const char *directory)
{
    const char *found[2];

    if (find_names(directory, pickled, 3, found) > 0)
        return file_bad(f->path,
                        "is a directory with %s, a pickle, and without safetensors; give "
                        "the file to see how to convert it",
                        found[0]);
    return file_bad(f->path, "is a directory without %s, %s or their index (.index.json)", usual[0],
                    usual[1]);
}

static int open_found(ckpt_file *f, const char *directory, const char *name)
{
    char *path = file_beside(directory, name);
    int rc = path ? file_open_parts(f, path, false)
                  : error_set(CKPT_ENOMEM, "%s: no memory to open it", f->path);

    free(path);
    return rc;
}

/* shard-00001-model-00001-of-00002.safetensors, as PyTorch's distributed checkpoints in
 * safetensors have. */
static int is_distributed(const struct dirent *e)
{
    const size_t n = strlen(e->d_name), end = strlen(".safetensors");

    return !strncmp(e->d_name, "shard-", 6) && n > end &&
           !strcmp(e->d_name + n - end, ".safetensors");
}

/* Such a directory has no index: its files are all that are called so. */
static int open_distributed(ckpt_file *f, const char *directory)
{
    struct dirent **names = NULL;
    const int n = scandir(directory, &names, is_distributed, alphasort);
    int rc = n > 0 ? 0 : refuse_directory(f, directory);

    for (int i = 0; i < n; i++) {
        rc = rc ? rc : open_found(f, directory, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    for (int i = 0; i < f->n_parts && !rc; i++)
        if (f->parts[i].count && !f->parts[i].pieces)
            rc = file_bad(f->parts[i].path,
                          "has no %s in its metadata, as the other files of a "
                          "distributed checkpoint",
                          NOTE_BOXES);
    return rc;
}

int file_open_directory(ckpt_file *f)
{
    const char *found[2];
    char *directory;

    if (asprintf(&directory, "%s/", f->path) < 0)
        return error_set(CKPT_ENOMEM, "%s: no memory to open it", f->path);
    int n = find_names(directory, usual, 4, found), rc;
    if (n < 0)
        rc = error_set(CKPT_ENOMEM, "%s: no memory to open it", f->path);
    else if (n == 0)
        rc = open_distributed(f, directory);
    else if (n == 2)
        rc = file_bad(f->path, "is a directory with %s and %s; give one of them", found[0],
                      found[1]);
    else
        rc = open_found(f, directory, found[0]);
    free(directory);
    return rc;
}
