/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs for a build without the CUDA toolkit: there is no CUDA device. */
#include "memory/device/device.h"

int device_open_cuda(struct device **d, int index, bool unordered)
{
    (void)d;
    (void)index;
    (void)unordered;
    return error_set(CKPT_EDEVICE, "--device cuda: this libckpt was built without CUDA; "
                                   "configure says why");
}

void device_describe_compiler(char *dst, size_t size)
{
    if (size)
        *dst = '\0';
}
