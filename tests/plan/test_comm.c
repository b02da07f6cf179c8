/* Collectives in the planner: what they take, and what of it the clock hides. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "plan/comm.h"
#include "plan/graph_file.h"

static char file[] = "test_comm.tmp-XXXXXX";
static char message[CKPT_MESSAGE];

static const struct links links = {
    .host = 100e9, .host_latency = 1e-6, .net = 10e9, .net_latency = 1e-5, .ranks_per_host = 8};

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* ---- prices ---------------------------------------------------------------------------------- */

static void test_prices(void **state)
{
    (void)state;
    assert_true(collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, 1) == 0);
    assert_true(collective_seconds(&links, GRAPH_LOCAL, 1e9, 8) == 0);
    /* Within a host: three hops, and three quarters of the bytes. */
    assert_near(collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, 4), 3e-6 + .75 * 1e9 / 100e9);
    assert_near(collective_seconds(&links, GRAPH_REDUCE_SCATTER, 1e9, 4), 3e-6 + .75 * 1e9 / 100e9);
    assert_near(collective_seconds(&links, GRAPH_ALL_REDUCE, 1e9, 4), 6e-6 + 1.5 * 1e9 / 100e9);
    /* Two hosts: eight links of 10e9 are less than the inner 100e9; two hops cross. */
    assert_near(collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, 16),
                14e-6 + 2e-5 + 15. / 16 * 1e9 / 80e9);
    /* Many hosts: a tree of 512 is 9 deep. */
    assert_near(collective_seconds(&links, GRAPH_ALL_REDUCE, 0, 4096), 2 * (7e-6 + 9e-5));
    struct links single = links;
    single.ranks_per_host = 1;
    assert_near(collective_seconds(&single, GRAPH_ALL_GATHER, 1e9, 2), 2e-5 + .5 * 1e9 / 10e9);
}

/* The first hop out of the host costs; from there on nearly the same bytes pass every rank. */
static void test_hosts(void **state)
{
    (void)state;
    double before = 0;
    for (int64_t n = 2; n <= 4096; n *= 2) {
        double now = collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, n);
        assert_true(now > before);
        if (n == 16)
            assert_true(now > 1.3 * before);
        before = now;
    }
}

/* A graph prices its collectives by the links of the machine, whatever its memory can do. */
static void test_graph(void **state)
{
    static const char text[] =
        "libckpt-graph 1\nmicro 1\nstorages 3\nops 3\nbody 2\nrefs 5\n"
        "storage parameter 1048576 persistent  # w\n"
        "storage activation 8388608  # w\n"
        "storage gradient 1048576  # w (gradient)\n"
        "op forward 0 0 0 9437184 0000000000000000 0 rerun all_gather 8 reads 0 writes 1  # a\n"
        "op backward 1 0 0 9437184 0000000000000000 0 reduce_scatter 8 reads 1 writes 2  # b\n"
        "op update 2 0 0 1048576 0000000000000000 0 reads 2 writes  # c\nend\n";
    struct machine m = machine_cpu;
    struct graph *g;
    (void)state;
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    if (graph_read(file, &g, message))
        fail_msg("%s", message);
    assert_int_equal(g->ops[0].collective, GRAPH_ALL_GATHER);
    assert_int_equal(g->ops[1].collective, GRAPH_REDUCE_SCATTER);
    assert_int_equal(g->ops[2].collective, GRAPH_LOCAL);
    assert_int_equal(g->ops[0].ranks, 8);
    m.links = links;
    m.bandwidth = 1;
    graph_price(g, &m);
    double seconds = collective_seconds(&links, GRAPH_ALL_GATHER, 8388608, 8) + m.overhead;
    assert_near(g->ops[0].seconds, seconds);
    assert_near(g->ops[1].seconds, seconds);
    assert_int_equal(graph_write(g, file, message), 0);
    graph_free(g);
    assert_int_equal(graph_read(file, &g, message), 0);
    assert_int_equal(g->ops[0].collective, GRAPH_ALL_GATHER);
    assert_int_equal(g->ops[0].ranks, 8);
    graph_free(g);
}

/* A machine file without links has those of the built-in machine of its kind. */
static void test_defaults(void **state)
{
    struct machine m;
    char text[8192];
    (void)state;
    assert_int_equal(machine_write(&machine_cuda, file, message), 0);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    char *from = strstr(text, "  \"link_host\""), *to = strstr(text, "  \"costs\"");
    assert_true(from && to > from);
    memmove(from, to, strlen(to) + 1);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    if (machine_read(file, &m, message))
        fail_msg("%s", message);
    assert_memory_equal(&m.links, &machine_cuda.links, sizeof(m.links));
    machine_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prices),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_defaults),
    };
    int fd = mkstemp(file);
    if (fd < 0)
        return 1;
    close(fd);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return rc;
}
