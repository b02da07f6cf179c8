/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on clips of --val, by noise level: see validate.h. */
#include "validate.h"
#include <math.h>
#include <stdlib.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"

/* ---- data and program ---------------------------------------------------------------------- */

/* Uses the whole clip: neither prompt nor image is dropped. */
static void set_options(struct video_options *o, int ranks)
{
    bool cached = validation_is_cached(&o->validation);

    o->features = cached ? NULL : o->validation.file;
    o->cache = cached ? o->validation.file : NULL;
    o->data = o->csv = o->images = NULL;
    o->text_drop = o->image_drop = 0;
    o->keep_order = true;
    o->train.batch = 1;
    o->train.samples = ranks;
    o->train.dump = NULL;
}

/* Opens a separate run for the recorder and the batches, with clips, times and noise of a file. */
int video_validation_open(struct video_validation *v, const struct video_run *r)
{
    struct video_data *d = &v->run.data;

    if (!r->options.validation.file)
        return 0;
    v->run.options = r->options;
    v->run.context = r->context;
    v->run.images = &v->none;
    set_options(&v->run.options, ckpt_ranks(r->context));
    if (video_data_open(d, &v->run.options))
        return -1;
    if (d->t || d->eps)
        say_note("--val %s: its times and noise are not used", r->options.validation.file);
    free(d->t);
    free(d->eps);
    d->t = MEMORY_FOR(sizeof *d->t, d->rows);
    d->eps = MEMORY_FOR(sizeof *d->eps, d->rows, video_data_z(d));
    return d->t && d->eps ? 0 : say_fail("--val: no memory for noise");
}

int video_validation_compile(struct video_validation *v, struct video_run *r)
{
    if (!r->options.validation.file)
        return 0;
    v->run.options.net = r->options.net; /* with its parameters */
    v->common = (struct validation){.context = r->context,
                                    .log = &r->log,
                                    .rows = v->run.data.rows,
                                    .average = r->options.validation.average,
                                    .user = v};
    for (int level = 0; level < VALIDATION_LEVELS; level++)
        v->common.time[level] = floor(validation_time(level)); /* timesteps are integers */
    return video_compile_loss(&v->run, NULL, "validation: ");
}

void video_validation_close(struct video_validation *v)
{
    video_data_close(&v->run.data);
}

/* ---- measuring ------------------------------------------------------------------------------ */

static void set_level(struct validation *common, int level)
{
    struct video_validation *v = common->user;
    struct video_data *d = &v->run.data;
    int64_t z = video_data_z(d);
    uint64_t seed = (uint64_t)v->run.options.library.seed;

    for (int64_t row = 0; row < d->rows; row++) {
        d->t[row] = (float)common->time[level];
        ckpt_fill_normal(seed, (uint64_t)(row * VALIDATION_LEVELS + level), VIDEO_STREAM_VALID,
                         d->eps + row * z, z);
    }
}

static int measure_clip(struct validation *common, int64_t row, double *sum)
{
    struct video_validation *v = common->user;
    float loss;

    if (video_batch_fill_row(&v->batch, row))
        return -1;
    if (video_batch_feed(&v->batch) || ckpt_step(v->run.training, &loss))
        return say_fail("validation: %s", ckpt_error(v->run.context));
    *sum += loss;
    return 0;
}

int video_validate(struct video_validation *v, int64_t step)
{
    v->common.set = set_level;
    v->common.measure = measure_clip;
    int rc = video_batch_open(&v->batch, &v->run);
    rc = rc ? rc : validation_run(&v->common, step);
    video_batch_close(&v->batch);
    return rc;
}
