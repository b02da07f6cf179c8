/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of safetensors files: every bit flip is detected, and files without checksums are read
 * as before. */
#include <fcntl.h>
#include <string.h>
#include "ckpt_files.h"
#include "test_directory.h"
#include "state/safetensors.h"

enum { SMALL_FILE = 4096 + 48 };

static ckpt_file_writer *make_small(void)
{
    static const float values[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int32_t ints[3] = {-1, 0, 1};
    ckpt_file_writer *w;

    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "a", CKPT_F32, 2, (int64_t[]){3, 3}, values), 0);
    assert_int_equal(ckpt_file_add(w, "b", CKPT_I32, 1, (int64_t[]){3}, ints), 0);
    assert_int_equal(ckpt_file_add(w, "none", CKPT_F32, 1, (int64_t[]){0}, NULL), 0);
    return w;
}

static void write_small(void)
{
    assert_int_equal(ckpt_file_commit(make_small()), 0);
}

/* Opens the file and reads all of it. */
static int read_small(void)
{
    float values[9];
    int32_t ints[3];
    ckpt_file *f;
    int rc = ckpt_file_open(&f, path);

    if (rc)
        return rc;
    rc = ckpt_file_read_f32(f, ckpt_file_find(f, "a"), values, 9);
    if (!rc)
        rc = ckpt_file_read_i32(f, ckpt_file_find(f, "b"), ints, 3);
    ckpt_file_close(f);
    return rc;
}

/* If any bit of the file flips, including length and padding, the file is refused by name. */
static void test_every_bit(void **state)
{
    char bytes[SMALL_FILE + 1];

    (void)state;
    write_small();
    assert_int_equal(read_bytes(bytes, sizeof bytes), SMALL_FILE);
    assert_int_equal(read_small(), 0);
    int fd = open(path, O_WRONLY);
    for (int bit = 0; bit < 8 * SMALL_FILE; bit++) {
        char flipped = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(pwrite(fd, &flipped, 1, bit / 8), 1);
        if (read_small() != CKPT_EFORMAT || strncmp(error_get(), path, strlen(path)))
            fail_msg("bit %d of byte %d: \"%s\"", bit % 8, bit / 8, error_get());
        assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, bit / 8), 1);
    }
    close(fd);
    assert_int_equal(read_small(), 0);
}

/* The file with `from` replaced by `to` in its header, of equal length. */
static void change(const char *from, const char *to, bool seal)
{
    char bytes[SMALL_FILE];
    size_t n = read_bytes(bytes, sizeof bytes);
    char *at = memmem(bytes, n, from, strlen(from));

    assert_int_equal(strlen(from), strlen(to));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    if (seal)
        file_seal_header(bytes, 4096);
    write_bytes(bytes, n);
}

/* A changed header, and incomplete notes of checksums; the last has a valid header checksum but
 * lacks a name. */
static void test_other_sums(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        bool seal;
        const char *expect;
    } cases[] = {
        {"\"a\":{", "\"A\":{", false, "the header does not match its checksum"},
        {"ckpt64-1", "ckpt64-2", true, "checksums of the kind 'ckpt64-2'"},
        {"ckpt.checksum.data", "ckpt.checksum.dat_", true, "the header does not match"},
        {"ckpt.checksum.header", "ckpt.checksum.heade_", false, "the header does not match"},
        {"\"ckpt.checksum\"", "\"ckpt.checksu_\"", true, "the header does not match"},
        {"\"a\":{", "\"A\":{", true, "there is no tensor number"},
    };

    const size_t n = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n; i++) {
        write_small();
        change(cases[i].from, cases[i].to, cases[i].seal);
        assert_int_equal(read_small(), i + 1 < n ? CKPT_EFORMAT : CKPT_EINVAL);
        if (!strstr(error_get(), cases[i].expect))
            fail_msg("'%s' without '%s'", error_get(), cases[i].expect);
    }
}

/* A pipe cannot seek back: a file written to one has no checksums, and is read as it is. */
static void test_no_sums(void **state)
{
    char bytes[SMALL_FILE + 1];
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    ckpt_file_writer *w = make_small();
    assert_int_equal(file_write_to(w, ends[1]), 0);
    ckpt_file_abandon(w);
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], bytes + n, sizeof bytes - n)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    assert_int_equal(n, SMALL_FILE);
    assert_null(memmem(bytes, n, "ckpt.checksum", 13));
    write_bytes(bytes, n);
    assert_int_equal(read_small(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_other_sums),
        cmocka_unit_test(test_no_sums),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
