/* SPDX-License-Identifier: Apache-2.0 */
/* Graph files: written files read back, and every kind of mistake is named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "graphs.h"
#include "plan_make.h"
#include "plan/graph/graph_file.h"

static char file[] = "test_graph_file.tmp-XXXXXX";

/* A parameter, an input, the storages computed from them, and a gradient carried between
 * micro-steps. */
static const char *const good[] = {
    "libckpt-graph 1",
    "micro 2",
    "storages 4",
    "ops 4",
    "body 3",
    "refs 8",
    "storage parameter 1024 persistent  # w",
    "storage input 512  # x",
    "storage activation 2048  # linear (m.c:1)",
    "storage gradient 1024 carried  # w (gradient)",
    "op forward 0 0 0 512 0000000000000000 1e-06 rerun reads writes 1  # feed",
    "op forward 1 512 1e+09 3584 00f100000000abcd 0.25 rerun reads 0 1 writes 2  # linear (m.c:1)",
    "op backward 2 0 2e+09 4096 0000000000000001 0.5 reads 2 3 writes 3  # linear_dw (m.c:1)",
    "op update 3 0 0 3072 0000000000000002 0.125 reads 3 writes  # fetch",
    "end",
};
#define LINES ((int)(sizeof(good) / sizeof(good[0])))

static void write_text(const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* The valid file with one line replaced, or removed if by is NULL; more is appended. */
static void write_lines(int line, const char *by, const char *more)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    for (int i = 0; i < LINES; i++) {
        const char *text = i == line ? by : good[i];
        if (text)
            fprintf(f, "%s\n", text);
    }
    fputs(more, f);
    assert_int_equal(fclose(f), 0);
}

static char *read_text(void)
{
    FILE *f = fopen(file, "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static void test_round_trip(void **state)
{
    struct graph *g;
    (void)state;
    write_lines(-1, NULL, "");
    char *before = read_text();
    assert_int_equal(graph_read(file, &g), 0);
    assert_int_equal(g->n_micro, 2);
    assert_int_equal(g->n_body, 3);
    assert_int_equal(g->ops[1].cost_key, UINT64_C(0x00f100000000abcd));
    assert_true(g->ops[1].seconds == 0.25 && g->ops[1].flops == 1e9 && g->ops[1].bytes == 3584);
    assert_true(g->ops[1].rerunnable && !g->ops[2].rerunnable);
    assert_true(g->storages[0].persistent && g->storages[3].carried);
    assert_string_equal(g->storages[2].name, "linear (m.c:1)");
    /* The linear op reads 512, makes 2048 and has a workspace of 512; a parameter is not counted,
     * and neither is a gradient twice that is changed in place. */
    assert_int_equal(graph_largest_op(g), 3072);
    g->ops[1].workspace = 0;
    assert_int_equal(graph_largest_op(g), 3072);
    g->ops[1].workspace = 512;
    assert_true(fabs(graph_seconds(g) - (2 * (1e-6 + 0.25 + 0.5) + 0.125)) < 1e-12);
    assert_int_equal(graph_write(g, file), 0);
    char *after = read_text();
    assert_string_equal(before, after);
    free(before);
    free(after);
    graph_free(g);
}

static void same_graph(struct graph *from)
{
    struct graph *g;
    assert_int_equal(graph_write(from, file), 0);
    if (graph_read(file, &g))
        fail_msg("%s", error_get());
    assert_true(graph_signature(g) == graph_signature(from));
    for (int32_t i = 0; i < g->n_ops; i++) {
        assert_true(g->ops[i].seconds == from->ops[i].seconds);
        assert_string_equal(g->ops[i].name, from->ops[i].name);
    }
    graph_free(g);
    graph_free(from);
}

/* Programs of the planner's tests keep their signature and their times. */
static void test_signature(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 40; seed++)
        same_graph(graph_random(seed, 25));
    same_graph(graph_unet(4, 1 << 20));
    same_graph(graph_transformer(3, 1 << 20, 4));
}

static const struct mistake {
    int line;
    const char *by, *says;
} mistakes[] = {
    {0, "libckpt-graph 2", "line 1: this is no graph file of version 1"},
    {0, "", "line 1: this is no graph file"},
    {1, "micro 0", "line 2: expected micro, a number from 1"},
    {1, "micro 2 3", "line 2: expected the end of the line"},
    {1, "micro 2 stage 1 of 2 pipelines 1 unrolled 2",
     "line 2: a stage has its micro-steps in one body"},
    {1, "micro 1 stage 3 of 2 pipelines 1 unrolled 2",
     "line 2: expected the number of stages, a number from 3"},
    {1, "micro 1 stage 1 of 2 pipelines 0 unrolled 2",
     "line 2: expected the number of pipelines, a number from 1"},
    {1, "micro 1 stage 1 of 2 pipelines 1", "line 2: expected \"unrolled\""},
    {1, "micro 1 stage 1 of 2 pipelines 1 unrolled 4",
     "4 micro-steps cannot be in a body of 3 ops"},
    {2, "storages -1", "line 3: expected storages, a number from 0"},
    {2, "storages 99999999999999999999", "line 3: expected storages"},
    {2, "storages 5", "line 11: expected \"storage\""},
    {2, "storages 3", "line 10: expected \"op\""},
    {3, "ops 5", "line 15: expected \"op\""},
    {3, "ops 3", "line 14: expected \"end\""},
    {4, "body 5", "line 5: expected body, a number from 1 to 4"},
    {4, "body 2", "line 13: op 2 is a backward op, but the body has 2 ops"},
    {5, "refs 7", "the ops have 8 operands, not 7"},
    {6, "storage weights 1024  # w", "line 7: expected the kind of a storage"},
    {6, "storage parameter 1000 persistent  # w", "line 7: the bytes of a storage must be a"},
    {6, "storage parameter -512 persistent  # w", "line 7: expected the bytes of a storage"},
    {6, "storage parameter 0 persistent  # w", "line 7: expected the bytes of a storage"},
    {6, "storage parameter 9223372036854775808  # w", "line 7: expected the bytes of a storage"},
    {6, "storage parameter 1024 persistent", "line 7: expected \"  # \" and a name"},
    {6, "storage parameter 1024 forever  # w", "line 7: expected \"  # \" and a name"},
    {6, "storage parameter 1024  # w", "line 12: op 1 reads storage 0, which no op before it"},
    {7, "storage input 2305843009213693440  # x", "line 8: the storages together pass"},
    {7, "storage input 512  # x\x1b[2J", "line 8: a name with a control character"},
    {10, NULL, "line 11: op 0 reads storage 1, which no op before it writes"},
    {11, "op forward 1 512 1e9 1 00 1 rerun reads 0 1 writes 2  # a", "the key of a cost"},
    {11, "op forward 1 512 -1 1 0000000000000000 1 reads 0 writes 2  # a", "the arithmetic"},
    {11, "op forward 1 512 1 nan 0000000000000000 1 reads 0 writes 2  # a", "the bytes an op"},
    {11, "op forward 1 512 1 1 0000000000000000 inf reads 0 writes 2  # a", "the seconds of an op"},
    {11, "op forward 1 512 1 1 0000000000000000 1 all_gather 1 reads 0 writes 2  # a",
     "expected the number of ranks"},
    {11, "op forward 1 512 1 1 0000000000000000 1 all_gather 4 reads 0 1 writes 2  # a",
     "a collective reads one storage"},
    {11,
     "op forward 1 512 1 1 0000000000000000 1 reduce_scatter 4 replicas 1 reads 0 writes 2  # a",
     "expected the number of replicas"},
    {12, "op backward 2 0 1 1 0000000000000001 0.5 all_reduce 4 reads 3 writes  # a",
     "a collective reads one storage"},
    {11, "op forward 1 100 1 1 0000000000000000 1 reads 0 writes 2  # a", "the bytes of workspace"},
    {11, "op forward 1 512 1 1 0000000000000000 1 reads 4 writes 2  # a", "expected a storage"},
    {11, "op forward 1 512 1 1 0000000000000000 1 reads -1 writes 2  # a", "expected a storage"},
    {11, "op forward 1 512 1 1 0000000000000000 1 reads 2 writes 2  # a", "form a cycle"},
    {11, "op forward 1 512 1 1 0000000000000000 1 reads 0 0 writes 2  # a", "twice in \"reads\""},
    {11, "op forward 1 512 1 1 0000000000000000 1 reads 0 writes 2 2  # a", "twice in \"writes\""},
    {11, "op sideways 1 512 1 1 0000000000000000 1 reads 0 writes 2  # a", "expected a phase"},
    {11, "op backward 1 512 1 1 0000000000000000 1 rerun reads 0 1 writes 2  # a",
     "line 12: a rerunnable op is a forward op"},
    {12, "op forward 2 0 1 1 0000000000000000 1 reads 2 3 writes 3  # a", NULL},
    {14, "fin", "line 15: expected \"end\""},
    {14, NULL, "line 15: the file ends too early"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct graph *g = NULL;
        const struct mistake *m = &mistakes[i];
        write_lines(m->line, m->by, "");
        int rc = graph_read(file, &g);
        if (m->says && (rc != CKPT_EFORMAT || !strstr(error_get(), m->says)))
            fail_msg("mistake %d: %d \"%s\", expected \"%s\"", (int)i, rc, error_get(), m->says);
        assert_true(m->says ? g == NULL : rc == 0);
        graph_free(g);
    }
}

static void test_other_mistakes(void **state)
{
    struct graph *g;
    (void)state;
    write_lines(-1, NULL, "more\n");
    assert_int_equal(graph_read(file, &g), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), "line 16: something follows the end"));
    write_text("");
    assert_int_equal(graph_read(file, &g), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), "line 1: the file ends too early"));
    assert_int_equal(graph_read("no/such/file", &g), CKPT_EIO);
    assert_non_null(strstr(error_get(), "graph file no/such/file cannot be opened"));
    assert_int_equal(graph_read(".", &g), CKPT_EIO);
    write_lines(-1, NULL, "");
    assert_int_equal(graph_read(file, &g), 0);
    assert_int_equal(graph_write(g, "no/such/file"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "cannot be written"));
    graph_free(g);
}

/* Rates of a machine give the times; a measured cost wins; feeds and fetches pay the link. */
static void test_price(void **state)
{
    struct machine_cost cost = {UINT64_C(0x00f100000000abcd), 42};
    struct machine m = {.flops = 1e9,
                        .bandwidth = 1024,
                        .overhead = 1,
                        .d2h = 512,
                        .h2d = 256,
                        .costs = &cost,
                        .n_costs = 1};
    struct graph *g;
    (void)state;
    write_lines(-1, NULL, "");
    assert_int_equal(graph_read(file, &g), 0);
    graph_price(g, &m);
    assert_true(g->ops[0].seconds == 512. / 256 + 1);
    assert_true(g->ops[1].seconds == 42);
    assert_true(g->ops[2].seconds == 4096. / 1024 + 1);
    assert_true(g->ops[3].seconds == 3072. / 512 + 1);
    m.bandwidth = 1e9;
    graph_price(g, &m);
    assert_true(g->ops[2].seconds == 2 + 1);
    m.attention = 0.5;
    graph_price(g, &m);
    assert_true(g->ops[2].seconds == 2 + 1); /* a product */
    g->ops[2].attention = true;
    graph_price(g, &m);
    assert_true(g->ops[2].seconds == 4 + 1);
    assert_int_equal(graph_write(g, file), 0);
    graph_free(g);
    assert_int_equal(graph_read(file, &g), 0);
    assert_true(g->ops[2].attention && !g->ops[1].attention);
    graph_price(g, &m);
    assert_true(g->ops[2].seconds == 4 + 1);
    assert_int_equal(graph_check_seconds(g), 0);
    cost.seconds = 1e9; /* more than the search can add */
    graph_price(g, &m);
    assert_int_equal(graph_check_seconds(g), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "the ops of a step take 1e+09 s"));
    struct budgets b = {.device = INT64_MAX};
    struct plan *p;
    assert_int_equal(plan_make(g, &m, &b, 0, &p), CKPT_EINVAL);
    graph_free(g);
}

/* What a writer wrote, and what later ops moved, must fit. */
static void test_cached(void **state)
{
    static const struct {
        int32_t op, storage;
        int64_t bytes; /* the smallest cache that holds it; 0: none does */
    } rows[] = {{1, 1, 512}, {2, 2, 2048}, {2, 1, 512 + 2048 + 1024 + 512}, {3, 3, 1024}, {0, 1, 0},
                {1, 0, 0},   {3, 0, 0}};
    struct graph *g;
    (void)state;
    write_lines(-1, NULL, "");
    assert_int_equal(graph_read(file, &g), 0);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const int64_t bytes = rows[k].bytes ? rows[k].bytes : INT64_MAX;
        assert_int_equal(graph_is_cached(g, rows[k].op, rows[k].storage, bytes), rows[k].bytes > 0);
        assert_false(graph_is_cached(g, rows[k].op, rows[k].storage, rows[k].bytes - 1));
    }
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_signature),
        cmocka_unit_test(test_mistakes),   cmocka_unit_test(test_other_mistakes),
        cmocka_unit_test(test_price),      cmocka_unit_test(test_cached),
    };
    int fd = mkstemp(file);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return failed;
}
