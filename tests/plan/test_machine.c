/* SPDX-License-Identifier: Apache-2.0 */
/* Machine files: the shipped files are canonical, written files read back, mistakes are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "plan/graph/machine.h"

static char file[] = "test_machine.tmp-XXXXXX";

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

static void write_text(const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_shipped(void **state)
{
    static const char *const names[] = {"a100-40", "a100-80", "a6000",    "b200", "cpu",
                                        "h100-80", "h200-141", "l40s",    "pro6000", "rtx3090",
                                        "rtx4090", "rtx5080", "rtx5090"};
    char all[32][64];
    const char *srcdir = getenv("srcdir");
    char path[4096];
    (void)state;
    assert_int_equal(unsetenv("CKPT_MACHINE_DIR"), 0);
    assert_int_equal(machine_shipped(all, 32), sizeof(names) / sizeof(names[0]));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct machine m;
        if (machine_read(names[i], &m))
            fail_msg("%s", error_get());
        const bool measured = !strcmp(names[i], "h200-141") || !strcmp(names[i], "h100-80");
        assert_int_equal(m.estimate, !measured);
        assert_true(m.d2h_both <= m.d2h && m.h2d_both <= m.h2d && m.nvme_read < m.h2d);
        assert_int_equal(machine_write(&m, file), 0);
        machine_free(&m);
        snprintf(path, sizeof(path), "%s/machines/%s.json", srcdir ? srcdir : ".", names[i]);
        char *shipped = read_text(path), *written = read_text(file);
        assert_string_equal(shipped, written);
        free(shipped);
        free(written);
    }
}

/* The default machine for planning is the shipped one of that name. */
static void test_default(void **state)
{
    struct machine m;
    (void)state;
    assert_int_equal(machine_read("cpu", &m), 0);
    assert_true(m.flops == machine_cpu.flops && m.bandwidth == machine_cpu.bandwidth &&
                m.overhead == machine_cpu.overhead && m.d2h == machine_cpu.d2h &&
                m.h2d == machine_cpu.h2d);
    machine_free(&m);
}

static void test_round_trip(void **state)
{
    struct machine_cost costs[] = {{1, 1e-6 / 3}, {UINT64_C(0xfedcba9876543210), 0}};
    struct machine m = machine_cpu, back;
    double seconds;
    (void)state;
    snprintf(m.name, sizeof(m.name), "a \"quoted\" \\ name");
    m.flops = 1e12 / 3;
    m.host_copies = 7e10;
    m.costs = costs;
    m.n_costs = 2;
    assert_int_equal(algorithms_set(&m.algorithms, UINT64_C(0xfedcba9876543210), "last"), 0);
    assert_int_equal(algorithms_set(&m.algorithms, 7, "with \"quotes\" and \\"), 0);
    assert_int_equal(machine_write(&m, file), 0);
    algorithms_free(&m.algorithms);
    char *before = read_text(file);
    if (machine_read(file, &back))
        fail_msg("%s", error_get());
    assert_string_equal(back.name, m.name);
    assert_true(back.flops == m.flops && back.host_copies == m.host_copies);
    assert_true(machine_cost(&back, 1, &seconds) && seconds == 1e-6 / 3);
    assert_true(machine_cost(&back, UINT64_C(0xfedcba9876543210), &seconds) && seconds == 0);
    assert_false(machine_cost(&back, 2, &seconds));
    assert_false(machine_cost(&back, UINT64_MAX, &seconds));
    assert_int_equal(back.algorithms.n, 2);
    assert_string_equal(algorithms_get(&back.algorithms, 7), "with \"quotes\" and \\");
    assert_string_equal(algorithms_get(&back.algorithms, UINT64_C(0xfedcba9876543210)), "last");
    assert_int_equal(machine_write(&back, file), 0);
    char *after = read_text(file);
    assert_string_equal(before, after);
    free(before);
    free(after);
    machine_free(&back);
}

/* Copies of ranks share the rate of their host; without a known rate they do not. */
static void test_for_rank(void **state)
{
    struct machine m = {.d2h = 12, .h2d = 11, .d2h_both = 10, .h2d_both = 9}, own;
    (void)state;
    m.links.ranks_per_host = 4;
    own = machine_for_rank(&m, 4);
    assert_true(own.d2h_both == 10 && own.h2d_both == 9);
    m.host_copies = 19;
    const struct {
        int64_t ranks;
        double out, in;
    } rows[] = {{1, 10, 9}, {2, 9.5, 9}, {4, 4.75, 4.75}, {64, 4.75, 4.75}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        own = machine_for_rank(&m, rows[i].ranks);
        assert_true(own.d2h_both == rows[i].out && own.h2d_both == rows[i].in);
        assert_true(own.d2h == m.d2h && own.h2d == m.h2d);
    }
}

/* A file of before there was this member has the share of the built-in machine. */
static void test_attention(void **state)
{
    struct machine m = machine_cuda, back;
    (void)state;
    m.attention = 0;
    assert_int_equal(machine_write(&m, file), 0);
    assert_int_equal(machine_read(file, &back), 0);
    assert_true(back.attention == machine_cuda.attention && back.attention < 1);
    machine_free(&back);
    m.attention = 0.7;
    assert_int_equal(machine_write(&m, file), 0);
    assert_int_equal(machine_read(file, &back), 0);
    assert_true(back.attention == 0.7);
    machine_free(&back);
    assert_int_equal(machine_read("cpu", &back), 0);
    assert_true(back.attention == 0);
    machine_free(&back);
}

static const struct mistake {
    const char *find, *by, *says;
} mistakes[] = {
    {"libckpt-machine 1", "libckpt-machine 9", "no machine file of version 1"},
    {"{", "[", "is not JSON"},
    {"\"flops\": 6e+10,", "", "\"flops\" is missing"},
    {"\"flops\": 6e+10", "\"flops\": -1", "\"flops\" must be a number from 1"},
    {"\"flops\": 6e+10", "\"flops\": 0", "\"flops\" must be a number from 1"},
    {"\"flops\": 6e+10", "\"flops\": 1e400", "is not JSON"},
    {"\"flops\": 6e+10", "\"flops\": \"fast\"", "\"flops\" must be a number from 1"},
    {"\"flops\": 6e+10", "\"flops\": 6e10, \"flops\": 6e10", "is not JSON: duplicate"},
    {"\"flops\": 6e+10", "\"flops\": 6e10, \"speed\": 1", "unknown member \"speed\""},
    {"\"flops\": 6e+10", "\"flops\": 6e10, \"a\\nb\": 1", "unknown member \"a\\x0ab\""},
    {"\"memory\": 17179869184", "\"memory\": 0", "\"memory\" must be a whole number of bytes"},
    {"\"memory\": 17179869184", "\"memory\": 1.5", "\"memory\" must be a whole number of bytes"},
    {"\"memory\": 17179869184", "\"memory\": 9223372036854775807", "\"memory\" must be"},
    {"\"memory\": 17179869184", "\"memory\": 9223372036854775808", "is not JSON: too big"},
    {"\"overhead\": 3e-06", "\"overhead\": -1", "\"overhead\" must be a time"},
    {"\"link_net\": 1e+09", "\"link_net\": 0", "\"link_net\" must be a number from 1"},
    {"\"link_net_latency\": 5e-05", "\"link_net_latency\": -1", "\"link_net_latency\" must be"},
    {"\"ranks_per_host\": 4", "\"ranks_per_host\": 0", "must be a whole number from 1 to"},
    {"\"ranks_per_host\": 4", "\"ranks_per_host\": 1.5", "must be a whole number from 1 to"},
    {"\"flops\": 6e+10", "\"flops\": 6e10, \"attention\": 0", "must be a share from 0.01 to 10"},
    {"\"flops\": 6e+10", "\"flops\": 6e10, \"attention\": \"\"", "must be a share from 0.01"},
    {"\"estimate\": true", "\"estimate\": 1", "\"estimate\" must be true or false"},
    {"\"name\": \"cpu\"", "\"name\": \"\"", "\"name\" must be a text"},
    {"\"name\": \"cpu\"", "\"name\": \"a\\u001b[2J\"", "\"name\" must be a text"},
    {"\"devices\": []", "\"devices\": 1", "\"devices\" must be a list"},
    {"\"devices\": []", "\"devices\": [1]", "\"devices\" must be a text"},
    {"\"devices\": []", "\"devices\": [\"\"]", "\"devices\" must be a text"},
    {"\"devices\": []",
     "\"devices\": [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", \"9\"]",
     "at most 8 names"},
    {"\"costs\"", "\"algorithms\": [], \"costs\"", "\"algorithms\" must be an object"},
    {"\"costs\"", "\"algorithms\": {\"12\": \"a\"}, \"costs\"", "expected 16 hex digits"},
    {"\"costs\"", "\"algorithms\": {\"0000000000000001\": 1}, \"costs\"",
     "\"algorithms\" must be a text of 1 to 511 plain characters"},
    {"\"costs\"", "\"algorithms\": {\"0000000000000001\": \"\"}, \"costs\"", "must be a text"},
    {"\"costs\"", "\"algorithms\": {\"0000000000000001\": \"a\\nb\"}, \"costs\"", "must be a text"},
    {"\"costs\": {}", "\"costs\": []", "\"costs\" must be an object"},
    {"\"costs\": {}", "\"costs\": {\"12\": 1}", "expected 16 hex digits"},
    {"\"costs\": {}", "\"costs\": {\"0000000000000001\": -1}", "must be a time"},
    {"\"costs\": {}\n}", "\"costs\": {}\n} {}", "is not JSON"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        const struct mistake *w = &mistakes[i];
        struct machine m;
        char text[8192];
        assert_int_equal(machine_write(&machine_cpu, file), 0);
        char *good = read_text(file), *at = strstr(good, w->find);
        if (!at)
            fail_msg("mistake %d: \"%s\" is not in the file", (int)i, w->find);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, w->by,
                 at + strlen(w->find));
        free(good);
        write_text(text);
        int rc = machine_read(file, &m);
        if (rc != CKPT_EFORMAT || !strstr(error_get(), w->says))
            fail_msg("mistake %d: %d \"%s\", expected \"%s\"", (int)i, rc, error_get(), w->says);
        assert_null(m.costs);
        assert_int_equal(m.algorithms.n, 0);
    }
}

/* The shipped file for a GPU, found by the name that its driver reports. */
static void test_devices(void **state)
{
    static const char *const known[][2] = {{"NVIDIA H200", "h200-141.json"},
                                           {"NVIDIA H100 80GB HBM3", "h100-80.json"},
                                           {"NVIDIA A100-SXM4-40GB", "a100-40.json"},
                                           {"NVIDIA A100-SXM4-80GB", "a100-80.json"},
                                           {"NVIDIA GeForce RTX 3090", "rtx3090.json"},
                                           {"NVIDIA GeForce RTX 4090", "rtx4090.json"},
                                           {"NVIDIA GeForce RTX 5080", "rtx5080.json"},
                                           {"NVIDIA GeForce RTX 5090", "rtx5090.json"},
                                           {"NVIDIA RTX A6000", "a6000.json"},
                                           {"NVIDIA L40S", "l40s.json"},
                                           {"NVIDIA RTX PRO 6000 Blackwell Server Edition",
                                            "pro6000.json"},
                                           {"NVIDIA B200", "b200.json"}};
    static const char *const unknown[] = {
        "", "NVIDIA H20", "NVIDIA H200 NVL", "cpu",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"};
    struct machine m;
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_true(machine_for_device(known[i][0], &m));
        assert_string_equal(m.file, known[i][1]);
        assert_int_equal(m.backend, CKPT_ON_CUDA);
        machine_free(&m);
    }
    m = (struct machine){.name = "untouched"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_false(machine_for_device(unknown[i], &m));
    assert_string_equal(m.name, "untouched");
}

/* Of several user files the first by name is used, before the shipped files; files that are not
 * machine files are skipped, and so is a missing directory. */
static void test_devices_elsewhere(void **state)
{
    char dir[] = "test_machine.tmp-XXXXXX", path[4][64];
    struct machine m = machine_cpu;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("CKPT_MACHINE_DIR", dir, 1), 0);
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%c.json", dir, "abc"[i]);
    snprintf(path[3], sizeof(path[3]), "%s/h200-141.json", dir);
    m.n_devices = 2;
    snprintf(m.devices[0], sizeof(m.devices[0]), "another");
    snprintf(m.devices[1], sizeof(m.devices[1]), "mine \"quoted\"");
    assert_int_equal(machine_write(&m, path[2]), 0);
    assert_int_equal(machine_write(&m, path[1]), 0);
    FILE *f = fopen(path[0], "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_true(machine_for_device("mine \"quoted\"", &m));
    assert_string_equal(m.file, "b.json");
    assert_int_equal(m.n_devices, 2);
    assert_int_equal(machine_write(&m, path[3]), 0);
    machine_free(&m);
    assert_int_equal(machine_read("h200-141", &m), 0);
    assert_string_equal(m.name, "cpu"); /* of one's own, as it was written above */
    machine_free(&m);
    assert_true(machine_for_device("NVIDIA H200", &m));
    assert_string_equal(m.name, "H200 SXM 141 GB");
    machine_free(&m);
    for (int i = 0; i < 4; i++)
        unlink(path[i]);
    rmdir(dir);
    assert_false(machine_for_device("another", &m));
    assert_int_equal(machine_read("h200-141", &m), 0);
    assert_string_equal(m.name, "H200 SXM 141 GB");
    machine_free(&m);
    assert_int_equal(unsetenv("CKPT_MACHINE_DIR"), 0);
}

static void test_missing(void **state)
{
    struct machine m;
    (void)state;
    assert_int_equal(machine_read("no/such/file", &m), CKPT_EIO);
    assert_non_null(strstr(error_get(), "no/such/file: cannot be opened"));
    assert_int_equal(machine_read("h300", &m), CKPT_EIO);
    assert_non_null(strstr(error_get(), "h300: there is none of this name; a100-40, a100-80, "));
    assert_int_equal(machine_read("", &m), CKPT_EIO);
    assert_int_equal(machine_write(&machine_cpu, "no/such/file"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "cannot be written"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),           cmocka_unit_test(test_default),
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_for_rank),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_mistakes),          cmocka_unit_test(test_devices),
        cmocka_unit_test(test_devices_elsewhere), cmocka_unit_test(test_missing),
    };
    int fd = mkstemp(file);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return failed;
}
