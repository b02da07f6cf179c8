/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index of the frames of a video file, from the times and flags of its packets.
 *
 * Packets are in decoding order; frames are numbered by time.  A segment begins with a key packet
 * and contains the frames from its key frame to the key frame of the next segment.  Leading packets
 * follow a key packet but are shown before it ("open" groups of pictures).  They depend on the
 * segment before, so that segment is decoded with the key and leading packets, too.
 */
#ifndef EXAMPLES_VIDEO_INDEX_H
#define EXAMPLES_VIDEO_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#define VIDEO_NO_TIME INT64_MIN

struct video_packet {
    int64_t pts, dts; /* VIDEO_NO_TIME: unknown */
    bool key;
    bool shown; /* its picture is a frame of the video */
};

struct video_segment {
    int64_t key;     /* index of its first packet */
    int64_t leading; /* index of its last leading packet, or key */
    int64_t frame;   /* number of the key frame */
    bool early;      /* needs decoding from the key of the segment before */
};

struct video_index {
    struct video_packet *packet;
    int64_t packets, room;
    int64_t *time; /* [frames], ascending */
    int64_t frames;
    struct video_segment *segment;
    int64_t segments;
    /* Packets have no times of their own: there is one segment, and frames are numbered in output
     * order. */
    bool counted;
    int delay; /* maximum number of packets that a picture is delayed for reordering */
};

/* Adds a packet, in file order.  Both return 0, or -1 if memory is short. */
int video_index_add(struct video_index *x, const struct video_packet *p);
/* Numbers the frames and finds the segments.  counted: in this format not every packet is a frame.
 */
int video_index_finish(struct video_index *x, bool counted);
/* Hides those of the first n frames that are not kept, and numbers the frames anew.  Returns 0, or
 * -1 if memory is short. */
int video_index_keep(struct video_index *x, const bool *kept, int64_t n);
void video_index_free(struct video_index *x);

/* The frame at this time, or the next one; the number of frames if there is none. */
int64_t video_index_frame(const struct video_index *x, int64_t pts);
/* The segment that contains a frame. */
int64_t video_index_segment(const struct video_index *x, int64_t frame);

/* End of a segment: the index after its last packet, and after its last frame. */
int64_t video_index_last_packet(const struct video_index *x, int64_t segment);
int64_t video_index_last_frame(const struct video_index *x, int64_t segment);
/* Whether a packet is a leading packet of the key where decoding started, so it cannot be decoded.
 */
bool video_index_leads(const struct video_index *x, int64_t segment, int64_t packet);

#endif
