/* SPDX-License-Identifier: Apache-2.0 */
/* Damage to files, both realistic and unlikely: the same for the same seed. */
#ifndef TESTS_MUTATE_H
#define TESTS_MUTATE_H

#include "core/base.h"

/* Changes the n bytes at data, which has capacity for more, in one to four places.  The length of a
 * safetensors header stays valid in most cases, so that the code after that check is reached.
 * Returns the new number of bytes. */
size_t mutate(uint8_t *data, size_t n, size_t room, uint64_t seed);

#endif
