/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size rule of public structs (see "Structs" in ckpt.h), in one pair of functions: a struct
 * that a program fills or has filled begins with its size, and a program built against an older or
 * newer header has a shorter or longer one.
 */
#ifndef CKPT_SIZED_H
#define CKPT_SIZED_H

#include "core/base.h"

/*
 * Reads a caller's struct.  to has `known` bytes and holds the defaults, which stay where from is
 * shorter.  A longer one is read where all that is unknown here is 0.  Returns 0, or CKPT_EINVAL
 * and the sentence: no size, or a field set that this library does not know.
 */
int sized_read(struct error *e, const char *name, void *to, size_t known, const void *from);

/*
 * Fills a caller's struct: what both know of from, which has `known` bytes, and 0 behind that.  No
 * byte behind the caller's size is touched, nor the size.  Returns 0, or CKPT_EINVAL: no size.
 */
int sized_write(struct error *e, const char *name, void *to, const void *from, size_t known);

#endif
