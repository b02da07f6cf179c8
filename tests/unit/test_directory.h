/* SPDX-License-Identifier: Apache-2.0 */
/* A separate directory for a test that writes files, and the one file in it. */
#ifndef TESTS_UNIT_TEST_DIRECTORY_H
#define TESTS_UNIT_TEST_DIRECTORY_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[] = "test_directory.tmp-XXXXXX";
static char path[64];

static inline int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/file.safetensors", dir);
    return 0;
}

/* For the second and later tests of a program. */
static inline int make_fresh_dir(void **state)
{
    memset(dir + sizeof(dir) - 7, 'X', 6);
    return make_dir(state);
}

static inline int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir); /* fails if a temporary file was left behind */
}

static inline void write_bytes(const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline size_t read_bytes(char *dst, size_t size)
{
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    size_t n = fread(dst, 1, size, f);
    fclose(f);
    return n;
}

static inline int names_in_dir(void)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

#endif
