/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compiler calls for a loop of OpenMP ("The libgomp ABI" in its manual) are functions of
 * ours, whose names nobody else has: programs that use OpenMP themselves, or link the library
 * statically, keep theirs.  Every file of the library includes this, before all else.
 */
#ifndef CKPT_TEAM_CALLS_H
#define CKPT_TEAM_CALLS_H

__asm__("GOMP_parallel = team_run");
__asm__("omp_get_thread_num = team_number");
__asm__("omp_get_num_threads = team_threads");

#endif
