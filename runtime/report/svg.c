/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of drawings: see svg.h. */
#include <math.h>
#include "report/svg.h"

/* Writes user text into a drawing without markup or control characters. */
static void svg_put_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            fprintf(f, "&#%d;", *text);
        else if ((unsigned char)*text >= 0x20)
            fputc(*text, f);
    }
}

double svg_tick_step(double range, int n)
{
    double step = pow(10, floor(log10(range / n)));
    double rest = range / n / step;
    return step * (rest > 5 ? 10 : rest > 2 ? 5 : rest > 1 ? 2 : 1);
}

void svg_open(FILE *f, int width, int height, int left, const char *title, const char *second)
{
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"system-ui, sans-serif\" role=\"img\">\n<title>",
            width, height);
    svg_put_text(f, title);
    fputs(
        "</title>\n<style>\n"
        ".page{fill:#ffffff}.grid{stroke:#e3e6ea}.axis{stroke:#59636e;fill:none}\n"
        ".bound{stroke:#1f2328;fill:none;stroke-dasharray:5 4;stroke-width:1.4}\n"
        ".mark{stroke:#b3261e;stroke-width:1.6}.point{fill:#1f2328}\n"
        ".tick{font-size:13px;fill:#3d444d}.label{font-size:14px;fill:#1f2328}\n"
        ".title{font-size:17px;font-weight:600;fill:#1f2328}.second{font-weight:400;fill:#59636e}\n"
        "@media(prefers-color-scheme:dark){\n"
        ".page{fill:#0d1117}.grid{stroke:#2a313a}.axis{stroke:#8d96a0}\n"
        ".bound{stroke:#e6edf3}.mark{stroke:#ff7b72}.point{fill:#e6edf3}\n"
        ".tick{fill:#b6bec8}.label,.title{fill:#e6edf3}.second{fill:#8d96a0}}\n</style>\n",
        f);
    fprintf(f, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", width, height);
    fprintf(f, "<text class=\"title\" x=\"%d\" y=\"32\">", left);
    svg_put_text(f, title);
    fputs("<tspan class=\"second\" dx=\"10\">", f);
    svg_put_text(f, second);
    fputs("</tspan></text>\n", f);
}
