/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distillation (Hinton et al. 2015) from the scores of a teacher in a file: of each token the ids
 * of the K largest and their log-probabilities.
 *
 *   (1 - w) cross entropy + w T^2 sum over these K of q (log q - log p)
 *
 * with p the student's probabilities, softmax(scores / T) over the whole vocabulary, and q the
 * teacher's, softmax(log-probabilities / T) over the K: the rest of the teacher's probability
 * counts as 0.  Both are means over all targets of the step.
 */
#ifndef LM_DISTILL_H
#define LM_DISTILL_H

#include <stdint.h>
#include "ckpt_files.h"

struct lm_run;

/* Values that are not given are below 0, 0 or NULL. */
struct distill_options {
    const char *from, *to; /* --distill, --save-logits */
    double weight, temperature;
    int64_t top; /* --logits-top */
};

#define DISTILL_DEFAULTS                                                                           \
    {                                                                                              \
        .weight = -1, .temperature = -1                                                            \
    }

#define DISTILL_ROWS                                                                               \
    CKPT_OPTION_GROUP("Distillation"),                                                             \
        ROW("distill", STRING, distill.from, "FILE",                                               \
            "also learn the probabilities of a teacher, from the file that --save-logits wrote "   \
            "for the same --data and --length (default: none)"),                                   \
        RANGE("distill-weight", FLOAT, distill.weight, "X",                                        \
              "weight of the teacher; that of the cross entropy is 1 - X (default 0.5)", 0, 1),    \
        RANGE("distill-temperature", FLOAT, distill.temperature, "X",                              \
              "temperature of both in the divergence (default 1)", 1e-3, 1000),                    \
        ROW("save-logits", STRING, distill.to, "FILE",                                             \
            "write the most probable tokens at each place of --data, with their "                  \
            "log-probabilities, for --distill; with --steps 0 those of the loaded weights"),       \
        RANGE("logits-top", INT, distill.top, "N",                                                 \
              "with --save-logits, tokens of each place (default 32)", 1, 65536)

struct distill {
    ckpt_program *writing; /* computes what --save-logits writes; NULL: not needed */
    ckpt_file *file;       /* of --distill, or NULL */
    int tensor[2];         /* its "ids" and "logps" */
    int64_t top;           /* K of the file */
    int32_t *ids;          /* of a batch: [batch][length][K] */
    float *logps;
};

/* Checks the options and fills in the defaults.  loss: the name of --loss, NULL: cross entropy;
 * masked: the model predicts masked tokens.  Returns 0, or -1 after an error message. */
int distill_options_check(struct distill_options *o, const char *loss, bool masked,
                          int64_t vocabulary);

/* Opens the file of --distill, once the data is open.  Returns 0, or -1 after an error message. */
int distill_open(struct lm_run *r);
void distill_close(struct distill *d);

/* Records the loss of rows [B, T, width].  chunk: rows whose scores are a tensor, at most; 0: up to
 * 2^27 scores. */
ckpt_tensor distill_record(const struct lm_run *r, ckpt_tape *t, ckpt_tensor rows,
                           ckpt_tensor targets, int64_t chunk);
/* Records what --save-logits writes. */
ckpt_tensor distill_record_top(const struct lm_run *r, ckpt_tape *t, ckpt_tensor rows,
                               int64_t chunk);

/* Feeds the teacher's numbers of the samples from `first` on.  Returns 0, or -1 after an error
 * message. */
int distill_feed(struct lm_run *r, ckpt_program *p, int64_t first);

/* Adds the parts of the loss of the step that p just ran to its line of the log.  Returns 0, or -1
 * after an error message. */
int distill_log(struct lm_run *r, ckpt_program *p);

/* Writes the file of --save-logits; all ranks call it.  Returns 0, or -1 after an error message. */
int distill_write(struct lm_run *r);

#endif
