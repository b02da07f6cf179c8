/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phantom DIR N SIZE: writes N cubes with SIZE voxels a side as DIR/image-I.mhd and label-I.mhd,
 * and their list, DIR/list.csv.  Each has spheres (class 1) and tubes along an axis (class 2) of
 * two brightnesses, in noise.  They depend only on I.
 */
#include <math.h>
#include <stdlib.h>
#include "../common/say.h"
#include "ckpt_tools.h"

const char say_program[] = "phantom";

enum { SHAPES = 6, NUMBERS = 5 };

/* The class of a voxel; the last shape that contains it counts. */
static int class_of(const float u[SHAPES][NUMBERS], const float at[3], float side)
{
    int class = 0;

    for (int s = 0; s < SHAPES; s++) {
        int tube = s % 2, along = (int)(u[s][4] * 3);
        float far = 0, radius = side * (tube ? 0.05f + 0.05f * u[s][3] : 0.08f + 0.1f * u[s][3]);
        for (int k = 0; k < 3; k++)
            far += tube && k == along ? 0 : powf(at[k] - u[s][k] * side, 2);
        if (far < radius * radius)
            class = 1 + tube;
    }
    return class;
}

static void draw(uint64_t which, int side, float *noise, int16_t *image, int16_t *label)
{
    int64_t n = (int64_t)side * side * side;
    float u[SHAPES][NUMBERS];

    ckpt_fill_uniform(7, which, 1, &u[0][0], SHAPES * NUMBERS);
    ckpt_fill_normal(7, which, 2, noise, n);
    for (int64_t i = 0; i < n; i++) {
        float at[] = {(float)(i / side / side), (float)(i / side % side), (float)(i % side)};
        label[i] = (int16_t)class_of(u, at, (float)side);
        image[i] = (int16_t)(1000 + 200 * label[i] + 100 * noise[i]);
    }
}

static int put(const char *directory, const char *what, int i, int side, const int16_t *values)
{
    char name[4096];
    size_t n = (size_t)side * (size_t)side * (size_t)side;

    snprintf(name, sizeof name, "%s/%s-%d.mhd", directory, what, i);
    FILE *f = fopen(name, "w");
    if (!f)
        return say_fail("%s: cannot be written", name);
    fprintf(f,
            "ObjectType = Image\nNDims = 3\nElementSpacing = 1.5 1.5 2\nOffset = 10 -20 30\n"
            "DimSize = %d %d %d\nElementType = MET_SHORT\nElementDataFile = %s-%d.raw\n",
            side, side, side, what, i);
    int rc = fclose(f);
    snprintf(name, sizeof name, "%s/%s-%d.raw", directory, what, i);
    f = rc ? NULL : fopen(name, "wb");
    rc = f && fwrite(values, sizeof *values, n, f) == n ? 0 : -1;
    return (f && fclose(f)) || rc ? say_fail("%s: cannot be written", name) : 0;
}

static int put_all(const char *directory, int count, int side)
{
    size_t n = (size_t)side * (size_t)side * (size_t)side;
    float *noise = malloc(n * sizeof *noise);
    int16_t *image = malloc(n * sizeof *image), *label = malloc(n * sizeof *label);
    char name[4096];

    snprintf(name, sizeof name, "%s/list.csv", directory);
    FILE *list = noise && image && label ? fopen(name, "w") : NULL;
    int rc = list ? fprintf(list, "image,label\n") < 0 : say_fail("%s: cannot be written", name);
    for (int i = 0; i < count && !rc; i++) {
        draw((uint64_t)i, side, noise, image, label);
        rc = put(directory, "image", i, side, image) || put(directory, "label", i, side, label) ||
             fprintf(list, "image-%d.mhd,label-%d.mhd\n", i, i) < 0;
    }
    if (list && fclose(list))
        rc = -1;
    free(noise);
    free(image);
    free(label);
    return rc;
}

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[2]) : 0, side = argc == 4 ? atoi(argv[3]) : 0;

    if (count < 1 || side < 8 || side > 1024)
        return say_fail("usage: phantom DIR N SIZE"), 2;
    return put_all(argv[1], count, side) ? 1 : 0;
}
