/*
 * Where bytes wait between their uses changes no number: losses, norms, weights and optimizer state
 * after eight steps are the same bits when all is resident, recomputed, or parked on the host, on
 * NVMe or on both, in every place where the rules of plans allow it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "exec/program.h"
#include "force.h"

enum { STEPS = 8, LAYERS = 3, PARAMS = 2 * LAYERS + 3, SLOTS = 4, BATCH = 24 };

struct net {
    enum ckpt_dtype dtype;
    int64_t width;
    ckpt_tensor param[PARAMS];
};

static void net_create(struct net *m, ckpt *c)
{
    int64_t w = m->width, square[] = {w, w};
    char name[32];
    m->param[0] = ckpt_param(c, "in.weight", m->dtype, 2, square, CKPT_XAVIER, true);
    m->param[1] = ckpt_param(c, "out.weight", m->dtype, 2, square, CKPT_XAVIER, true);
    m->param[2] = ckpt_param(c, "frozen", m->dtype, 1, &w, CKPT_NORMAL(0.5f), false);
    for (int l = 0; l < LAYERS; l++) {
        snprintf(name, sizeof name, "layers.%d.weight", l);
        m->param[3 + 2 * l] = ckpt_param(c, name, m->dtype, 2, square, CKPT_XAVIER, true);
        snprintf(name, sizeof name, "layers.%d.bias", l);
        m->param[4 + 2 * l] = ckpt_param(c, name, m->dtype, 1, &w, CKPT_NORMAL(0.1f), true);
    }
}

static ckpt_tensor net_record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    int64_t shape[] = {batch, m->width};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, shape);
    ckpt_tensor noise = ckpt_affine(t, ckpt_randn(t, CKPT_F32, 2, shape), 0.1f, 0.f);
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, ckpt_add(t, x, noise), m->dtype), m->param[0],
                                CKPT_NONE);
    for (int l = 0; l < LAYERS; l++) {
        ckpt_label(t, "layers.%d", l);
        ckpt_tensor u = ckpt_mul(t, ckpt_layer_norm(t, h, 1e-6f), m->param[2]);
        u = ckpt_linear(t, ckpt_gelu(t, u), m->param[3 + 2 * l], m->param[4 + 2 * l]);
        h = ckpt_add(t, h, u);
    }
    ckpt_output(t, "h", h);
    h = ckpt_linear(t, ckpt_layer_norm(t, h, 1e-6f), m->param[1], CKPT_NONE);
    return ckpt_mse(t, h, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

/* ---- a run ---------------------------------------------------------------------------------- */

struct run {
    struct net net;
    struct ckpt_options options;
    struct ckpt_adamw adamw;
    float loss[STEPS];
    double norm;
    float *state; /* of all slots of all parameters */
    int64_t numel;
};

static void feed(ckpt_program *p, const struct run *r, int step)
{
    int64_t n = BATCH * r->net.width;
    float *x = malloc((size_t)n * sizeof *x);
    ckpt_fill_normal(7, (uint64_t)step, 1, x, n);
    assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
    free(x);
}

static void open_run(struct run *r, ckpt **c, ckpt_program **p)
{
    if (ckpt_open(c, &r->options))
        fail_msg("%s", ckpt_error(NULL));
    net_create(&r->net, *c);
    if (ckpt_compile(*c, net_record, &r->net, &r->adamw, BATCH, p))
        fail_msg("%s", ckpt_error(*c));
}

/* Steps [from, to), two under way. */
static void train(struct run *r, ckpt *c, ckpt_program *p, int from, int to)
{
    for (int s = from; s <= to; s++) {
        if (s < to) {
            feed(p, r, s);
            if (ckpt_submit(p))
                fail_msg("%s", ckpt_error(c));
        }
        if (s > from && ckpt_wait(p, &r->loss[s - 1]))
            fail_msg("%s", ckpt_error(c));
    }
    r->norm = p->grad_norm;
}

static void collect(struct run *r, ckpt *c)
{
    r->numel = 0;
    r->state = calloc((size_t)(PARAMS * SLOTS * r->net.width * r->net.width), sizeof(float));
    for (int i = 0; i < PARAMS; i++) {
        struct ckpt_param_info info;
        ckpt_param_info(c, r->net.param[i], &info);
        for (int s = CKPT_VALUE; s <= (info.trainable ? CKPT_EMA : CKPT_VALUE); s++) {
            int rc = ckpt_param_get(c, r->net.param[i], (enum ckpt_slot)s, r->state + r->numel,
                                    info.numel);
            if (rc)
                fail_msg("%s", ckpt_error(c));
            r->numel += info.numel;
        }
    }
}

static void run_through(struct run *r)
{
    ckpt *c;
    ckpt_program *p;
    open_run(r, &c, &p);
    train(r, c, p, 0, STEPS);
    collect(r, c);
    ckpt_close(c);
}

static void path_of(char *path, size_t size, const char *what)
{
    snprintf(path, size, "test_exactness.%d.%s", (int)getpid(), what);
}

static void load_slot(struct run *r, ckpt *c, const char *path, enum ckpt_slot slot)
{
    ckpt_file *f;
    assert_int_equal(ckpt_file_open(&f, path), 0);
    for (int i = 0; i < PARAMS; i++) {
        struct ckpt_param_info info;
        ckpt_param_info(c, r->net.param[i], &info);
        if (!info.trainable)
            continue;
        float *values = malloc((size_t)info.numel * sizeof *values);
        assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, info.name), values, info.numel),
                         0);
        assert_int_equal(ckpt_param_set(c, r->net.param[i], slot, values, info.numel), 0);
        free(values);
    }
    ckpt_file_close(f);
}

/* The first half of the steps, a save, and the rest in a new context. */
static void run_in_halves(struct run *r)
{
    static const char *const names[] = {"value", "exp_avg", "exp_avg_sq", "ema"};
    char path[SLOTS][64];
    ckpt *c;
    ckpt_program *p;
    open_run(r, &c, &p);
    train(r, c, p, 0, STEPS / 2);
    for (int s = 0; s < SLOTS; s++) {
        path_of(path[s], sizeof path[s], names[s]);
        if (ckpt_save(c, path[s], (enum ckpt_slot)s))
            fail_msg("%s", ckpt_error(c));
    }
    ckpt_close(c);
    open_run(r, &c, &p);
    if (ckpt_load(c, path[0], NULL, NULL, NULL))
        fail_msg("%s", ckpt_error(c));
    for (int s = 1; s < SLOTS; s++)
        load_slot(r, c, path[s], (enum ckpt_slot)s);
    for (int s = 0; s < SLOTS; s++)
        unlink(path[s]);
    c->updates = p->steps = p->submitted = STEPS / 2;
    train(r, c, p, STEPS / 2, STEPS);
    collect(r, c);
    ckpt_close(c);
}

static void expect_same(const struct run *a, const struct run *b, const char *what)
{
    if (a->numel != b->numel || memcmp(a->loss, b->loss, sizeof a->loss) ||
        memcmp(&a->norm, &b->norm, sizeof a->norm) ||
        memcmp(a->state, b->state, (size_t)a->numel * sizeof *a->state))
        fail_msg("%s: other numbers than with all resident; losses %g ... %g, %g ... %g", what,
                 (double)a->loss[0], (double)a->loss[STEPS - 1], (double)b->loss[0],
                 (double)b->loss[STEPS - 1]);
}

/* ---- the matrix ----------------------------------------------------------------------------- */

static struct run make_run(enum ckpt_dtype dtype, int64_t width, int64_t n_micro, bool clip)
{
    struct run r = {.net = {.dtype = dtype, .width = width},
                    .options = CKPT_OPTIONS_INIT,
                    .adamw = CKPT_ADAMW_INIT};
    r.options.device = "cpu";
    r.options.threads = 1;
    r.options.micro_batch = BATCH / n_micro;
    r.options.verify = true;
    r.adamw.lr = 1e-2f;
    r.adamw.weight_decay = 0.01f;
    r.adamw.ema_decay = 0.9f;
    r.adamw.clip_norm = clip ? 0.3f : 0.f;
    return r;
}

/* Parks all that can be parked, or most of it, of the plan that run r would have. */
static void force(const struct run *r, const struct force *f, const char *path,
                  struct budgets *tiers, struct force_count *count)
{
    struct run base = *r;
    struct plan *forced;
    char message[CKPT_MESSAGE];
    ckpt *c;
    ckpt_program *p;
    base.options.plan_only = true;
    open_run(&base, &c, &p);
    assert_int_equal(force_parks(p->graph, p->plan, f, &forced), 0);
    if (plan_check(p->graph, forced, message) || plan_write(p->graph, forced, path, message))
        fail_msg("%s", message);
    *tiers = forced->budgets;
    force_count(p->graph, forced, count);
    plan_free(forced);
    ckpt_close(c);
}

static void expect_parks(const struct force *f, const struct force_count *n, int64_t n_micro)
{
    const bool used[] = {[TIER_HOST] = f->host, [TIER_NVME] = f->nvme};
    for (int t = 0; t < TIER_COUNT; t++) {
        assert_int_equal(n->persistent[t] > 0, used[t]);
        assert_int_equal(n->activations[t] > 0, used[t]);
    }
    assert_true(n->clean > 0);
    assert_int_equal(n->crossing > 0, n_micro == 1);
}

static void check_parked(const struct run *resident, int64_t n_micro, const struct force *f)
{
    struct run r = *resident;
    struct budgets tiers;
    struct force_count count;
    char path[64], nvme[64], what[64];
    path_of(path, sizeof path, "plan");
    force(resident, f, path, &tiers, &count);
    expect_parks(f, &count, n_micro);
    snprintf(nvme, sizeof nvme, ".:%lld", (long long)max_i64(tiers.nvme, 1 << 20));
    snprintf(what, sizeof what, "host %d, nvme %d, seed %d", f->host, f->nvme, (int)f->seed);
    r.options.host = tiers.host;
    r.options.nvme = tiers.nvme ? nvme : NULL;
    r.options.plan_in = path;
    if (f->seed % 2)
        run_in_halves(&r);
    else
        run_through(&r);
    expect_same(resident, &r, what);
    free(r.state);
    unlink(path);
}

static void check_recompute(const struct run *resident)
{
    struct run r = *resident;
    struct ckpt_program_info info;
    ckpt *c;
    ckpt_program *p;
    r.options.plan_only = true;
    open_run(&r, &c, &p);
    ckpt_program_info(p, &info);
    ckpt_close(c);
    r.options.plan_only = false;
    r.options.vram = info.min_budget;
    open_run(&r, &c, &p);
    ckpt_program_info(p, &info);
    assert_true(info.recomputed_ops > 0);
    train(&r, c, p, 0, STEPS);
    collect(&r, c);
    ckpt_close(c);
    expect_same(resident, &r, "recompute");
    free(r.state);
}

static void check_all(enum ckpt_dtype dtype, int64_t width)
{
    for (int k = 0; k < 4; k++) {
        int64_t n_micro = k & 1 ? 3 : 1;
        struct run r = make_run(dtype, width, n_micro, k & 2), halves = r;
        run_through(&r);
        run_in_halves(&halves);
        expect_same(&r, &halves, "resumed");
        check_recompute(&r);
        for (int tiers = 1; tiers < 4; tiers++)
            for (uint64_t seed = 0; seed < 2; seed++)
                check_parked(&r, n_micro,
                             &(struct force){.seed = seed + 2 * (uint64_t)tiers,
                                             .host = tiers & 1,
                                             .nvme = tiers & 2,
                                             .all = seed == 0});
        free(r.state);
        free(halves.state);
    }
}

static void test_fp32_even(void **state)
{
    (void)state;
    check_all(CKPT_F32, 32);
}

static void test_fp32_odd(void **state)
{
    (void)state;
    check_all(CKPT_F32, 37);
}

static void test_bf16_even(void **state)
{
    (void)state;
    check_all(CKPT_BF16, 32);
}

static void test_bf16_odd(void **state)
{
    (void)state;
    check_all(CKPT_BF16, 37);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32_even),
        cmocka_unit_test(test_fp32_odd),
        cmocka_unit_test(test_bf16_even),
        cmocka_unit_test(test_bf16_odd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
