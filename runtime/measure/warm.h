/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured before the first plan: ops, and links to the lower tiers. */
#ifndef CKPT_WARM_H
#define CKPT_WARM_H

struct ckpt_program;
struct programs;

/* Runs every kind of op of the program on scratch bytes of the arena: libraries load their code and
 * select their algorithms before the budget is divided, and the context's machine gets the times of
 * ops it has none for.  Does nothing on the CPU.  Returns 0, CKPT_ENOMEM or the device's code. */
int program_warm(struct ckpt_program *p);

/* Whether program_warm times no op, because the expected run is too short for that to pay. */
bool program_keeps_times(const struct ckpt_program *p);

/* Before the first plan: times the copies between the device and a host tier, unless --machine
 * gives their rates.  Returns 0 or the device's code. */
int programs_time_links(struct programs *ps);

#endif
