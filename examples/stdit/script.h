/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stdit-sample draws: clips, each of so many segments that follow each other; their texts, the
 * noise that each starts from, the latent frames that are given, and what came out.
 *
 * A row is a segment of a clip: the first segments of all clips, then the second ones, and so on.
 * All is read and checked before anything is computed.
 */
#ifndef STDIT_SCRIPT_H
#define STDIT_SCRIPT_H

#include "../text/prompts.h"
#include "run.h"
#include "strategy.h"

/* A picture, a video or latents that frames are given from; or what an earlier segment drew. */
struct stdit_reference {
    char *path;               /* NULL: a segment */
    bool latents;             /* a file of latents, as vae-encode writes it */
    struct stdit_clips clips; /* of all of it, in the size of what is drawn */
    int64_t sample;           /* its latents are drawn by this number */
    int64_t first, end;       /* of its latent frames, those that are used; end 0: none */
    float *z;                 /* [channels, clips.latent_frames, h, w] */
};

/* What is given of a clip. */
struct stdit_guide {
    struct stdit_strategies strategies;
    struct stdit_reference *reference; /* the files, then the segments but for the last */
    int64_t files, n;
};

struct stdit_script {
    int64_t clips, loops;
    int64_t at_once;      /* clips that pass the model together */
    struct prompts texts; /* the different ones; none: features in a file, or the null caption */
    int64_t *text;        /* [rows] which */
    struct stdit_guide *guide; /* [clips] */
    float *noise;              /* [rows, channels, T, h, w] */
    float *edit_noise;         /* likewise, of frames that are noised later; NULL: there are none */
    float *start, *mask, *latents; /* of --latents, likewise, mask [rows, T]; NULL: not asked for */
};

/* Reads prompts, references and noise of the options; the shape of the clips is known.  Returns 0,
 * or -1 after a sentence, as all below. */
int stdit_script_open(struct stdit_script *s, struct stdit_data *d, const struct stdit_options *o);
void stdit_script_close(struct stdit_script *s);

/* Whether latent frames are given. */
bool stdit_script_guides(const struct stdit_script *s);

/* Says which of their clips will be encoded; then, with the device, encodes the files. */
int stdit_script_add(struct stdit_script *s, struct stdit_vae *v, struct stdit_clips *clips);
int stdit_script_encode(struct stdit_script *s, struct stdit_vae *v);

/* The start of a row in z [channels, T, h, w], and its mask [T]. */
int stdit_script_begin(struct stdit_script *s, const struct stdit_data *d,
                       const struct stdit_options *o, int64_t loop, int64_t clip, float *z,
                       float *mask);
/* Writes --latents. */
int stdit_script_write(const struct stdit_script *s, const struct stdit_data *d, const char *path);

/* Frames at the head of a segment that the one before has, too. */
int64_t stdit_script_shared(const struct stdit_options *o, int64_t loop);
/* Frames of the video that all segments of a clip make. */
int64_t stdit_script_frames(const struct stdit_data *d, const struct stdit_options *o);

/* ---- between its files: reference.c ---------------------------------------------------------- */

/* Looks at what the guide of a clip names, separated by ';', and makes references of segments. */
int stdit_references_open(struct stdit_guide *g, const char *paths, int64_t loops,
                          const struct stdit_data *d);
/* Where strategies come to lie: which frames of the references are used.  what begins sentences. */
int stdit_references_use(struct stdit_guide *g, const char *what, const struct stdit_data *d,
                         const struct stdit_options *o);
int stdit_reference_encode(struct stdit_reference *r, struct stdit_vae *v);
void stdit_guide_free(struct stdit_guide *g);

#endif
