/* SPDX-License-Identifier: Apache-2.0 */
/* Picture files: see picture.h. */
#include <string.h>
#include "../png.h"
#include "ckpt_tools.h"
#include "picture.h"
#include "say.h"

int picture_write(const char *path, int64_t frames, int64_t height, int64_t width,
                  const uint8_t *rgb, int64_t zoom)
{
    struct ckpt_replacement *file;

    if (ckpt_replace_open(&file, path))
        return say_fail("%s", ckpt_error(NULL));
    FILE *f = ckpt_replace_stream(file);
    int rc = f ? png_write_strip(f, (int)frames, (int)height, (int)width, rgb, (int)zoom) : -1;
    if (rc) {
        ckpt_replace_abandon(file);
        return say_fail("%s: %s", path, f ? strerror(-rc) : "no memory to write it");
    }
    return ckpt_replace_commit(file, false) ? say_fail("%s", ckpt_error(NULL)) : 0;
}
