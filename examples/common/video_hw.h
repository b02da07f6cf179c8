/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders in hardware, by FFmpeg's names of them, as "cuda" or "vaapi:/dev/dri/renderD128".
 *
 * Their bytes are not those of the CPU, and differ from one model of a card to the next.  What a
 * card does not decode, the CPU decodes.  Frames come to host memory before they are looked at.
 */
#ifndef EXAMPLES_VIDEO_HW_H
#define EXAMPLES_VIDEO_HW_H

struct AVCodecContext;
struct AVFrame;

struct video_hw; /* a device, which all threads share */

/* Whether FFmpeg knows that name here.  Returns 0, or -1 after a sentence. */
int video_hw_check(const char *name);

/* Returns 0, or -1 after a sentence: there is no such device, or it does not start. */
int video_hw_open(struct video_hw **hw, const char *name);
void video_hw_close(struct video_hw *hw); /* may be NULL */

/* Has a decoder that is not open yet use it.  Returns 0, or -1 without memory. */
int video_hw_attach(const struct video_hw *hw, struct AVCodecContext *codec);
/* Brings a frame to host memory; one that is there stays as it is.  Returns 0, or FFmpeg's code. */
int video_hw_fetch(struct AVFrame *frame);

#endif
