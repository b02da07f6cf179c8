/* SPDX-License-Identifier: Apache-2.0 */
/* The drawing of a scaling curve: one line for every way to share.  One file, no resources. */
#include <math.h>
#include <string.h>
#include "plan/graph/lines.h"
#include "report/svg.h"
#include "report/world_svg.h"

#define WIDTH  860
#define HEIGHT 480
#define LEFT   76
#define RIGHT  828
#define TOP    104
#define BOTTOM 412

static const char *const colours[] = {"#8a6fc4", "#5b8fd9", "#2f9e76", "#e8a33d",
                                      "#c8553d", "#7a8a99", "#b3668f"};

static double x_of(const struct world_chart *c, int32_t i)
{
    double last = log2((double)c->ranks[c->n - 1]);
    return LEFT + 12 + (last > 0 ? log2((double)c->ranks[i]) / last : 0) * (RIGHT - LEFT - 24);
}

/* The top is above 100 %: shares of state make the update of many ranks faster than that of one. */
static double most(const struct world_chart *c)
{
    double top = 1;
    for (int32_t k = 0; k < c->n_lines; k++)
        for (int32_t i = 0; i < c->n; i++)
            top = fmax(top, c->efficiency[k][i]);
    return 1.04 * top;
}

static double y_of(double efficiency, double top)
{
    return BOTTOM - efficiency / top * (BOTTOM - TOP);
}

static void put_axes(FILE *f, const struct world_chart *c, double top)
{
    for (int percent = 0; percent <= 100 * top; percent += 20)
        fprintf(f,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%d %%</text>\n",
                LEFT, y_of(percent / 100., top), RIGHT, LEFT - 8, y_of(percent / 100., top) + 4,
                percent);
    for (int32_t i = 0; i < c->n; i++)
        fprintf(f,
                "<path class=\"axis\" d=\"M%.1f %dv6\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\">%d</text>\n",
                x_of(c, i), BOTTOM, x_of(c, i), BOTTOM + 22, (int)c->ranks[i]);
    fprintf(f, "<path class=\"axis\" d=\"M%d %dH%d\"/>\n", LEFT, BOTTOM, RIGHT);
    fprintf(f,
            "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">ranks</text>\n"
            "<text class=\"label\" x=\"%d\" y=\"%d\">speed of a rank, 100 %% is one alone without "
            "a budget</text>\n",
            (LEFT + RIGHT) / 2, BOTTOM + 48, LEFT - 46, TOP - 12);
}

static void put_line(FILE *f, const struct world_chart *c, int32_t line, double top)
{
    const double *y = c->efficiency[line];
    bool before = false;
    /* Lines often lie on one another: what is below shows between the dashes. */
    fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2.4\"%s d=\"", colours[line],
            line > 0 && line % 2 == 0 ? " stroke-dasharray=\"9 9\"" : "");
    for (int32_t i = 0; i < c->n; i++) {
        if (y[i] >= 0)
            fprintf(f, "%c%.1f %.1f", before ? 'L' : 'M', x_of(c, i), y_of(y[i], top));
        before = y[i] >= 0;
    }
    fputs("\"/>\n", f);
    for (int32_t i = 0; i < c->n; i++)
        if (y[i] >= 0)
            fprintf(f,
                    "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\"><title>%d ranks, %s: "
                    "%.1f %%</title></circle>\n",
                    colours[line], x_of(c, i), y_of(y[i], top), (int)c->ranks[i], c->names[line],
                    100 * y[i]);
}

static void put_legend(FILE *f, const struct world_chart *c)
{
    int x = LEFT - 46;
    for (int32_t k = 0; k < c->n_lines; k++) {
        fprintf(f,
                "<rect x=\"%d\" y=\"52\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>"
                "<text class=\"tick\" x=\"%d\" y=\"63\">%s</text>\n",
                x, colours[k], x + 18, c->names[k]);
        x += 28 + 6 * (int)strlen(c->names[k]);
    }
}

static void put_svg(FILE *f, const void *user)
{
    const struct world_chart *c = user;
    double top = most(c);
    svg_open(f, WIDTH, HEIGHT, LEFT - 46, c->title, c->machine);
    put_axes(f, c, top);
    for (int32_t k = 0; k < c->n_lines; k++)
        put_line(f, c, k, top);
    put_legend(f, c);
    fputs("</svg>\n", f);
}

int world_svg_write(const struct world_chart *c, const char *path, struct error *error)
{
    return lines_write("drawing", path, put_svg, c, error);
}
