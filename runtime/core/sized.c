/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes structs of programs that were built against another header: see sized.h. */
#include <string.h>
#include "core/sized.h"

/* A larger size than this means that the size was never set; no public struct is that large. */
enum { MAX_SIZE = 4096 };

static int size_of(const char *name, const void *s, size_t *size)
{
    memcpy(size, s, sizeof *size);
    if (*size >= sizeof *size && *size <= MAX_SIZE)
        return 0;
    return error_set(CKPT_EINVAL, "%s has size %zu: set it by its _INIT macro or by sizeof", name,
                     *size);
}

int sized_read(const char *name, void *to, size_t known, const void *from)
{
    size_t size;
    int rc = size_of(name, from, &size);

    for (size_t i = known; !rc && i < size; i++)
        if (((const char *)from)[i])
            rc = error_set(CKPT_EINVAL,
                           "%s has %zu bytes, of which libckpt %s knows %zu, and sets some of the "
                           "others: update libckpt",
                           name, size, ckpt_version(), known);
    if (rc)
        return rc;
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size,
           (size < known ? size : known) - sizeof size);
    return 0;
}

int sized_write(const char *name, void *to, const void *from, size_t known)
{
    size_t size;
    int rc = size_of(name, to, &size);

    if (rc)
        return rc;
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size,
           (size < known ? size : known) - sizeof size);
    if (size > known)
        memset((char *)to + known, 0, size - known);
    return 0;
}
