/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes text from URLs and HTML.  All but markup_valid free their argument and return a new text
 * in valid UTF-8, which the caller frees.  They return NULL without memory, and accept NULL. */
#ifndef TEXT_MARKUP_H
#define TEXT_MARKUP_H

#include <stdbool.h>

/* Copies text with invalid UTF-8 bytes replaced by U+FFFD; does not free text. */
char *markup_valid(const char *text);

/* Decodes %41 to A, and + to a blank. */
char *markup_decode_url(char *text);

/* Changes capital symbols that are no letters, as roman numerals, to small ones. */
char *markup_lower(char *text);

/* Decodes &#65; and &#x41; to A, and &amp; &lt; &gt; &quot; &apos; &nbsp; to their characters; with
 * tags removes tags and comments.  Sets *unknown to true if it leaves another entity unchanged. */
char *markup_text(char *text, bool tags, bool *unknown);

#endif
