/* SPDX-License-Identifier: Apache-2.0 */
/* The machine files that are built in, as the build makes one text of them: see machine_find.c. */
#ifndef CKPT_PLAN_SHIPPED_MACHINES_H
#define CKPT_PLAN_SHIPPED_MACHINES_H

extern const char *const shipped_machines[]; /* ended by NULL */

#endif
