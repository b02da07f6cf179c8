/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from and to video files, by FFmpeg's libraries; see frames.h. */
#include "ckpt_tools.h"
#include "frames.h"
#include "say.h"

#ifdef HAVE_FFMPEG

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

/* A file on its way in or out. */
struct video {
    AVFormatContext *format;
    AVCodecContext *codec;
    AVStream *stream;
    struct SwsContext *scale;
    AVPacket *packet;
    AVFrame *frame;
    int flushing; /* the last packet has gone to the decoder */
};

static struct video *video_new(void)
{
    struct video *v = calloc(1, sizeof *v);

    av_log_set_level(AV_LOG_QUIET); /* what is wrong is said once, by us */
    if (!v)
        return NULL;
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    return v;
}

static void video_free(struct video *v)
{
    sws_freeContext(v->scale);
    av_frame_free(&v->frame);
    av_packet_free(&v->packet);
    avcodec_free_context(&v->codec);
    free(v);
}

/* FFmpeg takes "a:b" for a protocol a; a file is meant. */
static void video_url(char *dst, size_t size, const char *path)
{
    snprintf(dst, size, "file:%s", path);
}

/* ---- reading ------------------------------------------------------------------------------- */

static int send_packet(struct frames *f, struct video *v)
{
    int rc;

    do {
        av_packet_unref(v->packet);
        rc = av_read_frame(v->format, v->packet);
    } while (rc >= 0 && v->packet->stream_index != v->stream->index);
    v->flushing = rc < 0; /* the end, or what a broken file has for one */
    rc = avcodec_send_packet(v->codec, v->flushing ? NULL : v->packet);
    av_packet_unref(v->packet);
    return rc < 0 && rc != AVERROR_EOF
               ? say_fail("%s: frame %lld does not decode", f->path, (long long)f->taken)
               : 0;
}

static int to_rgb(struct frames *f, struct video *v, uint8_t *rgb)
{
    int line[] = {(int)f->width * 3}, w = (int)f->width, h = (int)f->height;
    uint8_t *to[] = {rgb};

    v->scale = sws_getCachedContext(v->scale, v->frame->width, v->frame->height, v->frame->format,
                                    w, h, AV_PIX_FMT_RGB24,
                                    SWS_AREA | SWS_ACCURATE_RND | SWS_BITEXACT, NULL, NULL, NULL);
    if (!v->scale)
        return say_fail("%s: its pixel format cannot be converted to RGB", f->path);
    sws_scale(v->scale, (const uint8_t *const *)v->frame->data, v->frame->linesize, 0,
              v->frame->height, to, line);
    av_frame_unref(v->frame);
    return 1;
}

static int video_next(struct frames *f, uint8_t *rgb)
{
    struct video *v = f->data;

    for (;;) {
        int rc = avcodec_receive_frame(v->codec, v->frame);
        if (rc >= 0)
            return to_rgb(f, v, rgb);
        if (rc == AVERROR_EOF || v->flushing)
            return 0;
        if (rc != AVERROR(EAGAIN))
            return say_fail("%s: frame %lld does not decode", f->path, (long long)f->taken);
        if (send_packet(f, v))
            return -1;
    }
}

static void video_close(struct frames *f)
{
    struct video *v = f->data;

    avformat_close_input(&v->format);
    video_free(v);
}

static const struct frames_ops video_ops = {video_next, video_close};

static int start_decoder(struct frames *f, struct video *v)
{
    const AVCodec *codec = NULL;
    char url[4096 + 8];
    int rc, stream;

    video_url(url, sizeof url, f->path);
    rc = avformat_open_input(&v->format, url, NULL, NULL);
    if (rc < 0)
        return say_fail("%s: cannot be read as a video: %s", f->path, av_err2str(rc));
    if (avformat_find_stream_info(v->format, NULL) < 0)
        return say_fail("%s: its streams cannot be read", f->path);
    stream = av_find_best_stream(v->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (stream < 0 || !codec)
        return say_fail("%s: holds no video that can be decoded here", f->path);
    v->stream = v->format->streams[stream];
    v->codec = avcodec_alloc_context3(codec);
    if (!v->codec || avcodec_parameters_to_context(v->codec, v->stream->codecpar) < 0 ||
        avcodec_open2(v->codec, codec, NULL) < 0)
        return say_fail("%s: the %s decoder does not start", f->path, codec->name);
    f->width = v->codec->width;
    f->height = v->codec->height;
    f->announced = v->stream->nb_frames;
    f->fps = av_q2d(v->stream->avg_frame_rate);
    return f->width > 0 && f->height > 0 ? 0 : say_fail("%s: frames of no size", f->path);
}

int frames_open_video(struct frames *f)
{
    struct video *v = video_new();

    if (!v || !v->packet || !v->frame)
        return say_fail("%s: no memory for the decoder", f->path);
    f->data = v;
    f->ops = &video_ops;
    if (!start_decoder(f, v))
        return 0;
    frames_close(f);
    return -1;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Hands a frame (NULL: the end) to the encoder and writes what it has ready. */
static int encode(struct sink *s, struct video *v, const AVFrame *frame)
{
    int rc = avcodec_send_frame(v->codec, frame);

    while (rc >= 0) {
        rc = avcodec_receive_packet(v->codec, v->packet);
        if (rc < 0)
            break;
        av_packet_rescale_ts(v->packet, v->codec->time_base, v->stream->time_base);
        v->packet->stream_index = v->stream->index;
        rc = av_interleaved_write_frame(v->format, v->packet);
    }
    if (rc == AVERROR(EAGAIN) || rc == AVERROR_EOF)
        return 0;
    return say_fail("%s: frame %lld cannot be written: %s", s->path, (long long)s->taken,
                    av_err2str(rc));
}

static int video_put(struct sink *s, const uint8_t *rgb)
{
    struct video *v = s->data;
    int line[] = {(int)s->width * 3};

    if (av_frame_make_writable(v->frame) < 0)
        return say_fail("%s: no memory for a frame", s->path);
    sws_scale(v->scale, &rgb, line, 0, (int)s->height, v->frame->data, v->frame->linesize);
    v->frame->pts = s->taken;
    return encode(s, v, v->frame);
}

static int video_finish(struct sink *s)
{
    struct video *v = s->data;

    if (encode(s, v, NULL))
        return -1;
    int rc = av_write_trailer(v->format);
    avio_flush(v->format->pb);
    rc = rc < 0 ? rc : v->format->pb->error;
    int closed = avio_closep(&v->format->pb);
    rc = rc < 0 ? rc : closed;
    return rc < 0 ? say_fail("%s: cannot be finished: %s", s->path, av_err2str(rc))
                  : sink_commit(s);
}

static void video_sink_close(struct sink *s)
{
    struct video *v = s->data;

    if (v->format && v->format->pb)
        avio_closep(&v->format->pb);
    avformat_free_context(v->format);
    video_free(v);
}

static const struct sink_ops video_sink_ops = {video_put, video_finish, video_sink_close};

/* Good pictures: what the autoencoder lost should show, not what the encoder did. */
static int start_encoder(struct sink *s, struct video *v, const AVCodec *codec)
{
    AVCodecContext *c = v->codec = avcodec_alloc_context3(codec);

    if (!c)
        return say_fail("%s: no memory for the encoder", s->path);
    c->width = (int)s->width;
    c->height = (int)s->height;
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->framerate = av_d2q(s->fps, 65535);
    c->time_base = av_inv_q(c->framerate);
    c->bit_rate = s->width * s->height * 12;
    if (v->format->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    av_opt_set(c->priv_data, "crf", "16", 0); /* of an encoder that knows it */
    if (avcodec_open2(c, codec, NULL) < 0)
        return say_fail("%s: the %s encoder does not start on %d x %d", s->path, codec->name,
                        c->width, c->height);
    return 0;
}

static int start_frame(struct sink *s, struct video *v)
{
    v->frame->format = v->codec->pix_fmt;
    v->frame->width = v->codec->width;
    v->frame->height = v->codec->height;
    v->scale = sws_getContext((int)s->width, (int)s->height, AV_PIX_FMT_RGB24, v->codec->width,
                              v->codec->height, v->codec->pix_fmt, SWS_BICUBIC | SWS_BITEXACT, NULL,
                              NULL, NULL);
    if (!v->scale || av_frame_get_buffer(v->frame, 0) < 0)
        return say_fail("%s: no memory for a frame", s->path);
    return 0;
}

static int start_file(struct sink *s, struct video *v)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_H264);
    int rc = avformat_alloc_output_context2(&v->format, NULL, NULL, s->path);
    char url[4096 + 8];

    if (rc < 0)
        return say_fail("%s: no video file ends so; give .mp4, .rgb or a directory", s->path);
    if (v->format->oformat->video_codec == AV_CODEC_ID_WRAPPED_AVFRAME) /* .y4m: as they are */
        codec = avcodec_find_encoder(AV_CODEC_ID_WRAPPED_AVFRAME);
    if (!codec)
        codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
    if (!codec)
        return say_fail("%s: FFmpeg has no encoder here; write .rgb or a directory", s->path);
    if (s->width % 2 || s->height % 2)
        return say_fail("%s: a video has even sizes, this one is %lld x %lld; write .rgb or a "
                        "directory",
                        s->path, (long long)s->width, (long long)s->height);
    if (start_encoder(s, v, codec) || start_frame(s, v))
        return -1;
    v->stream = avformat_new_stream(v->format, NULL);
    if (!v->stream || avcodec_parameters_from_context(v->stream->codecpar, v->codec) < 0)
        return say_fail("%s: no memory for a stream", s->path);
    v->stream->time_base = v->codec->time_base;
    v->stream->avg_frame_rate = v->codec->framerate;
    if (ckpt_replace_open(&s->file, s->path))
        return say_fail("%s", ckpt_error(NULL));
    video_url(url, sizeof url, ckpt_replace_name(s->file));
    rc = avio_open(&v->format->pb, url, AVIO_FLAG_WRITE);
    if (rc >= 0)
        rc = avformat_write_header(v->format, NULL);
    return rc < 0 ? say_fail("%s: %s", s->path, av_err2str(rc)) : 0;
}

int sink_open_video(struct sink *s)
{
    struct video *v = video_new();

    if (!v || !v->packet || !v->frame)
        return say_fail("%s: no memory for the encoder", s->path);
    s->data = v;
    s->ops = &video_sink_ops;
    if (!start_file(s, v))
        return 0;
    sink_close(s);
    return -1;
}

#else

int frames_open_video(struct frames *f)
{
    return say_fail("%s: built without FFmpeg, this program reads raw clips only; install "
                    "libavformat, libavcodec and libswscale, or see examples/data/README",
                    f->path);
}

int sink_open_video(struct sink *s)
{
    return say_fail("%s: built without FFmpeg, this program writes .rgb and directories of "
                    "pictures only",
                    s->path);
}

#endif
