/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleans captions as Open-Sora 1.x does before its text encoder: lower case, no markup, addresses,
 * file names or advertisements, plain quotes and dashes.  As there, the rules are applied twice.
 *
 * Not done: the repairs of ftfy (text decoded with the wrong encoding, ligatures, wide letters,
 * combining marks) and HTML entities except numbers, the basic five and nbsp.  A caption with such
 * text is cleaned by all other rules, and the caller gets a note.
 */
#ifndef TEXT_CLEAN_H
#define TEXT_CLEAN_H

struct cleaner;

/* Returns 0, or -1 after an error message.  Needs PCRE2. */
int cleaner_open(struct cleaner **c);
void cleaner_close(struct cleaner *c);

/* Returns the cleaned text, which the caller frees; NULL after an error message.  *left: a short
 * description of the text that was not cleaned, or NULL. */
char *cleaner_clean(const struct cleaner *c, const char *text, const char **left);

#endif
