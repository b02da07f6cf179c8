/* SPDX-License-Identifier: Apache-2.0 */
/* Writes frames to video files with FFmpeg's libraries; see sink.h. */
#include "ckpt_tools.h"
#include "say.h"
#include "sink.h"

#ifdef HAVE_FFMPEG

#include <stdlib.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>

/* A file being written. */
struct video {
    AVFormatContext *format;
    AVCodecContext *codec;
    AVStream *stream;
    struct SwsContext *scale;
    AVPacket *packet;
    AVFrame *frame;
};

static void video_free(struct video *v)
{
    sws_freeContext(v->scale);
    av_frame_free(&v->frame);
    av_packet_free(&v->packet);
    avcodec_free_context(&v->codec);
    free(v);
}

static struct video *video_new(void)
{
    struct video *v = calloc(1, sizeof *v);

    av_log_set_level(AV_LOG_QUIET); /* this program reports errors itself, once */
    if (!v)
        return NULL;
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    if (v->packet && v->frame)
        return v;
    video_free(v);
    return NULL;
}

/* FFmpeg would read "a:b" as protocol a; the prefix makes it a file name. */
static void video_url(char *dst, size_t size, const char *path)
{
    snprintf(dst, size, "file:%s", path);
}

/* Sends a frame (NULL: end of stream) to the encoder and writes the packets that are ready. */
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

/* High quality, so that visible losses come from the autoencoder, not from this encoder. */
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
    av_opt_set(c->priv_data, "crf", "16", 0); /* ignored by encoders without this option */
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
        return say_fail("%s: no video format has this ending; give .mp4, .rgb or a directory",
                        s->path);
    if (v->format->oformat->video_codec == AV_CODEC_ID_WRAPPED_AVFRAME) /* .y4m: uncompressed */
        codec = avcodec_find_encoder(AV_CODEC_ID_WRAPPED_AVFRAME);
    if (!codec)
        codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
    if (!codec)
        return say_fail("%s: FFmpeg has no encoder here; write .rgb or a directory", s->path);
    if (s->width % 2 || s->height % 2)
        return say_fail("%s: width and height of a video must be even, not %lld x %lld; write .rgb "
                        "or a directory",
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
    return rc < 0 ? say_fail("%s: the format of this ending takes no such video (%s); give .mp4, "
                             ".rgb or a directory",
                             s->path, av_err2str(rc))
                  : 0;
}

int sink_open_video(struct sink *s)
{
    struct video *v = video_new();

    if (!v)
        return say_fail("%s: no memory for the encoder", s->path);
    s->data = v;
    s->ops = &video_sink_ops;
    if (!start_file(s, v))
        return 0;
    sink_close(s);
    return -1;
}

#else

int sink_open_video(struct sink *s)
{
    return say_fail("%s: built without FFmpeg, this program writes .rgb and directories of "
                    "pictures only",
                    s->path);
}

#endif
