/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of volumes in their formats, and of lists of them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../examples/volume/dataset.h"
#include "fuzz/fuzz_readers.h"

static int read_volume(const char *path, const char *directory)
{
    struct volume v;

    if (volume_open(&v, path, directory))
        return -1;
    int64_t n = volume_voxels(&v);
    float *values = n <= 1 << 20 ? malloc((size_t)n * sizeof *values) : NULL;
    int rc = values ? volume_read(&v, (int64_t[]){0, 0, 0}, v.size, values) : 0;
    for (int axis = 0; axis < 3; axis++)
        if (!(volume_spacing(&v, axis) > 0))
            abort();
    free(values);
    volume_close(&v);
    return rc;
}

static int link_to(const char *directory, const char *name)
{
    char here[4096], there[4096], of[512];

    snprintf(here, sizeof here, "%s/%s", directory, name);
    snprintf(of, sizeof of, "tests/volume/%s", name);
    char *full = realpath(fuzz_source(there, of), NULL);
    int rc = full ? symlink(full, here) : -1;
    free(full);
    return rc;
}

static void unlink_from(const char *directory, const char *name)
{
    char here[4096];

    snprintf(here, sizeof here, "%s/%s", directory, name);
    remove(here);
}

/* Its voxels stand beside it. */
static int read_meta(const char *path, const char *directory)
{
    if (link_to(directory, "plain.raw"))
        abort();
    int rc = read_volume(path, directory);
    unlink_from(directory, "plain.raw");
    return rc;
}

static int read_list(const char *path, const char *directory)
{
    static const char *const files[] = {"reference.mhd", "reference.raw", "reference_label.mhd",
                                        "reference_label.raw"};
    const struct volume_draw draw = {{4, 4, 4}, 0.5, true, 1};
    struct volume_set s = {.classes = strstr(path, ".csv") ? 3 : 0};
    float image[64];
    int32_t label[64];

    for (int i = 0; i < 4; i++)
        if (link_to(directory, files[i]))
            abort();
    int rc = volume_set_open(&s, path, directory);
    for (int i = 0; i < 8 && !rc; i++)
        rc = volume_take_patch(&s, &draw, i, image, label);
    volume_set_close(&s);
    for (int i = 0; i < 4; i++)
        unlink_from(directory, files[i]);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fuzz_reader readers[] = {
        {"nifti", "v.nii", read_volume}, {"packed", "v.nii.gz", read_volume},
        {"meta", "v.mhd", read_meta},    {"tensor", "v.safetensors", read_volume},
        {"csv", "list.csv", read_list},  {"json", "list.json", read_list}};

    fuzz_readers_run(readers, sizeof readers / sizeof *readers, data, size);
    return 0;
}
