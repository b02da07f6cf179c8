/* SPDX-License-Identifier: Apache-2.0 */
/* Graph files: the graph of a program as text, so that it can be planned for any machine. */
#ifndef CKPT_PLAN_GRAPH_FILE_H
#define CKPT_PLAN_GRAPH_FILE_H

#include "plan/plan.h"

/* The same graph gives the same bytes.  Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int graph_write(const struct graph *g, const char *path);

/* Where that of a stage goes: FILE.stages.N.S, with S from 1.  Returns 0 or CKPT_EIO. */
int graph_name_stage(char *path, size_t size, const char *to, int32_t stages, int32_t stage);

/* Reads a graph and proves that it is one: every size and index in range, every storage written
 * before it is read, the sum of all bytes far below 2^63.  Returns 0, CKPT_EIO, CKPT_EFORMAT or
 * CKPT_ENOMEM. */
int graph_read(const char *path, struct graph **g);

#endif
