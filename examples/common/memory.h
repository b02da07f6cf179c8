/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory for shapes from the command line. */
#ifndef EXAMPLES_MEMORY_H
#define EXAMPLES_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* As malloc, for a shape of n sizes; also NULL if the product does not fit in 63 bits. */
void *memory_for(size_t element, int n, const int64_t *size);
#define MEMORY_FOR(element, ...)                                                                   \
    memory_for(element, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                 \
               (int64_t[]){__VA_ARGS__})

#endif
