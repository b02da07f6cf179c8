/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on the CPU: forwarded to the executor's struct ops_ranks. */
#include "collective.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"

static int run(enum collective kind, const struct ckpt_kernel_args *a)
{
    struct ops_ranks *ranks = a->device;
    return ranks ? ranks->run(ranks, kind, a) : CKPT_EDEVICE;
}

int cpu_all_gather(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_ALL_GATHER, a);
}

int cpu_reduce_scatter(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_REDUCE_SCATTER, a);
}

int cpu_all_reduce(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_ALL_REDUCE, a);
}

int cpu_all_to_all(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_ALL_TO_ALL, a);
}

int cpu_send(const struct ckpt_kernel_args *a)
{
    memset(a->out[0].data, 0, sizeof(float)); /* the token */
    return run(COLLECTIVE_SEND, a);
}

int cpu_receive(const struct ckpt_kernel_args *a)
{
    return run(COLLECTIVE_RECEIVE, a);
}

/* Copies n elements of a view to `to`, converted to dtype. */
static void place(char *to, enum ckpt_dtype dtype, const struct ckpt_view *v, int64_t n)
{
    if (v->desc.dtype == dtype)
        memcpy(to, v->data, (size_t)(n * ckpt_dtype_size(dtype)));
    else if (dtype == CKPT_BF16)
        cpu_store(to, v->data, dtype, n);
    else
        cpu_load((float *)(void *)to, v->data, v->desc.dtype, n);
}

int cpu_flatten(const struct ckpt_kernel_args *a)
{
    const struct flatten_attr *attr = a->attr;
    int64_t size = ckpt_dtype_size(attr->dtype), end = 0;
    char *out = a->out[0].data;
    for (int i = 0; i < a->n_in; i++) {
        int64_t n = desc_numel(&a->in[i].desc), offset = attr->offset[i];
        memset(out + end * size, 0, (size_t)((offset - end) * size));
        place(out + offset * size, attr->dtype, &a->in[i], n);
        end = offset + n;
    }
    memset(out + end * size, 0, (size_t)((attr->numel - end) * size));
    return 0;
}

/* Another thread reads [0] at any time. */
int cpu_stopwatch(const struct ckpt_kernel_args *a)
{
    int64_t *waited = (int64_t *)(uintptr_t)a->attr, now = (int64_t)(clock_seconds() * 1e9);
    if (a->accumulate)
        __atomic_store_n(&waited[0], waited[0] + now - waited[1], __ATOMIC_RELAXED);
    else
        waited[1] = now;
    return 0;
}

int cpu_requests(const struct ckpt_kernel_args *a)
{
    memcpy(a->out[0].data, a->run->request, sizeof a->run->request);
    return 0;
}
