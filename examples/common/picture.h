/* SPDX-License-Identifier: Apache-2.0 */
/* Picture files. */
#ifndef EXAMPLES_PICTURE_H
#define EXAMPLES_PICTURE_H

#include <stdint.h>

/* Writes frames [frames][height][width][3] side by side as one PNG, each pixel enlarged to zoom x
 * zoom.  path is replaced atomically.  Returns 0, or -1 after an error message. */
int picture_write(const char *path, int64_t frames, int64_t height, int64_t width,
                  const uint8_t *rgb, int64_t zoom);

#endif
