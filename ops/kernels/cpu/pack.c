/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: pack and unpack. */
#include "cpu.h"
#include "kernels.h"

int cpu_pack(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *x = &a->in[0].desc;
    const int64_t batch = x->shape[0], length = x->shape[1];
    const size_t row = (size_t)(x->shape[2] * ckpt_dtype_size(x->dtype));
    const int32_t *mask = a->in[1].data;
    const char *from = a->in[0].data;
    char *to = a->out[0].data, *end = to + (size_t)(batch * length) * row;
    int32_t *lens = a->out[1].data;
    for (int64_t b = 0; b < batch; b++) {
        lens[b] = 0;
        for (int64_t i = b * length; i < (b + 1) * length; i++)
            if (mask[i]) {
                memcpy(to, from + (size_t)i * row, row);
                to += row;
                lens[b]++;
            }
    }
    memset(to, 0, (size_t)(end - to));
    return CKPT_OK;
}

int cpu_unpack(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *x = &a->out[0].desc;
    const int64_t rows = x->shape[0] * x->shape[1];
    const size_t row = (size_t)(x->shape[2] * ckpt_dtype_size(x->dtype));
    const int32_t *mask = a->in[1].data;
    const char *from = a->in[0].data;
    char *to = a->out[0].data;
    for (int64_t i = 0; i < rows; i++, to += row) {
        if (mask[i]) {
            memcpy(to, from, row);
            from += row;
        } else {
            memset(to, 0, row);
        }
    }
    return CKPT_OK;
}
