/* SPDX-License-Identifier: Apache-2.0 */
/* Text out of URLs and HTML.  All take a text to be freed, free it, and return another one, valid
 * UTF-8; NULL, which they also take, without memory. */
#ifndef TEXT_MARKUP_H
#define TEXT_MARKUP_H

#include <stdbool.h>

/* A copy in which bytes that are no UTF-8 are U+FFFD; text stays. */
char *markup_valid(const char *text);

/* %41 becomes A, + a blank. */
char *markup_decode_url(char *text);

/* Without tags and comments, and with the entities of markup_unescape. */
char *markup_text(char *text, bool *unknown);

/* &#65; and &#x41; become A; &amp; &lt; &gt; &quot; &apos; &nbsp; what they stand for.  *unknown
 * becomes true where another entity was left as it is. */
char *markup_unescape(char *text, bool *unknown);

#endif
