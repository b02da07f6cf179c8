/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Custom ops whose rules return impossible values: outputs outside of their storage, sizes beyond
 * int64, costs that are not numbers, unlimited scratch.  Each is refused where it is recorded, with
 * the op and the caller's line in the sentence.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "ckpt_op.h"

static const int64_t shape[] = {4, 4};

static int plain(struct ckpt_call *c)
{
    c->out[0] = (struct ckpt_desc){.ndim = 2, .shape = {4, 4}};
    memset(c->out[0].stride, 0, sizeof c->out[0].stride);
    c->out[0].offset = 0;
    return 0;
}

#define LIE(name, statement)                                                                       \
    static int name(struct ckpt_call *c)                                                           \
    {                                                                                              \
        struct ckpt_desc *d = &c->out[0];                                                          \
        int rc = plain(c);                                                                         \
        (void)d;                                                                                   \
        statement;                                                                                 \
        return rc;                                                                                 \
    }
LIE(too_many_axes, d->ndim = 99)
LIE(no_axes, d->ndim = -7)
LIE(other_dtype, d->dtype = (enum ckpt_dtype)12)
LIE(empty, d->shape[0] = 0)
LIE(negative, d->shape[1] = -4)
LIE(huge, d->shape[0] = INT64_MAX / 2)
LIE(overflow, d->shape[0] = d->shape[1] = INT64_C(1) << 40)
LIE(backwards, (d->stride[0] = -4, d->stride[1] = 1))
LIE(far, (d->stride[0] = INT64_MAX / 2, d->stride[1] = 1))
LIE(shifted, d->offset = -1)
LIE(outside, (d->stride[0] = 8, d->stride[1] = 1))
LIE(behind, d->offset = 1)
LIE(absent, d->ndim = -1)
LIE(scratch, c->workspace = INT64_MAX)
LIE(less_scratch, c->workspace = -1)
LIE(positive_code, rc = 5)

static void infinite(const struct ckpt_call *c, struct ckpt_cost *cost)
{
    (void)c;
    cost->flops = INFINITY;
}

static void not_a_number(const struct ckpt_call *c, struct ckpt_cost *cost)
{
    (void)c;
    cost->bytes = NAN;
}

static void less_than_nothing(const struct ckpt_call *c, struct ckpt_cost *cost)
{
    (void)c;
    cost->flops = -1;
}

static int kernel(const struct ckpt_kernel_args *a)
{
    memcpy(a->out[0].data, a->in[0].data, 64);
    return 0;
}

static const struct lie {
    const char *what;
    unsigned flags;
    int (*shape)(struct ckpt_call *);
    void (*cost)(const struct ckpt_call *, struct ckpt_cost *);
    int n_in;
    bool fine;
} lies[] = {
    {"the truth", 0, plain, NULL, 1, true},
    {"99 axes", 0, too_many_axes, NULL, 1, false},
    {"-7 axes", 0, no_axes, NULL, 1, false},
    {"a dtype that is none", 0, other_dtype, NULL, 1, false},
    {"an empty axis", 0, empty, NULL, 1, false},
    {"a negative axis", 0, negative, NULL, 1, false},
    {"a size that is too large", 0, huge, NULL, 1, false},
    {"a product that overflows", 0, overflow, NULL, 1, false},
    {"negative strides", 0, backwards, NULL, 1, false},
    {"strides that overflow", 0, far, NULL, 1, false},
    {"an offset before the storage", 0, shifted, NULL, 1, false},
    {"a view that is larger than its storage", CKPT_OP_VIEW, outside, NULL, 1, false},
    {"a view that ends behind its storage", CKPT_OP_VIEW, behind, NULL, 1, false},
    {"a view of nothing", CKPT_OP_VIEW, plain, NULL, 0, false},
    {"an input changed in place that is not there", CKPT_OP_INPLACE, absent, NULL, 0, false},
    {"scratch without end", 0, scratch, NULL, 1, false},
    {"negative scratch", 0, less_scratch, NULL, 1, false},
    {"a code that is none", 0, positive_code, NULL, 1, false},
    {"infinite costs", 0, plain, infinite, 1, false},
    {"costs that are no number", 0, plain, not_a_number, 1, false},
    {"negative costs", 0, plain, less_than_nothing, 1, false},
};

static struct ckpt_op_def def;
static const struct lie *lie;

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch, (void)user;
    ckpt_tensor x[2] = {ckpt_input(t, "x", CKPT_F32, 2, shape)}, y;
    ckpt_record(t, &def, lie->n_in, x, 1, &y, NULL, 0);
    return ckpt_mean(t, y, 3);
}

static int try_lie(void)
{
    ckpt *c = NULL;
    ckpt_program *p;
    const struct ckpt_options o = {
        .size = sizeof o, .device = "cpu", .threads = 1, .vram = 1 << 20};
    int rc = ckpt_open(&c, &o);
    if (rc)
        return 1;
    rc = ckpt_compile(c, record, NULL, NULL, 4, &p);
    bool named = strstr(ckpt_error(c), "liar") && strstr(ckpt_error(c), "test_lying.c");
    bool right = lie->fine ? rc == 0 : (rc == CKPT_ESHAPE || rc == CKPT_EINVAL) && named;
    if (!right)
        printf("FAIL: %s: %s, \"%s\"\n", lie->what, ckpt_error_name(rc), ckpt_error(c));
    ckpt_close(c);
    return !right;
}

int main(void)
{
    int failed = 0;
    for (lie = lies; lie < lies + sizeof lies / sizeof *lies; lie++) {
        def = (struct ckpt_op_def){.size = sizeof def,
                                   .name = "liar",
                                   .flags = lie->flags,
                                   .shape = lie->shape,
                                   .cost = lie->cost,
                                   .cpu = lie->flags & CKPT_OP_VIEW ? NULL : kernel};
        failed += try_lie();
    }
    return failed ? 1 : 0;
}
