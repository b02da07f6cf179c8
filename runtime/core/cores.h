/* SPDX-License-Identifier: Apache-2.0 */
/* Cores that this process may use. */
#ifndef CKPT_CORES_H
#define CKPT_CORES_H

/* Cores that the CPU quotas of the process's control groups amount to, rounded up, as containers
 * have them; 0: no quota.  root: see control_groups.h. */
int cores_quota(const char *root);

/* Those of the process's affinity, or of the quota if that is less.  The quota is read once. */
int cores_allowed(void);

#endif
