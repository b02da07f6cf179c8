/* SPDX-License-Identifier: Apache-2.0 */
/* The NVMe tier on the file system of the test: bytes are read back unchanged, with both back ends.
 * */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "test_directory.h"
#include "memory/tier/sys.h"
#include "memory/tier/tier.h"

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)

enum { MOST = 3 };

static char *aligned(int64_t bytes)
{
    char *p = aligned_alloc(TIER_BLOCK, (size_t)round_up(bytes, TIER_BLOCK));
    assert_non_null(p);
    return p;
}

/* Bytes derived from a number and their position. */
static void draw(char *dst, int64_t bytes, uint64_t key)
{
    uint64_t state = key * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < bytes; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(dst + i, &state, 8);
    }
}

/* ---- files that are counted -------------------------------------------------------------------
 */

static int fds[MOST * 2], n_fds;

static int counted_open(const char *name, int flags, mode_t mode)
{
    int fd = open(name, flags, mode);
    if (fd >= 0 && n_fds < MOST * 2)
        fds[n_fds++] = fd;
    return fd;
}

static int64_t length_of(int fd)
{
    struct stat s;
    assert_int_equal(fstat(fd, &s), 0);
    return s.st_size;
}

/* ---- the tier ---------------------------------------------------------------------------------
 */

static struct tier_sys counted;
static char parts[MOST][80];

static struct tier_directories directories(int32_t n, const int64_t *bytes)
{
    struct tier_directories d = {.n = n};
    for (int32_t i = 0; i < n; i++) {
        snprintf(parts[i], sizeof parts[i], "%s/%d", dir, i);
        mkdir(parts[i], 0700);
        snprintf(d.at[i].path, TIER_PATH, "%s", parts[i]);
        d.at[i].bytes = bytes[i];
        d.bytes += bytes[i];
    }
    return d;
}

static void remove_parts(void)
{
    for (int i = 0; i < MOST; i++)
        rmdir(parts[i]); /* fails where a file was left, and then so does that of dir */
}

/* NULL where this build or kernel has no such back end. */
static struct tier *open_tier(const struct tier_directories *d, enum tier_io io, char *staging,
                              int64_t staged)
{
    struct tier *t;
    struct tier_nvme_options o = {
        .directories = d, .io = io, .staging = staging, .staged = staged, .sys = &counted};
    n_fds = 0;
    counted = tier_system;
    counted.open = counted_open;
    int rc = tier_open_nvme(&t, &o);
    if (rc && io == TIER_IO_URING) {
        print_message("without io_uring: %s\n", error_get());
        assert_int_equal(rc, CKPT_EIO);
        return NULL;
    }
    assert_int_equal(rc, 0);
    return t;
}

struct block {
    int64_t offset, bytes;
    uint64_t key;
};

static void write_block(struct tier *t, char *memory, const struct block *b)
{
    draw(memory, b->bytes, b->key);
    assert_int_equal(t->ops->write(t, b->offset, memory, b->bytes), 0);
}

static void read_block(struct tier *t, char *memory, char *expected, const struct block *b)
{
    memset(memory, 0, (size_t)b->bytes);
    int rc = t->ops->read(t, b->offset, memory, b->bytes);
    if (rc)
        fail_msg("%s", t->reason);
    draw(expected, b->bytes, b->key);
    assert_memory_equal(memory, expected, b->bytes);
}

/* Blocks of every size in sequence up to the end of the arena, in memory inside and outside of the
 * staging; written again in another order with other bytes. */
static void check_tier(struct tier *t, int64_t bytes, char *staging, int64_t staged)
{
    static const int64_t sizes[] = {4 * KIB,           MIB,     3 * MIB + 4 * KIB, 8 * KIB,
                                    MIB + 12 * KIB,    2 * MIB, 64 * KIB,          5 * MIB,
                                    8 * MIB - 4 * KIB, 8 * MIB};
    struct block blocks[64];
    int n = 0;
    int64_t offset = 0;
    char *own = aligned(8 * MIB), *expected = aligned(8 * MIB);
    for (; offset < bytes; n++) {
        int64_t size = min_i64(sizes[n % 10], bytes - offset);
        blocks[n] = (struct block){offset, size, (uint64_t)n};
        offset += size;
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++) {
            struct block *b = &blocks[round ? n - 1 - i : i];
            b->key += 100;
            write_block(t, i % 2 && b->bytes <= staged ? staging : own, b);
        }
        for (int i = 0; i < n; i++) {
            bool staging_too = i % 3 && blocks[i].bytes <= staged;
            read_block(t, staging_too ? staging : own, expected, &blocks[i]);
        }
    }
    free(own);
    free(expected);
}

static void check_lengths(int64_t bytes)
{
    int64_t all = 0;
    for (int i = 0; i < n_fds; i++)
        all += length_of(fds[i]);
    assert_int_equal(all, bytes);
}

static void check_back_end(enum tier_io io, int32_t n, const int64_t *room)
{
    struct tier_directories d = directories(n, room);
    int64_t staged = 5 * MIB;
    char *staging = aligned(staged);
    struct tier *t = open_tier(&d, io, staging, staged);
    if (t) {
        print_message("%s\n", t->how);
        assert_string_equal(t->ops->name, "nvme");
        assert_null(t->ops->base(t));
        assert_int_equal(t->ops->reserve(t, min_i64(3 * MIB, d.bytes)), 0);
        assert_int_equal(t->ops->reserve(t, d.bytes), 0);
        assert_int_equal(t->bytes, d.bytes);
        assert_int_equal(names_in_dir(), n);
        check_lengths(d.bytes);
        check_tier(t, d.bytes, staging, staged);
        assert_string_equal(t->reason, "");
        assert_int_equal(t->ops->reserve(t, d.bytes + 1), CKPT_ENOMEM);
        assert_non_null(strstr(error_get(), "1 bytes short"));
        t->ops->close(t);
    }
    free(staging);
    remove_parts();
}

static void check_both(int32_t n, const int64_t *room)
{
    check_back_end(TIER_IO_POOL, n, room);
    check_back_end(TIER_IO_URING, n, room);
    check_back_end(TIER_IO_AUTO, n, room);
}

static void test_one_directory(void **state)
{
    (void)state;
    check_both(1, (int64_t[]){29 * MIB + 20 * KIB});
    check_both(1, (int64_t[]){MIB});
}

static void test_two_directories(void **state)
{
    (void)state;
    check_both(2, (int64_t[]){17 * MIB, 17 * MIB});
}

/* The larger ones are split into single requests. */
static void test_uneven_directories(void **state)
{
    (void)state;
    check_both(3, (int64_t[]){11 * MIB, 3 * MIB, 24 * MIB});
}

/* Contents are kept when the files grow. */
static void test_growth(void **state)
{
    (void)state;
    struct tier_directories d = directories(2, (int64_t[]){6 * MIB, 20 * MIB});
    char *memory = aligned(2 * MIB), *expected = aligned(2 * MIB);
    for (int io = TIER_IO_URING; io <= TIER_IO_POOL; io++) {
        struct tier *t = open_tier(&d, (enum tier_io)io, NULL, 0);
        if (!t)
            continue;
        for (int64_t i = 0; i < 13; i++) {
            assert_int_equal(t->ops->reserve(t, (i + 1) * 2 * MIB), 0);
            check_lengths((i + 1) * 2 * MIB);
            write_block(t, memory, &(struct block){i * 2 * MIB, 2 * MIB, (uint64_t)i});
        }
        assert_int_equal(t->ops->reserve(t, MIB), 0);
        assert_int_equal(t->bytes, 26 * MIB);
        for (int64_t i = 0; i < 13; i++)
            read_block(t, memory, expected, &(struct block){i * 2 * MIB, 2 * MIB, (uint64_t)i});
        t->ops->close(t);
    }
    free(memory);
    free(expected);
    remove_parts();
}

/* ---- one reads while another writes -----------------------------------------------------------
 */

struct reader {
    struct tier *tier;
    char *memory, *expected;
};

static void *read_run(void *arg)
{
    struct reader *r = arg;
    for (int64_t i = 0; i < 40; i++) {
        struct block b = {i % 4 * 2 * MIB, 2 * MIB, (uint64_t)(i % 4)};
        draw(r->expected, b.bytes, b.key);
        memset(r->memory, 0, (size_t)b.bytes);
        if (r->tier->ops->read(r->tier, b.offset, r->memory, b.bytes) ||
            memcmp(r->memory, r->expected, (size_t)b.bytes))
            return r;
    }
    return NULL;
}

static void test_both_at_once(void **state)
{
    (void)state;
    struct tier_directories d = directories(1, (int64_t[]){16 * MIB});
    char *memory = aligned(2 * MIB);
    struct reader r = {.memory = aligned(2 * MIB), .expected = aligned(2 * MIB)};
    for (int io = TIER_IO_URING; io <= TIER_IO_POOL; io++) {
        pthread_t thread;
        void *failed;
        r.tier = open_tier(&d, (enum tier_io)io, NULL, 0);
        if (!r.tier)
            continue;
        assert_int_equal(r.tier->ops->reserve(r.tier, 16 * MIB), 0);
        for (int64_t i = 0; i < 4; i++)
            write_block(r.tier, memory, &(struct block){i * 2 * MIB, 2 * MIB, (uint64_t)i});
        assert_int_equal(pthread_create(&thread, NULL, read_run, &r), 0);
        for (int64_t i = 0; i < 40; i++)
            write_block(r.tier, memory,
                        &(struct block){(4 + i % 4) * 2 * MIB, 2 * MIB, (uint64_t)i});
        pthread_join(thread, &failed);
        assert_null(failed);
        r.tier->ops->close(r.tier);
    }
    free(memory);
    free(r.memory);
    free(r.expected);
    remove_parts();
}

/* ---- calls begun ahead ------------------------------------------------------------------------
 */

enum { AHEAD = 6 };

/* The next call starts while one is waited for; started calls that are never completed do no harm.
 * */
static void go_ahead(struct tier *t, char *memory, char *expected)
{
    const int64_t size = 3 * MIB + 4 * KIB;
    for (int i = 0; i < AHEAD; i++)
        draw(memory + i * size, size, (uint64_t)i);
    for (int write = 1; write >= 0; write--) {
        t->ops->begin(t, write, 0, memory, size);
        for (int64_t i = 0; i < AHEAD; i++) {
            char *at = memory + i * size;
            if (i + 1 < AHEAD)
                t->ops->begin(t, write, (i + 1) * size, at + size, size);
            int rc =
                write ? t->ops->write(t, i * size, at, size) : t->ops->read(t, i * size, at, size);
            assert_int_equal(rc, 0);
            draw(expected, size, (uint64_t)i);
            assert_memory_equal(at, expected, size);
            if (write)
                memset(at, 0, (size_t)size);
        }
    }
    t->ops->begin(t, false, size, memory, size);
    t->ops->begin(t, false, 0, memory + size, size);
    read_block(t, memory + 3 * size, expected, &(struct block){2 * size, size, 2});
    t->ops->begin(t, true, 0, memory, size);
    t->ops->begin(t, false, 1, memory, size);
    t->ops->begin(t, false, 40 * size, memory, size);
    read_block(t, memory + size, expected, &(struct block){size, size, 1});
    assert_string_equal(t->reason, "");
    t->ops->begin(t, false, 3 * size, memory + size, size);
}

static void test_ahead(void **state)
{
    (void)state;
    struct tier_directories d = directories(2, (int64_t[]){16 * MIB, 16 * MIB});
    char *memory = aligned(20 * MIB), *expected = aligned(4 * MIB);
    for (int io = TIER_IO_URING; io <= TIER_IO_POOL; io++) {
        struct tier *t = open_tier(&d, (enum tier_io)io, NULL, 0);
        if (!t)
            continue;
        assert_int_equal(t->ops->reserve(t, 20 * MIB), 0);
        go_ahead(t, memory, expected);
        t->ops->close(t);
    }
    free(memory);
    free(expected);
    remove_parts();
}

/* A run through two pieces of memory; a piece beyond the written bytes fails and ends it. */
static void test_stream(void **state)
{
    (void)state;
    struct tier_directories d = directories(1, (int64_t[]){16 * MIB});
    char *memory = aligned(2 * MIB), *expected = aligned(2 * MIB);
    draw(expected, 2 * MIB, 5);
    for (int io = TIER_IO_URING; io <= TIER_IO_POOL; io++) {
        struct tier *t = open_tier(&d, (enum tier_io)io, NULL, 0);
        struct tier_stream s = {t, true, 2 * MIB, 5 * MIB, MIB, memory};
        if (!t)
            continue;
        assert_int_equal(t->ops->reserve(t, 16 * MIB), 0);
        memcpy(memory, expected, 2 * MIB);
        assert_int_equal(tier_stream_run(&s), 0);
        memset(memory, 0, 2 * MIB);
        s.write = false;
        assert_int_equal(tier_stream_run(&s), 0);
        assert_memory_equal(memory, expected, 2 * MIB);
        s.bytes += MIB;
        assert_int_equal(tier_stream_run(&s), CKPT_EIO);
        assert_non_null(strstr(t->reason, "no such block was written"));
        t->ops->close(t);
    }
    free(memory);
    free(expected);
    remove_parts();
}

/* ---- what is refused --------------------------------------------------------------------------
 */

static void test_blocks(void **state)
{
    (void)state;
    static const struct {
        int64_t offset, bytes, skew;
        const char *says;
    } cases[] = {
        {512, 4096, 0, "blocks of 4096"}, {0, 512, 0, "blocks of 4096"},
        {0, 4096, 64, "blocks of 4096"},  {2 * MIB, 4096, 0, "not within"},
        {-4096, 4096, 0, "not within"},   {MIB, 4096, 0, "no such block was written"},
        {0, 4096, 0, "no such block"}, /* it was written as a part of a longer one */
    };
    struct tier_directories d = directories(1, (int64_t[]){2 * MIB});
    char *memory = aligned(16 * KIB);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tier *t = open_tier(&d, TIER_IO_AUTO, NULL, 0);
        assert_int_equal(t->ops->reserve(t, 2 * MIB), 0);
        write_block(t, memory, &(struct block){0, 8192, 1});
        assert_int_equal(t->ops->read(t, cases[i].offset, memory + cases[i].skew, cases[i].bytes),
                         CKPT_EIO);
        if (!strstr(t->reason, cases[i].says))
            fail_msg("'%s' does not say '%s'", t->reason, cases[i].says);
        assert_false(t->stuck);
        t->ops->close(t);
    }
    free(memory);
    remove_parts();
}

static void test_bad_directories(void **state)
{
    (void)state;
    struct tier *t;
    struct tier_directories none = {0}, small = directories(1, (int64_t[]){MIB - 1});
    struct tier_directories gone = {.n = 1, .at = {{"/no/such/directory", MIB}}, .bytes = MIB};
    struct tier_nvme_options o = {.directories = &none};
    assert_int_equal(tier_open_nvme(&t, &o), CKPT_EINVAL);
    assert_null(t);
    none = (struct tier_directories){.n = 1, .at = {{"", MIB}}, .bytes = MIB};
    assert_int_equal(tier_open_nvme(&t, &o), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "a run needs a directory"));
    o.directories = &small;
    assert_int_equal(tier_open_nvme(&t, &o), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "1048575 bytes; give it 1M or more"));
    o.directories = &gone;
    assert_int_equal(tier_open_nvme(&t, &o), CKPT_EIO);
    assert_string_equal(error_get(), "nvme tier: /no/such/directory: cannot make a file there: "
                                     "No such file or directory");
    remove_parts();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_directory),
        cmocka_unit_test(test_two_directories),
        cmocka_unit_test(test_uneven_directories),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_both_at_once),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_bad_directories),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_stream),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
