/*
 * --quantizer vq: latents as entries of a codebook, instead of a normal distribution of them.  The
 * codebook is not trained: it follows the mean of what was nearest to each entry (van den Oord et
 * al. 2017, appendix A.1), on the host and between steps, since it is small.
 */
#ifndef VAE_QUANTIZER_H
#define VAE_QUANTIZER_H

#include "ckpt.h"

struct vae_quantizer {
    int64_t entries, width;
    double decay;                   /* of the means */
    ckpt_tensor book, count, total; /* buffers: saved and loaded with the model */
};

/* Makes the buffers quantizer.codebook [entries, width], quantizer.ema_count and quantizer.ema_sum.
 * Returns 0, or -1 after a sentence. */
int vae_quantizer_create(struct vae_quantizer *q, ckpt *c, int64_t entries, int64_t width,
                         double decay);

/* Records the entries nearest to z [..., width], fp32, and the commitment to them.  The step must
 * be followed by vae_quantizer_update. */
ckpt_tensor vae_quantizer_record(const struct vae_quantizer *q, ckpt_tape *t, ckpt_tensor z,
                                 ckpt_tensor *commitment);

/* Moves the codebook after a step of p, which must be the only one under way.  *used (may be NULL):
 * entries that were nearest to something.  Returns 0, or -1 after a sentence. */
int vae_quantizer_update(const struct vae_quantizer *q, ckpt *c, ckpt_program *p, int64_t *used);

#endif
