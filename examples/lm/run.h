/* SPDX-License-Identifier: Apache-2.0 */
/* One run of lm-train: what its parts share. */
#ifndef LM_RUN_H
#define LM_RUN_H

#include "../common/log.h"
#include "dataset.h"
#include "decode.h"
#include "model.h"
#include "options.h"
#include "tokenizer.h"

struct lm_run {
    struct lm_options options;
    struct lm model;
    struct tokenizer tokenizer;
    struct dataset data, validation; /* validation.rows 0: there is none */
    struct lm_decoder decoder;       /* of text that is written; decoder.text NULL: none is */
    ckpt *context;
    ckpt_program *training, *measuring; /* owned by the context; NULL: not asked for */
    int64_t trainable;                  /* parameters that are trained */
    int64_t first;                      /* steps of the runs that this one goes on with */
    char title[512];                    /* of the data */
    struct run_log log;
};

/* All of a program: parses, goes, frees.  Returns its status. */
int lm_main(int argc, char **argv, int (*parse)(struct lm_options *o, int argc, char **argv),
            int (*go)(struct lm_run *r));

/* Opens the data of the options.  Returns 0, or -1 after a sentence. */
int lm_data_open(struct lm_run *r);

/* Makes the model, and loads its weights where there are any.  Returns 0, or -1 after a sentence.
 */
int lm_make_model(struct lm_run *r);

/* Compiles the programs of the run, before its first step, so that all are known to fit. */
int lm_compile(struct lm_run *r, bool trains);

/* Runs the steps, logs them, dumps the first and saves at the end.  Returns 0 or -1. */
int lm_train(struct lm_run *r);

/* The mean loss of the batches that are measured.  Returns 0, or -1 after a sentence. */
int lm_measure(struct lm_run *r, double *loss);

/* Writes the texts of the options to f, each behind its prompt.  Returns 0, or -1 after a sentence.
 */
int lm_write_text(struct lm_run *r, FILE *f);

/* ---- weights --------------------------------------------------------------------------------- */

/* From a file, or a directory of Hugging Face's.  Returns 0, or -1 after a sentence. */
int lm_load(const struct lm *m, ckpt *c, const char *path, bool partial);

/* config.json and the weights in files of at most `most` bytes (or of one tensor), with an index
 * where there are several.  A call of all ranks.  Returns 0, or -1 after a sentence. */
int lm_save_hf(const struct lm *m, ckpt *c, const char *directory, int64_t most);

/* ---- the log --------------------------------------------------------------------------------- */

/* The log with its first line.  Returns 0, or -1 after a sentence. */
int lm_log_open(struct lm_run *r);
void lm_log_validation(struct lm_run *r, int64_t step, double loss);

#endif
