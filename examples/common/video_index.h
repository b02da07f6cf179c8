/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the frames of a video file are, from the times and marks of its packets.
 *
 * Packets stand in the order of decoding, frames are numbered by time.  A segment begins with a key
 * packet and has the frames from its own up to that of the next segment.  Leading packets stand
 * behind a key packet and are shown before it ("open" groups of pictures); they need the segment
 * before, so they and the key belong to what is decoded for that one, too.
 */
#ifndef EXAMPLES_VIDEO_INDEX_H
#define EXAMPLES_VIDEO_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#define VIDEO_NO_TIME INT64_MIN

struct video_packet {
    int64_t pts, dts; /* VIDEO_NO_TIME: unknown */
    bool key;
    bool shown; /* its picture is one of the video's frames */
};

struct video_segment {
    int64_t key;     /* packet that it begins with */
    int64_t leading; /* last leading packet of that, else the key itself */
    int64_t frame;   /* number of the key's */
    bool early;      /* not decodable from its key: from that of the segment before */
};

struct video_index {
    struct video_packet *packet;
    int64_t packets, room;
    int64_t *time; /* [frames], in order */
    int64_t frames;
    struct video_segment *segment;
    int64_t segments;
    /* Packets have no times of their own: there is one segment, and frames are numbered as they
     * come out. */
    bool counted;
    int delay; /* packets that a picture waits for, at the most, to be shown in order */
};

/* Adds a packet, in the order of the file.  Both return 0, or -1 without memory. */
int video_index_add(struct video_index *x, const struct video_packet *p);
/* Numbers the frames and finds the segments.  counted: packets are no frames in this format. */
int video_index_finish(struct video_index *x, bool counted);
void video_index_free(struct video_index *x);

/* The frame of this time, or the one that follows; frames if there is none. */
int64_t video_index_frame(const struct video_index *x, int64_t pts);
/* The segment of a frame. */
int64_t video_index_segment(const struct video_index *x, int64_t frame);

/* Behind the last packet and the last frame of a segment. */
int64_t video_index_last_packet(const struct video_index *x, int64_t segment);
int64_t video_index_last_frame(const struct video_index *x, int64_t segment);
/* Whether a packet leads the key that decoding begins with, and cannot be decoded then. */
bool video_index_leads(const struct video_index *x, int64_t segment, int64_t packet);

#endif
