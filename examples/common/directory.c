/* SPDX-License-Identifier: Apache-2.0 */
/* Output directories of a run: see directory.h. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "directory.h"
#include "say.h"

int directory_make(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return say_fail("%s: %s", path, strerror(errno));
    return 0;
}
