/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on clips of --val, by noise level: see validate.h. */
#include "validate.h"
#include <stdlib.h>
#include "../common/say.h"
#include "ckpt_dist.h"

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
    v->common = (struct validation){.context = r->context,
                                    .rows = d->shapes.rows,
                                    .average = r->options.validation.average,
                                    .whole = true,
                                    .seed = (uint64_t)r->options.library.seed,
                                    .stream = VIDEO_STREAM_VALID,
                                    .values = video_data_z(d, d->shapes.shape),
                                    .measure = measure_clip,
                                    .user = v};
    return validation_noise(&v->common, &d->t, &d->eps);
}

int video_validation_compile(struct video_validation *v, struct video_run *r)
{
    if (!r->options.validation.file)
        return 0;
    v->run.options.net = r->options.net; /* with its parameters */
    v->common.log = &r->log;
    return video_compile_loss(&v->run, NULL, "validation: ");
}

void video_validation_close(struct video_validation *v)
{
    video_data_close(&v->run.data);
}

int video_validate(void *run, int64_t step)
{
    struct video_validation *v = ((struct video_run *)run)->validation;
    int rc = video_batch_open(&v->batch, &v->run);
    rc = rc ? rc : validation_run(&v->common, step);
    video_batch_close(&v->batch);
    return rc;
}
