/* The sentence of the last failed call without a context, and the names of the error codes. */
#include <string.h>
#include "base.h"

static _Thread_local char last_error[CKPT_MESSAGE];

/* Names come out of files; a terminal must not obey what is written in them. */
static void blank_controls(char *s)
{
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if ((ch < 0x20 && ch != '\n' && ch != '\t') || ch == 0x7f)
            *s = '?';
    }
}

/* The sentence is made aside first: an argument may well be the sentence that stands in dst. */
int error_vset(char *dst, size_t size, int code, const char *fmt, va_list ap)
{
    char text[CKPT_MESSAGE];

    if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
        text[0] = 0;
    blank_controls(text);
    if (size)
        snprintf(dst, size, "%s", text);
    return code;
}

int error_set(int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    error_vset(last_error, sizeof(last_error), code, fmt, ap);
    va_end(ap);
    return code;
}

const char *error_get(void)
{
    return last_error;
}

const char *ckpt_error_name(int code)
{
    static const char *const names[] = {
        "CKPT_OK",      "CKPT_EINVAL", "CKPT_ENOMEM",  "CKPT_ESHAPE", "CKPT_EBUDGET", "CKPT_EIO",
        "CKPT_EFORMAT", "CKPT_ENAN",   "CKPT_EDEVICE", "CKPT_EPLAN",  "CKPT_ENAME",   "CKPT_ECOMM",
    };

    if (code > 0 || code < CKPT_ECOMM)
        return "unknown error code";
    return names[-code];
}
