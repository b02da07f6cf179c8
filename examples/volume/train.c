/* SPDX-License-Identifier: Apache-2.0 */
/* Training: the loss, and the patches of each step. */
#include <stdlib.h>
#include "../common/compiled.h"
#include "../common/dump.h"
#include "../common/memory.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "run.h"

/* ---- recording ----------------------------------------------------------------------------- */

/* Cross entropy plus 1 - Dice of scores [N, D, H, W, C] and labels i32 [N, D, H, W].  Dice
 * (Milletari et al. 2016) is computed from probabilities, (2 sum p g + 1e-5) / (sum (p + g) +
 * 1e-5), and averaged over the samples and the classes except the background. */
static ckpt_tensor volume_loss(ckpt_tape *t, ckpt_tensor scores, ckpt_tensor labels,
                               int64_t classes)
{
    enum { VOXELS = 1u << 1 | 1u << 2 | 1u << 3, ALL = 31 };
    ckpt_tensor p = ckpt_softmax(t, scores, 4), g = ckpt_one_hot(t, labels, classes, CKPT_F32);
    ckpt_tensor both = ckpt_sum(t, ckpt_mul(t, p, g), VOXELS);
    ckpt_tensor all = ckpt_sum(t, ckpt_add(t, p, g), VOXELS);
    ckpt_tensor dice = ckpt_div(t, ckpt_affine(t, both, 2, 1e-5f), ckpt_affine(t, all, 1, 1e-5f));

    dice = ckpt_mean(t, ckpt_slice(t, dice, 4, 1, classes), ALL);
    return ckpt_add(t, ckpt_cross_entropy(t, scores, labels, NULL),
                    ckpt_affine(t, ckpt_reshape(t, dice, 0, NULL), -1, 1));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct volume_run *r = user;
    const int64_t *p = r->options.draw.size;
    ckpt_tensor x = ckpt_input(t, "image", CKPT_F32, 5, (int64_t[]){batch, p[0], p[1], p[2], 1});
    ckpt_tensor labels = ckpt_input(t, "label", CKPT_I32, 4, (int64_t[]){batch, p[0], p[1], p[2]});

    x = ckpt_cast(t, x, r->model.shape.dtype);
    x = ckpt_cast(t, unet_apply(&r->model, t, x, false), CKPT_F32);
    if (r->options.train.dump)
        dump_record(r->context, t, x);
    ckpt_label(t, "loss");
    return volume_loss(t, x, labels, r->data.classes);
}

/* Weight decay applies to kernels, not to biases and weights of norms. */
static ckpt_optimizer *optimizer(const struct volume_run *r)
{
    struct ckpt_optimizer_group rest = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw s = training_adamw(&r->options.train);
    ckpt_optimizer *all = optimizer_make(r->context, r->options.train.optimizer, &s);

    rest.max_ndim = 1;
    rest.weight_decay = 0;
    ckpt_optimizer_group(all, "*", &rest);
    return all;
}

int volume_compile(struct volume_run *r)
{
    int rc =
        ckpt_compile(r->context, record, r, optimizer(r), r->options.train.batch, &r->training);
    return compiled(r->context, rc, r->training, "");
}

/* ---- steps --------------------------------------------------------------------------------- */

static int feed(struct volume_run *r, int64_t first)
{
    const struct volume_draw *d = &r->options.draw;
    int64_t batch = r->options.train.batch, n = d->size[0] * d->size[1] * d->size[2];
    int64_t bytes = batch * n * (int64_t)sizeof *r->image;

    for (int64_t i = 0; i < batch; i++)
        if (volume_take_patch(&r->data, d, first + i, r->image + i * n, r->label + i * n))
            return -1;
    if (ckpt_feed(r->training, "image", r->image, bytes) ||
        ckpt_feed(r->training, "label", r->label, bytes))
        return say_fail("%s", ckpt_error(r->context));
    return 0;
}

static int feed_step(struct training *t, int64_t step)
{
    struct volume_run *r = t->user;
    int64_t batch = r->options.train.batch;
    double from = run_clock_now();

    if (feed(r, (step * ckpt_sample_groups(r->context) + ckpt_sample_group(r->context)) * batch))
        return -1;
    t->data_ms = 1e3 * (run_clock_now() - from);
    return 0;
}

static int end(struct training *t, int64_t step)
{
    return training_end(t, t->only, step, 0);
}

int volume_open_steps(void *run, struct training *t)
{
    struct volume_run *r = run;
    const struct volume_options *o = &r->options;
    const int64_t *p = o->draw.size;

    t->reads = true;
    t->feed = feed_step;
    t->end = end;
    t->user = r;
    r->image = MEMORY_FOR(sizeof *r->image, o->train.batch, p[0], p[1], p[2]);
    r->label = MEMORY_FOR(sizeof *r->label, o->train.batch, p[0], p[1], p[2]);
    return r->image && r->label
               ? 0
               : say_fail("no memory for a batch of %lld patches", (long long)o->train.batch);
}

void volume_close_steps(void *user)
{
    struct volume_run *r = user;

    free(r->image);
    free(r->label);
    r->image = NULL;
    r->label = NULL;
}
