/* SPDX-License-Identifier: Apache-2.0 */
/* Training: prediction of tokens with cross entropy, validation loss, and text samples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/dump.h"
#include "../common/memory.h"
#include "../common/patterns.h"
#include "../common/remedies.h"
#include "../common/training.h"
#include "../common/variants.h"
#include "ckpt_dist.h"
#include "run.h"

#define FOREVER 1e30 /* seconds of a step: ckpt_forecast looks at its lower bound first */

/* ---- recording ----------------------------------------------------------------------------- */

static const char *const input_names[LM_INPUTS] = {"tokens",  "targets", "places", "segments",
                                                   "lengths", "pairs",   "starts"};

/* Records the inputs that the model has. */
static void record_inputs(const struct lm_run *r, ckpt_tape *t, int64_t batch,
                          ckpt_tensor in[LM_INPUTS])
{
    for (int i = 0; i < LM_INPUTS; i++) {
        bool alone = i == LM_LENGTHS || i == LM_PAIRS; /* one value of a sample */
        in[i] = r->width[i] ? ckpt_input(t, input_names[i], CKPT_I32, alone ? 1 : 2,
                                         (int64_t[]){batch, r->width[i]})
                            : CKPT_NONE;
    }
}

/* dump: also computes all scores, which the loss alone need not store. */
static ckpt_tensor record_loss(ckpt_tape *t, int64_t batch, const struct variant_step *step,
                               bool dump, bool trains)
{
    const struct lm_run *r = step->user;
    ckpt_tensor in[LM_INPUTS];

    if (r->options.preference.loss)
        return preference_record(r, t, batch, step->size, trains, dump);
    record_inputs(r, t, batch, in);
    ckpt_tensor balance, x = lm_hidden(&r->model, t, in, trains ? &balance : NULL);
    ckpt_tensor rows = lm_rows(&r->model, t, x, in[LM_PLACES]);
    if (dump)
        dump_record(r->context, t, lm_scores(&r->model, t, rows));
    ckpt_tensor loss = trains && r->options.distill.from
                           ? distill_record(r, t, rows, in[LM_TARGETS], step->size)
                           : lm_cross_entropy(&r->model, t, rows, lm_targets(t, in, x), step->size,
                                              CKPT_REDUCE_MEAN);
    if (trains && balance.id)
        loss = ckpt_add(t, loss, balance);
    if (!in[LM_PAIRS].id)
        return loss;
    if (trains)
        return ckpt_add(t, loss, lm_pairs_loss(&r->model, t, x, in[LM_PAIRS], CKPT_REDUCE_MEAN));
    ckpt_output(t, "pairs_loss", lm_pairs_loss(&r->model, t, x, in[LM_PAIRS], CKPT_REDUCE_NONE));
    return loss;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    return record_loss(t, batch, user, false, true);
}

static ckpt_tensor record_measure(ckpt_tape *t, int64_t batch, void *user)
{
    return record_loss(t, batch, user, false, false);
}

static ckpt_tensor record_dump(ckpt_tape *t, int64_t batch, void *user)
{
    return record_loss(t, batch, user, true, true);
}

static bool is_trained(ckpt *c, ckpt_tensor x)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;

    return x.id && !ckpt_param_info(c, x, &info) && info.trainable;
}

/* Below adapters there may be none. */
static bool trains_vectors(const struct lm_run *r)
{
    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        const struct ckpt_param_info p = param_info_at(r->context, i);
        if (p.trainable && p.desc.ndim == 1)
            return true;
    }
    return false;
}

static ckpt_tensor record_texts(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant_step *step = user;

    return preference_record_texts(step->user, t, batch, step->size);
}

static ckpt_tensor record_top(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant_step *step = user;
    const struct lm_run *r = step->user;
    ckpt_tensor in[LM_INPUTS] = {[LM_TOKENS] = ckpt_input(t, input_names[LM_TOKENS], CKPT_I32, 2,
                                                          (int64_t[]){batch, r->width[LM_TOKENS]})};
    ckpt_tensor x = lm_hidden(&r->model, t, in, NULL);

    return distill_record_top(r, t, lm_rows(&r->model, t, x, CKPT_NONE), step->size);
}

/* Weight decay applies to matrices, not to biases and norm weights; Muon excludes embeddings, the
 * head, and experts. */
static ckpt_optimizer *optimizer(const struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct ckpt_optimizer_group rest = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_optimizer_group biases = CKPT_OPTIMIZER_GROUP_INIT; /* [experts, columns] */
    bool has_biases = false;
    struct ckpt_adamw s = training_adamw(&o->train);

    rest.max_ndim = 1;
    rest.weight_decay = 0;
    ckpt_optimizer *all = optimizer_make(r->context, o->train.optimizer, &s);
    const ckpt_tensor tables[] = {r->model.tokens.weight, r->model.places.weight, r->model.head,
                                  r->model.segments, r->model.pairs.weight};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (is_trained(r->context, tables[i]))
            optimizer_keep_adamw(r->context, all, o->train.optimizer, tables[i]);
    for (int64_t i = 0; i < o->config.layers; i++) {
        const struct lm_experts *e = &r->model.block[i].experts;
        const ckpt_tensor rows[] = {e->router.weight, e->gate_up, e->down};
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if (is_trained(r->context, rows[k]))
                optimizer_keep_adamw(r->context, all, o->train.optimizer, rows[k]);
        has_biases |= is_trained(r->context, e->gate_up_bias);
    }
    if (trains_vectors(r))
        ckpt_optimizer_group(all, "*", &rest);
    biases.weight_decay = 0;
    if (has_biases)
        ckpt_optimizer_group(all, "*_proj_bias", &biases);
    return all;
}

/* 1 to CKPT_MAX_PARTS chunks of the loss with --loss-chunk auto, the largest first; else the given
 * one.  Returns their number. */
enum { CHUNKS = 7 };
static int list_chunks(const struct lm_options *o, int64_t chunk[CHUNKS])
{
    chunk[0] = o->loss_chunk;
    return o->loss_chunk == CKPT_AUTO ? variants_halve(lm_options_tokens(o, true), CHUNKS, chunk)
                                      : 1;
}

/* Compiles a program with the loss.  --loss-chunk auto becomes the chunk of the first one. */
static int compile_loss(struct lm_run *r, ckpt_recorder recorder, const ckpt_optimizer *optimizer,
                        ckpt_program **p)
{
    struct lm_options *o = &r->options;
    int64_t chunk[CHUNKS];
    int n = list_chunks(o, chunk);
    int rc = variants_compile_step(r->context, recorder, r, n, chunk, optimizer, o->train.batch, p,
                                   &o->loss_chunk);

    return compiled(r->context, rc, *p, "");
}

/* As lm_forecast, for one program; needs: of the chunk that needs the least. */
static int forecast_loss(struct lm_run *r, ckpt_recorder recorder, const ckpt_optimizer *optimizer,
                         bool brief, bool *fits, int64_t *needs)
{
    const struct lm_options *o = &r->options;
    int64_t chunk[CHUNKS], least = INT64_MAX;

    *fits = false;
    for (int i = list_chunks(o, chunk) - 1; i >= 0 && !*fits; i--) {
        struct variant_step step = {r, chunk[i]};
        struct ckpt_forecast f = CKPT_FORECAST_INIT;
        int rc = ckpt_forecast(r->context, recorder, &step, optimizer, o->train.batch,
                               brief ? FOREVER : 0, &f);
        if (rc && rc != CKPT_EBUDGET)
            return say_fail("%s", ckpt_error(r->context));
        *fits = !rc && f.step_seconds < INFINITY;
        const int64_t bytes = rc ? remedies_needs(ckpt_error(r->context)) : 0;
        least = bytes && bytes < least ? bytes : least;
    }
    if (needs && least < INT64_MAX && least > *needs)
        *needs = least;
    return 0;
}

int lm_forecast(struct lm_run *r, const struct lm_programs *p, bool brief, bool *fits,
                int64_t *needs)
{
    int rc = 0;

    *fits = true;
    if (p->optimizer)
        rc = forecast_loss(r, p->recorder, p->optimizer, brief, fits, needs);
    if (!rc && *fits && r->validation.rows)
        rc = forecast_loss(r, record_measure, NULL, brief, fits, needs);
    return rc;
}

int lm_compile(struct lm_run *r, bool trains)
{
    const struct lm_options *o = &r->options;
    bool writes = ((o->sample_every && trains) || o->eval) && !o->library.plan_only;
    const struct lm_programs p = {o->train.dump ? record_dump : record,
                                  trains ? optimizer(r) : NULL};

    if (o->longest && lm_length_choose(r, &p))
        return -1;
    if (writes && lm_decoder_make(&r->decoder, &r->model, r->context, o->samples,
                                  o->length > 1 ? o->length : 2))
        return -1;
    if (trains && compile_loss(r, p.recorder, p.optimizer, &r->training))
        return -1;
    if (r->validation.rows && compile_loss(r, record_measure, NULL, &r->measuring))
        return -1;
    if (preference_is_cached(r) && compile_loss(r, record_texts, NULL, &r->preference.reference))
        return -1;
    if (o->distill.to && compile_loss(r, record_top, NULL, &r->distill.writing))
        return -1;
    return writes ? lm_decoder_compile(&r->decoder) : 0;
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Samples from number n on count for nothing: they have no targets. */
static void fill_rest(const struct lm_run *r, int64_t n)
{
    for (int i = 0; i < LM_INPUTS; i++)
        for (int64_t k = n * r->width[i]; k < r->options.train.batch * r->width[i]; k++)
            r->in[i][k] = i == LM_TARGETS || i == LM_PAIRS ? DATASET_IGNORED : i == LM_LENGTHS;
}

static int feed_inputs(const struct lm_run *r, ckpt_program *p)
{
    for (int i = 0; i < LM_INPUTS; i++) {
        int64_t bytes = r->options.train.batch * r->width[i] * (int64_t)sizeof *r->in[i];
        if (r->width[i] && ckpt_feed(p, input_names[i], r->in[i], bytes))
            return say_fail("%s", ckpt_error(r->context));
    }
    return 0;
}

/* Feeds n rows of data; the rest of the batch has no targets. */
static int feed(struct lm_run *r, ckpt_program *p, struct dataset *d, int64_t first, int64_t n)
{
    if (r->options.preference.loss)
        return preference_feed(r, p, d == &r->validation, first, n);
    int rc = d->first_piece ? dataset_read_samples(d, first, n, r->in[LM_TOKENS], r->in[LM_TARGETS],
                                                   r->in[LM_STARTS])
             : d->piece     ? masked_read(d, &r->masking, first, n, r->in)
                            : dataset_read(d, first, n, r->in[LM_TOKENS], r->in[LM_TARGETS]);

    if (rc)
        return -1;
    fill_rest(r, n);
    return feed_inputs(r, p) ||
                   (p == r->training && r->options.distill.from && distill_feed(r, p, first))
               ? -1
               : 0;
}

/* ---- validation loss and text samples -------------------------------------------------------- */

static int64_t count(const int32_t *target, int64_t n)
{
    int64_t found = 0;

    for (int64_t i = 0; i < n; i++)
        found += target[i] != DATASET_IGNORED;
    return found;
}

/* Adds the losses of n pairs of the step before. */
static int add_pairs(const struct lm_run *r, struct lm_sums *m, int64_t n)
{
    const int64_t batch = r->options.train.batch;
    float *loss = MEMORY_FOR(sizeof *loss, batch, 1);
    int rc = loss ? 0 : say_fail("no memory for the losses of %lld pairs", (long long)batch);

    if (!rc && ckpt_fetch(r->measuring, "pairs_loss", loss, batch * (int64_t)sizeof *loss))
        rc = say_fail("%s", ckpt_error(r->context));
    for (int64_t i = 0; i < n && !rc; i++)
        m->pairs_loss += (double)loss[i];
    m->pairs += (double)n;
    free(loss);
    return rc;
}

/* Measures n rows from `first` on, at most a batch. */
static int measure_batch(struct lm_run *r, int64_t first, int64_t n, struct lm_sums *m)
{
    float mean;

    if (feed(r, r->measuring, &r->validation, first, n))
        return -1;
    if (ckpt_step(r->measuring, &mean))
        return say_fail("%s", ckpt_error(r->context));
    if (r->options.preference.loss)
        return preference_measured(r, n, m);
    double targets = (double)count(r->in[LM_TARGETS], n * r->width[LM_TARGETS]);
    m->loss += targets * (double)mean;
    m->targets += targets;
    return r->width[LM_PAIRS] ? add_pairs(r, m, n) : 0;
}

/* Sets *loss to the mean over all targets of the measured rows, however many are in a batch, plus
 * that over their pairs; NaN if the run was asked to stop meanwhile.  All ranks measure the same
 * batches, because sharded weights need every rank. */
static int measure(struct lm_run *r, double *loss)
{
    int64_t batch = r->options.train.batch, most = r->options.validation_batches;
    int64_t rows = r->validation.rows / batch < most ? r->validation.rows : most * batch;
    struct lm_sums m = {0, 0, 0, 0};

    for (int64_t first = 0; first < rows; first += batch) {
        if (training_is_stopped(r->context)) {
            *loss = NAN;
            return 0;
        }
        if (measure_batch(r, first, rows - first < batch ? rows - first : batch, &m))
            return -1;
    }
    *loss = m.targets > 0 ? m.loss / m.targets : 0;
    *loss += m.pairs > 0 ? m.pairs_loss / m.pairs : 0;
    return 0;
}

int lm_measure(struct lm_run *r, double *loss)
{
    int rc = lm_open_batch(r);

    rc = rc ? rc : measure(r, loss);
    lm_close_steps(r);
    return rc;
}

/* The loss of --val; of conversations also the perplexity. */
static void put_loss(struct lm_run *r, double loss)
{
    const bool turns = r->validation.first_piece != NULL;

    printf("validation loss %.4f", loss);
    if (turns)
        printf(", perplexity %.4f", exp(loss));
    log_float(&r->log, "validation_loss", loss);
    if (turns)
        log_float(&r->log, "validation_perplexity", exp(loss));
}

static void put_answers(struct lm_run *r, int64_t right)
{
    printf("%sexact answers %lld of %lld", r->measuring ? ", " : "", (long long)right,
           (long long)r->eval.n);
    log_float(&r->log, "exact_answers", (double)right / (double)r->eval.n);
}

static int report_validation(void *run, int64_t step)
{
    struct lm_run *r = run;
    double loss = 0;
    int64_t right = 0;

    if ((r->measuring && measure(r, &loss)) || (r->eval.n && !isnan(loss) && lm_answer(r, &right)))
        return -1;
    if (isnan(loss) || right < 0)
        return 0;
    log_line_begin(&r->log, "validation_step", step);
    printf("step %lld: ", (long long)step);
    if (r->measuring)
        put_loss(r, loss);
    if (r->eval.n)
        put_answers(r, right);
    printf("\n");
    fflush(stdout);
    log_line_end(&r->log);
    return 0;
}

static int report_text(void *run, int64_t step)
{
    printf("step %lld:\n", (long long)step);
    return lm_write_text(run, stdout);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Feeds the rows of a step that balance this rank with the others. */
static int feed_balanced(struct lm_run *r, int64_t step)
{
    const int64_t batch = r->options.train.batch, length = r->data.length;
    int64_t *sample = MEMORY_FOR(sizeof *sample, batch);
    int rc = sample ? lm_balance(r, step, sample)
                    : say_fail("no memory for %lld rows", (long long)batch);

    for (int64_t i = 0; i < batch && !rc; i++)
        rc = dataset_read_samples(&r->data, sample[i], 1, r->in[LM_TOKENS] + i * length,
                                  r->in[LM_TARGETS] + i * length, r->in[LM_STARTS] + i * length);
    free(sample);
    return rc ? -1 : feed_inputs(r, r->training);
}

static int feed_step(struct training *t, int64_t step)
{
    struct lm_run *r = t->user;

    if (r->options.balance)
        return feed_balanced(r, step);
    return feed(r, r->training, &r->data, lm_first_sample(r, step), r->options.train.batch);
}

static int log_fields(struct training *t, int64_t step)
{
    struct lm_run *r = t->user;

    if (r->options.preference.loss)
        return preference_log(r, r->training, step);
    return r->options.distill.from ? distill_log(r, r->training) : 0;
}

static int end(struct training *t, int64_t step)
{
    const struct lm_run *r = t->user;
    const struct lm_options *o = &r->options;
    const int64_t tokens = o->preference.loss ? PREFERENCE_TEXTS * r->preference.length : o->length;
    const int64_t samples = o->train.batch * ckpt_sample_groups(r->context);

    return training_end(t, r->training, step, samples * tokens) || adapters_check_step(t, step) ? -1
                                                                                                : 0;
}

static int write_directory(struct training *t)
{
    return lm_save_hf(t->saves_user);
}

/* What is trained beside frozen weights, under PEFT's names. */
static bool saved(void *run, const char *name)
{
    return adapters_saved(&((const struct lm_run *)run)->adapters, name);
}

static bool saved_name(void *run, const char *name, int i, char *to, size_t size)
{
    return adapters_saved_name(&((const struct lm_run *)run)->adapters, name, i, to, size);
}

int lm_open_steps(void *run, struct training *t)
{
    const struct lm_run *r = run;
    const struct lm_options *o = &r->options;

    t->feed = feed_step;
    t->end = end;
    t->fields = log_fields;
    if (r->measuring || r->eval.n)
        t->look[0] = (struct training_look){report_validation, o->validation_every, true};
    t->look[1] = (struct training_look){report_text, o->sample_every, o->sample_every};
    t->write_directory = write_directory;
    t->saves = o->adapters.rank ? saved : NULL;
    t->alias = o->adapters.rank ? saved_name : NULL;
    t->saves_user = run;
    t->user = run;
    return lm_open_batch(run) || preference_note(run) ? -1 : 0;
}
