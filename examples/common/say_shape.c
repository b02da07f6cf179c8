/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes in messages; a file of its own, for a program may print its messages in another way. */
#include <stdio.h>
#include "say.h"

const char *say_shape(char dst[160], int ndim, const int64_t *shape)
{
    int at = 0;

    dst[0] = 0;
    for (int i = 0; i < ndim && at < 130; i++)
        at += snprintf(dst + at, 160 - (size_t)at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    return dst;
}
