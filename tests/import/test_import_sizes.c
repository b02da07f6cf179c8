/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives with sizes that no exporter writes: every number among the arguments of programs
 * with pools, convolutions, windows, resizing and reshaping (tests/fuzz/corpus/archive-members) is
 * replaced by those at which arithmetic overflows or divides by 0.  Each archive is recorded or
 * refused with a sentence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_import.h"
#include "import/zip.h"

enum { MOST = 1 << 16, SECONDS = 300, SENTENCE = 2000 };

static const char *const programs[] = {"pool", "conv", "windows", "resize", "shape"};
static char path[] = "/tmp/test-sizes-XXXXXX", text[MOST], changed[MOST];
static struct zip z;

/* ---- an archive ------------------------------------------------------------------------------ */

static void read_text(const char *program)
{
    const char *srcdir = getenv("srcdir");
    char name[4096];

    snprintf(name, sizeof name, "%s/tests/fuzz/corpus/archive-members/%s.json",
             srcdir ? srcdir : ".", program);
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    assert_in_range(n, 1, MOST - 100);
    text[n] = 0;
    fclose(f);
}

/* Puts other bytes in the place of n. */
static void change(const char *at, size_t n, const char *by)
{
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, by, at + n);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_import *m = user;
    ckpt_tensor in[2], out[1];

    (void)batch;
    for (int i = 0; i < ckpt_import_input_count(m) && i < 2; i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        if (ckpt_import_input(m, i, &v)) {
            ckpt_tape_fail(t, CKPT_EFORMAT, "an input has no size");
            return CKPT_NONE;
        }
        /* an input has the batch first, which the kernel of a convolution has not */
        int64_t shape[CKPT_MAX_DIMS + 1] = {1};
        memcpy(shape + 1, v.desc.shape, sizeof v.desc.shape);
        if (v.desc.ndim == CKPT_MAX_DIMS)
            return CKPT_NONE;
        in[i] = ckpt_reshape(t, ckpt_input(t, v.name, v.desc.dtype, v.desc.ndim + 1, shape),
                             v.desc.ndim, v.desc.shape);
    }
    ckpt_import_record(t, m, in, out);
    return out[0];
}

/* Imports and plans the changed program; the sentence of a refusal is in `sentence`. */
static int import(char sentence[SENTENCE])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt_import *m = NULL;
    ckpt_program *p;
    ckpt *c;

    zip_archive(&z, changed, NULL);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(z.data, 1, z.n, f), z.n);
    assert_int_equal(fclose(f), 0);
    o.device = "cpu";
    o.threads = 1;
    o.plan_only = true;
    assert_int_equal(ckpt_open(&c, &o), 0);
    int rc = ckpt_import_open(c, path, &m);
    rc = rc ? rc : ckpt_compile(c, record, m, NULL, 1, &p);
    snprintf(sentence, SENTENCE, "%s", rc ? ckpt_error(c) : "");
    ckpt_import_close(m);
    ckpt_close(c);
    return rc;
}

/* ---- every number ---------------------------------------------------------------------------- */

/* The next number of an argument, "as_int": 3 or "as_floats": [2.5, ...]; NULL: there is none. */
static const char *next_number(const char *at, size_t *n)
{
    static bool inside;

    at += *n;
    for (; *at && strncmp(at, "\"tensor_values", 14) != 0; at++) {
        if (!strncmp(at, "\"as_int", 7) || !strncmp(at, "\"as_float", 9)) {
            inside = true;
            at += 8;
        } else if (*at == '}') {
            inside = false;
        }
        if (inside && (*n = strspn(at, "-.0123456789")) > 0)
            return at;
    }
    return NULL;
}

static void numbers(void **state)
{
    static const char *const values[] = {"0",          "-1",
                                         "4294967296", "16777217",
                                         "-1e300",     "-9223372036854775808",
                                         "1e-320",     "9223372036854775807"};
    char sentence[SENTENCE];
    int tried = 0, refused = 0;

    (void)state;
    alarm(SECONDS);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        size_t n = 0;
        read_text(programs[i]);
        change(text, 0, "");
        if (import(sentence))
            fail_msg("%s: %s", programs[i], sentence);
        for (const char *at = next_number(text, &n); at; at = next_number(at, &n))
            for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
                change(at, n, values[k]);
                const int rc = import(sentence);
                if (rc && strlen(sentence) < 10)
                    fail_msg("%s, byte %d, %s: '%s'", programs[i], (int)(at - text), values[k],
                             sentence);
                tried++;
                refused += rc != 0;
            }
    }
    printf("%d archives, %d refused\n", tried, refused);
    assert_in_range(refused, tried / 4, tried);
}

/* ---- sentences ------------------------------------------------------------------------------- */

static void sentences(void **state)
{
    static const struct {
        const char *program, *argument, *old, *new, *words;
    } rows[] = {
        {"pool", "stride", "[2, 2]", "[2, 0]", "'stride' has 0, not a size from 1 to 16777216"},
        {"pool", "kernel_size", "[2, 2]", "[-2, 2]", "'kernel_size' has -2, not a size"},
        {"pool", "padding", "[1, 1]", "[1, 4294967296]", "'padding' has 4294967296, not a size"},
        {"pool", "output_size", "[2, 2]", "[0, 2]", "'output_size' has 0, not a size"},
        {"conv", "stride", "[2, 2]", "[0, 0]", "'stride' has 0, not a size"},
        {"conv", "output_padding", "[1, 1]", "[-1, 1]", "'output_padding' has -1, not a size"},
        {"windows", "kernel_size", "[3, 3]", "[0, 3]", "'kernel_size' has 0, not a size"},
        {"windows", "size", "3", "9223372036854775807", "windows of 9223372036854775807 elements"},
        {"windows", "step", "2", "0", "every 0"},
        {"resize", "output_size", "[5, 7]", "[5, 16777217]", "'output_size' has 16777217"},
        {"resize", "scale_factors", "[2.5, 2.5]", "[2.5, -1e300]", "resized by -1e+300"},
        {"resize", "scale_factors", "[1.5, 1.5]", "[1e30, 1.5]", "resized by 1e+30"},
        {"resize", "upscale_factor", "2", "-2", "enlarged by -2"},
        {"shape", "pad", "[1, -1, 2, 0]", "[1, -9223372036854775808, 2, 0]",
         "padded by -9223372036854775808"},
        {"shape", "repeats", "[1, 2, 1, 3]", "[1, 2, 1, -3]", "repeated -3 times"},
        {"shape", "repeats", "2", "9223372036854775807", "repeated 9223372036854775807 times"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw->nw>c\"", "'>' in the equation of einsum"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw->nw-c\"", "goes on at '-c'"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw->nw,c\"", "goes on at ',c'"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw-nwhc\"", "goes on at '-nwhc'"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw->nwhz\"", "cannot have axis 'z'"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw->nwhh\"", "cannot have axis 'h'"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nch->nhc\"", "names other axes"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nchw,n->nwhc\"", "names other axes"},
        {"shape", "equation", "\"nchw->nwhc\"", "\"nccw->ncw\"", "axes 'c' of einsum have sizes"},
    };
    char from[300], sentence[SENTENCE];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = text;
        read_text(rows[i].program);
        do { /* the argument with this value */
            snprintf(from, sizeof from, "\"name\": \"%s\"", rows[i].argument);
            at = strstr(at + 1, from);
            assert_non_null(at);
        } while (strncmp(strstr(strstr(at, "\"as_") + 4, "\": ") + 3, rows[i].old,
                         strlen(rows[i].old)) != 0);
        at = strstr(strstr(at, "\"as_") + 4, "\": ") + 3;
        change(at, strlen(rows[i].old), rows[i].new);
        assert_int_not_equal(import(sentence), 0);
        if (!strstr(sentence, rows[i].words))
            fail_msg("%s: '%s' is not in '%s'", rows[i].argument, rows[i].words, sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentences), cmocka_unit_test(numbers)};
    const int fd = mkstemp(path);

    if (fd < 0)
        return 1;
    close(fd);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
