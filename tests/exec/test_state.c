/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of training: a state saved under one budget continues under another with the same bits;
 * each program of a context continues with its own random numbers; a failed save leaves the file it
 * would have replaced; and a file that does not fit, or has a flipped bit, is refused.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "plan/one_search.h"
#include "state/state_counts.h"
#include "small.h"
#include "unit/test_directory.h"

enum { WIDTH = 24, FIRST = 3 };

static void save(ckpt *c)
{
    if (ckpt_save_state(c, path))
        fail_msg("%s", ckpt_error(c));
}

/* Runs the first steps of r and saves. */
static void save_first(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, FIRST);
    save(c);
    ckpt_close(c);
}

/* Runs the rest, from the file. */
static void go_on(struct small *r)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    if (ckpt_load_state(c, path))
        fail_msg("%s", ckpt_error(c));
    ckpt_program_info(p, &info);
    assert_int_equal(info.steps, FIRST);
    assert_int_equal(ckpt_updates(c), FIRST);
    small_train(r, c, p, FIRST, SMALL_STEPS);
    small_collect(r, c);
    ckpt_close(c);
}

static void expect_same(const struct small *a, const struct small *b, const char *what)
{
    if (memcmp(a->loss, b->loss, sizeof a->loss) || a->norm != b->norm || a->numel != b->numel ||
        memcmp(a->state, b->state, (size_t)a->numel * sizeof *a->state))
        fail_msg("%s: another loss, norm or value; last loss %g and %g", what,
                 (double)a->loss[SMALL_STEPS - 1], (double)b->loss[SMALL_STEPS - 1]);
}

/* ---- other budgets -------------------------------------------------------------------------- */

/* Saves without a budget, with recomputation, and with everything possible offloaded to the host
 * and to NVMe; resumes each in all three. */
static void test_budgets(void **state)
{
    (void)state;
    struct small kind[3] = {small_make(CKPT_BF16, WIDTH, 3, true)}, whole = kind[0];
    struct force f = {.seed = 5, .host = true, .nvme = true, .all = true};
    struct force_count count;
    struct budgets tiers;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    char plan[64], nvme[64];
    ckpt *c;
    ckpt_program *p;
    kind[1] = kind[2] = kind[0];
    small_open(&whole, &c, &p);
    ckpt_program_info(p, &info);
    small_train(&whole, c, p, 0, SMALL_STEPS);
    small_collect(&whole, c);
    ckpt_close(c);
    kind[1].options.vram = info.min_budget;
    small_path(plan, sizeof plan, "plan");
    small_force(&kind[0], &f, plan, &tiers, &count);
    small_use_tiers(&kind[2], plan, &tiers, nvme);
    for (int from = 0; from < 3; from++) {
        save_first(&kind[from]);
        for (int to = 0; to < 3; to++) {
            struct small rest = kind[to];
            memcpy(rest.loss, whole.loss, FIRST * sizeof *rest.loss);
            go_on(&rest);
            expect_same(&whole, &rest, "another budget");
            free(rest.state);
        }
    }
    free(whole.state);
    unlink(plan);
}

/* ---- several programs ----------------------------------------------------------------------- */

/* Two programs on the same parameters, in turns of 1 and 2 steps: apart from the updates each has
 * its own step count, which determines its noise. */
struct pair {
    ckpt *c;
    ckpt_program *p[2];
};

static void open_pair(struct small *r, struct pair *pair)
{
    small_open(r, &pair->c, &pair->p[0]);
    if (ckpt_compile(pair->c, small_record, r, ckpt_adamw(pair->c, &r->adamw), SMALL_BATCH,
                     &pair->p[1]))
        fail_msg("%s", ckpt_error(pair->c));
}

static void train_pair(struct small *r, struct pair *pair, int from, int to)
{
    for (int s = from; s < to; s++) {
        ckpt_program *p = pair->p[s % 3 > 0];
        small_feed(p, r, s);
        if (ckpt_step(p, &r->loss[s]))
            fail_msg("%s", ckpt_error(pair->c));
        r->norm = p->grad_norm;
    }
}

static void test_two_programs(void **state)
{
    (void)state;
    struct small whole = small_make(CKPT_F32, WIDTH, 1, false), parts = whole;
    struct pair pair;
    open_pair(&whole, &pair);
    train_pair(&whole, &pair, 0, SMALL_STEPS);
    small_collect(&whole, pair.c);
    ckpt_close(pair.c);
    open_pair(&parts, &pair);
    train_pair(&parts, &pair, 0, 4);
    save(pair.c);
    ckpt_close(pair.c);
    open_pair(&parts, &pair);
    assert_int_equal(ckpt_load_state(pair.c, path), 0);
    assert_int_equal(ckpt_updates(pair.c), 4);
    train_pair(&parts, &pair, 4, SMALL_STEPS);
    small_collect(&parts, pair.c);
    expect_same(&whole, &parts, "two programs");
    ckpt_close(pair.c);
    free(whole.state);
    free(parts.state);
}

/* ---- programs that do not train ---------------------------------------------------------------
 */

enum { DRAWN = 8 };

static ckpt_tensor record_drawn(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_output(t, "drawn", ckpt_randn(t, CKPT_F32, 2, (int64_t[]){batch, DRAWN}));
    return CKPT_NONE;
}

static void draw(ckpt *c, ckpt_program *p, float *x)
{
    if (ckpt_step(p, NULL) || ckpt_fetch(p, "drawn", x, DRAWN * sizeof *x))
        fail_msg("%s", ckpt_error(c));
}

/* Their random numbers are determined by the step number that is set. */
static void test_random_step(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, WIDTH, 1, true);
    float x[5][DRAWN];
    ckpt *c;
    ckpt_program *trains, *p;
    small_open(&r, &c, &trains);
    if (ckpt_compile(c, record_drawn, NULL, NULL, 1, &p))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < 5; i++) {
        if (i == 3)
            assert_int_equal(ckpt_set_random_step(p, 1), 0);
        draw(c, p, x[i]);
    }
    assert_memory_equal(x[3], x[1], sizeof x[1]);
    assert_memory_equal(x[4], x[2], sizeof x[2]);
    assert_true(memcmp(x[1], x[2], sizeof x[1]) && memcmp(x[1], x[0], sizeof x[1]));
    assert_int_equal(ckpt_set_random_step(p, (INT64_C(1) << 52) - 1), 0);
    draw(c, p, x[3]);
    assert_int_equal(ckpt_set_random_step(p, -1), CKPT_EINVAL);
    assert_int_equal(ckpt_set_random_step(p, INT64_C(1) << 52), CKPT_EINVAL);
    assert_int_equal(ckpt_set_random_step(trains, 0), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "trains"));
    ckpt_close(c);
    assert_int_equal(ckpt_open(&c, &r.options), 0);
    if (ckpt_compile(c, record_drawn, NULL, NULL, 1, &p))
        fail_msg("%s", ckpt_error(c));
    c->ranks.rank = 1; /* whose own numbers are others, until it is told a step */
    draw(c, p, x[3]);
    assert_true(memcmp(x[3], x[0], sizeof x[0]));
    assert_int_equal(ckpt_set_random_step(p, 1), 0);
    draw(c, p, x[3]);
    assert_memory_equal(x[3], x[1], sizeof x[1]);
    ckpt_close(c);
}

/* Loading a state discards later training. */
static void test_back(void **state)
{
    (void)state;
    struct small whole = small_make(CKPT_F32, WIDTH, 1, true), again = whole;
    ckpt *c;
    ckpt_program *p;
    small_open(&whole, &c, &p);
    small_train(&whole, c, p, 0, FIRST);
    save(c);
    small_train(&whole, c, p, FIRST, SMALL_STEPS);
    small_collect(&whole, c);
    again = whole;
    assert_int_equal(ckpt_load_state(c, path), 0);
    small_train(&again, c, p, FIRST, SMALL_STEPS);
    small_collect(&again, c);
    expect_same(&whole, &again, "back");
    ckpt_close(c);
    free(whole.state);
    free(again.state);
}

/* ---- saves that fail ------------------------------------------------------------------------ */

static void limit_files(rlim_t bytes)
{
    struct rlimit l;
    getrlimit(RLIMIT_FSIZE, &l);
    l.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static void test_failed_save(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, WIDTH, 1, true), rest = r;
    ckpt *c;
    ckpt_program *p;
    save_first(&r);
    small_open(&rest, &c, &p);
    assert_int_equal(ckpt_load_state(c, path), 0);
    small_train(&rest, c, p, FIRST, SMALL_STEPS);
    small_collect(&rest, c);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(20000); /* in the middle of the values */
    assert_int_equal(ckpt_save_state(c, path), CKPT_EIO);
    limit_files(RLIM_INFINITY);
    signal(SIGXFSZ, SIG_DFL);
    assert_non_null(strstr(ckpt_error(c), path));
    assert_int_equal(names_in_dir(), 1);
    small_feed(p, &r, 0);
    assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_save_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "under way"));
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    ckpt_close(c);
    go_on(&r); /* from what was saved before */
    memcpy(rest.loss, r.loss, FIRST * sizeof *rest.loss);
    expect_same(&rest, &r, "after a save that failed");
    free(r.state);
    free(rest.state);
}

/* ---- files that do not fit ------------------------------------------------------------------ */

/* Checks that the file is refused with all the words, and that the context keeps its values. */
static void refuse(struct small r, const char *file, int code, const char *const *words)
{
    struct small before = r;
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    small_collect(&r, c);
    assert_int_equal(ckpt_load_state(c, file), code);
    for (; *words; words++)
        if (!strstr(ckpt_error(c), *words))
            fail_msg("\"%s\" lacks \"%s\"", ckpt_error(c), *words);
    assert_int_equal(ckpt_updates(c), 0);
    before = r;
    small_collect(&before, c);
    assert_memory_equal(before.state, r.state, (size_t)r.numel * sizeof *r.state);
    ckpt_close(c);
    free(r.state);
    free(before.state);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Collects "name was is; " of each difference; whether all are allowed. */
struct asked {
    char text[1000];
    bool allow;
};

static bool ask(void *user, const char *name, const char *was, const char *is)
{
    struct asked *a = user;
    size_t n = strlen(a->text);
    snprintf(a->text + n, sizeof a->text - n, "%s %s %s; ", name, was ? was : "-", is ? is : "-");
    return a->allow;
}

static void test_other_runs(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, WIDTH, 1, true), other = r;
    save_first(&r);
    other.options.seed = 7;
    refuse(other, path, CKPT_EINVAL, WORDS(path, "--seed 42", "7"));
    other = r;
    other.width = WIDTH + 8;
    refuse(other, path, CKPT_EINVAL, WORDS(path, "ckpt.inputs of program 1", "24]", "32]"));
    other = r;
    other.adamw.ema_decay = 0;
    ckpt *c;
    ckpt_program *p;
    small_open(&other, &c, &p);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "ckpt.ema-decay 0.9"));
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &(struct asked){.allow = true}),
                     CKPT_ENAME);
    assert_non_null(strstr(ckpt_error(c), "has 'ema/"));
    assert_int_equal(ckpt_save_state(c, path), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_in_range(st.st_size, ckpt_state_bytes(c), ckpt_state_bytes(c) + 16384);
    ckpt_close(c);
    refuse(r, path, CKPT_EINVAL, WORDS(path, "ckpt.ema-decay 0, this run has 0.9"));
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &(struct asked){.allow = true}),
                     CKPT_ENAME);
    assert_non_null(strstr(ckpt_error(c), "lacks 'ema/in.weight'"));
    ckpt_close(c);
    refuse(r, "nothing-here", CKPT_EIO, WORDS("nothing-here"));
    assert_int_equal(ckpt_open(&c, &r.options), 0);
    assert_int_equal(ckpt_save_state(c, path), CKPT_EINVAL);
    assert_int_equal(ckpt_state_bytes(c), CKPT_EINVAL);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "compile"));
    ckpt_close(c);
    struct pair pair;
    save_first(&r);
    open_pair(&r, &pair);
    assert_int_equal(ckpt_load_state(pair.c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(pair.c), "has 1 trained program"));
    ckpt_close(pair.c);
}

/* Number of bytes before the data of the file. */
static int64_t header_size(const char *bytes)
{
    uint64_t n;
    memcpy(&n, bytes, sizeof n);
    return 8 + (int64_t)n;
}

/* Replaces `from` by `to`, of the same length, in the file's header, and updates its checksum. */
static void tamper(const char *from, const char *to)
{
    static char bytes[1 << 20];
    size_t n = read_bytes(bytes, sizeof bytes), length = strlen(from);
    assert_int_equal(length, strlen(to));
    char *at = memmem(bytes, n, from, length);
    if (!at)
        fail_msg("no '%s' in the file", from);
    memcpy(at, to, length);
    file_seal_header(bytes, header_size(bytes));
    write_bytes(bytes, n);
}

static void test_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int code;
        const char *word;
    } cases[] = {
        {"\"ckpt.state\":\"1\"", "\"ckpt.state\":\"2\"", CKPT_EFORMAT, "version 2"},
        {"ckpt.state", "other.note", CKPT_EFORMAT, "not a state"},
        {"\"ckpt.updates\":\"3\"", "\"ckpt.updates\":\"x\"", CKPT_EFORMAT, "'ckpt.updates'"},
        {"\"ckpt.updates\":\"3\"", "\"ckpt.updates\":\"-\"", CKPT_EFORMAT, "'ckpt.updates'"},
        {"\"ckpt.updates\":\"3\"", "\"ckpt.updates\":\"2\"", CKPT_EFORMAT, "counts 2 updates"},
        {"\"ckpt.steps\":\"3\"", "\"ckpt.steps\":\"y\"", CKPT_EFORMAT, "'ckpt.steps'"},
        {"\"ckpt.steps\":\"3\"", "\"ckpt.steps\":\"9\"", CKPT_EFORMAT, "counts 3 updates"},
        {"\"ckpt.batches\":\"24\"", "\"ckpt.batches\":\"12\"", CKPT_EINVAL, "12 samples"},
        {"\"ckpt.batches\":\"24\"", "\"ckpt.batches\":\"-4\"", CKPT_EFORMAT, "\"-4\""},
        {"\"ckpt.batches\":\"24\"", "\"ckpt.batches\":\"+4\"", CKPT_EFORMAT, "\"+4\""},
        {"\"ckpt.batches\":\"24\"", "\"ckpt.batches\":\" 4\"", CKPT_EFORMAT, "\" 4\""},
        {"\"ckpt.batches\":\"24\"", "\"ckpt.batches\":\"00\"", CKPT_EFORMAT, "\"00\""},
        {"\"ckpt.batches\":\"24\"", "\"ckpt.batches\":\"2 \"", CKPT_EFORMAT, "'ckpt.batches'"},
        {"value/frozen\":{\"dtype\":\"F32\"", "value/frozen\":{\"dtype\":\"I32\"", CKPT_EFORMAT,
         "I32"},
        {"value/frozen", "value/frozem", CKPT_ENAME, "lacks 'value/frozen'"},
    };
    struct small r = small_make(CKPT_F32, WIDTH, 1, true);
    static char bytes[1 << 20];
    save_first(&r);
    size_t n = read_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes(bytes, n);
        tamper(cases[i].from, cases[i].to);
        refuse(r, path, cases[i].code, WORDS(path, cases[i].word));
    }
}

/* Counts with many digits, in the header of a separate file. */
static void test_counts(void **state)
{
    (void)state;
    static const struct {
        const char *updates;
        bool good;
    } cases[] = {
        {"0", true},
        {"4503599627370496", true}, /* 2^52 */
        {"4503599627370497", false},
        {"9223372036854775808", false},
        {"-1", false},
        {"1.0", false},
        {"1e3", false},
        {"", false},
        {"0x10", false},
        {"1 1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct file_note notes[] = {{NOTE_VERSION, STATE_VERSION},
                                          {NOTE_UPDATES, cases[i].updates},
                                          {NOTE_SEED, "-7"},
                                          {NOTE_STEPS, "0 0"},
                                          {NOTE_BATCHES, "1 4503599627370496"}};
        struct state_counts n;
        ckpt_file_writer *w;
        ckpt_file *f;
        assert_int_equal(ckpt_file_create(&w, path), 0);
        w->notes = notes;
        w->n_notes = 5;
        assert_int_equal(ckpt_file_commit(w), 0);
        assert_int_equal(ckpt_file_open(&f, path), 0);
        assert_int_equal(state_counts_read(f, &n), cases[i].good ? 0 : CKPT_EFORMAT);
        if (cases[i].good)
            assert_true(n.updates == atoll(cases[i].updates) && n.seed == -7 && n.n_programs == 2);
        state_counts_free(&n);
        ckpt_file_close(f);
    }
}

/* ---- checksums ------------------------------------------------------------------------------ */

/* Flips a bit of each byte of the header and of every 97th byte of the data: the file is refused,
 * and the update count, which determines where a run resumes, does not change.
 * test_safetensors_sums flips all bits of a small file. */
static void test_flips(void **state)
{
    (void)state;
    static char bytes[1 << 20];
    struct small r = small_make(CKPT_F32, WIDTH, 1, true);
    ckpt *c;
    ckpt_program *p;
    save_first(&r);
    size_t n = read_bytes(bytes, sizeof bytes);
    int64_t header = header_size(bytes);
    small_open(&r, &c, &p);
    int fd = open(path, O_WRONLY);
    for (int64_t at = 0, bit = 0; at < (int64_t)n;) {
        char flipped = (char)(bytes[at] ^ 1 << bit);
        assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
        if (ckpt_load_state(c, path) != CKPT_EFORMAT || !strstr(ckpt_error(c), path))
            fail_msg("bit %d of byte %lld: %s", (int)bit, (long long)at, ckpt_error(c));
        assert_int_equal(ckpt_updates(c), 0);
        assert_int_equal(pwrite(fd, &bytes[at], 1, at), 1);
        at += at < header ? 1 : 97;
        bit = at % 8;
    }
    close(fd);
    assert_int_equal(ckpt_load_state(c, path), 0);
    assert_int_equal(ckpt_updates(c), FIRST);
    ckpt_close(c);
}

/* A damaged value is found after others were set: no step runs until a whole state is loaded. */
static void test_torn(void **state)
{
    (void)state;
    static char bytes[1 << 20];
    struct small r = small_make(CKPT_F32, WIDTH, 1, true), rest = r;
    ckpt *c;
    ckpt_program *p;
    save_first(&r);
    size_t n = read_bytes(bytes, sizeof bytes);
    bytes[n - 1] ^= 1; /* of the last value */
    write_bytes(bytes, n);
    small_open(&rest, &c, &p);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(c), "does not match its checksum"));
    small_feed(p, &rest, 0);
    assert_int_equal(ckpt_step(p, NULL), CKPT_EIO);
    assert_non_null(strstr(ckpt_error(c), "a load ended midway"));
    assert_int_equal(ckpt_save_state(c, path), CKPT_EIO);
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), CKPT_EIO);
    assert_int_equal(names_in_dir(), 1);
    bytes[n - 1] ^= 1;
    write_bytes(bytes, n);
    assert_int_equal(ckpt_load_state(c, path), 0);
    small_train(&rest, c, p, FIRST, SMALL_STEPS);
    small_collect(&rest, c);
    ckpt_close(c);
    small_open(&r, &c, &p);
    small_train(&r, c, p, 0, SMALL_STEPS);
    small_collect(&r, c);
    memcpy(rest.loss, r.loss, FIRST * sizeof *rest.loss);
    expect_same(&r, &rest, "after a damaged file");
    ckpt_close(c);
    free(r.state);
    free(rest.state);
}

/* ---- notes ---------------------------------------------------------------------------------- */

static void save_with_notes(struct small *r)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    assert_int_equal(ckpt_state_note(c, "stage", "none"), 0);
    assert_int_equal(ckpt_state_note(c, "stage", "one"), 0);
    assert_int_equal(ckpt_state_note(c, "file \"x\"\n", "a\xff z"), 0);
    assert_int_equal(ckpt_state_note(c, "ckpt.x", "1"), CKPT_EINVAL);
    small_train(r, c, p, 0, FIRST);
    save(c);
    ckpt_close(c);
}

static void test_notes(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, WIDTH, 1, true), other = r;
    struct asked a = {.allow = true};
    ckpt *c;
    ckpt_program *p;
    save_with_notes(&r);
    small_open(&r, &c, &p); /* a run without notes of its own takes any */
    assert_int_equal(ckpt_load_state(c, path), 0);
    assert_int_equal(ckpt_state_note(c, "stage", "one"), 0);
    assert_int_equal(ckpt_state_note(c, "new", "yes"), 0);
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &a), 0);
    assert_string_equal(a.text, "new - yes; file \"x\"\n a? z -; ");
    assert_int_equal(ckpt_state_note(c, "stage", "two"), 0);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "stage one, this run has two"));
    assert_null(strstr(ckpt_error(c), "new"));
    ckpt_close(c);
    other.adamw.ema_decay = 0.5f;
    other.adamw.beta2 = 0.99f;
    refuse(other, path, CKPT_EINVAL, WORDS("ckpt.ema-decay 0.9", "this run has 0.5", "ckpt.beta2"));
    other = r;
    other.dtype = CKPT_BF16;
    refuse(other, path, CKPT_EINVAL, WORDS("ckpt.dtypes", "fp32, this run has", "bf16"));
    small_open(&other, &c, &p);
    a = (struct asked){.allow = false};
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &a), CKPT_EINVAL);
    assert_int_equal(ckpt_updates(c), 0);
    a.allow = true;
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &a), 0);
    assert_int_equal(ckpt_updates(c), FIRST);
    ckpt_close(c);
}

/* A state of a run with --matmul fp8-block, which is gone, continues with fp8 if that is allowed.
 */
static void test_gone_products(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_BF16, WIDTH, 1, true);
    struct asked a = {.allow = true};
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_state_note(c, "then.matmul", "fp8-block"), 0);
    small_train(&r, c, p, 0, 1);
    assert_int_equal(ckpt_save_state(c, path), 0);
    ckpt_close(c);
    tamper("ckpt.run.then.matmul", "ckpt.run.ckpt.matmul");
    r.options.matmul = "fp8";
    refuse(r, path, CKPT_EINVAL, WORDS(path, "ckpt.matmul fp8-block, this run has fp8"));
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &a), 0);
    small_train(&r, c, p, 1, 2);
    ckpt_close(c);
}

/* A state of version 0.1, without checksums and notes, is read, and a message says so. */
static void test_without_checksums(void **state)
{
    (void)state;
    static char bytes[1 << 20];
    struct small r = small_make(CKPT_F32, WIDTH, 1, true);
    struct asked a = {.allow = true};
    ckpt *c;
    ckpt_program *p;
    save_first(&r);
    size_t n = read_bytes(bytes, sizeof bytes);
    char *first = strstr(bytes + 8, ",\"ckpt.run."), *end = strchr(bytes + 8, '}');
    char *last = bytes + header_size(bytes) - 1; /* cut the notes out, and fill up with blanks */
    assert_true(first && end > first);
    while (*last == ' ')
        last--;
    size_t cut = (size_t)(end - first);
    memmove(first, end, (size_t)(last + 1 - end));
    memset(last + 1 - cut, ' ', cut);
    write_bytes(bytes, n);
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_load_state(c, path), 0);
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &a), 0);
    assert_non_null(strstr(a.text, "ckpt.checksum - ckpt64-1; "));
    assert_non_null(strstr(a.text, "ckpt.eps - "));
    a.allow = false;
    assert_int_equal(ckpt_load_state_changed(c, path, ask, &a), CKPT_EINVAL);
    ckpt_close(c);
}

/* A file of weights is refused as a state, with a message that says so. */
static void test_weights(void **state)
{
    (void)state;
    struct small r = small_make(CKPT_F32, WIDTH, 1, true);
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), 0);
    ckpt_close(c);
    refuse(r, path, CKPT_EFORMAT, WORDS(path, "not a state", "ckpt_load_params"));
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_fresh_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_budgets),       IN_DIRECTORY(test_two_programs),
        IN_DIRECTORY(test_random_step),   IN_DIRECTORY(test_back),
        IN_DIRECTORY(test_failed_save),   IN_DIRECTORY(test_other_runs),
        IN_DIRECTORY(test_damaged),       IN_DIRECTORY(test_counts),
        IN_DIRECTORY(test_flips),         IN_DIRECTORY(test_torn),
        IN_DIRECTORY(test_notes),         IN_DIRECTORY(test_without_checksums),
        IN_DIRECTORY(test_gone_products), IN_DIRECTORY(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
