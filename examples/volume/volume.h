/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 3-D volume in a file.  Boxes of it are read; nothing else is held in memory.  Axes are slices,
 * rows, columns; columns are contiguous in the file.
 *
 *   .nii, .nii.gz   NIfTI-1 (built with libniftiio); a compressed file is unpacked to an unnamed
 *                   file in the directory given to volume_open
 *   .mhd, .mha      MetaImage: a text header beside raw voxels, or before them
 *   .safetensors    tensors "volume" [slices, rows, columns] and, if voxels are not 1 mm apart
 *                   along the axes of the body, "affine" [3, 4]
 */
#ifndef VOLUME_H
#define VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include "ckpt_files.h"

enum volume_type {
    VOLUME_U8,
    VOLUME_I8,
    VOLUME_U16,
    VOLUME_I16,
    VOLUME_U32,
    VOLUME_I32,
    VOLUME_F32,
    VOLUME_F64,
    VOLUME_TYPES
};

/* How volume_read gives values. */
enum volume_values {
    VOLUME_IMAGE,  /* not finite: as 0 */
    VOLUME_LABELS, /* within a thousandth of a whole number: as that; not finite: as they are */
    VOLUME_STORED  /* as they are */
};

struct volume {
    char path[4096];
    int64_t size[3]; /* slices, rows, columns */
    /* Maps (column, row, slice, 1) to millimetres to the right, to the front and up. */
    double affine[3][4];
    /* voxels: from a file descriptor, or from a tensor */
    enum volume_type type;
    bool swapped;              /* other byte order */
    double slope, offset;      /* value = slope * voxel + offset */
    enum volume_values values; /* set by the caller */
    int fd;                    /* -1: none */
    int64_t first;             /* byte offset of the first voxel */
    ckpt_file *tensors;
    int entry;
    void *header; /* of NIfTI, for label maps written with it; or NULL */
};

/* Opens a file.  unpack: the directory for unpacked files.  Returns 0, or -1 after an error
 * message. */
int volume_open(struct volume *v, const char *path, const char *unpack);
/* Does nothing if v is all zero. */
void volume_close(struct volume *v);

/* Reads the values of a box inside the volume, row-major.  Returns 0, or -1 after an error message.
 */
int volume_read(const struct volume *v, const int64_t at[3], const int64_t size[3], float *to);

int64_t volume_voxels(const struct volume *v);
/* Bytes of one voxel of a type. */
int64_t volume_type_size(enum volume_type type);
/* Millimetres between adjacent voxels of an axis: 0 slices, 1 rows, 2 columns. */
double volume_spacing(const struct volume *v, int axis);

/* Checks that a and b have the same size and position: corners within a hundredth of a voxel.
 * Returns 0, or -1 after an error message that begins with the path of b. */
int volume_match(const struct volume *a, const struct volume *b);

/* Checks that a file of that name can be written here.  Returns 0, or -1 after an error message. */
int volume_writable(const char *path);
/* Writes labels [slices, rows, columns] with the header, or the position, of another volume.
 * Returns 0, or -1 after an error message. */
int volume_write_labels(const char *path, const struct volume *like, const uint8_t *labels);

/* ---- file formats ---------------------------------------------------------------------------- */

/* Fill in a volume whose path is set.  Return 0, or -1 after an error message. */
int volume_open_nifti(struct volume *v, const char *unpack);
int volume_open_meta(struct volume *v);
int volume_open_tensor(struct volume *v);
void volume_close_nifti(struct volume *v);

int volume_write_nifti(const char *path, const struct volume *like, const uint8_t *labels);
int volume_write_meta(const char *path, const struct volume *like, const uint8_t *labels);
int volume_write_tensor(const char *path, const struct volume *like, const uint8_t *labels);

#endif
