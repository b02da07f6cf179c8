/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: accumulate_narrow, a bf16 sum with stochastic rounding. */
#include "core/random.h"
#include "cpu.h"
#include "kernels.h"
#include "optim/update_math.h"

#define BLOCK 256 /* elements per batch of random words */

/* sum[i] (+)= x[i] for elements [at, at + n). */
static void add_block(uint16_t *sum, const struct ckpt_view *addend, int64_t at, int64_t n,
                      bool add, const uint32_t *word)
{
    float x[BLOCK];
    cpu_load(x, (const char *)addend->data + at * ckpt_dtype_size(addend->desc.dtype),
             addend->desc.dtype, n);
    for (int64_t i = 0; i < n; i++) {
        const float total = add ? bf16_load(sum[at + i]) + x[i] : x[i];
        sum[at + i] = bf16_round(update_round(total, update_noise(word[i], NOISE_VALUE)));
    }
}

int cpu_accumulate_narrow(const struct ckpt_kernel_args *a)
{
    const int64_t numel = desc_numel(&a->out[0].desc);
    const int64_t first = a->run->micro * round_up(numel, 4); /* fours, as on CUDA */
    const struct random_stream s = {
        .seed = a->run->seed, .step = (uint64_t)a->run->opt_step, .stream = (uint32_t)a->number};
#pragma omp parallel for schedule(static) if (numel > 64 * BLOCK)
    for (int64_t at = 0; at < numel; at += BLOCK) {
        uint32_t word[BLOCK];
        const int64_t n = min_i64(BLOCK, numel - at);
        random_words(&s, first + at, word, n);
        add_block(a->out[0].data, &a->in[1], at, n, a->accumulate, word);
    }
    return CKPT_OK;
}
