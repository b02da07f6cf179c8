/* SPDX-License-Identifier: Apache-2.0 */
/* Which products may have an epilogue: what passes ask of a device, apart from the tables, so that
 * passes reach no kernel. */
#include "kernels/cuda/workspace.h"
#include "kernels/kernel.h"

int64_t kernel_epilogue_tiles(enum ckpt_backend backend, int64_t capability)
{
    const bool has = backend == CKPT_ON_CUDA && capability == CUDA_EPILOGUE_CAPABILITY;
    return has ? CUDA_EPILOGUE_TILES : 0;
}

bool kernel_joins(const ckpt_tape *t, int64_t rows, int64_t cols)
{
    return t->env.epilogue_tiles && cuda_epilogue_tiles(rows, cols) >= t->env.epilogue_tiles;
}
