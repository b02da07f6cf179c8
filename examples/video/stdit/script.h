/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips that stdit-sample makes, each of the same number of consecutive segments: their texts,
 * initial noise, given latent frames and results.
 *
 * A row is a segment of a clip: the first segments of all clips, then the second ones, and so on.
 * Everything is read and checked before any computation.
 */
#ifndef STDIT_SCRIPT_H
#define STDIT_SCRIPT_H

#include "../../text/prompts.h"
#include "run.h"
#include "strategy.h"

/* A picture, a video or latents that provide given frames; or the result of an earlier segment. */
struct stdit_reference {
    char *path;               /* NULL: a segment */
    bool latents;             /* a file of latents, as vae-encode writes it */
    struct video_clips clips; /* of the whole file, in the size of the output */
    int64_t sample;           /* number that determines the draw of its latents */
    int64_t first, end;       /* used latent frames; end 0: none */
    float *z;                 /* [channels, clips.latent_frames, h, w] */
};

/* The given frames of a clip. */
struct stdit_guide {
    struct stdit_strategies strategies;
    struct stdit_reference *reference; /* the files, then all segments but the last */
    int64_t files, n;
};

struct stdit_script {
    int64_t clips, loops;
    int64_t at_once;           /* clips in one batch of the model */
    struct prompts texts;      /* distinct texts; none: features in a file, or the null caption */
    int64_t *text;             /* [rows] index of the text */
    struct stdit_guide *guide; /* [clips] */
    float *noise;              /* [rows, channels, T, h, w] */
    float *edit_noise;         /* likewise, of frames that are noised later; NULL: none */
    float *start, *mask, *latents; /* of --latents, likewise, mask [rows, T]; NULL: not requested */
};

/* Reads prompts, references and noise of the options; the shape of the clips is already known.
 * Returns 0, or -1 after a sentence, as all calls below. */
int stdit_script_open(struct stdit_script *s, struct video_data *d, const struct video_options *o);
void stdit_script_close(struct stdit_script *s);

/* Whether there are given latent frames. */
bool stdit_script_guides(const struct stdit_script *s);

/* add registers the clips to be encoded; encode, with the device, encodes the files. */
int stdit_script_add(struct stdit_script *s, struct stdit_vae *v, struct video_clips *clips);
int stdit_script_encode(struct stdit_script *s, struct stdit_vae *v);

/* The initial latents of a row in z [channels, T, h, w], and its mask [T]. */
int stdit_script_begin(struct stdit_script *s, const struct video_data *d,
                       const struct video_options *o, int64_t loop, int64_t clip, float *z,
                       float *mask);
/* Writes --latents. */
int stdit_script_write(const struct stdit_script *s, const struct video_data *d, const char *path);

/* Frames at the start of a segment that it shares with the previous one. */
int64_t stdit_script_shared(const struct video_options *o, int64_t loop);
/* Frames of the video of all segments of a clip. */
int64_t stdit_script_frames(const struct video_data *d, const struct video_options *o);

/* ---- internal: reference.c ------------------------------------------------------------------- */

/* Inspects the files of a clip's guide, separated by ';', and adds the segments as references. */
int stdit_references_open(struct stdit_guide *g, const char *paths, int64_t loops,
                          const struct video_data *d);
/* Resolves strategies to the used frames of the references.  what: prefix of error sentences. */
int stdit_references_use(struct stdit_guide *g, const char *what, const struct video_data *d,
                         const struct video_options *o);
int stdit_reference_encode(struct stdit_reference *r, struct stdit_vae *v);
void stdit_guide_free(struct stdit_guide *g);

#endif
