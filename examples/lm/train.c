/* SPDX-License-Identifier: Apache-2.0 */
/* Training: next-token prediction with cross entropy, validation loss, and text samples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/dump.h"
#include "../common/memory.h"
#include "../common/training.h"
#include "../common/variants.h"
#include "ckpt_dist.h"
#include "run.h"

/* ---- recording ----------------------------------------------------------------------------- */

/* dump: also computes all scores, which the loss alone need not store. */
static ckpt_tensor record_loss(ckpt_tape *t, int64_t batch, const struct variant_step *step,
                               bool dump)
{
    const struct lm_run *r = step->user;
    int64_t shape[] = {batch, r->options.length};
    ckpt_tensor tokens = ckpt_input(t, "tokens", CKPT_I32, 2, shape);
    ckpt_tensor targets = ckpt_input(t, "targets", CKPT_I32, 2, shape);
    ckpt_tensor x = lm_hidden(&r->model, t, tokens);

    if (dump)
        dump_record(r->context, t, lm_scores(&r->model, t, x));
    return lm_cross_entropy(&r->model, t, x, targets, step->size);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    return record_loss(t, batch, user, false);
}

static ckpt_tensor record_dump(ckpt_tape *t, int64_t batch, void *user)
{
    return record_loss(t, batch, user, true);
}

/* Weight decay applies to matrices, not to biases and norm weights; Muon excludes embeddings and
 * the head. */
static ckpt_optimizer *optimizer(const struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct ckpt_optimizer_group rest = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw s = training_adamw(&o->train);

    rest.max_ndim = 1;
    rest.weight_decay = 0;
    ckpt_optimizer *all = optimizer_make(r->context, o->train.optimizer, &s);
    const ckpt_tensor tables[] = {r->model.tokens.weight, r->model.places.weight, r->model.head};
    for (int i = 0; i < 3; i++)
        optimizer_keep_adamw(r->context, all, o->train.optimizer, tables[i]);
    ckpt_optimizer_group(all, "*", &rest);
    return all;
}

/* Compiles a program with the loss.  --loss-chunk auto becomes the chunk of the first one. */
static int compile_loss(struct lm_run *r, ckpt_recorder recorder, const ckpt_optimizer *optimizer,
                        ckpt_program **p)
{
    struct lm_options *o = &r->options;
    enum { CHUNKS = 7 }; /* 1 to CKPT_MAX_PARTS chunks */
    int64_t chunk[CHUNKS] = {o->loss_chunk};
    int n = 1;

    if (o->loss_chunk == CKPT_AUTO)
        n = variants_halve(lm_options_tokens(o, true), CHUNKS, chunk);
    int rc = variants_compile_step(r->context, recorder, r, n, chunk, optimizer, o->train.batch, p,
                                   &o->loss_chunk);
    return compiled(r->context, rc, *p, "");
}

int lm_compile(struct lm_run *r, bool trains)
{
    const struct lm_options *o = &r->options;
    bool writes = o->sample_every && !o->library.plan_only && trains;

    if (writes && lm_decoder_make(&r->decoder, &r->model, r->context, o->samples,
                                  o->length > 1 ? o->length : 2))
        return -1;
    if (trains && compile_loss(r, o->train.dump ? record_dump : record, optimizer(r), &r->training))
        return -1;
    if (r->validation.rows && compile_loss(r, record, NULL, &r->measuring))
        return -1;
    return writes ? lm_decoder_compile(&r->decoder) : 0;
}

/* ---- batches ------------------------------------------------------------------------------- */

static int open_batch(struct lm_run *r)
{
    const struct lm_options *o = &r->options;

    r->tokens = MEMORY_FOR(sizeof *r->tokens, o->train.batch, o->length);
    r->targets = MEMORY_FOR(sizeof *r->targets, o->train.batch, o->length);
    return r->tokens && r->targets
               ? 0
               : say_fail("no memory for a batch of %lld samples", (long long)o->train.batch);
}

void lm_close_steps(void *user)
{
    struct lm_run *r = user;

    free(r->tokens);
    free(r->targets);
    r->tokens = r->targets = NULL;
}

/* Feeds n rows of data; the rest of the batch has no targets. */
static int feed(const struct lm_run *r, ckpt_program *p, struct dataset *d, int64_t first,
                int64_t n)
{
    const struct lm_options *o = &r->options;
    int64_t places = o->train.batch * o->length, bytes = places * (int64_t)sizeof *r->tokens;

    if (dataset_read(d, first, n, r->tokens, r->targets))
        return -1;
    for (int64_t i = n * o->length; i < places; i++) {
        r->tokens[i] = 0;
        r->targets[i] = DATASET_IGNORED;
    }
    if (ckpt_feed(p, "tokens", r->tokens, bytes) || ckpt_feed(p, "targets", r->targets, bytes))
        return say_fail("%s", ckpt_error(r->context));
    return 0;
}

/* ---- validation loss and text samples -------------------------------------------------------- */

/* Number of targets in the batch that was fed last. */
static int64_t count_targets(const struct lm_run *r)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->options.train.batch * r->options.length; i++)
        n += r->targets[i] != DATASET_IGNORED;
    return n;
}

/* Sets *loss to the mean over all targets of the measured rows, however many are in a batch; NaN if
 * the run was asked to stop meanwhile.  All ranks measure the same batches, because sharded weights
 * need every rank. */
static int measure(struct lm_run *r, double *loss)
{
    int64_t batch = r->options.train.batch, most = r->options.validation_batches;
    int64_t rows = r->validation.rows / batch < most ? r->validation.rows : most * batch;
    double sum = 0, targets = 0;

    for (int64_t first = 0; first < rows; first += batch) {
        float mean;
        if (training_is_stopped(r->context)) {
            *loss = NAN;
            return 0;
        }
        if (feed(r, r->measuring, &r->validation, first,
                 rows - first < batch ? rows - first : batch))
            return -1;
        if (ckpt_step(r->measuring, &mean))
            return say_fail("%s", ckpt_error(r->context));
        double n = (double)count_targets(r);
        sum += n * (double)mean;
        targets += n;
    }
    *loss = targets > 0 ? sum / targets : 0;
    return 0;
}

int lm_measure(struct lm_run *r, double *loss)
{
    int rc = open_batch(r);

    rc = rc ? rc : measure(r, loss);
    lm_close_steps(r);
    return rc;
}

static int report_validation(void *run, int64_t step)
{
    struct lm_run *r = run;
    double loss;

    if (measure(r, &loss))
        return -1;
    if (isnan(loss))
        return 0;
    printf("step %lld: validation loss %.4f\n", (long long)step, loss);
    fflush(stdout);
    log_line_begin(&r->log, "validation_step", step);
    log_float(&r->log, "validation_loss", loss);
    log_line_end(&r->log);
    return 0;
}

static int report_text(void *run, int64_t step)
{
    printf("step %lld:\n", (long long)step);
    return lm_write_text(run, stdout);
}

/* ---- steps --------------------------------------------------------------------------------- */

static int feed_step(struct training *t, int64_t step)
{
    struct lm_run *r = t->user;
    int64_t batch = r->options.train.batch;
    int64_t first = (step * ckpt_ranks(r->context) + ckpt_rank(r->context)) * batch;

    return feed(r, r->training, &r->data, first, batch);
}

static int end(struct training *t, int64_t step)
{
    const struct lm_run *r = t->user;
    const struct lm_options *o = &r->options;

    return training_end(t, r->training, step, o->train.batch * o->length * ckpt_ranks(r->context));
}

static int write_directory(struct training *t)
{
    return lm_save_hf(t->saves_user);
}

int lm_open_steps(void *run, struct training *t)
{
    const struct lm_run *r = run;
    const struct lm_options *o = &r->options;

    t->feed = feed_step;
    t->end = end;
    if (r->measuring)
        t->look[0] = (struct training_look){report_validation, o->validation_every, true};
    t->look[1] = (struct training_look){report_text, o->sample_every, o->sample_every};
    t->write_directory = write_directory;
    t->saves_user = run;
    t->user = run;
    return open_batch(run);
}
