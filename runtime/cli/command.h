/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ckpt command as one call.  It lies in the library because it needs the planner, whose inner
 * names no program should see: one private name is exported in their place, for the program of the
 * same release alone (libckpt.map).
 */
#ifndef CKPT_COMMAND_H
#define CKPT_COMMAND_H

#include "ckpt.h"

/* Runs the command; returns its exit status. */
CKPT_API int ckpt_command(int argc, char **argv);

#endif
