/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes in safetensors files: see volume.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "../common/tensors.h"
#include "volume.h"

static int read_affine(struct volume *v)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = ckpt_file_find(v->tensors, "affine");
    float affine[12];

    for (int axis = 0; axis < 3; axis++)
        v->affine[axis][axis] = 1;
    if (i < 0)
        return 0;
    if (ckpt_file_entry(v->tensors, i, &e) || e.ndim != 2 || e.shape[0] != 3 || e.shape[1] != 4 ||
        ckpt_file_read_f32(v->tensors, i, affine, 12))
        return say_fail("%s: tensor \"affine\" has not the shape [3, 4], or cannot be read",
                        v->path);
    for (int k = 0; k < 12; k++)
        v->affine[k / 4][k % 4] = (double)affine[k];
    return 0;
}

int volume_open_tensor(struct volume *v)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;

    if (ckpt_file_open(&v->tensors, v->path))
        return say_fail("%s", ckpt_error(NULL));
    v->entry = ckpt_file_find(v->tensors, "volume");
    if (v->entry < 0 || ckpt_file_entry(v->tensors, v->entry, &e))
        return say_fail("%s: has no tensor \"volume\"", v->path);
    if (e.ndim != 3)
        return say_fail("%s: \"volume\" has %d axes; slices, rows and columns are 3", v->path,
                        e.ndim);
    if (strcmp(e.dtype, "F32") != 0 && strcmp(e.dtype, "F16") != 0 &&
        strcmp(e.dtype, "BF16") != 0 && strcmp(e.dtype, "F64") != 0)
        return say_fail("%s: \"volume\" is %s; give F32, F16, BF16 or F64", v->path, e.dtype);
    memcpy(v->size, e.shape, sizeof v->size);
    v->type = VOLUME_F32;
    return read_affine(v);
}

/* Labels are written as fp32, so that readers need no other type. */
int volume_write_tensor(const char *path, const struct volume *like, const uint8_t *labels)
{
    int64_t n = volume_voxels(like);
    float affine[12], *values = malloc((size_t)n * sizeof *values);
    const struct tensor all[] = {{"volume", CKPT_F32, 3, like->size, values},
                                 {"affine", CKPT_F32, 2, (int64_t[]){3, 4}, affine}};

    if (!values)
        return say_fail("%s: no memory to write it", path);
    for (int64_t i = 0; i < n; i++)
        values[i] = labels[i];
    for (int k = 0; k < 12; k++)
        affine[k] = (float)like->affine[k / 4][k % 4];
    int rc = tensors_write(path, 2, all);
    free(values);
    return rc;
}
