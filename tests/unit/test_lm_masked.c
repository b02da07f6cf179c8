/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of documents, and the samples of masked models that are made of them: marks, segments,
 * shares of the replacements, whole words, and the same sample whoever asks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/lm/masked.h"
#include "../../examples/common/say.h"

const char say_program[] = "test_lm_masked";

enum { END = 1000, BEGIN, MASK, PAD, VOCABULARY = 1100, LENGTH = 40, MOST = 10 };

static const struct document_ends ends = {{BEGIN, END, PAD}};
static const struct masking marks = {.marks = {BEGIN, END, MASK, PAD},
                                     .length = LENGTH,
                                     .most = MOST,
                                     .vocabulary = VOCABULARY,
                                     .share = 0.25,
                                     .seed = 5};

/* A shard with documents of these lengths; token i of the shard is i % END. */
static void open_documents(struct dataset *d, const int *length, int n, int64_t room)
{
    struct tokens t = {.open = -1, .fd = -1, .n = 1};
    int64_t at = 0;

    t.shard = calloc(1, sizeof *t.shard);
    t.shard->path = strdup("documents");
    t.shard->width = 4;
    for (int i = 0; i < n; i++)
        t.count += length[i] + 2;
    t.shard->count = t.count;
    t.shard->held = calloc((size_t)t.count, sizeof(int32_t));
    for (int i = 0; i < n; i++) {
        t.shard->held[at++] = BEGIN;
        for (int k = 0; k < length[i]; k++, at++)
            t.shard->held[at] = (int32_t)(at % END);
        t.shard->held[at++] = END;
    }
    assert_int_equal(dataset_open(d, &t, room, VOCABULARY, 1, true, &ends), 0);
}

static void test_pieces(void **state)
{
    static const int length[] = {5, 0, 12, 1};
    static const struct piece want[] = {{1, 4, 0},  {5, 1, 0},  {10, 4, 1},
                                        {14, 4, 1}, {18, 4, 1}, {24, 1, 2}};
    int32_t token[4];
    struct dataset d;

    (void)state;
    open_documents(&d, length, 4, 4);
    assert_int_equal(d.rows, 6);
    assert_true(d.padded);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(d.piece[i].begin, want[i].begin);
        assert_int_equal(d.piece[i].n, want[i].n);
        assert_int_equal(d.piece[i].document, want[i].document);
    }
    assert_int_equal(dataset_read_piece(&d, 3, 3, token), 3);
    assert_int_equal(token[0], 14);
    dataset_close(&d);
    open_documents(&d, (int[]){8, 4}, 2, 4);
    assert_false(d.padded);
    dataset_close(&d);
}

/* ---- samples --------------------------------------------------------------------------------- */

struct batch {
    int32_t token[LENGTH], target[MOST], place[MOST], segment[LENGTH], length, pair;
};

static void read_one(struct dataset *d, const struct masking *m, int64_t number, struct batch *b)
{
    int32_t *const in[LM_INPUTS] = {b->token,   b->target,  b->place,
                                    b->segment, &b->length, m->pairs ? &b->pair : NULL};

    assert_int_equal(masked_read(d, m, number, 1, in), 0);
}

/* What was predicted: [0] a mask, [1] the token itself, [2] another one. */
static void count_kinds(const struct batch *b, int kind[3])
{
    for (int k = 0; k < MOST && b->target[k] != DATASET_IGNORED; k++) {
        int32_t token = b->token[b->place[k]];
        assert_true(!k || b->place[k] > b->place[k - 1]);
        assert_true(b->place[k] > 0 && b->place[k] < b->length - 1);
        kind[token == MASK ? 0 : token == b->target[k] ? 1 : 2]++;
    }
}

/* The text as it was: consecutive numbers. */
static void check_text(const struct batch *b, int from, int to)
{
    int32_t text[LENGTH];

    memcpy(text, b->token, sizeof text);
    for (int k = 0; k < MOST && b->target[k] != DATASET_IGNORED; k++)
        text[b->place[k]] = b->target[k];
    for (int i = from + 1; i < to; i++)
        assert_int_equal(text[i], (text[i - 1] + 1) % END);
}

static void test_masks(void **state)
{
    struct dataset d;
    struct batch b, again;
    int kind[3] = {0}, moved = 0;

    (void)state;
    open_documents(&d, (int[]){3800, 25, 3800}, 3, LENGTH - 2);
    for (int i = 0; i < 3 * d.rows; i++) {
        read_one(&d, &marks, i, &b);
        assert_true(b.token[0] == BEGIN && b.token[b.length - 1] == END);
        assert_true(b.length == LENGTH || b.token[b.length] == PAD);
        check_text(&b, 1, b.length - 1);
        count_kinds(&b, kind);
        read_one(&d, &marks, i, &again);
        assert_memory_equal(&b.token, &again.token, sizeof b.token);
        read_one(&d, &marks, i + d.rows, &again);
        moved += memcmp(b.place, again.place, sizeof b.place) != 0;
    }
    int all = kind[0] + kind[1] + kind[2]; /* about 5,400 */
    assert_true(kind[0] > 0.77 * all && kind[0] < 0.83 * all);
    assert_true(kind[1] > 0.08 * all && kind[1] < 0.12 * all);
    assert_true(kind[2] > 0.08 * all && kind[2] < 0.12 * all);
    assert_true(moved > 2 * d.rows);
    dataset_close(&d);
}

static void test_pairs(void **state)
{
    struct masking m = marks;
    struct dataset d;
    struct batch b;
    int others = 0;

    (void)state;
    m.pairs = true;
    open_documents(&d, (int[]){3700, 1, 3700}, 3, LENGTH - 3);
    for (int i = 0; i < 2 * d.rows; i++) {
        read_one(&d, &m, i, &b);
        int cut = 1;
        while (!b.segment[cut])
            cut++;
        assert_true(cut > 2 && b.token[cut - 1] == END);
        check_text(&b, 1, cut - 1);
        check_text(&b, cut, b.length - 1);
        for (int k = cut; k < LENGTH; k++)
            assert_int_equal(b.segment[k], k < b.length);
        others += b.pair;
    }
    assert_true(others > 0.4 * 2 * (double)d.rows && others < 0.6 * 2 * (double)d.rows);
    dataset_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
