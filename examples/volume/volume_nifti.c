/* SPDX-License-Identifier: Apache-2.0 */
/* NIfTI-1 files.  libniftiio reads and makes headers; voxels are read directly from the file. */
#include "../common/say.h"
#include "volume.h"
#ifdef HAVE_NIFTI
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <nifti1_io.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_tools.h"

/* ---- reading --------------------------------------------------------------------------------- */

static int take_type(struct volume *v, const nifti_image *n)
{
    static const int types[VOLUME_TYPES] = {DT_UINT8,  DT_INT8,  DT_UINT16,  DT_INT16,
                                            DT_UINT32, DT_INT32, DT_FLOAT32, DT_FLOAT64};

    for (int i = 0; i < VOLUME_TYPES; i++)
        if (types[i] == n->datatype) {
            v->type = (enum volume_type)i;
            return 0;
        }
    return say_fail("%s: voxels are %s: give whole numbers of up to 32 bits, or floats", v->path,
                    nifti_datatype_string(n->datatype));
}

/* sform before qform, as in the standard and its readers; without both, spacing alone. */
static void take_affine(struct volume *v, const nifti_image *n)
{
    const double spacing[] = {(double)n->dx, (double)n->dy, (double)n->dz};

    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 4; k++)
            v->affine[i][k] = n->sform_code > 0   ? (double)n->sto_xyz.m[i][k]
                              : n->qform_code > 0 ? (double)n->qto_xyz.m[i][k]
                                                  : 0;
        if (n->sform_code <= 0 && n->qform_code <= 0)
            v->affine[i][i] = spacing[i] != 0 ? spacing[i] : 1;
    }
}

static int take_header(struct volume *v, const nifti_image *n)
{
    for (int i = 4; i <= n->dim[0] && i < 8; i++)
        if (n->dim[i] > 1)
            return say_fail("%s: has %d axes (%d x %d x %d x %d%s): give one volume of 3", v->path,
                            n->ndim, n->nx, n->ny, n->nz, n->nt, n->ndim > 4 ? " ..." : "");
    v->size[0] = n->nz;
    v->size[1] = n->ny;
    v->size[2] = n->nx;
    v->swapped = n->byteorder != nifti_short_order();
    v->first = n->iname_offset;
    if (n->scl_slope != 0) {
        v->slope = (double)n->scl_slope;
        v->offset = (double)n->scl_inter;
    }
    take_affine(v, n);
    return take_type(v, n);
}

/* Copies the voxels of a compressed file to a separate file. */
static int unpack_voxels(const struct volume *v, znzFile from)
{
    int64_t left = volume_voxels(v) * volume_type_size(v->type);
    static char buffer[1 << 16];

    if (znzseek(from, v->first, SEEK_SET) < 0)
        return say_fail("%s: is truncated, or not a gzip file", v->path);
    while (left) {
        size_t part = left < (int64_t)sizeof buffer ? (size_t)left : sizeof buffer;
        if (znzread(buffer, 1, part, from) != part)
            return say_fail("%s: is truncated, or damaged: %lld bytes of voxels are missing",
                            v->path, (long long)left);
        if (write(v->fd, buffer, part) != (ssize_t)part)
            return say_fail("%s: cannot be unpacked: %s (see --unpack)", v->path, strerror(errno));
        left -= (int64_t)part;
    }
    return 0;
}

static int unpack_file(struct volume *v, const char *path, const char *directory)
{
    char name[4096];
    znzFile from = znzopen(path, "rb", 1);

    if (znz_isnull(from))
        return say_fail("%s: %s", path, strerror(errno));
    snprintf(name, sizeof name, "%s/volume-XXXXXX", directory);
    v->fd = mkstemp(name);
    int rc = v->fd < 0 ? say_fail("--unpack %s: %s", directory, strerror(errno)) : 0;
    if (!rc) {
        unlink(name);
        rc = unpack_voxels(v, from);
    }
    v->first = 0;
    znzclose(from);
    return rc;
}

/* What the library replaces without a word: voxels at another offset, an offset of values that is
 * no number, as 0. */
static int check_raw(const struct volume *v)
{
    nifti_1_header *h = nifti_read_header(v->path, NULL, 0);
    const size_t least = sizeof *h + 4;
    int rc = 0;

    if (!h)
        return say_fail("%s: is not a NIfTI-1 file, or its header is damaged", v->path);
    if (!(h->vox_offset >= (float)least) || h->vox_offset != floorf(h->vox_offset))
        rc = say_fail(
            "%s: vox_offset is %g, and the voxels of a .nii begin at byte %zu or behind it",
            v->path, (double)h->vox_offset, least);
    else if (isfinite(h->scl_slope) && h->scl_slope != 0 && !isfinite(h->scl_inter))
        rc = say_fail("%s: scl_slope is %g, and scl_inter is not finite", v->path,
                      (double)h->scl_slope);
    free(h);
    return rc;
}

int volume_open_nifti(struct volume *v, const char *unpack)
{
    FILE *there;

    if (ckpt_input_open(&there, v->path)) /* otherwise the library would try other names */
        return say_fail("%s", ckpt_error(NULL));
    fclose(there);
    nifti_set_debug_level(0);
    nifti_image *n = is_nifti_file(v->path) > 0 ? nifti_image_read(v->path, 0) : NULL;
    if (!n)
        return say_fail("%s: is not a NIfTI-1 file, or its header is damaged", v->path);
    v->header = n;
    if (check_raw(v) || take_header(v, n))
        return -1;
    if (nifti_is_gzfile(n->iname))
        return unpack_file(v, n->iname, unpack);
    v->fd = open(n->iname, O_RDONLY | O_CLOEXEC);
    return v->fd < 0 ? say_fail("%s: %s", n->iname, strerror(errno)) : 0;
}

void volume_close_nifti(struct volume *v)
{
    nifti_image_free(v->header);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Makes a header from a volume of another format. */
static nifti_image *header_of(const struct volume *v)
{
    int dim[8] = {3, (int)v->size[2], (int)v->size[1], (int)v->size[0], 1, 1, 1, 1};
    nifti_image *n = nifti_make_new_nim(dim, DT_UINT8, 0);

    if (!n)
        return NULL;
    memset(&n->sto_xyz, 0, sizeof n->sto_xyz);
    n->sto_xyz.m[3][3] = 1;
    for (int i = 0; i < 3; i++) {
        n->pixdim[1 + i] = (float)volume_spacing(v, 2 - i);
        for (int k = 0; k < 4; k++)
            n->sto_xyz.m[i][k] = (float)v->affine[i][k];
    }
    n->dx = n->pixdim[1], n->dy = n->pixdim[2], n->dz = n->pixdim[3];
    n->sform_code = NIFTI_XFORM_SCANNER_ANAT;
    n->xyz_units = NIFTI_UNITS_MM;
    return n;
}

/* Writes the header, and after it the extensions that DICOM converters and others add. */
static bool put_header(znzFile f, nifti_image *n)
{
    const char none[4] = {0}, some[4] = {1, 0, 0, 0};
    struct nifti_1_header h;

    nifti_set_iname_offset(n);
    h = nifti_convert_nim2nhdr(n);
    bool good = znzwrite(&h, 1, sizeof h, f) == sizeof h &&
                znzwrite(n->num_ext ? some : none, 1, 4, f) == 4;
    for (int i = 0; i < n->num_ext && good; i++) {
        const nifti1_extension *e = &n->ext_list[i];
        size_t rest = (size_t)e->esize - 8;
        good = znzwrite(&e->esize, 1, 4, f) == 4 && znzwrite(&e->ecode, 1, 4, f) == 4 &&
               znzwrite(e->edata, 1, rest, f) == rest;
    }
    return good;
}

static int put_file(const char *path, const char *name, nifti_image *n, const uint8_t *labels)
{
    znzFile f = znzopen(name, "wb", nifti_is_gzfile(path));
    size_t voxels = n->nvox;
    bool good = !znz_isnull(f) && put_header(f, n) && znzwrite(labels, 1, voxels, f) == voxels;

    if (!znz_isnull(f) && znzclose(f))
        good = false;
    return good ? 0 : say_fail("%s: %s", path, strerror(errno));
}

/* A label map has one byte per voxel, in one file, without scaling. */
static void make_labels(nifti_image *n)
{
    n->datatype = DT_UINT8;
    n->nbyper = 1;
    n->swapsize = 0;
    n->scl_slope = 0;
    n->scl_inter = 0;
    n->cal_min = 0;
    n->cal_max = 0;
    n->nifti_type = NIFTI_FTYPE_NIFTI1_1;
    n->byteorder = nifti_short_order();
    n->intent_code = NIFTI_INTENT_LABEL;
}

int volume_write_nifti(const char *path, const struct volume *like, const uint8_t *labels)
{
    nifti_image *n = like->header ? nifti_copy_nim_info(like->header) : header_of(like);
    struct ckpt_replacement *file;

    if (!n)
        return say_fail("%s: no memory for its header", path);
    make_labels(n);
    int rc = ckpt_replace_open(&file, path) ? say_fail("%s", ckpt_error(NULL)) : 0;
    if (!rc && put_file(path, ckpt_replace_name(file), n, labels)) {
        ckpt_replace_abandon(file);
        rc = -1;
    } else if (!rc && ckpt_replace_commit(file, false)) {
        rc = say_fail("%s", ckpt_error(NULL));
    }
    nifti_image_free(n);
    return rc;
}

#else
static int missing(const char *path)
{
    return say_fail("%s: built without libniftiio: give .mhd or .safetensors", path);
}

int volume_open_nifti(struct volume *v, const char *unpack)
{
    (void)unpack;
    return missing(v->path);
}

void volume_close_nifti(struct volume *v)
{
    (void)v;
}

int volume_write_nifti(const char *path, const struct volume *like, const uint8_t *labels)
{
    (void)like;
    (void)labels;
    return missing(path);
}
#endif
