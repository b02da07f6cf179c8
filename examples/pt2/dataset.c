/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of named samples in files: see dataset.h. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../common/say.h"
#include "dataset.h"

/* The whole numbers that fp32 has. */
#define EXACT (1 << 24)

static bool ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);

    return n >= m && !strcmp(path + n - m, end);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int add_path(struct dataset *d, const char *path)
{
    char **more = realloc(d->path, (size_t)(d->n_files + 1) * sizeof *more);

    if (!more || !(more[d->n_files] = strdup(path))) {
        d->path = more ? more : d->path;
        return say_fail("no memory for the files of %s", d->option);
    }
    d->path = more;
    d->n_files++;
    return 0;
}

/* The files of a directory are those with one of both ends. */
static int list_files(struct dataset *d, const char *pattern)
{
    char inside[4096];
    struct stat st;
    glob_t found = {.gl_pathc = 0};
    const bool exists = !stat(pattern, &st), folder = exists && S_ISDIR(st.st_mode);
    int rc = 0;

    if (exists && !folder)
        return add_path(d, pattern);
    snprintf(inside, sizeof inside, "%s%s", pattern, folder ? "/*" : "");
    if (glob(inside, 0, NULL, &found) && folder)
        found.gl_pathc = 0;
    for (size_t i = 0; i < found.gl_pathc && !rc; i++)
        if (!folder || ends_in(found.gl_pathv[i], ".safetensors") ||
            ends_in(found.gl_pathv[i], ".npy"))
            rc = add_path(d, found.gl_pathv[i]);
    globfree(&found);
    if (!rc && !d->n_files)
        rc = say_fail("%s %s: there are no such files%s", d->option, pattern,
                      folder ? " in it: give .safetensors or .npy" : "");
    return rc;
}

static ckpt_file *file_at(struct dataset *d, int i)
{
    const int slot = i % DATASET_OPEN;

    if (d->open[slot].number == i + 1)
        return d->open[slot].file;
    ckpt_file_close(d->open[slot].file);
    d->open[slot].file = NULL;
    d->open[slot].number = 0;
    if (ckpt_file_open(&d->open[slot].file, d->path[i])) {
        say_fail("%s", ckpt_error(NULL));
        return NULL;
    }
    d->open[slot].number = i + 1;
    return d->open[slot].file;
}

/* ---- columns --------------------------------------------------------------------------------- */

/* Whether a .npy file called so has this tensor: "ids", or "ids-00001". */
static bool is_called(const char *stem, const char *name)
{
    const size_t n = strlen(name);

    if (strncmp(stem, name, n) != 0)
        return false;
    stem += n;
    return !*stem || (strchr("-_.", *stem) && stem[1] && !stem[1 + strspn(stem + 1, "0123456789")]);
}

static int find_entry(ckpt_file *f, const char *path, const char *name)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;

    if (!ends_in(path, ".npy"))
        return ckpt_file_find(f, name);
    return !ckpt_file_entry(f, 0, &e) && is_called(e.name, name) ? 0 : -1;
}

static bool is_float(const struct ckpt_file_entry *e)
{
    return (*e->dtype == 'F' || *e->dtype == 'B') && strcmp(e->dtype, "BOOL") != 0;
}

/* Whole numbers become floats where floats have them; the rest stays what it is. */
static int check_dtype(ckpt_file *f, int entry, const char *path, const struct dataset_column *c,
                       const struct ckpt_file_entry *e)
{
    const bool floats = is_float(e);
    float none;
    int32_t zero;

    if (floats && c->whole)
        return say_fail("%s: '%s' is %s, and the model reads whole numbers", path, c->name,
                        e->dtype);
    if (floats ? ckpt_file_read_part_f32(f, entry, 0, &none, 0)
               : ckpt_file_read_part_i32(f, entry, 0, &zero, 0))
        return say_fail("%s", ckpt_error(NULL));
    if (!strcmp(e->dtype, "F64") && !c->n)
        say_note("%s: '%s' is fp64, and read as fp32", path, c->name);
    return 0;
}

static int check_shape(const struct dataset *d, struct dataset_column *c, const char *path,
                       int ndim, const int64_t *shape)
{
    char own[160], first[160];

    if (!c->n) {
        c->ndim = ndim;
        c->values = 1;
        for (int i = 0; i < ndim; i++)
            c->values *= c->shape[i] = shape[i];
        return c->values ? 0 : say_fail("%s: '%s' has no values", path, c->name);
    }
    if (ndim == c->ndim && !memcmp(shape, c->shape, (size_t)ndim * sizeof *shape))
        return 0;
    return say_fail("%s: a sample of '%s' is [%s], and [%s] in %s", path, c->name,
                    say_shape(own, ndim, shape), say_shape(first, c->ndim, c->shape),
                    d->path[c->part[0].file]);
}

static int add_part(struct dataset *d, struct dataset_column *c, int file, int entry, int64_t rows)
{
    struct dataset_part *more = realloc(c->part, (size_t)(c->n + 1) * sizeof *more);

    if (!more)
        return say_fail("no memory for the files of %s", d->option);
    c->part = more;
    c->part[c->n++] = (struct dataset_part){file, entry, rows};
    c->rows += rows;
    return 0;
}

static int take_entry(struct dataset *d, struct dataset_column *c, int file, ckpt_file *f,
                      int entry, bool shared)
{
    const char *path = d->path[file];
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    const int batch = shared ? 0 : 1;

    ckpt_file_entry(f, entry, &e);
    if (!shared && (!e.ndim || !e.shape[0]))
        return say_fail("%s: '%s' has no samples along its first axis", path, c->name);
    if (shared && c->n)
        return say_fail("%s: '%s' is in %s, too, and all samples have it in common", path, c->name,
                        d->path[c->part[0].file]);
    return check_dtype(f, entry, path, c, &e) ||
                   check_shape(d, c, path, e.ndim - batch, e.shape + batch) ||
                   add_part(d, c, file, entry, shared ? 1 : e.shape[0])
               ? -1
               : 0;
}

/* Whether a column reads this tensor of a file. */
static bool is_read(const struct dataset *d, ckpt_file *f, int file, int entry)
{
    for (int i = 0; i < d->n; i++)
        if (find_entry(f, d->path[file], d->column[i].name) == entry)
            return true;
    return false;
}

/* Names of tensors that nobody reads, of a safetensors file or else of all .npy files. */
static void find_unread(struct dataset *d, int file, ckpt_file *f)
{
    for (int i = 0; i < ckpt_file_count(f) && (!file || ends_in(d->path[file], ".npy")); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        if (!is_read(d, f, file, i) && !ckpt_file_entry(f, i, &e))
            names_add(&d->unread, e.name);
    }
}

/* All tensors of a file of samples have as many of them. */
static int take_file(struct dataset *d, int file, bool shared)
{
    ckpt_file *f = file_at(d, file);
    const struct dataset_column *first = NULL;

    for (int i = 0; f && i < d->n; i++) {
        struct dataset_column *c = &d->column[i];
        const int entry = find_entry(f, d->path[file], c->name);
        if (entry < 0)
            continue;
        if (take_entry(d, c, file, f, entry, shared))
            return -1;
        const int64_t rows = c->part[c->n - 1].rows;
        if (first && first->part[first->n - 1].rows != rows)
            return say_fail("%s: '%s' has %lld samples, and '%s' %lld", d->path[file], first->name,
                            (long long)first->part[first->n - 1].rows, c->name, (long long)rows);
        first = first ? first : c;
    }
    if (f)
        find_unread(d, file, f);
    return f ? 0 : -1;
}

/* The first file that lacks a column. */
static const char *lacking(const struct dataset *d, const struct dataset_column *c)
{
    int i = 0;

    while (i < c->n && c->part[i].file == i)
        i++;
    return d->path[i < d->n_files ? i : d->n_files - 1];
}

static int check_columns(struct dataset *d)
{
    for (int i = 0; i < d->n; i++) {
        const struct dataset_column *c = &d->column[i], *first = &d->column[0];
        if (!c->n)
            return say_fail(
                "%s: '%s' is not in %s%s: give it there, or once in --shared FILE if all "
                "samples have it in common",
                d->option, c->name, d->path[0], d->n_files > 1 ? " or the other files" : "");
        if (c->rows != first->rows)
            return say_fail("%s: '%s' has %lld samples, and '%s' %lld: see %s", d->option,
                            first->name, (long long)first->rows, c->name, (long long)c->rows,
                            lacking(d, c->rows < first->rows ? c : first));
    }
    d->rows = d->n ? d->column[0].rows : 0;
    return 0;
}

/* Drops columns that no shared file has. */
static void keep_found(struct dataset *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        if (d->column[i].n)
            d->column[n++] = d->column[i];
    d->n = n;
}

int dataset_open(struct dataset *d, const char *option, const char *pattern, int n,
                 const struct dataset_wanted *wanted, bool shared)
{
    *d = (struct dataset){.option = option};
    d->column = calloc((size_t)n + 1, sizeof *d->column);
    if (!d->column)
        return say_fail("no memory for the files of %s", option);
    d->n = n;
    for (int i = 0; i < n; i++)
        d->column[i] = (struct dataset_column){.name = wanted[i].name, .whole = wanted[i].whole};
    int rc = list_files(d, pattern);
    for (int i = 0; i < d->n_files && !rc; i++)
        rc = take_file(d, i, shared);
    names_report(&d->unread, pattern, "tensors that the model does not read");
    if (shared)
        keep_found(d);
    return rc || shared ? rc : check_columns(d);
}

void dataset_close(struct dataset *d)
{
    for (int i = 0; i < DATASET_OPEN; i++)
        ckpt_file_close(d->open[i].file);
    for (int i = 0; i < d->n_files; i++)
        free(d->path[i]);
    for (int i = 0; i < d->n; i++)
        free(d->column[i].part);
    free(d->path);
    free(d->column);
    *d = (struct dataset){.n = 0};
}

const struct dataset_column *dataset_find(const struct dataset *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->column[i].name, name))
            return &d->column[i];
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Whole numbers in the place of floats. */
static int widen(const char *path, const char *name, void *to, int64_t n)
{
    const int32_t *from = to;
    float *floats = to;

    for (int64_t i = 0; i < n; i++) {
        if (from[i] > EXACT || from[i] < -EXACT)
            return say_fail("%s: '%s' has the value %ld, which fp32 does not have", path, name,
                            (long)from[i]);
        const float x = (float)from[i];
        memcpy(&floats[i], &x, sizeof x);
    }
    return 0;
}

int dataset_read(struct dataset *d, const struct dataset_column *c, int64_t row, void *to)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = 0;

    while (row >= c->part[i].rows)
        row -= c->part[i++].rows;
    ckpt_file *f = file_at(d, c->part[i].file);
    if (!f)
        return -1;
    const int entry = c->part[i].entry;
    if (ckpt_file_entry(f, entry, &e))
        return say_fail("%s", ckpt_error(NULL));
    const bool floats = is_float(&e);
    if (floats ? ckpt_file_read_part_f32(f, entry, row * c->values, to, c->values)
               : ckpt_file_read_part_i32(f, entry, row * c->values, to, c->values))
        return say_fail("%s", ckpt_error(NULL));
    return floats || c->whole ? 0 : widen(d->path[c->part[i].file], c->name, to, c->values);
}
