/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of passes: each row's needs are given by rows before it.  The verifier: it accepts the
 * tape of a model after each pass, and names pass and op for each kind of fault planted in it.  The
 * text of a tape.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ops.h"
#include "passes/dump.h"
#include "passes/passes.h"
#include "recorders.h"

/* y = (x v + x)^2 for a random x. */
struct recorded {
    struct param data[1];
    struct params params;
    ckpt_tape *t;
};

static struct compilation record_forward(struct recorded *r)
{
    static char name[] = "v";
    const int64_t shape[] = {4, 8}, square[] = {8, 8};
    *r = (struct recorded){.params = {.data = r->data, .n = 1}};
    r->data[0] = (struct param){.name = name, .desc = {.ndim = 2}, .trainable = true};
    memcpy(r->data[0].desc.shape, square, sizeof square);
    desc_dense(&r->data[0].desc);
    struct tape_env env = {.calls = &ops_calls,
                           .backend = CKPT_ON_CPU,
                           .threads = 1,
                           .params = &r->params,
                           .sharing = {.ranks = 1, .group_ranks = 1}};
    assert_int_equal(tape_new(&r->t, &env, 4, 1), 0);
    ckpt_tensor x = ckpt_randn(r->t, CKPT_F32, 2, shape);
    ckpt_tensor y = ckpt_add(r->t, ckpt_linear(r->t, x, (ckpt_tensor){.id = -1}, CKPT_NONE), x);
    return (struct compilation){.tape = r->t,
                                .loss = ckpt_sum(r->t, ckpt_mul(r->t, y, y), CKPT_ALL_AXES)};
}

/* The same and its gradient. */
static void record(struct recorded *r)
{
    const struct compilation c = record_forward(r);
    assert_int_equal(pass_differentiate(&c), 0);
    assert_int_equal(passes_verify(r->t, "differentiate"), 0);
}

static void test_table(void **state)
{
    unsigned holds = 0;
    (void)state;
    for (const struct pass *p = passes; p->name; p++) {
        if (p->needs & ~holds)
            fail_msg("'%s' stands before a pass that it needs", p->name);
        assert_non_null(p->reason);
        assert_non_null(p->run);
        holds = (holds | p->gives) & ~p->end;
    }
}

static void test_valid(void **state)
{
    struct recorded r;
    (void)state;
    record(&r);
    const struct compilation c = {.tape = r.t};
    assert_int_equal(pass_fuse(&c), 0);
    assert_int_equal(passes_verify(r.t, "fuse"), 0);
    assert_int_equal(pass_pair(&c), 0);
    assert_int_equal(passes_verify(r.t, "pair"), 0);
    tape_free(r.t);
}

/* Of a chain that nothing reads nothing stays; an output stays, and what it is made of. */
static void test_unused(void **state)
{
    struct recorded r;
    int removed = 0;
    (void)state;
    const struct compilation c = record_forward(&r);
    const int32_t before = r.t->n_ops;
    ckpt_tensor x = ckpt_exp(r.t, ckpt_transpose(r.t, (ckpt_tensor){.id = -1}, 0, 1));
    ckpt_output(r.t, "kept", ckpt_tanh(r.t, (ckpt_tensor){.id = -1}));
    ckpt_sum(r.t, ckpt_mul(r.t, x, x), 1);
    assert_int_equal(pass_unused(&c), 0);
    assert_int_equal(passes_verify(r.t, "unused"), 0);
    for (int32_t i = 0; i < r.t->n_ops; i++) {
        removed += r.t->ops.data[i].def == &tape_removed;
        assert_true(i >= before || r.t->ops.data[i].def != &tape_removed);
    }
    assert_int_equal(removed, 4);
    assert_int_equal(pass_differentiate(&c), 0);
    assert_int_equal(passes_verify(r.t, "differentiate"), 0);
    tape_free(r.t);
}

/* The first op with this name. */
static struct op *find(ckpt_tape *t, const char *name)
{
    for (int32_t i = 0; i < t->n_ops; i++)
        if (!strcmp(t->ops.data[i].def->name, name))
            return &t->ops.data[i];
    fail_msg("no %s", name);
    return NULL;
}

static void read_later(ckpt_tape *t)
{
    tape_set_input(t, (int32_t)(find(t, "add") - t->ops.data), 0, op_out(t, find(t, "mul"), 0));
}

static void forget_uses(ckpt_tape *t)
{
    t->operands.data[find(t, "add")->operands] = op_out(t, find(t, "mul"), 0);
}

static void forget_read(ckpt_tape *t)
{
    const struct op *mul = find(t, "mul");
    tape_leave_reads(t, (int32_t)(mul - t->ops.data));
}

static void lose_result(ckpt_tape *t)
{
    t->tensors.data[op_out(t, find(t, "add"), 0)].op = 0;
}

static void leave_storage(ckpt_tape *t)
{
    t->tensors.data[op_out(t, find(t, "add"), 0)].desc.offset = 1;
}

static void change_shape(ckpt_tape *t)
{
    struct ckpt_desc *d = &t->tensors.data[op_out(t, find(t, "add"), 0)].desc;
    d->shape[0] = d->shape[0] / 2;
}

static void change_dtype(ckpt_tape *t)
{
    t->tensors.data[op_out(t, find(t, "linear"), 0)].desc.dtype = CKPT_BF16;
}

static void test_faults(void **state)
{
    static const struct {
        void (*plant)(ckpt_tape *t);
        const char *says;
    } faults[] = {{read_later, "before the op that makes operand 0"},
                  {forget_uses, "the uses are not current of tensor"},
                  {forget_read, "a read is in no list of uses"},
                  {lose_result, "another op makes result 0"},
                  {leave_storage, "outside of their storage"},
                  {change_shape, "its rule"},
                  {change_dtype, "its rule gives another shape for result 0"}};
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct recorded r;
        record(&r);
        faults[i].plant(r.t);
        assert_int_equal(passes_verify(r.t, "test"), CKPT_EPLAN);
        assert_non_null(strstr(r.t->error.text, "after the pass 'test' op "));
        if (!strstr(r.t->error.text, faults[i].says))
            fail_msg("no \"%s\" in: %s", faults[i].says, r.t->error.text);
        tape_free(r.t);
    }
}

static void test_dump(void **state)
{
    struct recorded r;
    char *text = NULL;
    size_t size;
    (void)state;
    record(&r);
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    passes_dump(r.t, "differentiate", f);
    fclose(f);
    assert_non_null(strstr(text, "tape after differentiate: "));
    assert_non_null(strstr(text, " = linear(%"));
    assert_non_null(strstr(text, " B %"));
    free(text);
    tape_free(r.t);
}

static void test_names(void **state)
{
    struct recorded r;
    (void)state;
    record(&r);
    assert_int_equal(passes_run(&(struct compilation){.tape = r.t, .dump = "list"}), CKPT_EINVAL);
    assert_non_null(strstr(r.t->error.text, "--dump-tape list: "));
    for (const struct pass *p = passes; p->name; p++)
        assert_non_null(strstr(r.t->error.text, p->name));
    tape_free(r.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_valid), cmocka_unit_test(test_unused),
        cmocka_unit_test(test_faults), cmocka_unit_test(test_dump),  cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
