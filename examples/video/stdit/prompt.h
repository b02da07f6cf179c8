/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt in the format of Open-Sora 1.2's inference: texts of segments, then a JSON object with
 * the given frames of the clip.
 *
 *     |0| a sunny day |2| a rainy night{"reference_path": "a.png;b.mp4", "mask_strategy": "0"}
 */
#ifndef STDIT_PROMPT_H
#define STDIT_PROMPT_H

#include <stdint.h>

struct stdit_prompt {
    int64_t n;
    char **text;                /* [n] texts of consecutive segments */
    int64_t *loop;              /* [n]: first segment of each text; the first is 0 */
    char *reference, *strategy; /* NULL: absent */
};

/* Parses prompt number i, from 1.  Returns 0, or -1 after a sentence; the caller frees p in both
 * cases. */
int stdit_prompt_read(struct stdit_prompt *p, const char *prompt, int64_t i);
void stdit_prompt_free(struct stdit_prompt *p);

/* The index of a segment's text. */
int64_t stdit_prompt_text_of(const struct stdit_prompt *p, int64_t loop);

#endif
