/* SPDX-License-Identifier: Apache-2.0 */
/* Models of several files: shards with an index, and directories; refusals and their reasons. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "test_directory.h"
#include "core/base.h"
#include "ckpt_files.h"
#include "state/safetensors.h"

/* The files of a test, in its directory; removed afterwards. */
static char made[16][128];
static int n_made;

static const char *in_dir(const char *name)
{
    static char whole[128];

    snprintf(whole, sizeof whole, "%s/%s", dir, name);
    return whole;
}

static void remember(const char *name)
{
    if (n_made < 16)
        snprintf(made[n_made++], sizeof made[0], "%s", in_dir(name));
}

static int clean(void **state)
{
    for (int i = 0; i < n_made; i++)
        unlink(made[i]);
    n_made = 0;
    return remove_dir(state);
}

/* A file of one tensor, or of two. */
static void write_shard(const char *name, const char *a, float of_a, const char *b, float of_b)
{
    ckpt_file_writer *w;

    remember(name);
    assert_int_equal(ckpt_file_create(&w, in_dir(name)), 0);
    assert_int_equal(ckpt_file_add(w, a, CKPT_F32, 1, (int64_t[]){1}, &of_a), 0);
    if (b)
        assert_int_equal(ckpt_file_add(w, b, CKPT_F32, 1, (int64_t[]){1}, &of_b), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");

    remember(name);
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static float value_of(ckpt_file *f, const char *name)
{
    float value = -1;

    if (ckpt_file_read_f32(f, ckpt_file_find(f, name), &value, 1))
        fail_msg("%s", error_get());
    return value;
}

#define ONE       "m-1-of-2.safetensors"
#define TWO       "m-2-of-2.safetensors"
#define MAP(text) "{\"metadata\":{\"total_size\":12},\"weight_map\":{" text "}}\n"
#define RIGHT     MAP("\"a\":\"" ONE "\",\"b\":\"" TWO "\",\"c\":\"" ONE "\"")
#define INDEX     "model.safetensors.index.json"

static void write_model(const char *index)
{
    write_shard(ONE, "a", 1, "c", 3);
    write_shard(TWO, "b", 2, NULL, 0);
    write_text(INDEX, index);
}

static void expect_model(const char *name)
{
    ckpt_file *f;

    if (ckpt_file_open(&f, name))
        fail_msg("%s", error_get());
    assert_int_equal(ckpt_file_count(f), 3);
    assert_true(value_of(f, "a") == 1 && value_of(f, "b") == 2 && value_of(f, "c") == 3);
    assert_int_equal(ckpt_file_find(f, "d"), CKPT_ENAME);
    ckpt_file_close(f);
}

/* By the index, by the directory with and without a slash; other files have no effect. */
static void test_shards(void **state)
{
    (void)state;
    write_model(RIGHT);
    write_text("config.json", "{\"hidden_size\": 1152}");
    expect_model(in_dir(INDEX));
    expect_model(in_dir(""));
    expect_model(dir);
}

static void test_single(void **state)
{
    static const char *const names[] = {"model.safetensors", "diffusion_pytorch_model.safetensors"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        ckpt_file *f;
        write_shard(names[i], "a", 5, NULL, 0);
        assert_int_equal(ckpt_file_open(&f, dir), 0);
        assert_true(value_of(f, "a") == 5);
        ckpt_file_close(f);
        unlink(in_dir(names[i]));
    }
}

static void expect_refused(const char *name, int code, const char *expect)
{
    ckpt_file *f = (ckpt_file *)&f;
    int rc = ckpt_file_open(&f, name);

    if (rc != code || !strstr(error_get(), expect))
        fail_msg("%s '%s', not %s with '%s'", ckpt_error_name(rc), error_get(),
                 ckpt_error_name(code), expect);
    assert_null(f);
}

static void test_wrong_index(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        int code;
        const char *expect;
    } cases[] = {
        {MAP("\"a\":\"" ONE "\",\"b\":\"" ONE "\",\"c\":\"" ONE "\""), CKPT_EFORMAT,
         "says that tensor 'b' is in " ONE ", which lacks it"},
        {MAP("\"a\":\"" TWO "\",\"b\":\"" TWO "\",\"c\":\"" ONE "\""), CKPT_EFORMAT,
         "says that tensor 'a' is in " TWO ", but it is in " ONE},
        {MAP("\"a\":\"" ONE "\",\"b\":\"" TWO "\""), CKPT_EFORMAT, "lacks tensor 'c'"},
        {MAP("\"a\":\"" ONE "\",\"b\":\"" TWO "\",\"c\":\"" ONE "\",\"d\":\"" TWO "\""),
         CKPT_EFORMAT, "says that tensor 'd' is in " TWO ", which lacks it"},
        {MAP("\"a\":\"" ONE "\",\"b\":\"" TWO "\",\"c\":\"" ONE "\",\"__metadata__\":\"" TWO "\""),
         CKPT_EFORMAT, "says that tensor '__metadata__' is in " TWO},
        {MAP("\"a\":\"gone.safetensors\""), CKPT_EFORMAT, "gone.safetensors: cannot open: No such"},
        {MAP("\"a\":\"../" ONE "\""), CKPT_EFORMAT, "which is not a file beside it"},
        {MAP("\"a\":\"/etc/passwd\""), CKPT_EFORMAT, "'/etc/passwd' for tensor 'a'"},
        {MAP("\"a\":\"..\""), CKPT_EFORMAT, "which is not a file beside it"},
        {MAP("\"a\":\"x\\ny\""), CKPT_EFORMAT, "names 'x y' for tensor 'a', which is not a file"},
        {MAP("\"a\":\"\""), CKPT_EFORMAT, "names no file for tensor 'a'"},
        {MAP("\"a\":3"), CKPT_EFORMAT, "names no file for tensor 'a'"},
        {MAP("\"a\":\"" INDEX "\""), CKPT_EFORMAT, "is not a safetensors file"},
        {MAP("\"a\":\"" ONE "\",\"a\":\"" TWO "\""), CKPT_EFORMAT, "duplicate"},
        {"{\"weight_map\":[]}", CKPT_EFORMAT, "is JSON without a weight_map"},
        {"{\"hidden_size\": 1152}", CKPT_EFORMAT, "is JSON without a weight_map"},
        {"{\"weight_map\":{", CKPT_EFORMAT, "is not valid JSON"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(cases[i].index);
        expect_refused(in_dir(INDEX), cases[i].code, cases[i].expect);
        expect_refused(dir, cases[i].code, cases[i].expect);
        n_made = 0;
    }
    write_model(RIGHT);
}

static void test_twice(void **state)
{
    (void)state;
    write_model(RIGHT);
    write_shard(TWO, "b", 2, "c", 4);
    expect_refused(dir, CKPT_EFORMAT, "says that tensor 'c' is in " ONE ", but it is in " TWO);
}

static void test_directories(void **state)
{
    (void)state;
    expect_refused(dir, CKPT_EFORMAT, "is a directory without model.safetensors");
    write_text("pytorch_model.bin", "PK");
    expect_refused(dir, CKPT_EFORMAT, "is a directory with pytorch_model.bin, a pickle");
    write_model(RIGHT);
    write_shard("model.safetensors", "a", 1, NULL, 0);
    expect_refused(dir, CKPT_EFORMAT,
                   "with model.safetensors and model.safetensors.index.json; give one");
    expect_model(in_dir(INDEX));
}

/* A damaged shard is named, not the index. */
static void test_damaged_shard(void **state)
{
    ckpt_file *f;
    float value;

    (void)state;
    write_model(RIGHT);
    int fd = open(in_dir(TWO), O_WRONLY);
    assert_int_equal(pwrite(fd, "\1", 1, 4096), 1);
    close(fd);
    assert_int_equal(ckpt_file_open(&f, dir), 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "b"), &value, 1), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), TWO ": tensor 'b' does not match its checksum"));
    assert_true(value_of(f, "a") == 1);
    ckpt_file_close(f);
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* A distributed checkpoint of PyTorch (dcp/make_dcp.py): rows, columns, one that all have. */
static void test_distributed(void **state)
{
    static const struct {
        const char *name;
        int64_t n;
        float unit;
    } wants[] = {
        {"a.weight", 35, 1}, {"b.weight", 24, 0.125f}, {"c.bias", 3, 1}, {"d.weight", 4, 1}};
    const char *srcdir = getenv("srcdir");
    char folder[300];
    float value[35], part[6];
    ckpt_file *f;

    (void)state;
    snprintf(folder, sizeof folder, "%s/tests/unit/dcp", srcdir ? srcdir : ".");
    if (ckpt_file_open(&f, folder))
        fail_msg("%s", error_get());
    assert_int_equal(ckpt_file_count(f), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ckpt_file_find(f, wants[i].name), i);
        assert_int_equal(ckpt_file_read_f32(f, i, value, wants[i].n), 0);
        for (int k = 0; k < wants[i].n; k++)
            assert_true(value[k] == (float)k * wants[i].unit);
    }
    assert_int_equal(ckpt_file_read_part_f32(f, 1, 9, part, 6), 0);
    for (int k = 0; k < 6; k++)
        assert_true(part[k] == (float)(k + 9) * 0.125f);
    ckpt_file_close(f);
}

/* A shard with a piece [rows, 2] of "w" at row `at`. */
static void write_box(const char *name, int rows, int64_t at)
{
    const float data[8] = {0};
    char note[64];
    const struct file_note box = {NOTE_BOXES, note};
    ckpt_file_writer *w;

    remember(name);
    snprintf(note, sizeof note, "{\"w\": {\"saved_offsets\": [%lld, 0]}}",
             (long long)at);
    assert_int_equal(ckpt_file_create(&w, in_dir(name)), 0);
    w->notes = &box;
    w->n_notes = 1;
    assert_int_equal(ckpt_file_add(w, "w", CKPT_F32, 2, (int64_t[]){rows, 2}, data), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
}

/* Boxes that overlap or leave a hole are refused, with the tensor's name. */
static void test_boxes(void **state)
{
    static const int64_t at[] = {2, 1, 3, 0, INT64_C(1) << 52};
    ckpt_file *f;

    (void)state;
    for (int i = 0; i < 5; i++) {
        write_box("shard-1.safetensors", 2, 0);
        write_box("shard-2.safetensors", 2, at[i]);
        int rc = ckpt_file_open(&f, dir);
        assert_int_equal(rc, i ? CKPT_EFORMAT : 0);
        if (rc)
            assert_non_null(strstr(error_get(), "the pieces of tensor 'w' do not cover it once"));
        else
            ckpt_file_close(f);
    }
    write_shard("shard-2.safetensors", "v", 1, NULL, 0);
    expect_refused(dir, CKPT_EFORMAT, "has no DCP_SHARDING_INFO");
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_fresh_dir, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_shards),      IN_DIRECTORY(test_single),
        IN_DIRECTORY(test_wrong_index), IN_DIRECTORY(test_twice),
        IN_DIRECTORY(test_directories), IN_DIRECTORY(test_damaged_shard),
        IN_DIRECTORY(test_boxes),       cmocka_unit_test(test_distributed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
