/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clips that threads read ahead of the steps that take them, into one piece of memory of a fixed
 * size.
 *
 * Clips come in the order in which they are asked for, whatever the number of threads.  A clip that
 * cannot be read is named once, and that of the next row takes its place.
 */
#ifndef EXAMPLES_LOADER_H
#define EXAMPLES_LOADER_H

#include "ckpt.h"
#include "video.h"
#include "video_hw.h"

struct loader_options {
    int64_t memory;      /* bytes of clips and decoders; 0: two steps of the largest clips */
    int64_t workers;     /* threads */
    int64_t max_bad;     /* rows that cannot be read, before that is an error */
    const char *hwaccel; /* what decodes, as of video_hw.h; NULL: the CPU */
    struct video_hw *hw; /* that device, of loader_hold_open */
};

/* Rows for all structs that have the one above as member `loader`. */
#define LOADER_DEFAULTS .workers = 2, .max_bad = 100
#define LOADER_ROWS                                                                                \
    RANGE("workers", INT, loader.workers, "N",                                                     \
          "threads of each rank that read videos ahead of the steps (default 2)", 1, 1024),        \
        ROW("loader-memory", SIZE, loader.memory, "SIZE",                                          \
            "host memory of each rank for clips read ahead and their decoders "                    \
            "(default: for the clips of two steps)"),                                              \
        RANGE("max-bad", INT, loader.max_bad, "N",                                                 \
              "pass over so many clips that cannot be read (default 100)", 0, OPTION_MOST),        \
        ROW("hwaccel", STRING, loader.hwaccel, "NAME[:DEVICE]",                                    \
            "decode videos by this hardware, as cuda or vaapi:/dev/dri/renderD128, with other "    \
            "bytes than the CPU's (default: the CPU)")

/* What a loader must have room for. */
struct loader_need {
    int64_t clip;   /* bytes of the largest clip */
    int64_t step;   /* bytes of the clips of the largest step of a rank */
    int64_t pixels; /* of the largest frame of any file; a file with more counts as bad */
};

/* How its memory is divided. */
struct loader_room {
    int64_t clips, decoder; /* bytes of all clips, of each worker's decoder */
};

/* What options_parse cannot see.  Returns 0, or -1 after a sentence. */
int loader_check(const struct loader_options *o);
/* Divides it.  Returns 0, or -1 after a sentence: it is too small. */
int loader_divide(const struct loader_options *o, const struct loader_need *n,
                  struct loader_room *room);
/* The same, and prints how where `says`. */
int loader_plan(const struct loader_options *o, const struct loader_need *n, bool says);

/*
 * Decoders of hardware take memory of the GPU, which a budget must know of: before programs are
 * compiled all of them are opened, each with a frame of the largest video, and kept until behind
 * that, so that they are of what the process takes beside its plan.  Those that workers open later
 * take their place.
 */
struct loader_hold {
    struct video *video; /* of each worker */
    int64_t n;
};

/* Opens the device of o and these decoders; neither where o asks for none.  Returns 0, or -1 after
 * a sentence; both are to be closed then, too. */
int loader_hold_open(struct loader_hold *h, struct loader_options *o,
                     const struct video_file *largest);
void loader_hold_close(struct loader_hold *h);
/* The device, at the end. */
void loader_hw_close(struct loader_options *o);

/* ---- clips ---------------------------------------------------------------------------------- */

struct loader_clip {
    int64_t sample; /* its number in the run: crops follow from it */
    int64_t row;    /* asked for, and when it is taken the one that was read */
    int64_t frames, height, width;
    double fps;   /* found */
    uint8_t *rgb; /* [frames][height][width][3] */
    /* Why it cannot be read, until it is released; NULL: it was read.  Only where the source says
     * that clips stand alone. */
    const char *bad;
};

/* A worker's file, open from one clip to the next. */
struct loader_file {
    struct video video;
    const struct video_hw *hw;
    int64_t most_pixels;
    const atomic_bool *stop;
};

/* The video in that file.  NULL after a sentence. */
struct video *loader_file_open(struct loader_file *f, const struct video_file *file);

/* What the clips are; next and read are called by the threads of the loader. */
struct loader_source {
    /* The next clip in order: by one thread at a time.  Returns 1, 0 if there is none, or -1 after
     * a sentence. */
    int (*next)(void *user, struct loader_clip *c);
    /* Reads row `row` for c.  Returns 1, 0 if such a clip does not come from that row, or -1 after
     * a sentence.  What is written follows from its arguments alone. */
    int (*read)(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                double *fps);
    int64_t rows;
    void *user;
    bool alone; /* no other row takes the place of a clip that cannot be read */
    /* What loader_bad had last in the run that this one goes on with (NULL: nothing): rows that
     * count as bad from the start and are not named again, where they still have that name. */
    const char *known;
    const char *(*name)(const void *names, int64_t row); /* of its file; NULL: rows have none */
    const void *names;
};

struct loader;

/* Starts the threads; source is borrowed.  Returns 0, or -1 after a sentence. */
int loader_open(struct loader **l, const struct loader_options *o, const struct loader_need *n,
                const struct loader_source *source);
/* Ends them, wherever they are; l may be NULL. */
void loader_close(struct loader *l);

/* The next clip, waiting for it.  Returns 0, or -1 after a sentence. */
int loader_take(struct loader *l, struct loader_clip *c);
/* Its memory is free again; the clip taken last. */
void loader_release(struct loader *l);

/* The rows that cannot be read, as they were found, a line each with the name; NULL: no memory.
 * Valid until it is asked again. */
const char *loader_bad(struct loader *l);
/* Takes over such a text: those that still have that name count as bad, and are not named again. */
void loader_take_bad(struct loader *l, const char *text);
/* Tells all ranks of the rows that any of them could not read, and notes them in the states of c
 * (RESUME_BAD).  A call of all ranks, between steps.  Returns 0, or -1 after a sentence. */
int loader_note_bad(struct loader *l, ckpt *c);

/* Seconds that loader_take waited, since it was last asked. */
double loader_waited(struct loader *l);

#endif
