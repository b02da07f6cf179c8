/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters whose axes stand in another order in files. */
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"
#include "state/safetensors.h"

int ckpt_param_file_axes(ckpt *c, ckpt_tensor x, const int *axes)
{
    NOT_NULL(context_error(c), c);
    NOT_NULL(context_error(c), axes);
    struct param *p = params_at(&c->params, x);
    bool seen[CKPT_MAX_DIMS] = {false};

    if (!p)
        return error_fail(&c->error, CKPT_ENAME, "ckpt_param_file_axes: no such parameter");
    for (int i = 0; i < p->desc.ndim; i++) {
        if (axes[i] < 0 || axes[i] >= p->desc.ndim || seen[axes[i]])
            return error_fail(&c->error, CKPT_EINVAL,
                              "parameter '%s': the axes of files are no permutation of its own",
                              p->name);
        seen[axes[i]] = true;
    }
    for (int i = 0; i < p->desc.ndim; i++)
        p->file_axes[i] = axes[i];
    p->reordered = true;
    return 0;
}
