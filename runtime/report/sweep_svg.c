/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drawing of a sweep: compute, recompute and exposed copies stacked over the device budget.
 * One self-contained file.
 */
#include <math.h>
#include <string.h>
#include "core/file.h"
#include "plan/graph/lines.h"
#include "report/svg.h"
#include "report/sweep_svg.h"

#define WIDTH  860
#define HEIGHT 512
#define LEFT   76
#define RIGHT  828
#define TOP    84
#define BOTTOM 412

#define LOG_SPAN 3. /* ratio of budgets from which the axis is logarithmic */

struct drawing {
    const struct sweep *s;
    FILE *f;
    double x0, x1, y0, y1; /* ranges, in the units of the axes */
    double byte_unit, second_unit;
    bool logarithm; /* the budget axis is logarithmic */
    const char *byte_name, *second_name;
};

/* Parts of a step's time from bottom to top; each is drawn above the sum of the parts below it. */
enum part { PART_COMPUTE, PART_RECOMPUTE, PART_EXPOSED, PART_COUNT };
static const char *const part_names[] = {"compute", "recompute", "exposed"};
static const char *const part_colours[] = {"#4f86d6", "#e8a33d", "#b8478f"};

/* Seconds up to the upper edge of a part. */
static double top_of(const struct plan *p, int part)
{
    double seconds = plan_compute_seconds(p);
    if (part >= PART_RECOMPUTE)
        seconds += p->recompute_seconds;
    return part >= PART_EXPOSED ? p->seconds : seconds;
}

static double x_of(const struct drawing *d, double bytes)
{
    double x = bytes / d->byte_unit;
    double share =
        d->logarithm ? log(x / d->x0) / log(d->x1 / d->x0) : (x - d->x0) / (d->x1 - d->x0);
    return LEFT + share * (RIGHT - LEFT);
}

static double y_of(const struct drawing *d, double seconds)
{
    return BOTTOM - (seconds / d->second_unit - d->y0) / (d->y1 - d->y0) * (BOTTOM - TOP);
}

static void set_ranges(struct drawing *d)
{
    const struct sweep *s = d->s;
    double slowest = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (s->plans[i])
            slowest = fmax(slowest, s->plans[i]->seconds);
    double bytes = (double)s->budgets[s->n - 1];
    d->byte_unit = bytes >= 0x1p30 ? 0x1p30 : bytes >= 0x1p20 ? 0x1p20 : 0x1p10;
    d->byte_name = bytes >= 0x1p30 ? "GiB" : bytes >= 0x1p20 ? "MiB" : "KiB";
    d->second_unit = slowest >= 1 ? 1 : slowest >= 1e-3 ? 1e-3 : 1e-6;
    d->second_name = slowest >= 1 ? "seconds" : slowest >= 1e-3 ? "ms" : "us";
    d->x0 = (double)s->budgets[0] / d->byte_unit;
    d->x1 = bytes / d->byte_unit;
    d->logarithm = d->x1 > LOG_SPAN * d->x0;
    double margin = fmax(.04 * (d->x1 - d->x0), 1e-9), factor = pow(d->x1 / d->x0, .03);
    d->x0 = d->logarithm ? d->x0 / factor : fmax(0, d->x0 - margin);
    d->x1 = d->logarithm ? d->x1 * factor : d->x1 + margin;
    d->y0 = 0;
    d->y1 = slowest > 0 ? 1.08 * slowest / d->second_unit : 1;
}

static void put_budget_tick(const struct drawing *d, double at)
{
    double x = x_of(d, at * d->byte_unit);
    fprintf(d->f,
            "<path class=\"axis\" d=\"M%.1f %dv6\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"middle\">%g</text>\n",
            x, BOTTOM, x, BOTTOM + 22, at);
}

/* Ticks at 1, 2, 5, 10, ...; with 1.5, 3 and 7 on short axes. */
static void put_log_ticks(const struct drawing *d)
{
    static const double few[] = {1, 2, 5}, many[] = {1, 1.5, 2, 3, 5, 7};
    bool wide = d->x1 > 30 * d->x0;
    for (double power = pow(10, floor(log10(d->x0))); power <= d->x1; power *= 10)
        for (int i = 0; i < (wide ? 3 : 6); i++) {
            double at = power * (wide ? few[i] : many[i]);
            if (at >= d->x0 && at <= d->x1)
                put_budget_tick(d, at);
        }
}

static void put_axes(const struct drawing *d)
{
    double step = svg_tick_step(d->y1 - d->y0, 6), pixels = (BOTTOM - TOP) / (d->y1 - d->y0);
    for (int i = 0; i * step <= d->y1; i++)
        fprintf(d->f,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>\n",
                LEFT, BOTTOM - i * step * pixels, RIGHT, LEFT - 10, BOTTOM - i * step * pixels + 4,
                i * step);
    step = svg_tick_step(d->x1 - d->x0, 9);
    if (d->logarithm)
        put_log_ticks(d);
    else
        for (double i = ceil(d->x0 / step); i * step <= d->x1; i++)
            put_budget_tick(d, i * step);
    fprintf(d->f, "<path class=\"axis\" d=\"M%d %dH%d\"/>\n", LEFT, BOTTOM, RIGHT);
    fprintf(d->f,
            "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">device budget, "
            "%s%s</text>\n",
            (LEFT + RIGHT) / 2, BOTTOM + 46, d->byte_name, d->logarithm ? " (logarithmic)" : "");
    fprintf(d->f, "<text class=\"label\" x=\"%d\" y=\"%d\">%s a step</text>\n", LEFT - 46, TOP - 16,
            d->second_name);
}

/* Notes below the axes: memory of the process in each budget, the lower tiers, and what is not
 * drawn. */
static void put_notes(const struct drawing *d)
{
    const struct sweep *s = d->s;
    fprintf(d->f, "<text class=\"tick\" x=\"%d\" y=\"%d\">", LEFT - 46, BOTTOM + 74);
    if (s->process)
        fprintf(d->f, "Each budget holds %s of context and libraries. ", human_bytes(s->process));
    fputs(s->host || s->nvme ? "Lower tiers: " : "No lower tiers. ", d->f);
    if (s->host)
        fprintf(d->f, "%s of host memory%s", human_bytes(s->host), s->nvme ? ", " : ". ");
    if (s->nvme)
        fprintf(d->f, "%s of NVMe. ", human_bytes(s->nvme));
    if (s->fastest > s->budgets[s->n - 1])
        fprintf(d->f,
                "<tspan x=\"%d\" dy=\"18\">The step that keeps everything needs %s, more than the "
                "machine has, and is not drawn.</tspan>",
                LEFT - 46, human_bytes(s->fastest));
    fputs("</text>\n", d->f);
}

/* The band of one part, between the sum below it and its own. */
static void put_part(const struct drawing *d, int part)
{
    const struct sweep *s = d->s;
    char command = 'M';
    fprintf(d->f, "<path fill=\"%s\" d=\"", part_colours[part]);
    for (int32_t i = 0; i < s->n; i++)
        if (s->plans[i]) {
            fprintf(d->f, "%c%.1f %.1f", command, x_of(d, (double)s->budgets[i]),
                    y_of(d, top_of(s->plans[i], part)));
            command = 'L';
        }
    for (int32_t i = s->n - 1; i >= 0; i--)
        if (s->plans[i])
            fprintf(d->f, "L%.1f %.1f", x_of(d, (double)s->budgets[i]),
                    part ? y_of(d, top_of(s->plans[i], part - 1)) : BOTTOM);
    fputs("Z\"/>\n", d->f);
}

static void put_points(const struct drawing *d)
{
    const struct sweep *s = d->s;
    for (int32_t i = 0; i < s->n; i++) {
        const struct plan *p = s->plans[i];
        if (!p)
            continue;
        double base = top_of(p, PART_COMPUTE);
        fprintf(d->f,
                "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"><title>%s: %.4g s "
                "(+%.1f%%)</title></circle>\n",
                x_of(d, (double)s->budgets[i]), y_of(d, p->seconds), s->n > 60 ? 1.6 : 3.,
                human_bytes(s->budgets[i]), p->seconds,
                base > 0 ? 100 * (p->seconds / base - 1) : 0.);
    }
}

static void put_bound(const struct drawing *d)
{
    const struct sweep *s = d->s;
    char command = 'M';
    fputs("<path class=\"bound\" d=\"", d->f);
    for (int32_t i = 0; i < s->n; i++)
        if (s->plans[i] && s->plans[i]->bound_seconds > 0) {
            fprintf(d->f, "%c%.1f %.1f", command, x_of(d, (double)s->budgets[i]),
                    y_of(d, s->plans[i]->bound_seconds));
            command = 'L';
        }
    fputs("\"/>\n", d->f);
}

static void put_mark(const struct drawing *d)
{
    double mark = (double)d->s->mark / d->byte_unit;
    if (!d->s->mark || mark < d->x0 || mark > d->x1)
        return;
    double x = x_of(d, (double)d->s->mark);
    bool left = x > (LEFT + RIGHT) / 2;
    fprintf(d->f,
            "<path class=\"mark\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"%s\">--vram %.4g %s</text>\n",
            x, TOP, BOTTOM, left ? x - 6 : x + 6, TOP + 14, left ? "end" : "start", mark,
            d->byte_name);
}

static void put_legend(const struct drawing *d)
{
    static const int at[] = {RIGHT - 406, RIGHT - 308, RIGHT - 202};
    for (int part = 0; part < PART_COUNT; part++)
        fprintf(d->f,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>"
                "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n",
                at[part], TOP - 28, part_colours[part], at[part] + 18, TOP - 18, part_names[part]);
    fprintf(d->f,
            "<path class=\"bound\" d=\"M%d %dh22\"/><text class=\"tick\" x=\"%d\" "
            "y=\"%d\">lower bound</text>\n",
            RIGHT - 104, TOP - 22, RIGHT - 76, TOP - 18);
}

static void put_svg(FILE *f, const void *user)
{
    struct drawing d = {.s = user, .f = f};
    set_ranges(&d);
    char title[128];
    const char *name = file_name_of(d.s->graph), *end = strrchr(name, '.');
    int length = end && end > name ? (int)(end - name) : (int)strlen(name);
    snprintf(title, sizeof title, "Step time of %.*s", length, name);
    svg_open(f, WIDTH, HEIGHT, LEFT - 46, title, d.s->machine);
    put_axes(&d);
    for (int part = 0; part < PART_COUNT; part++)
        put_part(&d, part);
    put_bound(&d);
    put_points(&d);
    put_mark(&d);
    put_legend(&d);
    put_notes(&d);
    fputs("</svg>\n", f);
}

int sweep_svg_write(const struct sweep *s, const char *path)
{
    return lines_write("drawing", path, put_svg, s);
}
