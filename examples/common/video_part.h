/* SPDX-License-Identifier: Apache-2.0 */
/* Members of tar files as input of FFmpeg's demuxers: read in place, holes as zeros. */
#ifndef EXAMPLES_VIDEO_PART_H
#define EXAMPLES_VIDEO_PART_H

#include <libavformat/avio.h>
#include "video.h"

/* Opens a member; f outlives *io.  Returns 0, or an error code of FFmpeg. */
int video_part_open(AVIOContext **io, const struct video_file *f);
void video_part_close(AVIOContext **io); /* also if *io is NULL */

#endif
