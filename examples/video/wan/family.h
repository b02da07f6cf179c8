/* SPDX-License-Identifier: Apache-2.0 */
/* Wan as a model of the family: see ../model.h. */
#ifndef WAN_FAMILY_H
#define WAN_FAMILY_H

#include "../model.h"

extern const struct video_model wan_model;

#endif
