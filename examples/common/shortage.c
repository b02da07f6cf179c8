/* SPDX-License-Identifier: Apache-2.0 */
/* Momentary shortages: see shortage.h. */
#include "shortage.h"
#include <errno.h>

static _Thread_local bool noted;

void shortage_note(int error)
{
    noted |= error == ENOMEM || error == EMFILE || error == ENFILE || error == EAGAIN;
}

bool shortage_take(void)
{
    bool was = noted;

    noted = false;
    return was;
}
