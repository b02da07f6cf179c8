/* SPDX-License-Identifier: Apache-2.0 */
/* What the examples say, kept instead of printed. */
#ifndef TESTS_UNIT_SAID_H
#define TESTS_UNIT_SAID_H

#include <stdarg.h>
#include <stdio.h>

static char said[1024];

int say_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return -1;
}

void say_note(const char *fmt, ...)
{
    (void)fmt;
}

#endif
