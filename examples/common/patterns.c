/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of parameters: see patterns.h. */
#include <stdlib.h>
#include <string.h>
#include "patterns.h"
#include "say.h"

struct ckpt_param_info param_info_at(const ckpt *c, int i)
{
    struct ckpt_param_info p = CKPT_PARAM_INFO_INIT;

    ckpt_param_info(c, ckpt_param_at(c, i), &p);
    return p;
}

const char *param_pattern(const char *name, char to[PATTERN_NAME])
{
    size_t n = 0;

    for (; *name && n < PATTERN_NAME - 2; name++) {
        if (strchr("*?[]\\", *name))
            to[n++] = '\\';
        to[n++] = *name;
    }
    to[n] = 0;
    return to;
}

int option_parts(const char *option, const char *list, void *user,
                 int (*visit)(void *user, char *part))
{
    char *copy = strdup(list), *at = NULL;
    int rc = copy ? 0 : say_fail("no memory for %s", option), n = 0;

    for (char *part = rc ? NULL : strtok_r(copy, ",", &at); part && !rc;
         part = strtok_r(NULL, ",", &at), n++)
        rc = visit(user, part);
    free(copy);
    return !rc && !n ? say_fail("%s: give names or patterns", option) : rc;
}
