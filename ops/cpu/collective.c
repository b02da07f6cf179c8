/* Collectives on the CPU: handed on to whoever reaches the other ranks. */
#include "collective.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"

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

int cpu_flatten(const struct ckpt_kernel_args *a)
{
    const struct flatten_attr *attr = a->attr;
    float *out = a->out[0].data;
    int64_t end = 0;
    for (int i = 0; i < a->n_in; i++) {
        const struct ckpt_view *v = &a->in[i];
        int64_t n = desc_numel(&v->desc);
        memset(out + end, 0, (size_t)(attr->offset[i] - end) * sizeof *out);
        cpu_load(out + attr->offset[i], v->data, v->desc.dtype, n);
        end = attr->offset[i] + n;
    }
    memset(out + end, 0, (size_t)(attr->numel - end) * sizeof *out);
    return 0;
}
