/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that files store in several tensors, or in MXFP4. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"

static char path[] = "test_file_forms.tmp.safetensors";

static ckpt *open_context(void)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    ckpt *c;

    opt.threads = 1;
    if (ckpt_open(&c, &opt))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

/* ---- parts ----------------------------------------------------------------------------------- */

enum { EXPERTS = 3, ROWS = 2, COLUMNS = 5, PARTS = 2 * EXPERTS, PART = ROWS * COLUMNS };
enum { ALL = PARTS * PART };

static const char *const names[PARTS] = {"e.0.gate", "e.0.up",   "e.1.gate",
                                         "e.1.up",   "e.2.gate", "e.2.up"};

/* Two parameters whose parts a file has in turn, and one that it has whole. */
struct model {
    ckpt *c;
    ckpt_tensor up, down, rest;
};

static struct model make_model(void)
{
    static const char *const down[EXPERTS] = {"e.0.down", "e.1.down", "e.2.down"};
    struct model m = {.c = open_context()};

    m.up = ckpt_param(m.c, "up", CKPT_F32, 3, (int64_t[]){EXPERTS, 2 * ROWS, COLUMNS},
                      CKPT_NORMAL(1.f), true);
    m.down = ckpt_param(m.c, "down", CKPT_F32, 3, (int64_t[]){EXPERTS, COLUMNS, ROWS},
                        CKPT_NORMAL(1.f), true);
    m.rest = ckpt_param(m.c, "rest", CKPT_F32, 1, (int64_t[]){2}, CKPT_NORMAL(1.f), true);
    assert_int_equal(ckpt_param_file_parts(m.c, m.up, PARTS, names), 0);
    assert_int_equal(ckpt_param_file_parts(m.c, m.down, EXPERTS, down), 0);
    return m;
}

static void check_part(ckpt_file *f, const char *name, int64_t rows, int64_t columns,
                       const float *want)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    float x[PART];
    const int i = ckpt_file_find(f, name);

    assert_int_equal(ckpt_file_entry(f, i, &e), 0);
    assert_int_equal(e.ndim, 2);
    assert_int_equal(e.shape[0], rows);
    assert_int_equal(e.shape[1], columns);
    assert_int_equal(ckpt_file_read_f32(f, i, x, PART), 0);
    assert_memory_equal(x, want, sizeof x);
}

static void test_parts(void **state)
{
    static const float zeros[ALL];
    struct model m = make_model();
    float up[ALL], down[ALL / 2], got[ALL];
    int unmatched = -1;
    ckpt_file *f;

    (void)state;
    assert_int_equal(ckpt_param_get(m.c, m.up, CKPT_VALUE, up, ALL), 0);
    assert_int_equal(ckpt_param_get(m.c, m.down, CKPT_VALUE, down, ALL / 2), 0);
    assert_int_equal(ckpt_save_params(m.c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), PARTS + EXPERTS + 1);
    for (int i = 0; i < PARTS; i++)
        check_part(f, names[i], ROWS, COLUMNS, up + i * PART);
    check_part(f, "e.2.down", COLUMNS, ROWS, down + 2 * PART);
    ckpt_file_close(f);

    assert_int_equal(ckpt_param_set(m.c, m.up, CKPT_VALUE, zeros, ALL), 0);
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, &unmatched), 0);
    assert_int_equal(unmatched, 0);
    assert_int_equal(ckpt_param_get(m.c, m.up, CKPT_VALUE, got, ALL), 0);
    assert_memory_equal(got, up, sizeof up);
    ckpt_close(m.c);
    unlink(path);
}

/* Writes the first n parts of `up`, or it whole. */
static void write_up(int n, const float *x)
{
    ckpt_file_writer *w;

    assert_int_equal(ckpt_file_create(&w, path), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(ckpt_file_add(w, names[i], CKPT_F32, 2, (int64_t[]){ROWS, COLUMNS}, x), 0);
    if (!n)
        assert_int_equal(
            ckpt_file_add(w, "up", CKPT_F32, 3, (int64_t[]){EXPERTS, 2 * ROWS, COLUMNS}, x), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
}

static void test_parts_read(void **state)
{
    struct model m = make_model();
    float x[ALL], got[ALL];

    (void)state;
    for (int i = 0; i < ALL; i++)
        x[i] = (float)i;
    write_up(0, x); /* under its own name */
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), 0);
    assert_int_equal(ckpt_param_get(m.c, m.up, CKPT_VALUE, got, ALL), 0);
    assert_memory_equal(got, x, sizeof x);
    write_up(PARTS - 1, x);
    assert_int_equal(ckpt_load_params(m.c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(m.c), "'e.0.gate' and not 'e.2.up'"));
    assert_int_equal(ckpt_param_get(m.c, m.up, CKPT_VALUE, got, ALL), 0);
    assert_memory_equal(got, x, sizeof x);
    ckpt_close(m.c);
    unlink(path);
}

static void test_parts_refused(void **state)
{
    struct model m = make_model();

    (void)state;
    assert_int_equal(ckpt_param_file_parts(m.c, CKPT_NONE, PARTS, names), CKPT_ENAME);
    assert_int_equal(ckpt_param_file_parts(m.c, m.up, PARTS, names), CKPT_EINVAL); /* again */
    assert_int_equal(ckpt_param_file_axes(m.c, m.up, 2, NULL, (int[]){1, 0}), CKPT_EINVAL);
    assert_int_equal(ckpt_param_file_parts(m.c, m.rest, 2, names), CKPT_EINVAL);   /* no rows */
    ckpt_tensor x = ckpt_param(m.c, "x", CKPT_F32, 2, (int64_t[]){4, 2}, CKPT_NORMAL(1.f), true);
    assert_int_equal(ckpt_param_file_parts(m.c, x, 3, names), CKPT_EINVAL);
    assert_int_equal(ckpt_param_file_axes(m.c, x, 2, NULL, (int[]){1, 0}), 0);
    assert_int_equal(ckpt_param_file_parts(m.c, x, 2, names), CKPT_EINVAL);
    ckpt_close(m.c);
}

/* ---- MXFP4 ------------------------------------------------------------------------------------
 */

/* A scale for each row, whose blocks have all 256 bytes.  Scales from 253 on have codes that fp32
 * cannot hold. */
enum { SCALES = 253, BLOCKS = 16, K = 32 * BLOCKS, BYTES = SCALES * 256 };

/* The value of a code by the definition of E2M1: a sign, two bits of exponent, one of fraction. */
static double code_value(int code)
{
    const int exponent = code >> 1 & 3, fraction = code & 1;
    const double x = exponent ? ldexp(1 + fraction / 2., exponent - 1) : fraction / 2.;

    return code & 8 ? -x : x;
}

/* "w_blocks" [1, rows, K / 32, 16] and "w_scales" [1, rows, K / 32]. */
static void write_codes(const uint8_t *blocks, const uint8_t *scales, int rows, const char *dtype)
{
    const int all = rows * 256, n = rows * BLOCKS;
    char text[512];
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    const int length =
        snprintf(text, sizeof text,
                 "{\"w_blocks\":{\"dtype\":\"%s\",\"shape\":[1,%d,%d,16],\"data_offsets\":[0,%d]},"
                 "\"w_scales\":{\"dtype\":\"U8\",\"shape\":[1,%d,%d],\"data_offsets\":[%d,%d]}}",
                 dtype, rows, BLOCKS, all, rows, BLOCKS, all, all + n);
    const uint64_t size = (uint64_t)length;
    assert_int_equal(fwrite(&size, sizeof size, 1, f), 1);
    assert_int_equal(fwrite(text, 1, (size_t)length, f), length);
    assert_int_equal(fwrite(blocks, 1, (size_t)all, f), all);
    assert_int_equal(fwrite(scales, 1, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
}

static ckpt_tensor make_weight(ckpt *c, int rows)
{
    ckpt_tensor w =
        ckpt_param(c, "w", CKPT_F32, 3, (int64_t[]){1, rows, K}, CKPT_NORMAL(1.f), true);

    assert_int_equal(ckpt_param_file_axes(c, w, 3, NULL, (int[]){0, 2, 1}), 0);
    return w;
}

static void test_mxfp4(void **state)
{
    static uint8_t blocks[BYTES], scales[SCALES * BLOCKS];
    static float got[SCALES * K];
    static uint16_t narrow[SCALES * K];
    static float wide[SCALES * K];
    ckpt *c = open_context();
    ckpt_tensor w = make_weight(c, SCALES);
    int unmatched = -1;

    (void)state;
    for (int i = 0; i < BYTES; i++)
        blocks[i] = (uint8_t)i;
    for (int i = 0; i < SCALES * BLOCKS; i++)
        scales[i] = (uint8_t)(i / BLOCKS);
    write_codes(blocks, scales, SCALES, "U8");
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, &unmatched), 0);
    assert_int_equal(unmatched, 0);
    assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, got, SCALES * K), 0);
    for (int i = 0; i < SCALES * K; i++) {
        const int byte = i / 2 % 256, code = i % 2 ? byte >> 4 : byte & 15;
        const double want = ldexp(code_value(code), i / K - 127);
        if ((double)got[i] != want || !signbit(got[i]) != !signbit(want))
            fail_msg("byte %d, scale %d: %g and not %g", byte, i / K, (double)got[i], want);
    }
    ckpt_to_bf16(got, narrow, SCALES * K);
    ckpt_from_bf16(narrow, wide, SCALES * K);
    assert_memory_equal(got, wide, sizeof got);
    ckpt_close(c);
    unlink(path);
}

static void test_mxfp4_refused(void **state)
{
    static uint8_t blocks[2 * 256], scales[2 * BLOCKS];
    ckpt *c = open_context();

    (void)state;
    make_weight(c, 1);
    scales[0] = 255; /* NaN, also of zeros */
    write_codes(blocks, scales, 1, "U8");
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(c), "not finite"));
    scales[0] = 253;
    write_codes(blocks, scales, 1, "U8");
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), 0);
    blocks[0] = 7; /* 6 times 2^126 */
    write_codes(blocks, scales, 1, "U8");
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    write_codes(blocks, scales, 2, "U8"); /* other sizes */
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(c), "no MXFP4 of the parameter 'w'"));
    write_codes(blocks, scales, 1, "I8");
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    ckpt_close(c);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts), cmocka_unit_test(test_parts_read),
        cmocka_unit_test(test_parts_refused), cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_mxfp4_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
