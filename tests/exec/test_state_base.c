/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States that leave out frozen weights (ckpt_state_base): the run that loads the same weights first
 * goes on with the same bits, in any format and tier; other weights and none are refused before
 * anything changes; what no file has stays in the state; complete states still load.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_optim.h"
#include "plan/one_search.h"
#include "state/base_weights.h"
#include "state/safetensors.h"
#include "small.h"
#include "unit/test_directory.h"

enum { WIDTH = 64, WEIGHTS = SMALL_LAYERS + 2, RANK = 2, FIRST = 3 };

/* ---- a run ----------------------------------------------------------------------------------- */

static const char *format; /* of frozen weights; NULL: as they are */
static const char *base;   /* loaded by the next context; NULL: weights follow from the seed */
static const char *from;   /* of ckpt_state_base; NULL: no call */

static ckpt_optimizer *adapted(ckpt *c, const struct small *r)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    lora.rank = RANK;
    assert_int_equal(ckpt_lora(c, &lora), WEIGHTS);
    if (format && ckpt_quantize_frozen(c, "*.weight", format) != WEIGHTS)
        fail_msg("%s", ckpt_error(c));
    if (from)
        assert_int_equal(ckpt_state_base(c, from), 0);
    if (base && ckpt_load_params(c, base, NULL, NULL, NULL))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_plan_in_full(c, false), 0);
    return ckpt_adamw(c, &r->adamw);
}

static struct small make(enum ckpt_dtype dtype)
{
    struct small r = small_make(dtype, WIDTH, 1, true);
    r.optimizer = adapted;
    return r;
}

static void save_at(struct small *r, const char *to)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, FIRST);
    if (ckpt_save_state(c, to) || ckpt_save_wait(c))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

static void go_on(struct small *r, const char *to)
{
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    if (ckpt_load_state(c, to))
        fail_msg("%s", ckpt_error(c));
    small_train(r, c, p, FIRST, SMALL_STEPS);
    small_collect(r, c);
    ckpt_close(c);
}

/* A file of weights below the adapters, whose values bf16 holds; changed: but one. */
static char weights[96], others[96];

static void make_base(const char *to, enum ckpt_dtype dtype, bool changed)
{
    static float x[SMALL_PARAMS][WIDTH * WIDTH];
    static uint16_t half[SMALL_PARAMS][WIDTH * WIDTH];
    struct small r = small_make(CKPT_F32, WIDTH, 1, true);
    ckpt_file_writer *w;
    ckpt *c;
    ckpt_program *p;
    r.optimizer = adapted;
    base = from = format = NULL;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_file_create(&w, to), 0);
    for (int i = 0; i < SMALL_PARAMS; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        assert_int_equal(ckpt_param_info(c, r.param[i], &info), 0);
        ckpt_fill_normal(11, (uint64_t)i, 1, x[i], info.numel);
        for (int64_t k = 0; k < info.numel; k++)
            x[i][k] = 0.125f * x[i][k] + (changed && i == 3 && !k);
        ckpt_to_bf16(x[i], half[i], info.numel);
        for (int64_t k = 0; k < info.numel; k++) {
            const uint32_t bits = (uint32_t)half[i][k] << 16;
            memcpy(&x[i][k], &bits, sizeof bits);
        }
        const void *values = dtype == CKPT_BF16 ? (const void *)half[i] : x[i];
        assert_int_equal(
            ckpt_file_add(w, info.name, dtype, info.desc.ndim, info.desc.shape, values), 0);
    }
    assert_int_equal(ckpt_file_commit(w), 0);
    ckpt_close(c);
}

static int begin(void **state)
{
    int rc = make_fresh_dir(state);
    snprintf(weights, sizeof weights, "%s/weights", dir);
    snprintf(others, sizeof others, "%s/others", dir);
    format = base = from = NULL;
    return rc;
}

static int end(void **state)
{
    unlink(weights);
    unlink(others);
    return remove_dir(state);
}

/* Whether a state has the value of a parameter. */
static bool has(const char *name)
{
    char value[64];
    ckpt_file *f;
    snprintf(value, sizeof value, "value/%s", name);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    const bool found = ckpt_file_find(f, value) >= 0;
    ckpt_file_close(f);
    return found;
}

static bool has_any(void)
{
    return has("frozen") || has("in.weight") || has("layers.2.bias");
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_resumed(enum ckpt_dtype dtype, const char *codes)
{
    struct small whole = make(dtype), rest = whole;
    make_base(weights, dtype, false);
    format = codes;
    base = weights;
    from = "--load weights";
    small_run(&whole, SMALL_STEPS);
    save_at(&rest, path);
    assert_false(has_any());
    go_on(&rest, path);
    small_expect_same(codes ? codes : "resumed", &whole, &rest);
    free(whole.state);
}

static void test_resumed(void **state)
{
    (void)state;
    check_resumed(CKPT_F32, NULL);
    check_resumed(CKPT_BF16, NULL);
    check_resumed(CKPT_BF16, "int8");
    check_resumed(CKPT_F32, "nf4");
}

/* Written by a thread, from frozen weights on the host and in files; its bytes are those that were
 * planned, and the same. */
static void test_tiers(void **state)
{
    (void)state;
    static char bytes[1 << 20], again[1 << 20];
    struct small whole = make(CKPT_BF16), r = whole;
    struct force f = {.seed = 5, .host = true, .nvme = true, .all = true};
    struct force_count count;
    struct budgets tiers;
    char plan[64], nvme[64];
    make_base(weights, CKPT_BF16, false);
    base = weights;
    from = "--load weights";
    small_run(&whole, SMALL_STEPS);
    save_at(&r, path);
    const size_t n = read_bytes(bytes, sizeof bytes);
    r.options.host = 4 << 20;
    r.options.save_async = true;
    save_at(&r, path);
    assert_int_equal(read_bytes(again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
    r = whole;
    small_path(plan, sizeof plan, "base-plan");
    small_force(&r, &f, plan, &tiers, &count);
    small_use_tiers(&r, plan, &tiers, nvme);
    save_at(&r, path);
    assert_int_equal(read_bytes(again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
    go_on(&r, path);
    small_expect_same("tiers", &whole, &r);
    free(whole.state);
    unlink(plan);
}

/* An elastic job of one rank: a state in memory is that of a file. */
static void test_in_memory(void **state)
{
    (void)state;
    static char bytes[1 << 20], again[1 << 20];
    struct small r = make(CKPT_BF16);
    char where[128], lock[128];
    ckpt *c;
    ckpt_program *p;
    make_base(weights, CKPT_BF16, false);
    base = weights;
    from = "--load weights";
    snprintf(where, sizeof where, "elastic:1:file:%s.meet", path);
    snprintf(lock, sizeof lock, "%s.meet.lock", path);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    r.options.ranks = where;
    r.options.host = 8 << 20;
    small_open(&r, &c, &p);
    small_train(&r, c, p, 0, FIRST);
    if (ckpt_save_state(c, CKPT_PEERS) || ckpt_save_state(c, path))
        fail_msg("%s", ckpt_error(c));
    assert_false(has_any());
    const size_t n = read_bytes(bytes, sizeof bytes);
    small_train(&r, c, p, FIRST, FIRST + 1);
    if (ckpt_load_state(c, CKPT_PEERS))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_updates(c), FIRST);
    assert_int_equal(ckpt_save_state(c, path), 0);
    assert_int_equal(read_bytes(again, sizeof again), n);
    assert_memory_equal(bytes, again, n);
    ckpt_close(c);
    unlink(lock);
}

/* ckpt_state_bytes are those of the file, and of a plan without weights. */
static void test_bytes(void **state)
{
    (void)state;
    struct small r = make(CKPT_F32);
    int64_t bytes = 0;
    ckpt *c;
    ckpt_program *p;
    ckpt_file *f;
    make_base(weights, CKPT_F32, false);
    base = weights;
    from = "--load weights";
    small_open(&r, &c, &p);
    const int64_t all = ckpt_state_bytes(c);
    assert_int_equal(ckpt_save_state(c, path), 0);
    assert_int_equal(ckpt_state_base(c, NULL), 0);
    assert_true(ckpt_state_bytes(c) > all + WEIGHTS * WIDTH * WIDTH * 4);
    ckpt_close(c);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    for (int i = 0; i < ckpt_file_count(f); i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        assert_int_equal(ckpt_file_entry(f, i, &e), 0);
        bytes += 4 * e.numel;
    }
    ckpt_file_close(f);
    assert_int_equal(bytes, all);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuse(struct small r, int code, const char *word, const char *second)
{
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    struct small before = r;
    small_collect(&before, c);
    assert_int_equal(ckpt_load_state(c, path), code);
    if (!strstr(ckpt_error(c), word) || !strstr(ckpt_error(c), second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", ckpt_error(c), word, second);
    assert_int_equal(ckpt_updates(c), 0);
    small_collect(&r, c);
    small_expect_same("refused", &before, &r);
    free(before.state);
    assert_int_equal(ckpt_step(p, NULL), CKPT_EINVAL); /* not fed; but nothing is torn */
    assert_null(strstr(ckpt_error(c), "mixture"));
    ckpt_close(c);
}

static void test_refused(void **state)
{
    (void)state;
    struct small r = make(CKPT_F32);
    make_base(weights, CKPT_F32, false);
    make_base(others, CKPT_F32, true);
    base = weights;
    from = "--load weights";
    save_at(&r, path);
    base = others;
    refuse(r, CKPT_EINVAL, "'layers.0.weight' is not the one", "--load weights");
    assert_int_equal(ckpt_state_base(NULL, "a"), CKPT_EINVAL);
    base = NULL;
    refuse(r, CKPT_EINVAL, "leaves out the values of 9 frozen weights", "--load weights");
    base = weights; /* read, but nobody asked for digests */
    from = NULL;
    refuse(r, CKPT_EINVAL, "leaves out the values of 9 frozen weights", "--load weights");
}

/* A state of a model with another frozen weight. */
static void test_other_names(void **state)
{
    (void)state;
    struct small r = make(CKPT_F32);
    ckpt *c;
    ckpt_program *p;
    ckpt_file *f;
    make_base(weights, CKPT_F32, false);
    base = weights;
    from = "--load weights";
    save_at(&r, path);
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    struct base b;
    assert_int_equal(base_open(&b, f), 0);
    assert_int_equal(json_object_size(b.all), SMALL_PARAMS);
    assert_int_equal(base_check_names(&b, &c->params), 0);
    json_object_set_new(b.all, "layers.9.weight", json_object());
    assert_int_equal(base_check_names(&b, &c->params), CKPT_ENAME);
    assert_non_null(strstr(ckpt_error(NULL), "'layers.9.weight', which this run does not keep"));
    base_close(&b);
    ckpt_file_close(f);
    ckpt_close(c);
}

/* Notes are untrusted. */
static void tamper(const char *was, const char *is)
{
    static char bytes[1 << 20];
    const size_t n = read_bytes(bytes, sizeof bytes);
    char *at = memmem(bytes, n, was, strlen(was));
    uint64_t size;
    assert_non_null(at);
    assert_int_equal(strlen(was), strlen(is));
    memcpy(at, is, strlen(is));
    memcpy(&size, bytes, sizeof size);
    file_seal_header(bytes, (int64_t)(sizeof size + size));
    write_bytes(bytes, n);
}

static void test_damaged(void **state)
{
    (void)state;
    struct small r = make(CKPT_F32);
    make_base(weights, CKPT_F32, false);
    base = weights;
    from = "--load weights";
    save_at(&r, path);
    tamper("\\\"frozen\\\":{\\\"shape\\\":[64]", "\\\"frozen\\\":{\\\"shape\\\":[63]");
    refuse(r, CKPT_ESHAPE, "'frozen'", "another shape");
    tamper("\\\"frozen\\\":{\\\"shape\\\":[63],\\\"digest\\\"",
           "\\\"frozen\\\":{\\\"shape\\\":[64],\\\"digess\\\"");
    refuse(r, CKPT_EFORMAT, "'frozen'", "not understood");
    tamper("\\\"frozen\\\":", "\\\"frozem\\\":");
    refuse(r, CKPT_ENAME, "lacks 'value/frozen'", path);
    tamper("\\\"frozem\\\":{", "\\\"frozem\\\":[");
    refuse(r, CKPT_EFORMAT, "ckpt.base", "not a JSON object");
}

/* The digests of the state; the caller frees them. */
static json_t *digests(void)
{
    ckpt_file *f;
    struct base b;
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(base_open(&b, f), 0);
    ckpt_file_close(f);
    return b.all;
}

/* A bit of the note or of its name: a state with other names, shapes or digests is refused. */
static void test_random_bits(void **state)
{
    (void)state;
    static char bytes[1 << 20];
    struct small r = make(CKPT_F32);
    int refused = 0;
    ckpt *c;
    ckpt_program *p;
    uint64_t size;
    make_base(weights, CKPT_F32, false);
    base = weights;
    from = "--load weights";
    save_at(&r, path);
    json_t *all = digests();
    const size_t n = read_bytes(bytes, sizeof bytes);
    const char *begin = memmem(bytes, n, "ckpt.base", 9);
    const char *end = memmem(bytes, n, "ckpt.base.from", 14);
    assert_true(begin && begin < end);
    memcpy(&size, bytes, sizeof size);
    small_open(&r, &c, &p);
    for (int i = 0; i < 400; i++) {
        char *at = bytes + (begin - bytes) + i * (end - begin) / 400;
        const char was = *at;
        *at ^= (char)(1 << i % 7);
        file_seal_header(bytes, (int64_t)(sizeof size + size));
        write_bytes(bytes, n);
        *at = was;
        if (ckpt_load_state(c, path)) {
            refused++;
            continue;
        }
        json_t *is = digests();
        assert_true(json_equal(is, all)); /* white space */
        json_decref(is);
    }
    assert_true(refused > 300);
    ckpt_close(c);
    json_decref(all);
}

/* ---- what stays in the state ----------------------------------------------------------------- */

/* A value that the program set is not that of the file; nor is one that no file has. */
static void test_changed(void **state)
{
    (void)state;
    struct small r = make(CKPT_F32), rest = r;
    float x[WIDTH];
    ckpt *c;
    ckpt_program *p;
    make_base(weights, CKPT_F32, false);
    base = weights;
    from = "--load weights";
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_param_get(c, r.param[2], CKPT_VALUE, x, WIDTH), 0);
    x[0] += 1.f;
    assert_int_equal(ckpt_param_set(c, r.param[2], CKPT_VALUE, x, WIDTH), 0);
    small_train(&r, c, p, 0, FIRST);
    assert_int_equal(ckpt_save_state(c, path), 0);
    assert_true(has("frozen") && !has("in.weight"));
    small_train(&r, c, p, FIRST, SMALL_STEPS);
    small_collect(&r, c);
    ckpt_close(c);
    memcpy(rest.loss, r.loss, sizeof rest.loss);
    go_on(&rest, path);
    small_expect_same("a weight that was changed", &r, &rest);
    free(r.state);
    base = NULL;
    save_at(&rest, path);
    assert_true(has("frozen") && has("in.weight") && has("layers.2.bias"));
}

static ckpt_tensor record_update(ckpt_tape *t, int64_t batch, void *user)
{
    const struct small *r = user;
    ckpt_tensor loss = small_record(t, batch, user);
    ckpt_update_buffer(t, r->param[2], ckpt_affine(t, r->param[2], 0.5f, 0.1f), 0.5f);
    return loss;
}

/* A buffer that a program writes is in the state; a run that writes it needs its value. */
static void test_buffer(void **state)
{
    (void)state;
    struct small r = make(CKPT_F32);
    make_base(weights, CKPT_F32, false);
    base = weights;
    from = "--load weights";
    for (int updates = 1; updates >= 0; updates--) {
        ckpt *c;
        ckpt_program *p, *q;
        small_open(&r, &c, &p);
        if (ckpt_compile(c, updates ? record_update : small_record, &r, ckpt_adamw(c, &r.adamw),
                         SMALL_BATCH, &q))
            fail_msg("%s", ckpt_error(c));
        small_train(&r, c, q, 0, 1);
        assert_int_equal(ckpt_save_state(c, path), 0);
        assert_int_equal(has("frozen"), updates);
        assert_false(has("in.weight"));
        ckpt_close(c);
    }
    ckpt *c;
    ckpt_program *p, *q;
    small_open(&r, &c, &p);
    assert_int_equal(ckpt_compile(c, record_update, &r, ckpt_adamw(c, &r.adamw), SMALL_BATCH, &q),
                     0);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "'frozen', which its run did not change"));
    ckpt_close(c);
}

/* A complete state loads with the weights of its run, which states then leave out again, and with
 * others, which it replaces; and without any. */
static void test_complete(void **state)
{
    (void)state;
    struct small whole = make(CKPT_BF16), r = whole;
    const char *const loaded[] = {weights, others, NULL};
    ckpt *c;
    ckpt_program *p;
    make_base(weights, CKPT_BF16, false);
    make_base(others, CKPT_BF16, true);
    format = "nf4";
    base = weights;
    small_run(&whole, SMALL_STEPS);
    save_at(&r, path);
    assert_true(has("frozen") && has("in.weight"));
    from = "--load weights";
    for (int i = 0; i < 3; i++) {
        char again[sizeof path];
        snprintf(again, sizeof again, "%s", path);
        base = loaded[i];
        go_on(&r, path);
        small_expect_same("a complete state", &whole, &r);
        small_open(&r, &c, &p);
        assert_int_equal(ckpt_load_state(c, path), 0);
        snprintf(path, sizeof path, "%s/next", dir);
        assert_int_equal(ckpt_save_state(c, path), 0);
        assert_int_equal(has("frozen"), i == 2);
        assert_int_equal(has("layers.0.weight"), i > 0);
        unlink(path);
        snprintf(path, sizeof path, "%s", again);
        ckpt_close(c);
    }
    free(whole.state);
}

/* The same values in another dtype are the same weights. */
static void test_other_dtype(void **state)
{
    (void)state;
    struct small whole, r;
    make_base(weights, CKPT_F32, false);
    make_base(others, CKPT_BF16, false);
    whole = r = make(CKPT_BF16);
    base = weights;
    from = "--load weights";
    small_run(&whole, SMALL_STEPS);
    save_at(&r, path);
    base = others;
    go_on(&r, path);
    small_expect_same("another dtype", &whole, &r);
    free(whole.state);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_other_names), IN_DIRECTORY(test_buffer),
        IN_DIRECTORY(test_in_memory),   IN_DIRECTORY(test_resumed),
        IN_DIRECTORY(test_tiers),       IN_DIRECTORY(test_bytes),
        IN_DIRECTORY(test_refused),     IN_DIRECTORY(test_damaged),
        IN_DIRECTORY(test_changed),     IN_DIRECTORY(test_complete),
        IN_DIRECTORY(test_other_dtype), IN_DIRECTORY(test_random_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
