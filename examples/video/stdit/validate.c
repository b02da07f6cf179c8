/* SPDX-License-Identifier: Apache-2.0 */
/* The validation loss by noise level (common/validation.h), without the shift for resolution and
 * length. */
#include <stdlib.h>
#include "ckpt_dist.h"
#include "run.h"

/* ---- data and program ---------------------------------------------------------------------- */

/* Every frame is noised to its level. */
static void drop_draws(struct video_data *d, const char *path)
{
    if (d->t || d->eps || d->x_mask)
        say_note("--val %s: its times, noise and frame masks are not used", path);
    free(d->x_mask);
    d->x_mask = NULL;
}

/* A separate run for the recorder and the batches, with clips, times and noise of a file. */
int stdit_validation_open(struct stdit_run *r)
{
    struct stdit_validation *v = &r->validation;

    if (!r->options.validation.file)
        return 0;
    v->run = calloc(1, sizeof *v->run);
    if (!v->run)
        return say_fail("no memory for --val");
    v->run->options = r->options;
    bool cached = validation_is_cached(&r->options.validation);
    v->run->options.features = cached ? NULL : r->options.validation.file;
    v->run->options.buckets = v->run->options.video = v->run->options.video_dir = NULL;
    v->run->options.cache = cached ? r->options.validation.file : NULL;
    v->run->options.train.batch = 1;
    v->run->options.train.dump = NULL;
    struct video_data *d = &v->run->data;
    if (stdit_data_open(d, &v->run->options, false))
        return -1;
    drop_draws(d, r->options.validation.file);
    v->common = (struct validation){.log = &r->log,
                                    .rows = d->shapes.rows,
                                    .average = r->options.validation.average,
                                    .seed = (uint64_t)r->options.library.seed,
                                    .stream = STREAM_VALID,
                                    .values = video_data_z(d, d->shapes.shape)};
    return validation_noise(&v->common, &d->t, &d->eps);
}

int stdit_compile_validation(struct stdit_run *r)
{
    struct stdit_validation *v = &r->validation;

    if (!v->run)
        return 0;
    v->run->context = r->context;
    v->run->model = r->model;
    return stdit_compile_loss(v->run, v->run->data.shapes.shape, NULL, "validation: ");
}

/* The model belongs to the training run. */
void stdit_validation_close(struct stdit_run *r)
{
    if (r->validation.run)
        video_data_close(&r->validation.run->data);
    free(r->validation.run);
    r->validation.run = NULL;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* The buffers of a validation. */
struct measuring {
    struct stdit_run *run;
    struct stdit_batch batch;
};

static int measure_clip(struct validation *v, int64_t row, double *sum)
{
    struct measuring *m = v->user;
    struct stdit_run *r = m->run;
    const struct video_shape *s = r->data.shapes.shape;
    /* without the offset that a rank adds */
    int64_t before = row + r->data.shapes.rows * ckpt_ranks(r->context) - ckpt_rank(r->context);
    float loss;

    if (stdit_batch_fill(&m->batch, r, &(struct video_turn){.shape = s, .before = before}))
        return -1;
    if (stdit_batch_feed(&m->batch, r, s->training, false) ||
        stdit_batch_feed_training(&m->batch, r, s->training) || ckpt_step(s->training, &loss))
        return say_fail("validation: %s", ckpt_error(r->context));
    *sum += loss;
    return 0;
}

int stdit_validate(void *run, int64_t step)
{
    struct stdit_run *r = run;
    struct measuring m = {.run = r->validation.run};
    struct validation *v = &r->validation.common;

    if (stdit_batch_create(&m.batch, m.run, m.run->data.shapes.shape, 1))
        return -1;
    v->context = r->context;
    v->measure = measure_clip;
    v->user = &m;
    int rc = validation_run(v, step);
    stdit_batch_free(&m.batch);
    return rc;
}
