/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of several files.  An index, such as model.safetensors.index.json, maps each tensor name
 * to a file in the same directory; a directory contains such an index, or one file.  Index and
 * files must match in both directions before any tensor is read.
 */
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
        *root = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (rc || *root)
        return rc;
    if (json_error_code(&error) == json_error_out_of_memory)
        return error_set(CKPT_ENOMEM, "%s: no memory to parse the index", path);
    return file_bad(path, "is not valid JSON: %s, at byte %d",
                    text_shown(error.text, why, sizeof why), error.position);
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

/* The path of a file beside another one, or in a directory path that ends in a slash.  The caller
 * frees it. */
static char *sibling_path(const char *path, const char *name)
{
    char *made;

    return asprintf(&made, "%.*s%s", (int)(file_name_of(path) - path), path, name) < 0 ? NULL
                                                                                       : made;
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
    char *whole = sibling_path(path, shard);
    int rc = whole ? file_open_parts(f, whole, true)
                   : error_set(CKPT_ENOMEM, "%s: no memory to open %s", path, shard);

    free(whole);
    return rc ? error_set(rc, "%s (named in %s)", error_get(), path) : 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Opens each listed file once, in the order of names. */
static int open_shards(ckpt_file *f, const char *path, json_t *map)
{
    const char **shards = calloc(json_object_size(map) + 1, sizeof *shards);
    const char *tensor;
    json_t *shard;
    size_t n = 0;
    int rc = shards ? 0 : error_set(CKPT_ENOMEM, "%s: no memory to list its files", path);

    json_object_foreach(map, tensor, shard)
    {
        rc = rc ? rc : check_shard(path, tensor, json_string_value(shard));
        if (rc)
            break;
        shards[n++] = json_string_value(shard);
    }
    if (!rc)
        qsort(shards, n, sizeof *shards, by_text);
    for (size_t i = 0; i < n && !rc; i++)
        if (!i || strcmp(shards[i - 1], shards[i]))
            rc = add_shard(f, path, shards[i]);
    free(shards);
    return rc;
}

/* Every tensor of a file must be in the index under that file. */
static int check_part(const ckpt_file *f, const struct file_part *p, const char *path,
                      const json_t *map)
{
    for (int i = 0; i < p->count; i++) {
        const char *name = p->tensors[i].name;
        const char *shard = json_string_value(json_object_get(map, name));
        if (!shard)
            return file_bad(path, "lacks tensor '%s', which %s has", name, p->path);
        if (find_part(f, shard) != p)
            return file_bad(path, "says that tensor '%s' is in %s, but it is in %s", name, shard,
                            file_name_of(p->path));
    }
    return 0;
}

/* Every tensor of the index must be in the file that the index names. */
static int check_map(const ckpt_file *f, const char *path, json_t *map)
{
    const char *name;
    json_t *shard;

    for (int i = 0; i < f->n_parts; i++) {
        int rc = check_part(f, &f->parts[i], path, map);
        if (rc)
            return rc;
    }
    json_object_foreach(map, name, shard)
    {
        const struct file_part *p = find_part(f, json_string_value(shard));
        if (!strcmp(name, "__metadata__") || !json_object_get(p->header, name))
            return file_bad(path, "says that tensor '%s' is in %s, which lacks it", name,
                            json_string_value(shard));
    }
    return 0;
}

int file_open_index(ckpt_file *f, const char *path, int fd, int64_t size)
{
    json_t *root = NULL;
    int rc = parse_index(path, fd, size, &root);
    json_t *map = json_object_get(root, "weight_map");

    if (!rc && !json_is_object(map))
        rc = file_bad(path, "is JSON without a weight_map; give the index of a model "
                            "(*.safetensors.index.json) or a safetensors file");
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
        char *path = sibling_path(directory, names[i]);
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
    char *path = sibling_path(directory, name);
    int rc = path ? file_open_parts(f, path, false)
                  : error_set(CKPT_ENOMEM, "%s: no memory to open it", f->path);

    free(path);
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
        rc = refuse_directory(f, directory);
    else if (n == 2)
        rc = file_bad(f->path, "is a directory with %s and %s; give one of them", found[0],
                      found[1]);
    else
        rc = open_found(f, directory, found[0]);
    free(directory);
    return rc;
}
