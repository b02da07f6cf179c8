/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that follow alike for all models: see model.h. */
#include "model.h"
#include "../common/say.h"

int video_check_size(const struct video_sizes *s, int64_t frames, int64_t height, int64_t width)
{
    if (height % s->factor || width % s->factor)
        return say_fail("--height and --width must be multiples of %lld, the pixels of a latent",
                        (long long)s->factor);
    if (frames && (frames - 1) % s->compression)
        return say_fail("--frames %lld: give one more than a multiple of %lld", (long long)frames,
                        (long long)s->compression);
    return 0;
}

int64_t video_latent_frames(const struct video_sizes *s, int64_t frames)
{
    return (frames - 1) / s->compression + 1;
}

int64_t video_whole_frames(const struct video_sizes *s, int64_t latents)
{
    return (latents + s->patch_frames - 1) / s->patch_frames * s->patch_frames;
}

int64_t video_tokens(const struct video_net *n, const struct video_geometry *g)
{
    return g->tokens + n->model->tokens(n, g);
}
