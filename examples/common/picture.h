/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures in files. */
#ifndef EXAMPLES_PICTURE_H
#define EXAMPLES_PICTURE_H

#include <stdint.h>

/* Frames [frames][height][width][3] side by side as one PNG, every pixel drawn zoom x zoom, in the
 * place of path whole or not at all.  Returns 0, or -1 after a sentence. */
int picture_write(const char *path, int64_t frames, int64_t height, int64_t width,
                  const uint8_t *rgb, int64_t zoom);

#endif
