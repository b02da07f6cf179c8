/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantizer vq: latents are entries of a codebook instead of samples of a normal distribution.
 * Gradients do not train the codebook: each entry follows the moving average of its nearest rows
 * (van den Oord et al. 2017, appendix A.1), on the host and between steps, since it is small.  An
 * entry without rows for long moves to a row of the step, as in Dhariwal et al. 2020 (Jukebox).
 * Seed and step select the row, so the codebook has the same bits under every budget.  */
#ifndef VAE_QUANTIZER_H
#define VAE_QUANTIZER_H

#include "ckpt.h"

struct vae_quantizer {
    int64_t entries, width;
    double decay; /* of the moving averages */
    uint64_t seed;
    ckpt_tensor book, count, total; /* buffers: saved and loaded with the model */
};

/* Creates the buffers quantizer.codebook [entries, width], quantizer.ema_count and
 * quantizer.ema_sum in c.  The seed determines the initial entries and the rows that dead entries
 * move to.  Returns 0, or -1 after a sentence. */
int vae_quantizer_create(struct vae_quantizer *q, ckpt *c, int64_t entries, int64_t width,
                         double decay, int64_t seed);

/* Records the entries nearest to z [..., width], fp32, and the commitment loss.  Each training step
 * must be followed by vae_quantizer_update. */
ckpt_tensor vae_quantizer_record(const struct vae_quantizer *q, ckpt_tape *t, ckpt_tensor z,
                                 ckpt_tensor *commitment);

/* Statistics of the nearest entries. */
struct vae_codes {
    int64_t used, moved; /* entries with rows; dead entries moved to a row */
    double perplexity;   /* effective number of entries in use, 1 to entries */
};

/* Updates the codebook after a step of p, which must be the only one in flight.  Returns 0, or -1
 * after a sentence. */
int vae_quantizer_update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, int64_t step,
                         struct vae_codes *codes);

/* Adds the rows of a step to the count of each entry; computes the statistics of the counts.
 * Return values are as above. */
int vae_quantizer_count(ckpt *c, ckpt_program *p, int64_t *rows);
struct vae_codes vae_quantizer_spread(const struct vae_quantizer *q, const int64_t *rows);

#endif
