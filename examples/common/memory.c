/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory for shapes from the command line: see memory.h. */
#include <stdlib.h>
#include "memory.h"

void *memory_for(size_t element, int n, const int64_t *size)
{
    int64_t bytes = (int64_t)element;

    for (int i = 0; i < n; i++)
        if (size[i] < 0 || __builtin_mul_overflow(bytes, size[i], &bytes))
            return NULL;
    return malloc((size_t)bytes);
}
