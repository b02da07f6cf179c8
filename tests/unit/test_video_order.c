/* SPDX-License-Identifier: Apache-2.0 */
/* The order of steps over buckets: every clip of an epoch once, also if a run resumes with another
 * number of ranks; and the set of possible buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/numpy_random.c"
#include "../../examples/common/torch_random.c"
#include "../../examples/video/aspect.c"
#include "../../examples/video/bucket_epoch.c"
#include "../../examples/video/buckets.c"
#include "../../examples/video/step_order.c"

const char say_program[] = "test_video_order";

enum { ROWS = 400, SHAPES = 1024, EPOCHS_TRIED = 60, BEHIND = 7, RANKS = 3 };

static const char table[] =
    "{\"144p\": {\"1\": [1.0, 5], \"51\": [1.0, 2], \"102\": [[1.0, 0.33], 1]},"
    "\"256\": {\"1\": [0.5, 4], \"51\": [0.5, 1], \"204\": [0.0, null]},"
    "\"480p\": {\"1\": [0.0, 3], \"51\": [[0.5, 0.5], 1]}}";

struct data {
    struct video_shapes d;
};

static void add_shape(void *user, const struct bucket *b)
{
    struct video_shapes *d = user;

    for (int i = 0; i < d->n; i++)
        if (!memcmp(&d->shape[i].bucket, b, sizeof *b))
            return;
    assert_true(d->n < SHAPES);
    d->shape[d->n].bucket = *b;
    d->shape[d->n].batch = d->buckets.row[b->row].entry[b->entry].batch;
    d->shape[d->n].weight = 1 + d->n * 7 % 13;
    d->n++;
}

static void read_table(struct buckets *b, const char *text)
{
    char path[] = "/tmp/test_video_order-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    assert_int_equal(buckets_read(b, path), 0);
    unlink(path);
}

/* balanced: ranks use batches of about one weight. */
static void data_open(struct data *data, bool balanced)
{
    static const int64_t frames[] = {1, 51, 52, 103, 300}, sides[] = {128, 144, 256, 300, 480, 854};
    struct video_shapes *d = &data->d;

    *data = (struct data){.d = {.rows = 0}};
    read_table(&d->buckets, table);
    d->rows = ROWS;
    d->balanced = balanced;
    d->size = calloc(ROWS, sizeof *d->size);
    d->shape = calloc(SHAPES, sizeof *d->shape);
    for (int i = 0; i < ROWS; i++) {
        d->size[i] = (struct bucket_sample){frames[i % 5], sides[i / 5 % 6], sides[i / 7 % 6]};
        buckets_visit(&d->buckets, &d->size[i], 1, add_shape, d);
    }
}

static void data_close(struct data *data)
{
    video_shapes_free(&data->d);
}

/* Counts the rows of a step. */
static void take(const struct video_order *t, const struct video_selection *selection, int *seen)
{
    int64_t all = 0;

    for (int r = 0; r < t->ranks; r++) {
        const struct bucket_list *l = &t->bucket.list[t->deal[r].list];
        for (int64_t i = 0; i < l->batch; i++)
            seen[l->sample[t->deal[r].first + i]]++;
        all += l->batch;
    }
    assert_int_equal(selection->all, all);
}

/* All steps of the current epoch of t; returns the number of their samples. */
static int64_t run_epoch(struct video_order *t, int *seen)
{
    int64_t epoch = t->epoch, samples = 0;
    struct video_selection selection;

    for (;;) {
        assert_int_equal(video_order_next(t, 0, &selection), 0);
        if (t->epoch != epoch)
            return samples;
        assert_non_null(selection.shape);
        take(t, &selection, seen);
        samples += selection.all;
    }
}

static int64_t whole_batches(const struct video_order *t)
{
    int64_t n = 0;

    for (int i = 0; i < t->bucket.n; i++)
        n += t->bucket.list[i].n;
    return n;
}

static void check_epoch(bool balanced)
{
    struct video_order t;
    struct data data;
    int seen[ROWS] = {0};

    data_open(&data, balanced);
    assert_int_equal(video_order_open(&t, &data.d, 1, 5, 0, 1), 0);
    int64_t all = whole_batches(&t);
    assert_true(all > ROWS / 2);
    assert_int_equal(run_epoch(&t, seen), all);
    for (int i = 0; i < ROWS; i++)
        assert_true(seen[i] <= 1);
    video_order_close(&t);
    data_close(&data);
}

static void test_epoch(void **state)
{
    (void)state;
    check_epoch(false);
    check_epoch(true);
}

/* Some steps by some ranks, then the rest of the epoch by one. */
static void check_other_ranks(bool balanced)
{
    struct video_order t, rest;
    struct video_selection selection;
    struct data data;
    int seen[ROWS] = {0};
    int64_t taken = 0;

    data_open(&data, balanced);
    assert_int_equal(video_order_open(&t, &data.d, 1, 5, 0, RANKS), 0);
    int64_t all = whole_batches(&t);
    for (int i = 0; i < BEHIND; i++) {
        assert_int_equal(video_order_next(&t, i, &selection), 0);
        assert_int_equal(selection.before, taken);
        take(&t, &selection, seen);
        taken += selection.all;
    }
    assert_int_equal(video_order_open(&rest, &data.d, 1, 5, 0, 1), 0);
    assert_int_equal(video_order_go(&rest, video_order_place(&t)), 0);
    assert_int_equal(rest.before, taken);
    assert_int_equal(taken + run_epoch(&rest, seen), all);
    for (int i = 0; i < ROWS; i++)
        assert_true(seen[i] <= 1);
    video_order_close(&rest);
    video_order_close(&t);
    data_close(&data);
}

static void test_other_ranks(void **state)
{
    (void)state;
    check_other_ranks(false);
    check_other_ranks(true);
}

/* The same steps again from a position, into the next epoch. */
static void check_goes_on(bool balanced)
{
    struct video_order t, again;
    struct video_selection a, b;
    struct data data;

    data_open(&data, balanced);
    assert_int_equal(video_order_open(&t, &data.d, 1, 5, 0, 2), 0);
    while (t.epoch < 1)
        assert_int_equal(video_order_next(&t, 0, &a), 0);
    assert_int_equal(video_order_open(&again, &data.d, 1, 5, 0, 2), 0);
    assert_int_equal(video_order_go(&again, video_order_place(&t)), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(video_order_next(&t, i, &a), 0);
        assert_int_equal(video_order_next(&again, i, &b), 0);
        assert_true(a.shape == b.shape && a.before == b.before);
        assert_memory_equal(a.row, b.row, (size_t)a.shape->batch * sizeof *a.row);
    }
    video_order_close(&again);
    video_order_close(&t);
    data_close(&data);
}

static void test_goes_on(void **state)
{
    (void)state;
    check_goes_on(false);
    check_goes_on(true);
}

static void test_bad_places(void **state)
{
    static const char *const bad[] = {"", "x", "-1 3", "0", "0 0 1 x", "0 0 999999"};
    struct video_order t;
    struct data data;
    char text[4096];

    (void)state;
    data_open(&data, false);
    assert_int_equal(video_order_open(&t, &data.d, 1, 5, 0, 1), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(video_order_go(&t, bad[i]), -1);
    assert_int_equal(video_order_go(&t, "0 0"), -1); /* no lists */
    snprintf(text, sizeof text, "%s 0", video_order_place(&t));
    assert_int_equal(video_order_go(&t, text), -1); /* one too many */
    video_order_close(&t);
    data_close(&data);
}

/* Every batch once but for those that fill no step, and in each step weights of one class: what the
 * heaviest ranks have to wait for in a whole epoch is less than the largest difference. */
static void check_balance(double heaviest)
{
    struct video_order t;
    struct data data;
    int seen[ROWS] = {0};
    int64_t samples = 0, batches = 0, steps = 0;
    double waits = 0;
    bool mixed = false;

    data_open(&data, true);
    data.d.shape[0].weight = heaviest;
    assert_int_equal(video_order_open(&t, &data.d, 1, 5, 1, RANKS), 0);
    int64_t all = whole_batches(&t), held = 0;
    for (int i = 0; i < t.bucket.n; i++)
        batches += t.bucket.list[i].n / t.bucket.list[i].batch;
    for (struct video_selection selection; steps < batches / RANKS; steps++) {
        assert_int_equal(video_order_next(&t, steps, &selection), 0);
        assert_int_equal(t.epoch, 0);
        assert_int_equal(selection.first, t.bucket.list[t.deal[0].list].batch);
        assert_ptr_equal(selection.shape, t.shape[t.deal[1].list]);
        take(&t, &selection, seen);
        samples += selection.all;
        waits += t.shape[t.deal[RANKS - 1].list]->weight - t.shape[t.deal[0].list]->weight;
        mixed |= t.deal[0].list != t.deal[RANKS - 1].list;
    }
    for (int i = 0; i < t.bucket.n; i++)
        held += t.bucket.list[i].n / t.bucket.list[i].batch - t.bucket.list[i].taken;
    assert_int_equal(held, batches % RANKS);
    assert_true(mixed && samples <= all && waits <= heaviest - 1);
    for (int i = 0; i < ROWS; i++)
        assert_true(seen[i] <= 1);
    video_order_close(&t);
    data_close(&data);
}

/* Also with a bucket whose batches are far heavier than all others. */
static void test_balance(void **state)
{
    (void)state;
    check_balance(13);
    check_balance(1000);
}

/* More ranks than any bucket has batches. */
static void check_too_many_ranks(bool balanced)
{
    struct video_order t;
    struct video_selection selection;
    struct data data;

    data_open(&data, balanced);
    assert_int_equal(video_order_open(&t, &data.d, 1, 5, 0, ROWS), 0);
    assert_int_equal(video_order_next(&t, 0, &selection), -1);
    video_order_close(&t);
    data_close(&data);
}

static void test_too_many_ranks(void **state)
{
    (void)state;
    check_too_many_ranks(false);
    check_too_many_ranks(true);
}

/* Epochs use exactly the buckets that buckets_visit reports as possible, and all of them after some
 * time. */
static void test_possible(void **state)
{
    struct data data;
    bool found[SHAPES] = {false};
    struct bucket b;

    (void)state;
    data_open(&data, false);
    for (int64_t epoch = 0; epoch < EPOCHS_TRIED; epoch++)
        for (int64_t i = 0; i < ROWS; i++)
            if (buckets_assign(&data.d.buckets, &data.d.size[i], i, 1, 5, epoch, &b)) {
                const struct video_shape *s = video_shape_of(&data.d, &b);
                assert_non_null(s);
                found[s - data.d.shape] = true;
            }
    for (int i = 0; i < data.d.n; i++)
        assert_true(found[i]);
    data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epoch),          cmocka_unit_test(test_other_ranks),
        cmocka_unit_test(test_goes_on),        cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_too_many_ranks), cmocka_unit_test(test_possible),
        cmocka_unit_test(test_balance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
