/* SPDX-License-Identifier: Apache-2.0 */
/* What follows alike for all autoencoders: see autoencoder.h. */
#include "autoencoder.h"
#include <string.h>

bool autoencoder_owns(const struct autoencoder *a, const char *name)
{
    return a && !strncmp(name, a->prefix, strlen(a->prefix));
}

int64_t autoencoder_clip_out(const struct autoencoder *a, const void *own,
                             const struct autoencoder_clip *clip)
{
    struct autoencoder_passes p = a->passes(clip);

    return a->out(own, p.first, clip->decode) + (p.n - 1) * a->out(own, p.each, clip->decode);
}
