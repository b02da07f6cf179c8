/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt as Open-Sora 1.2's inference reads it: texts of segments, and behind them what is given
 * of the clip.
 *
 *     |0| a sunny day |2| a rainy night{"reference_path": "a.png;b.mp4", "mask_strategy": "0"}
 */
#ifndef STDIT_PROMPT_H
#define STDIT_PROMPT_H

#include <stdint.h>

struct stdit_prompt {
    int64_t n;
    char **text;                /* [n] of segments that follow each other */
    int64_t *loop;              /* [n]: the segment from which on each holds; the first is 0 */
    char *reference, *strategy; /* NULL: it does not say */
};

/* Reads prompt number i, from 1.  Returns 0, or -1 after a sentence; p is to be freed then, too. */
int stdit_prompt_read(struct stdit_prompt *p, const char *prompt, int64_t i);
void stdit_prompt_free(struct stdit_prompt *p);

/* Which of the texts a segment has. */
int64_t stdit_prompt_text_of(const struct stdit_prompt *p, int64_t loop);

#endif
