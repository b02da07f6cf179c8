/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware decoders with FFmpeg's libraries: see video_hw.h. */
#include "video_hw.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "say.h"

#ifdef HAVE_FFMPEG

#include <libavcodec/avcodec.h>
#include <libavutil/hwcontext.h>
#include <libavutil/log.h>

struct video_hw {
    enum AVHWDeviceType type;
    AVBufferRef *device;
};

/* name is "NAME" or "NAME:DEVICE".  AV_HWDEVICE_TYPE_NONE: FFmpeg does not know it. */
static enum AVHWDeviceType type_of(const char *name)
{
    char text[32];

    snprintf(text, sizeof text, "%.*s", (int)strcspn(name, ":"), name);
    return av_hwdevice_find_type_by_name(text);
}

static const char *device_of(const char *name)
{
    const char *colon = strchr(name, ':');

    return colon && colon[1] ? colon + 1 : NULL;
}

int video_hw_check(const char *name)
{
    enum AVHWDeviceType type = AV_HWDEVICE_TYPE_NONE;
    char known[256] = "";

    if (type_of(name) != AV_HWDEVICE_TYPE_NONE)
        return 0;
    while ((type = av_hwdevice_iterate_types(type)) != AV_HWDEVICE_TYPE_NONE) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, " %s", av_hwdevice_get_type_name(type));
    }
    return say_fail("--hwaccel %s: FFmpeg has no such decoders here; it knows%s", name,
                    *known ? known : " none");
}

int video_hw_open(struct video_hw **out, const char *name)
{
    struct video_hw *hw = *out = calloc(1, sizeof *hw);
    AVDictionary *options = NULL;

    if (!hw)
        return say_fail("no memory for --hwaccel");
    if (video_hw_check(name))
        return -1;
    hw->type = type_of(name);
    av_log_set_level(AV_LOG_QUIET);
    if (hw->type == AV_HWDEVICE_TYPE_CUDA)            /* share the library's context: another */
        av_dict_set(&options, "primary_ctx", "1", 0); /* would use hundreds of MiB of GPU memory */
    int rc = av_hwdevice_ctx_create(&hw->device, hw->type, device_of(name), options, 0);
    av_dict_free(&options);
    return rc < 0 ? say_fail("--hwaccel %s: there is no such device here, or its driver does not "
                             "start",
                             name)
                  : 0;
}

void video_hw_close(struct video_hw *hw)
{
    if (!hw)
        return;
    av_buffer_unref(&hw->device);
    free(hw);
}

/* Selects the first format of the device or of the CPU: FFmpeg lists the best first. */
static enum AVPixelFormat choose(struct AVCodecContext *codec, const enum AVPixelFormat *list)
{
    const struct video_hw *hw = codec->opaque;
    const AVCodecHWConfig *c;

    for (int i = 0; (c = avcodec_get_hw_config(codec->codec, i)); i++) {
        if (c->device_type != hw->type || !(c->methods & AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX))
            continue;
        for (const enum AVPixelFormat *f = list; *f != AV_PIX_FMT_NONE; f++)
            if (*f == c->pix_fmt)
                return *f;
    }
    return avcodec_default_get_format(codec, list);
}

int video_hw_attach(const struct video_hw *hw, struct AVCodecContext *codec)
{
    codec->hw_device_ctx = av_buffer_ref(hw->device);
    codec->opaque = (void *)(uintptr_t)hw;
    codec->get_format = choose;
    return codec->hw_device_ctx ? 0 : -1;
}

int video_hw_fetch(AVFrame *frame)
{
    AVFrame *host = frame->hw_frames_ctx ? av_frame_alloc() : NULL;

    if (!frame->hw_frames_ctx)
        return 0;
    int rc = host ? av_hwframe_transfer_data(host, frame, 0) : AVERROR(ENOMEM);
    if (rc >= 0)
        rc = av_frame_copy_props(host, frame);
    if (rc >= 0) {
        av_frame_unref(frame);
        av_frame_move_ref(frame, host);
    }
    av_frame_free(&host);
    return rc < 0 ? rc : 0;
}

#else

static int refuse(const char *name)
{
    return say_fail("--hwaccel %s: built without FFmpeg, this program decodes nothing", name);
}

int video_hw_check(const char *name)
{
    return refuse(name);
}

int video_hw_open(struct video_hw **hw, const char *name)
{
    *hw = NULL;
    return refuse(name);
}

void video_hw_close(struct video_hw *hw)
{
    (void)hw;
}

#endif
