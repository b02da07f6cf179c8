/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of masked models (Devlin et al. 2019): [CLS] A [SEP], or [CLS] A [SEP] B [SEP].  A share
 * of the tokens is to be predicted: of these 80 % are replaced by [MASK], 10 % by any token, and 10
 * % stay.  All draws follow from the seed and the number of the sample, so they are the same for
 * every budget, number of ranks and resumed run, and others in every epoch.
 */
#ifndef LM_MASKED_H
#define LM_MASKED_H

#include "dataset.h"
#include "model.h"
#include "../tokenizer/tokenizer.h"

/* The tokens that a tokenizer calls [CLS], [SEP], [MASK] and [PAD]. */
struct marks {
    int32_t begin, end, mask, pad;
};

struct masking {
    struct marks marks;
    int64_t length, most; /* tokens of a sample; predictions, at most */
    int64_t vocabulary;
    double share;
    /* Tokens of one word are predicted together; NULL: each token by itself. */
    const struct tokenizer *words;
    bool pairs; /* half of the samples end with the piece of another document */
    uint64_t seed;
};

/* Tokens of documents in a sample; and how many of n are predicted. */
int64_t masking_room(int64_t length, bool pairs);
int64_t masking_count(int64_t n, double share);

/* Fills in the n samples from number `first` on, of a batch of the inputs in[LM_INPUTS], where NULL
 * is not needed.  Returns 0, or -1 after an error message. */
int masked_read(struct dataset *d, const struct masking *m, int64_t first, int64_t n,
                int32_t *const in[LM_INPUTS]);

#endif
