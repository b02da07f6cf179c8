/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hardware decoders, by FFmpeg's names, as "cuda" or "vaapi:/dev/dri/renderD128".
 *
 * Their output differs from the CPU's, and between GPU models.  The CPU decodes what the hardware
 * does not support.  Frames are copied to host memory.
 */
#ifndef EXAMPLES_VIDEO_HW_H
#define EXAMPLES_VIDEO_HW_H

struct AVCodecContext;
struct AVFrame;

struct video_hw; /* a device; threads share it */

/* Checks that FFmpeg knows this name.  Returns 0, or -1 after an error message. */
int video_hw_check(const char *name);

/* Returns 0, or -1 after an error message: the device is missing, or does not start. */
int video_hw_open(struct video_hw **hw, const char *name);
void video_hw_close(struct video_hw *hw); /* may be NULL */

/* Makes a decoder that is not open yet use the device.  Returns 0, or -1 if memory is short. */
int video_hw_attach(const struct video_hw *hw, struct AVCodecContext *codec);
/* Copies a frame to host memory if it is not there.  Returns 0, or FFmpeg's error code. */
int video_hw_fetch(struct AVFrame *frame);

#endif
