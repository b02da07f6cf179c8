/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drawings share.
 *
 * The report room decides what a person sees of a plan and of a run: the plan table, the progress
 * line, the page with the memory of a step over time, the curve of a sweep, the wear of a
 * drive.  It reads what other rooms have decided and changes nothing; numbers are printed with
 * units, sizes as GiB, times in the unit that suits them, and a figure once.  Names from files are
 * escaped before a terminal or a browser sees them.
 *
 * It may know plans and programs, and what these stand on; no room but the command line may know
 * it.
 */
#ifndef CKPT_REPORT_SVG_H
#define CKPT_REPORT_SVG_H

#include <stdio.h>

/* A round step that gives about n ticks. */
double svg_tick_step(double range, int n);
/* The start of a drawing of this size with its styles, its heading and a lighter second one. */
void svg_open(FILE *f, int width, int height, int left, const char *title, const char *second);

#endif
