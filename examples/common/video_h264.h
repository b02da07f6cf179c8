/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of H.264, as far as the decoding of a cut file depends on them. */
#ifndef EXAMPLES_VIDEO_H264_H
#define EXAMPLES_VIDEO_H264_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a packet has a slice of an IDR picture, where decoding needs nothing from before.
 * extra: the stream's parameters, which say how packets are divided. */
bool video_h264_has_idr(const uint8_t *extra, int extra_size, const uint8_t *packet, int size);

#endif
