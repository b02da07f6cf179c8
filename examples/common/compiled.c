/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of programs: see compiled.h. */
#include "compiled.h"
#include <stdio.h>
#include <sys/resource.h>
#include "ckpt_tools.h"
#include "say.h"

static char kept[1280]; /* a sentence of the library, and what it is about */

int compiled(ckpt *c, int rc, const ckpt_program *p, const char *what)
{
    if (rc == CKPT_EBUDGET && p)
        snprintf(kept, sizeof kept, "%s%s", what, ckpt_error(c));
    else if (rc)
        return say_fail("%s%s", what, ckpt_error(c));
    return 0;
}

int compiled_all(ckpt *c)
{
    ckpt_gather_refusals(c, false);
    return *kept ? say_fail("%s", kept) : 0;
}

const char *compiled_refusal(void)
{
    return kept;
}

void compiled_memory(const ckpt_program *p)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct rusage usage;
    char arena[32], device[32], host[32];

    ckpt_program_info(p, &info);
    getrusage(RUSAGE_SELF, &usage);
    printf("memory: arena %s; the process ", say_bytes(arena, info.arena_bytes));
    if (info.process_bytes)
        printf("takes %s of the device and ", say_bytes(device, info.process_bytes));
    printf("took up to %s of the host\n", say_bytes(host, (int64_t)usage.ru_maxrss * 1024));
}
