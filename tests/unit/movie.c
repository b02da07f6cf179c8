/* SPDX-License-Identifier: Apache-2.0 */
/* Writes small video files of many kinds: see movie.h. */
#include "movie.h"
#include <stdio.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>

struct writer {
    AVFormatContext *format;
    AVCodecContext *codec;
    AVStream *stream;
    AVFrame *frame;
    AVPacket *packet;
};

bool movie_can(const struct movie *m)
{
    return avcodec_find_encoder_by_name(m->codec) != NULL;
}

/* A moving pattern with noise. */
static void paint(AVFrame *f, const struct movie *m, int n)
{
    unsigned noise = (unsigned)(n + m->seed) * 2654435761u + 1;

    for (int plane = 0; plane < 3 && f->data[plane]; plane++) {
        int w = plane ? f->width / 2 : f->width, h = plane ? f->height / 2 : f->height;
        w = f->data[1] ? w : 3 * w;
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) {
                noise = noise * 1664525u + 1013904223u;
                int value = (x * 5 + n * 3) % 128 + (y * (plane + 2) + n) % 64;
                f->data[plane][y * f->linesize[plane] + x] = (uint8_t)(value + (noise >> 28));
            }
    }
}

static int put(struct writer *w, const AVFrame *frame)
{
    int rc = avcodec_send_frame(w->codec, frame);

    while (rc >= 0) {
        rc = avcodec_receive_packet(w->codec, w->packet);
        if (rc < 0)
            break;
        w->packet->duration = 1; /* else the last frame lasts no time, and is not shown */
        av_packet_rescale_ts(w->packet, w->codec->time_base, w->stream->time_base);
        w->packet->stream_index = w->stream->index;
        rc = av_interleaved_write_frame(w->format, w->packet);
    }
    return rc == AVERROR(EAGAIN) || rc == AVERROR_EOF ? 0 : rc;
}

static int start_codec(struct writer *w, const struct movie *m)
{
    const AVCodec *kind = avcodec_find_encoder_by_name(m->codec);
    AVCodecContext *c = w->codec = avcodec_alloc_context3(kind);
    AVDictionary *options = NULL;

    if (!c)
        return -1;
    c->width = m->width;
    c->height = m->height;
    c->pix_fmt = kind->pix_fmts ? kind->pix_fmts[0] : AV_PIX_FMT_YUV420P;
    c->time_base = (AVRational){1, 600};
    c->framerate = (AVRational){25, 1};
    if (!m->uneven)
        c->time_base = (AVRational){1, 25};
    c->gop_size = m->group;
    c->max_b_frames = m->between;
    c->thread_count = 1;
    c->bit_rate = 400000;
    if (!m->open)
        c->flags |= AV_CODEC_FLAG_CLOSED_GOP;
    if (w->format->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    if (m->options)
        av_dict_parse_string(&options, m->options, "=", ":", 0);
    int rc = avcodec_open2(c, kind, &options);
    av_dict_free(&options);
    return rc;
}

/* Sets what players do to the picture. */
static int turn(struct writer *w, const struct movie *m)
{
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
    AVCodecParameters *p = w->stream->codecpar;
    AVPacketSideData *side =
        av_packet_side_data_new(&p->coded_side_data, &p->nb_coded_side_data,
                                AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof(int32_t), 0);
    int32_t *matrix = side ? (int32_t *)(void *)side->data : NULL;
#else
    int32_t *matrix =
        (void *)av_stream_new_side_data(w->stream, AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof *matrix);
#endif
    if (matrix)
        av_display_rotation_set(matrix, m->turned);
    if (matrix && m->mirrored)
        av_display_matrix_flip(matrix, true, false);
    return matrix ? 0 : -1;
}

static int start(struct writer *w, const struct movie *m, const char *path)
{
    av_log_set_level(AV_LOG_QUIET);
    w->packet = av_packet_alloc();
    w->frame = av_frame_alloc();
    if (avformat_alloc_output_context2(&w->format, NULL, NULL, path) < 0 || start_codec(w, m) < 0)
        return -1;
    w->stream = avformat_new_stream(w->format, NULL);
    if (!w->stream || avcodec_parameters_from_context(w->stream->codecpar, w->codec) < 0)
        return -1;
    w->stream->time_base = w->codec->time_base;
    if ((m->turned || m->mirrored) && turn(w, m))
        return -1;
    w->frame->format = w->codec->pix_fmt;
    w->frame->width = m->width;
    w->frame->height = m->height;
    return av_frame_get_buffer(w->frame, 0) < 0 ||
                   avio_open(&w->format->pb, path, AVIO_FLAG_WRITE) < 0 ||
                   avformat_write_header(w->format, NULL) < 0
               ? -1
               : 0;
}

int movie_write(const struct movie *m, const char *folder)
{
    struct writer w = {NULL};
    char path[512];
    int64_t time = -m->before;

    snprintf(path, sizeof path, "%s/%s", folder, m->name);
    int rc = start(&w, m, path);
    for (int n = 0; n < m->frames && !rc; n++) {
        rc = av_frame_make_writable(w.frame);
        paint(w.frame, m, n);
        w.frame->pts = time;
        time += m->uneven ? 13 + n * n % 29 : 1;
        rc = rc ? rc : put(&w, w.frame);
    }
    if (!rc)
        rc = put(&w, NULL) || av_write_trailer(w.format);
    if (w.format)
        avio_closep(&w.format->pb);
    avformat_free_context(w.format);
    avcodec_free_context(&w.codec);
    av_frame_free(&w.frame);
    av_packet_free(&w.packet);
    return rc ? -1 : 0;
}
