/* SPDX-License-Identifier: Apache-2.0 */
#include "import/channels.h"
#include "import/views.h"

struct tensor channels_last(struct recording *r, struct tensor a)
{
    int axes[TENSOR_AXES];

    if (a.ndim < 2)
        recording_fail(r, CKPT_ESHAPE, "a picture has %d axes", a.ndim);
    for (int i = 0; i < a.ndim; i++)
        axes[i] = i == 0 ? 0 : i == a.ndim - 1 ? 1 : i + 1;
    return r->failed ? a : view_permute(r, a, axes);
}

struct tensor channels_first(struct recording *r, struct tensor a)
{
    int axes[TENSOR_AXES];

    for (int i = 0; i < a.ndim; i++)
        axes[i] = i == 0 ? 0 : i == 1 ? a.ndim - 1 : i - 1;
    return r->failed ? a : view_permute(r, a, axes);
}
