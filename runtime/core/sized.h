/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size rule of public structs (see "Structs" in ckpt.h), as one pair of functions: a struct
 * that a program fills or has filled begins with its size; a program that was built against an
 * older or newer header has a shorter or longer one.
 */
#ifndef CKPT_SIZED_H
#define CKPT_SIZED_H

#include "core/base.h"

/*
 * Reads a caller's struct.  to has `known` bytes and holds the defaults, which stay if from is
 * shorter.  A longer struct is accepted if all bytes unknown here are 0.  Returns 0, or CKPT_EINVAL
 * and the sentence: no size, or a field set that this library does not know.
 */
int sized_read(const char *name, void *to, size_t known, const void *from);

/*
 * Fills a caller's struct with the fields of from, which has `known` bytes, and with 0 after them.
 * The size and bytes beyond the caller's size do not change.  Returns 0, or CKPT_EINVAL: no size.
 */
int sized_write(const char *name, void *to, const void *from, size_t known);

#endif
