/* SPDX-License-Identifier: Apache-2.0 */
/* Index of the frames of a video file: see video_index.h. */
#include "video_index.h"
#include <stdlib.h>
#include <string.h>

int video_index_add(struct video_index *x, const struct video_packet *p)
{
    if (x->packets == x->room) {
        int64_t room = x->room ? 2 * x->room : 64;
        struct video_packet *packet = realloc(x->packet, (size_t)room * sizeof *packet);
        if (!packet)
            return -1;
        x->packet = packet;
        x->room = room;
    }
    x->packet[x->packets++] = *p;
    return 0;
}

void video_index_free(struct video_index *x)
{
    free(x->packet);
    free(x->time);
    free(x->segment);
    *x = (struct video_index){.packet = NULL};
}

/* ---- frames -------------------------------------------------------------------------------- */

/* The first key packet; the number of packets if there is none. */
static int64_t first_key(const struct video_index *x)
{
    int64_t i = 0;

    while (i < x->packets && !x->packet[i].key)
        i++;
    return i;
}

/* Hides packets before the first key, and its leading packets: they cannot be decoded. */
static void hide_undecodable(struct video_index *x, int64_t key)
{
    for (int64_t i = 0; i < x->packets; i++)
        if (i < key || (key < x->packets && x->packet[i].pts < x->packet[key].pts))
            x->packet[i].shown = false;
}

static int earlier(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Numbers the frames.  Returns whether each frame has a time of its own. */
static bool number_frames(struct video_index *x)
{
    bool own = true;

    x->frames = 0;
    for (int64_t i = 0; i < x->packets; i++) {
        own &= x->packet[i].pts != VIDEO_NO_TIME;
        if (x->packet[i].shown)
            x->time[x->frames++] = x->packet[i].pts;
    }
    qsort(x->time, (size_t)x->frames, sizeof *x->time, earlier);
    for (int64_t i = 1; i < x->frames; i++)
        own &= x->time[i] != x->time[i - 1];
    return own;
}

/* ---- segments ------------------------------------------------------------------------------ */

/* least[i]: the earliest time of packets i, i + 1, ... */
static int64_t *least_times(const struct video_index *x)
{
    int64_t *least = malloc(((size_t)x->packets + 1) * sizeof *least);

    if (!least)
        return NULL;
    least[x->packets] = INT64_MAX;
    for (int64_t i = x->packets; i-- > 0;)
        least[i] = x->packet[i].pts < least[i + 1] ? x->packet[i].pts : least[i + 1];
    return least;
}

/* The last leading packet of a key.  -1 if one follows the next key: no segment begins at this key.
 */
static int64_t leading_of(const struct video_index *x, const int64_t *least, int64_t key)
{
    int64_t last = key, i = key + 1;

    for (; i < x->packets && !x->packet[i].key; i++)
        if (x->packet[i].pts < x->packet[key].pts)
            last = i;
    return least[i] < x->packet[key].pts ? -1 : last;
}

static void find_segments(struct video_index *x, const int64_t *least, int64_t first)
{
    int64_t latest = INT64_MIN;

    for (int64_t i = first; i < x->packets; i++) {
        const struct video_packet *p = &x->packet[i];
        int64_t leading = p->key && p->shown && p->pts > latest ? leading_of(x, least, i) : -1;
        if (i == first)
            x->segment[x->segments++] = (struct video_segment){i, leading < i ? i : leading, 0, 0};
        else if (leading >= 0)
            x->segment[x->segments++] =
                (struct video_segment){i, leading, video_index_frame(x, p->pts), false};
        latest = p->pts > latest ? p->pts : latest;
    }
}

enum { DELAY = 16 /* maximum of H.264 and H.265 */ };

static void find_delay(struct video_index *x)
{
    for (int64_t i = 0; i < x->packets; i++) {
        int later = 0;
        for (int64_t k = i; k-- > 0 && k >= i - 2 * DELAY;)
            later += x->packet[k].pts > x->packet[i].pts;
        x->delay = later > x->delay ? later : x->delay;
    }
    x->delay = x->delay < DELAY ? x->delay : DELAY;
}

int video_index_finish(struct video_index *x, bool counted)
{
    int64_t first = first_key(x);

    free(x->time);
    free(x->segment);
    x->segments = 0;
    x->time = malloc(((size_t)x->packets + 1) * sizeof *x->time);
    x->segment = malloc(((size_t)x->packets + 1) * sizeof *x->segment);
    int64_t *least = least_times(x);
    if (x->time && x->segment && least) {
        hide_undecodable(x, first);
        x->counted = !number_frames(x) || counted;
        if (!x->counted) {
            find_segments(x, least, first);
            find_delay(x);
        }
    }
    free(least);
    return x->time && x->segment && least ? 0 : -1;
}

int video_index_keep(struct video_index *x, const bool *kept, int64_t n)
{
    for (int64_t i = 0; i < x->packets; i++) {
        int64_t frame = x->packet[i].shown ? video_index_frame(x, x->packet[i].pts) : n;
        if (frame < n && !kept[frame])
            x->packet[i].shown = false;
    }
    return video_index_finish(x, false);
}

/* ---- look-ups ------------------------------------------------------------------------------ */

int64_t video_index_frame(const struct video_index *x, int64_t pts)
{
    int64_t low = 0, high = x->frames;

    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (x->time[middle] < pts)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t video_index_segment(const struct video_index *x, int64_t frame)
{
    int64_t low = 0, high = x->segments - 1;

    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (x->segment[middle].frame <= frame)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int64_t video_index_last_packet(const struct video_index *x, int64_t segment)
{
    const struct video_segment *next = &x->segment[segment + 1];

    if (segment + 1 >= x->segments)
        return x->packets;
    return next->leading > next->key ? next->leading + 1 : next->key;
}

int64_t video_index_last_frame(const struct video_index *x, int64_t segment)
{
    return segment + 1 < x->segments ? x->segment[segment + 1].frame : x->frames;
}

bool video_index_leads(const struct video_index *x, int64_t segment, int64_t packet)
{
    const struct video_segment *s = &x->segment[segment];

    return packet > s->key && packet <= s->leading && x->packet[packet].pts < x->packet[s->key].pts;
}
