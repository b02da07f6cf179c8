/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Imported models with the rest of the library: budgets, tiers, ranks, micro-batches, a resume,
 * adapters, weights in codes and state of 8 bits (tests/import/crossed).  Every run is verified.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_import.h"
#include "ckpt_optim.h"
#include "dist/rank_threads.h"

enum { BATCH = 8, LENGTH = 12, TOKENS = 40, STEPS = 4, HALF = 2, MOST = 600000 };

static char folder[] = "/tmp/ckpt-crossed-XXXXXX";

/* How a model is trained. */
struct job {
    const char *name; /* of the archive */
    struct ckpt_options options;
    int ranks, zero;
    int rank_of_adapters;        /* 0: none, all weights are trained */
    const char *frozen;          /* NULL: as they are */
    int first, steps;            /* of the steps, those that are run */
    const char *resumed, *saved; /* states; NULL: none */
};

struct member {
    struct rank_thread as;
    const struct job *job;
    ckpt_import *model;
    float loss[STEPS];
    float values[MOST]; /* of the trained parameters */
    int64_t n, trained;
    struct ckpt_program_info info;
};

/* ---- a run ----------------------------------------------------------------------------------- */

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct member *m = user;
    const int64_t shape[] = {batch, LENGTH};
    ckpt_tensor in[2], loss;

    in[0] = ckpt_input(t, "ids", CKPT_I32, 2, shape);
    in[1] = ckpt_input(t, "labels", CKPT_I32, 2, shape);
    ckpt_import_record(t, m->model, in, &loss);
    return loss;
}

static int open_model(ckpt *c, struct member *m)
{
    const struct job *j = m->job;
    struct ckpt_lora lora = CKPT_LORA_INIT;
    char path[100];

    snprintf(path, sizeof path, "%s/%s.pt2", folder, j->name);
    int rc = ckpt_import_open(c, path, &m->model);
    lora.rank = j->rank_of_adapters;
    lora.pattern = "qkv.weight";
    if (!rc && j->rank_of_adapters && ckpt_lora(c, &lora) != 1)
        return CKPT_EINVAL;
    if (!rc && j->frozen && ckpt_quantize_frozen(c, "*.weight", j->frozen) != 5)
        return CKPT_EINVAL; /* embed, qkv, out, up, down */
    return rc;
}

static int take_step(ckpt_program *p, const struct member *m, int step, float *loss)
{
    const int64_t own = BATCH / m->job->ranks * LENGTH;
    int32_t ids[BATCH * LENGTH], labels[BATCH * LENGTH];

    for (int i = 0; i < BATCH * LENGTH; i++) {
        ids[i] = (i * 7 + i / LENGTH * 5 + step * 11) % TOKENS;
        labels[i] = (ids[i] * 3 + 1) % TOKENS;
    }
    int rc = ckpt_feed(p, "ids", ids + m->as.rank * own, own * 4);
    rc = rc ? rc : ckpt_feed(p, "labels", labels + m->as.rank * own, own * 4);
    return rc ? rc : ckpt_step(p, loss);
}

static int collect(ckpt *c, struct member *m)
{
    struct ckpt_param_info p = CKPT_PARAM_INFO_INIT;
    int rc = 0;

    for (int i = 0; i < ckpt_param_count(c) && !rc; i++) {
        ckpt_tensor w = ckpt_param_at(c, i);
        rc = ckpt_param_info(c, w, &p);
        if (rc || !p.trainable || m->n + p.numel > MOST)
            continue;
        rc = ckpt_param_get(c, w, CKPT_VALUE, m->values + m->n, p.numel);
        m->n += p.numel;
    }
    return rc;
}

static int train(ckpt *c, struct member *m)
{
    const struct job *j = m->job;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    int rc = open_model(c, m);

    adamw.lr = 1e-3f;
    m->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    rc = rc ? rc : ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), BATCH / j->ranks, &p);
    rc = rc ? rc : ckpt_program_info(p, &m->info);
    if (!rc && j->resumed)
        rc = ckpt_load_state(c, j->resumed);
    for (int i = j->first; i < j->first + j->steps && !rc; i++)
        rc = take_step(p, m, i, &m->loss[i]);
    if (!rc && j->saved)
        rc = ckpt_save_state(c, j->saved);
    return rc ? rc : collect(c, m);
}

static void *work(void *member)
{
    struct member *m = member;
    ckpt *c = rank_open(&m->as, m->job->options, m->job->zero, 0);

    if (!c) {
        print_message("%s\n", ckpt_error(NULL));
        return NULL;
    }
    ckpt_plan_in_full(c, true);
    m->as.rc = train(c, m);
    if (m->as.rc)
        print_message("%s\n", ckpt_error(c));
    ckpt_import_close(m->model);
    ckpt_close(c);
    return NULL;
}

/* What rank 0 has at the end; freed by the caller. */
static struct member *run(const struct job *j)
{
    struct member *m = calloc((size_t)j->ranks, sizeof *m);

    assert_non_null(m);
    for (int i = 0; i < j->ranks; i++)
        m[i].job = j;
    run_ranks(m, sizeof *m, j->ranks, 0, work);
    for (int i = j->first; i < j->first + j->steps; i++)
        assert_true(isfinite(m->loss[i]));
    assert_in_range(m->n, 1, MOST);
    return m;
}

static struct job job_of(const char *name)
{
    struct job j = {.name = name, .options = CKPT_OPTIONS_INIT, .ranks = 1, .steps = STEPS};

    j.options.vram = CKPT_VRAM_NONE;
    return j;
}

/* The same bits from another job. */
static void same(const struct member *a, const struct job *j)
{
    struct member *b = run(j);

    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->loss + j->first, b->loss + j->first, (size_t)j->steps * sizeof *a->loss);
    assert_memory_equal(a->values, b->values, (size_t)a->n * sizeof *a->values);
    free(b);
}

/* The same up to the rounding of sums in another order; AdamW moves a value by up to lr a step
 * whatever its gradient is, so values with gradients near 0 may part. */
static void near(const struct member *a, const struct job *j, double loss, double mean)
{
    struct member *b = run(j);
    double sum = 0;

    assert_int_equal(a->n, b->n);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs((double)a->loss[i] - b->loss[i]) <= loss * fabs((double)a->loss[i])))
            fail_msg("loss %d: %.9g, %.9g", i, (double)a->loss[i], (double)b->loss[i]);
    for (int64_t i = 0; i < a->n; i++)
        sum += fabs((double)a->values[i] - b->values[i]);
    if (!(sum / (double)a->n <= mean))
        fail_msg("values differ by %g", sum / (double)a->n);
    free(b);
}

/* ---- what changes no bit --------------------------------------------------------------------- */

/* The smallest budget and one in the middle: activations are recomputed. */
static void check_budgets(const struct job *j)
{
    struct member *whole = run(j);
    const struct ckpt_program_info info = whole->info;
    struct job other = *j;

    assert_true(info.min_budget < info.planned_peak);
    for (int k = 0; k < 2; k++) {
        other.options.vram = k ? (info.min_budget + info.planned_peak) / 2 : info.min_budget;
        same(whole, &other);
    }
    free(whole);
}

/* The smallest budget and one in the middle with host memory, an NVMe tier, both: the table's state
 * is offloaded. */
static void check_tiers(const struct job *j)
{
    struct member *whole = run(j);
    struct job other = *j;
    char nvme[100];

    snprintf(nvme, sizeof nvme, "%s:64M", folder);
    for (int k = 0; k < 3; k++) {
        other.options.host = k == 1 ? 0 : 64 << 20;
        other.options.nvme = k ? nvme : NULL;
        other.options.vram = CKPT_VRAM_NONE;
        struct member *roomy = run(&other);
        const int64_t least = roomy->info.min_budget;
        free(roomy);
        assert_true(least < whole->info.min_budget);
        other.options.vram = least;
        same(whole, &other);
        other.options.vram = (least + whole->info.min_budget) / 2;
        same(whole, &other);
    }
    free(whole);
}

static void tiers(void **state)
{
    struct job j = job_of("fp32");

    (void)state;
    check_tiers(&j);
    j = job_of("bf16");
    j.options.state = "8bit";
    j.options.micro_batch = 2;
    check_tiers(&j);
}

static void adapters(void **state)
{
    static const char *const codes[] = {NULL, "int8", "nf4"};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct job j = job_of(k ? "bf16" : "fp32");
        j.rank_of_adapters = 4;
        j.frozen = codes[k];
        j.options.micro_batch = k == 1 ? 4 : 0;
        check_budgets(&j);
    }
}

static void resumes(void **state)
{
    static const char *const names[] = {"fp32", "bf16"};
    char path[100];

    (void)state;
    snprintf(path, sizeof path, "%s/state", folder);
    for (int k = 0; k < 4; k++) {
        struct job j = job_of(names[k % 2]);
        j.options.state = k % 2 ? "8bit" : "fp32";
        j.rank_of_adapters = k / 2 * 4;
        j.frozen = k == 3 ? "nf4" : NULL;
        if (k == 3)
            j.options.state = NULL;
        struct member *whole = run(&j);
        struct job part = j;
        part.steps = HALF;
        part.saved = path;
        free(run(&part));
        part = j;
        part.first = HALF;
        part.steps = STEPS - HALF;
        part.resumed = path;
        part.options.vram = whole->info.min_budget;
        same(whole, &part);
        free(whole);
    }
}

/* ---- ranks and micro-batches ----------------------------------------------------------------- */

/* Two ranks: the same bits at every stage and under a budget; those of one rank up to rounding. */
static void check_ranks(const struct job *one, double loss, double mean)
{
    struct job two = *one;

    two.ranks = 2;
    two.zero = 1;
    struct member *alone = run(one), *first = run(&two);
    near(alone, &two, loss, mean);
    for (two.zero = 2; two.zero <= 3; two.zero++)
        same(first, &two);
    two.options.vram = first->info.min_budget;
    same(first, &(struct job){.name = two.name,
                              .options = two.options,
                              .ranks = 2,
                              .zero = 1,
                              .rank_of_adapters = two.rank_of_adapters,
                              .frozen = two.frozen,
                              .steps = STEPS});
    free(alone);
    free(first);
}

static void ranks(void **state)
{
    struct job j = job_of("fp32");

    (void)state;
    check_ranks(&j, 1e-6, 1e-6);
    j.rank_of_adapters = 4;
    check_ranks(&j, 1e-6, 1e-6);
    j = job_of("bf16");
    j.options.state = "8bit";
    check_ranks(&j, 2e-3, 1e-3);
    j = job_of("bf16");
    j.rank_of_adapters = 4;
    j.frozen = "nf4";
    check_ranks(&j, 2e-3, 1e-3);
}

static void micro_batches(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct job j = job_of(k ? "bf16" : "fp32");
        struct member *whole = run(&j);
        for (j.options.micro_batch = 1; j.options.micro_batch < BATCH; j.options.micro_batch *= 2)
            near(whole, &j, k ? 2e-3 : 1e-6, k ? 1e-3 : 1e-6);
        j.options.micro_batch = CKPT_AUTO;
        near(whole, &j, k ? 2e-3 : 1e-6, k ? 1e-3 : 1e-6);
        free(whole);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static int unpack(void)
{
    const char *srcdir = getenv("srcdir");
    char command[1000];

    snprintf(command, sizeof command,
             "for n in fp32 bf16; do gzip -dc '%s'/tests/import/crossed/$n.pt2.gz >%s/$n.pt2 || "
             "exit 1; done",
             srcdir ? srcdir : ".", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers), cmocka_unit_test(adapters),      cmocka_unit_test(resumes),
        cmocka_unit_test(ranks), cmocka_unit_test(micro_batches),
    };
    char command[100];

    if (!mkdtemp(folder) || unpack())
        return 99;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || failed;
}
