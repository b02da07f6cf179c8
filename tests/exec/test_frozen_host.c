/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's resident memory for weights loaded from a file: no more than the plan says.  The
 * weights are not trained; they come from bf16 or fp32, before or after ckpt_lora, as codes, or
 * from a state, and live on the device or the host; or several ranks train shards of them.  Each
 * case runs in its own process, with a fresh heap.  Also: an untrained weight has the value that
 * bf16 has of it, before and after the first program and in states.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dist/rank_threads.h"
#include "plan/one_search.h"
#include "small.h"

enum {
    WIDTH = 1024,
    LAYERS = 8,
    SHARED = 1, /* layers of several ranks */
    RANKS = 2,
    NUMEL = WIDTH * WIDTH,
    /* Bytes: stacks, tapes, plans, a parameter as fp32 on its way, what the heap keeps of it. */
    SLACK = 12 << 20
};

struct net {
    int n;
    ckpt_tensor w[LAYERS];
};

struct how {
    const char *what;
    enum ckpt_dtype file;
    const char *format; /* NULL: plain */
    bool adapted_first; /* ckpt_lora comes before the values */
    bool compiled_first;
    bool on_host; /* weights live in the host tier */
    bool resumed; /* they come from a state that this process wrote before */
    bool unused;  /* no program yet: values wait for one */
};

static char file_of[2][64], state_file[64];
static pid_t owner; /* of the files */

static int64_t resident_bytes(void)
{
    long pages = 0, ignored = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Fills in values that bf16 cannot represent; a bf16 file has the nearest ones. */
static void fill(float *x, int layer)
{
    ckpt_fill_normal(11, (uint64_t)layer, 1, x, NUMEL);
    for (int i = 0; i < NUMEL; i++)
        x[i] *= 0.02f;
}

static void name_of(char name[32], int layer)
{
    snprintf(name, 32, "layers.%02d.weight", layer);
}

static void write_file(enum ckpt_dtype dtype, const char *path)
{
    const int64_t size = ckpt_dtype_size(dtype), shape[] = {WIDTH, WIDTH};
    char *all = malloc((size_t)(LAYERS * size) * NUMEL), name[32];
    float *x = malloc(NUMEL * sizeof *x);
    ckpt_file_writer *w;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    for (int i = 0; i < LAYERS; i++) {
        char *at = all + (int64_t)i * NUMEL * size;
        fill(x, i);
        if (dtype == CKPT_BF16)
            ckpt_to_bf16(x, (uint16_t *)(void *)at, NUMEL);
        else
            memcpy(at, x, NUMEL * sizeof *x);
        name_of(name, i);
        assert_int_equal(ckpt_file_add(w, name, dtype, 2, shape, at), 0);
    }
    assert_int_equal(ckpt_file_commit(w), 0);
    free(all);
    free(x);
}

static int setup(void **state)
{
    (void)state;
    owner = getpid();
    small_path(file_of[CKPT_F32], sizeof file_of[0], "host-fp32");
    small_path(file_of[CKPT_BF16], sizeof file_of[0], "host-bf16");
    small_path(state_file, sizeof state_file, "host-state");
    write_file(CKPT_F32, file_of[CKPT_F32]);
    write_file(CKPT_BF16, file_of[CKPT_BF16]);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (getpid() != owner)
        return 0;
    unlink(file_of[CKPT_F32]);
    unlink(file_of[CKPT_BF16]);
    return 0;
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, WIDTH});
    ckpt_tensor h = ckpt_cast(t, x, CKPT_BF16);
    for (int i = 0; i < m->n; i++)
        h = ckpt_linear(t, h, m->w[i], CKPT_NONE);
    return ckpt_mse(t, h, x, CKPT_NONE);
}

static void make_weights(ckpt *c, struct net *m, int n)
{
    const int64_t shape[] = {WIDTH, WIDTH};
    char name[32];
    m->n = n;
    for (int i = 0; i < n; i++) {
        name_of(name, i);
        m->w[i] = ckpt_param(c, name, CKPT_BF16, 2, shape, CKPT_XAVIER, true);
    }
}

static ckpt *open_net(struct net *m, const struct how *how)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = "cpu";
    o.threads = 1;
    if (how->on_host)
        o.host = (int64_t)1 << 30, o.vram = (int64_t)16 << 20;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    make_weights(c, m, LAYERS);
    return c;
}

static void adapt(ckpt *c, const struct how *how)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    lora.rank = 2;
    assert_int_equal(ckpt_lora(c, &lora), LAYERS);
    if (how->format && ckpt_quantize_frozen(c, "layers.??.weight", how->format) != LAYERS)
        fail_msg("%s", ckpt_error(c));
}

static void load(ckpt *c, const struct how *how)
{
    if (ckpt_load_params(c, file_of[how->file], NULL, NULL, NULL))
        fail_msg("%s", ckpt_error(c));
}

static ckpt_program *compile(ckpt *c, struct net *m)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    if (ckpt_compile(c, record, m, ckpt_adamw(c, &a), 1, &p))
        fail_msg("%s", ckpt_error(c));
    return p;
}

static void step(ckpt *c, ckpt_program *p)
{
    float x[WIDTH];
    ckpt_fill_normal(3, 0, 1, x, WIDTH);
    if (ckpt_feed(p, "x", x, sizeof x) || ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(c));
}

/* Returns the context; p: its program, or NULL. */
static ckpt *begin(struct net *m, const struct how *how, ckpt_program **p)
{
    ckpt *c = open_net(m, how);
    *p = NULL;
    if (how->adapted_first || how->compiled_first)
        adapt(c, how);
    if (how->compiled_first)
        *p = compile(c, m);
    if (!how->resumed)
        load(c, how);
    if (!how->adapted_first && !how->compiled_first)
        adapt(c, how);
    if (!*p && !how->unused)
        *p = compile(c, m);
    if (how->resumed && ckpt_load_state(c, state_file))
        fail_msg("%s", ckpt_error(c));
    return c;
}

static int64_t planned_bytes(const ckpt_program *p)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &info);
    return info.arena_bytes + info.host_bytes;
}

static void check_held(const char *what, int64_t held, int64_t planned)
{
    print_message("%-40s %4lld MiB, planned %4lld\n", what, (long long)(held >> 20),
                  (long long)(planned >> 20));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (held > planned + SLACK) {
        print_error("%s: %lld bytes are held, %lld are planned\n", what, (long long)held,
                    (long long)planned);
        _exit(1); /* of a child */
    }
#endif
}

/* Checks that the process stays within the plan's size, or without a plan within the bf16 size. */
static void check_resident(const struct how *how)
{
    const int64_t before = resident_bytes();
    struct net m;
    ckpt_program *p;
    ckpt *c = begin(&m, how, &p);
    int64_t planned = (int64_t)LAYERS * NUMEL * 2;
    if (p) {
        planned = planned_bytes(p);
        step(c, p);
    }
    check_held(how->what, resident_bytes() - before, planned);
    ckpt_close(c);
}

static void write_state(const struct how *how)
{
    struct how here = *how;
    struct net m;
    ckpt_program *p;
    here.resumed = false;
    ckpt *c = begin(&m, &here, &p);
    if (ckpt_save_state(c, state_file))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

static void in_child(void (*what)(const struct how *), const struct how *how)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        what(how);
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("%s: see above", how->what);
}

static void test_resident(void **state)
{
    static const struct how cases[] = {
        {.what = "bf16 file, adapters behind it", .file = CKPT_BF16},
        {.what = "bf16 file, adapters before", .file = CKPT_BF16, .adapted_first = true},
        {.what = "bf16 file into a program", .file = CKPT_BF16, .compiled_first = true},
        {.what = "bf16 file, no program yet", .file = CKPT_BF16, .unused = true},
        {.what = "fp32 file, adapters behind it", .file = CKPT_F32},
        {.what = "fp32 file into a program", .file = CKPT_F32, .compiled_first = true},
        {.what = "fp32 file into int8, no program yet",
         .file = CKPT_F32,
         .format = "int8",
         .unused = true},
        {.what = "bf16 file into int8", .file = CKPT_BF16, .format = "int8"},
        {.what = "fp32 file into nf4", .file = CKPT_F32, .format = "nf4", .adapted_first = true},
        {.what = "bf16 file, weights on the host", .file = CKPT_BF16, .on_host = true},
        {.what = "fp32 file, weights on the host", .file = CKPT_F32, .on_host = true},
        {.what = "a state", .file = CKPT_F32, .resumed = true},
        {.what = "a state of nf4", .file = CKPT_F32, .format = "nf4", .resumed = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].resumed)
            in_child(write_state, &cases[i]);
        in_child(check_resident, &cases[i]);
        unlink(state_file);
    }
}

/* ---- several ranks --------------------------------------------------------------------------- */

struct member {
    struct rank_thread thread;
    enum ckpt_dtype file;
    int zero;
    bool adapted;
    struct net net;
    ckpt *c;
};

static int work(struct member *m, ckpt *c)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    float x[WIDTH];
    ckpt_program *p;
    lora.rank = 2;
    make_weights(c, &m->net, SHARED);
    int rc = ckpt_load_params(c, file_of[m->file], NULL, NULL, NULL);
    if (!rc && m->adapted)
        rc = ckpt_lora(c, &lora) == SHARED ? 0 : CKPT_EINVAL;
    if (!rc)
        rc = ckpt_compile(c, record, &m->net, ckpt_adamw(c, &a), 1, &p);
    if (rc)
        return rc;
    ckpt_fill_normal(3, 0, 1, x, WIDTH);
    rc = ckpt_feed(p, "x", x, sizeof x);
    return rc ? rc : ckpt_step(p, NULL);
}

static void *run_member(void *member)
{
    struct member *m = member;
    m->c = rank_open(&m->thread, (struct ckpt_options)CKPT_OPTIONS_INIT, m->zero, 0);
    if (m->c)
        m->thread.rc = work(m, m->c);
    return NULL;
}

/* For all kinds of sharding, no rank keeps a host copy of a value that slots have. */
static void test_ranks(void **state)
{
    (void)state;
    for (int k = 0; k < 16; k++) {
        struct member m[RANKS] = {
            {.zero = k / 4, .file = k % 2 ? CKPT_BF16 : CKPT_F32, .adapted = k / 2 % 2}};
        m[1] = m[0];
        run_ranks(m, sizeof m[0], RANKS, 0, run_member);
        for (int i = 0; i < RANKS; i++) {
            for (int n = 0; n < m[i].c->params.n; n++)
                if (m[i].c->params.data[n].place.initial)
                    fail_msg("zero %d, a file in %s, %s: '%s' stands on the host, too", m[i].zero,
                             k % 2 ? "bf16" : "fp32", m[i].adapted ? "adapters" : "all trained",
                             m[i].c->params.data[n].name);
            ckpt_close(m[i].c);
        }
    }
}

/* ---- values of untrained weights ------------------------------------------------------------- */

static void get(ckpt *c, const struct net *m, float *to)
{
    if (ckpt_param_get(c, m->w[0], CKPT_VALUE, to, NUMEL))
        fail_msg("%s", ckpt_error(c));
}

/* Values from an fp32 file, before and after the first program, after a state, and as codes: codes
 * are made from fp32, whatever was called first. */
static void test_values(void **state)
{
    struct how how = {.what = "values", .file = CKPT_F32, .adapted_first = true, .unused = true};
    float *of[3], *want = malloc(NUMEL * sizeof *want);
    struct net m;
    ckpt_program *p;
    (void)state;
    for (int i = 0; i < 3; i++)
        of[i] = malloc(NUMEL * sizeof(float));
    fill(want, 0);
    param_narrow(want, NUMEL);
    ckpt *c = begin(&m, &how, &p);
    get(c, &m, of[0]);
    p = compile(c, &m);
    get(c, &m, of[1]);
    assert_int_equal(ckpt_save_state(c, state_file), 0);
    ckpt_close(c);
    how.unused = false, how.resumed = true;
    c = begin(&m, &how, &p);
    get(c, &m, of[2]);
    ckpt_close(c);
    unlink(state_file);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(of[i], want, NUMEL * sizeof *want);
    how = (struct how){.file = CKPT_F32, .format = "int8", .unused = true};
    for (int i = 0; i < 2; i++) {
        how.adapted_first = i;
        c = begin(&m, &how, &p);
        get(c, &m, of[i]);
        ckpt_close(c);
    }
    assert_memory_equal(of[0], of[1], NUMEL * sizeof *want);
    for (int i = 0; i < 3; i++)
        free(of[i]);
    free(want);
}

/* A state stores such a weight in bf16. */
static void test_state(void **state)
{
    const struct how how = {.what = "state", .file = CKPT_F32};
    struct stat s;
    (void)state;
    write_state(&how);
    assert_int_equal(stat(state_file, &s), 0);
    unlink(state_file);
    assert_in_range(s.st_size, LAYERS * NUMEL * 2, LAYERS * NUMEL * 2 + (2 << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resident),
                                       cmocka_unit_test(test_ranks), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_state)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
