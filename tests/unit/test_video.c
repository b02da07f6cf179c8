/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of video files by number: from any position the same bits as decoding from the start, in
 * files of many kinds; and the readable frames of a damaged file do not depend on the access order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libswscale/swscale.h>
#include "../../examples/common/say.h"
#include "../../examples/common/video.h"
#include "../../examples/common/video_index.h"
#include "movie.h"

enum { WIDTH = 64, HEIGHT = 48, BYTES = WIDTH * HEIGHT * 3, MOST = 64 };

/* Messages are ignored here. */
int say_fail(const char *fmt, ...)
{
    (void)fmt;
    return -1;
}

static char folder[64];
static uint8_t plain[MOST][BYTES];

static const struct movie kinds[] = {
    {"closed.mp4", "libx264", WIDTH, HEIGHT, 40, 8, 2, false, false, NULL, 0, 0, false, 0},
    {"pyramid.mkv", "libx264", WIDTH, HEIGHT, 40, 12, 3, false, true, "b-pyramid=normal", 1, 0,
     false, 0},
    {"open.mp4", "libx264", WIDTH, HEIGHT, 40, 8, 2, true, false, "x264-params=open-gop=1", 2, 0,
     false, 0},
    {"open.ts", "libx264", WIDTH, HEIGHT, 40, 8, 2, true, false, "x264-params=open-gop=1", 3, 0,
     false, 0},
    {"refresh.mkv", "libx264", WIDTH, HEIGHT, 40, 10, 0, false, false, "intra-refresh=1", 4, 0,
     false, 0},
    {"none.mp4", "libx264", WIDTH, HEIGHT, 40, 7, 0, false, true, NULL, 5, 0, false, 0},
    {"one.mp4", "libx264", WIDTH, HEIGHT, 1, 7, 2, false, false, NULL, 6, 0, false, 0},
    {"part4.mp4", "mpeg4", WIDTH, HEIGHT, 40, 9, 2, true, false, NULL, 7, 0, false, 0},
    {"part4.avi", "mpeg4", WIDTH, HEIGHT, 40, 9, 2, true, false, NULL, 8, 0, false, 0},
    {"part4.mov", "mpeg4", WIDTH, HEIGHT, 40, 9, 3, false, false, "sc_threshold=1000000000", 9, 0,
     false, 0},
    {"part2.ts", "mpeg2video", WIDTH, HEIGHT, 40, 9, 2, true, false, NULL, 10, 0, false, 0},
    {"vp8.webm", "libvpx", WIDTH, HEIGHT, 40, 9, 0, false, false,
     "auto-alt-ref=1:lag-in-frames=8:deadline=realtime", 11, 0, false, 0},
    {"vp9.webm", "libvpx-vp9", WIDTH, HEIGHT, 30, 9, 0, false, false,
     "auto-alt-ref=1:lag-in-frames=8:deadline=realtime:cpu-used=8", 12, 0, false, 0},
    {"one.png", "png", WIDTH, HEIGHT, 1, 1, 0, false, false, NULL, 13, 0, false, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *path_of(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_video_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* ---- by decoding from the start ------------------------------------------------------------ */

static void keep(const AVFrame *f, int n)
{
    struct SwsContext *s = sws_getContext(f->width, f->height, f->format, f->width, f->height,
                                          AV_PIX_FMT_RGB24, SWS_BILINEAR, NULL, NULL, NULL);
    uint8_t rgb[BYTES + 64], *to[] = {rgb};
    int line[] = {WIDTH * 3};

    assert_true(n < MOST);
    sws_scale(s, (const uint8_t *const *)f->data, f->linesize, 0, f->height, to, line);
    memcpy(plain[n], rgb, BYTES);
    sws_freeContext(s);
}

static int take(AVCodecContext *c, AVFrame *f, int n)
{
    while (avcodec_receive_frame(c, f) >= 0)
        keep(f, n++);
    return n;
}

/* Decodes all frames into plain; returns how many. */
static int decode_all(const char *path)
{
    AVFormatContext *format = NULL;
    const AVCodec *kind;
    AVPacket *p = av_packet_alloc();
    AVFrame *f = av_frame_alloc();
    int n = 0;

    assert_true(avformat_open_input(&format, path, NULL, NULL) >= 0);
    assert_true(avformat_find_stream_info(format, NULL) >= 0);
    int stream = av_find_best_stream(format, AVMEDIA_TYPE_VIDEO, -1, -1, &kind, 0);
    AVCodecContext *c = avcodec_alloc_context3(kind);
    avcodec_parameters_to_context(c, format->streams[stream]->codecpar);
    assert_true(avcodec_open2(c, kind, NULL) >= 0);
    while (av_read_frame(format, p) >= 0) {
        avcodec_send_packet(c, p);
        av_packet_unref(p);
        n = take(c, f, n);
    }
    avcodec_send_packet(c, NULL);
    n = take(c, f, n);
    avcodec_free_context(&c);
    avformat_close_input(&format);
    av_packet_free(&p);
    av_frame_free(&f);
    return n;
}

/* ---- whole files ---------------------------------------------------------------------------- */

static int read_frame(struct video *v, int64_t n, uint8_t *rgb)
{
    const struct picture_size size = {WIDTH, HEIGHT, true};

    return video_read(v, n, &size, rgb);
}

static void check_frame(struct video *v, int64_t n, const char *name)
{
    uint8_t rgb[BYTES];

    if (read_frame(v, n, rgb) != 1 || memcmp(rgb, plain[n], BYTES))
        fail_msg("%s: frame %d is another than by decoding from the start", name, (int)n);
}

static void check_kind(const struct movie *m)
{
    const char *path = path_of(m->name);
    uint8_t rgb[BYTES];
    struct video v;
    int n = decode_all(path);

    if (n != m->frames)
        fail_msg("%s: %d frames by decoding from the start", m->name, n);
    assert_int_equal(video_open(&v, path), 0);
    assert_int_equal(v.image, !strcmp(m->codec, "png"));
    if (video_frames(&v) != n)
        fail_msg("%s: %d frames", m->name, (int)video_frames(&v));
    for (int i = 0; i < n; i++)
        check_frame(&v, i, m->name);
    assert_int_equal(read_frame(&v, n, rgb), 0);
    for (int i = 0; i < 40; i++)
        check_frame(&v, i * 29 % 37 % n, m->name);
    video_close(&v);
    for (int i = n - 1; i >= 0; i -= 5) { /* the first one that is read of a file */
        assert_int_equal(video_open(&v, path), 0);
        check_frame(&v, i, m->name);
        video_close(&v);
    }
}

static void test_kinds(void **state)
{
    int checked = 0;

    (void)state;
    for (int i = 0; i < KINDS; i++) {
        if (!movie_can(&kinds[i]))
            continue;
        if (movie_write(&kinds[i], folder))
            fail_msg("%s cannot be written", kinds[i].name);
        check_kind(&kinds[i]);
        checked++;
    }
    print_message("%d of %d kinds of files\n", checked, KINDS);
    assert_true(checked >= 4);
}

/* ---- damaged files ------------------------------------------------------------------------- */

/* Copies a file with some bytes changed, from a position in it on. */
static void damage(const char *name, const char *to, double place, double part, double length)
{
    static uint8_t data[1 << 20];
    FILE *f = fopen(path_of(name), "rb");
    size_t n = fread(data, 1, sizeof data, f);

    fclose(f);
    for (size_t i = 0; i < (size_t)(part * (double)n); i++)
        data[(size_t)(place * (double)n) + i] ^= (uint8_t)(i * 37 + 0x5a);
    f = fopen(path_of(to), "wb");
    fwrite(data, 1, (size_t)(length * (double)n), f);
    fclose(f);
}

/* In sequence, and each from a newly opened file. */
static void check_ways(const char *name, int frames, int *bad, int *right)
{
    uint8_t rgb[2][BYTES];
    struct video v, fresh;

    *bad = *right = 0;
    assert_int_equal(video_open(&v, path_of(name)), 0);
    int n = (int)video_frames(&v);
    for (int i = 0; i < n; i++) {
        int rc = read_frame(&v, i, rgb[0]);
        assert_int_equal(video_open(&fresh, path_of(name)), 0);
        if (rc != read_frame(&fresh, i, rgb[1]) || (rc == 1 && memcmp(rgb[0], rgb[1], BYTES)))
            fail_msg("%s: frame %d depends on the way to it", name, i);
        video_close(&fresh);
        *bad += rc < 0;
        *right += rc == 1 && i < frames && !memcmp(rgb[0], plain[i], BYTES);
    }
    video_close(&v);
}

static void test_damaged(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const struct movie *m = &kinds[i];
        bool by_segments = !strcmp(m->name, "closed.mp4") || !strcmp(m->name, "part4.mp4");
        int bad, right;
        if (!movie_can(m) || m->frames < 30 || !strcmp(m->name, "vp8.webm"))
            continue;
        int n = decode_all(path_of(m->name));
        damage(m->name, "bad", 0.4, 0.03, 1);
        check_ways("bad", n, &bad, &right);
        if (by_segments && (!bad || bad > 20 || right != n - bad))
            fail_msg("%s, damaged: %d bad frames, %d right ones", m->name, bad, right);
        damage(m->name, "short", 0, 0, 0.6);
        struct video v; /* some formats have their index at the end */
        if (!video_open(&v, path_of("short")))
            check_ways("short", n, &bad, &right);
        video_close(&v);
    }
}

/* Checks a file that players turn: the top left pixel comes from another corner. */
static void check_turned(struct movie *m, int quarters, bool mirrored)
{
    /* of the stored picture: top left, bottom left, bottom right, top right */
    static const int corner[] = {0, (HEIGHT - 1) * WIDTH, HEIGHT * WIDTH - 1, WIDTH - 1};
    static const int right[2][4] = {{1, -WIDTH, -1, WIDTH}, {-1, WIDTH, 1, -WIDTH}};
    int from = mirrored ? 3 - (4 - quarters) % 4 : quarters;
    uint8_t rgb[BYTES];
    struct video v;

    m->turned = 90 * quarters;
    m->mirrored = mirrored;
    assert_int_equal(movie_write(m, folder), 0);
    decode_all(path_of(m->name));
    assert_int_equal(video_open(&v, path_of(m->name)), 0);
    assert_int_equal(v.width, quarters & 1 ? HEIGHT : WIDTH);
    const struct picture_size size = {v.width, v.height, true};
    assert_int_equal(video_read(&v, 3, &size, rgb), 1);
    assert_memory_equal(rgb, plain[3] + 3 * corner[from], 3);
    assert_memory_equal(rgb + 3, plain[3] + 3 * (corner[from] + right[mirrored][quarters]), 3);
    video_close(&v);
}

static void test_turned(void **state)
{
    struct movie m = kinds[7];
    struct video v;

    (void)state;
    m.name = "turned.mp4";
    if (!movie_can(&m))
        skip();
    for (int i = 0; i < 8; i++)
        check_turned(&m, i % 4, i / 4);
    m.turned = 45; /* refused */
    assert_int_equal(movie_write(&m, folder), 0);
    assert_int_equal(video_open(&v, path_of(m.name)), -1);
    video_close(&v);
}

/* Frames that an edit list hides are not counted: neither by the header nor by reading. */
static void test_hidden(void **state)
{
    struct movie m = kinds[7];
    uint8_t rgb[BYTES];
    struct video v;

    (void)state;
    m.name = "hidden.mp4";
    m.before = 5;
    if (!movie_can(&m))
        skip();
    assert_int_equal(movie_write(&m, folder), 0);
    int n = decode_all(path_of(m.name));
    assert_int_equal(n, m.frames - m.before);
    assert_int_equal(video_open(&v, path_of(m.name)), 0);
    assert_true(v.announced == n || !v.announced); /* FFmpeg 4 does not say */
    assert_int_equal(video_frames(&v), n);
    for (int i = n - 1; i >= 0; i--)
        check_frame(&v, i, m.name);
    assert_int_equal(read_frame(&v, n, rgb), 0);
    video_close(&v);
}

static void test_stop(void **state)
{
    atomic_bool stop = true;
    struct video v;
    uint8_t rgb[BYTES];

    (void)state;
    if (!movie_can(&kinds[7]))
        skip();
    assert_int_equal(video_open(&v, path_of(kinds[7].name)), 0);
    v.stop = &stop;
    assert_int_equal(read_frame(&v, 30, rgb), -1);
    atomic_store(&stop, false);
    assert_int_equal(read_frame(&v, 30, rgb), 1);
    v.most_pixels = WIDTH * HEIGHT - 1;
    assert_int_equal(read_frame(&v, 31, rgb), -1);
    video_close(&v);
}

/* ---- the index ----------------------------------------------------------------------------- */

/* Packets by their times, keys in capitals: 'a' is time 0. */
static struct video_index index_of(const char *packets)
{
    struct video_index x = {.packet = NULL};

    for (const char *p = packets; *p; p++) {
        struct video_packet packet = {(*p | 32) - 'a', p - packets, !(*p & 32), true};
        assert_int_equal(video_index_add(&x, &packet), 0);
    }
    assert_int_equal(video_index_finish(&x, false), 0);
    return x;
}

static void test_index(void **state)
{
    (void)state;
    struct video_index x = index_of("AdbcEhfg"); /* closed */
    assert_int_equal(x.segments, 2);
    assert_int_equal(x.segment[1].key, 4);
    assert_int_equal(x.segment[1].frame, 4);
    assert_int_equal(video_index_last_packet(&x, 0), 4);
    assert_int_equal(x.delay, 1);
    video_index_free(&x);
    x = index_of("AdbcGefjhi"); /* open: e and f are shown before G */
    assert_int_equal(x.segments, 2);
    assert_int_equal(x.segment[1].frame, 6);
    assert_int_equal(video_index_last_packet(&x, 0), 7);
    assert_true(video_index_leads(&x, 1, 5) && video_index_leads(&x, 1, 6));
    assert_false(video_index_leads(&x, 1, 7) || video_index_leads(&x, 1, 4));
    video_index_free(&x);
    x = index_of("AbDeGcfh"); /* c comes behind G and is shown before D, which begins nothing */
    assert_int_equal(x.segments, 2);
    assert_int_equal(x.segment[1].key, 4);
    assert_int_equal(x.frames, 8);
    video_index_free(&x);
    x = index_of("bcEadf"); /* nothing before E can be decoded, nor what leads it */
    assert_int_equal(x.frames, 2);
    assert_int_equal(x.segment[0].key, 2);
    video_index_free(&x);
    x = index_of("AbbC"); /* two of one time */
    assert_true(x.counted);
    video_index_free(&x);
    x = index_of("bc");
    assert_int_equal(x.frames, 0);
    video_index_free(&x);
    x = index_of("");
    assert_int_equal(x.frames, 0);
    video_index_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),  cmocka_unit_test(test_damaged), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_turned), cmocka_unit_test(test_hidden),  cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder) ? 1 : 0;
}
