/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: command line, environment, help, and the refusal of unknown arguments. */
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/options.h"
#include "memory/tier/tier.h"

struct values {
    bool fast;
    int64_t steps, room;
    double lr;
    const char *data;
};

#define ROW(...)   CKPT_OPTION(struct values, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct values, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("fast", FLAG, fast, NULL, "go fast"),
    ROW("test-steps", INT, steps, "N", "number of steps"),
    ROW("room", SIZE, room, "SIZE", "how much room"),
    ROW("test-lr", FLOAT, lr, "RATE", "learning rate"),
    ROW("test-data", STRING, data, "FILE", "where the data is"),
    {0},
};

#define ARGS 16

/* Arguments in the form of main: a, b, c after the program's name. */
struct arguments {
    int argc;
    char *argv[ARGS];
};

static struct arguments arguments(const char *const *words)
{
    struct arguments a = {.argc = 1, .argv = {(char *)"program"}};

    for (; *words; words++)
        a.argv[a.argc++] = (char *)*words;
    return a;
}

#define WORDS(...) arguments((const char *const[]){__VA_ARGS__, NULL})

static int parse(struct values *v, struct arguments *a)
{
    return ckpt_option_table_parse(table, v, &a->argc, a->argv);
}

static void test_values(void **state)
{
    (void)state;
    struct values v = {.steps = 5};
    struct arguments a = WORDS("--fast", "--test-steps", "-12", "--room=1.5G", "--test-lr", "1e-4",
                               "--test-data=a=b");

    assert_int_equal(parse(&v, &a), 0);
    assert_true(v.fast);
    assert_int_equal(v.steps, -12);
    assert_int_equal(v.room, (int64_t)3 << 29);
    assert_true(v.lr == 1e-4);
    assert_string_equal(v.data, "a=b");
    assert_int_equal(a.argc, 1);
    assert_null(a.argv[1]);
}

static void test_both_spellings(void **state)
{
    (void)state;
    struct values v = {0};
    struct arguments apart = WORDS("--room", "24G"), joined = WORDS("--room=24G");

    assert_int_equal(parse(&v, &apart), 0);
    assert_int_equal(v.room, (int64_t)24 << 30);
    v.room = 0;
    assert_int_equal(parse(&v, &joined), 0);
    assert_int_equal(v.room, (int64_t)24 << 30);
    assert_int_equal(joined.argc, 1);
}

static void test_flags(void **state)
{
    static const struct {
        const char *word;
        bool before, after;
    } cases[] = {
        {"--fast", false, true},     {"--no-fast", true, false},    {"--fast=no", true, false},
        {"--fast=0", true, false},   {"--fast=FALSE", true, false}, {"--fast=1", false, true},
        {"--fast=yes", false, true}, {"--fast=true", false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct values v = {.fast = cases[i].before};
        struct arguments a = WORDS(cases[i].word, "rest");
        assert_int_equal(parse(&v, &a), 0);
        assert_int_equal(v.fast, cases[i].after);
        assert_int_equal(a.argc, 2);
        assert_string_equal(a.argv[1], "rest");
    }
}

struct asked {
    bool help, version;
};

static void test_short_flags(void **state)
{
    (void)state;
    const struct ckpt_option own[] = {
        CKPT_OPTION(struct asked, "help", FLAG, help, NULL, "print this text"),
        CKPT_OPTION(struct asked, "version", FLAG, version, NULL, "print the version"),
        {0},
    };
    struct asked asked = {0};
    struct values v = {0};
    struct arguments a = WORDS("-h"), b = WORDS("-V"), other = WORDS("-h", "-V");

    assert_int_equal(ckpt_option_table_parse(own, &asked, &a.argc, a.argv), 0);
    assert_true(asked.help && !asked.version && a.argc == 1);
    assert_int_equal(ckpt_option_table_parse(own, &asked, &b.argc, b.argv), 0);
    assert_true(asked.version && b.argc == 1);
    assert_int_equal(parse(&v, &other), 0); /* a table without these flags leaves them */
    assert_int_equal(other.argc, 3);
}

static void test_unknown_variables(void **state)
{
    (void)state;
    assert_int_equal(ckpt_environment_check(), 0);
    setenv("CKPT_VRAN", "24G", 1);
    assert_int_equal(ckpt_environment_check(), CKPT_EINVAL);
    assert_string_equal(ckpt_error(NULL), "nothing reads the environment variable CKPT_VRAN; did "
                                          "you mean CKPT_VRAM?");
    unsetenv("CKPT_VRAN");
    setenv("CKPT_SOMETHING_ELSE", "", 1);
    assert_int_equal(ckpt_environment_check(), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(NULL), "CKPT_SOMETHING_ELSE; ckpt(7) lists them"));
    unsetenv("CKPT_SOMETHING_ELSE");
    setenv("CKPT_MICRO_BATCH", "1", 1);
    assert_int_equal(ckpt_environment_check(), 0);
    unsetenv("CKPT_MICRO_BATCH");
}

static void test_last_wins(void **state)
{
    (void)state;
    struct values v = {0};
    struct arguments a = WORDS("--test-steps=1", "--test-steps=2");

    assert_int_equal(parse(&v, &a), 0);
    assert_int_equal(v.steps, 2);
}

static void test_leaves_the_rest(void **state)
{
    (void)state;
    struct values v = {0};
    struct arguments a = WORDS("file", "--other", "--test-steps", "3", "-x", "--room-x=1", "--",
                               "--test-steps", "4");
    static const char *const rest[] = {"program",    "file", "--other",      "-x",
                                       "--room-x=1", "--",   "--test-steps", "4"};

    assert_int_equal(parse(&v, &a), 0);
    assert_int_equal(v.steps, 3);
    assert_int_equal(a.argc, 8);
    for (int i = 0; i < a.argc; i++)
        assert_string_equal(a.argv[i], rest[i]);
    assert_null(a.argv[8]);
}

static void check_refused(struct arguments a, const char *option, const char *expect)
{
    struct values v = {.steps = 5, .room = 6, .lr = 7, .data = "8"};
    int argc = a.argc;

    if (parse(&v, &a) != CKPT_EINVAL)
        fail_msg("taken: %s %s", a.argv[1], a.argv[2] ? a.argv[2] : "");
    if (!strstr(error_get(), option) || !strstr(error_get(), expect))
        fail_msg("%s should name %s and say '%s'", error_get(), option, expect);
    assert_int_equal(v.steps, 5);
    assert_int_equal(v.room, 6);
    assert_true(v.lr == 7);
    assert_string_equal(v.data, "8");
    assert_int_equal(a.argc, argc);
    assert_null(a.argv[argc]);
}

static void test_bad_values(void **state)
{
    (void)state;
    check_refused(WORDS("--test-steps", "12x"), "--test-steps", "'12x' is not a whole number");
    check_refused(WORDS("--test-steps=1.5"), "--test-steps", "'1.5'");
    check_refused(WORDS("--test-steps= 1"), "--test-steps", "' 1'");
    check_refused(WORDS("--test-steps="), "--test-steps", "empty");
    check_refused(WORDS("--test-steps", ""), "--test-steps", "empty");
    check_refused(WORDS("--test-data="), "--test-data", "empty");
    check_refused(WORDS("--test-steps=9223372036854775808"), "--test-steps", "64 bits");
    check_refused(WORDS("--test-steps=-9223372036854775809"), "--test-steps", "64 bits");
    check_refused(WORDS("--test-lr=fast"), "--test-lr", "'fast' is not a number");
    check_refused(WORDS("--test-lr=1e-4x"), "--test-lr", "'1e-4x'");
    check_refused(WORDS("--test-lr=nan"), "--test-lr", "finite");
    check_refused(WORDS("--test-lr=inf"), "--test-lr", "finite");
    check_refused(WORDS("--test-lr=1e999"), "--test-lr", "finite");
    check_refused(WORDS("--room=24X"), "--room", "'24X' is not a size");
    check_refused(WORDS("--room=0%"), "--room", "percentage");
    check_refused(WORDS("--room=24"), "--room", "did you mean 24G?");
    check_refused(WORDS("--fast=maybe"), "--fast", "'maybe'");
    check_refused(WORDS("--no-fast=yes"), "--no-fast", "no value");
}

static void test_missing_value(void **state)
{
    (void)state;
    check_refused(WORDS("--room"), "--room", "needs a value");
    check_refused(WORDS("--test-data", "--fast"), "--test-data", "needs a value");
    check_refused(WORDS("--test-data", "--"), "--test-data", "needs a value");
}

/* The options of the library are read from the environment, those of programs are not. */
static void test_environment(void **state)
{
    (void)state;
    struct values v = {.steps = 1};
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct arguments none = WORDS("x"), one = WORDS("--threads=3");

    setenv("CKPT_TEST_STEPS", "20", 1);
    assert_int_equal(parse(&v, &none), 0);
    assert_int_equal(v.steps, 1);
    unsetenv("CKPT_TEST_STEPS");
    setenv("CKPT_THREADS", "2", 1);
    setenv("CKPT_VERIFY", "true", 1);
    setenv("CKPT_SEED", "", 1);
    assert_int_equal(ckpt_options_parse(&opt, &none.argc, none.argv), 0);
    assert_int_equal(opt.threads, 2);
    assert_int_equal(opt.seed, 42);
    assert_true(opt.verify);
    assert_int_equal(ckpt_options_parse(&opt, &one.argc, one.argv), 0);
    assert_int_equal(opt.threads, 3);
    setenv("CKPT_THREADS", "many", 1);
    assert_int_equal(ckpt_options_parse(&opt, &none.argc, none.argv), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "environment variable CKPT_THREADS: 'many'"));
    setenv("CKPT_THREADS", "-1", 1);
    assert_int_equal(ckpt_options_parse(&opt, &none.argc, none.argv), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "CKPT_THREADS: -1 is out of range"));
    unsetenv("CKPT_THREADS");
    unsetenv("CKPT_VERIFY");
    unsetenv("CKPT_SEED");
}

struct numbers {
    int64_t whole, count, free;
    double real;
};

/* Numbers outside of a row's range, including those that defaults use for "not given". */
static void test_ranges(void **state)
{
    static const struct ckpt_option rows[] = {
        CKPT_OPTION_RANGE(struct numbers, "whole", INT, whole, "N", "whole", 1, 65536),
        CKPT_OPTION(struct numbers, "count", COUNT, count, "N", "count"),
        CKPT_OPTION_RANGE(struct numbers, "real", FLOAT, real, "X", "real", 0, 0.5),
        CKPT_OPTION(struct numbers, "free", INT, free, "N", "free"),
        {0},
    };
    static const char *const bad[] = {
        "--whole=0",  "--whole=-1",    "--whole=4294967312", "--whole=1e3",    "--whole=0x10",
        "--count=-1", "--real=-1e-30", "--real=-1",          "--real=0.50001", "--real=1e308"};
    static const char *const good[] = {"--whole=1", "--whole=65536", "--count=auto", "--count=0",
                                       "--real=0",  "--real=5e-1",   "--free=-7"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct numbers v = {-1, -1, -1, -1};
        struct arguments a = WORDS(bad[i]);
        if (!ckpt_option_table_parse(rows, &v, &a.argc, a.argv))
            fail_msg("taken: %s", bad[i]);
        assert_true(v.whole == -1 && v.count == -1 && v.real == -1);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct numbers v = {0};
        struct arguments a = WORDS(good[i]);
        if (ckpt_option_table_parse(rows, &v, &a.argc, a.argv))
            fail_msg("refused: %s", error_get());
    }
    struct numbers v = {0};
    struct arguments a = WORDS("--whole", "70000");
    assert_int_equal(ckpt_option_table_parse(rows, &v, &a.argc, a.argv), CKPT_EINVAL);
    assert_string_equal(error_get(), "option --whole: 70000 is out of range; give 1 to 65536");
}

static void test_help(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    assert_non_null(f);
    ckpt_option_table_help(table, f);
    fclose(f);
    assert_string_equal(text, "  --fast            go fast\n"
                              "  --test-steps N    number of steps\n"
                              "  --room SIZE       how much room\n"
                              "  --test-lr RATE    learning rate\n"
                              "  --test-data FILE  where the data is\n");
    free(text);
}

/* Titles and other names are no options: not in the help, not found as one. */
static void test_groups(void **state)
{
    static const struct ckpt_option rows[] = {
        CKPT_OPTION_GROUP("Empty"),
        CKPT_OPTION_GROUP("First"),
        ROW("test-steps", INT, steps, "N", "number of steps"),
        CKPT_OPTION_GROUP("Second"),
        ROW("test-data", STRING, data, "FILE", "where the data is"),
        CKPT_OPTION_ALIAS("old-data", "test-data"),
        {0},
    };
    const struct ckpt_option *tables[] = {rows};
    struct values v = {.steps = 1};
    struct arguments a = WORDS("--old-data", "x", "--test-steps=2"), title = WORDS("--First", "x");
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    (void)state;
    assert_non_null(f);
    ckpt_option_table_help(rows, f);
    fclose(f);
    assert_string_equal(text, "\nFirst:\n  --test-steps N    number of steps\n"
                              "\nSecond:\n  --test-data FILE  where the data is\n");
    free(text);
    assert_int_equal(ckpt_option_table_parse(rows, &v, &a.argc, a.argv), 0);
    assert_int_equal(v.steps, 2);
    assert_string_equal(v.data, "x");
    assert_int_equal(ckpt_option_table_parse(rows, &v, &title.argc, title.argv), 0);
    assert_int_equal(ckpt_options_reject(title.argc, title.argv, 1, tables), CKPT_EINVAL);
}

/* On a terminal of 50 columns no line is longer, and further lines begin below the first. */
static void test_wrapped(void **state)
{
    static const struct ckpt_option rows[] = {
        ROW("test-data", STRING, data, "FILE",
            "where the data is, in as many words as it takes to reach the other side"),
        {0},
    };
    struct winsize size = {.ws_row = 24, .ws_col = 50};
    char text[512] = "";
    int control = posix_openpt(O_RDWR | O_NOCTTY);

    (void)state;
    if (control < 0 || grantpt(control) || unlockpt(control) || ioctl(control, TIOCSWINSZ, &size))
        skip();
    FILE *f = fopen(ptsname(control), "w");
    assert_non_null(f);
    ckpt_option_table_help(rows, f);
    fflush(f);
    fprintf(f, ".");
    fflush(f);
    for (size_t n = 0; !strchr(text, '.'); n = strlen(text))
        assert_true(read(control, text + n, sizeof text - 1 - n) > 0);
    fclose(f);
    close(control);
    assert_string_equal(text, "  --test-data FILE  where the data is, in as many\r\n"
                              "                    words as it takes to reach the\r\n"
                              "                    other side\r\n.");
}

static void check_reject(struct arguments a, const char *sentence)
{
    const struct ckpt_option *tables[] = {table, ckpt_options_table()};

    assert_int_equal(ckpt_options_reject(a.argc, a.argv, 2, tables), CKPT_EINVAL);
    assert_string_equal(error_get(), sentence);
}

static void test_reject(void **state)
{
    (void)state;
    struct arguments none = {.argc = 1, .argv = {(char *)"program"}};

    assert_int_equal(ckpt_options_reject(none.argc, none.argv, 0, NULL), 0);
    check_reject(WORDS("file"), "unexpected argument 'file': options begin with --");
    check_reject(WORDS("--"), "unexpected argument '--': options begin with --");
    check_reject(WORDS("--vrma=24G"), "unknown option '--vrma=24G'; did you mean --vram?");
    check_reject(WORDS("-vram"), "unknown option '-vram'; did you mean --vram?");
    check_reject(WORDS("--test-step"), "unknown option '--test-step'; did you mean --test-steps?");
    check_reject(WORDS("--no-fats"), "unknown option '--no-fats'; did you mean --fast?");
    check_reject(WORDS("--no-room"), "unknown option '--no-room'; did you mean --room?");
    check_reject(WORDS("--no-test-lr"), "unknown option '--no-test-lr'; did you mean --test-lr?");
    check_reject(WORDS("--micro_batch"), "unknown option '--micro_batch'; did you mean "
                                         "--micro-batch?");
    check_reject(WORDS("--learning-rate"), "unknown option '--learning-rate'; did you mean "
                                           "--test-lr?");
    check_reject(WORDS("--room-size=3"), "unknown option '--room-size=3'; did you mean --room?");
    check_reject(WORDS("--quite-another-thing"), "unknown option '--quite-another-thing'");
    check_reject(WORDS("-"), "unknown option '-'");
    static const char *const asks[] = {"-h", "--help", "-V", "--version"};
    for (int i = 0; i < 4; i++) {
        struct arguments ask = WORDS(asks[i]);
        assert_int_equal(ckpt_options_reject(ask.argc, ask.argv, 1,
                                             (const struct ckpt_option *[]){ckpt_options_table()}),
                         CKPT_EINVAL);
        assert_memory_equal(error_get(), "libckpt ", 8);
        assert_non_null(strstr(error_get(), ckpt_version()));
        assert_non_null(strstr(error_get(), "; options --vram, --host, "));
        assert_non_null(strstr(error_get(), "--verify"));
    }
    char longest[200] = "--";
    memset(longest + 2, 'a', 150);
    struct arguments a = WORDS(longest);
    assert_int_equal(ckpt_options_reject(a.argc, a.argv, 1, (const struct ckpt_option *[]){table}),
                     CKPT_EINVAL);
}

static void test_library_options(void **state)
{
    (void)state;
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct arguments a = WORDS("--vram=80%", "--host", "64G", "--micro-batch", "4", "--verify",
                               "--plan-only", "--device=cpu", "--seed=7", "--threads=2",
                               "--nvme=/x:1G", "--plan-in=a", "--plan-out=b");

    assert_int_equal(ckpt_options_parse(&opt, &a.argc, a.argv), 0);
    assert_int_equal(a.argc, 1);
    assert_int_equal(opt.vram, -80);
    assert_int_equal(opt.host, (int64_t)64 << 30);
    assert_int_equal(opt.micro_batch, 4);
    assert_int_equal(opt.seed, 7);
    assert_int_equal(opt.threads, 2);
    assert_true(opt.verify && opt.plan_only);
    assert_string_equal(opt.device, "cpu");
    assert_string_equal(opt.nvme, "/x:1G");
    assert_string_equal(opt.plan_in, "a");
    assert_string_equal(opt.plan_out, "b");
}

static void test_budget(void **state)
{
    (void)state;
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct arguments is_auto = WORDS("--vram", "auto"), none = WORDS("--vram=None"),
                     host = WORDS("--host=auto"), large = WORDS("--vram=99999999999999G");

    assert_int_equal(ckpt_options_parse(&opt, &is_auto.argc, is_auto.argv), 0);
    assert_true(opt.vram == CKPT_VRAM_AUTO);
    assert_int_equal(ckpt_options_parse(&opt, &none.argc, none.argv), 0);
    assert_true(opt.vram == CKPT_VRAM_NONE);
    assert_int_equal(ckpt_options_parse(&opt, &host.argc, host.argv), CKPT_EINVAL);
    assert_int_equal(ckpt_options_parse(&opt, &large.argc, large.argv), CKPT_EINVAL);
    assert_string_equal(ckpt_error(NULL), "option --vram: the size '99999999999999G' is too large; "
                                          "or give auto or none");
}

static void test_nvme(void **state)
{
    (void)state;
    struct tier_directories d;
    const int64_t gib = (int64_t)1 << 30, mib = 1 << 20;

    assert_int_equal(tier_read_directories(&d, "2G"), 0);
    assert_int_equal(d.n, 1);
    assert_string_equal(d.at[0].path, "");
    assert_int_equal(d.bytes, 2 * gib);
    assert_int_equal(tier_read_directories(&d, "/a:b:4099"), 0);
    assert_string_equal(d.at[0].path, "/a:b");
    assert_int_equal(d.bytes, 4096);
    assert_int_equal(tier_read_directories(&d, "/a:1G,b/c:2.5G,/d:1048577"), 0);
    assert_int_equal(d.n, 3);
    assert_string_equal(d.at[0].path, "/a");
    assert_string_equal(d.at[1].path, "b/c");
    assert_string_equal(d.at[2].path, "/d");
    assert_int_equal(d.at[1].bytes, 5 * gib / 2);
    assert_int_equal(d.at[2].bytes, mib);
    assert_int_equal(d.bytes, 7 * gib / 2 + mib);
}

static void test_bad_nvme(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"/a:much", "'much' is not a size"}, {"/a:50%", "give it in bytes"},
        {"/a", "'/a' names no size"},        {":1G", "does not name a directory"},
        {"/a:1G,", "a size is missing"},     {"/a:1G,2G", "each needs its directory"},
        {",/a:1G", "a size is missing"},     {"/a:8388607T,/b:8388607T", "too large"},
        {"/a:1G,/b:", "a size is missing"},
    };
    struct tier_directories d;
    char many[512] = "/a:1G", longest[2048] = "";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tier_read_directories(&d, cases[i].text), CKPT_EINVAL);
        if (!strstr(error_get(), cases[i].says))
            fail_msg("'%s' does not say '%s'", error_get(), cases[i].says);
    }
    for (int i = 1; i < TIER_DIRECTORIES; i++)
        strcat(many, ",/a:1G");
    assert_int_equal(tier_read_directories(&d, many), 0);
    assert_int_equal(tier_read_directories(&d, strcat(many, ",/a:1G")), CKPT_EINVAL);
    memset(longest, 'a', TIER_PATH - 1);
    strcat(longest, ":1G");
    assert_int_equal(tier_read_directories(&d, longest), 0);
    assert_int_equal(strlen(d.at[0].path), TIER_PATH - 1);
    memset(longest, 'a', TIER_PATH);
    strcpy(longest + TIER_PATH, ":1G");
    assert_int_equal(tier_read_directories(&d, longest), CKPT_EINVAL);
    memset(longest, 'a', sizeof longest - 1);
    assert_int_equal(tier_read_directories(&d, longest), CKPT_EINVAL);
}

/* A program built against a header whose struct ended before plan_only. */
static void test_shorter_struct(void **state)
{
    (void)state;
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct arguments a = WORDS("--seed=7", "--plan-only");

    opt.size = offsetof(struct ckpt_options, plan_only);
    assert_int_equal(ckpt_options_parse(&opt, &a.argc, a.argv), 0);
    assert_int_equal(opt.seed, 7);
    assert_false(opt.plan_only);
    assert_string_equal(a.argv[1], "--plan-only");
    opt.size = 0;
    assert_int_equal(ckpt_options_parse(&opt, &a.argc, a.argv), CKPT_EINVAL);
}

/* Each is accepted alone; --deterministic asks for what --unordered gives up. */
static void test_unordered(void **state)
{
    (void)state;
    struct arguments a = WORDS("--deterministic"), b = WORDS("--deterministic", "--unordered");
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    ckpt *c;

    opt.device = "cpu";
    assert_int_equal(ckpt_options_parse(&opt, &a.argc, a.argv), 0);
    assert_true(opt.deterministic && !opt.unordered);
    assert_int_equal(ckpt_open(&c, &opt), 0);
    ckpt_close(c);
    assert_int_equal(ckpt_options_parse(&opt, &b.argc, b.argv), 0);
    assert_int_equal(ckpt_open(&c, &opt), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(NULL), "--deterministic and --unordered exclude each other"));
    opt.deterministic = false;
    assert_int_equal(ckpt_open(&c, &opt), 0);
    ckpt_close(c);
}

static void test_error_names(void **state)
{
    (void)state;
    assert_string_equal(ckpt_error_name(0), "CKPT_OK");
    assert_string_equal(ckpt_error_name(CKPT_EBUDGET), "CKPT_EBUDGET");
    assert_string_equal(ckpt_error_name(CKPT_ENAN), "CKPT_ENAN");
    assert_string_equal(ckpt_error_name(CKPT_ENAME), "CKPT_ENAME");
    assert_string_equal(ckpt_error_name(-99), "unknown error code");
    assert_string_equal(ckpt_error_name(1), "unknown error code");
}

/* A sentence may be wrapped in another, and control characters of a file never reach a terminal. */
static void test_error_text(void **state)
{
    (void)state;
    assert_int_equal(error_set(CKPT_EIO, "inner \033[31m %d", 3), CKPT_EIO);
    assert_string_equal(error_get(), "inner \\x1b[31m 3");
    assert_int_equal(error_set(CKPT_EINVAL, "outer: %s", error_get()), CKPT_EINVAL);
    assert_string_equal(error_get(), "outer: inner \\x1b[31m 3");
}

/* Every text of the library's options, those added later too, outlives the caller's. */
static void test_own_texts(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    char *block, given[64][32];
    int n = 0;

    for (const struct ckpt_option *row = ckpt_options_table(); row->name; row++)
        if (row->type == CKPT_OPT_STRING && n < 64) {
            snprintf(given[n], sizeof *given, "text of %d", n);
            *(const char **)((char *)&o + row->offset) = given[n++];
        }
    assert_true(n > 10);
    o.ranks = NULL;
    assert_int_equal(options_own_texts(&o, &block), 0);
    memset(given, 'Z', sizeof given);
    n = 0;
    for (const struct ckpt_option *row = ckpt_options_table(); row->name; row++) {
        char text[32];
        if (row->type != CKPT_OPT_STRING)
            continue;
        snprintf(text, sizeof text, "text of %d", n++);
        const char *copy = *(const char **)((char *)&o + row->offset);
        if (!strcmp(row->name, "ranks"))
            assert_null(copy);
        else
            assert_string_equal(copy, text);
    }
    free(block);
    assert_int_equal(options_own_texts(&(struct ckpt_options){0}, &block), 0);
    assert_null(block);
}

static void test_open_copies(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    char device[] = "cpu", plan[] = "own.plan";
    ckpt *c;

    o.device = device, o.plan_out = plan, o.threads = 1;
    assert_int_equal(ckpt_open(&c, &o), 0);
    memset(device, 'Z', sizeof device - 1);
    memset(plan, 'Z', sizeof plan - 1);
    assert_int_equal(ckpt_unwritten(c), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "own.plan"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),          cmocka_unit_test(test_both_spellings),
        cmocka_unit_test(test_flags),           cmocka_unit_test(test_last_wins),
        cmocka_unit_test(test_leaves_the_rest), cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_missing_value),   cmocka_unit_test(test_environment),
        cmocka_unit_test(test_short_flags),     cmocka_unit_test(test_unknown_variables),
        cmocka_unit_test(test_ranges),          cmocka_unit_test(test_help),
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_reject),          cmocka_unit_test(test_library_options),
        cmocka_unit_test(test_budget),          cmocka_unit_test(test_nvme),
        cmocka_unit_test(test_bad_nvme),        cmocka_unit_test(test_shorter_struct),
        cmocka_unit_test(test_own_texts),       cmocka_unit_test(test_open_copies),
        cmocka_unit_test(test_error_names),     cmocka_unit_test(test_error_text),
        cmocka_unit_test(test_unordered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
