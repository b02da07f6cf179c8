/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guarantees on a GPU, with a small transformer: results are the same under every budget, and
 * the process's device memory stays below the budget and is constant from the first step on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_op.h"
#include "ckpt_tools.h"
#include "exec/tiny.h"

enum { STEPS = 10, BUDGETS = 6, LONG = 200, MIB = 1 << 20 };

static const struct tiny shape = {.batch = 8, .length = 1024, .width = 512, .heads = 8};

static struct ckpt_options options(int64_t vram, int64_t micro)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = "cuda";
    o.vram = vram;
    o.micro_batch = micro;
    return o;
}

static void train_or_fail(const struct tiny *m, int64_t vram, int64_t micro,
                          enum ckpt_dtype grad_dtype, struct tiny_result *r)
{
    char message[1024];
    struct ckpt_adamw a = tiny_adamw();
    a.grad_dtype = grad_dtype;
    struct ckpt_options o = options(vram, micro);
    if (tiny_train(*m, &o, &a, STEPS, r, message))
        fail_msg("--vram %lld: %s", (long long)vram, message);
}

static void sweep(enum ckpt_dtype dtype, int64_t micro, enum ckpt_dtype grad_dtype)
{
    struct tiny m = shape;
    m.dtype = dtype;
    struct tiny_result free_run, r;
    train_or_fail(&m, 0, micro, grad_dtype, &free_run);
    int64_t high = free_run.info.planned_peak + free_run.info.overhead_bytes;
    /* Libraries may keep a little more with every context of one process. */
    int64_t low = free_run.info.min_budget + 32 * MIB;
    int recomputed = 0;
    assert_true(low < high);
    for (int i = 0; i < BUDGETS; i++) {
        int64_t vram = low + (high - low) * i / (BUDGETS - 1);
        train_or_fail(&m, vram, micro, grad_dtype, &r);
        assert_true(r.info.planned_peak + r.info.overhead_bytes <= vram);
        assert_true(tiny_same(&free_run, &r));
        recomputed += r.info.recomputed_ops > 0;
        tiny_result_free(&r);
    }
    assert_true(recomputed >= BUDGETS / 2);
    tiny_result_free(&free_run);
}

static void test_fp32(void **state)
{
    (void)state;
    sweep(CKPT_F32, 0, CKPT_F32);
}

static void test_bf16(void **state)
{
    (void)state;
    sweep(CKPT_BF16, 0, CKPT_F32);
}

static void test_bf16_gradients(void **state)
{
    (void)state;
    sweep(CKPT_BF16, 0, CKPT_BF16);
}

static void test_bf16_micro_steps(void **state)
{
    (void)state;
    sweep(CKPT_BF16, 2, CKPT_F32);
}

static void test_memory_is_constant(void **state)
{
    (void)state;
    struct tiny m = shape;
    ckpt_program *p;
    ckpt *c;
    m.dtype = CKPT_BF16;
    struct ckpt_adamw a = tiny_adamw();
    struct ckpt_options o = options(INT64_C(2) << 30, 0);
    assert_int_equal(ckpt_open(&c, &o), 0);
    tiny_create(&m, c);
    assert_int_equal(ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p), 0);
    int64_t n = m.batch * m.length * m.width, first = 0;
    float *x = calloc((size_t)n, sizeof *x), loss;
    assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
    assert_int_equal(ckpt_feed(p, "c", x, m.batch * m.width * 4), 0);
    for (int step = 0; step < LONG; step++) {
        assert_int_equal(ckpt_step(p, &loss), 0);
        struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
        ckpt_program_info(p, &info); /* what nvidia-smi shows of this process */
        assert_true(info.process_bytes <= o.vram);
        first = step ? first : info.process_bytes;
        assert_int_equal(info.process_bytes, first);
    }
    free(x);
    ckpt_close(c);
}

/* The recordings of any number of micro-steps fit in the reserved memory.  With all of them
 * recorded the process used 0.6 GiB more than its budget. */
static void test_many_micro_steps(void **state)
{
    struct tiny m = {.batch = 2048, .length = 16, .width = 64, .heads = 2, .dtype = CKPT_BF16};
    int64_t vram = 0;
    (void)state;
    for (int host = 0; host < 2; host++) {
        char message[1024];
        struct ckpt_adamw a = tiny_adamw();
        struct ckpt_options o = options(vram, 1);
        struct tiny_result r;
        o.host = host ? INT64_C(1) << 30 : 0;
        if (tiny_train(m, &o, &a, 3, &r, message))
            fail_msg("%s", message);
        print_message("%lld bytes of the device, %lld planned\n", (long long)r.info.process_bytes,
                      (long long)(r.info.arena_bytes + r.info.overhead_bytes));
        assert_true(r.info.process_bytes <= r.info.arena_bytes + r.info.overhead_bytes);
        vram = r.info.min_budget + 32 * MIB;
        tiny_result_free(&r);
    }
}

/* auto leaves a part of the free memory and none uses all of it; neither changes a bit. */
static void test_auto_and_none(void **state)
{
    (void)state;
    const int64_t vram[] = {0, CKPT_VRAM_AUTO, CKPT_VRAM_NONE};
    struct tiny_result r[3];
    for (int i = 0; i < 3; i++) {
        struct tiny m = shape;
        m.dtype = CKPT_BF16;
        train_or_fail(&m, vram[i], 0, CKPT_F32, &r[i]);
        assert_true(r[i].info.process_bytes <= r[i].info.budget);
        assert_true(tiny_same(&r[0], &r[i]));
    }
    assert_true(r[0].info.budget < r[2].info.budget && r[1].info.budget < r[2].info.budget);
    assert_true(r[2].info.budget < INT64_MAX);
    for (int i = 0; i < 3; i++)
        tiny_result_free(&r[i]);
}

/* Device memory that each further context of one process uses, all else being equal. */
static void test_contexts(void **state)
{
    enum { CONTEXTS = 8 };
    int64_t taken[CONTEXTS];
    (void)state;
    for (int i = 0; i < CONTEXTS; i++) {
        struct tiny m = shape;
        struct tiny_result r;
        m.dtype = CKPT_BF16;
        train_or_fail(&m, 0, 0, CKPT_F32, &r);
        taken[i] = r.info.process_bytes;
        print_message("context %d: %lld bytes of the device\n", i, (long long)taken[i]);
        tiny_result_free(&r);
    }
    assert_true(taken[CONTEXTS - 1] <= taken[CONTEXTS / 2]);
}

/* A step submitted while another is under way reads its own inputs and returns its own loss. */
static void test_two_steps_under_way(void **state)
{
    (void)state;
    float one_by_one[6], ahead[6];
    for (int pass = 0; pass < 2; pass++) {
        struct tiny m = shape;
        ckpt_program *p;
        ckpt *c;
        struct ckpt_adamw a = tiny_adamw();
        struct ckpt_options o = options(0, 0);
        assert_int_equal(ckpt_open(&c, &o), 0);
        tiny_create(&m, c);
        assert_int_equal(ckpt_compile(c, tiny_record, &m, ckpt_adamw(c, &a), m.batch, &p), 0);
        int64_t n = m.batch * m.length * m.width;
        float *x = malloc((size_t)n * sizeof *x);
        for (int step = 0; step < 6; step++) {
            ckpt_fill_normal(3, (uint64_t)step, 1, x, n);
            assert_int_equal(ckpt_feed(p, "x", x, n * 4), 0);
            assert_int_equal(ckpt_feed(p, "c", x, m.batch * m.width * 4), 0);
            if (!pass) {
                assert_int_equal(ckpt_step(p, &one_by_one[step]), 0);
                continue;
            }
            assert_int_equal(ckpt_submit(p), 0);
            if (step)
                assert_int_equal(ckpt_wait(p, &ahead[step - 1]), 0);
        }
        if (pass)
            assert_int_equal(ckpt_wait(p, &ahead[5]), 0);
        free(x);
        ckpt_close(c);
    }
    assert_memory_equal(one_by_one, ahead, sizeof ahead);
}

/* Counts occurrences of the words in a file. */
static int count_words(const char *path, const char *words)
{
    int n = 0;
    char *text = calloc(1, 1 << 22);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 22) - 1, f) > 0);
    fclose(f);
    for (const char *at = text; (at = strstr(at, words)); at++)
        n++;
    free(text);
    return n;
}

/* Algorithms selected by measurement are stored in the plan, and give the same bits again with it.
 */
static void test_tuned(void **state)
{
    (void)state;
    char path[] = "test_gpu_promises.tmp-XXXXXX", message[1024];
    struct tiny m = shape;
    struct ckpt_adamw a = tiny_adamw();
    struct ckpt_options o = options(0, 0);
    struct tiny_result tuned, again;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    m.dtype = CKPT_BF16;
    o.tune = true;
    o.plan_out = path;
    if (tiny_train(m, &o, &a, STEPS, &tuned, message))
        fail_msg("%s", message);
    o.tune = false;
    o.plan_out = NULL;
    o.plan_in = path;
    if (tiny_train(m, &o, &a, STEPS, &again, message))
        fail_msg("%s", message);
    assert_true(tiny_same(&tuned, &again));
    assert_true(count_words(path, "\npin ") > 0);
    unlink(path);
    tiny_result_free(&tuned);
    tiny_result_free(&again);
}

static void train(struct tiny m, const struct ckpt_options *o, struct tiny_result *r)
{
    struct ckpt_adamw a = tiny_adamw();
    char message[1024];
    if (tiny_train(m, o, &a, STEPS, r, message))
        fail_msg("%s", message);
}

/* A machine file stores the algorithms measured to be faster; with it every budget gives the bits
 * of the run that measured. */
static void test_tuned_machine(void **state)
{
    (void)state;
    char path[] = "test_gpu_promises.tmp-XXXXXX";
    struct tiny m = {.batch = 64, .length = 60, .width = 776, .heads = 8, .dtype = CKPT_BF16};
    struct ckpt_options o = options(0, 0);
    struct tiny_result tuned, again, least;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    o.tune = true;
    o.machine_out = path;
    train(m, &o, &tuned);
    printf("%d algorithms in the machine file\n", count_words(path, "\"cublaslt "));
    o.tune = false;
    o.machine_out = NULL;
    o.machine = path;
    train(m, &o, &again);
    o.vram = again.info.min_budget + 32 * MIB; /* as in sweep() */
    train(m, &o, &least);
    assert_true(tiny_same(&tuned, &again));
    assert_true(tiny_same(&tuned, &least));
    unlink(path);
    tiny_result_free(&tuned);
    tiny_result_free(&again);
    tiny_result_free(&least);
}

/* A convolution on SIDE x SIDE pixels. */
static ckpt_tensor record_large(ckpt_tape *t, int64_t batch, void *user)
{
    enum { SIDE = 1024, CHANNELS = 256 };
    const ckpt_tensor *w = user;
    int64_t image[] = {batch, SIDE, SIDE, CHANNELS};
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    ckpt_tensor y = ckpt_conv(t, ckpt_input(t, "x", CKPT_BF16, 4, image), *w, CKPT_NONE, &spec);
    ckpt_output(t, "y", y);
    return y;
}

/* An op whose inputs fit and whose outputs fit, but not both: it is refused without a trial run, in
 * which overlapping operands could make a kernel overwrite a value that it waits for. */
static void test_op_too_large(void **state)
{
    (void)state;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    for (int pass = 0; pass < 2; pass++) {
        struct ckpt_options o = options(pass ? info.overhead_bytes + 768 * (int64_t)MIB : 0, 0);
        ckpt_program *p;
        ckpt *c;
        assert_int_equal(ckpt_open(&c, &o), 0);
        ckpt_tensor w =
            ckpt_param(c, "w", CKPT_BF16, 4, (int64_t[]){256, 3, 3, 256}, CKPT_XAVIER, true);
        alarm(120);
        assert_int_equal(ckpt_compile(c, record_large, &w, NULL, 1, &p), pass ? CKPT_EBUDGET : 0);
        alarm(0);
        if (!pass)
            ckpt_program_info(p, &info);
        ckpt_close(c);
    }
}

static int shape_of_input(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

static int on_cpu_alone(const struct ckpt_kernel_args *a)
{
    (void)a;
    return CKPT_OK;
}

static ckpt_tensor record_foreign(ckpt_tape *t, int64_t batch, void *user)
{
    static const struct ckpt_op_def def = {
        .size = sizeof def, .name = "foreign", .shape = shape_of_input, .cpu = on_cpu_alone};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 1, &batch), y;
    (void)user;
    ckpt_record(t, &def, 1, &x, 1, &y, NULL, 0);
    ckpt_output(t, "y", y);
    return y;
}

/* An op without a GPU kernel is named before anything runs, also if only a plan is made. */
static void test_op_without_kernel(void **state)
{
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        struct ckpt_options o = options(0, 0);
        ckpt_program *p;
        ckpt *c;
        o.plan_only = pass;
        assert_int_equal(ckpt_open(&c, &o), 0);
        assert_int_equal(ckpt_compile(c, record_foreign, NULL, NULL, 8, &p), CKPT_EDEVICE);
        assert_non_null(strstr(ckpt_error(c), "foreign"));
        assert_non_null(strstr(ckpt_error(c), "has no kernel for --device cuda"));
        ckpt_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_gradients),
        cmocka_unit_test(test_bf16_micro_steps),
        cmocka_unit_test(test_memory_is_constant),
        cmocka_unit_test(test_many_micro_steps),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_auto_and_none),
        cmocka_unit_test(test_two_steps_under_way),
        cmocka_unit_test(test_tuned),
        cmocka_unit_test(test_tuned_machine),
        cmocka_unit_test(test_op_too_large),
        cmocka_unit_test(test_op_without_kernel),
    };
    ckpt *c;
    struct ckpt_options o = options(0, 0);
    if (ckpt_open(&c, &o)) {
        printf("skipped: %s\n", ckpt_error(NULL));
        return 77;
    }
    ckpt_close(c);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
