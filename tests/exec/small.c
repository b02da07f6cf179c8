/* SPDX-License-Identifier: Apache-2.0 */
/* Training a small network: see small.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "small.h"

static void net_create(struct small *m, ckpt *c)
{
    int64_t w = m->width, square[] = {w, w};
    char name[32];
    m->param[0] = ckpt_param(c, "in.weight", m->dtype, 2, square, CKPT_XAVIER, true);
    m->param[1] = ckpt_param(c, "out.weight", m->dtype, 2, square, CKPT_XAVIER, true);
    m->param[2] = ckpt_param(c, "frozen", m->dtype, 1, &w, CKPT_NORMAL(0.5f), false);
    for (int l = 0; l < SMALL_LAYERS; l++) {
        snprintf(name, sizeof name, "layers.%d.weight", l);
        m->param[3 + 2 * l] = ckpt_param(c, name, m->dtype, 2, square, CKPT_XAVIER, true);
        snprintf(name, sizeof name, "layers.%d.bias", l);
        m->param[4 + 2 * l] = ckpt_param(c, name, m->dtype, 1, &w, CKPT_NORMAL(0.1f), true);
    }
}

ckpt_tensor small_record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct small *m = user;
    int64_t shape[] = {batch, m->rows ? m->rows : m->width, m->width};
    const int ndim = m->rows ? 3 : 2;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, ndim, shape);
    ckpt_tensor noise = ckpt_affine(t, ckpt_randn(t, CKPT_F32, ndim, shape), 0.1f, 0.f);
    ckpt_tensor h =
        ckpt_linear(t, ckpt_cast(t, ckpt_add(t, x, noise), m->dtype), m->param[0], CKPT_NONE);
    for (int l = 0; l < SMALL_LAYERS; l++) {
        ckpt_label(t, "layers.%d", l);
        ckpt_tensor u =
            ckpt_mul(t, ckpt_layer_norm(t, h, CKPT_NONE, CKPT_NONE, 1e-6f), m->param[2]);
        u = ckpt_linear(t, ckpt_gelu_tanh(t, u), m->param[3 + 2 * l], m->param[4 + 2 * l]);
        h = ckpt_add(t, h, u);
    }
    ckpt_output(t, "h", h);
    h = ckpt_linear(t, ckpt_layer_norm(t, h, CKPT_NONE, CKPT_NONE, 1e-6f), m->param[1], CKPT_NONE);
    return ckpt_mse(t, h, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

void small_feed(ckpt_program *p, const struct small *r, int step)
{
    int64_t n = SMALL_BATCH * (r->rows ? r->rows : 1) * r->width;
    float *x = malloc((size_t)n * sizeof *x);
    ckpt_fill_normal(7, (uint64_t)step, 1, x, n);
    assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
    free(x);
}

int small_compile(struct small *r, ckpt **c, ckpt_program **p)
{
    if (ckpt_open(c, &r->options))
        fail_msg("%s", ckpt_error(NULL));
    net_create(r, *c);
    ckpt_optimizer *o = r->optimizer ? r->optimizer(*c, r) : ckpt_adamw(*c, &r->adamw);
    return ckpt_compile(*c, small_record, r, o, SMALL_BATCH, p);
}

void small_open(struct small *r, ckpt **c, ckpt_program **p)
{
    if (small_compile(r, c, p))
        fail_msg("%s", ckpt_error(*c));
}

/* Runs steps [from, to) with two steps under way. */
void small_train(struct small *r, ckpt *c, ckpt_program *p, int from, int to)
{
    for (int s = from; s <= to; s++) {
        if (s < to) {
            small_feed(p, r, s);
            if (ckpt_submit(p))
                fail_msg("%s", ckpt_error(c));
        }
        if (s > from && ckpt_wait(p, &r->loss[s - 1]))
            fail_msg("%s", ckpt_error(c));
    }
    r->norm = p->grad_norm;
}

void small_collect(struct small *r, ckpt *c)
{
    r->numel = 0;
    r->state = calloc((size_t)(SMALL_PARAMS * SMALL_SLOTS * r->width * r->width), sizeof(float));
    for (int i = 0; i < SMALL_PARAMS; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, r->param[i], &info);
        for (int s = CKPT_VALUE; s <= (info.trainable ? CKPT_EXP_AVG_SQ_COL : CKPT_VALUE); s++) {
            int64_t n = s > CKPT_EMA ? r->width : info.numel; /* all matrices are square */
            int rc = ckpt_param_get(c, r->param[i], (enum ckpt_slot)s, r->state + r->numel, n);
            if (rc && (rc != CKPT_ENAME || s == CKPT_VALUE || !(s > CKPT_EMA || r->optimizer)))
                fail_msg("%s", ckpt_error(c));
            r->numel += rc ? 0 : n;
        }
    }
}

void small_run(struct small *r, int steps)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, steps);
    small_collect(r, c);
    ckpt_close(c);
}

void small_path(char *path, size_t size, const char *what)
{
    snprintf(path, size, "test_exactness.%d.%s", (int)getpid(), what);
}

bool small_on_gpu(void)
{
    return getenv("CKPT_TEST_GPU") != NULL;
}

struct small small_make(enum ckpt_dtype dtype, int64_t width, int64_t n_micro, bool clip)
{
    struct small r = {
        .dtype = dtype, .width = width, .options = CKPT_OPTIONS_INIT, .adamw = CKPT_ADAMW_INIT};
    r.options.device = small_on_gpu() ? "cuda" : "cpu";
    r.options.threads = 1;
    r.options.micro_batch = SMALL_BATCH / n_micro;
    r.options.verify = true;
    r.adamw.lr = 1e-2f;
    r.adamw.weight_decay = 0.01f;
    r.adamw.ema_decay = 0.9f;
    r.adamw.clip_norm = clip ? 0.3f : 0.f;
    return r;
}

/* Writes a plan for run r that offloads everything, or most of it. */
void small_force(const struct small *r, const struct force *f, const char *path,
                 struct budgets *tiers, struct force_count *count)
{
    struct small base = *r;
    struct plan *forced;
    ckpt *c;
    ckpt_program *p;
    base.options.plan_only = true;
    small_open(&base, &c, &p);
    assert_int_equal(force_offloads(p->graph, p->plan, f, &forced), 0);
    if (plan_check(p->graph, forced) || plan_write(p->graph, forced, path))
        fail_msg("%s", error_get());
    *tiers = forced->budgets;
    force_count(p->graph, forced, count);
    plan_free(forced);
    ckpt_close(c);
}

void small_use_tiers(struct small *r, const char *path, const struct budgets *tiers, char nvme[64])
{
    snprintf(nvme, 64, ".:%lld", (long long)max_i64(tiers->nvme, 1 << 20));
    r->options.host = tiers->host;
    r->options.nvme = tiers->nvme ? nvme : NULL;
    r->options.plan_in = path;
}

void small_expect_same(const char *what, const struct small *a, struct small *b)
{
    if (a->numel != b->numel || memcmp(a->loss, b->loss, sizeof a->loss) ||
        memcmp(a->state, b->state, (size_t)a->numel * sizeof *a->state))
        fail_msg("%s: other numbers than with all resident", what);
    free(b->state);
}

void small_expect_forced(const struct small *resident, const struct force *f, const char *what)
{
    struct small r = *resident;
    struct budgets tiers;
    struct force_count n;
    char path[64], nvme[64];
    small_path(path, sizeof path, "forced-plan");
    small_force(resident, f, path, &tiers, &n);
    assert_true(n.activations[TIER_HOST] + n.activations[TIER_NVME] > 0);
    small_use_tiers(&r, path, &tiers, nvme);
    small_run(&r, SMALL_STEPS);
    small_expect_same(what, resident, &r);
    unlink(path);
}

void small_open_resumed(struct small *r, ckpt **c, ckpt_program **p)
{
    char path[64];
    small_path(path, sizeof path, "resumed-state");
    small_open(r, c, p);
    small_train(r, *c, *p, 0, SMALL_SAVED);
    if (ckpt_save_state(*c, path))
        fail_msg("%s", ckpt_error(*c));
    ckpt_close(*c);
    small_open(r, c, p);
    if (ckpt_load_state(*c, path))
        fail_msg("%s", ckpt_error(*c));
    unlink(path);
}

void small_expect_resumed(const struct small *whole)
{
    struct small r = *whole;
    ckpt *c;
    ckpt_program *p;
    small_open_resumed(&r, &c, &p);
    small_train(&r, c, p, SMALL_SAVED, SMALL_STEPS);
    small_collect(&r, c);
    ckpt_close(c);
    small_expect_same("resumed", whole, &r);
}
