/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets and shares: no element is lost, none overlaps, and all shares are equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dist/shard/layout.h"

enum { MOST = 300 };

static struct layout *make(const struct layout_param *params, int32_t n, int32_t world)
{
    struct layout *l = NULL;
    assert_int_equal(layout_make(&l, params, n, world), 0);
    return l;
}

/* Counts how often every element of every bucket belongs to a parameter, over the parts of all
 * ranks. */
static void check(const struct layout *l, const struct layout_param *params)
{
    for (int32_t b = 0; b < l->n_buckets; b++) {
        const struct layout_bucket *bucket = &l->buckets[b];
        char *used = calloc((size_t)bucket->padded, 1);
        int64_t numel = 0, covered = 0;
        assert_int_equal(bucket->padded, bucket->share * l->world);
        assert_int_equal(bucket->share % LAYOUT_ALIGN, 0);
        /* padding is less than one unit for each tensor and rank */
        assert_true(bucket->n > 0 && bucket->n <= LAYOUT_PARTS);
        for (int32_t k = bucket->first; k < bucket->first + bucket->n; k++) {
            int32_t i = l->order[k];
            const struct layout_place *p = &l->places[i];
            int64_t seen = 0;
            assert_int_equal(p->bucket, b);
            assert_int_equal(p->offset % LAYOUT_ALIGN, 0);
            assert_int_equal(params[i].dtype, bucket->dtype);
            assert_int_equal(p->numel, params[i].numel);
            numel += p->numel;
            for (int32_t rank = 0; rank < l->world; rank++) {
                int64_t at = -1, in_share = -1;
                int64_t n = layout_part(l, i, rank, &at, &in_share);
                assert_true((n > 0) == (rank >= p->first_owner && rank <= p->owner));
                if (!n)
                    continue;
                assert_int_equal(at, seen);
                assert_int_equal(rank * bucket->share + in_share, p->offset + at);
                assert_true(in_share + n <= bucket->share);
                for (int64_t e = 0; e < n; e++)
                    assert_int_equal(used[rank * bucket->share + in_share + e]++, 0);
                seen += n;
            }
            assert_int_equal(seen, p->numel);
            covered += seen;
        }
        assert_int_equal(covered, numel);
        assert_true(bucket->padded - numel <
                    LAYOUT_ALIGN * ((int64_t)bucket->n + l->world) + l->world);
        free(used);
    }
}

static void test_blocks(void **state)
{
    const struct layout_param params[] = {
        {"embed.weight", CKPT_F32, 7, true, 0},     {"embed.table", CKPT_F32, 100, false, 0},
        {"blocks.0.a", CKPT_BF16, 1000, true, 0},   {"blocks.0.norm", CKPT_F32, 65, true, 0},
        {"blocks.0.b.bias", CKPT_BF16, 3, true, 0}, {"blocks.1.a", CKPT_BF16, 1000, true, 0},
        {"blocks.1.norm", CKPT_F32, 65, true, 0},   {"blocks.1.b.bias", CKPT_BF16, 3, true, 0},
        {"final.weight", CKPT_BF16, 64, true, 0},   {"final.2", CKPT_BF16, 64, true, 0},
        {"blocks.1.sub.3.x", CKPT_F32, 1, true, 0},
    };
    int32_t n = (int32_t)(sizeof params / sizeof *params);
    (void)state;
    struct layout *l = make(params, n, 3);
    check(l, params);
    assert_int_equal(l->n_buckets, 7);
    assert_string_equal(l->buckets[0].name, "other");
    assert_string_equal(l->buckets[1].name, "blocks.0 (bf16)");
    assert_string_equal(l->buckets[2].name, "blocks.0");
    assert_string_equal(l->buckets[5].name, "other (bf16)");
    assert_string_equal(l->buckets[6].name, "blocks.1.sub.3");
    assert_int_equal(l->places[1].bucket, -1);
    assert_int_equal(l->places[4].offset, 1024);
    assert_int_equal(l->buckets[1].share, round_up(1027 / 3 + 1, 64));
    layout_free(l);
}

static void test_random(void **state)
{
    struct layout_param params[MOST];
    char names[MOST][32];
    uint64_t h = HASH_START;
    (void)state;
    for (int round = 0; round < 60; round++) {
        int32_t n = 1 + (int32_t)(h % (round % 2 ? MOST : 12));
        for (int32_t i = 0; i < n; i++) {
            h = hash_mix(h, i);
            snprintf(names[i], sizeof names[i], "b.%d.t%d", (int)(i / (1 + round)), i);
            params[i] = (struct layout_param){names[i], h >> 20 & 1 ? CKPT_BF16 : CKPT_F32,
                                              1 + (int64_t)(h >> 24 & (h >> 40 & 1 ? 7 : 1023)),
                                              (h >> 50 & 7) != 0, 0};
        }
        uint64_t before = 0;
        for (int32_t world = 1; world < 10; world++) {
            struct layout *l = make(params, n, world);
            check(l, params);
            int32_t trained = 0;
            for (int32_t i = 0; i < n; i++) {
                trained += params[i].trainable;
                assert_true((l->places[i].bucket >= 0) == params[i].trainable);
            }
            int32_t placed = 0;
            for (int32_t b = 0; b < l->n_buckets; b++)
                placed += l->buckets[b].n;
            assert_int_equal(placed, trained);
            assert_true(layout_signature(l) != before);
            before = layout_signature(l);
            layout_free(l);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
