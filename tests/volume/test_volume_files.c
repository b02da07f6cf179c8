/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes in files: values, positions and refusals. make_volume_files.py defines the contents. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "examples/common/say.h"
#include "examples/volume/volume.h"

const char say_program[] = "test_volume_files";

enum { X = 4, Y = 3, Z = 2, VOXELS = X * Y * Z };

static char work[] = "/tmp/volumes-XXXXXX", said[1024];

static const char *data(const char *name)
{
    static char path[4096];
    const char *root = getenv("srcdir");

    snprintf(path, sizeof path, "%s/tests/volume/%s", root ? root : ".", name);
    return path;
}

static const char *made(const char *name)
{
    static char path[2][4096];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", work, name);
    return path[turn];
}

static void put(const char *name, const char *text, size_t n)
{
    FILE *f = fopen(made(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* Bytes of a test file, up to `most`, under another name. */
static void copy(const char *from, const char *to, size_t most)
{
    static char bytes[4096];
    FILE *f = fopen(data(from), "rb");

    assert_non_null(f);
    size_t n = fread(bytes, 1, most < sizeof bytes ? most : sizeof bytes, f);
    fclose(f);
    put(to, bytes, n);
}

/* A copy of swapped.nii with other bytes from an offset on. */
static void changed(const char *to, size_t offset, const char *bytes, size_t n)
{
    char all[400];
    FILE *f = fopen(data("swapped.nii"), "rb");

    assert_non_null(f);
    assert_int_equal(fread(all, 1, sizeof all, f), sizeof all);
    fclose(f);
    memcpy(all + offset, bytes, n);
    put(to, all, sizeof all);
}

static void opened(struct volume *v, const char *path)
{
    assert_int_equal(volume_open(v, path, work), 0);
}

static void refused(const char *path, const char *sentence)
{
    struct volume v;

    say_keep(said, sizeof said);
    said[0] = 0;
    int rc = volume_open(&v, path, work);
    say_keep(NULL, 0);
    assert_int_equal(rc, -1);
    if (!strstr(said, sentence))
        fail_msg("no \"%s\" in: %s", sentence, said);
}

/* Every box of a test volume. */
static void check_values(const struct volume *v)
{
    float got[VOXELS];

    assert_true(v->size[0] == Z && v->size[1] == Y && v->size[2] == X);
    for (int i = 0; i < VOXELS * VOXELS; i++) {
        int64_t at[3] = {i % Z, i / Z % Y, i / Z / Y % X};
        int64_t size[3] = {1 + i / VOXELS % Z, 1 + i / VOXELS / Z % Y, 1 + i / VOXELS / Z / Y};
        if (at[0] + size[0] > Z || at[1] + size[1] > Y || at[2] + size[2] > X)
            continue;
        assert_int_equal(volume_read(v, at, size, got), 0);
        for (int64_t k = 0; k < size[0] * size[1] * size[2]; k++) {
            int64_t z = at[0] + k / (size[1] * size[2]), y = at[1] + k / size[2] % size[1];
            int64_t x = at[2] + k % size[2];
            assert_true(got[k] == (float)(100 * z + 10 * y + x));
        }
    }
}

static void check_affine(const struct volume *v, const double affine[12])
{
    for (int i = 0; i < 12; i++)
        assert_true(fabs(v->affine[i / 4][i % 4] - affine[i]) < 1e-5);
}

static void test_meta(void **state)
{
    struct volume v;

    (void)state;
    opened(&v, data("plain.mhd"));
    check_values(&v);
    check_affine(&v, (double[]){-1, 0, 0, -3, 0, -2, 0, -4, 0, 0, 3, 5});
    assert_true(volume_spacing(&v, 0) == 3 && volume_spacing(&v, 2) == 1);
    volume_close(&v);
}

/* The header of plain.mhd with another line for one of its keys; the last of a key counts. */
static void refused_line(const char *line, const char *sentence)
{
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "NDims = 3\nDimSize = 4 3 2\nElementType = MET_SHORT\n%s\n"
                     "ElementDataFile = odd.raw\n",
                     line);

    put("odd.mhd", text, (size_t)n);
    refused(made("odd.mhd"), sentence);
}

/* Sizes must be whole numbers with a countable product, and positions must be valid. */
static void test_meta_numbers(void **state)
{
    (void)state;
    put("odd.raw", "abc", 3);
    refused_line("DimSize = 4.5 3 2", "DimSize = 4.5 3 2 is not supported");
    refused_line("DimSize = 1e300 3 2", "DimSize = 1e300 3 2");
    refused_line("DimSize = nan 3 2", "DimSize = nan 3 2");
    refused_line("DimSize = 0 3 2", "DimSize = 0 3 2");
    refused_line("DimSize = 1048576 1048576 1048576\nElementType = MET_DOUBLE", "are not a volume");
    refused_line("ElementSpacing = 1 nan 1", "ElementSpacing = 1 nan 1");
    refused_line("ElementSpacing = 1 0 1",
                 "its position is not valid: voxels are 1 x 0 x 1 mm apart");
    refused_line("Offset = inf 0 0", "Offset = inf 0 0");
    refused_line("ElementSpacing = 1e300 1 1", "its position is not valid");
    refused_line("HeaderSize = -1", "is truncated: has 3 bytes, and its voxels are 48");
}

/* What changes voxels or positions, and is not supported. */
static void test_meta_keys(void **state)
{
    static const char *const lines[] = {"ObjectType = Tube",
                                        "BinaryData = False",
                                        "CompressedData = True",
                                        "ElementNumberOfChannels = 3",
                                        "HeaderSizePerSlice = 4",
                                        "ElementToIntensityFunctionSlope = 2",
                                        "ElementToIntensityFunctionOffset = -1024",
                                        "DistanceUnits = um",
                                        "ElementType = MET_LONG_LONG",
                                        "ElementDataFile = LIST",
                                        "ElementDataFile = LIST 2",
                                        "ElementDataFile = s%02d.raw 1 2 1"};
    char sentence[128];

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(sentence, sizeof sentence, "%s is not supported", lines[i]);
        refused_line(lines[i], sentence);
    }
    refused_line("ElementDataFile = ../odd.raw", "leads out of the header's directory");
    refused_line("ElementDataFile = a/../../odd.raw", "leads out of the header's directory");
    refused_line("ElementDataFile = /etc/passwd", "leads out of the header's directory");
}

/* The header of plain.mhd with other lines before ElementDataFile, read as the same volume. */
static void taken_lines(const char *lines, const char *file)
{
    char text[2048];
    struct volume v;
    int n = snprintf(text, sizeof text,
                     "ObjectType = Image\nNDims = 3\nDimSize = 4 3 2\nOffset = 3 4 5\n"
                     "ElementSpacing = 1 2 3\nElementType = MET_SHORT\n%s\n"
                     "ElementDataFile = %s\n",
                     lines, file);

    put("even.mhd", text, (size_t)n);
    opened(&v, made("even.mhd"));
    check_values(&v);
    check_affine(&v, (double[]){-1, 0, 0, -3, 0, -2, 0, -4, 0, 0, 3, 5});
    volume_close(&v);
}

/* What other programs write into headers. */
static void test_meta_lines(void **state)
{
    (void)state;
    assert_int_equal(mkdir(made("sub"), 0700), 0);
    copy("plain.raw", "a b.raw", 48);
    copy("plain.raw", "sub/c.raw", 48);
    put("tail.raw", "header", 6);
    FILE *f = fopen(made("tail.raw"), "ab"), *from = fopen(data("plain.raw"), "rb");
    for (int byte; (byte = getc(from)) != EOF;)
        putc(byte, f);
    fclose(f);
    fclose(from);
    taken_lines("Comment =\nObjectSubType = ", "a b.raw");
    taken_lines("\n  \r\n0008|0060 = CT\nITK_InputFilterName = x\nSeq_Frame0_Status=OK",
                "a b.raw \t\r");
    taken_lines("0010|0010 = M\xfcller\nCenterOfRotation = 0 0 0\nAnatomicalOrientation = RAI",
                "sub/c.raw");
    taken_lines("ElementSize = 7 7 7\nElementNumberOfChannels = 1\nDistanceUnits = mm", "a b.raw");
    taken_lines("HeaderSize = 6", "tail.raw");
    taken_lines("HeaderSize = -1", "tail.raw");
    taken_lines("ElementToIntensityFunctionSlope = 1\nCompressedData = False", "a b.raw");
}

/* Voxels after the header, in one file. */
static void test_meta_local(void **state)
{
    static const char header[] = "NDims = 3\nDimSize = 4 3 2\nElementType = MET_SHORT\n"
                                 "ElementSize = 1 2 3\nElementDataFile = LOCAL\n";
    char file[sizeof header - 1 + 48];
    struct volume v;
    FILE *f = fopen(data("plain.raw"), "rb");

    (void)state;
    memcpy(file, header, sizeof header - 1);
    assert_int_equal(fread(file + sizeof header - 1, 1, 48, f), 48);
    fclose(f);
    put("local.mha", file, sizeof file);
    opened(&v, made("local.mha"));
    check_values(&v);
    assert_true(volume_spacing(&v, 0) == 3 && volume_spacing(&v, 2) == 1);
    volume_close(&v);
    put("local.mha", file, sizeof file - 1);
    refused(made("local.mha"), "is truncated: has 47 bytes of voxels, not 48");
    assert_int_equal(volume_writable(made("x.mha")), -1);
}

/* Voxels are read from regular files only: a pipe would block the program. */
static void test_meta_pipe(void **state)
{
    static const char text[] = "NDims = 3\nDimSize = 4 3 2\nElementType = MET_SHORT\n"
                               "ElementDataFile = pipe.raw\n";

    (void)state;
    assert_int_equal(mkfifo(made("pipe.raw"), 0600), 0);
    put("pipe.mhd", text, sizeof text - 1);
    refused(made("pipe.mhd"), "pipe.raw: cannot be read: it is a FIFO");
}

static void test_meta_refused(void **state)
{
    static const char text[] = "NDims = 3\nDimSize = 4 3 2\nElementType = MET_SHORT\n"
                               "ElementDataFile = cut.raw\n";
    static const char packed[] = "NDims = 3\nCompressedData = True\n";

    (void)state;
    put("cut.raw", "abc", 3);
    put("cut.mhd", text, sizeof text - 1);
    refused(made("cut.mhd"), "is truncated: has 3 bytes of voxels, not 48");
    put("packed.mhd", packed, sizeof packed - 1);
    refused(made("packed.mhd"), "CompressedData = True");
    put("four.mhd", "NDims = 4\n", 10);
    refused(made("four.mhd"), "NDims = 4");
    put("none.mhd", "DimSize = 4 3 2\n", 16);
    refused(made("none.mhd"), "lacks DimSize, ElementType or ElementDataFile");
    put("text.mhd", "hello\n", 6);
    refused(made("text.mhd"), "not a line of a MetaImage header");
    refused(made("away.mhd"), "away.mhd");
    refused(made("what.dcm"), "is not .nii");
}

static void write_tensor(const char *name, int ndim, bool finite)
{
    ckpt_file_writer *w;
    float values[VOXELS];

    for (int i = 0; i < VOXELS; i++)
        values[i] = (float)(100 * (i / 12) + 10 * (i / 4 % 3) + i % 4);
    if (!finite)
        values[0] = NAN; /* which is read as 0, as it was */
    assert_int_equal(ckpt_file_create(&w, made(name)), 0);
    assert_int_equal(ckpt_file_add(w, "volume", CKPT_F32, ndim, (int64_t[]){Z, Y, X}, values), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
}

static void test_tensor(void **state)
{
    struct volume v;

    (void)state;
    write_tensor("t.safetensors", 3, false);
    opened(&v, made("t.safetensors"));
    check_values(&v);
    check_affine(&v, (double[]){1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0});
    volume_close(&v);
    write_tensor("flat.safetensors", 2, true);
    refused(made("flat.safetensors"), "has 2 axes");
}

/* Labels that another program resampled; in images voxels that are not finite are 0. */
static void test_labels(void **state)
{
    static const float near[VOXELS] = {0.9999999f, 1.0005f, -0.0005f, 1.9991f, 0.5f, 1.002f, NAN};
    static const float want[2][7] = {{0.9999999f, 1.0005f, -0.0005f, 1.9991f, 0.5f, 1.002f, 0},
                                     {1, 1, 0, 2, 0.5f, 1.002f, NAN}};
    float got[VOXELS];
    struct volume v;
    ckpt_file_writer *w;

    (void)state;
    assert_int_equal(ckpt_file_create(&w, made("n.safetensors")), 0);
    assert_int_equal(ckpt_file_add(w, "volume", CKPT_F32, 3, (int64_t[]){Z, Y, X}, near), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
    opened(&v, made("n.safetensors"));
    for (int i = 0; i < 14; i++) {
        v.values = i < 7 ? VOLUME_IMAGE : VOLUME_LABELS;
        assert_int_equal(volume_read(&v, (int64_t[]){0, 0, 0}, v.size, got), 0);
        float x = want[i / 7][i % 7];
        assert_true(isnan(x) ? isnan(got[i % 7]) : got[i % 7] == x);
    }
    volume_close(&v);
}

/* Labels written with the header of a volume have its values and position when read again. */
static void check_written(const struct volume *like, const char *name)
{
    uint8_t labels[VOXELS];
    struct volume v;
    float got[VOXELS];

    for (int i = 0; i < VOXELS; i++)
        labels[i] = (uint8_t)(i * 10);
    assert_int_equal(volume_write_labels(made(name), like, labels), 0);
    opened(&v, made(name));
    assert_int_equal(volume_match(like, &v), 0);
    assert_int_equal(volume_read(&v, (int64_t[]){0, 0, 0}, v.size, got), 0);
    for (int i = 0; i < VOXELS; i++)
        assert_true(got[i] == (float)labels[i]);
    volume_close(&v);
}

static void check_kinds(const char *path)
{
    static const char *const names[] = {"l.mhd", "l.safetensors", "l.nii", "l.nii.gz"};
    struct volume like;
    int kinds = volume_writable("l.nii") ? 2 : 4;

    opened(&like, path);
    for (int i = 0; i < kinds; i++)
        check_written(&like, names[i]);
    volume_close(&like);
}

static void test_written(void **state)
{
    (void)state;
    check_kinds(data("plain.mhd"));
    write_tensor("t.safetensors", 3, true);
    check_kinds(made("t.safetensors"));
    assert_int_equal(volume_writable("l.png"), -1);
}

static void test_match(void **state)
{
    struct volume a, b;

    (void)state;
    opened(&a, data("plain.mhd"));
    opened(&b, data("plain.mhd"));
    assert_int_equal(volume_match(&a, &b), 0);
    b.affine[0][0] = 1; /* left is right */
    assert_int_equal(volume_match(&a, &b), -1);
    b.affine[0][0] = a.affine[0][0];
    b.size[1]--;
    assert_int_equal(volume_match(&a, &b), -1);
    volume_close(&a);
    volume_close(&b);
}

#ifdef HAVE_NIFTI
static void test_nifti(void **state)
{
    struct volume v;

    (void)state;
    opened(&v, data("oblique.nii.gz"));
    check_values(&v);
    check_affine(&v, (double[]){-1.8, .3, .2, 30.5, .25, 1.9, -.4, -12, .1, .35, 4.9, 7});
    volume_close(&v);
    opened(&v, data("swapped.nii"));
    check_values(&v);
    check_affine(&v, (double[]){2, 0, 0, 0, 0, 2.5, 0, 0, 0, 0, -3, 0});
    volume_close(&v);
    check_kinds(data("oblique.nii.gz"));
    check_kinds(data("swapped.nii"));
}

static void test_nifti_refused(void **state)
{
    (void)state;
    refused(data("four.nii"), "has 4 axes (4 x 3 x 2 x 2)");
    copy("swapped.nii", "cut.nii", 360);
    refused(made("cut.nii"), "is truncated: has 8 bytes of voxels, not 48");
    changed("early.nii", 108, "\0\0\0\0", 4); /* vox_offset */
    refused(made("early.nii"), "vox_offset is 0, and the voxels of a .nii begin at byte 352");
    changed("nan.nii", 112, "\x40\0\0\0\x7f\xc0\0\0", 8); /* scl_slope, scl_inter */
    refused(made("nan.nii"), "scl_slope is 2, and scl_inter is not finite");
    copy("swapped.nii", "head.nii", 300);
    refused(made("head.nii"), "is not a NIfTI-1 file");
    copy("oblique.nii.gz", "cut.nii.gz", 180);
    refused(made("cut.nii.gz"), "cut");
    copy("oblique.nii.gz", "cut2.nii.gz", 20);
    refused(made("cut2.nii.gz"), "is not a NIfTI-1 file");
    refused(made("away.nii"), "away.nii");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meta),         cmocka_unit_test(test_meta_refused),
        cmocka_unit_test(test_meta_numbers), cmocka_unit_test(test_meta_pipe),
        cmocka_unit_test(test_meta_keys),    cmocka_unit_test(test_meta_lines),
        cmocka_unit_test(test_meta_local),   cmocka_unit_test(test_labels),
        cmocka_unit_test(test_tensor),       cmocka_unit_test(test_written),
        cmocka_unit_test(test_match),
#ifdef HAVE_NIFTI
        cmocka_unit_test(test_nifti),        cmocka_unit_test(test_nifti_refused),
#endif
    };
    char remove[64];

    if (!mkdtemp(work))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(remove, sizeof remove, "rm -rf %s", work);
    return system(remove) || failed;
}
