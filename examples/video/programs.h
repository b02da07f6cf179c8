/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a model, whole: each has a main of a few lines that names the model.  They return
 * the exit status. */
#ifndef VIDEO_PROGRAMS_H
#define VIDEO_PROGRAMS_H

#include "model.h"

int video_train(const struct video_model *m, int argc, char **argv);
int video_sample(const struct video_model *m, int argc, char **argv);
/* usage: the first part of --help. */
int video_encode(const struct autoencoder *a, const char *usage, int argc, char **argv);
int video_decode(const struct autoencoder *a, const char *usage, int argc, char **argv);

#endif
