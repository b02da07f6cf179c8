/* SPDX-License-Identifier: Apache-2.0 */
/* CogVideoX as a model of the family: see ../model.h. */
#ifndef COGVIDEO_FAMILY_H
#define COGVIDEO_FAMILY_H

#include "../model.h"

extern const struct video_model cogvideo_model;

#endif
