/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of PyTorch that are whole and that are not: members, tensors, and every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/crc32.h"
#include "import/weights.h"
#include "import/zip.h"

static struct zip z;
static char path[] = "/tmp/test-archive-XXXXXX";

static const char *write_zip(void)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(z.data, 1, z.n, f), z.n);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* The zip as it is now is refused with these words. */
static void refused(const char *words)
{
    struct archive *a = NULL;

    assert_int_equal(archive_open(&a, write_zip()), CKPT_EFORMAT);
    assert_null(a);
    if (!strstr(error_get(), words))
        fail_msg("'%s' is not in '%s'", words, error_get());
}

/* Where the i-th entry of the list begins. */
static uint8_t *entry(int i)
{
    uint8_t *p = z.data + z.begin;

    while (i--)
        p += 46 + p[28];
    return p;
}

static void members(void **state)
{
    struct archive *a;
    char text[8] = {0};
    float values[4];

    (void)state;
    zip_archive(&z, NULL, NULL);
    assert_int_equal(archive_open(&a, write_zip()), 0);
    assert_null(archive_find(a, "m/byteorder"));
    assert_null(archive_find(a, "weights"));
    const struct archive_member *m = archive_find(a, "byteorder");
    assert_non_null(m);
    assert_int_equal(m->size, 6);
    assert_int_equal(archive_read(a, m, 2, text, 4), 0);
    assert_string_equal(text, "ttle");
    assert_int_equal(archive_read(a, m, 3, text, 4), CKPT_EFORMAT);
    assert_int_equal(archive_read(a, m, UINT64_MAX, text, 2), CKPT_EFORMAT);
    m = archive_find(a, "data/weights/weight_2");
    assert_int_equal(archive_read(a, m, 8, values, sizeof values), 0);
    assert_true(values[0] == 3 && values[3] == 6);
    /* a file that shrinks is an error, not a signal */
    assert_int_equal(truncate(path, (off_t)m->offset + 10), 0);
    assert_int_equal(archive_read(a, m, 8, values, sizeof values), CKPT_EIO);
    archive_close(a);
}

/* The end record's numbers may be all ones where a ZIP64 record has them. */
static void zip64(void **state)
{
    struct archive *a;

    (void)state;
    zip_archive(&z, NULL, NULL);
    uint64_t list = z.n_list, begin = z.begin, count = z.count;
    size_t at = z.n - 22;
    uint8_t record[56 + 20] = "PK\6\6\54";
    memcpy(record + 24, &count, 8);
    memcpy(record + 32, &count, 8);
    memcpy(record + 40, &list, 8);
    memcpy(record + 48, &begin, 8);
    memcpy(record + 56, "PK\6\7", 4);
    memcpy(record + 64, &at, 8);
    memmove(z.data + at + sizeof record, z.data + at, 22);
    memcpy(z.data + at, record, sizeof record);
    z.n += sizeof record;
    memset(z.data + z.n - 22 + 8, 0xff, 12);
    assert_int_equal(archive_open(&a, write_zip()), 0);
    assert_non_null(archive_find(a, "data/weights/weight_3"));
    archive_close(a);
    z.data[at + 49] ^= 0x7f; /* the list would lie elsewhere */
    refused("outside the file");
    z.data[at + 49] ^= 0x7f;
    z.data[at] = 'X';
    refused("no ZIP64 record");
}

/* A checksum in the list of members is compared; 0 is none. */
static void checksums(void **state)
{
    struct archive *a;
    json_t *json;
    uint32_t sum = crc32_add(crc32_add(0, "12345", 5), "6789", 4);
    int i = 0;

    (void)state;
    assert_int_equal(sum, 0xcbf43926);
    zip_archive(&z, NULL, NULL);
    while (memcmp(entry(i) + 46, "m/models/", 9) != 0)
        i++;
    for (int right = 0; right < 2; right++) {
        memcpy(entry(i) + 16, &sum, sizeof sum);
        assert_int_equal(archive_open(&a, write_zip()), 0);
        const struct archive_member *m = archive_find(a, "models/model.json");
        assert_int_equal(archive_json(a, "models/model.json", &json), right ? 0 : CKPT_EFORMAT);
        if (!right)
            assert_non_null(strstr(error_get(), "models/model.json: is damaged: its bytes"));
        sum = crc32_add(0, z.data + m->offset, (size_t)m->size);
        json_decref(json);
        archive_close(a);
    }
}

static void refusals(void **state)
{
    static const struct {
        int at, value;
        const char *words;
    } fields[] = {
        {8, 1, "archive_format: is encrypted"},
        {10, 8, "archive_format: is compressed"},
        {20, 4, "has two sizes"},
        {34, 1, "lies in another file"},
        {42, 1, "no header where"},
        {44, 0x40, "would begin outside the file"},
        {32, 5, "is damaged: entry 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        zip_archive(&z, NULL, NULL);
        entry(0)[fields[i].at] = (uint8_t)fields[i].value;
        refused(fields[i].words);
    }
    zip_archive(&z, NULL, NULL);
    entry(8)[22] = entry(8)[26] = 1; /* 65,600 bytes */
    refused("would reach beyond the end");
    zip_archive(&z, NULL, NULL);
    memcpy(entry(9) + 46, entry(8) + 46, entry(8)[28]);
    refused("two members with the name data/weights/weight_2");
    zip_archive(&z, NULL, NULL);
    memcpy(entry(9) + 46, "m/../../../etc/pass", 19);
    refused("leaves the folder");
    memcpy(entry(9) + 46, "/data/absolute", 14);
    refused("leaves the folder");
    memcpy(entry(9) + 46, "m\\data\\bac", 10);
    refused("characters that no name should have");
    zip_archive(&z, NULL, NULL);
    z.n -= 30;
    refused("cut off");
    z.data[0] = 'X';
    refused("is not a zip archive");
    z.n = 0;
    refused("is not a zip archive");
}

/* Eight entries for the same kilobytes are more than the file. */
static void overlaps(void **state)
{
    static char bytes[4096];

    (void)state;
    zip_begin(&z);
    zip_member(&z, "m/0", bytes, sizeof bytes);
    for (int i = 1; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof name, "m/%c", '0' + i);
        size_t n = z.n;
        zip_member(&z, name, bytes, sizeof bytes);
        z.n = n;
        memset(z.list + z.n_list - 7, 0, 4); /* all begin at 0 */
    }
    zip_end(&z);
    refused("larger than the file");
}

static void other_files(void **state)
{
    static const char *const names[][2] = {
        {"serialized_exported_program.json", "older PyTorch"},
        {"m/data/weights/model.pt", "weights in a pickle"},
        {"m/constants.pkl", "TorchScript"},
        {"m/data.pkl", "torch.save"},
        {"m/something", "is not a .pt2 file"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        zip_begin(&z);
        zip_text(&z, names[i][0], "{}");
        zip_end(&z);
        refused(names[i][1]);
    }
    zip_begin(&z);
    zip_text(&z, "m/archive_format", "pt2");
    zip_text(&z, "m/archive_version", "0");
    zip_text(&z, "m/byteorder", "big");
    zip_end(&z);
    refused("byteorder is not \"little\"");
}

/* A tensor in a list of weights. */
struct view {
    const char *name, *file;
    int dtype, ndim;
    int64_t size[2], stride[2], offset;
};

static void put_numbers(FILE *f, const char *key, const struct view *v, const int64_t *n)
{
    fprintf(f, "\"%s\": [", key);
    for (int i = 0; i < v->ndim; i++)
        fprintf(f, "%s{\"as_int\": %lld}", i ? ", " : "", (long long)n[i]);
    fprintf(f, "], ");
}

static void put_view(FILE *f, const struct view *v)
{
    fprintf(f, "\"%s\": {\"path_name\": \"%s\", \"is_param\": true, \"use_pickle\": false, ",
            v->name, v->file);
    fprintf(f, "\"tensor_meta\": {\"dtype\": %d, \"layout\": 7, ", v->dtype);
    put_numbers(f, "sizes", v, v->size);
    put_numbers(f, "strides", v, v->stride);
    fprintf(f, "\"storage_offset\": {\"as_int\": %lld}}}", (long long)v->offset);
}

/* Opens the tensors of an archive whose weights are these; returns the code. */
static int open_text(const char *list, struct archive **a, struct weights **w)
{
    zip_archive(&z, NULL, list);
    assert_int_equal(archive_open(a, write_zip()), 0);
    return weights_open(w, *a, "model");
}

static int open_views(const struct view *views, size_t n, struct archive **a, struct weights **w)
{
    static char text[1 << 14];
    FILE *f = fmemopen(text, sizeof text, "w");

    assert_non_null(f);
    fprintf(f, "{\"config\": {");
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", f);
        put_view(f, &views[i]);
    }
    fprintf(f, "}}");
    assert_int_equal(fclose(f), 0);
    return open_text(text, a, w);
}

static void tensors(void **state)
{
    static const struct view views[] = {
        {"dense", "weight_0", 7, 2, {2, 3}, {3, 1}, 4},
        {"tied", "weight_0", 7, 2, {2, 3}, {3, 1}, 4},
        {"turned", "weight_0", 7, 2, {3, 2}, {1, 3}, 4},
        {"wide", "weight_1", 7, 2, {4, 2}, {0, 1}, 0},
        {"number", "weight_1", 7, 0, {0}, {0}, 15},
        {"none", "weight_1", 7, 1, {0}, {1}, 0},
        {"whole", "weight_2", 4, 1, {2}, {8}, 0},
    };
    struct archive *a;
    struct weights *w;
    float x[16];
    int32_t bits[2];

    (void)state;
    assert_int_equal(open_views(views, sizeof views / sizeof *views, &a, &w), 0);
    const struct weight *dense = weights_find(w, "dense"), *turned = weights_find(w, "turned");
    assert_true(weights_same(dense, weights_find(w, "tied")));
    assert_false(weights_same(dense, turned));
    assert_ptr_equal(dense->storage, turned->storage);
    assert_int_equal(weights_read_f32(w, dense, 1, x, 5), 0);
    assert_true(x[0] == 6 && x[4] == 10);
    assert_int_equal(weights_read_f32(w, turned, 0, x, 6), 0);
    assert_true(x[0] == 5 && x[1] == 8 && x[2] == 6 && x[5] == 10);
    assert_int_equal(weights_read(w, turned, 3, x, 2), 0);
    assert_true(x[0] == 9 && x[1] == 7);
    assert_int_equal(weights_read_f32(w, weights_find(w, "wide"), 0, x, 8), 0);
    assert_true(x[0] == 1 && x[1] == 2 && x[6] == 1 && x[7] == 2);
    assert_int_equal(weights_read_f32(w, weights_find(w, "number"), 0, x, 1), 0);
    assert_true(x[0] == 16);
    assert_int_equal(weights_read_f32(w, weights_find(w, "none"), 0, x, 0), 0);
    assert_int_equal(weights_read_i32(w, weights_find(w, "whole"), 0, bits, 2), 0);
    assert_int_equal(bits[1], 0x41100000); /* 9.0f */
    assert_int_equal(weights_read_i32(w, dense, 0, bits, 1), CKPT_EFORMAT);
    assert_int_equal(weights_read_f32(w, dense, 5, x, 2), CKPT_EINVAL);
    assert_null(weights_find(w, "other"));
    weights_close(w);
    archive_close(a);
}

static void refused_list(int rc, struct archive *a, const char *words)
{
    assert_int_equal(rc, CKPT_EFORMAT);
    if (!strstr(error_get(), words))
        fail_msg("'%s' is not in '%s'", words, error_get());
    archive_close(a);
}

static void bad_tensors(void **state)
{
    static const struct {
        struct view view;
        const char *words;
    } views[] = {
        {{"x", "weight_9", 7, 1, {2}, {1}, 0}, "is missing"},
        {{"x", "../m/byteorder", 7, 1, {2}, {1}, 0}, "is missing"},
        {{"x", "weight_0", 7, 1, {17}, {1}, 0}, "needs 68 bytes"},
        {{"x", "weight_0", 7, 1, {2}, {15}, 1}, "needs 68 bytes"},
        {{"x", "weight_0", 7, 1, {2}, {INT64_MAX}, 1}, "too large"},
        {{"x", "weight_0", 7, 2, {INT64_C(1) << 32, INT64_C(1) << 32}, {0, 0}, 0}, "too large"},
        {{"x", "weight_0", 7, 1, {2}, {-1}, 0}, "no number"},
        {{"x", "weight_0", 7, 1, {2}, {1}, -1}, "no number"},
    };
    static const char *const texts[][2] = {
        {"{}", "has no list"},
        {"{\"config\": {\"x\": {}}}", "no file"},
        {"{\"config\": {\"x\": {\"path_name\": \"weight_0\", \"tensor_meta\": {}}}}", "belong"},
        {"{\"config\": {\"x\": {\"path_name\": \"weight_0\", \"use_pickle\": true, "
         "\"tensor_meta\": {}}}}",
         "pickled"},
    };
    struct archive *a;
    struct weights *w;

    (void)state;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        int rc = open_views(&views[i].view, 1, &a, &w);
        refused_list(rc, a, views[i].words);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int rc = open_text(texts[i][0], &a, &w);
        refused_list(rc, a, texts[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members),     cmocka_unit_test(zip64),     cmocka_unit_test(refusals),
        cmocka_unit_test(overlaps),    cmocka_unit_test(tensors),   cmocka_unit_test(bad_tensors),
        cmocka_unit_test(other_files), cmocka_unit_test(checksums),
    };
    int fd = mkstemp(path);

    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
