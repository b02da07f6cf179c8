/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of a rank: see flight.h. */
#include <string.h>
#include "dist/comm/flight.h"

static const char last[] = "its last complete call";

bool flight_begin(struct flight *f, const char *kind, const char *name, int64_t step, int64_t bytes)
{
    if (f->now.number)
        return false;
    f->now.number = ++f->calls;
    f->now.step = step;
    f->now.bytes = bytes;
    f->now.begun = clock_seconds();
    f->now.kind = kind;
    snprintf(f->now.name, sizeof f->now.name, "%s", name);
    return true;
}

void flight_end(struct flight *f)
{
    f->done = f->now;
    f->now.number = 0;
}

void flight_describe(char *dst, size_t size, const char *kind, const char *name, int64_t step)
{
    snprintf(dst, size, "%s \"%s\" of step %lld", kind, name, (long long)step);
}

/* "15, all_reduce "gradients" of step 14 with 4084 bytes" */
static void tell_call(char *dst, size_t size, const struct flight_call *c)
{
    char what[192];
    flight_describe(what, sizeof what, c->kind, c->name, c->step);
    snprintf(dst, size, "%lld, %s with %lld bytes", (long long)c->number, what,
             (long long)c->bytes);
}

void flight_tell(char dst[FLIGHT_TEXT], const struct flight *f, int rank, const char *late)
{
    char now[256] = "", done[256] = "none";
    if (f->now.number)
        tell_call(now, sizeof now, &f->now);
    if (f->done.number)
        tell_call(done, sizeof done, &f->done);
    if (*now)
        snprintf(dst, FLIGHT_TEXT, "; rank %d waited %.1f s%s%.60s in call %s; %s is %s", rank,
                 clock_seconds() - f->now.begun, *late ? " for " : "", late, now, last, done);
    else
        snprintf(dst, FLIGHT_TEXT, "; rank %d was in no call; %s is %s", rank, last, done);
}

bool flight_is_told(const char *sentence)
{
    return strstr(sentence, last) != NULL;
}
