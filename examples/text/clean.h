/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captions as Open-Sora 1.x cleans them before its text encoder: lower case, no markup, addresses,
 * file names or advertisements, plain quotes and dashes.  Its rules are applied twice, as there.
 *
 * Not done: what ftfy repairs (text decoded with the wrong encoding, ligatures, wide letters, marks
 * that are not composed) and entities of HTML other than numbers, the basic five and nbsp.  A
 * caption that has such is cleaned by all other rules, and the caller is told.
 */
#ifndef TEXT_CLEAN_H
#define TEXT_CLEAN_H

struct cleaner;

/* Returns 0, or -1 after a sentence: it stands on PCRE2. */
int cleaner_open(struct cleaner **c);
void cleaner_close(struct cleaner *c);

/* The cleaned text, to be freed; NULL after a sentence.  *left: what is in it that was not done, a
 * few words, or NULL. */
char *cleaner_clean(const struct cleaner *c, const char *text, const char **left);

#endif
