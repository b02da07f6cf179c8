/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text features of users: the formats of Open-Sora's files, masks without a frame to learn from, a
 * null caption shorter or longer than the text.
 */
#include "../../examples/video/stdit/embed.c"
#include "../../examples/video/stdit/features.c"
#include "ckpt_files.h"
#include "said.h"
#include "test_directory.h" /* behind them: it has a path of its own */

const char say_program[] = "test";

enum { ROWS = 2, TOKENS = 3, WIDTH = 4, FRAMES = 2 };

/* Features whose y has the given shape; x_mask may be NULL. */
static void write_features(int ndim, const int64_t *shape, const float *x_mask)
{
    static const float ones[ROWS * TOKENS * WIDTH] = {1, 1, 1, 1, 1, 1, 1, 1};
    float y[ROWS * TOKENS * WIDTH];
    ckpt_file_writer *w;

    for (int i = 0; i < ROWS * TOKENS * WIDTH; i++)
        y[i] = (float)i;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "z", CKPT_F32, 5, (int64_t[]){ROWS, 1, FRAMES, 1, 1}, ones),
                     0);
    assert_int_equal(ckpt_file_add(w, "y", CKPT_F32, ndim, shape, y), 0);
    assert_int_equal(ckpt_file_add(w, "mask", CKPT_F32, 2, (int64_t[]){ROWS, TOKENS}, ones), 0);
    assert_int_equal(ckpt_file_add(w, "fps", CKPT_F32, 1, (int64_t[]){ROWS}, ones), 0);
    if (x_mask)
        assert_int_equal(ckpt_file_add(w, "x_mask", CKPT_F32, 2, (int64_t[]){ROWS, FRAMES}, x_mask),
                         0);
    assert_int_equal(ckpt_file_commit(w), 0);
}

static void data_free(struct video_data *d)
{
    free(d->z);
    free(d->y);
    free(d->mask);
    free(d->fps);
    free(d->x_mask);
    video_shapes_free(&d->shapes);
    *d = (struct video_data){0};
}

static void check_text(const struct video_data *d)
{
    assert_true(d->text_rows == ROWS && d->tokens == TOKENS);
    assert_int_equal(d->text_width, WIDTH);
    for (int i = 0; i < ROWS * TOKENS * WIDTH; i++)
        assert_true(d->y[i] == (float)i);
    for (int i = 0; i < ROWS * TOKENS; i++)
        assert_int_equal(d->mask[i], 1);
}

/* [B, L, C] and Open-Sora's [B, 1, L, C] are the same. */
static void test_text(void **state)
{
    static const int64_t shapes[][4] = {{ROWS, TOKENS, WIDTH}, {ROWS, 1, TOKENS, WIDTH}};
    struct video_data d = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        write_features(3 + i, shapes[i], NULL);
        assert_int_equal(stdit_data_features(&d, path), 0);
        check_text(&d);
        data_free(&d);
        assert_int_equal(stdit_data_text(&d, path), 0);
        check_text(&d);
        data_free(&d);
    }
}

static void test_bad_text(void **state)
{
    struct video_data d = {0};

    (void)state;
    write_features(4, (int64_t[]){ROWS, TOKENS, 1, WIDTH}, NULL);
    assert_int_equal(stdit_data_features(&d, path), -1);
    assert_non_null(strstr(said, "\"y\" is [2, 3, 1, 4]; [2, 1, -1, -1] is expected"));
    data_free(&d);
    write_features(2, (int64_t[]){ROWS * TOKENS, WIDTH}, NULL);
    assert_int_equal(stdit_data_text(&d, path), -1);
    assert_non_null(strstr(said, "\"y\" is [6, 4]; [-1, -1, -1] is expected"));
    data_free(&d);
}

/* A clip whose frames are all clean has no loss. */
static void test_masks(void **state)
{
    static const int64_t shape[] = {ROWS, TOKENS, WIDTH};
    struct video_data d = {0};

    (void)state;
    write_features(3, shape, (float[]){0, 1, 1, 0});
    assert_int_equal(stdit_data_features(&d, path), 0);
    data_free(&d);
    write_features(3, shape, (float[]){0, 1, 0, 0});
    assert_int_equal(stdit_data_features(&d, path), -1);
    assert_non_null(strstr(said, "no noised frame in sample 1"));
    data_free(&d);
}

/* ---- the null caption ----------------------------------------------------------------------- */

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor rows = ckpt_cast(t, null_rows(user, t, n), CKPT_F32);
    ckpt_output(t, "rows", rows);
    return rows;
}

/* The rows of a null caption of TOKENS rows that a text of n tokens uses. */
static void check_null(enum ckpt_dtype dtype, int64_t n)
{
    float value[TOKENS * WIDTH], out[2 * TOKENS * WIDTH];
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct stdit m = {.config = {.text_tokens = TOKENS, .dtype = dtype}};
    ckpt *c;
    ckpt_program *p;

    options.device = "cpu";
    for (int i = 0; i < TOKENS * WIDTH; i++)
        value[i] = (float)i;
    assert_int_equal(ckpt_open(&c, &options), 0);
    m.null_caption = ckpt_param(c, "null", dtype, 2, (int64_t[]){TOKENS, WIDTH}, CKPT_ZEROS, false);
    assert_int_equal(ckpt_param_set(c, m.null_caption, CKPT_VALUE, value, TOKENS * WIDTH), 0);
    assert_int_equal(ckpt_compile(c, record, &m, NULL, n, &p), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "rows", out, n * WIDTH * 4), 0);
    for (int64_t i = 0; i < n * WIDTH; i++) {
        int64_t row = i / WIDTH < TOKENS ? i / WIDTH : TOKENS - 1;
        assert_true(out[i] == value[row * WIDTH + i % WIDTH]);
    }
    ckpt_program_free(p);
    ckpt_close(c);
}

static void test_null_caption(void **state)
{
    (void)state;
    for (int dtype = CKPT_F32; dtype <= CKPT_BF16; dtype++)
        for (int64_t n = 1; n <= 2 * TOKENS; n++)
            check_null((enum ckpt_dtype)dtype, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_null_caption),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
