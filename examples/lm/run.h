/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one lm-train or lm-sample run, shared by the files of both programs. */
#ifndef LM_RUN_H
#define LM_RUN_H

#include "../common/training.h"
#include "chat_data.h"
#include "dataset.h"
#include "decode.h"
#include "distill.h"
#include "eval.h"
#include "masked.h"
#include "model.h"
#include "options.h"
#include "preference.h"
#include "../tokenizer/tokenizer.h"

struct lm_run {
    struct lm_options options;
    struct lm model;
    struct tokenizer tokenizer;
    struct dataset data, validation; /* validation.rows 0: no validation data */
    struct adapter_run adapters;     /* set with the model */
    struct lm_decoder decoder;       /* for generated text; decoder.text NULL: none is made */
    ckpt *context;
    ckpt_program *training, *measuring; /* owned by the context; NULL: not needed */
    int64_t parameters, trainable;      /* their numbers: of the model alone, and with adapters */
    int64_t first;                      /* steps done by the runs that this one resumes */
    char title[512];                    /* describes the data */
    bool chosen;                        /* --loss-chunk auto chose the chunk */
    int64_t next_needs;                 /* --length auto: bytes of the next length; 0: not known */
    struct masking masking;             /* of a masked model */
    struct chat chat;                   /* chat.template NULL: there are no conversations */
    struct chat_counts conversations;   /* of the data */
    struct eval eval;                   /* questions of --eval */
    int64_t width[LM_INPUTS];           /* values of a sample; 0: the model has no such input */
    int32_t *in[LM_INPUTS];             /* of a batch: [batch][width]; NULL between uses */
    struct preference preference;       /* of a loss of preferences */
    struct distill distill;             /* of a teacher */
    struct run_log log;
};

#define LM_RUN_INIT                                                                                \
    {                                                                                              \
        .tokenizer = {.bytes = true }                                                              \
    }

/* Frees all but the context. */
void lm_close(void *run);

/* Opens the data that the options name.  Returns 0, or -1 after an error message. */
int lm_data_open(void *run);

/* Opens the chat template that the options name, or the model's.  Returns 0, or -1 after an error
 * message. */
int lm_chat_open(struct lm_run *r);

/* Cuts the data into samples of this length. */
int lm_data_cut(struct lm_run *r, int64_t length);

/* The adapters of a run that are trained. */
struct adapter_run lm_adapters(struct lm_run *r);
/* Add all other adapters of --adapter to the model; load them.  Return 0, or -1 after an error
 * message. */
int lm_adapters_add(struct lm_run *r);
int lm_adapters_begin(struct lm_run *r);
/* Names the files of adapters on stderr. */
void lm_adapters_report(const struct lm_options *o);

/* Notes for a state which other adapters are added, and how much.  Returns 0, or -1 after an error
 * message. */
int lm_adapters_note(struct lm_run *r);

/* Makes the model with its adapters, if any, and loads the weights of both.  Returns 0, or -1 after
 * an error message. */
int lm_make_model(void *run);

/* Compiles all programs before the first step, so that a program that does not fit fails at once.
 */
int lm_compile(struct lm_run *r, bool trains);

/* What is recorded for training, and its optimizer; NULL: nothing is trained. */
struct lm_programs {
    ckpt_recorder recorder;
    const ckpt_optimizer *optimizer;
};

/* Whether all programs fit with samples of the present length.  brief: lengths whose lower bound
 * does not fit are not planned; else a refusal sets *needs to the bytes that it names.  Returns 0,
 * or -1 after an error message. */
int lm_forecast(struct lm_run *r, const struct lm_programs *p, bool brief, bool *fits,
                int64_t *needs);

/* --length auto: chooses the length and cuts the data.  Returns 0, or -1 after an error message. */
int lm_length_choose(struct lm_run *r, const struct lm_programs *p);
void lm_length_print(const struct lm_run *r);

/* With --balance: the samples of a step that this rank reads, a batch of them.  Returns 0, or -1
 * after an error message. */
int lm_balance(const struct lm_run *r, int64_t step, int64_t *samples);

/* The first sample of a step that this rank reads. */
int64_t lm_first_sample(const struct lm_run *r, int64_t step);

/* Sums over the measured rows: of the losses and the numbers of targets, of tokens and of pairs. */
struct lm_sums {
    double loss, targets, pairs_loss, pairs;
};

/* Allocates the inputs of a batch, until lm_close_steps.  Returns 0, or -1 after an error message.
 */
int lm_open_batch(struct lm_run *r);

/* Computes the mean loss over the validation batches.  Returns 0, or -1 after an error message. */
int lm_measure(struct lm_run *r, double *loss);

/* Answers all questions of --eval, always with the most probable token.  *right: how many are
 * right; -1: the run was asked to stop.  Returns 0, or -1 after an error message. */
int lm_answer(struct lm_run *r, int64_t *right);

/* Writes the prompt and the generated text of each sample to f.  Returns 0, or -1 after an error
 * message. */
int lm_write_text(struct lm_run *r, FILE *f);

/* ---- weights --------------------------------------------------------------------------------- */

/* Loads the weights of --load: a file, or a Hugging Face directory.  Returns 0, or -1 after an
 * error message. */
int lm_load(const struct lm_run *r);

/* Tensors in files that the model computes itself: masks, frequencies, positions, a head tied to
 * the embedding. */
bool lm_is_made_here(const struct lm *m, const char *name);

/* A digest of the weights in a file.  Returns 0, or -1 after an error message. */
int lm_base_digest(const struct lm *m, const char *path, char to[ADAPTER_BASE]);

/* Writes --save-hf: config.json, the weights, in files of at most --shard-size (or of one tensor,
 * if larger), with an index if there are several, and copies of the tokenizer and of
 * generation_config.json.  All ranks must call it.  Returns 0, or -1 after an error message. */
int lm_save_hf(struct lm_run *r);

/* ---- callbacks of struct trainer, which describes them --------------------------------------- */

void lm_describe(const void *run, FILE *f);
int lm_open_steps(void *run, struct training *t);
void lm_close_steps(void *user);

#endif
