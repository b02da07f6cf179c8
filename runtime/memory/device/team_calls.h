/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redirects the calls that the compiler makes for OpenMP loops ("The libgomp ABI" in its manual) to
 * our own functions: programs that use OpenMP themselves, or link the library statically, keep
 * theirs.  Every file of the library includes this before all else.
 */
#ifndef CKPT_TEAM_CALLS_H
#define CKPT_TEAM_CALLS_H

__asm__("GOMP_parallel = team_run");
__asm__("omp_get_thread_num = team_number");
__asm__("omp_get_num_threads = team_threads");

#endif
