/* SPDX-License-Identifier: Apache-2.0 */
/* Registered host memory: see cuda_pins.h. */
#include <ctype.h>
#include <stdlib.h>
#include <cuda_runtime_api.h>
#include "memory/device/cuda_pins.h"

int cuda_pins_add(struct cuda_pins *p, void *base, int64_t bytes)
{
    if (ARRAY_RESERVE(p, p->n))
        return error_set(CKPT_ENOMEM, "no memory to pin host memory");
    cudaError_t e = cudaHostRegister(base, (size_t)bytes, cudaHostRegisterDefault);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return error_set(CKPT_ENOMEM, "cannot pin %s of host memory: %s", human_bytes(bytes),
                         cudaGetErrorString(e));
    }
    p->data[p->n++] = (struct cuda_pin){base, bytes};
    return 0;
}

void cuda_pins_remove(struct cuda_pins *p, void *base)
{
    for (int32_t i = 0; i < p->n; i++) {
        if (p->data[i].base != (char *)base)
            continue;
        cudaHostUnregister(base);
        p->data[i] = p->data[--p->n];
        return;
    }
}

void cuda_pins_free(struct cuda_pins *p)
{
    while (p->n)
        cudaHostUnregister(p->data[--p->n].base);
    free(p->data);
}

int64_t cuda_pins_run(const struct cuda_pins *p, const void *host, int64_t bytes)
{
    for (int32_t i = 0; i < p->n; i++) {
        int64_t at = (int64_t)((uintptr_t)host - (uintptr_t)p->data[i].base);
        if (at >= 0 && at < p->data[i].bytes)
            return min_i64(bytes, p->data[i].bytes - at);
    }
    return bytes;
}

int cuda_numa_node(const char *bus_id)
{
    char path[96], id[32];
    int node = -1, n = 0;
    for (; bus_id[n] && n < (int)sizeof id - 1; n++)
        id[n] = (char)tolower((unsigned char)bus_id[n]);
    id[n] = '\0';
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", id);
    FILE *f = n ? fopen(path, "r") : NULL;
    if (!f)
        return -1;
    if (fscanf(f, "%d", &node) != 1)
        node = -1;
    fclose(f);
    return node;
}
