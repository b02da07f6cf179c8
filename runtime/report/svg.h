/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common parts of drawings.
 *
 * The report room presents plans and runs to people: the plan table, the progress line, the page
 * with the memory of a step over time, the curve of a sweep, the write endurance of a drive.  It
 * reads the state of other rooms and changes nothing.  Numbers have units; sizes are in GiB, times
 * in a suitable unit, and each figure is printed once.  Names from files are escaped before they
 * reach a terminal or a browser.
 *
 * It may use plans and programs, and the rooms below them; only the command line may use it.
 */
#ifndef CKPT_REPORT_SVG_H
#define CKPT_REPORT_SVG_H

#include <stdio.h>

/* A round step that gives about n ticks. */
double svg_tick_step(double range, int n);
/* Starts a drawing of this size, with styles, a title and a lighter second title. */
void svg_open(FILE *f, int width, int height, int left, const char *title, const char *second);

#endif
