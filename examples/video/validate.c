/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on clips of --val, by noise level: see validate.h. */
#include "validate.h"
#include <stdlib.h>
#include "../common/say.h"
#include "ckpt_dist.h"

static int measure_clip(struct validation *common, int64_t row, double *sum)
{
    struct video_validation *v = common->user;
    const struct video_model *m = v->run.options.net.model;
    struct video_selection s = {.shape = v->run.data.shapes.shape};
    float loss;

    if (m->fill_row(&v->batch, row))
        return -1;
    s.second = video_is_pair(&v->run) &&
               (double)v->batch.t[v->batch.first] < v->run.options.net.sizes.boundary;
    ckpt_program *p = video_selection_program(&s);
    if (m->feed(&v->batch, p) || ckpt_step(p, &loss))
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
    o->data = o->csv = o->images = o->buckets = o->video = o->video_dir = NULL;
    o->text_drop = o->image_drop = 0;
    o->keep_order = true;
    o->train.batch = 1;
    o->train.samples = ranks;
    o->train.dump = NULL;
}

/* Every frame is noised to its level. */
static void drop_draws(struct video_data *d, const char *path)
{
    if (d->t || d->eps || d->x_mask)
        say_note("--val %s: its times%s noise%s are not used", path, d->x_mask ? "," : " and",
                 d->x_mask ? " and frame masks" : "");
    free(d->x_mask);
    d->x_mask = NULL;
}

/* The second model of a pair has the levels below those of the first. */
static void range(const struct video_run *r, double *from, double *to)
{
    const struct video_model *m = r->options.net.model;
    double boundary;

    m->range(&r->options.net, from, to);
    if (video_is_pair(r))
        m->range(&r->options.low, from, &boundary);
}

/* Opens a separate run for the recorder and the batches, with clips, times and noise of a file. */
int video_validation_open(struct video_validation *v, const struct video_run *r)
{
    const struct video_model *m = r->options.net.model;
    struct video_data *d = &v->run.data;

    if (!r->options.validation.file)
        return 0;
    v->run.options = r->options;
    v->run.context = r->context;
    v->run.images = &v->none;
    v->run.stdit = r->stdit;
    set_options(&v->run.options, ckpt_sample_groups(r->context));
    if (m->data(d, &v->run.options))
        return -1;
    drop_draws(d, r->options.validation.file);
    v->common = (struct validation){.context = r->context,
                                    .rows = d->shapes.rows,
                                    .average = r->options.validation.average,
                                    .whole = m->whole_times,
                                    .seed = (uint64_t)r->options.library.seed,
                                    .stream = m->noise_of_validation,
                                    .values = video_data_z(d, d->shapes.shape),
                                    .measure = measure_clip,
                                    .user = v};
    if (m->range)
        range(r, &v->common.from, &v->common.to);
    return validation_noise(&v->common, &d->t, &d->eps);
}

int video_validation_compile(struct video_validation *v, struct video_run *r)
{
    if (!r->options.validation.file)
        return 0;
    v->run.options.net = r->options.net; /* with its parameters */
    v->run.options.low = r->options.low;
    v->run.context = r->context;
    v->common.log = &r->log;
    return video_compile_loss(&v->run, v->run.data.shapes.shape, NULL, "validation: ");
}

void video_validation_report(const void *run)
{
    validation_report(&((const struct video_run *)run)->validation->common);
}

void video_validation_close(struct video_validation *v)
{
    video_data_close(&v->run.data);
}

int video_validate(void *run, int64_t step)
{
    struct video_validation *v = ((struct video_run *)run)->validation;
    int rc = video_batch_open(&v->batch, &v->run, v->run.data.shapes.shape, 1);
    rc = rc ? rc : validation_run(&v->common, step);
    video_batch_close(&v->batch);
    return rc;
}
