/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes video files with FFmpeg's libraries; see video.h.
 *
 * Segments (video_index.h) are decoded one by one, each by an empty decoder that is drained at its
 * end, so the frames of a segment depend only on its own packets.  Some packets are marked as key
 * frames but cannot be decoded alone: a segment that fails is tried once more from the key packet
 * of the segment before.
 */
#include "ckpt_tools.h"
#include "say.h"
#include "shortage.h"
#include "video.h"

#ifdef HAVE_FFMPEG

#include <stdlib.h>
#include <string.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libswscale/swscale.h>
#include "orientation.h"
#include "video_h264.h"
#include "video_hw.h"
#include "video_index.h"
#include "video_part.h"

struct decoder {
    const char *path; /* of the video, for messages */
    const struct video_file *file;
    const struct video_hw *hw;
    AVFormatContext *format;
    AVIOContext *part; /* of a member */
    AVStream *stream;
    AVCodecContext *codec;
    const AVCodec *kind;
    struct SwsContext *scale;
    AVPacket *packet;
    AVFrame *frame;           /* last decoded frame, until it is converted to rgb */
    struct orientation shown; /* what the stream's display matrix specifies */
    struct video_index index;
    bool indexed;
    bool keyed;   /* a key packet was read; the next member is known */
    bool cut;     /* H.264 whose first key frame is no IDR picture */
    uint8_t *rgb; /* frame `at`, before it is oriented */
    size_t room;
    int64_t at; /* -1: none */
    int width, height, line;
    struct orientation oriented; /* of frame `at` */
    /* the decoding position */
    int64_t segment; /* segment being decoded; -1: none */
    int64_t start;   /* segment at whose key packet decoding started */
    int64_t packets; /* packets read from the file; -1: unknown position */
    int64_t end;     /* index of the packet to stop at */
    int64_t next;    /* number of the next frame */
    bool drains, fails;
};

/* ---- the file ------------------------------------------------------------------------------ */

/* The stream to read, or FFmpeg's error code.  A cover picture of a file is not its video. */
static int find_stream(struct decoder *d)
{
    AVFormatContext *f = d->format;

    for (unsigned i = 0; i < f->nb_streams; i++)
        if (f->streams[i]->disposition & AV_DISPOSITION_ATTACHED_PIC)
            f->streams[i]->codecpar->codec_type = AVMEDIA_TYPE_ATTACHMENT;
    return av_find_best_stream(f, AVMEDIA_TYPE_VIDEO, -1, -1, &d->kind, 0);
}

/* Notes a failure of FFmpeg that is none of the file; returns its result. */
static int heed(int rc)
{
    if (rc < 0 && rc != AVERROR(EAGAIN))
        shortage_note(AVUNERROR(rc));
    return rc;
}

static void close_input(struct decoder *d)
{
    avformat_close_input(&d->format);
    video_part_close(&d->part);
}

/* FFmpeg would read "a:b" as protocol a; the URL names a file. */
static int open_url(struct decoder *d)
{
    const struct video_file *f = d->file;
    char url[4096 + 80];

    if (!f->member) {
        snprintf(url, sizeof url, "file:%s", f->path);
        return avformat_open_input(&d->format, url, NULL, NULL);
    }
    int rc = video_part_open(&d->part, f);
    if (rc < 0)
        return rc;
    d->format = avformat_alloc_context();
    if (!d->format)
        return AVERROR(ENOMEM);
    d->format->pb = d->part;
    return avformat_open_input(&d->format, NULL, NULL, NULL);
}

static int open_input(struct decoder *d)
{
    int rc = heed(open_url(d));

    if (rc < 0)
        return say_fail("%s: cannot be read as a video: %s", d->path, av_err2str(rc));
    if (heed(avformat_find_stream_info(d->format, NULL)) < 0)
        return say_fail("%s: its streams cannot be read", d->path);
    rc = find_stream(d);
    if (rc < 0 || !d->kind)
        return say_fail("%s: holds no video that can be decoded here", d->path);
    d->stream = d->format->streams[rc];
    for (unsigned i = 0; i < d->format->nb_streams; i++)
        if (d->format->streams[i] != d->stream)
            d->format->streams[i]->discard = AVDISCARD_ALL;
    d->packets = 0;
    return 0;
}

/* Reads a packet of the video stream; it is valid until the next call.  Returns 1, or 0 at the end
 * of the file or where it is damaged. */
static int read_packet(struct decoder *d)
{
    do {
        av_packet_unref(d->packet);
        if (heed(av_read_frame(d->format, d->packet)) < 0)
            return 0;
    } while (d->packet->stream_index != d->stream->index);
    return 1;
}

static int64_t time_of(int64_t value)
{
    return value == AV_NOPTS_VALUE ? VIDEO_NO_TIME : value;
}

static int reopen(struct decoder *d)
{
    close_input(d);
    return open_input(d);
}

/* Adds the next packet to the index.  Returns 1, 0 at the end, or -1 if memory is short. */
static int index_packet(struct decoder *d)
{
    const AVCodecParameters *c = d->stream->codecpar;
    const AVPacket *p = d->packet;

    if (!read_packet(d))
        return 0;
    if (p->flags & AV_PKT_FLAG_KEY && !d->keyed) {
        d->keyed = true;
        d->cut = c->codec_id == AV_CODEC_ID_H264 &&
                 !video_h264_has_idr(c->extradata, c->extradata_size, p->data, p->size);
    }
    struct video_packet packet = {time_of(p->pts), time_of(p->dts), p->flags & AV_PKT_FLAG_KEY,
                                  !(p->flags & AV_PKT_FLAG_DISCARD)};
    return video_index_add(&d->index, &packet) ? -1 : 1;
}

/* VP8 has packets that are not shown; not all containers mark them. */
static int make_index(struct decoder *d, const struct video *v)
{
    int rc = 1;

    if (d->packets != d->index.packets) {
        video_index_free(&d->index);
        if (reopen(d))
            return -1;
    }
    d->packets = -1;
    while (rc > 0) {
        rc = index_packet(d);
        if (v->stop && atomic_load(v->stop))
            return -1;
    }
    d->indexed = true;
    if (rc || video_index_finish(&d->index, d->kind->id == AV_CODEC_ID_VP8))
        return video_short(d->path, "the index of its frames");
    return 0;
}

static int64_t packet_of_time(const struct video_index *x, int64_t from, int64_t pts)
{
    for (int64_t i = from; i < x->packets; i++)
        if (x->packet[i].pts == pts)
            return i;
    return -1;
}

/* Reads packets up to packet n.  Returns 1, or 0 if it is not found. */
static int read_until(struct decoder *d, int64_t n)
{
    while (d->packets <= n && read_packet(d)) {
        if (d->packets < 0) /* after a seek: find the packet's index */
            d->packets = packet_of_time(&d->index, 0, time_of(d->packet->pts));
        if (d->packets < 0 || d->packets > n)
            return 0;
        d->packets++;
    }
    return d->packets == n + 1;
}

/* Reads packet n from any position: by the file's index, or from the start if the index is wrong.
 */
static int find_packet(struct decoder *d, int64_t n)
{
    const struct video_packet *p = &d->index.packet[n];

    if (d->packets >= 0 && d->packets <= n && n - d->packets < 8 && read_until(d, n))
        return 0;
    d->packets = -1;
    if (!d->index.counted &&
        av_seek_frame(d->format, d->stream->index, p->dts == VIDEO_NO_TIME ? p->pts : p->dts,
                      AVSEEK_FLAG_BACKWARD) >= 0 &&
        read_until(d, n))
        return 0;
    if (reopen(d))
        return -1;
    return read_until(d, n) ? 0 : say_fail("%s: has changed while it was read", d->path);
}

/* ---- orientation --------------------------------------------------------------------------- */

static const int32_t *matrix_of(const AVStream *s)
{
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
    const AVPacketSideData *side = av_packet_side_data_get(
        s->codecpar->coded_side_data, s->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return side ? (const int32_t *)(const void *)side->data : NULL;
#else
    return (const void *)av_stream_get_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, NULL);
#endif
}

static int read_matrix(const struct decoder *d, const int32_t *matrix, struct orientation *o)
{
    return orientation_read(o, matrix)
               ? say_fail("%s: its display matrix turns it by %.0f degrees, and only quarter turns "
                          "and mirrors are applied: let ffmpeg rewrite it",
                          d->path, -av_display_rotation_get(matrix))
               : 0;
}

/* A picture's own matrix (EXIF) comes before the stream's. */
static int orient(struct decoder *d)
{
    const AVFrameSideData *own = av_frame_get_side_data(d->frame, AV_FRAME_DATA_DISPLAYMATRIX);

    d->oriented = d->shown;
    return own ? read_matrix(d, (const int32_t *)(const void *)own->data, &d->oriented) : 0;
}

/* ---- pictures ------------------------------------------------------------------------------ */

/* As in FFmpeg's own programs, frames of unspecified colour space are BT.601. */
static void set_colours(struct SwsContext *scale, const AVFrame *f)
{
    int full = f->color_range == AVCOL_RANGE_JPEG || f->format == AV_PIX_FMT_YUVJ420P ||
               f->format == AV_PIX_FMT_YUVJ422P || f->format == AV_PIX_FMT_YUVJ444P;

    sws_setColorspaceDetails(scale, sws_getCoefficients(f->colorspace), full,
                             sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
}

/* Converts the frame to RGB, with the same numbers as PyAV gives Open-Sora.  Lines are as long as
 * FFmpeg's own: where a line has no room for whole vectors, swscale computes its last pixels in
 * another way. */
static int to_rgb(struct decoder *d)
{
    AVFrame *f = d->frame;
    int line[] = {(f->width * 3 + 63) & ~63};
    size_t bytes = (size_t)line[0] * (size_t)f->height;

    if (video_hw_fetch(f) < 0)
        return say_fail("%s: a frame does not come from the device", d->path);
    if (bytes > d->room) {
        free(d->rgb);
        d->rgb = malloc(bytes + 64); /* swscale writes whole vectors */
        d->room = d->rgb ? bytes : 0;
    }
    d->scale = sws_getCachedContext(d->scale, f->width, f->height, f->format, f->width, f->height,
                                    AV_PIX_FMT_RGB24, SWS_BILINEAR, NULL, NULL, NULL);
    shortage_note(d->rgb ? 0 : ENOMEM);
    if (!d->rgb || !d->scale)
        return say_fail(d->rgb ? "%s: its pixel format cannot be converted to RGB"
                               : "%s: no memory for a frame",
                        d->path);
    set_colours(d->scale, f);
    sws_scale(d->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, &d->rgb, line);
    d->width = f->width;
    d->height = f->height;
    d->line = line[0];
    return 0;
}

/* ---- decoding ------------------------------------------------------------------------------ */

static int open_codec(struct decoder *d)
{
    d->codec = avcodec_alloc_context3(d->kind);
    if (!d->codec)
        return video_short(d->path, "the decoder");
    if (avcodec_parameters_to_context(d->codec, d->stream->codecpar) < 0)
        return video_short(d->path, "the decoder");
    d->codec->thread_count = 1; /* errors come with their packet; also the least memory */
    d->codec->pkt_timebase = d->stream->time_base;
    if (d->hw && video_hw_attach(d->hw, d->codec))
        return video_short(d->path, "the decoder");
    if (d->codec->has_b_frames < d->index.delay)
        d->codec->has_b_frames = d->index.delay;
    if (heed(avcodec_open2(d->codec, d->kind, NULL)) < 0)
        return say_fail("%s: the %s decoder does not start", d->path, d->kind->name);
    return 0;
}

/*
 * Any error ends a segment: output after an error would be unreliable.  In H.264 a file that was
 * cut at a key frame other than an IDR picture releases references that it lacks, which is an error
 * for FFmpeg's decoder, but harmless: the decoder holds back the frames that need them.
 */
static int begin_segment(struct decoder *d, int64_t segment)
{
    const struct video_index *x = &d->index;
    bool early = !x->counted && x->segment[segment].early;

    if (!d->codec && open_codec(d))
        return -1;
    avcodec_flush_buffers(d->codec);
    d->segment = segment;
    d->start = early ? segment - 1 : segment;
    d->end = x->counted ? x->packets : video_index_last_packet(x, segment);
    d->next = x->counted ? 0 : x->segment[segment].frame;
    d->drains = d->fails = false;
    if (find_packet(d, x->counted ? 0 : x->segment[d->start].key))
        return -1;
    d->codec->err_recognition = d->cut && (x->counted || !d->start) ? 0 : AV_EF_EXPLODE;
    return 0;
}

/* Whether an error of the last packet belongs to the current segment. */
static bool concerns(const struct decoder *d)
{
    return d->index.counted || d->packets > d->index.segment[d->segment].key;
}

/* Sends the current packet, or the end of the segment, to the decoder, and reads the next packet.
 */
static void feed(struct decoder *d)
{
    bool leads = !d->index.counted && video_index_leads(&d->index, d->start, d->packets - 1);
    bool skips = leads && !d->drains;
    int rc = skips ? 0 : heed(avcodec_send_packet(d->codec, d->drains ? NULL : d->packet));

    if (rc < 0 && rc != AVERROR_EOF && concerns(d))
        d->fails = true;
    if (d->packets >= d->end || !read_until(d, d->packets))
        d->drains = true;
}

enum outcome { COMES, COMES_NOT, FAILS };

/* The number of the decoded frame; -1: not a frame of this segment. */
static int64_t number_of(const struct decoder *d)
{
    const struct video_index *x = &d->index;

    if (x->counted)
        return d->next;
    int64_t n = video_index_frame(x, time_of(d->frame->pts));
    return n < x->frames && x->time[n] == d->frame->pts && n >= x->segment[d->segment].frame ? n
                                                                                             : -1;
}

static bool stopped(const struct video *v)
{
    return v->stop && atomic_load(v->stop);
}

/* Decodes the next frame of the segment; *n: its number. */
static enum outcome decode_next(struct decoder *d, int64_t *n, const struct video *v)
{
    bool ended = false;

    while (!d->fails && !stopped(v)) {
        int rc = heed(avcodec_receive_frame(d->codec, d->frame));
        if (rc == AVERROR(EAGAIN) && !ended) {
            ended = d->drains;
            feed(d);
            continue;
        }
        if (rc == AVERROR_EOF || rc == AVERROR(EAGAIN))
            return d->index.counted ? COMES_NOT : FAILS;
        if (rc < 0) {
            d->fails = concerns(d);
            continue;
        }
        *n = number_of(d);
        if (*n >= 0)
            return COMES;
    }
    return FAILS;
}

/* Decodes up to frame n of the segment. */
static enum outcome decode_until(struct decoder *d, int64_t n, const struct video *v)
{
    enum outcome o;
    int64_t came;

    while ((o = decode_next(d, &came, v)) == COMES) {
        d->fails = came != d->next || d->frame->decode_error_flags ||
                   (d->frame->flags & AV_FRAME_FLAG_CORRUPT);
        d->next = came + 1;
        if (came == n || d->fails)
            return d->fails ? FAILS : COMES;
    }
    return o;
}

/* Decodes frame n into d->frame. */
static enum outcome decode(struct decoder *d, int64_t n, const struct video *v)
{
    struct video_index *x = &d->index;
    int64_t segment = x->counted ? 0 : video_index_segment(x, n);

    if ((segment != d->segment || n < d->next) && begin_segment(d, segment))
        return FAILS;
    enum outcome o = decode_until(d, n, v);
    if (o != FAILS || stopped(v) || x->counted || !segment || x->segment[segment].early)
        return o;
    x->segment[segment].early = true;
    return begin_segment(d, segment) ? FAILS : decode_until(d, n, v);
}

static int check_size(const struct video *v, const AVFrame *f)
{
    return v->most_pixels && (int64_t)f->width * f->height > v->most_pixels
               ? say_fail("%s: frames of %d x %d, larger than announced", v->path, f->width,
                          f->height)
               : 0;
}

/* ---- functions of video.h ------------------------------------------------------------------- */

static int count_all(struct decoder *d, const struct video *v)
{
    while (decode(d, d->segment < 0 ? 0 : d->next, v) == COMES)
        ;
    if (d->fails || stopped(v))
        return stopped(v) ? -1
                          : say_fail("%s: frame %lld does not decode", d->path, (long long)d->next);
    d->index.frames = d->next;
    d->segment = -1;
    return 0;
}

/* Marks the frames of the first segment that the decoder gives.  Returns how many are known. */
static int64_t mark_given(struct decoder *d, const struct video *v, bool *given)
{
    int64_t all = video_index_last_frame(&d->index, 0), n, last = -1;

    if (begin_segment(d, 0))
        return 0;
    while (decode_next(d, &n, v) == COMES) {
        given[n] = true;
        last = n;
    }
    d->segment = -1;
    return d->fails ? last + 1 : all; /* reading a frame reports a failure */
}

/* Hides the frames in the first segment of a cut file that the decoder holds back. */
static int hide_held_back(struct decoder *d, const struct video *v)
{
    struct video_index *x = &d->index;

    if (!d->cut || x->counted || !x->frames)
        return 0;
    bool *given = calloc((size_t)x->frames, sizeof *given);
    int64_t known = given ? mark_given(d, v, given) : 0;
    int rc = given && !video_index_keep(x, given, known)
                 ? -stopped(v)
                 : video_short(d->path, "the index of its frames");
    free(given);
    return rc;
}

static int64_t decoder_count(struct video *v)
{
    struct decoder *d = v->data;

    d->hw = v->hw;
    if (d->indexed)
        return d->index.frames;
    if (!make_index(d, v) && !hide_held_back(d, v) &&
        (!d->index.counted || !d->index.packets || !count_all(d, v)))
        return d->index.frames;
    video_index_free(&d->index);
    d->indexed = false;
    return -1;
}

static int decoder_frame(struct video *v, int64_t n, struct pixels *p)
{
    struct decoder *d = v->data;
    int64_t all = decoder_count(v);

    if (all < 0 || n >= all)
        return all < 0 ? -1 : 0;
    if (n != d->at) {
        d->at = -1;
        if (decode(d, n, v) != COMES)
            return stopped(v) ? -1
                              : say_fail("%s: frame %lld does not decode", d->path, (long long)n);
        int rc = check_size(v, d->frame) || orient(d) || to_rgb(d);
        av_frame_unref(d->frame);
        if (rc)
            return -1;
        d->at = n;
    }
    *p = orientation_apply(&d->oriented, d->rgb, d->width, d->height, d->line);
    return 1;
}

static void decoder_close(struct video *v)
{
    struct decoder *d = v->data;

    sws_freeContext(d->scale);
    av_frame_free(&d->frame);
    av_packet_free(&d->packet);
    avcodec_free_context(&d->codec);
    close_input(d);
    video_index_free(&d->index);
    free(d->rgb);
    free(d);
}

static const struct video_ops decoder_ops = {decoder_count, decoder_frame, decoder_close};

/* FFmpeg has separate demuxers for single pictures. */
static bool is_image(const char *demuxer)
{
    size_t n = strlen(demuxer);

    return !strcmp(demuxer, "image2") || (n > 5 && !strcmp(demuxer + n - 5, "_pipe"));
}

/* Reads packets until one after the first key frame is not a leading one.  Returns the number of
 * packets before it that have no frame, or -1 if memory is short. */
static int64_t read_start(struct decoder *d)
{
    const struct video_index *x = &d->index;
    int64_t key = -1, hidden = 0;
    int rc;

    while ((rc = index_packet(d)) > 0) {
        int64_t n = d->packets++;
        const struct video_packet *p = &x->packet[n];
        if (key < 0 && p->key)
            key = n;
        else if (key < 0 || p->pts < x->packet[key].pts)
            hidden += p->shown;
        else
            break;
    }
    return rc < 0 ? -1 : hidden;
}

/*
 * The number of frames that the file's own index announces; 0: unknown.  Only that of MP4 and
 * QuickTime knows which packets an edit list hides, as in files that were cut without decoding.
 * Other headers count packets, fields, or what was planned.
 */
static int64_t announced_of(struct decoder *d)
{
    int64_t n = 0;
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(59, 0, 100)
    if (!strstr(d->format->iformat->name, "mp4") || d->stream->nb_frames <= 0)
        return 0;
    int entries = avformat_index_get_entries_count(d->stream);
    for (int i = 0; i < entries; i++)
        n += !(avformat_index_get_entry(d->stream, i)->flags & AVINDEX_DISCARD_FRAME);
    int64_t hidden = n ? read_start(d) : 0;
    n = hidden < 0 || hidden > n || d->cut ? 0 : n - hidden;
#endif
    return n;
}

/* Decodes a photo for its orientation (EXIF), which is not in the parameters of the stream. */
static void orient_photo(struct video *v, struct decoder *d)
{
    if (d->kind->id != AV_CODEC_ID_MJPEG || make_index(d, v) || !d->index.frames ||
        decode(d, 0, v) != COMES)
        return;
    if (!orient(d))
        d->shown = d->oriented;
    av_frame_unref(d->frame);
    avcodec_free_context(&d->codec); /* the caller may want another device */
    d->segment = -1;
}

static int describe(struct video *v, struct decoder *d)
{
    if (read_matrix(d, matrix_of(d->stream), &d->shown))
        return -1;
    v->image = is_image(d->format->iformat->name);
    if (v->image)
        orient_photo(v, d);

    const AVCodecParameters *p = d->stream->codecpar;
    const AVRational rate = d->stream->avg_frame_rate;
    v->width = d->shown.transposed ? p->height : p->width;
    v->height = d->shown.transposed ? p->width : p->height;
    v->announced = v->image ? 1 : announced_of(d);
    v->fps = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0;
    return v->width > 0 && v->height > 0 ? 0 : say_fail("%s: frames without a size", v->path);
}

int video_open_decoder(struct video *v)
{
    struct decoder *d = calloc(1, sizeof *d);

    av_log_set_level(AV_LOG_QUIET); /* this program reports errors itself, once */
    if (!d)
        return video_short(v->path, "the decoder");
    v->data = d;
    v->ops = &decoder_ops;
    d->path = v->path;
    d->file = &v->file;
    d->at = d->segment = -1;
    d->packet = av_packet_alloc();
    d->frame = av_frame_alloc();
    if (!d->packet || !d->frame)
        return video_short(v->path, "the decoder");
    return open_input(d) ? -1 : describe(v, d);
}

#else

int video_open_decoder(struct video *v)
{
    return say_fail("%s: built without FFmpeg, this program reads raw clips only; install "
                    "libavformat, libavcodec and libswscale, or see examples/data/README",
                    v->path);
}

#endif
