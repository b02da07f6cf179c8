/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress line of a training program.  On a terminal one line is redrawn, without colours or
 * escape sequences, so NO_COLOR needs no special case; otherwise plain lines are written.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "core/base.h"
#include "ckpt_tools.h"
#include "report/progress.h"

#define LINE          256  /* longest line, bytes */
#define DRAW_SECONDS  0.1  /* shortest time between two drawings on a terminal */
#define PLAIN_SECONDS 10.0 /* longest time between two plain lines */
#define PLAIN_PARTS   20   /* number of plain lines over the whole run */

struct ckpt_progress {
    FILE *f;
    bool terminal;
    char what[64];
    int64_t total;       /* 0 or less: unknown */
    int64_t done, bytes; /* of the last report */
    double loss;
    bool reported;      /* a report was made */
    int64_t first_done; /* the rate counts from the first report: steps before it may */
    double first_time;  /* belong to an earlier run, and the first step is slower */
    double start;       /* time of opening, seconds */
    double shown_time;  /* time of the last line */
    int64_t shown_done; /* `done` in the last line, or -1 */
    int shown_length;   /* characters in the terminal's line */
};

static bool is_terminal(FILE *f)
{
    const char *term = getenv("TERM");
    int fd = fileno(f);

    return fd >= 0 && isatty(fd) && term && *term && strcmp(term, "dumb");
}

void progress_seconds(FILE *f, const char *what, int seconds)
{
    if (!f || !(seconds == 2 || seconds == 5 || (seconds > 0 && seconds % 10 == 0)))
        return;
    fprintf(f, "%s: %d s\n", what, seconds);
    fflush(f);
}

void ckpt_progress_plan(void *file, int seconds)
{
    progress_seconds(file, "planning", seconds);
}

ckpt_progress *ckpt_progress_open(FILE *f, const char *what, int64_t total)
{
    ckpt_progress *pr = f ? calloc(1, sizeof(*pr)) : NULL;

    if (!pr)
        return NULL;
    pr->f = f;
    pr->terminal = is_terminal(f);
    snprintf(pr->what, sizeof(pr->what), "%s", what ? what : "");
    pr->total = total;
    pr->start = pr->shown_time = clock_seconds();
    pr->shown_done = -1;
    return pr;
}

/* Appends to a line; truncates if it is full. */
CKPT_PRINTF(2, 3) static void append(char *line, const char *fmt, ...)
{
    size_t n = strlen(line);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line + n, LINE - n, fmt, ap);
    va_end(ap);
}

/* "04:05" or "1:02:03". */
static void append_duration(char *line, double seconds)
{
    if (seconds >= 100.0 * 3600) {
        append(line, "%.0fh", seconds / 3600);
        return;
    }
    int s = (int)seconds;
    if (s >= 3600)
        append(line, "%d:", s / 3600);
    append(line, "%02d:%02d", s / 60 % 60, s % 60);
}

static double steps_per_second(const ckpt_progress *pr, double now)
{
    double elapsed = now - pr->first_time;

    return pr->done > pr->first_done && elapsed > 0 ? (double)(pr->done - pr->first_done) / elapsed
                                                    : 0;
}

static double share(const ckpt_progress *pr, int64_t done)
{
    double x = (double)done / (double)pr->total;

    return fmin(1, fmax(0, x));
}

/* "[00:12<00:15, 3.66 steps/s, loss 0.1234, 1.25 GiB]" */
static void append_details(char *line, const ckpt_progress *pr, double now)
{
    double rate = steps_per_second(pr, now);

    append(line, " [");
    append_duration(line, now - pr->start);
    if (rate > 0 && pr->total > pr->done) {
        append(line, "<");
        append_duration(line, (double)(pr->total - pr->done) / rate);
    }
    if (rate >= 1)
        append(line, ", %.2f steps/s", rate);
    else if (rate > 0)
        append(line, ", %.2f s/step", 1 / rate);
    if (!isnan(pr->loss))
        append(line, ", loss %.4g", pr->loss);
    if (pr->bytes > 0)
        append(line, ", %s", human_bytes(pr->bytes));
    append(line, "]");
}

/* Formats the line with a bar of `cells` characters. */
static void format_line(char *line, const ckpt_progress *pr, double now, int cells)
{
    line[0] = 0;
    if (pr->what[0])
        append(line, "%s: ", pr->what);
    if (pr->total > 0) {
        double x = share(pr, pr->done);
        append(line, "%3d%% ", (int)(100 * x));
        if (cells > 0) {
            char bar[LINE];
            memset(bar, ' ', sizeof(bar));
            memset(bar, '#', (size_t)(x * cells));
            append(line, "|%.*s| ", cells, bar);
        }
        append(line, "%lld/%lld", (long long)pr->done, (long long)pr->total);
    } else {
        append(line, "%lld", (long long)pr->done);
    }
    append_details(line, pr, now);
}

static int terminal_columns(FILE *f)
{
    struct winsize size;

    if (ioctl(fileno(f), TIOCGWINSZ, &size) || size.ws_col == 0)
        return 80;
    return (int)min_i64(size.ws_col, LINE);
}

/* Redraws the line; spaces erase what the new one does not cover. */
static void draw(ckpt_progress *pr, double now)
{
    char line[LINE];
    int columns = terminal_columns(pr->f) - 1;

    format_line(line, pr, now, 0);
    int cells = (int)min_i64(30, columns - (int)strlen(line) - 3);
    if (cells >= 5)
        format_line(line, pr, now, cells);
    int length = (int)min_i64((int64_t)strlen(line), columns);
    int erase = (int)max_i64(0, min_i64(pr->shown_length, columns) - length);
    fprintf(pr->f, "\r%.*s%*s", length, line, erase, "");
    pr->shown_length = length;
}

static void show(ckpt_progress *pr, double now)
{
    if (pr->terminal) {
        draw(pr, now);
    } else {
        char line[LINE];
        format_line(line, pr, now, 0);
        fprintf(pr->f, "%s\n", line);
    }
    fflush(pr->f);
    pr->shown_time = now;
    pr->shown_done = pr->done;
}

static bool due(const ckpt_progress *pr, double now)
{
    if (pr->terminal)
        return pr->shown_done < 0 || now - pr->shown_time >= DRAW_SECONDS;
    if (pr->shown_done < 0 || now - pr->shown_time >= PLAIN_SECONDS)
        return true;
    return pr->total > 0 && (int)(PLAIN_PARTS * share(pr, pr->done)) >
                                (int)(PLAIN_PARTS * share(pr, pr->shown_done));
}

void ckpt_progress_step(ckpt_progress *pr, int64_t done, double loss, int64_t bytes)
{
    if (!pr)
        return;
    double now = clock_seconds();
    pr->done = done;
    pr->loss = loss;
    pr->bytes = bytes;
    if (!pr->reported) {
        pr->reported = true;
        pr->first_done = done;
        pr->first_time = now;
    }
    if (due(pr, now))
        show(pr, now);
}

/* Always shows the last report; prints nothing if there was none. */
void ckpt_progress_close(ckpt_progress *pr)
{
    if (!pr)
        return;
    if (pr->reported && pr->shown_done != pr->done)
        show(pr, clock_seconds());
    if (pr->terminal && pr->reported) {
        fputc('\n', pr->f);
        fflush(pr->f);
    }
    free(pr);
}
