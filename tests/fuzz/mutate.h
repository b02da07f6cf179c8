/* SPDX-License-Identifier: Apache-2.0 */
/* Damage as it happens to files, and as nobody would make it: the same for the same seed. */
#ifndef TESTS_MUTATE_H
#define TESTS_MUTATE_H

#include "core/base.h"

/* Changes the n bytes at data, which has room for more, in one to four places.  The header of a
 * safetensors file keeps its length in most cases, so that what lies behind that check is reached.
 * Returns how many bytes there are then. */
size_t mutate(uint8_t *data, size_t n, size_t room, uint64_t seed);

#endif
