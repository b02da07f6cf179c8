/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets: frames, assignment and order match Open-Sora 1.2, with numpy's and torch's random
 * numbers. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/numpy_random.c"
#include "../../examples/common/torch_random.c"
#include "../../examples/video/aspect.c"
#include "../../examples/video/bucket_epoch.c"
#include "../../examples/video/buckets.c"
#include "bucket_reference.h"

const char say_program[] = "test_buckets";

enum { SAMPLES = LENGTH(samples), BATCHES = LENGTH(batches), SEED = 1024, EPOCH = 3, INTERVAL = 2 };

/* The table of make_bucket_reference.py, in another order. */
static const char table[] =
    "{\"144p\": {\"1\": [1, 5], \"51\": [1.0, 4], \"102\": [[1, 0.33], 2], \"204\": [[1, 0.1], 1]},"
    "\"256\": {\"51\": [0.5, 3], \"1\": [0.4, 4], \"204\": [0.0, null], \"102\": [[0.5, 0.33], 2]},"
    "\"480p\": {\"1\": [0.5, 3], \"51\": [0.3, 1]},"
    "\"240p\": {\"1\": [0.3, 4], \"51\": [0.4, 2], \"102\": [[0.4, 0.33], 1]}}";

/* ---- numbers -------------------------------------------------------------------------------- */

static void test_numpy(void **state)
{
    (void)state;
    for (int i = 0; i < LENGTH(numbers); i++) {
        struct numpy_random r = numpy_random_seed(numbers[i].seed);
        assert_true(numpy_random_next(&r) == numbers[i].first);
        assert_true(numpy_random_next(&r) == numbers[i].second);
    }
}

static void check_permutations(uint64_t seed, int64_t n, const int64_t *one, const int64_t *two)
{
    struct torch_random r;
    int64_t order[700];

    torch_random_seed(&r, seed);
    torch_random_permutation(&r, n, order);
    assert_memory_equal(order, one, (size_t)n * sizeof *one);
    torch_random_permutation(&r, 0, order);
    torch_random_permutation(&r, n, order);
    assert_memory_equal(order, two, (size_t)n * sizeof *two);
}

/* 700 numbers are more than one refill of the generator. */
static void test_torch(void **state)
{
    (void)state;
    check_permutations(0, 7, permutation_7_1, permutation_7_2);
    check_permutations(1027, 700, permutation_700_1, permutation_700_2);
    check_permutations((UINT64_C(1) << 32) + 5, 5, permutation_5_1, permutation_5_2);
}

/* ---- frames --------------------------------------------------------------------------------- */

/* As published, from 0.38 to 2.08. */
static const struct {
    const char *size;
    int64_t frame[17][2];
} published[] = {
    {"144p",
     {{117, 312},
      {125, 291},
      {133, 277},
      {135, 270},
      {139, 262},
      {141, 260},
      {144, 256},
      {151, 241},
      {156, 234},
      {166, 221},
      {192, 192},
      {221, 165},
      {235, 156},
      {256, 144},
      {263, 139},
      {271, 135},
      {277, 132}}},
    {"240p",
     {{196, 522},
      {210, 490},
      {222, 462},
      {226, 452},
      {232, 438},
      {236, 436},
      {240, 426},
      {252, 404},
      {262, 393},
      {276, 368},
      {320, 320},
      {370, 278},
      {392, 262},
      {426, 240},
      {440, 232},
      {452, 226},
      {462, 222}}},
    {"360p",
     {{294, 784},
      {314, 732},
      {332, 692},
      {340, 680},
      {350, 662},
      {352, 652},
      {360, 640},
      {380, 608},
      {392, 588},
      {416, 554},
      {480, 480},
      {554, 416},
      {588, 392},
      {640, 360},
      {660, 350},
      {678, 340},
      {692, 332}}},
    {"480p",
     {{392, 1046},
      {420, 980},
      {444, 925},
      {452, 904},
      {466, 880},
      {470, 870},
      {480, 854},
      {506, 810},
      {522, 784},
      {554, 738},
      {640, 640},
      {740, 555},
      {784, 522},
      {854, 480},
      {880, 466},
      {906, 454},
      {924, 444}}},
    {"720p",
     {{588, 1568},
      {628, 1466},
      {666, 1388},
      {678, 1356},
      {698, 1318},
      {706, 1306},
      {720, 1280},
      {758, 1212},
      {784, 1176},
      {832, 1110},
      {960, 960},
      {1108, 832},
      {1176, 784},
      {1280, 720},
      {1320, 698},
      {1358, 680},
      {1386, 666}}},
    {"1080p",
     {{882, 2352},
      {942, 2198},
      {998, 2080},
      {1018, 2036},
      {1048, 1980},
      {1058, 1958},
      {1080, 1920},
      {1138, 1820},
      {1176, 1764},
      {1248, 1664},
      {1440, 1440},
      {1662, 1246},
      {1764, 1176},
      {1920, 1080},
      {1980, 1048},
      {2036, 1018},
      {2078, 998}}},
    {"2k",
     {{1176, 3136},
      {1256, 2930},
      {1330, 2770},
      {1358, 2716},
      {1398, 2640},
      {1412, 2612},
      {1440, 2560},
      {1518, 2428},
      {1568, 2352},
      {1662, 2216},
      {1920, 1920},
      {2218, 1664},
      {2352, 1568},
      {2560, 1440},
      {2638, 1396},
      {2716, 1358},
      {2772, 1330}}},
    {"4k",
     {{1764, 4704},
      {1886, 4400},
      {1996, 4158},
      {2036, 4072},
      {2096, 3960},
      {2118, 3918},
      {2160, 3840},
      {2276, 3642},
      {2352, 3528},
      {2494, 3326},
      {2880, 2880},
      {3326, 2494},
      {3528, 2352},
      {3840, 2160},
      {3958, 2096},
      {4072, 2036},
      {4156, 1994}}},
};

static void test_frames(void **state)
{
    int64_t height, width;

    (void)state;
    for (int i = 0; i < LENGTH(published); i++) {
        const struct aspect_size *s = aspect_find(published[i].size);
        for (int k = 0; k < 17; k++) {
            aspect_frame(s, in_list(s, k), &height, &width);
            assert_int_equal(height, published[i].frame[k][0]);
            assert_int_equal(width, published[i].frame[k][1]);
        }
    }
    assert_null(aspect_find("145p"));
    assert_non_null(strstr(aspect_names(), "2880"));
}

/* A frame of a size has the ratio of that size, and sides that are multiples of the unit. */
static void test_square(void **state)
{
    const char *names[] = {"256", "512", "1024", "2048", "2880"};
    int64_t height, width;

    (void)state;
    for (int i = 0; i < LENGTH(names); i++) {
        const struct aspect_size *s = aspect_find(names[i]);
        assert_int_equal(aspect_count(s), 40);
        for (int k = 0; k < 40; k++) {
            aspect_frame(s, k, &height, &width);
            assert_true(height % s->unit == 0 && width % s->unit == 0);
            assert_true(fabs((double)(height * width) / (double)s->pixels - 1) < 0.16);
            if (i < 4)
                assert_int_equal(aspect_nearest(s, height, width), k);
            assert_true(k == 0 || aspect_label(s, k) > aspect_label(s, k - 1));
        }
    }
    aspect_frame(aspect_find("1024"), 29, &height, &width);
    assert_true(height == 1408 && width == 704);
}

/* ---- samples -------------------------------------------------------------------------------- */

static int read_text(struct buckets *b, const char *text)
{
    char path[] = "/tmp/test_buckets-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    int rc = buckets_read(b, path);
    unlink(path);
    return rc;
}

static void take_samples(struct bucket_sample *s)
{
    for (int i = 0; i < SAMPLES; i++)
        s[i] = (struct bucket_sample){samples[i][0], samples[i][1], samples[i][2]};
}

static void test_assignment(void **state)
{
    struct bucket_sample s[SAMPLES];
    struct buckets b;
    struct bucket found;

    (void)state;
    assert_int_equal(read_text(&b, table), 0);
    assert_int_equal(b.labels, 17 * (2 + 3 + 4) + 40 * 4);
    take_samples(s);
    for (int i = 0; i < SAMPLES; i++) {
        bool any = buckets_assign(&b, &s[i], i, INTERVAL, SEED, EPOCH, &found);
        assert_int_equal(any, assigned[i].frames != 0);
        if (!any)
            continue;
        const struct bucket_row *row = &b.row[found.row];
        assert_string_equal(row->size->name, assigned[i].size);
        assert_int_equal(row->entry[found.entry].frames, assigned[i].frames);
        assert_int_equal(aspect_label(row->size, found.ratio), assigned[i].label);
    }
    buckets_free(&b);
}

static void make_epoch(struct bucket_epoch *e)
{
    struct bucket_sample s[SAMPLES];
    struct buckets b;

    assert_int_equal(read_text(&b, table), 0);
    take_samples(s);
    assert_int_equal(bucket_epoch_make(e, &b, s, NULL, SAMPLES, INTERVAL, SEED, EPOCH), 0);
    buckets_free(&b);
}

static void test_order(void **state)
{
    struct bucket_epoch e;
    struct bucket_deal deal;

    (void)state;
    make_epoch(&e);
    for (int i = 0; i < BATCHES; i++) {
        assert_true(bucket_epoch_next(&e, 1, &deal));
        assert_int_equal(e.list[deal.list].batch, batches[i][0]);
        assert_memory_equal(e.list[deal.list].sample + deal.first, &batches[i][1],
                            (size_t)batches[i][0] * sizeof **batches);
    }
    assert_false(bucket_epoch_next(&e, 1, &deal));
    assert_false(bucket_epoch_next(&e, 1, &deal));
    bucket_epoch_free(&e);
}

/* Counts how often each sample occurs in up to n steps of a given number of ranks. */
static void count_steps(struct bucket_epoch *e, int ranks, int n, int times[SAMPLES])
{
    struct bucket_deal deal[3];

    while (n-- && bucket_epoch_next(e, ranks, deal))
        for (int r = 0; r < ranks; r++)
            for (int64_t i = 0; i < e->list[deal[r].list].batch; i++)
                times[e->list[deal[r].list].sample[deal[r].first + i]]++;
}

/* Two ranks, then three, then one, each resuming from the recorded lists: no sample twice, and with
 * one rank at the end none is left. */
static void test_other_ranks(void **state)
{
    static const int ranks[] = {2, 3, 1}, steps[] = {9, 5, -1};
    int times[SAMPLES] = {0}, all[SAMPLES] = {0};
    struct bucket_epoch before, e;

    (void)state;
    make_epoch(&e);
    count_steps(&e, 1, -1, all);
    bucket_epoch_free(&e);
    make_epoch(&before);
    for (int part = 0; part < 3; part++) {
        make_epoch(&e);
        for (int i = 0; i < e.n; i++)
            e.list[i].taken = before.list[i].taken;
        bucket_epoch_free(&before);
        count_steps(&e, ranks[part], steps[part], times);
        before = e;
    }
    assert_memory_equal(times, all, sizeof all);
    bucket_epoch_free(&before);
}

/* Two ranks lose at most one batch of a list. */
static void test_rest(void **state)
{
    int times[SAMPLES] = {0};
    struct bucket_epoch e;

    (void)state;
    make_epoch(&e);
    count_steps(&e, 2, -1, times);
    for (int i = 0; i < e.n; i++)
        assert_int_equal(e.list[i].taken, e.list[i].n / e.list[i].batch / 2 * 2);
    bucket_epoch_free(&e);
}

/* ---- few and none --------------------------------------------------------------------------- */

static void test_few(void **state)
{
    struct bucket_sample s[3] = {{1, 256, 256}, {1, 256, 256}, {1, 16, 16}};
    struct bucket_epoch e;
    struct bucket_deal deal;
    struct buckets b;

    (void)state;
    assert_int_equal(read_text(&b, "{\"256\": {\"1\": [1, 3]}}"), 0);
    assert_int_equal(bucket_epoch_make(&e, &b, s, NULL, 3, 1, 0, 0), 0);
    assert_true(e.n == 1 && e.list[0].assigned == 2 && !e.list[0].n && !e.n_order);
    assert_false(bucket_epoch_next(&e, 1, &deal));
    bucket_epoch_free(&e);
    assert_int_equal(bucket_epoch_make(&e, &b, s, NULL, 0, 1, 0, 0), 0);
    assert_true(!e.n && !bucket_epoch_next(&e, 1, &deal));
    bucket_epoch_free(&e);
    buckets_free(&b);
}

static void test_tables_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"144q\": {\"1\": [1, 1]}}",
                                        "{\"144p\": {}}",
                                        "{\"144p\": [1, 1]}",
                                        "{\"144p\": {\"0\": [1, 1]}}",
                                        "{\"144p\": {\"-1\": [1, 1]}}",
                                        "{\"144p\": {\"1x\": [1, 1]}}",
                                        "{\"144p\": {\"70000\": [1, 1]}}",
                                        "{\"144p\": {\"1\": 1}}",
                                        "{\"144p\": {\"1\": []}}",
                                        "{\"144p\": {\"1\": [1, 1, 1]}}",
                                        "{\"144p\": {\"1\": [1, \"x\"]}}",
                                        "{\"144p\": {\"1\": [1, -1]}}",
                                        "{\"144p\": {\"1\": [1, [2]]}}",
                                        "{\"144p\": {\"1\": [1.5, 1]}}",
                                        "{\"144p\": {\"1\": [-0.5, 1]}}",
                                        "{\"144p\": {\"1\": [1, 0]}}",
                                        "{\"144p\": {\"1\": [1, 1.5]}}",
                                        "{\"144p\": {\"1\": [1, null]}}",
                                        "{\"144p\": {\"1\": [[1, 0.5], 1]}}",
                                        "{\"144p\": {\"51\": [[1, 2], 1]}}",
                                        "{\"144p\": {\"51\": [[1], 1]}}",
                                        "{\"144p\": {\"51\": [1, 1], \"51\": [1, 2]}}",
                                        "{\"144p\": {\"51\": [1, 1]}"};
    struct buckets b;

    (void)state;
    for (int i = 0; i < LENGTH(wrong); i++)
        assert_int_equal(read_text(&b, wrong[i]), -1);
    assert_int_equal(buckets_read(&b, "/nonexistent/table.json"), -1);
}

/* Batches that are not chosen yet are 1; an entry that keeps nothing has none. */
static void test_open(void **state)
{
    struct buckets b;

    (void)state;
    assert_int_equal(read_text(&b, "{\"144p\": {\"1\": [1, \"auto\"], \"17\": [[0.5, 0.1]], "
                                   "\"34\": [1, 3], \"51\": [0, null]}}"),
                     0);
    const struct bucket_entry *e = b.row[0].entry; /* the most frames first */
    assert_true(!e[0].open && e[0].batch == 0);
    assert_true(!e[1].open && e[1].batch == 3);
    assert_true(e[2].open && e[2].batch == 1 && e[2].look == 0.1);
    assert_true(e[3].open && e[3].batch == 1);
    buckets_open(&b);
    assert_true(!e[0].open && e[0].batch == 0 && e[1].open && e[1].batch == 1);
    buckets_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numpy),       cmocka_unit_test(test_torch),
        cmocka_unit_test(test_frames),      cmocka_unit_test(test_square),
        cmocka_unit_test(test_assignment),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_other_ranks), cmocka_unit_test(test_rest),
        cmocka_unit_test(test_few),         cmocka_unit_test(test_tables_refused),
        cmocka_unit_test(test_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
