/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drawing of a scaling study: speed of a rank at the top, its memory below, one line per
 * sharing variant.  Variants with equal values share one line with all their names.  Lines drawn
 * first are wider, so that no line hides another.  One self-contained file.
 */
#include <math.h>
#include <string.h>
#include "plan/graph/lines.h"
#include "report/svg.h"
#include "report/scaling_svg.h"

#define WIDTH  860
#define HEIGHT 620
#define LEFT   76
#define RIGHT  828

enum { MAX_LINES = 8, NAME = 160 };

static const char *const colours[MAX_LINES] = {"#8a6fc4", "#4f86d6", "#2f9e76", "#e8a33d",
                                               "#c8553d", "#7a8a99", "#b8478f", "#3fa7c4"};

/* A panel: its position, the value at its top, and the values of each line. */
struct panel {
    double top, bottom, maximum;
    const double *const *values; /* below 0: no value */
};

struct drawing {
    const struct scaling_chart *c;
    FILE *f;
    struct panel speed, memory;
    bool drawn[MAX_LINES]; /* false if an earlier line has the same values */
    char names[MAX_LINES][NAME];
    int n_drawn;
};

static double x_of(const struct scaling_chart *c, int32_t i)
{
    double last = log2((double)c->ranks[c->n - 1]);
    return LEFT + 12 + (last > 0 ? log2((double)c->ranks[i]) / last : 0) * (RIGHT - LEFT - 24);
}

static double y_of(const struct panel *p, double value)
{
    return p->bottom - value / p->maximum * (p->bottom - p->top);
}

static double largest(const struct scaling_chart *c, const double *const *values, double minimum)
{
    for (int32_t k = 0; k < c->n_lines; k++)
        for (int32_t i = 0; i < c->n; i++)
            minimum = fmax(minimum, values[k][i]);
    return minimum;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Are the lines visually the same? */
static bool same_values(const struct scaling_chart *c, const double *a, const double *b,
                        double maximum)
{
    for (int32_t i = 0; i < c->n; i++)
        if ((a[i] < 0) != (b[i] < 0) || (a[i] >= 0 && fabs(a[i] - b[i]) > 2e-3 * maximum))
            return false;
    return true;
}

static bool has_points(const struct scaling_chart *c, int32_t k)
{
    bool any = false;
    for (int32_t i = 0; i < c->n; i++)
        any |= c->efficiency[k][i] >= 0;
    return any;
}

/* Selects the lines to draw and their names. */
static void join_lines(struct drawing *d)
{
    const struct scaling_chart *c = d->c;
    for (int32_t k = 0; k < c->n_lines; k++) {
        int32_t j = 0;
        while (j < k && !(d->drawn[j] &&
                          same_values(c, c->efficiency[j], c->efficiency[k], d->speed.maximum) &&
                          same_values(c, c->bytes[j], c->bytes[k], d->memory.maximum)))
            j++;
        d->drawn[k] = j == k && has_points(c, k);
        d->n_drawn += d->drawn[k];
        size_t n = j < k ? strlen(d->names[j]) : 0;
        if (j == k)
            snprintf(d->names[k], NAME, "%s", c->names[k]);
        else if (has_points(c, k))
            snprintf(d->names[j] + n, NAME - n, ", %s", c->names[k]);
    }
}

static void put_line(const struct drawing *d, const struct panel *p, int32_t line, double width)
{
    const struct scaling_chart *c = d->c;
    const double *y = p->values[line];
    bool before = false;
    fprintf(d->f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" d=\"", colours[line],
            width);
    for (int32_t i = 0; i < c->n; i++) {
        if (y[i] >= 0)
            fprintf(d->f, "%c%.1f %.1f", before ? 'L' : 'M', x_of(c, i), y_of(p, y[i]));
        before = y[i] >= 0;
    }
    fputs("\"/>\n", d->f);
    for (int32_t i = 0; i < c->n; i++)
        if (y[i] >= 0)
            fprintf(d->f,
                    "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>%d ranks, %s: "
                    "%.1f %% of the speed, %s</title></circle>\n",
                    colours[line], x_of(c, i), y_of(p, y[i]), width / 2 + 2, (int)c->ranks[i],
                    d->names[line], 100 * c->efficiency[line][i],
                    human_bytes((int64_t)c->bytes[line][i]));
}

static void put_lines(const struct drawing *d, const struct panel *p)
{
    int below = d->n_drawn;
    for (int32_t k = 0; k < d->c->n_lines; k++)
        if (d->drawn[k])
            put_line(d, p, k, 1.6 + 1.1 * --below);
}

/* ---- axes and words -------------------------------------------------------------------------- */

static void put_tick(const struct drawing *d, const struct panel *p, double value, const char *text)
{
    fprintf(d->f,
            "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>\n",
            LEFT, y_of(p, value), RIGHT, LEFT - 8, y_of(p, value) + 4, text);
}

static void put_label(const struct drawing *d, const struct panel *p, const char *text)
{
    fprintf(d->f, "<text class=\"label\" x=\"%d\" y=\"%.0f\">%s</text>\n", LEFT - 46, p->top - 12,
            text);
    fprintf(d->f, "<path class=\"axis\" d=\"M%d %.0fH%d\"/>\n", LEFT, p->bottom, RIGHT);
}

static void put_axes(const struct drawing *d)
{
    const struct scaling_chart *c = d->c;
    char text[32];
    for (int percent = 0; percent <= 100 * d->speed.maximum; percent += 20) {
        snprintf(text, sizeof text, "%d %%", percent);
        put_tick(d, &d->speed, percent / 100., text);
    }
    double unit = d->memory.maximum >= 0x1p30   ? 0x1p30
                  : d->memory.maximum >= 0x1p20 ? 0x1p20
                                                : 0x1p10;
    double step = svg_tick_step(d->memory.maximum / unit, 4);
    for (int i = 0; i * step * unit <= d->memory.maximum; i++) {
        snprintf(text, sizeof text, "%g", i * step);
        put_tick(d, &d->memory, i * step * unit, text);
    }
    put_label(d, &d->speed, "speed of a rank, 100 % is one alone without a budget");
    snprintf(text, sizeof text, "memory of a rank, %s",
             unit >= 0x1p30   ? "GiB"
             : unit >= 0x1p20 ? "MiB"
                              : "KiB");
    put_label(d, &d->memory, text);
    for (int32_t i = 0; i < c->n; i++)
        fprintf(d->f,
                "<path class=\"axis\" d=\"M%.1f %.0fv6\"/><text class=\"tick\" x=\"%.1f\" "
                "y=\"%.0f\" text-anchor=\"middle\">%d</text>\n",
                x_of(c, i), d->memory.bottom, x_of(c, i), d->memory.bottom + 22, (int)c->ranks[i]);
    fprintf(d->f, "<text class=\"label\" x=\"%d\" y=\"%.0f\" text-anchor=\"middle\">ranks</text>\n",
            (LEFT + RIGHT) / 2, d->memory.bottom + 46);
}

/* Draws the budget as a line unless it is far above all values. */
static void put_budget(const struct drawing *d)
{
    if (!d->c->budget || d->c->budget > d->memory.maximum)
        return;
    double y = y_of(&d->memory, d->c->budget);
    fprintf(d->f,
            "<path class=\"mark\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">budget %s</text>\n",
            LEFT, y, RIGHT, RIGHT - 4, y - 5, human_bytes((int64_t)d->c->budget));
}

static void put_legend(const struct drawing *d)
{
    int x = LEFT - 46, y = 52;
    for (int32_t k = 0; k < d->c->n_lines; k++) {
        int width = 34 + 7 * (int)strlen(d->names[k]);
        if (!d->drawn[k])
            continue;
        if (x + width > RIGHT) {
            x = LEFT - 46;
            y += 22;
        }
        fprintf(d->f,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>"
                "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n",
                x, y, colours[k], x + 18, y + 11, d->names[k]);
        x += width;
    }
}

static void put_svg(FILE *f, const void *user)
{
    const struct scaling_chart *c = user;
    struct drawing d = {.c = c,
                        .f = f,
                        .speed = {.top = 128, .bottom = 350, .values = c->efficiency},
                        .memory = {.top = 404, .bottom = 556, .values = c->bytes}};
    /* May exceed 100 %: sharded state makes the update of many ranks faster than on one. */
    d.speed.maximum = 1.04 * largest(c, c->efficiency, 1);
    d.memory.maximum = largest(c, c->bytes, 1);
    if (c->budget && c->budget < 1.5 * d.memory.maximum)
        d.memory.maximum = fmax(d.memory.maximum, c->budget);
    d.memory.maximum *= 1.08;
    join_lines(&d);
    svg_open(f, WIDTH, HEIGHT, LEFT - 46, c->title, c->machine);
    put_axes(&d);
    put_lines(&d, &d.speed);
    put_lines(&d, &d.memory);
    put_budget(&d);
    put_legend(&d);
    fputs("</svg>\n", f);
}

int scaling_svg_write(const struct scaling_chart *c, const char *path)
{
    return lines_write("drawing", path, put_svg, c);
}
