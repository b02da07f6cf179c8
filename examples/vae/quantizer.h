/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --quantizer vq: latents as entries of a codebook, instead of a normal distribution of them.  The
 * codebook is not trained: it follows the mean of what was nearest to each entry (van den Oord et
 * al. 2017, appendix A.1), on the host and between steps, since it is small.  An entry that nothing
 * comes near for long takes the place of a row of the step, as in Dhariwal et al. 2020 (Jukebox).
 * Which one follows from seed and step: the bits are those of the rows, under every budget.
 */
#ifndef VAE_QUANTIZER_H
#define VAE_QUANTIZER_H

#include "ckpt.h"

struct vae_quantizer {
    int64_t entries, width;
    double decay; /* of the means */
    uint64_t seed;
    ckpt_tensor book, count, total; /* buffers: saved and loaded with the model */
};

/* Makes the buffers quantizer.codebook [entries, width], quantizer.ema_count and quantizer.ema_sum
 * in c, drawn from this seed as the rows are that entries move to.  Returns 0, or -1 after a
 * sentence. */
int vae_quantizer_create(struct vae_quantizer *q, ckpt *c, int64_t entries, int64_t width,
                         double decay, int64_t seed);

/* Records the entries nearest to z [..., width], fp32, and the commitment to them.  A step that
 * trains must be followed by vae_quantizer_update. */
ckpt_tensor vae_quantizer_record(const struct vae_quantizer *q, ckpt_tape *t, ckpt_tensor z,
                                 ckpt_tensor *commitment);

/* Which entries rows were nearest to. */
struct vae_codes {
    int64_t used, moved; /* entries that were, and that took a row's place */
    double perplexity;   /* so many entries used evenly carry as much: 1 to entries */
};

/* Moves the codebook after a step of p, which must be the only one under way.  Returns 0, or -1
 * after a sentence. */
int vae_quantizer_update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, int64_t step,
                         struct vae_codes *codes);

/* Adds the rows of a step to those that were nearest to each entry, and says how they spread.  Both
 * return 0 and -1 in the same way. */
int vae_quantizer_count(ckpt *c, ckpt_program *p, int64_t *rows);
struct vae_codes vae_quantizer_spread(const struct vae_quantizer *q, const int64_t *rows);

#endif
