/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 3-D volume in a file, of which boxes are read: nothing else of it is held in memory.  Axes are
 * slices, rows, columns; columns lie side by side in the file.
 *
 *   .nii, .nii.gz   NIfTI-1 (built with libniftiio); a compressed one is unpacked to a file without
 *                   a name in the directory that volume_open is given
 *   .mhd            MetaImage: a header of text beside raw voxels
 *   .safetensors    tensors "volume" [slices, rows, columns] and, where voxels are not 1 mm apart
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

struct volume {
    char path[4096];
    int64_t size[3]; /* slices, rows, columns */
    /* Millimetres to the right, to the front and up, of (column, row, slice, 1). */
    double affine[3][4];
    /* voxels: of a file descriptor, or of a tensor */
    enum volume_type type;
    bool swapped;         /* bytes of the other order */
    double slope, offset; /* value = slope voxel + offset */
    int fd;               /* -1: none */
    int64_t first;        /* byte of the first voxel */
    ckpt_file *tensors;
    int entry;
    void *header; /* of NIfTI, for what is written like it; or NULL */
};

/* Opens a file.  unpack: a directory for what is compressed.  Returns 0, or -1 after a sentence. */
int volume_open(struct volume *v, const char *path, const char *unpack);
/* Of one that was not opened, all 0, nothing. */
void volume_close(struct volume *v);

/* The values of a box that lies inside, row-major.  What is not finite in the file is read as 0.
 * Returns 0, or -1 after a sentence. */
int volume_read(const struct volume *v, const int64_t at[3], const int64_t size[3], float *to);

int64_t volume_voxels(const struct volume *v);
/* Bytes between the values of a type. */
int64_t volume_type_size(enum volume_type type);
/* Millimetres between two voxels of an axis: 0 slices, 1 rows, 2 columns. */
double volume_spacing(const struct volume *v, int axis);

/* Whether b lies where a does: the same size, and corners within a hundredth of a voxel.  Returns
 * 0, or -1 after a sentence that begins with the path of b. */
int volume_match(const struct volume *a, const struct volume *b);

/* Whether a file of that name can be written here.  Returns 0, or -1 after a sentence. */
int volume_writable(const char *path);
/* Writes labels [slices, rows, columns] with the header, or the place, of another volume.  Returns
 * 0, or -1 after a sentence. */
int volume_write_labels(const char *path, const struct volume *like, const uint8_t *labels);

/* ---- kinds of files -------------------------------------------------------------------------- */

/* Fill in an opened volume, whose path is set.  Return 0, or -1 after a sentence. */
int volume_open_nifti(struct volume *v, const char *unpack);
int volume_open_meta(struct volume *v);
int volume_open_tensor(struct volume *v);
void volume_close_nifti(struct volume *v);

int volume_write_nifti(const char *path, const struct volume *like, const uint8_t *labels);
int volume_write_meta(const char *path, const struct volume *like, const uint8_t *labels);
int volume_write_tensor(const char *path, const struct volume *like, const uint8_t *labels);

#endif
