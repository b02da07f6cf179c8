/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of volumes: see dataset.h. */
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "../common/csv.h"
#include "../common/say.h"
#include "../common/settings.h"
#include "ckpt_tools.h"
#include "dataset.h"

enum { MOST_PLACES = 2048 };

/* ---- intensities --------------------------------------------------------------------------- */

int volume_intensity_parse(struct volume_intensity *n, const char *text)
{
    char rest;

    *n = (struct volume_intensity){0};
    if (!text || !strcmp(text, "mr"))
        return 0;
    n->window = sscanf(text, "ct:%lf,%lf%c", &n->low, &n->high, &rest) == 2 && n->low < n->high &&
                isfinite(n->high - n->low);
    return n->window ? 0 : say_fail("--intensity %s: give mr, or ct:LOW,HIGH as ct:-175,250", text);
}

/* Mean and standard deviation of the nonzero voxels, slice by slice.  Says how many are not finite,
 * which are read as 0. */
static int measure(struct volume_case *c, float *slice)
{
    struct volume stored = c->image, *v = &stored;
    const int64_t size[] = {1, v->size[1], v->size[2]};
    double sum = 0, squares = 0, n = 0;
    int64_t odd = 0;

    stored.values = VOLUME_STORED;

    for (int64_t z = 0; z < v->size[0]; z++) {
        if (volume_read(v, (int64_t[]){z, 0, 0}, size, slice))
            return -1;
        for (int64_t i = 0; i < size[1] * size[2]; i++) {
            double x = isfinite(slice[i]) ? (double)slice[i] : 0;
            odd += !isfinite(slice[i]);
            n += x != 0, sum += x, squares += x * x;
        }
    }
    c->mean = n > 0 ? sum / n : 0;
    c->deviation = n > 0 ? sqrt(fmax(squares / n - c->mean * c->mean, 0)) : 0;
    if (odd)
        say_note("%s: %lld of %lld voxels are not finite and are read as 0", v->path,
                 (long long)odd, (long long)volume_voxels(v));
    return 0;
}

static void scale(const struct volume_set *s, const struct volume_case *c, float *x, int64_t n)
{
    const struct volume_intensity *k = &s->intensity;
    double from = k->window ? k->low : c->mean;
    double by = k->window ? 1 / (k->high - k->low) : c->deviation > 0 ? 1 / c->deviation : 1;

    for (int64_t i = 0; i < n; i++) {
        double y = ((double)x[i] - from) * by;
        x[i] = (float)(k->window ? fmin(fmax(y, 0), 1) : x[i] != 0 ? y : 0);
    }
}

/* ---- label maps ------------------------------------------------------------------------------ */

/* Keeps every stride-th voxel of a class; the stride doubles whenever the list is full. */
static void add_place(struct volume_places *p, int64_t at)
{
    if (p->seen++ % p->stride)
        return;
    if (p->n == MOST_PLACES) {
        for (int64_t i = 0; i < MOST_PLACES / 2; i++)
            p->at[i] = p->at[2 * i];
        p->n = MOST_PLACES / 2;
        p->stride *= 2;
        if ((p->seen - 1) % p->stride)
            return;
    }
    p->at[p->n++] = at;
}

static int scan_slice(const struct volume_set *s, struct volume_case *c, int64_t z,
                      const float *slice)
{
    const struct volume *v = &c->label;
    int64_t area = v->size[1] * v->size[2];

    for (int64_t i = 0; i < area; i++) {
        float x = slice[i];
        if (!(x >= 0 && x < (float)s->classes && x == floorf(x)))
            return say_fail("%s: label %.9g at column %lld, row %lld, slice %lld: labels must be "
                            "whole numbers, within 0.001, from 0 to %lld (see --classes)",
                            v->path, (double)x, (long long)(i % v->size[2]),
                            (long long)(i / v->size[2]), (long long)z, (long long)s->classes - 1);
        if (x > 0)
            add_place(&c->places[(int)x], z * area + i);
    }
    return 0;
}

static int scan(const struct volume_set *s, struct volume_case *c, float *slice)
{
    const struct volume *v = &c->label;
    int rc = 0;

    c->places = calloc((size_t)s->classes, sizeof *c->places);
    for (int64_t k = 0; c->places && k < s->classes; k++) {
        c->places[k].stride = 1;
        if (!(c->places[k].at = malloc(MOST_PLACES * sizeof(int64_t))))
            return say_fail("%s: no memory for its labelled voxels", v->path);
    }
    if (!c->places)
        return say_fail("%s: no memory for its labelled voxels", v->path);
    for (int64_t z = 0; z < v->size[0] && !rc; z++)
        rc = volume_read(v, (int64_t[]){z, 0, 0}, (int64_t[]){1, v->size[1], v->size[2]}, slice) ||
                     scan_slice(s, c, z, slice)
                 ? -1
                 : 0;
    return rc;
}

/* ---- lists --------------------------------------------------------------------------------- */

static void beside(char dst[4096], const char *list, const char *name)
{
    char copy[4096];

    snprintf(copy, sizeof copy, "%s", list);
    if (name[0] == '/')
        snprintf(dst, 4096, "%s", name);
    else
        snprintf(dst, 4096, "%.2000s/%.2000s", dirname(copy), name);
}

static int look(const struct volume_set *s, struct volume_case *c, bool labelled)
{
    float *slice = malloc((size_t)(c->image.size[1] * c->image.size[2]) * sizeof *slice);
    int rc = slice ? 0 : say_fail("%s: no memory for a slice", c->image.path);
    bool floats = c->image.type == VOLUME_F32 || c->image.type == VOLUME_F64;

    if (!rc && (!s->intensity.window || floats))
        rc = measure(c, slice);
    if (!rc && labelled)
        rc = scan(s, c, slice);
    free(slice);
    return rc;
}

static int add_case(struct volume_set *s, const char *list, const char *image, const char *label,
                    const char *unpack)
{
    struct volume_case *cases = realloc(s->cases, (size_t)(s->n + 1) * sizeof *cases);
    char path[4096];

    if (!cases)
        return say_fail("%s: no memory for its volumes", list);
    s->cases = cases;
    struct volume_case *c = &cases[s->n++];
    *c = (struct volume_case){.image = {.fd = -1}, .label = {.fd = -1}};
    beside(path, list, image);
    if (volume_open(&c->image, path, unpack))
        return -1;
    bool labelled = label && label[0];
    if (!labelled && !s->unlabelled)
        return say_fail("%s: %s has no label", list, image);
    if (labelled) {
        beside(path, list, label);
        if (volume_open(&c->label, path, unpack) || volume_match(&c->image, &c->label))
            return -1;
        c->label.values = VOLUME_LABELS;
    }
    return look(s, c, labelled);
}

static int read_csv(struct volume_set *s, const char *path, const char *unpack)
{
    struct csv c;
    int rc = csv_open(&c, path) ? -1 : csv_next(&c);
    int image = rc > 0 ? csv_find(&c, "image") : -1, label = rc > 0 ? csv_find(&c, "label") : -1;

    if (!rc)
        rc = say_fail("%s: is empty", path);
    else if (rc > 0 && (image < 0 || (label < 0 && !s->unlabelled)))
        rc = say_fail("%s: has no columns \"image\" and \"label\"", path);
    s->classes = s->classes ? s->classes : 2;
    while (rc > 0 && (rc = csv_next(&c)) > 0)
        if (c.n <= image)
            rc = say_fail("%s, line %lld: has no image", path, (long long)c.line);
        else if (add_case(s, path, c.field[image],
                          label >= 0 && c.n > label ? c.field[label] : NULL, unpack))
            rc = -1;
    csv_close(&c);
    return rc;
}

/* dataset.json: the list of training cases is read; folds and regions of labels would change it. */
static const struct json_keys case_keys[] = {JSON_READ("image label"), JSON_END};
static const struct json_keys dataset_keys[] = {
    JSON_READ("labels"), JSON_READ_INSIDE("training", case_keys),
    JSON_UNUSED("name description reference licence license release relase tensorImageSize "
                "modality channel_names numTraining numTest numValidation test validation "
                "file_ending author version"),
    JSON_END};

/* One more than the largest label, of "1": "liver" as of "liver": 1; 0: there are none. */
static int64_t count_classes(struct settings *j)
{
    json_t *all = (json_t *)(uintptr_t)settings_find(j, "labels"), *value;
    const char *key;
    int64_t most = -1;

    json_object_foreach(all, key, value)
    {
        char *end;
        long long label = strtoll(key, &end, 10);
        if (end == key || *end)
            label = json_is_integer(value) ? json_integer_value(value) : -1;
        if (label < 0 || label > INT32_MAX)
            settings_refuse(j, "labels", "has \"%.40s\", which is no label", key);
        else
            most = label > most ? label : most;
    }
    return most + 1;
}

static int read_json(struct volume_set *s, const char *path, const char *unpack)
{
    struct settings j;
    int rc = settings_open(&j, path);
    const json_t *list = rc ? NULL : settings_find(&j, "training");
    int64_t labels = rc ? 0 : count_classes(&j);

    if (!rc && !json_is_array(list))
        rc = say_fail("%s: has no list \"training\"", path);
    if (!rc)
        settings_allow(&j, dataset_keys);
    rc = rc ? rc : j.failed;
    s->classes = s->classes ? s->classes : labels > 1 ? labels : 2;
    if (!rc && s->classes > VOLUME_CLASSES)
        rc = say_fail("%s: has %lld classes; there can be %d", path, (long long)s->classes,
                      VOLUME_CLASSES);
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        const char *image = json_string_value(json_object_get(e, "image"));
        rc = image
                 ? add_case(s, path, image, json_string_value(json_object_get(e, "label")), unpack)
                 : say_fail("%s: entry %zu of \"training\" has no \"image\"", path, i);
    }
    settings_close(&j);
    return rc;
}

/* Raises the limit of open files: every volume has an open file. */
static void raise_limit(void)
{
    struct rlimit r;

    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

int volume_set_open(struct volume_set *s, const char *path, const char *unpack)
{
    size_t n = strlen(path);

    raise_limit();
    int rc = n > 5 && !strcmp(path + n - 5, ".json") ? read_json(s, path, unpack)
                                                     : read_csv(s, path, unpack);
    return rc || s->n ? rc : say_fail("%s: names no volume", path);
}

void volume_set_close(struct volume_set *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        struct volume_case *c = &s->cases[i];
        for (int64_t k = 0; c->places && k < s->classes; k++)
            free(c->places[k].at);
        free(c->places);
        volume_close(&c->image);
        volume_close(&c->label);
    }
    free(s->cases);
    *s = (struct volume_set){0};
}

/* ---- boxes --------------------------------------------------------------------------------- */

/* Reads a box that may extend beyond the volume, with 0 there. */
static int read_padded(const struct volume *v, const int64_t at[3], const int64_t size[3],
                       float *to)
{
    int64_t first[3], inside[3];

    for (int i = 0; i < 3; i++) {
        int64_t end = at[i] + size[i] < v->size[i] ? at[i] + size[i] : v->size[i];
        first[i] = at[i] > 0 ? at[i] : 0;
        inside[i] = end - first[i];
        if (inside[i] < 1)
            return say_fail("%s: a box is outside of the volume", v->path);
    }
    memset(to, 0, (size_t)(size[0] * size[1] * size[2]) * sizeof *to);
    float *part = malloc((size_t)(inside[0] * inside[1] * inside[2]) * sizeof *part);
    int rc = part ? volume_read(v, first, inside, part) : say_fail("no memory for a patch");
    for (int64_t i = 0; !rc && i < inside[0] * inside[1]; i++) {
        int64_t z = first[0] - at[0] + i / inside[1], y = first[1] - at[1] + i % inside[1];
        memcpy(to + (z * size[1] + y) * size[2] + first[2] - at[2], part + i * inside[2],
               (size_t)inside[2] * sizeof *to);
    }
    free(part);
    return rc;
}

/* Values are scaled before padding: the outside is 0, not the scaled 0. */
int volume_take_image(const struct volume_set *s, const struct volume_case *c, const int64_t at[3],
                      const int64_t size[3], float *to)
{
    const struct volume *v = &c->image;

    if (read_padded(v, at, size, to))
        return -1;
    for (int64_t i = 0; i < size[0] * size[1]; i++) {
        int64_t z = at[0] + i / size[1], y = at[1] + i % size[1];
        int64_t from = at[2] > 0 ? 0 : -at[2];
        int64_t end = v->size[2] - at[2] < size[2] ? v->size[2] - at[2] : size[2];
        if (z >= 0 && z < v->size[0] && y >= 0 && y < v->size[1])
            scale(s, c, to + i * size[2] + from, end - from);
    }
    return 0;
}

/* ---- patches ------------------------------------------------------------------------------- */

/* Indices of the random numbers of a patch. */
enum { U_CASE, U_KIND, U_CLASS, U_PLACE, U_CORNER, U_FLIP = U_CORNER + 3, U_COUNT = U_FLIP + 3 };
enum { STREAM_PATCH = 0x564f0001 };

static int64_t pick(float u, int64_t n)
{
    int64_t i = (int64_t)((double)u * (double)n);

    return i < n ? i : n - 1;
}

/* A random voxel of a random class that the case has; -1: it has none. */
static int64_t foreground_voxel(const struct volume_set *s, const struct volume_case *c,
                                const float *u)
{
    int64_t present = 0;

    for (int64_t k = 1; k < s->classes; k++)
        present += c->places[k].n > 0;
    int64_t left = present ? pick(u[U_CLASS], present) : -1;
    for (int64_t k = 1; k < s->classes && left >= 0; k++)
        if (c->places[k].n && !left--)
            return c->places[k].at[pick(u[U_PLACE], c->places[k].n)];
    return -1;
}

/* The start of a patch: inside the volume; on an axis where the volume is shorter, the patch is
 * centred on it. */
static void place(const struct volume_set *s, const struct volume_case *c,
                  const struct volume_draw *d, const float *u, int64_t at[3])
{
    const int64_t *size = c->image.size;
    int64_t voxel = (double)u[U_KIND] < d->foreground ? foreground_voxel(s, c, u) : -1;
    int64_t middle[3] = {voxel / (size[1] * size[2]), voxel / size[2] % size[1], voxel % size[2]};

    for (int i = 0; i < 3; i++) {
        int64_t most = size[i] - d->size[i];
        at[i] = voxel < 0 ? pick(u[U_CORNER + i], most + 1) : middle[i] - d->size[i] / 2;
        at[i] = at[i] > most ? most : at[i] < 0 ? 0 : at[i];
        if (most < 0)
            at[i] = -(-most / 2);
    }
}

/* Reverses a box of 4-byte elements along the axes in the mask. */
static void flip(void *box, const int64_t size[3], unsigned mask)
{
    int64_t n = size[0] * size[1] * size[2];
    uint32_t *x = box;

    for (int64_t i = 0; i < n; i++) {
        int64_t at[3] = {i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]};
        for (int k = 0; k < 3; k++)
            at[k] = mask >> k & 1 ? size[k] - 1 - at[k] : at[k];
        int64_t j = (at[0] * size[1] + at[1]) * size[2] + at[2];
        if (i < j) {
            uint32_t other = x[j];
            x[j] = x[i];
            x[i] = other;
        }
    }
}

int volume_take_patch(const struct volume_set *s, const struct volume_draw *d, int64_t sample,
                      float *image, int32_t *label)
{
    int64_t at[3], n = d->size[0] * d->size[1] * d->size[2];
    unsigned mask = 0;
    float u[U_COUNT];

    ckpt_fill_uniform(d->seed, (uint64_t)sample, STREAM_PATCH, u, U_COUNT);
    const struct volume_case *c = &s->cases[pick(u[U_CASE], s->n)];
    place(s, c, d, u, at);
    if (read_padded(&c->label, at, d->size, image))
        return -1;
    for (int64_t i = 0; i < n; i++)
        label[i] = (int32_t)image[i];
    if (volume_take_image(s, c, at, d->size, image))
        return -1;
    for (int i = 0; i < 3; i++)
        mask |= d->flips && u[U_FLIP + i] < 0.5f ? 1u << i : 0;
    if (mask) {
        flip(image, d->size, mask);
        flip(label, d->size, mask);
    }
    return 0;
}
