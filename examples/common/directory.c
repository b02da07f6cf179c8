/* SPDX-License-Identifier: Apache-2.0 */
/* Output directories of a run: see directory.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "directory.h"
#include "say.h"

/* The directories that were made last. */
enum { KEPT = 8 };
static char *made[KEPT];
static int count;

/* Another rank may be about to write in a directory, unless a rank has failed. */
static void remove_empty(void)
{
    for (int i = count; i-- > 0 && i >= count - KEPT;) {
        if (*say_failure())
            rmdir(made[i % KEPT]);
        free(made[i % KEPT]);
    }
}

int directory_make(const char *path)
{
    int at = count % KEPT;

    if (mkdir(path, 0777))
        return errno == EEXIST ? 0 : say_fail("%s: %s", path, strerror(errno));
    if (!count)
        atexit(remove_empty);
    free(made[at]);
    made[at] = strdup(path);
    count += made[at] != NULL;
    return 0;
}

void directory_remove_empty_file(const char *path)
{
    struct stat st;

    if (!stat(path, &st) && S_ISREG(st.st_mode) && !st.st_size)
        unlink(path);
}
