/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that files store as several tensors. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"

int ckpt_param_file_parts(ckpt *c, ckpt_tensor x, int n, const char *const *names)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(names);
    struct param *p = params_at(&c->params, x);

    if (!p)
        return error_set(CKPT_ENAME, "ckpt_param_file_parts: no such parameter");
    for (int i = 0; i < n; i++)
        NOT_NULL(names[i]);
    const int last = p->desc.ndim - 1;
    if (last < 1 || n < 1 || desc_numel(&p->desc) / p->desc.shape[last] % n)
        return error_set(CKPT_EINVAL, "parameter '%s': its rows do not divide into %d parts",
                         p->name, n);
    if (p->reordered || p->file_parts)
        return error_set(CKPT_EINVAL, "parameter '%s': files have %s", p->name,
                         p->reordered ? "its axes in another order" : "parts of it already");
    p->file_parts = calloc((size_t)n, sizeof *p->file_parts);
    for (int i = 0; i < n && p->file_parts; i++, p->n_file_parts = i)
        if (!(p->file_parts[i] = strdup(names[i])))
            return error_set(CKPT_ENOMEM, "parameter '%s': no memory for names", p->name);
    return p->file_parts ? 0 : error_set(CKPT_ENOMEM, "'%s': no memory for names", p->name);
}
