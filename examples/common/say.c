/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the programs: failures, sizes, large numbers. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "say.h"
#include "signals.h"

static int rank = -1; /* -1: there is only one rank */

void say_as_rank(int own, int ranks)
{
    rank = ranks > 1 ? own : -1;
    if (rank > 0 && !freopen("/dev/null", "w", stdout))
        say_fail("/dev/null: %s", strerror(errno));
}

/* Prints with control characters escaped: names come from the command line and from files, and a
 * terminal must not obey them. */
static void put(FILE *f, const char *fmt, va_list ap)
{
    char text[2048], shown[2048];

    vsnprintf(text, sizeof text, fmt, ap);
    fputs(ckpt_escape(shown, sizeof shown, text), f);
}

/* The same as the sentence of an error: a name may have line ends, but only the planner's refusals
 * have further lines, which begin with two blanks. */
static void put_sentence(FILE *f, const char *fmt, va_list ap)
{
    char text[2048], shown[2048], *rest = text;

    vsnprintf(text, sizeof text, fmt, ap);
    for (const char *line; (line = strsep(&rest, "\n"));)
        fprintf(f, "%s%s", ckpt_escape(shown, sizeof shown, line),
                rest && strncmp(rest, "  ", 2) != 0 ? "\\x0a" : "\n");
}

static _Thread_local char *kept; /* NULL: messages are printed */
static _Thread_local size_t kept_room;

void say_keep(char *dst, size_t size)
{
    kept = dst;
    kept_room = size;
    if (dst)
        *dst = 0;
}

static void keep(const char *fmt, va_list ap)
{
    size_t n = strlen(kept);

    if (n + 2 >= kept_room)
        return;
    vsnprintf(kept + n, kept_room - n - 1, fmt, ap);
    strcat(kept, "\n");
}

static atomic_bool failed;
static char first[1024]; /* failure; loaders have threads, the program reads it at its end */

const char *say_failure(void)
{
    return first;
}

static void note_failure(const char *fmt, va_list ap)
{
    if (!kept && !atomic_exchange(&failed, true))
        vsnprintf(first, sizeof first, fmt, ap);
}

static void complain(const char *fmt, va_list ap)
{
    if (kept) {
        keep(fmt, ap);
        return;
    }
    fprintf(stderr, "%s: ", say_program);
    if (rank >= 0)
        fprintf(stderr, "rank %d: ", rank);
    put_sentence(stderr, fmt, ap);
}

#undef say_fail
int say_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_failure(fmt, ap);
    va_end(ap);
    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return -1;
}

void say_note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
}

int say_open(ckpt **c, const struct ckpt_options *o)
{
    if (ckpt_open(c, o))
        return say_fail("%s", ckpt_error(NULL));
    if (*ckpt_no_gpu(*c) && !o->plan_only && !ckpt_rank(*c))
        say_note("no GPU is used, everything runs on the CPU: %s (--device cpu: without this line)",
                 ckpt_no_gpu(*c));
    return 0;
}

void say_print(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put(stdout, fmt, ap);
    va_end(ap);
}

int64_t say_rss(void)
{
    long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f)
        return 0;
    if (fscanf(f, "%lld %lld", &pages, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

const char *say_bytes(char dst[32], int64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int i = 0;

    for (; value >= 1024 && i < 4; i++)
        value /= 1024;
    snprintf(dst, 32, i ? "%.2f %s" : "%.0f %s", value, unit[i]);
    return dst;
}

const char *say_count(char dst[32], int64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;

    for (int i = 0; i < length; i++) {
        dst[at++] = digits[i];
        if (i + 1 < length && (length - 1 - i) % 3 == 0)
            dst[at++] = ',';
    }
    dst[at] = 0;
    return dst;
}

/* The threads that libraries start, as decoders and OpenMP, would have the stack of the shell
 * (ulimit -s), or 128 KiB with musl. */
static void enlarge_stacks(void)
{
    enum { STACK = 2 << 20 };
    pthread_attr_t attr;
    size_t size;

    if (pthread_getattr_default_np(&attr))
        return;
    if (!pthread_attr_getstacksize(&attr, &size) && size < STACK &&
        !pthread_attr_setstacksize(&attr, STACK))
        pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
}

/* Occupies closed standard descriptors: a file opened later must not get the number of a closed
 * standard stream, because messages would be written into it. */
void say_begin(void)
{
    int fd;

    enlarge_stacks();
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
    signals_open();
}

int say_finish(int rc)
{
    if (!fflush(stdout) && !ferror(stdout))
        return rc;
    say_fail("standard output: %s", strerror(errno));
    return rc ? rc : 1;
}
