/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a run: temporary files of a killed process, devices and FIFOs, the check before the
 * run, inputs that are not regular files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/file.h"

static char home[PATH_MAX];

static int enter(void **state)
{
    char dir[] = "/tmp/ckpt-paths-XXXXXX";

    (void)state;
    return !getcwd(home, sizeof home) || !mkdtemp(dir) || chdir(dir);
}

static int leave(void **state)
{
    char command[PATH_MAX + 16], here[PATH_MAX];

    (void)state;
    if (!getcwd(here, sizeof here) || chdir(home))
        return 1;
    snprintf(command, sizeof command, "rm -rf %s", here);
    return system(command);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(const char *path, const char *text)
{
    char found[64] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    found[fread(found, 1, sizeof found - 1, f)] = 0;
    fclose(f);
    assert_string_equal(found, text);
}

static bool there(const char *path)
{
    return !access(path, F_OK);
}

static int write_new(const char *path, const char *text)
{
    struct ckpt_replacement *r;
    int rc = ckpt_replace_open(&r, path);

    if (rc)
        return rc;
    fputs(text, ckpt_replace_stream(r));
    return ckpt_replace_commit(r, true);
}

static void test_replace(void **state)
{
    struct ckpt_replacement *r;

    (void)state;
    put("x", "old");
    assert_int_equal(ckpt_replace_open(&r, "x"), 0);
    assert_true(there(ckpt_replace_name(r)) && strstr(ckpt_replace_name(r), "x.tmp-"));
    fputs("half", ckpt_replace_stream(r));
    expect("x", "old");
    ckpt_replace_abandon(r);
    expect("x", "old");
    assert_int_equal(write_new("x", "new"), 0);
    expect("x", "new");
    assert_int_equal(ckpt_replace_open(&r, "x"), 0);
    assert_int_equal(unlink("x"), 0);
    assert_int_equal(mkdir("x", 0700), 0);
    assert_int_equal(ckpt_replace_commit(r, false), CKPT_EIO);
    assert_non_null(strstr(error_get(), "cannot rename"));
    assert_int_equal(rmdir("x"), 0);
    ckpt_replace_abandon(NULL);
    put("target", "kept");
    assert_int_equal(symlink("target", "x"), 0);
    assert_int_equal(write_new("x", "new"), 0);
    expect("target", "kept");
    expect("x", "new");
    unlink("target");
}

/* A process that has ended holds no lock; one that writes does, and keeps its file. */
static void test_sweep(void **state)
{
    struct ckpt_replacement *r;

    (void)state;
    put("x.tmp-4194000-0", "left");
    put("x.tmp-4194000-0.keep", "another name");
    put("xx.tmp-1-0", "of another file");
    put("x.tmp-text", "not ours");
    assert_int_equal(symlink("xx.tmp-1-0", "x.tmp-2-0"), 0);
    put("x.tmp-3-0", "held");
    int held = open("x.tmp-3-0", O_WRONLY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(ckpt_replace_open(&r, "x"), 0);
    assert_false(there("x.tmp-4194000-0"));
    assert_true(there("x.tmp-3-0") && there("x.tmp-text") && there("x.tmp-4194000-0.keep") &&
                there("xx.tmp-1-0"));
    file_sweep("x"); /* another writer of x leaves the file of this one */
    assert_true(there(ckpt_replace_name(r)));
    assert_int_equal(ckpt_replace_commit(r, true), 0);
    close(held);
    unlink("x");
}

/* Existing files that are not regular are written to, not replaced. */
static void test_special(void **state)
{
    struct stat st;
    char text[8] = "";
    FILE *f;

    (void)state;
    assert_int_equal(write_new("/dev/null", "x"), 0);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(write_new("/dev/full", "x"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "No space left"));
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(write_new("pipe", "x"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "a FIFO that nobody reads"));
    assert_int_equal(ckpt_log_open(&f, "pipe"), CKPT_EIO);
    int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    assert_int_equal(write_new("pipe", "abc"), 0);
    assert_int_equal(read(reader, text, 3), 3);
    assert_string_equal(text, "abc");
    assert_int_equal(stat("pipe", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(reader);
    unlink("pipe");
}

/* /dev/fd/N continues at the position of the descriptor, and replaces nothing. */
static void test_descriptor(void **state)
{
    char name[32];
    int fd = open("out", O_RDWR | O_CREAT, 0600);

    (void)state;
    assert_int_equal(write(fd, "one ", 4), 4);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(write_new(name, "two"), 0);
    expect("out", "one two");
    assert_int_equal(write_new("/dev/fd/9999", "x"), CKPT_EIO);
    close(fd);
    fd = open("out", O_RDONLY);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(write_new(name, "three"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "reading alone"));
    expect("out", "one two");
    close(fd);
    unlink("out");
}

static void test_inputs(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "socket"};
    static const struct {
        const char *path, *says;
    } cases[] = {
        {"pipe", "it is a FIFO"},     {"/dev/zero", "it is a device"}, {".", "it is a directory"},
        {"socket", "it is a socket"}, {"nothing", "No such file"},
    };
    FILE *f;

    (void)state;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ckpt_input_open(&f, cases[i].path), CKPT_EIO);
        if (!strstr(error_get(), cases[i].says))
            fail_msg("'%s' does not say '%s'", error_get(), cases[i].says);
    }
    put("file", "x");
    assert_int_equal(ckpt_input_open(&f, "file"), 0);
    fclose(f);
    close(s);
    unlink("file");
    unlink("pipe");
    unlink("socket");
}

/* ---- the check before the run --------------------------------------------------------------- */

#define OUT(path)                                                                                  \
    {                                                                                              \
        "--save", path, CKPT_PATH_FILE, 7                                                          \
    }
#define LOG(path)                                                                                  \
    {                                                                                              \
        "--log", path, CKPT_PATH_LOG, 0                                                            \
    }
#define DIR_(path)                                                                                 \
    {                                                                                              \
        "--out", path, CKPT_PATH_DIRECTORY, 0                                                      \
    }
#define IN(path)                                                                                   \
    {                                                                                              \
        "--load", path, CKPT_PATH_INPUT, 7                                                         \
    }

static void refused(const char *says, struct ckpt_path a, struct ckpt_path b)
{
    struct ckpt_path both[] = {a, b};

    if (!ckpt_paths_check(NULL, both, 2))
        fail_msg("taken: %s, %s", a.path, b.path ? b.path : "nothing");
    if (!strstr(error_get(), says) || !strstr(error_get(), a.option))
        fail_msg("'%s' does not say '%s' of %s", error_get(), says, a.option);
}

static void taken(struct ckpt_path a, struct ckpt_path b)
{
    struct ckpt_path both[] = {a, b};

    if (ckpt_paths_check(NULL, both, 2))
        fail_msg("refused: %s", error_get());
}

#define ONE(...) ((struct ckpt_path)__VA_ARGS__)
#define NOTHING  ONE({NULL, NULL, CKPT_PATH_INPUT, 0})

static void test_check_each(void **state)
{
    struct ckpt_path before_refusal[] = {DIR_("made"), OUT("dir")};
    char name[NAME_MAX + 2];

    (void)state;
    memset(name, 'n', sizeof name);
    name[NAME_MAX - 5] = 0; /* fits itself, not with the end of a temporary file */
    assert_int_equal(mkdir("dir", 0700), 0);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    put("file", "x");
    refused("is a directory", ONE(OUT("dir")), NOTHING);
    refused("is a directory", ONE(LOG("dir")), NOTHING);
    refused("name of a directory", ONE(OUT("dir/")), NOTHING);
    refused("name of a directory", ONE(OUT("")), NOTHING);
    refused("No such file", ONE(OUT("none/x")), NOTHING);
    refused("No such file", ONE(LOG("none/x")), NOTHING);
    refused("Not a directory", ONE(OUT("file/x")), NOTHING);
    refused("too long", ONE(OUT(name)), NOTHING);
    refused("nobody reads", ONE(OUT("pipe")), NOTHING);
    refused("nobody reads", ONE(LOG("pipe")), NOTHING);
    refused("a regular file, not a directory", ONE(DIR_("file")), NOTHING);
    refused("No such file", ONE(DIR_("none/dir")), NOTHING);
    taken(ONE(LOG(name)), NOTHING);
    taken(ONE(OUT("new")), ONE(LOG("log")));
    taken(ONE(OUT("file")), ONE(DIR_("made")));
    taken(ONE(OUT("/dev/null")), ONE(LOG("/dev/null")));
    taken(ONE(DIR_("made")), ONE(DIR_("made/inside")));
    assert_int_not_equal(ckpt_paths_check(NULL, before_refusal, 2), 0);
    assert_true(!there("made") && !there("new") && !there("log") && !there(name));
    taken(ONE(DIR_("dir")), NOTHING);
    assert_true(there("dir"));
    expect("file", "x");
}

/* Names, links and relative paths that lead to one file. */
static void test_check_pairs(void **state)
{
    (void)state;
    assert_int_equal(link("file", "hard"), 0);
    assert_int_equal(symlink("file", "soft"), 0);
    refused("same file", ONE(OUT("new")), ONE(LOG("new")));
    refused("same file", ONE(OUT("new")), ONE(LOG("dir/../new")));
    refused("same file", ONE(OUT("hard")), ONE(LOG("file")));
    refused("same file", ONE(OUT("soft")), ONE(LOG("file")));
    refused("is read", ONE(LOG("file")), ONE(IN("hard")));
    refused("same file", ONE(OUT("new")), ONE(DIR_("new")));
    taken(ONE(OUT("file")), ONE(IN("file"))); /* of one family */
    taken(ONE(OUT("new")), ONE(OUT("dir/new")));
    assert_false(there("new"));
}

static void test_check_library(void **state)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_path plan = OUT("plan");

    (void)state;
    o.plan_out = "plan";
    assert_int_equal(ckpt_paths_check(&o, &plan, 1), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "--plan-out plan: is the same file as --save plan"));
    o.graph_out = "plan";
    ckpt *c;
    assert_int_equal(ckpt_open(&c, &o), CKPT_EINVAL);
    o.graph_out = NULL;
    o.plan_in = o.plan_out = "file"; /* a plan that is read first may be replaced */
    o.size = offsetof(struct ckpt_options, graph_out);
    o.graph_out = "no/such/place";
    assert_int_equal(ckpt_paths_check(&o, NULL, 0), 0);
}

/* A FIFO that was checked is still open for its reader when the run writes to it. */
static void test_check_keeps_reader(void **state)
{
    char text[4] = "";
    int reader = open("pipe", O_RDONLY | O_NONBLOCK);

    (void)state;
    fcntl(reader, F_SETFL, 0);
    taken(ONE(OUT("pipe")), NOTHING);
    fcntl(reader, F_SETFL, O_NONBLOCK);
    assert_int_equal(read(reader, text, 1), -1); /* nothing yet; 0 would be the end */
    assert_int_equal(write_new("pipe", "abc"), 0);
    assert_int_equal(read(reader, text, 3), 3);
    close(reader);
}

static void test_read_only(void **state)
{
    (void)state;
    if (geteuid() == 0)
        skip(); /* permissions do not bind root */
    chmod("dir", 0500);
    put("keep", "x");
    chmod("keep", 0400);
    refused("Permission denied", ONE(OUT("dir/x")), NOTHING);
    refused("Permission denied", ONE(OUT("keep")), NOTHING);
    refused("Permission denied", ONE(DIR_("dir")), NOTHING);
    chmod("dir", 0700);
}

static void test_wrong_calls(void **state)
{
    const struct ckpt_path nameless = {NULL, "x", CKPT_PATH_FILE, 0};
    const struct ckpt_path kindless = {"--x", "x", (enum ckpt_path_kind)9, 0};
    struct ckpt_replacement *r;
    FILE *f;

    (void)state;
    assert_int_equal(ckpt_paths_check(NULL, &nameless, 1), CKPT_EINVAL);
    assert_int_equal(ckpt_paths_check(NULL, &kindless, 1), CKPT_EINVAL);
    assert_int_equal(ckpt_paths_check(NULL, NULL, 1), CKPT_EINVAL);
    assert_int_equal(ckpt_paths_check(NULL, &nameless, -1), CKPT_EINVAL);
    assert_int_equal(ckpt_paths_check(NULL, NULL, 0), 0);
    assert_int_equal(ckpt_replace_open(&r, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_replace_open(NULL, "x"), CKPT_EINVAL);
    assert_int_equal(ckpt_input_open(&f, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_log_open(&f, NULL), CKPT_EINVAL);
}

static void test_escape(void **state)
{
    char text[32];

    (void)state;
    assert_string_equal(ckpt_escape(text, sizeof text, "a\033[2J\nb\t\x7f"), "a\\x1b[2J\nb\t\\x7f");
    assert_string_equal(ckpt_escape(text, sizeof text, "\xc2\x9b!\xc3\xa9"), "\\xc2\\x9b!\xc3\xa9");
    assert_string_equal(ckpt_escape(text, 6, "ab\033c"), "ab");
    assert_string_equal(ckpt_escape(text, 1, "ab"), "");
    assert_string_equal(text_shown("a\nb", text, sizeof text), "a\\x0ab");
    assert_string_equal(text_shown("a\n  b", text, sizeof text), "a\\x0a  b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_check_each),
        cmocka_unit_test(test_check_pairs),
        cmocka_unit_test(test_check_library),
        cmocka_unit_test(test_check_keeps_reader),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_escape),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, enter, leave) ? 1 : 0;
}
