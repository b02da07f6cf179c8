/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MetaImage: lines "Key = value", and raw voxels in the file that ElementDataFile names, in the
 * directory of the header or below, or after the header (LOCAL; .mha).  Its body axes point left,
 * back and up; the axes of struct volume point right, front and up.
 *
 * Keys that change no voxel and no position are ignored: comments, names, tags of DICOM.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "../common/text_file.h"
#include "ckpt_tools.h"
#include "volume.h"

static const char *const type_name[VOLUME_TYPES] = {"MET_UCHAR", "MET_CHAR",  "MET_USHORT",
                                                    "MET_SHORT", "MET_UINT",  "MET_INT",
                                                    "MET_FLOAT", "MET_DOUBLE"};

/* The values of the header. */
struct meta {
    double size[3], spacing[3], origin[3], turn[9];
    double skipped; /* bytes before the voxels; -1: the voxels end the file */
    char data[2048];
    bool sized, typed, spaced;
};

/* Parses n finite numbers and nothing else. */
static bool numbers(const char *text, int n, double *to)
{
    char *end;

    for (int i = 0; i < n; i++, text = end) {
        to[i] = strtod(text, &end);
        if (end == text || !isfinite(to[i]))
            return false;
    }
    return text[strspn(text, " \t")] == 0;
}

static bool is_number(const char *text, double wanted)
{
    double n;

    return numbers(text, 1, &n) && n == wanted;
}

/* Parses the voxel counts of three axes. */
static bool sizes(const char *text, double *to)
{
    bool whole = numbers(text, 3, to);

    for (int i = 0; i < 3 && whole; i++)
        whole = to[i] >= 1 && to[i] <= 1 << 20 && to[i] == floor(to[i]);
    return whole;
}

static bool is_true(const char *text)
{
    return text[0] == 'T' || text[0] == 't' || text[0] == '1';
}

static bool take_type(struct volume *v, const char *text)
{
    for (int i = 0; i < VOLUME_TYPES; i++)
        if (!strcmp(text, type_name[i])) {
            v->type = (enum volume_type)i;
            return true;
        }
    return false;
}

static bool is_one_of(const char *key, const char *a, const char *b, const char *c)
{
    return !strcmp(key, a) || !strcmp(key, b) || !strcmp(key, c);
}

/* The spacing is ElementSpacing; where it is missing, the size of a voxel. */
static bool take_spacing(struct meta *m, const char *key, const char *text)
{
    double ignored[3];
    bool spacing = !strcmp(key, "ElementSpacing");
    bool good = numbers(text, 3, spacing || !m->spaced ? m->spacing : ignored);

    m->spaced |= spacing;
    return good;
}

/* A name with % would be a pattern of many files. */
static bool take_data(struct meta *m, const char *text)
{
    return *text && strcmp(text, "LIST") != 0 && strncmp(text, "LIST ", 5) != 0 &&
           !strchr(text, '%') &&
           snprintf(m->data, sizeof m->data, "%s", text) < (int)sizeof m->data;
}

/* Keys that must have one value, if they are there. */
static bool is_usual(const char *key, const char *text)
{
    static const struct {
        const char *key;
        double value;
    } all[] = {{"NDims", 3},
               {"ElementNumberOfChannels", 1},
               {"HeaderSizePerSlice", 0},
               {"ElementToIntensityFunctionSlope", 1},
               {"ElementToIntensityFunctionOffset", 0}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(key, all[i].key))
            return is_number(text, all[i].value);
    if (!strcmp(key, "ObjectType"))
        return !strcmp(text, "Image");
    if (!strcmp(key, "BinaryData"))
        return is_true(text);
    if (!strcmp(key, "CompressedData"))
        return !is_true(text);
    if (!strcmp(key, "DistanceUnits"))
        return is_one_of(text, "mm", "?", "");
    return true;
}

/* Reads one line; returns whether the value is supported. */
static bool take_line(struct volume *v, struct meta *m, const char *key, const char *text)
{
    if (!strcmp(key, "DimSize"))
        return m->sized = sizes(text, m->size);
    if (!strcmp(key, "ElementSpacing") || !strcmp(key, "ElementSize"))
        return take_spacing(m, key, text);
    if (is_one_of(key, "Offset", "Position", "Origin"))
        return numbers(text, 3, m->origin);
    if (is_one_of(key, "TransformMatrix", "Rotation", "Orientation"))
        return numbers(text, 9, m->turn);
    if (!strcmp(key, "ElementType"))
        return m->typed = take_type(v, text);
    if (!strcmp(key, "HeaderSize"))
        return numbers(text, 1, &m->skipped) && m->skipped >= -1 && m->skipped < 1e9 &&
               m->skipped == floor(m->skipped);
    if (!strcmp(key, "BinaryDataByteOrderMSB") || !strcmp(key, "ElementByteOrderMSB"))
        v->swapped = is_true(text); /* hosts of libckpt are little-endian */
    if (!strcmp(key, "ElementDataFile"))
        return take_data(m, text);
    return is_usual(key, text);
}

/* Splits "Key = value", and removes blanks around both.  Returns the value; NULL: no such line. */
static char *split(char *line)
{
    char *text = strchr(line, '=');

    if (!text)
        return NULL;
    *text = 0;
    return *text_strip(line) ? text_strip(text + 1) : NULL;
}

static int read_line(struct volume *v, struct meta *m, char *line)
{
    char start[64];

    line += strncmp(line, "\xef\xbb\xbf", 3) ? 0 : 3; /* the mark of UTF-8 */
    snprintf(start, sizeof start, "%s", text_strip(line));
    if (!*line)
        return 0;
    const char *text = split(line);
    if (!text)
        return say_fail("%s: not a line of a MetaImage header: %s", v->path, start);
    return take_line(v, m, line, text)
               ? 0
               : say_fail("%s: %s = %.60s is not supported (an image of 3 axes in mm, whole "
                          "numbers or floats, one channel, uncompressed voxels in one file)",
                          v->path, line, text);
}

static int read_lines(struct volume *v, struct meta *m, FILE *f)
{
    char *line = NULL;
    size_t room = 0;
    int rc = 0;

    while (!rc && !m->data[0] && getline(&line, &room, f) > 0)
        rc = read_line(v, m, line);
    free(line);
    if (rc)
        return -1;
    return m->sized && m->typed && m->data[0]
               ? 0
               : say_fail("%s: lacks DimSize, ElementType or ElementDataFile", v->path);
}

static void take_geometry(struct volume *v, const struct meta *m)
{
    for (int i = 0; i < 3; i++) {
        double sign = i < 2 ? -1 : 1;
        v->size[i] = (int64_t)m->size[2 - i];
        for (int k = 0; k < 3; k++)
            v->affine[i][k] = sign * m->turn[3 * k + i] * m->spacing[k];
        v->affine[i][3] = sign * m->origin[i];
    }
}

/* Whether a name stays in the directory of the header, or below. */
static bool stays(const char *name)
{
    bool up = !strncmp(name, "../", 3) || strstr(name, "/../") || !strcmp(name, "..");

    return name[0] != '/' && !up;
}

/* Opens the file of the voxels: the header's own, f, or one that it names. */
static int open_data(struct volume *v, const struct meta *m, FILE *f)
{
    char data[4096], copy[4096];
    FILE *other = NULL;

    if (!strcmp(m->data, "LOCAL")) {
        v->first = ftello(f);
        v->fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 0);
        return v->fd < 0 ? say_fail("%s: %s", v->path, strerror(errno)) : 0;
    }
    if (!stays(m->data))
        return say_fail("%s: ElementDataFile = %.200s leads out of the header's directory, and "
                        "only files in it are read: move it there",
                        v->path, m->data);
    snprintf(copy, sizeof copy, "%s", v->path);
    snprintf(data, sizeof data, "%.2000s/%.2000s", dirname(copy), m->data);
    if (ckpt_input_open(&other, data))
        return say_fail("%s: its ElementDataFile %s", v->path, ckpt_error(NULL));
    v->fd = fcntl(fileno(other), F_DUPFD_CLOEXEC, 0);
    fclose(other);
    return v->fd < 0 ? say_fail("%s: its ElementDataFile %s: %s", v->path, data, strerror(errno))
                     : 0;
}

/* The first voxel: after the bytes to skip, or so that the last one ends the file. */
static int find_first(struct volume *v, const struct meta *m)
{
    double voxels = m->size[0] * m->size[1] * m->size[2];
    double bytes = voxels * (double)volume_type_size(v->type), end;

    if (m->skipped >= 0) {
        v->first += (int64_t)m->skipped;
        return 0;
    }
    end = (double)lseek(v->fd, 0, SEEK_END);
    if (end < bytes)
        return say_fail("%s: is truncated: has %.0f bytes, and its voxels are %.0f", v->path, end,
                        bytes);
    v->first = (int64_t)(end - bytes);
    return 0;
}

int volume_open_meta(struct volume *v)
{
    struct meta m = {.spacing = {1, 1, 1}, .turn = {1, 0, 0, 0, 1, 0, 0, 0, 1}};
    FILE *f;

    if (ckpt_input_open(&f, v->path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = read_lines(v, &m, f) || open_data(v, &m, f) || find_first(v, &m) ? -1 : 0;
    fclose(f);
    if (!rc)
        take_geometry(v, &m);
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_header(FILE *f, const struct volume *v, const char *data)
{
    fprintf(f, "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
               "CompressedData = False\nTransformMatrix =");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 3; i++)
            fprintf(f, " %.9g", (i < 2 ? -1 : 1) * v->affine[i][k] / volume_spacing(v, 2 - k));
    fprintf(f, "\nOffset = %.9g %.9g %.9g\nElementSpacing = %.9g %.9g %.9g\n", -v->affine[0][3],
            -v->affine[1][3], v->affine[2][3], volume_spacing(v, 2), volume_spacing(v, 1),
            volume_spacing(v, 0));
    fprintf(f, "DimSize = %lld %lld %lld\nElementType = MET_UCHAR\nElementDataFile = %s\n",
            (long long)v->size[2], (long long)v->size[1], (long long)v->size[0], data);
}

/* Writes a file: the header (labels NULL), or the labels. */
static int put_file(const char *path, const struct volume *like, const char *data,
                    const uint8_t *labels)
{
    struct ckpt_replacement *file;
    size_t n = (size_t)volume_voxels(like);

    if (ckpt_replace_open(&file, path))
        return say_fail("%s", ckpt_error(NULL));
    FILE *f = ckpt_replace_stream(file);
    if (f && !labels)
        put_header(f, like, data);
    if (!f || (labels && fwrite(labels, 1, n, f) != n) || ferror(f)) {
        ckpt_replace_abandon(file);
        return say_fail("%s: %s", path, strerror(errno));
    }
    return ckpt_replace_commit(file, false) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

int volume_write_meta(const char *path, const struct volume *like, const uint8_t *labels)
{
    char raw[4096];
    size_t stem = strlen(path) - strlen(".mhd");

    snprintf(raw, sizeof raw, "%.*s.raw", (int)stem, path);
    const char *slash = strrchr(raw, '/');
    return put_file(raw, like, NULL, labels) || put_file(path, like, slash ? slash + 1 : raw, NULL)
               ? -1
               : 0;
}
