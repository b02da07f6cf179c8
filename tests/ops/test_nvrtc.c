/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of expressions without a device: NVRTC compiles the source of every function, with every
 * dtype, also in several threads, and the disk cache keeps the results, also with damaged entries
 * and several writers at once.  Skipped without NVRTC.
 */
#include "kernels/cuda/expr_launch.h"
#include "kernels/cuda/kernel_cache.h"
#include "kernels/cuda/nvrtc.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARCH = 90, OLDER = 80 };

static int failures, compiled, arch = ARCH;
static double seconds;
static char directory[256];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    printf("FAIL %s\n", what);
    failures++;
}

/* The image of a program, by NVRTC. */
static char *compile(const struct expr *e, const enum ckpt_dtype *dtype, size_t *bytes)
{
    char *source = expr_source(e, dtype), *image = NULL, reason[2000];
    double start = now();
    if (!source || nvrtc_compile(source, arch, &image, bytes, reason, sizeof reason)) {
        printf("FAIL %s: %s\n", e->name, source ? reason : "no source");
        failures++;
    }
    seconds += now() - start;
    compiled++;
    free(source);
    return image;
}

static void check_program(const struct expr *e, enum ckpt_dtype out, enum ckpt_dtype in)
{
    enum ckpt_dtype dtype[EXPR_INPUTS + 1] = {out};
    size_t bytes = 0;
    for (int k = 0; k < e->n_in; k++)
        dtype[k + 1] = in;
    free(compile(e, dtype, &bytes));
}

/* Programs with sums and maxima of rows: in the middle or at the end, two of one level, two levels.
 */
static void check_sums(void)
{
    for (int per_row = 0; per_row < 2; per_row++) {
        struct expr e;
        expr_init(&e, "mul+sum", 2);
        int sum = expr_node(&e, EXPR_SUM, expr_binary(&e, EXPR_MUL, 0, 1), 0, 0, 0.5f, 0.f);
        int other = expr_node(&e, EXPR_MAX, 0, 0, 0, 1.f, 0.f);
        int y = expr_binary(&e, EXPR_SUB, per_row ? other : 1, expr_unary(&e, EXPR_BF16, sum));
        other = expr_node(&e, EXPR_SUM, expr_binary(&e, EXPR_DIV, 0, other), 0, 0, 1.f, 0.f);
        expr_finish(&e, expr_binary(&e, EXPR_MUL, y, other), NULL);
        e.ndim = 2;
        e.shape[0] = 7;
        e.shape[1] = 64;
        e.reduced = 1;
        e.per_row = (uint8_t)per_row;
        check_program(&e, CKPT_F32, CKPT_F32);
        check_program(&e, CKPT_F32, CKPT_BF16);
        check_program(&e, CKPT_BF16, CKPT_BF16);
    }
}

enum { THREADS = 3 };

struct job {
    char *source, *image;
    size_t bytes;
    int rc;
};

static void *compile_job(void *user)
{
    struct job *j = user;
    char reason[256];
    j->rc = nvrtc_compile(j->source, ARCH, &j->image, &j->bytes, reason, sizeof reason);
    return NULL;
}

/* Concurrent threads get the same result as a single one. */
static void check_threads(void)
{
    static const enum ckpt_dtype dtypes[THREADS][2] = {
        {CKPT_F32, CKPT_F32}, {CKPT_F32, CKPT_BF16}, {CKPT_BF16, CKPT_BF16}};
    struct job alone[THREADS], together[THREADS];
    pthread_t thread[THREADS];
    struct expr e;
    expr_init(&e, "exp", 1);
    expr_finish(&e, expr_unary(&e, EXPR_EXP, 0), NULL);
    for (int i = 0; i < THREADS; i++) {
        alone[i] = together[i] = (struct job){expr_source(&e, dtypes[i]), NULL, 0, 0};
        compile_job(&alone[i]);
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, compile_job, &together[i]))
            exit(99);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        if (alone[i].rc || together[i].rc || alone[i].bytes != together[i].bytes ||
            memcmp(alone[i].image, together[i].image, alone[i].bytes))
            fail("threads compile what one does");
        free(alone[i].source);
        free(alone[i].image);
        free(together[i].image);
    }
}

/* A program whose op also writes the largest magnitude of its result. */
static void check_largest(void)
{
    static const enum ckpt_dtype dtypes[] = {CKPT_F32, CKPT_BF16, CKPT_I32};
    struct expr e;
    expr_init(&e, "silu+mul", 2);
    expr_finish(&e, expr_binary(&e, EXPR_MUL, expr_unary(&e, EXPR_SILU, 0), 1), NULL);
    e.largest = 1;
    for (int i = 0; i < 3; i++)
        check_program(&e, dtypes[i], CKPT_BF16);
}

/* A program with two results. */
static void check_pair(void)
{
    struct expr e;
    expr_init(&e, "silu+mul,mul+silu_dx", 3);
    e.second = (uint8_t)(1 + expr_binary(&e, EXPR_MUL, expr_unary(&e, EXPR_SILU, 0), 1));
    expr_finish(&e, expr_binary(&e, EXPR_SILU_DX, expr_binary(&e, EXPR_MUL, 1, 2), 0), NULL);
    check_program(&e, CKPT_F32, CKPT_BF16);
    check_program(&e, CKPT_BF16, CKPT_BF16);
}

/* Two values at a time, also without instructions that compare them. */
static void check_neighbours(void)
{
    struct expr e;
    expr_init(&e, "neighbours", 2);
    int sum = expr_unary(&e, EXPR_BF16, expr_binary(&e, EXPR_ADD, 0, 1));
    int most = expr_binary(&e, EXPR_MAXIMUM, sum, expr_binary(&e, EXPR_MINIMUM, 0, 1));
    most = expr_unary(&e, EXPR_SIGN, expr_node(&e, EXPR_CLAMP, most, 0, 0, -4.f, 3.f));
    sum = expr_where(&e, expr_binary(&e, EXPR_LE, 0, 1), sum, expr_binary(&e, EXPR_MUL, 0, most));
    expr_finish(&e, expr_binary(&e, EXPR_RELU_DX, sum, most), NULL);
    e.largest = 1;
    check_program(&e, CKPT_BF16, CKPT_BF16);
    arch = OLDER;
    check_program(&e, CKPT_BF16, CKPT_BF16);
    arch = ARCH;
}

/* All functions in programs of a dozen. */
static void check_functions(void)
{
    struct expr e;
    int sum = 0;
    for (int code = EXPR_SCALE; code < EXPR_CODES; code++) {
        if ((code - EXPR_SCALE) % 12 == 0) {
            expr_init(&e, "functions", 3);
            sum = 0;
        }
        sum = expr_binary(&e, EXPR_ADD, sum,
                          expr_node(&e, (enum expr_code)code, 0, expr_arguments(code) > 1,
                                    expr_arguments(code) > 2 ? 2 : 0, 0.25f, 0.75f));
        if ((code - EXPR_SCALE) % 12 == 11 || code + 1 == EXPR_CODES) {
            int used[EXPR_OPERANDS];
            expr_finish(&e, sum, used);
            check_program(&e, CKPT_F32, CKPT_F32);
        }
    }
}

/* Every dtype, leaves with a place, no operand at all. */
static void check_leaves(void)
{
    struct expr e;
    expr_init(&e, "leaves", 1);
    int leaf = expr_node(&e, EXPR_UNIFORM, 0, 0, 0, 0.f, 0.f);
    int row = expr_node(&e, EXPR_INDEX, 1, 0, 0, 0.f, 0.f);
    int half = expr_constant(&e, 0.5f);
    int y = expr_where(&e, expr_binary(&e, EXPR_LT, leaf, half), 0, row);
    expr_finish(&e, y, NULL);
    check_program(&e, CKPT_BF16, CKPT_BF16);
    check_program(&e, CKPT_F32, CKPT_BF16);
    check_program(&e, CKPT_I32, CKPT_I32);
    expr_init(&e, "iota", 0);
    expr_finish(&e, expr_node(&e, EXPR_INDEX, 0, 0, 0, 0.f, 0.f), NULL);
    check_program(&e, CKPT_I32, CKPT_I32);
}

static void check_refusal(void)
{
    char *image = NULL, reason[200] = "";
    size_t bytes;
    if (!nvrtc_compile("this is no CUDA", ARCH, &image, &bytes, reason, sizeof reason) ||
        !strstr(reason, "error"))
        fail("a wrong source is refused with the compiler's reason");
    free(image);
}

/* ---- the disk -------------------------------------------------------------------------------- */

static bool holds(const struct kernel_key *key, const char *want, size_t n)
{
    char *image = NULL;
    size_t bytes = 0;
    bool good = kernel_cache_read(key, &image, &bytes) && bytes == n && !memcmp(image, want, n);
    free(image);
    return good;
}

static void damage(const char *path, long at, bool cut)
{
    FILE *f = fopen(path, "r+");
    if (!f || (cut && ftruncate(fileno(f), at)))
        fail("the entry is where it should be");
    if (f && !cut) {
        fseek(f, at, SEEK_SET);
        fputc('!', f);
    }
    if (f)
        fclose(f);
}

static int files(void)
{
    char path[512];
    int n = 0;
    snprintf(path, sizeof path, "%s/libckpt/kernels", directory);
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += *e->d_name != '.';
    if (d)
        closedir(d);
    return n;
}

static void check_disk(void)
{
    static char image[5000];
    struct kernel_key key = kernel_key_of("source", "options", ARCH, 13000), other = key;
    char path[512];
    memset(image, 'x', sizeof image);
    snprintf(path, sizeof path, "%s/libckpt/kernels/%016llx.cubin", directory,
             (unsigned long long)key.name);
    if (holds(&key, image, sizeof image))
        fail("an empty directory has no entry");
    kernel_cache_write(&key, image, sizeof image);
    if (!holds(&key, image, sizeof image))
        fail("what was written is read");
    other.check ^= 1;
    if (holds(&other, image, sizeof image))
        fail("an entry of another source with the same name is none");
    damage(path, 3000, false);
    if (holds(&key, image, sizeof image))
        fail("a damaged entry is none");
    kernel_cache_write(&key, image, sizeof image);
    damage(path, 3000, true);
    if (holds(&key, image, sizeof image))
        fail("a short entry is none");
    kernel_cache_write(&key, image, sizeof image);
    if (!holds(&key, image, sizeof image) || files() != 1)
        fail("a new entry takes the place of a bad one");
    if (kernel_key_of("source", "options", ARCH, 12090).name == key.name ||
        kernel_key_of("source", "options", 80, 13000).name == key.name ||
        kernel_key_of("sourcf", "options", ARCH, 13000).name == key.name)
        fail("version, architecture and source are in the name");
}

/* Writers and readers at once: a reader gets a complete entry or none. */
static void check_race(void)
{
    static char image[200000];
    struct kernel_key key = kernel_key_of("race", "options", ARCH, 13000);
    pid_t child[4];
    int status, broken = 0;
    memset(image, 'y', sizeof image);
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i])
            continue;
        for (int k = 0; k < 40; k++) {
            char *seen = NULL;
            size_t bytes = 0;
            kernel_cache_write(&key, image, sizeof image);
            bool read = kernel_cache_read(&key, &seen, &bytes);
            broken += !read || bytes != sizeof image || memcmp(seen, image, bytes);
            free(seen);
        }
        _exit(broken != 0);
    }
    for (int i = 0; i < 4; i++)
        if (waitpid(child[i], &status, 0) != child[i] || status)
            fail("entries are whole while several write");
    if (files() != 2)
        fail("temporary files are gone");
}

static void check_nowhere(void)
{
    struct kernel_key key = kernel_key_of("nowhere", "options", ARCH, 13000);
    char found[64] = "x";
    setenv("XDG_CACHE_HOME", "/proc/no/such", 1);
    kernel_cache_write(&key, "image", 5);
    if (holds(&key, "image", 5))
        fail("nothing is kept where nothing can be written");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "relative", 1);
    kernel_cache_directory(found, sizeof found);
    if (*found)
        fail("a relative home is no place");
}

int main(void)
{
    char command[300];
    snprintf(directory, sizeof directory, "%s/ckpt-kernels-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(directory))
        return 99;
    setenv("XDG_CACHE_HOME", directory, 1);
    check_disk();
    check_race();
    check_nowhere();
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (system(command))
        fail("the directory goes");
    if (!nvrtc_version()) {
        printf("NVRTC is not installed\n");
        return failures ? 1 : 77;
    }
    check_functions();
    check_sums();
    check_largest();
    check_pair();
    check_neighbours();
    check_leaves();
    check_refusal();
    check_threads();
    printf("NVRTC %d: %d programs in %.2f s\n", nvrtc_version(), compiled, seconds);
    return failures != 0;
}
