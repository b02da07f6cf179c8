/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording of a step stays within its reserved memory.  STDiT3-XL/2 under 12G + 64G waits for
 * a copy 783 times; with all segments between the waits recorded, the process used 2 MiB more than
 * its budget (H100).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "context/context.h"
#include "examples/video/stdit/model.h"
#include "exec/clock.h"
#include "plan/one_search.h"

/* Device bytes per recorded kernel and segment, as measured there, and the reserved bytes (warm.c).
 */
enum { KERNEL = 4400, SEGMENT = 104 << 10, KEPT = 64 << 20 };

static struct stdit model;

static const struct video_geometry geometry = {.frames = 15,
                                               .height = 46,
                                               .width = 80,
                                               .tokens = 300,
                                               .pixel_height = 368,
                                               .pixel_width = 640};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const int64_t z[] = {batch, 4, geometry.frames, geometry.height, geometry.width};
    const int64_t y[] = {batch, geometry.tokens, model.config.caption_channels};
    struct stdit_inputs in = {0};
    (void)user;
    in.x = ckpt_randn(t, CKPT_F32, 5, z);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    in.y = ckpt_input(t, "y", CKPT_BF16, 3, y);
    in.mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){batch, geometry.tokens});
    in.fps = ckpt_input(t, "fps", CKPT_F32, 1, &batch);
    ckpt_tensor both = stdit_forward(&model, t, &geometry, &in);
    return ckpt_mse(t, ckpt_cast(t, ckpt_slice(t, both, 1, 0, 4), CKPT_F32), in.x, CKPT_NONE);
}

static int64_t recorded_kernels(const struct ckpt_program *p)
{
    int64_t n = 0;
    for (int32_t s = 0; s < p->n_segments; s++)
        for (int32_t i = p->segments.data[s].first; i < p->segments.data[s].end; i++)
            n += p->lowered.instrs.data[i].kind == INSTR_COMPUTE &&
                 p->lowered.instrs.data[i].queue == QUEUE_COMPUTE;
    return n;
}

static int64_t recorded_bytes(const struct ckpt_program *p)
{
    return (int64_t)p->n_segments * SEGMENT + recorded_kernels(p) * KERNEL;
}

static void test_segments(void **state)
{
    const struct stdit_config config = {.hidden = 1152,
                                        .heads = 16,
                                        .depth = 28,
                                        .in_channels = 4,
                                        .caption_channels = 4096,
                                        .text_tokens = 300,
                                        .mlp_ratio = 4,
                                        .dtype = CKPT_BF16};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct clock clock;
    ckpt_program *p;
    ckpt *c;
    (void)state;
    a.grad_dtype = CKPT_BF16;
    o.machine = "h200-141";
    o.plan_only = true;
    o.vram = INT64_C(12) << 30;
    o.host = INT64_C(64) << 30;
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_plan_in_full(c, false);
    if (stdit_create(&model, c, &config) || ckpt_compile(c, record, NULL, ckpt_adamw(c, &a), 1, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(clock_begin(&clock, &c->programs), 0);
    assert_true(p->n_segments > 100 && recorded_kernels(p) > 3300); /* nearly all */
    assert_true(recorded_bytes(p) < KEPT);
    clock_end(&clock);
    ckpt_close(c);
    stdit_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_segments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
