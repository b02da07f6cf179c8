/* What drawings share. */
#ifndef CKPT_REPORT_SVG_H
#define CKPT_REPORT_SVG_H

#include <stdio.h>

/* Text of a user in a drawing: no markup, no control characters. */
void svg_put_text(FILE *f, const char *text);
/* A round step that gives about n ticks. */
double svg_tick_step(double range, int n);
/* The start of a drawing of this size with its styles, its heading and a lighter second one. */
void svg_open(FILE *f, int width, int height, int left, const char *title, const char *second);

#endif
