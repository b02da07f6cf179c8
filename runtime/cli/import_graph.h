/* SPDX-License-Identifier: Apache-2.0 */
/* The training step of a .pt2 archive as a graph file. */
#ifndef CKPT_CLI_IMPORT_GRAPH_H
#define CKPT_CLI_IMPORT_GRAPH_H

#include "import/report.h"

/*
 * Records the step of an archive that was read, with AdamW, and writes its graph to a file: as the
 * backend of the machine (NULL: the CPU) computes it, in one of so many ranks (NULL: alone).  The
 * loss is the model's own, or else the squared distance of every float output from a target.  No
 * weight is read.  Returns 0, or an exit status after printing a message.
 */
int import_graph_write(const struct import_report *r, const char *machine, const char *ranks,
                       const char *path);
/*
 * The same step as C source, with its large constants beside it in FILE.safetensors for FILE.c.
 * Values of constants are those of the archive.
 */
int import_source_write(const struct import_report *r, const char *path);

#endif
