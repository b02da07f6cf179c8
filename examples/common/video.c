/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a video file with FFmpeg's libraries, every frame brought to one size as 8-bit RGB. */
#include "clip.h"
#include "memory.h"
#include "say.h"

#ifdef HAVE_FFMPEG

#include <stdlib.h>
#include <string.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>

struct decoder {
    AVFormatContext *format;
    AVCodecContext *codec;
    struct SwsContext *scale;
    AVPacket *packet;
    AVFrame *frame;
    int stream;
    int64_t seen, taken;
    uint8_t *scaled; /* a frame that is still to be cut */
    size_t room;
};

static int open_codec(struct decoder *d, const char *path)
{
    const AVCodec *codec = NULL;

    d->stream = av_find_best_stream(d->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (d->stream < 0 || !codec)
        return say_fail("%s: holds no video that can be decoded here", path);
    d->codec = avcodec_alloc_context3(codec);
    d->packet = av_packet_alloc();
    d->frame = av_frame_alloc();
    if (!d->codec || !d->packet || !d->frame)
        return say_fail("%s: no memory for the decoder", path);
    if (avcodec_parameters_to_context(d->codec, d->format->streams[d->stream]->codecpar) < 0 ||
        avcodec_open2(d->codec, codec, NULL) < 0)
        return say_fail("%s: the %s decoder does not start", path, codec->name);
    return 0;
}

static int open_file(struct decoder *d, const char *path)
{
    char url[4096 + 8];

    snprintf(url, sizeof url, "file:%s", path); /* "a:b" would be a protocol a */
    int rc = avformat_open_input(&d->format, url, NULL, NULL);
    if (rc < 0)
        return say_fail("%s: cannot be read as a video: %s", path, av_err2str(rc));
    if (avformat_find_stream_info(d->format, NULL) < 0)
        return say_fail("%s: its streams cannot be read", path);
    return open_codec(d, path);
}

static int scale_frame(struct decoder *d, const struct clip_part *p, const char *path)
{
    size_t bytes = (size_t)(p->width * p->height * 3);
    int line[] = {(int)p->width * 3};
    AVFrame *f = d->frame;

    if (bytes > d->room) {
        free(d->scaled);
        d->scaled = malloc(bytes);
        d->room = d->scaled ? bytes : 0;
    }
    if (!d->scaled)
        return say_fail("%s: no memory for a frame", path);
    d->scale = sws_getCachedContext(d->scale, f->width, f->height, f->format, (int)p->width,
                                    (int)p->height, AV_PIX_FMT_RGB24,
                                    SWS_AREA | SWS_ACCURATE_RND | SWS_BITEXACT, NULL, NULL, NULL);
    if (!d->scale)
        return say_fail("%s: its pixel format cannot be converted to RGB", path);
    sws_scale(d->scale, (const uint8_t *const *)f->data, f->linesize, 0, f->height, &d->scaled,
              line);
    return 0;
}

static int take_frame(struct decoder *d, struct clip *c, const char *path)
{
    struct clip_part p = clip_part_of(c, d->frame->width, d->frame->height);
    uint8_t *to = c->rgb + d->taken * c->width * c->height * 3;

    if (scale_frame(d, &p, path))
        return -1;
    for (int64_t row = 0; row < c->height; row++)
        memcpy(to + row * c->width * 3, d->scaled + ((p.top + row) * p.width + p.left) * 3,
               (size_t)c->width * 3);
    d->taken++;
    return 0;
}

/* Takes all frames that are ready, until there are enough. */
static int receive(struct decoder *d, struct clip *c, const char *path)
{
    int rc = 0;

    while (d->taken < c->frames && !(rc = avcodec_receive_frame(d->codec, d->frame))) {
        int64_t at = d->seen++ - c->skip;
        if (at >= 0 && at % c->stride == 0 && take_frame(d, c, path))
            return -1;
        av_frame_unref(d->frame);
    }
    if (rc == AVERROR(EAGAIN) || rc == AVERROR_EOF || rc == 0)
        return 0;
    return say_fail("%s: frame %lld does not decode", path, (long long)d->seen);
}

static int decode(struct decoder *d, struct clip *c, const char *path)
{
    while (d->taken < c->frames && av_read_frame(d->format, d->packet) >= 0) {
        int ours = d->packet->stream_index == d->stream;
        int rc = ours ? avcodec_send_packet(d->codec, d->packet) : 0;
        av_packet_unref(d->packet);
        if (rc < 0)
            return say_fail("%s: frame %lld does not decode", path, (long long)d->seen);
        if (ours && receive(d, c, path))
            return -1;
    }
    if (d->taken < c->frames && (avcodec_send_packet(d->codec, NULL) || receive(d, c, path)))
        return -1;
    return d->taken < c->frames ? clip_too_short(c, path, d->seen) : 0;
}

int clip_decode(struct clip *c, const char *path)
{
    struct decoder d = {0};
    int rc = -1;

    av_log_set_level(AV_LOG_QUIET); /* what is wrong is said once, by us */
    c->rgb = MEMORY_FOR(3, c->frames, c->width, c->height);
    if (!c->rgb)
        say_fail("%s: no memory for %lld frames", path, (long long)c->frames);
    else if (!open_file(&d, path))
        rc = decode(&d, c, path);
    if (!rc)
        c->fps = av_q2d(d.format->streams[d.stream]->avg_frame_rate);
    sws_freeContext(d.scale);
    free(d.scaled);
    av_frame_free(&d.frame);
    av_packet_free(&d.packet);
    avcodec_free_context(&d.codec);
    avformat_close_input(&d.format);
    return rc;
}

#else

int clip_decode(struct clip *c, const char *path)
{
    (void)c;
    return say_fail("%s: built without FFmpeg, this program reads raw clips only; install "
                    "libavformat, libavcodec and libswscale, or see examples/data/README",
                    path);
}

#endif
