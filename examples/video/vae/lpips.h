/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LPIPS (Zhang et al. 2018) with the features of VGG16: a perceptual distance of two pictures.  Its
 * weights are not parameters but constants of the tape, neither trained nor saved.
 */
#ifndef VAE_LPIPS_H
#define VAE_LPIPS_H

#include "ckpt.h"

enum { LPIPS_CONVS = 13, LPIPS_TAPS = 5 };

struct vae_lpips {
    enum ckpt_dtype dtype;
    struct {
        int64_t out, in;
        void *weight, *bias; /* [out, 3, 3, in], [out] of dtype */
    } conv[LPIPS_CONVS];
    void *lin[LPIPS_TAPS]; /* of dtype */
};

/*
 * Reads a safetensors file with the convolutions of VGG16, under torchvision's names,
 * features.N.weight and features.N.bias, or the lpips package's names, net.sliceK.N.weight and so
 * on, and the weights of LPIPS, linK.model.1.weight.  Other names (the classifier's) are ignored.
 * Returns 0, or -1 after a sentence that names the missing tensor.
 */
int vae_lpips_load(struct vae_lpips *l, const char *path, enum ckpt_dtype dtype);
void vae_lpips_free(struct vae_lpips *l);

/*
 * The distance of x and y [B, T, H, W, 3], values in [-1, 1], mean over all frames; fp32 scalar.
 * Processes part frames at a time, 0: all at once.  May be recorded once in a tape.
 */
ckpt_tensor vae_lpips(const struct vae_lpips *l, ckpt_tape *t, ckpt_tensor x, ckpt_tensor y,
                      int64_t part);

#endif
