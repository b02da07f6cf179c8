/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleans captions before a text encoder.  As Open-Sora 1.x does: lower case, no markup, addresses,
 * file names or advertisements, plain quotes and dashes; as there, the rules are applied twice.  As
 * Wan does: entities of HTML become characters, twice, and white space becomes one blank.
 *
 * Not done: the repairs of ftfy (text decoded with the wrong encoding, ligatures, wide letters,
 * combining marks) and HTML entities except numbers, the basic five and nbsp.  A caption with such
 * text is cleaned by all other rules, and the caller gets a note.
 */
#ifndef TEXT_CLEAN_H
#define TEXT_CLEAN_H

enum text_cleaning { TEXT_UNCHANGED, TEXT_CLEANED /* Open-Sora */, TEXT_UNESCAPED /* Wan */ };

struct cleaner;

/* Returns 0, or -1 after an error message.  Needs PCRE2. */
int cleaner_open(struct cleaner **c, enum text_cleaning cleaning);
void cleaner_close(struct cleaner *c);

/* Returns the cleaned text, which the caller frees; NULL after an error message.  *left: a short
 * description of the text that was not cleaned, or NULL. */
char *cleaner_clean(const struct cleaner *c, const char *text, const char **left);

#endif
