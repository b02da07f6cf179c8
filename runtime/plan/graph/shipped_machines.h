/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded machine files, one JSON text that the build generates: see machine_find.c. */
#ifndef CKPT_PLAN_SHIPPED_MACHINES_H
#define CKPT_PLAN_SHIPPED_MACHINES_H

extern const char *const shipped_machines[]; /* ended by NULL */

#endif
