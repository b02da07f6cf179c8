/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files: see tensors.h. */
#include "tensors.h"
#include <stdlib.h>
#include <string.h>
#include "say.h"

static bool is_float(const char *dtype)
{
    return (dtype[0] == 'F' || dtype[0] == 'B') && strcmp(dtype, "BOOL"); /* F64 to F16, BF16 */
}

int tensor_find(ckpt_file *f, const char *path, const char *name, int ndim, const int64_t *shape,
                struct ckpt_file_entry *e)
{
    char found[160], wanted[160];
    int i = ckpt_file_find(f, name);

    *e = (struct ckpt_file_entry)CKPT_FILE_ENTRY_INIT;
    if (i < 0 || ckpt_file_entry(f, i, e))
        return say_fail("%s: has no tensor \"%s\"", path, name);
    bool fits = e->ndim == ndim;
    for (int axis = 0; fits && axis < ndim; axis++)
        fits = shape[axis] < 0 ? e->shape[axis] > 0 : e->shape[axis] == shape[axis];
    if (fits)
        return i;
    return say_fail("%s: \"%s\" is [%s]; [%s] is expected (-1: any size)", path, name,
                    say_shape(found, e->ndim, e->shape), say_shape(wanted, ndim, shape));
}

/* Integers stay integers, so that they are exact. */
static int read_values(ckpt_file *f, int i, int64_t n, bool floats, void *x)
{
    return floats ? ckpt_file_read_f32(f, i, x, n) : ckpt_file_read_i32(f, i, x, n);
}

static void convert(void *from, int64_t n, bool to_float)
{
    for (int64_t i = 0; i < n; i++) {
        if (to_float)
            ((float *)from)[i] = (float)((int32_t *)from)[i];
        else
            ((int32_t *)from)[i] = ((float *)from)[i] != 0;
    }
}

static void *read_as(ckpt_file *f, const char *path, const char *name, int ndim, int64_t *shape,
                     bool as_float)
{
    struct ckpt_file_entry e;
    int i = tensor_find(f, path, name, ndim, shape, &e);

    if (i < 0)
        return NULL;
    const bool floats = is_float(e.dtype);
    void *x = malloc((size_t)e.numel * sizeof(float));
    if (!x || read_values(f, i, e.numel, floats, x)) {
        say_fail("%s: \"%s\" cannot be read: %s", path, name, x ? ckpt_error(NULL) : "no memory");
        free(x);
        return NULL;
    }
    if (floats != as_float)
        convert(x, e.numel, as_float);
    memcpy(shape, e.shape, (size_t)ndim * sizeof *shape);
    return x;
}

float *tensor_read(ckpt_file *f, const char *path, const char *name, int ndim, int64_t *shape)
{
    return read_as(f, path, name, ndim, shape, true);
}

int32_t *tensor_read_flags(ckpt_file *f, const char *path, const char *name, int ndim,
                           int64_t *shape)
{
    return read_as(f, path, name, ndim, shape, false);
}

int tensor_read_if(ckpt_file *f, const char *path, const char *name, int ndim, int64_t *shape,
                   float **to)
{
    if (ckpt_file_find(f, name) < 0)
        return 0;
    *to = tensor_read(f, path, name, ndim, shape);
    return *to ? 0 : -1;
}

int tensors_write(const char *path, int n, const struct tensor *t)
{
    ckpt_file_writer *w;
    int rc = ckpt_file_create(&w, path);

    if (rc)
        return say_fail("%s", ckpt_error(NULL));
    for (int i = 0; i < n && !rc; i++)
        rc = t[i].data ? ckpt_file_add(w, t[i].name, t[i].dtype, t[i].ndim, t[i].shape, t[i].data)
                       : 0;
    if (rc)
        ckpt_file_abandon(w);
    else
        rc = ckpt_file_commit(w);
    return rc ? say_fail("%s", ckpt_error(NULL)) : 0;
}
