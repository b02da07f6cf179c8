/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MetaImage: lines "Key = value", and raw voxels in the file that ElementDataFile names, in the
 * same directory.  Its body axes point left, back and up; the axes of struct volume point right,
 * front and up.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "volume.h"

static const char *const type_name[VOLUME_TYPES] = {"MET_UCHAR", "MET_CHAR",  "MET_USHORT",
                                                    "MET_SHORT", "MET_UINT",  "MET_INT",
                                                    "MET_FLOAT", "MET_DOUBLE"};

/* The values of the header. */
struct meta {
    double size[3], spacing[3], origin[3], turn[9];
    char data[2048];
    bool sized, typed;
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
    return text[strspn(text, " \t\r\n")] == 0;
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

/* Reads one line; returns whether the value is supported.  Irrelevant keys are ignored. */
static bool take_line(struct volume *v, struct meta *m, const char *key, const char *text)
{
    double n;

    if (!strcmp(key, "NDims"))
        return numbers(text, 1, &n) && n == 3;
    if (!strcmp(key, "DimSize"))
        return m->sized = sizes(text, m->size);
    if (!strcmp(key, "ElementSpacing") || !strcmp(key, "ElementSize"))
        return numbers(text, 3, m->spacing);
    if (!strcmp(key, "Offset") || !strcmp(key, "Position") || !strcmp(key, "Origin"))
        return numbers(text, 3, m->origin);
    if (!strcmp(key, "TransformMatrix") || !strcmp(key, "Rotation") || !strcmp(key, "Orientation"))
        return numbers(text, 9, m->turn);
    if (!strcmp(key, "ElementType"))
        return m->typed = take_type(v, text);
    if (!strcmp(key, "ElementNumberOfChannels"))
        return numbers(text, 1, &n) && n == 1;
    if (!strcmp(key, "HeaderSize"))
        return numbers(text, 1, &n) && n >= 0 && n < 1e9 && ((v->first = (int64_t)n), true);
    if (!strcmp(key, "CompressedData"))
        return !is_true(text);
    if (!strcmp(key, "BinaryDataByteOrderMSB") || !strcmp(key, "ElementByteOrderMSB"))
        v->swapped = is_true(text); /* hosts of libckpt are little-endian */
    if (!strcmp(key, "ElementDataFile"))
        return strcmp(text, "LOCAL") != 0 && !strchr(text, ' ') &&
               snprintf(m->data, sizeof m->data, "%s", text) < (int)sizeof m->data;
    return true;
}

static int read_lines(struct volume *v, struct meta *m, FILE *f)
{
    char line[4096], key[64], text[2048];

    while (!m->data[0] && fgets(line, sizeof line, f)) {
        if (sscanf(line, " %63[A-Za-z] = %2047[^\r\n]", key, text) != 2)
            return say_fail("%s: not a line of a MetaImage header: %.60s", v->path, line);
        if (!take_line(v, m, key, text))
            return say_fail("%s: %s = %.60s is not supported (3 axes, whole numbers or floats, one "
                            "channel, uncompressed voxels in a separate file)",
                            v->path, key, text);
    }
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

/* The path of a name in the header's directory. */
static void beside(char dst[4096], const char *path, const char *name)
{
    char copy[4096];

    snprintf(copy, sizeof copy, "%s", path);
    if (name[0] == '/')
        snprintf(dst, 4096, "%s", name);
    else
        snprintf(dst, 4096, "%.2000s/%.2000s", dirname(copy), name);
}

int volume_open_meta(struct volume *v)
{
    struct meta m = {.spacing = {1, 1, 1}, .turn = {1, 0, 0, 0, 1, 0, 0, 0, 1}};
    char data[4096];
    FILE *f;

    if (ckpt_input_open(&f, v->path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = read_lines(v, &m, f);
    fclose(f);
    if (rc)
        return -1;
    take_geometry(v, &m);
    beside(data, v->path, m.data);
    if (ckpt_input_open(&f, data))
        return say_fail("%s: its ElementDataFile %s", v->path, ckpt_error(NULL));
    v->fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 0);
    fclose(f);
    return v->fd < 0 ? say_fail("%s: its ElementDataFile %s: %s", v->path, data, strerror(errno))
                     : 0;
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
