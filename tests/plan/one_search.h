/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test that includes this searches for the schedules of each graph once, however many budgets and
 * contexts plan it: build-aux/sources has it linked with the functions of one_search.c.
 */
#ifndef CKPT_TESTS_ONE_SEARCH_H
#define CKPT_TESTS_ONE_SEARCH_H
#endif
