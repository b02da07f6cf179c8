/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipeline stages, against one rank with the same micro-steps: bits of losses and weights, budgets
 * and tiers, states that another number of stages resumes, and what is refused.  Several pipelines,
 * against as many ranks.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "collective.h"
#include "dist/pipeline_model.h"
#include "exec/program.h"
#include "unit/test_directory.h"

static int fetch(struct member *m, ckpt *c)
{
    int rc = 0;
    for (int k = 0; k < PARAMS && !rc; k++) {
        m->value[k] = calloc((size_t)numel(k), sizeof(float));
        m->moment[k] = calloc((size_t)numel(k), sizeof(float));
        rc = ckpt_param_get(c, m->param[k], CKPT_VALUE, m->value[k], numel(k));
        if (!rc && !m->frozen && !(m->tied && k == HEAD))
            rc = ckpt_param_get(c, m->param[k], CKPT_EXP_AVG_SQ, m->moment[k], numel(k));
    }
    return rc;
}

/* A weight of the third layer overflows its product. */
static int poison(struct member *m, ckpt *c)
{
    static float large[2 * WIDTH * WIDTH];
    for (int i = 0; i < 2 * WIDTH * WIDTH; i++)
        large[i] = 3e38f;
    return ckpt_param_set(c, m->param[FIRST + 2 * PER_LAYER + UP], CKPT_VALUE, large,
                          2 * WIDTH * WIDTH);
}

static void note_transfers(struct member *m, const ckpt_program *p)
{
    uint64_t keys[TRANSFERS];
    for (int32_t i = 0; i < p->graph->n_ops; i++) {
        const struct graph_op *o = &p->graph->ops[i];
        const bool sends = o->collective == GRAPH_SEND;
        if ((!sends && o->collective != GRAPH_RECEIVE) || m->n_transfers == TRANSFERS)
            continue;
        const struct stage_attr *attr = p->tape->ops.data[o->tape_op].attr;
        struct transfer *t = &m->transfers[m->n_transfers];
        *t = (struct transfer){
            sends, sends ? !attr->back : attr->back, true,
            p->graph->storages[p->graph->refs[sends ? o->reads : o->writes]].bytes};
        for (int k = 0; k < m->n_transfers; k++)
            t->first &= keys[k] != o->cost_key;
        keys[m->n_transfers++] = o->cost_key;
    }
}

/* The loss and the last activations of samples that no step has. */
static int measure(struct member *m, ckpt *c, float *loss)
{
    const int64_t bytes = SAMPLES * LENGTH * WIDTH * (m->dtype == CKPT_BF16 ? 2 : 4);
    m->last = m->last ? m->last : calloc(1, (size_t)bytes);
    int rc = feed(m->measure, 1000, ckpt_sample_group(c), 1);
    rc = rc ? rc : ckpt_step(m->measure, loss);
    return rc ? rc : ckpt_fetch(m->measure, "last", m->last, bytes);
}

static int train(struct member *m, ckpt *c)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    make(m, c);
    adamw.lr = 1e-2f;
    adamw.clip_norm = m->clip;
    adamw.ema_decay = .9f;
    ckpt_optimizer *o = ckpt_adamw(c, &adamw);
    int rc = m->first ? ckpt_compile(c, record_measure, m, NULL, SAMPLES, &m->measure) : 0;
    rc = rc ? rc : compile(m, c, o, &p);
    if (!rc && m->valid && !m->first)
        rc = ckpt_compile(c, record_measure, m, NULL, SAMPLES, &m->measure);
    if (!rc)
        note_transfers(m, p);
    if (!rc && m->late)
        rc = refuse_late(c, p);
    if (!rc && m->load)
        rc = ckpt_load_state(c, m->load);
    for (int s = m->begin; s < m->steps && !rc; s++) {
        rc = m->valid ? measure(m, c, &m->valid_losses[2 * s]) : 0;
        rc = rc ? rc : feed(p, s, ckpt_sample_group(c), m->batches ? m->batches : 1);
        if (!rc && s == m->nan_step && s)
            rc = poison(m, c);
        if (!rc)
            rc = ckpt_step(p, &m->losses[s]);
        if (!rc && m->wrong && m->wrong == m->as.rank)
            rc = change(c);
        if (!rc && m->valid)
            rc = measure(m, c, &m->valid_losses[2 * s + 1]);
    }
    m->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    if (!rc)
        rc = ckpt_program_info(p, &m->info);
    m->norm = m->info.grad_norm;
    for (int k = 0; k < c->params.n && !rc; k++)
        m->mine += c->params.data[k].place.filled[SLOT_VALUE];
    for (int k = 0; k < PARAMS && !rc; k++)
        m->resident += c->params.data[k].place.initial ? numel(k) : 0;
    if (!rc)
        rc = fetch(m, c);
    return !rc && m->save ? ckpt_save_state(c, m->save) : rc;
}

static void *work(void *arg)
{
    struct member *m = arg;
    ckpt *c = rank_open(&m->as, m->options, m->zero, 0);
    if (!c)
        return NULL;
    if (m->unlike && be_unlike(m, c))
        fail_msg("no way through the host");
    ckpt_plan_in_full(c, m->in_full);
    m->code = train(m, c);
    snprintf(m->sentence, sizeof m->sentence, "%s", m->code ? ckpt_error(c) : "");
    ckpt_close(c);
    return NULL;
}

static struct member small(void)
{
    return (struct member){.options = CKPT_OPTIONS_INIT, .micro = 2, .steps = STEPS};
}

static void run(struct member *m, const struct member *what, int stages)
{
    const int n = stages * (what->pipelines ? what->pipelines : 1);
    for (int r = 0; r < n; r++) {
        m[r] = *what;
        m[r].options.stages = stages;
        m[r].options.micro_batch = what->micro;
        m[r].options.vram = what->vram[r];
        m[r].options.machine = what->machine[r];
    }
    run_ranks(m, sizeof *m, n, 0, work);
}

static void expect_end(const struct member *m, int stages)
{
    for (int r = 0; r < stages; r++)
        if (m[r].code)
            fail_msg("rank %d: %s", r, m[r].sentence);
}

static void release(struct member *m, int n)
{
    for (int r = 0; r < n; r++) {
        free(m[r].last);
        for (int k = 0; k < PARAMS; k++) {
            free(m[r].value[k]);
            free(m[r].moment[k]);
        }
    }
}

/* The largest difference of values; 0: the same bits. */
static double distance(const struct member *a, const struct member *b)
{
    double most = 0;
    for (int k = 0; k < PARAMS; k++)
        for (int64_t i = 0; i < numel(k); i++) {
            most = fmax(most, fabs(a->value[k][i] - b->value[k][i]));
            most = fmax(most, fabs(a->moment[k][i] - b->moment[k][i]));
        }
    return most;
}

static void compare(const struct member *what, int stages, double most)
{
    static struct member one[1], all[MOST];
    run(one, what, 1);
    expect_end(one, 1);
    run(all, what, stages);
    expect_end(all, stages);
    int mine = 0;
    for (int r = 0; r < stages; r++) {
        const double d = distance(one, &all[r]);
        if (!(d <= most))
            fail_msg("%d stages, rank %d: %g from one rank", stages, r, d);
        for (int s = one->begin; s < one->steps; s++) /* here a sum in fp32, there in double */
            assert_true(fabs(all[r].losses[s] - one->losses[s]) <= 1e-6 * one->losses[s] + most);
        assert_true(fabs(all[r].norm - one->norm) <= 1e-6 * one->norm + most);
        assert_int_equal(all[r].resident, 0);
        mine += all[r].mine;
    }
    assert_int_equal(mine, one->mine);
    release(one, 1);
    release(all, stages);
}

/* What passes through host memory keeps its bits; so do norms and clipping by it. */
static void check_unlike(void **state)
{
    struct member m = small();
    (void)state;
    m.unlike = true;
    compare(&m, 2, 0);
    m.dtype = CKPT_BF16;
    compare(&m, 3, 0);
    m.dtype = CKPT_F32;
    m.clip = .1f;
    compare(&m, 4, 1e-5);
}

static void check_bits(void **state)
{
    struct member m = small();
    (void)state;
    compare(&m, 2, 0);
    compare(&m, 4, 0); /* as many micro-steps */
    m.micro = 1;
    compare(&m, 3, 0);
    m.micro = SAMPLES; /* one passes from stage to stage */
    compare(&m, 3, 0);
}

/* Random numbers follow from the op and the sample, wherever they are drawn. */
static void check_kinds(void **state)
{
    struct member m = small();
    (void)state;
    m.drops = true;
    compare(&m, 3, 0);
    m.dtype = CKPT_BF16;
    compare(&m, 3, 0);
    m.options.state = "bf16";
    compare(&m, 3, 0);
    m = small();
    m.frozen = true;
    compare(&m, 2, 0);
    m = small();
    m.clip = .1f; /* the norm adds sums of stages, so its last bits differ */
    compare(&m, 2, 1e-5);
}

/* The gradient of a head that is the embedding comes back through all stages. */
static void check_tied(void **state)
{
    struct member m = small();
    (void)state;
    m.tied = true;
    compare(&m, 2, 1e-5);
    compare(&m, 4, 1e-5);
}

/* Several pipelines train like as many ranks, and nearly like one rank with all samples. */
static void compare_pipelines(const struct member *what, int stages, double most)
{
    static struct member one[1], plain[MOST], all[MOST];
    const int groups = what->pipelines, n = stages * groups;
    struct member m = *what;
    m.zero = 0;
    run(plain, &m, 1);
    expect_end(plain, groups);
    m.pipelines = 1;
    m.batches = groups;
    run(one, &m, 1);
    expect_end(one, 1);
    run(all, what, stages);
    expect_end(all, n);
    for (int r = 0; r < n; r++) {
        const double d = distance(plain, &all[r]);
        if (!(d <= most))
            fail_msg("%d pipelines of %d stages, --zero %d: rank %d: %g from %d ranks", groups,
                     stages, what->zero, r, d, groups);
        assert_true(distance(one, &all[r]) <= 1e-3);
        for (int s = 0; s < what->steps; s++) {
            assert_true(fabs(all[r].losses[s] - plain->losses[s]) <=
                        1e-6 * plain->losses[s] + most);
            assert_true(fabs(all[r].losses[s] - one->losses[s]) <= 1e-4 * one->losses[s]);
        }
        assert_true(fabs(all[r].norm - plain->norm) <= 1e-5 * plain->norm + most);
    }
    release(one, 1);
    release(plain, groups);
    release(all, n);
}

static void check_pipelines(void **state)
{
    struct member m = small();
    (void)state;
    m.pipelines = 2;
    for (m.zero = 0; m.zero <= 3; m.zero++)
        compare_pipelines(&m, 2, 0);
    m.zero = 2;
    m.drops = true;
    m.dtype = CKPT_BF16;
    compare_pipelines(&m, 3, 0);
    m.options.state = "bf16";
    compare_pipelines(&m, 2, 0);
    m = small();
    m.pipelines = 3;
    m.zero = 1;
    m.micro = SAMPLES;
    compare_pipelines(&m, 2, 0);
    m.pipelines = 2;
    m.zero = 3;
    m.micro = 2;
    m.clip = .1f;
    m.tied = true;
    compare_pipelines(&m, 3, 1e-5);
    m = small();
    m.pipelines = 2;
    m.frozen = true;
    compare_pipelines(&m, 2, 0);
}

/* Programs that do not train have the losses and outputs of plain ranks, on all stages. */
static void check_measures(void **state)
{
    static struct member plain[MOST], all[MOST];
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct member m = small();
        m.valid = true;
        m.first = i == 1;
        m.tied = i == 2;
        m.averaged = i > 1;
        m.dtype = i == 3 ? CKPT_BF16 : CKPT_F32;
        m.pipelines = 1 + i % 2;
        m.zero = m.pipelines > 1 ? i : 0;
        const int stages = 3 - i % 2;
        run(plain, &m, 1);
        expect_end(plain, m.pipelines);
        run(all, &m, stages);
        expect_end(all, stages * m.pipelines);
        for (int r = 0; r < stages * m.pipelines; r++) {
            const struct member *own = &plain[r / stages];
            const size_t bytes = SAMPLES * LENGTH * WIDTH * (i == 3 ? 2 : 4);
            assert_true(distance(plain, &all[r]) <= (m.tied ? 1e-5 : 0));
            if (!m.tied)
                assert_memory_equal(own->last, all[r].last, bytes);
            for (int s = 0; s < 2 * STEPS; s++)
                assert_true(fabs(own->valid_losses[s] - all[r].valid_losses[s]) <=
                            (m.tied ? 1e-5 : 0));
        }
        release(plain, m.pipelines);
        release(all, stages * m.pipelines);
    }
}

/* A state of pipelines continues on ranks without stages, and as other pipelines, and the reverse,
 * to the same bits. */
static void check_shapes(void **state)
{
    static struct member whole[MOST], first[MOST], second[MOST];
    static const int shapes[][3] = {{2, 1, 0}, {1, 2, 2}, {3, 3, 1}, {2, 2, 1}}; /* stages, zero */
    struct member m = small();
    (void)state;
    m.drops = true;
    m.dtype = CKPT_BF16;
    m.pipelines = 2;
    run(whole, &m, 1);
    expect_end(whole, 2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct member a = m, b = m;
        const int to = shapes[i][1];
        a.steps = b.begin = STEPS / 2;
        a.save = b.load = path;
        a.zero = shapes[i][2];
        b.zero = 3 - a.zero;
        run(first, &a, shapes[i][0]);
        expect_end(first, 2 * shapes[i][0]);
        run(second, &b, to);
        expect_end(second, 2 * to);
        for (int r = 0; r < 2 * to; r++)
            assert_true(distance(whole, &second[r]) == 0);
        release(first, 2 * shapes[i][0]);
        release(second, 2 * to);
        assert_int_equal(ckpt_file_remove(path), 0);
    }
    release(whole, 2);
}

static struct transfer *turn(struct member *m, int *at, bool warms)
{
    while (warms && *at < m->n_transfers && !m->transfers[*at].first)
        ++*at;
    return *at < m->n_transfers ? &m->transfers[*at] : NULL;
}

/* Each stage waits in a transfer until the other side is there, as on a GPU: all must get through,
 * those of a step and those of a warm-up, which has one of each kind. */
static int meet(struct member *m, int stages, bool warms)
{
    int at[MOST] = {0}, met = 0;
    for (int r = 0; r < stages - 1; r++) {
        struct transfer *a = turn(&m[r], &at[r], warms), *b = turn(&m[r + 1], &at[r + 1], warms);
        if (!a || !b || !a->next || b->next)
            continue;
        assert_true(a->sends != b->sends);
        assert_int_equal(a->bytes, b->bytes);
        at[r]++;
        at[r + 1]++;
        met++;
        r = -1;
    }
    for (int r = 0; r < stages; r++)
        assert_null(turn(&m[r], &at[r], warms));
    return met;
}

static void check_transfers(void **state)
{
    static struct member all[MOST];
    struct member m = small();
    (void)state;
    m.micro = 1;
    m.tied = true;
    run(all, &m, 4);
    expect_end(all, 4);
    /* at least an activation and, for the head, the embedding cross each cut; both have gradients
     */
    const int met = meet(all, 4, false), warm = meet(all, 4, true);
    assert_true(met >= SAMPLES * 3 * 4 && met % SAMPLES == 0);
    assert_true(warm >= 3 * 4 && warm <= met / SAMPLES);
    release(all, 4);
}

/* Each stage plans for its own budget, and none changes a bit. */
static void check_budgets(void **state)
{
    static struct member unlimited[MOST], all[MOST];
    struct member m = small();
    (void)state;
    m.in_full = true;
    m.micro = 1;
    run(unlimited, &m, 3);
    expect_end(unlimited, 3);
    for (int r = 0; r < 3; r++)
        m.vram[r] = unlimited[r].info.min_budget;
    run(all, &m, 3);
    expect_end(all, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(all[r].info.planned_peak <= m.vram[r]);
        assert_true(all[r].info.planned_peak < unlimited[r].info.planned_peak);
        assert_true(all[r].info.recomputed_ops > 0);
        assert_true(distance(&unlimited[r], &all[r]) == 0);
    }
    release(all, 3);
    release(unlimited, 3);
}

/* Every rank ends, with a sentence that has the words. */
static void expect_refused(const struct member *m, int stages, const char *words)
{
    static struct member all[MOST];
    const int n = stages * (m->pipelines ? m->pipelines : 1);
    run(all, m, stages);
    for (int r = 0; r < n; r++)
        if (!all[r].code || !strstr(all[r].sentence, words))
            fail_msg("rank %d: \"%s\", without \"%s\"", r, all[r].sentence, words);
    release(all, n);
}

/* The ranks of a stage have one plan, for the least memory of them. */
static void check_least(void **state)
{
    static struct member unlimited[MOST], all[MOST];
    struct member m = small();
    (void)state;
    m.in_full = true;
    m.pipelines = 2;
    m.zero = 1;
    run(unlimited, &m, 2);
    expect_end(unlimited, 4);
    m.vram[2] = unlimited[2].info.min_budget;
    run(all, &m, 2);
    expect_end(all, 4);
    assert_true(all[2].info.planned_peak <= m.vram[2]);
    assert_true(all[0].info.planned_peak == all[2].info.planned_peak);
    assert_true(all[1].info.planned_peak == unlimited[1].info.planned_peak);
    for (int r = 0; r < 4; r++)
        assert_true(distance(&unlimited[r], &all[r]) == 0);
    release(unlimited, 4);
    release(all, 4);
}

/* The ranks of a stage wait for the plan of the first.  What they hold is compared; a difference
 * ends all. */
static void check_difference(void **state)
{
    static struct member all[MOST];
    struct member m = small();
    (void)state;
    m.pipelines = 2;
    m.late = true;
    run(all, &m, 2);
    for (int r = 0; r < 4; r++)
        assert_int_equal(all[r].code, CKPT_EBUDGET);
    release(all, 4);
    m.late = false;
    m.wrong = 3;
    expect_refused(&m, 2, "stage 2, whose rank of pipeline n is rank n here: ");
}

/* A head so large that its state is updated alone: the last stage keeps that on the host. */
static void check_tier(void **state)
{
    static struct member unlimited[MOST], all[MOST];
    struct member m = small();
    (void)state;
    classes = 1 << 16;
    m.micro = 4;
    m.steps = 2;
    run(unlimited, &m, 2);
    expect_end(unlimited, 2);
    m.vram[1] = unlimited[1].info.planned_peak * 9 / 10;
    m.options.host = 1 << 30;
    run(all, &m, 2);
    expect_end(all, 2);
    assert_true(all[1].info.host_bytes > 0);
    for (int r = 0; r < 2; r++)
        assert_true(distance(&unlimited[r], &all[r]) == 0);
    release(all, 2);
    release(unlimited, 2);
    classes = CLASSES;
}

/* A state is that of the whole model, whatever stages wrote it. */
static void check_resume(void **state)
{
    static struct member whole[1], first[MOST], second[MOST];
    static const int to[] = {1, 4, 2}, steps[] = {STEPS / 2, STEPS / 2, 0};
    struct member m = small();
    (void)state;
    m.drops = true;
    run(whole, &m, 1);
    expect_end(whole, 1);
    for (int i = 0; i < 3; i++) {
        struct member a = m, b = m;
        a.steps = b.begin = steps[i];
        a.save = b.load = path;
        run(first, &a, 3);
        expect_end(first, 3);
        run(second, &b, to[i]);
        expect_end(second, to[i]);
        for (int r = 0; r < to[i]; r++)
            assert_true(distance(whole, &second[r]) == 0);
        release(first, 3);
        release(second, to[i]);
        assert_int_equal(ckpt_file_remove(path), 0); /* with its parts */
    }
    release(whole, 1);
}

/* Of two stages one has too little memory for its half: the cut moves, and no bit changes. */
static void check_cut(void **state)
{
    static struct member equal[MOST], all[MOST];
    struct member m = small();
    (void)state;
    m.in_full = true;
    run(equal, &m, 2);
    expect_end(equal, 2);
    m.variants = true;
    for (int little = 0; little < 2; little++) {
        m.vram[little] = equal[little].info.min_budget * 3 / 4;
        m.vram[!little] = 0;
        run(all, &m, 2);
        expect_end(all, 2);
        assert_true(all[little].info.planned_peak <= m.vram[little]);
        assert_true(all[little].mine < equal[little].mine);
        assert_int_equal(all[0].mine + all[1].mine, PARAMS);
        for (int r = 0; r < 2; r++) {
            assert_true(distance(&equal[0], &all[r]) == 0);
            assert_int_equal(all[r].chosen, 0);
            assert_true(all[r].forecast.step_seconds == all[0].info.step_seconds);
            assert_true(all[r].forecast.planned_peak >= all[r].info.planned_peak);
        }
        assert_int_equal(all[0].forecast.planned_peak, all[1].forecast.planned_peak);
        release(all, 2);
    }
    m.variants = false;
    m.vram[0] = m.vram[1] = equal[1].info.min_budget / 4; /* the model does not fit both */
    expect_refused(&m, 2, "no cut fits the memory of all ranks; of the balanced one stage");
    release(equal, 2);
}

/* A rank whose machine is slower gets fewer layers. */
static void check_speeds(void **state)
{
    static struct member equal[MOST], all[MOST];
    struct machine slow = machine_cpu;
    char file[300];
    struct member m = small();
    (void)state;
    snprintf(file, sizeof file, "%s.json", path);
    slow.flops /= 4;
    assert_int_equal(machine_write(&slow, file), 0);
    run(equal, &m, 2);
    expect_end(equal, 2);
    m.machine[1] = file;
    run(all, &m, 2);
    expect_end(all, 2);
    assert_true(all[1].mine < equal[1].mine);
    assert_true(distance(&equal[0], &all[0]) == 0);
    release(all, 2);
    release(equal, 2);
    assert_int_equal(unlink(file), 0);
}

/* One cut fits: two layers on the first rank, and three with large activations on the other.  The
 * first one that is planned has the activations on the first rank. */
static void check_wide(void **state)
{
    static struct member only[MOST], all[MOST];
    struct machine slow = machine_cpu;
    struct member m = small();
    char file[300];
    (void)state;
    snprintf(file, sizeof file, "%s.json", path);
    slow.flops /= 4;
    assert_int_equal(machine_write(&slow, file), 0);
    m.in_full = true;
    m.wide = 320;
    m.machine[0] = file;
    run(only, &m, 2);
    expect_end(only, 2);
    assert_true(only[0].info.min_budget < only[1].info.min_budget / 2);
    m.machine[0] = NULL;
    m.machine[1] = file;
    for (int r = 0; r < 2; r++)
        m.vram[r] = only[r].info.min_budget * 101 / 100;
    run(all, &m, 2);
    expect_end(all, 2);
    assert_true(distance(&only[0], &all[0]) == 0);
    assert_int_equal(only[0].mine, all[0].mine);
    m.vram[1] = only[1].info.min_budget * 95 / 100;
    expect_refused(&m, 2, "no cut fits the memory of all ranks; of the balanced one stage");
    release(all, 2);
    release(only, 2);
    assert_int_equal(unlink(file), 0);
}

static void check_refused(void **state)
{
    struct member m = small();
    (void)state;
    m.outputs = true;
    expect_refused(&m, 2, "output 'last'");
    m = small();
    m.vram[1] = 1 << 14;
    expect_refused(&m, 2, "of the balanced one stage 2, on rank 1: no plan fits 16.00 KiB");
}

/* The sentence of each rank names the stage where the value came up. */
static void check_nan(void **state)
{
    struct member m = small();
    (void)state;
    m.nan_step = 2;
    expect_refused(&m, 3, ") on rank 1; the weights");
    m.pipelines = 2;
    m.zero = 2;
    expect_refused(&m, 3, ") on rank 1; the weights");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_bits),       cmocka_unit_test(check_unlike),
        cmocka_unit_test(check_kinds),      cmocka_unit_test(check_tied),
        cmocka_unit_test(check_wide),       cmocka_unit_test(check_transfers),
        cmocka_unit_test(check_budgets),    cmocka_unit_test(check_tier),
        cmocka_unit_test(check_resume),     cmocka_unit_test(check_refused),
        cmocka_unit_test(check_nan),        cmocka_unit_test(check_cut),
        cmocka_unit_test(check_speeds),     cmocka_unit_test(check_pipelines),
        cmocka_unit_test(check_measures),   cmocka_unit_test(check_least),
        cmocka_unit_test(check_difference), cmocka_unit_test(check_shapes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
