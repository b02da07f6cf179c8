/* SPDX-License-Identifier: Apache-2.0 */
/* The dtype of a run without --dtype: that of the resumed run, of the weights, fp32. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "examples/common/dtype.h"

const char say_program[] = "test_dtype";

/* A safetensors file with this header, and zeros. */
static void write_file(const char *path, const char *header, int bytes)
{
    FILE *f = fopen(path, "wb");
    uint64_t n = strlen(header);

    assert_non_null(f);
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    fputs(header, f);
    for (int i = 0; i < bytes; i++)
        fputc(0, f);
    assert_int_equal(fclose(f), 0);
}

/* The dtype of weights with this header; text is part of the note. */
static void gives(const char *dtype, const char *text, const char *header, int bytes)
{
    const char *found = NULL;
    char note[DTYPE_NOTE];

    write_file("dtype.tmp", header, bytes);
    assert_int_equal(dtype_select(&found, NULL, "dtype.tmp", note), 0);
    unlink("dtype.tmp");
    assert_string_equal(found, dtype);
    if (!strstr(note, text) || (!*text && *note))
        fail_msg("%s: no \"%s\" in \"%s\"", header, text, note);
}

#define TENSOR(name, dtype, n, from, to)                                                           \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" #n "],\"data_offsets\":[" #from "," #to "]}"

static void test_weights(void **state)
{
    (void)state;
    gives("fp32", "", "{" TENSOR("a", "F32", 2, 0, 8) "}", 8);
    gives("bf16", "bf16, as in dtype.tmp", "{" TENSOR("a", "BF16", 2, 0, 4) "}", 4);
    gives("bf16", "to which the fp16 weights of dtype.tmp are rounded",
          "{" TENSOR("a", "F16", 2, 0, 4) "}", 4);
    gives("bf16", "bf16, as in", "{" TENSOR("a", "F8_E4M3", 4, 0, 4) "}", 4);
    gives("fp32", "", "{" TENSOR("a", "F64", 1, 0, 8) "}", 8);
    /* most values; a few norms in fp32 are no fp32 model, and indices have no say */
    gives("bf16", "bf16, as in",
          "{" TENSOR("a", "BF16", 4, 0, 8) "," TENSOR("b", "F32", 2, 8, 16) "}", 16);
    gives("fp32", "", "{" TENSOR("a", "BF16", 2, 0, 4) "," TENSOR("b", "F32", 3, 4, 16) "}", 16);
    gives("fp32", "", "{" TENSOR("a", "I64", 2, 0, 16) "," TENSOR("b", "F32", 1, 16, 20) "}", 20);
    gives("fp32", "", "{" TENSOR("a", "I64", 2, 0, 16) "}", 16);
}

static void test_given(void **state)
{
    const char *dtype = "bf16", *wrong = "fp16", *none = NULL;
    char note[DTYPE_NOTE];

    (void)state;
    write_file("dtype.tmp", "{" TENSOR("a", "F32", 2, 0, 8) "}", 8);
    assert_int_equal(dtype_select(&dtype, NULL, "dtype.tmp", note), 0);
    assert_string_equal(dtype, "bf16");
    assert_string_equal(note, "");
    write_file("dtype.tmp", "{" TENSOR("a", "F16", 4, 0, 8) "}", 8);
    assert_int_equal(dtype_select(&dtype, NULL, "dtype.tmp", note), 0);
    assert_non_null(strstr(note, "rounded"));
    assert_int_equal(dtype_select(&wrong, NULL, "dtype.tmp", note), -1);
    unlink("dtype.tmp");
    assert_int_equal(dtype_select(&none, NULL, "dtype.tmp", note), 0);
    assert_string_equal(none, "fp32");
    none = NULL;
    assert_int_equal(dtype_select(&none, NULL, NULL, note), 0);
    assert_string_equal(none, "fp32");
    assert_string_equal(note, "");
}

/* A state knows the dtype of its run, whatever the weights are. */
static void resumes(const char *dtype, const struct resume_options *o)
{
    const char *found = NULL;
    char note[DTYPE_NOTE];

    assert_int_equal(dtype_select(&found, o, "weights.tmp", note), 0);
    assert_string_equal(found, dtype);
}

static void test_state(void **state)
{
    struct resume_options of = {.from = "state.tmp"};
    struct resume_options latest = {.from = RESUME_AUTO, .save = "state.tmp"};
    struct resume_options first = {.from = RESUME_AUTO, .save = "other.tmp"};

    (void)state;
    write_file("weights.tmp", "{" TENSOR("a", "F32", 2, 0, 8) "}", 8);
    write_file("state.tmp",
               "{\"__metadata__\":{\"ckpt.run.dtype\":\"bf16\"}," TENSOR("a", "F32", 2, 0, 8) "}",
               8);
    resumes("bf16", &of);
    resumes("bf16", &latest);
    resumes("fp32", &first);
    unlink("weights.tmp");
    unlink("state.tmp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
