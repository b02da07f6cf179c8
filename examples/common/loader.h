/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clips that background threads read ahead of the training steps, into a ring buffer of fixed size.
 *
 * Clips arrive in the requested order, whatever the number of threads.  A clip that cannot be read
 * is reported once, and the clip of the next row replaces it.
 */
#ifndef EXAMPLES_LOADER_H
#define EXAMPLES_LOADER_H

#include "ckpt.h"
#include "video.h"
#include "video_hw.h"

struct loader_options {
    int64_t memory;      /* bytes for clips and decoders; 0: two steps of the largest clips */
    int64_t workers;     /* number of threads */
    int64_t max_bad;     /* unreadable rows before the loader fails */
    const char *hwaccel; /* hardware decoder, named as in video_hw.h; NULL: the CPU */
    struct video_hw *hw; /* that device, opened by loader_hold_open */
};

/* Option rows for structs that have struct loader_options as member `loader`. */
#define LOADER_DEFAULTS .workers = 2, .max_bad = 100
#define LOADER_ROWS                                                                                \
    RANGE("workers", INT, loader.workers, "N",                                                     \
          "threads per rank that read videos ahead (default 2)", 1, 1024),                         \
        ROW("loader-memory", SIZE, loader.memory, "SIZE",                                          \
            "host memory per rank for clips read ahead and their decoders (default: the clips of " \
            "two steps)"),                                                                         \
        RANGE("max-bad", INT, loader.max_bad, "N",                                                 \
              "skip at most N unreadable clips (default 100)", 0, OPTION_MOST),                    \
        ROW("hwaccel", STRING, loader.hwaccel, "NAME[:DEVICE]",                                    \
            "decode videos on this hardware, such as cuda or vaapi:/dev/dri/renderD128; pixels "   \
            "differ from the CPU's (default: the CPU)")

/* Sizes that a loader must have room for. */
struct loader_need {
    int64_t clip;   /* bytes of the largest clip */
    int64_t step;   /* bytes of a rank's clips in the largest step */
    int64_t pixels; /* of the largest frame of any file; a file with larger frames counts as bad */
};

/* How the memory is divided. */
struct loader_room {
    int64_t clips, decoder; /* bytes for all clips; bytes for each worker's decoder */
};

/* Checks what options_parse cannot.  Returns 0, or -1 after an error message. */
int loader_check(const struct loader_options *o);
/* Divides the memory.  Returns 0, or -1 after an error message: it is too small. */
int loader_divide(const struct loader_options *o, const struct loader_need *n,
                  struct loader_room *room);
/* As loader_divide, and prints the result if `says`. */
int loader_plan(const struct loader_options *o, const struct loader_need *n, bool says);

/*
 * Hardware decoders use GPU memory, which the budget must include.  So before programs are compiled
 * all decoders are opened, each with a frame of the largest video, and stay open until the compile
 * has counted them as memory that the process uses beside its plan.  The decoders that workers open
 * later use the same amount.
 */
struct loader_hold {
    struct video *video; /* one per worker */
    int64_t n;
};

/* Opens the device of o and these decoders; does nothing if o names no device.  Returns 0, or -1
 * after an error message; close both in either case. */
int loader_hold_open(struct loader_hold *h, struct loader_options *o,
                     const struct video_file *largest);
void loader_hold_close(struct loader_hold *h);
/* Closes the device, at the end of the program. */
void loader_hw_close(struct loader_options *o);

/* ---- clips ---------------------------------------------------------------------------------- */

struct loader_clip {
    int64_t sample; /* number of the sample in the run, which determines its crop */
    int64_t row;    /* requested row; after loader_take the row that was read */
    int64_t frames, height, width;
    double fps;   /* the file's frame rate */
    uint8_t *rgb; /* [frames][height][width][3] */
    /* Error message of an unreadable clip, valid until it is released; NULL: it was read.  Only set
     * if the source's member `alone` is true. */
    const char *bad;
};

/* A worker's file; it stays open for the next clip. */
struct loader_file {
    struct video video;
    const struct video_hw *hw;
    int64_t most_pixels;
    const atomic_bool *stop;
};

/* The video in that file, opened if needed.  NULL after an error message. */
struct video *loader_file_open(struct loader_file *f, const struct video_file *file);

/* Where clips come from; the loader's threads call next and read. */
struct loader_source {
    /* The next clip in order; one thread calls it at a time.  Returns 1, 0 if there is none, or -1
     * after an error message. */
    int (*next)(void *user, struct loader_clip *c);
    /* Reads row `row` for c.  Returns 1, 0 if this row has no such clip, or -1 after an error
     * message.  The result depends only on the arguments. */
    int (*read)(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                double *fps);
    int64_t rows;
    void *user;
    bool alone; /* an unreadable clip is not replaced by another row */
    /* The last result of loader_bad in the run that this one resumes (NULL: none).  Rows that still
     * have the same name count as bad from the start and are not reported again. */
    const char *known;
    const char *(*name)(const void *names, int64_t row); /* of the file; NULL: rows have none */
    const void *names;
};

struct loader;

/* Starts the threads; source is borrowed.  Returns 0, or -1 after an error message. */
int loader_open(struct loader **l, const struct loader_options *o, const struct loader_need *n,
                const struct loader_source *source);
/* Stops the threads at any point; l may be NULL. */
void loader_close(struct loader *l);

/* Waits for the next clip.  Returns 0, or -1 after an error message. */
int loader_take(struct loader *l, struct loader_clip *c);
/* Frees the ring space of the clip taken last. */
void loader_release(struct loader *l);

/* The unreadable rows in order of discovery, one line "ROW NAME" each; NULL: no memory.  Valid
 * until the next call. */
const char *loader_bad(struct loader *l);
/* Reads such a text: rows that still have the same name count as bad and are not reported again. */
void loader_take_bad(struct loader *l, const char *text);
/* Shares each rank's unreadable rows with all ranks, and stores them in the saved states of c
 * (RESUME_BAD).  All ranks must call it, between steps.  Returns 0, or -1 after an error message.
 */
int loader_note_bad(struct loader *l, ckpt *c);

/* Seconds that loader_take has waited since the last call. */
double loader_waited(struct loader *l);

#endif
