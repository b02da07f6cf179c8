/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a stored picture is displayed; see orientation.h.
 *
 * A display matrix m maps the stored pixel (x, y) to (m[0] x + m[3] y, m[1] x + m[4] y), plus an
 * offset.  Scales and the offset change nothing here.
 */
#include "orientation.h"
#include <math.h>

/* Whether an entry is zero beside another one, within a degree as in FFmpeg's programs. */
static bool is_small(int32_t x, int32_t beside)
{
    return fabs((double)x) < 0.0175 * fabs((double)beside);
}

/* As in FFmpeg, a matrix that maps an axis to nothing is none. */
int orientation_read(struct orientation *o, const int32_t *m)
{
    *o = (struct orientation){.transposed = false};
    if (!m || (!m[0] && !m[3]) || (!m[1] && !m[4]))
        return 0;
    if (is_small(m[1], m[4]) && is_small(m[3], m[0]))
        *o = (struct orientation){false, m[0] < 0, m[4] < 0};
    else if (is_small(m[0], m[3]) && is_small(m[4], m[1]))
        *o = (struct orientation){true, m[3] < 0, m[1] < 0};
    else
        return -1;
    return 0;
}

struct pixels orientation_apply(const struct orientation *o, const uint8_t *rgb, int64_t width,
                                int64_t height, ptrdiff_t line)
{
    struct pixels p = {rgb, 3, line, width, height};

    if (o->transposed)
        p = (struct pixels){rgb, line, 3, height, width};
    if (o->mirrors_x) {
        p.at += (p.width - 1) * p.right;
        p.right = -p.right;
    }
    if (o->mirrors_y) {
        p.at += (p.height - 1) * p.down;
        p.down = -p.down;
    }
    return p;
}
