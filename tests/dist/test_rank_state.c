/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State in bf16 and in 8 bits over one, two and four ranks, at every stage, on one host and on two:
 * all round alike and can resume from each other's states, which ranks write in parts, at once or
 * in a thread.  Parts that do not belong together are refused.  The gradients of this model are
 * sums of small whole numbers, equal in any order, so every bit of the state is compared. fp32
 * masters start with the values that were set, whichever program was compiled first.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/bits.h"
#include "ckpt_files.h"
#include "dist/rank_threads.h"
#include "plan/one_search.h"

/* 192 and 16 elements in a bucket: shares of two and of four cut through the matrix. */
enum { RANKS = 4, BATCH = 16, WIDTH = 12, OUT = 16, BLOCKS = 3, STEPS = 4, MOST = 8000 };

enum kind { ADAMW, SGD, LION, ADAFACTOR, MUON, KINDS };

/* When values are set: never, before any program, or after the first. */
enum when { NEVER, BEFORE, BEHIND, WHENS };

struct job {
    int ranks, zero, per_host;
    enum kind kind;
    int64_t micro;
    const char *state;
    const char *load, *save; /* of a state: at the beginning and at the end */
    int from, to;            /* steps */
    enum when set;
    bool async;  /* the state is written by a thread */
    bool infers; /* a program without an optimizer is compiled before the one that trains */
};

struct member {
    struct rank_thread as;
    const struct job *job;
    ckpt_tensor weight[BLOCKS], bias[BLOCKS], gain; /* the last in fp32 */
    float state[MOST];
    int64_t n;
};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct member *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_BF16, 2, (int64_t[]){n, WIDTH}), sum = CKPT_NONE;
    for (int i = 0; i < BLOCKS; i++) {
        ckpt_label(t, "blocks.%d", i);
        ckpt_tensor y = ckpt_cast(t, ckpt_linear(t, x, m->weight[i], m->bias[i]), CKPT_F32);
        y = ckpt_affine(t, y, (float)(1 << i), 0.f);
        sum = sum.id ? ckpt_add(t, sum, y) : y;
    }
    ckpt_tensor gain = ckpt_mul(t, ckpt_cast(t, x, CKPT_F32), m->gain);
    return ckpt_add(t, ckpt_mean(t, sum, 3), ckpt_affine(t, ckpt_mean(t, gain, 3), 0.75f, 0.f));
}

static ckpt_optimizer *make_optimizer(ckpt *c, enum kind kind)
{
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct ckpt_lion lion = CKPT_LION_INIT;
    struct ckpt_adafactor adafactor = CKPT_ADAFACTOR_INIT;
    struct ckpt_muon muon = CKPT_MUON_INIT;
    adamw.lr = 1e-2f, adamw.weight_decay = 0.1f, adamw.ema_decay = 0.9f;
    adamw.grad_dtype = sgd.grad_dtype = lion.grad_dtype = adafactor.grad_dtype =
        kind % 2 ? CKPT_BF16 : CKPT_F32;
    sgd.momentum = 0.9f, sgd.ema_decay = 0.9f, lion.ema_decay = 0.9f, adafactor.ema_decay = 0.9f;
    if (kind == SGD)
        return ckpt_sgd(c, &sgd);
    if (kind == LION)
        return ckpt_lion(c, &lion);
    if (kind == ADAFACTOR)
        return ckpt_adafactor(c, &adafactor);
    ckpt_optimizer *o = ckpt_adamw(c, &adamw);
    if (kind == MUON) {
        g.optimizer = ckpt_muon(c, &muon);
        g.min_ndim = 2;
        ckpt_optimizer_group(o, "*", &g);
    }
    return o;
}

static void make_params(struct member *m, ckpt *c)
{
    static const int64_t shape[] = {OUT, WIDTH}, width = WIDTH;
    char name[32];
    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "blocks.%d.weight", i);
        m->weight[i] = ckpt_param(c, name, CKPT_BF16, 2, shape, CKPT_NORMAL(1.f), true);
        snprintf(name, sizeof name, "blocks.%d.bias", i);
        m->bias[i] = ckpt_param(c, name, CKPT_BF16, 1, shape, CKPT_NORMAL(1.f), true);
    }
    m->gain = ckpt_param(c, "gain", CKPT_F32, 1, &width, CKPT_ONES, true);
}

/* All slots of all parameters. */
static void collect(struct member *m, ckpt *c)
{
    for (int i = 0; i < ckpt_param_count(c) && !m->as.rc; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        for (int s = CKPT_VALUE; s <= CKPT_EMA && !m->as.rc; s++) {
            int rc = ckpt_param_get(c, ckpt_param_at(c, i), (enum ckpt_slot)s, m->state + m->n,
                                    info.numel);
            m->n += rc ? 0 : info.numel;
            m->as.rc = rc == CKPT_ENAME ? 0 : rc;
        }
    }
}

/* Small whole numbers, another sum in each column. */
static void fill(uint16_t *x, int step, int sample)
{
    for (int k = 0; k < WIDTH; k++) {
        float v = (float)((5 * step + 3 * sample + 7 * k + k * k) % 8 - 2);
        x[k] = (uint16_t)(float_bits(v) >> 16);
    }
}

static int step(struct member *m, ckpt_program *p, int s)
{
    uint16_t x[BATCH][WIDTH];
    const int own = BATCH / m->job->ranks;
    for (int i = 0; i < own; i++)
        fill(x[i], s, m->as.rank * own + i);
    int rc = ckpt_feed(p, "x", x, own * (int64_t)sizeof *x);
    return rc ? rc : ckpt_step(p, NULL);
}

/* The first block is set in fp32, the second to bf16 values; the third keeps its seeded values. */
static int set_values(struct member *m, ckpt *c)
{
    float x[OUT * WIDTH];
    int rc = 0;
    for (int i = 0; i < BLOCKS - 1 && !rc; i++) {
        for (int k = 0; k < OUT * WIDTH; k++)
            x[k] = (float)(k + 1) * (i ? 0.125f : 0.1f);
        rc = ckpt_param_set(c, m->weight[i], CKPT_VALUE, x, OUT * WIDTH);
    }
    return rc;
}

/* Values that were set are read back unchanged, also while slots have them in bf16. */
static int check_values(struct member *m, ckpt *c)
{
    float x[OUT * WIDTH];
    int rc = ckpt_param_get(c, m->weight[0], CKPT_VALUE, x, OUT * WIDTH);
    for (int k = 0; k < OUT * WIDTH && !rc && m->job->set; k++)
        rc = x[k] == (float)(k + 1) * 0.1f ? 0 : CKPT_ENAN;
    return rc;
}

static int compile(struct member *m, ckpt *c, ckpt_program **p)
{
    const struct job *job = m->job;
    const int64_t batch = BATCH / job->ranks;
    int rc = job->set == BEFORE ? set_values(m, c) : 0;
    if (!rc && job->infers)
        rc = ckpt_compile(c, record, m, NULL, batch, p);
    if (!rc && job->set == BEHIND)
        rc = set_values(m, c);
    if (!rc && job->infers && !job->state)
        rc = check_values(m, c);
    return rc ? rc : ckpt_compile(c, record, m, make_optimizer(c, job->kind), batch, p);
}

/* Three ranks have another batch, but they make no steps from a state. */
static bool allow_samples(void *user, const char *name, const char *was, const char *is)
{
    (void)user;
    (void)was;
    (void)is;
    return !strcmp(name, "ckpt.step_samples");
}

static int save(const struct job *job, ckpt *c)
{
    int rc = ckpt_save_state(c, job->save);
    if (!rc && ckpt_is_saving(c) != job->async)
        rc = CKPT_EINVAL;
    return rc ? rc : ckpt_save_wait(c);
}

static void *train(void *arg)
{
    struct member *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt_program *p;
    o.state = m->job->state;
    o.micro_batch = m->job->micro;
    o.save_async = m->job->async;
    o.host = m->job->async ? 1 << 20 : 0;
    ckpt *c = rank_open(&m->as, o, m->job->zero, m->job->per_host);
    if (!c)
        return NULL;
    make_params(m, c);
    m->as.rc = compile(m, c, &p);
    if (!m->as.rc && m->job->load)
        m->as.rc = ckpt_load_state_changed(c, m->job->load, allow_samples, NULL);
    for (int s = m->job->from; s < m->job->to && !m->as.rc; s++)
        m->as.rc = step(m, p, s);
    if (!m->as.rc && m->job->save)
        m->as.rc = save(m->job, c);
    if (!m->as.rc)
        collect(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static void run(const struct job *job, struct member *m)
{
    for (int i = 0; i < job->ranks; i++)
        m[i] = (struct member){.job = job};
    run_ranks(m, sizeof *m, job->ranks, 0, train);
}

static struct member alone, many[RANKS];

static void expect_same(const struct job *job)
{
    for (int i = 0; i < job->ranks; i++)
        if (alone.n != many[i].n ||
            memcmp(alone.state, many[i].state, (size_t)alone.n * sizeof *alone.state))
            fail_msg("%s, kind %d, set %d: %d ranks at stage %d round otherwise than one",
                     job->state ? job->state : "fp32", job->kind, job->set, job->ranks, job->zero);
}

static void check_stages(const char *kept, int kinds)
{
    for (int kind = 0; kind < kinds; kind++) {
        const int64_t micro = kind % 2 ? 2 : 0; /* and gradients in bf16, see make_optimizer */
        struct job one = {
            .ranks = 1, .state = kept, .kind = (enum kind)kind, .micro = 2 * micro, .to = STEPS};
        run(&one, &alone);
        assert_true(alone.n > 600);
        for (int ranks = 2; ranks <= RANKS; ranks += 2)
            for (int zero = 0; zero <= 3; zero++) {
                struct job job = {.ranks = ranks,
                                  .state = kept,
                                  .zero = zero,
                                  .kind = (enum kind)kind,
                                  .micro = micro,
                                  .to = STEPS};
                run(&job, many);
                expect_same(&job);
            }
        struct job hosts = {.ranks = 4,
                            .state = kept,
                            .per_host = 2,
                            .zero = 3,
                            .kind = (enum kind)kind,
                            .micro = micro,
                            .to = STEPS};
        run(&hosts, many);
        expect_same(&hosts);
    }
}

static void test_stages(void **state)
{
    (void)state;
    check_stages("bf16", KINDS);
}

/* Shares are whole blocks of codes, so their scales equal those of one rank. */
static void test_8_bits(void **state)
{
    (void)state;
    check_stages("8bit", ADAFACTOR);
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char *const path = "test_rank_state.tmp.safetensors";

enum { SAVED_NAME = 300 };

/* The files of the state here, and the names of the first two parts. */
static int list_files(char part[2][SAVED_NAME])
{
    struct dirent **all;
    int found = 0, parts = 0, n = scandir(".", &all, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        bool own = !strncmp(all[i]->d_name, path, strlen(path));
        found += own;
        if (own && strstr(all[i]->d_name, ".part-") && part && parts < 2)
            snprintf(part[parts++], SAVED_NAME, "%s", all[i]->d_name);
        free(all[i]);
    }
    free(all);
    return found;
}

static int count_files(void)
{
    return list_files(NULL);
}

static void find_parts(char part[2][SAVED_NAME])
{
    assert_true(list_files(part) > 2);
}

static void flip(const char *name, long at)
{
    FILE *f = fopen(name, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = getc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(putc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* Each number of ranks saves after two steps, at one stage or another, at once or in a thread, over
 * what is there; each resumes from that, three without a step.  On two hosts, too. */
static void check_resume(const char *kept)
{
    run(&(struct job){.ranks = 1, .state = kept, .to = STEPS}, &alone);
    struct member end = alone;
    run(&(struct job){.ranks = 1, .state = kept, .to = 2}, &alone);
    struct member middle = alone;
    for (int first = 1; first <= RANKS; first++)
        for (int next = 1; next <= RANKS; next++) {
            const int zero = (first + next) % 4;
            struct job from = {.ranks = 2, .state = kept, .zero = 2, .save = path, .to = 2};
            struct job save = from, job = from;
            if (first == 3)
                run(&from, many);
            save.ranks = first;
            save.async = next % 2;
            save.per_host = first == 4 && next > 2 ? 2 : 0;
            save.zero = save.per_host ? next - 1 : zero; /* two copies of the model */
            save.load = first == 3 ? path : NULL;
            save.from = first == 3 ? 2 : 0;
            job.ranks = next;
            job.zero = (zero + 1 + (first > 2)) % 4;
            job.load = path;
            job.save = NULL;
            job.from = 2;
            job.to = next == 3 ? 2 : STEPS;
            run(&save, many);
            run(&job, many);
            alone = next == 3 ? middle : end;
            expect_same(&job);
        }
    assert_int_equal(ckpt_file_remove(path), 0);
}

static void test_resume(void **state)
{
    (void)state;
    check_resume(NULL);
    check_resume("bf16");
    check_resume("8bit");
    assert_int_equal(count_files(), 0); /* each save removes the parts of the one before */
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The bytes of the state as one file has them: read through the index, tensor by tensor. */
static int64_t read_state(float *values)
{
    ckpt_file *f;
    int64_t n = 0;
    if (ckpt_file_open(&f, path))
        fail_msg("%s", ckpt_error(NULL));
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        assert_int_equal(ckpt_file_entry(f, i, &e), 0);
        assert_int_equal(ckpt_file_read_f32(f, i, values + n, e.numel), 0);
        n += e.numel;
    }
    ckpt_file_close(f);
    return n;
}

/* What two and four ranks write, at once and in a thread, is what one writes. */
static void test_values(void **state)
{
    (void)state;
    static float one[4 * MOST], other[4 * MOST];
    run(&(struct job){.ranks = 1, .save = path, .to = 2}, many);
    const int64_t n = read_state(one);
    for (int ranks = 1; ranks <= RANKS; ranks *= 2)
        for (int zero = 0; zero <= 3; zero++)
            for (int async = 0; async < 2; async++) {
                struct job job = {
                    .ranks = ranks, .zero = zero, .save = path, .to = 2, .async = async};
                run(&job, many);
                assert_int_equal(read_state(other), n);
                assert_memory_equal(one, other, (size_t)n * sizeof *one);
            }
    assert_int_equal(ckpt_file_remove(path), 0);
}

static void expect_refused(const char *what)
{
    ckpt_file *f = NULL;
    assert_int_equal(ckpt_file_open(&f, path), CKPT_EFORMAT);
    if (!strstr(ckpt_error(NULL), what))
        fail_msg("\"%s\" does not say \"%s\"", ckpt_error(NULL), what);
}

/* A kept save has its parts, whatever is saved later; a part that is missing, damaged, or of
 * another save is refused; what a crash left is removed by the next save. */
static void test_refused(void **state)
{
    (void)state;
    static const char kept[] = "test_rank_state.tmp.safetensors-00000002";
    struct job job = {.ranks = 2, .zero = 3, .save = path, .to = 2};
    char part[2][SAVED_NAME], old[2][SAVED_NAME];
    run(&job, many);
    find_parts(old);
    assert_int_equal(link(path, kept), 0);
    run(&job, many);
    assert_int_equal(count_files(), 6);
    assert_int_equal(rename(kept, "test_rank_state.kept"), 0); /* under any name */
    run(&job, many);
    assert_int_equal(rename("test_rank_state.kept", kept), 0);
    assert_int_equal(count_files(), 6);
    assert_int_equal(ckpt_file_remove(kept), 0);
    assert_int_equal(count_files(), 3);
    find_parts(part);
    const char *const orphan = "test_rank_state.tmp.safetensors.part-0-00001-of-00002.safetensors";
    assert_int_equal(rename(part[1], orphan), 0);
    expect_refused("cannot open");
    assert_int_equal(link(part[0], part[1]), 0);
    expect_refused("is not the part that test_rank_state.tmp.safetensors was saved with");
    flip(path, 300);
    expect_refused("does not match its checksum");
    run(&job, many);
    assert_int_equal(count_files(), 3);
    assert_int_equal(ckpt_file_remove(path), 0);
    assert_int_equal(count_files(), 0);
}

/* An inference program compiled before the training program changes nothing. */
static void check_infers(const char *kept, enum when set)
{
    run(&(struct job){.ranks = 1, .state = kept, .to = STEPS, .set = set ? BEFORE : NEVER}, &alone);
    for (int ranks = 1; ranks <= RANKS; ranks *= 2)
        for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++) {
            struct job job = {.ranks = ranks,
                              .state = kept,
                              .zero = zero,
                              .to = STEPS,
                              .set = set,
                              .infers = true};
            run(&job, many);
            expect_same(&job);
        }
}

static void test_infers(void **state)
{
    (void)state;
    for (enum when set = NEVER; set < WHENS; set++) {
        check_infers(NULL, set);
        check_infers("bf16", set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),  cmocka_unit_test(test_8_bits),
        cmocka_unit_test(test_resume),  cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_infers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
