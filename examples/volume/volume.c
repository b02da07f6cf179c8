/* SPDX-License-Identifier: Apache-2.0 */
/* The code shared by all file formats of volumes: reading boxes, comparison; see volume.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "../common/say.h"
#include "volume.h"

/* ---- file formats -------------------------------------------------------------------------- */

enum kind { NIFTI, META, TENSOR, KINDS };

static enum kind kind_of(const char *path)
{
    static const struct {
        const char *ending;
        enum kind kind;
    } kinds[] = {{".nii", NIFTI},
                 {".nii.gz", NIFTI},
                 {".mhd", META},
                 {".mha", META},
                 {".safetensors", TENSOR}};
    size_t length = strlen(path);

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].ending);
        if (length > n && !strcasecmp(path + length - n, kinds[i].ending))
            return kinds[i].kind;
    }
    return KINDS;
}

static int unknown_kind(const char *path)
{
    return say_fail("%s: is not .nii, .nii.gz, .mhd, .mha or .safetensors", path);
}

static int check_size(const struct volume *v)
{
    int64_t voxels = 1;

    for (int i = 0; i < 3; i++) {
        bool good = v->size[i] >= 1 && v->size[i] <= 1 << 20;
        voxels *= good ? v->size[i] : 1;
        if (!good || voxels > INT64_C(1) << 40) /* so that byte counts cannot overflow */
            return say_fail("%s: %lld x %lld x %lld voxels are not a volume", v->path,
                            (long long)v->size[2], (long long)v->size[1], (long long)v->size[0]);
    }
    return 0;
}

/* Checks that the affine map is finite and the voxel spacing positive. */
static int check_place(const struct volume *v)
{
    for (int i = 0; i < 3; i++) {
        double apart = volume_spacing(v, i);
        if (!isfinite(v->affine[i][3]) || !isfinite(apart) || apart <= 0)
            return say_fail("%s: its position is not valid: voxels are %g x %g x %g mm apart, the "
                            "first is at %g, %g, %g mm",
                            v->path, volume_spacing(v, 2), volume_spacing(v, 1),
                            volume_spacing(v, 0), v->affine[0][3], v->affine[1][3],
                            v->affine[2][3]);
    }
    return 0;
}

/* Checks that the file holds all voxels. */
static int check_length(const struct volume *v)
{
    int64_t needed = v->first + volume_voxels(v) * volume_type_size(v->type);

    if (v->fd < 0)
        return 0;
    off_t have = lseek(v->fd, 0, SEEK_END);
    return have >= needed ? 0
                          : say_fail("%s: is truncated: has %lld bytes of voxels, not %lld",
                                     v->path, (long long)(have > v->first ? have - v->first : 0),
                                     (long long)(needed - v->first));
}

int volume_open(struct volume *v, const char *path, const char *unpack)
{
    enum kind kind = kind_of(path);

    *v = (struct volume){.fd = -1, .slope = 1};
    if (snprintf(v->path, sizeof v->path, "%s", path) >= (int)sizeof v->path)
        return say_fail("%s: the name is too long", path);
    int rc = kind == NIFTI    ? volume_open_nifti(v, unpack)
             : kind == META   ? volume_open_meta(v)
             : kind == TENSOR ? volume_open_tensor(v)
                              : unknown_kind(path);
    rc = rc ? rc : check_size(v) || check_place(v) || check_length(v) ? -1 : 0;
    if (rc)
        volume_close(v);
    return rc;
}

void volume_close(struct volume *v)
{
    if (v->path[0] && v->fd >= 0)
        close(v->fd);
    ckpt_file_close(v->tensors);
    if (v->header)
        volume_close_nifti(v);
    *v = (struct volume){.fd = -1};
}

int volume_writable(const char *path)
{
#ifndef HAVE_NIFTI
    if (kind_of(path) == NIFTI)
        return say_fail("%s: built without libniftiio: .mhd and .safetensors can be written", path);
#endif
    size_t n = strlen(path);

    if (n > 4 && !strcasecmp(path + n - 4, ".mha"))
        return say_fail("%s: MetaImage is written as .mhd, beside its voxels", path);
    return kind_of(path) == KINDS ? unknown_kind(path) : 0;
}

int volume_write_labels(const char *path, const struct volume *like, const uint8_t *labels)
{
    switch (kind_of(path)) {
    case NIFTI:
        return volume_write_nifti(path, like, labels);
    case META:
        return volume_write_meta(path, like, labels);
    case TENSOR:
        return volume_write_tensor(path, like, labels);
    default:
        return unknown_kind(path);
    }
}

/* ---- geometry ------------------------------------------------------------------------------ */

int64_t volume_voxels(const struct volume *v)
{
    return v->size[0] * v->size[1] * v->size[2];
}

double volume_spacing(const struct volume *v, int axis)
{
    double sum = 0;

    for (int i = 0; i < 3; i++)
        sum += v->affine[i][2 - axis] * v->affine[i][2 - axis];
    return sqrt(sum);
}

/* The coordinate of a corner along one axis of the body; bit i of `which` selects the end of axis
 * i. */
static double corner(const struct volume *v, unsigned which, int axis)
{
    double sum = v->affine[axis][3];

    for (int i = 0; i < 3; i++)
        if (which >> i & 1)
            sum += v->affine[axis][2 - i] * (double)(v->size[i] - 1);
    return sum;
}

int volume_match(const struct volume *a, const struct volume *b)
{
    double near =
        1e-2 * fmin(volume_spacing(a, 0), fmin(volume_spacing(a, 1), volume_spacing(a, 2)));

    if (memcmp(a->size, b->size, sizeof a->size) != 0)
        return say_fail("%s: has %lld x %lld x %lld voxels, its image %s %lld x %lld x %lld",
                        b->path, (long long)b->size[2], (long long)b->size[1],
                        (long long)b->size[0], a->path, (long long)a->size[2],
                        (long long)a->size[1], (long long)a->size[0]);
    for (unsigned which = 0; which < 8; which++)
        for (int axis = 0; axis < 3; axis++) {
            double far = fabs(corner(a, which, axis) - corner(b, which, axis));
            if (!(far <= near))
                return say_fail("%s: is not aligned with its image %s: a corner is %.3g mm off "
                                "(orientation, spacing or origin differ)",
                                b->path, a->path, far);
        }
    return 0;
}

/* ---- values -------------------------------------------------------------------------------- */

int64_t volume_type_size(enum volume_type type)
{
    static const int8_t size[VOLUME_TYPES] = {1, 1, 2, 2, 4, 4, 4, 8};

    return size[type];
}

static void swap(uint8_t *at, int64_t n, int64_t size)
{
    for (; n; n--, at += size)
        for (int64_t i = 0; i < size / 2; i++) {
            uint8_t byte = at[i];
            at[i] = at[size - 1 - i];
            at[size - 1 - i] = byte;
        }
}

static double value(const void *from, int64_t i, enum volume_type type)
{
    switch (type) {
    case VOLUME_U8:
        return ((const uint8_t *)from)[i];
    case VOLUME_I8:
        return ((const int8_t *)from)[i];
    case VOLUME_U16:
        return ((const uint16_t *)from)[i];
    case VOLUME_I16:
        return ((const int16_t *)from)[i];
    case VOLUME_U32:
        return ((const uint32_t *)from)[i];
    case VOLUME_I32:
        return ((const int32_t *)from)[i];
    case VOLUME_F32:
        return (double)((const float *)from)[i];
    default:
        return ((const double *)from)[i];
    }
}

static int read_bytes(const struct volume *v, void *to, int64_t bytes, int64_t at)
{
    for (ssize_t n; bytes; at += n, bytes -= n, to = (char *)to + n) {
        n = pread(v->fd, to, (size_t)bytes, at);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            return say_fail("%s: %s", v->path, n ? strerror(errno) : "has become shorter");
    }
    return 0;
}

/* Reads n consecutive voxels from `first` on; a tensor's as floats. */
static int read_run(const struct volume *v, int64_t first, int64_t n, void *to)
{
    int64_t size = volume_type_size(v->type);

    if (v->tensors)
        return ckpt_file_read_part_f32(v->tensors, v->entry, first, to, n)
                   ? say_fail("%s", ckpt_error(NULL))
                   : 0;
    if (read_bytes(v, to, n * size, v->first + first * size))
        return -1;
    if (v->swapped)
        swap(to, n, size);
    return 0;
}

/* Programs that resample or scale label maps leave 0.9999999 for 1. */
static float nearest_label(float x)
{
    const float near = 1e-3f;
    float whole = rintf(x);

    return fabsf(x - whole) <= near ? whole : x;
}

static void take_row(const struct volume *v, const void *run, int64_t at, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(v->slope * value(run, at + i, v->type) + v->offset);
        if (v->values == VOLUME_IMAGE)
            x = isfinite(x) ? x : 0;
        else if (v->values == VOLUME_LABELS)
            x = nearest_label(x);
        to[i] = x;
    }
}

/* Reads all rows of the box in a slice at once, with the values between them in the file. */
int volume_read(const struct volume *v, const int64_t at[3], const int64_t size[3], float *to)
{
    int64_t span = (size[1] - 1) * v->size[2] + size[2];
    void *run = malloc((size_t)(span * volume_type_size(v->type)));
    int rc = run ? 0 : say_fail("%s: no memory for a slice", v->path);

    for (int64_t z = 0; z < size[0] && !rc; z++) {
        rc = read_run(v, ((at[0] + z) * v->size[1] + at[1]) * v->size[2] + at[2], span, run);
        for (int64_t y = 0; y < size[1] && !rc; y++, to += size[2])
            take_row(v, run, y * v->size[2], size[2], to);
    }
    free(run);
    return rc;
}
