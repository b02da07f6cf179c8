/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame sizes of buckets: see aspect.h.
 *
 * Sizes named by lines ("480p") have 17 ratios; a frame has about the nominal pixels and even
 * sides.  Some frames of Open-Sora's tables were edited by hand and differ from its formula: these
 * are listed here.  The square sizes have PixArt's 40 ratios, with sides in units.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "aspect.h"

#define LENGTH(a) (int)(sizeof(a) / sizeof *(a))

static const struct aspect_size sizes[] = {
    {"144p", 36864, 0},    {"256", 65536, 16},  {"240p", 102240, 0},    {"360p", 230400, 0},
    {"512", 262144, 32},   {"480p", 409920, 0}, {"720p", 921600, 0},    {"1024", 1048576, 64},
    {"1080p", 2073600, 0}, {"2k", 3686400, 0},  {"2048", 4194304, 128}, {"2880", 8294400, 64},
    {"4k", 8294400, 0},
};

const struct aspect_size *aspect_find(const char *name)
{
    for (int i = 0; i < LENGTH(sizes); i++)
        if (!strcmp(sizes[i].name, name))
            return &sizes[i];
    return NULL;
}

const char *aspect_names(void)
{
    return "144p, 256, 240p, 360p, 512, 480p, 720p, 1024, 1080p, 2k, 2048, 2880 and 4k";
}

/* ---- frames by number of pixels ------------------------------------------------------------- */

struct ratio {
    int label; /* hundredths */
    int height, width;
};

/* The label 2.08 has the frames of 25:12; Open-Sora's list has 50:27. */
static const struct ratio ratios[] = {
    {38, 3, 8},  {43, 9, 21},  {48, 12, 25}, {50, 1, 2},  {53, 9, 17},   {54, 27, 50},
    {56, 9, 16}, {62, 5, 8},   {67, 2, 3},   {75, 3, 4},  {100, 1, 1},   {133, 4, 3},
    {150, 3, 2}, {178, 16, 9}, {189, 17, 9}, {200, 2, 1}, {208, 25, 12},
};

/* The first of equally near ratios is selected; the list of 4k has 0.62 before 0.56. */
static int in_list(const struct aspect_size *s, int ratio)
{
    bool swapped = !strcmp(s->name, "4k") && (ratio == 6 || ratio == 7);

    return swapped ? 13 - ratio : ratio;
}

static const struct {
    const char *size;
    struct ratio frame;
} by_hand[] = {
    {"144p", {38, 117, 312}},    {"144p", {43, 125, 291}},  {"144p", {48, 133, 277}},
    {"144p", {50, 135, 270}},    {"144p", {53, 139, 262}},  {"144p", {54, 141, 260}},
    {"144p", {62, 151, 241}},    {"144p", {75, 166, 221}},  {"144p", {133, 221, 165}},
    {"144p", {150, 235, 156}},   {"144p", {189, 263, 139}}, {"144p", {200, 271, 135}},
    {"144p", {208, 277, 132}},   {"240p", {54, 236, 436}},  {"240p", {67, 262, 393}},
    {"480p", {48, 444, 925}},    {"480p", {133, 740, 555}}, {"720p", {54, 706, 1306}},
    {"1080p", {54, 1058, 1958}}, {"2k", {54, 1412, 2612}},  {"4k", {54, 2118, 3918}},
};

/* Rounds up to a whole number if it is even, else down. */
static int64_t even(double side)
{
    int64_t up = (int64_t)ceil(side + 1e-4);

    return up % 2 ? (int64_t)floor(side + 1e-4) : up;
}

static void lines_frame(const struct aspect_size *s, const struct ratio *r, int64_t *height,
                        int64_t *width)
{
    double ratio = (double)r->height / r->width;

    *height = even(sqrt((double)s->pixels * ratio));
    *width = even((double)*height / ratio);
    for (int i = 0; i < LENGTH(by_hand); i++)
        if (by_hand[i].frame.label == r->label && !strcmp(by_hand[i].size, s->name)) {
            *height = by_hand[i].frame.height;
            *width = by_hand[i].frame.width;
        }
}

/* ---- frames in units ------------------------------------------------------------------------- */

static const struct ratio square[] = {
    {25, 8, 32},   {26, 8, 31},   {27, 8, 30},   {28, 8, 29},   {32, 9, 28},   {33, 9, 27},
    {35, 9, 26},   {40, 10, 25},  {42, 10, 24},  {48, 11, 23},  {50, 11, 22},  {52, 11, 21},
    {57, 12, 21},  {60, 12, 20},  {68, 13, 19},  {72, 13, 18},  {78, 14, 18},  {82, 14, 17},
    {88, 15, 17},  {94, 15, 16},  {100, 16, 16}, {107, 16, 15}, {113, 17, 15}, {121, 17, 14},
    {129, 18, 14}, {138, 18, 13}, {146, 19, 13}, {167, 20, 12}, {175, 21, 12}, {200, 22, 11},
    {209, 23, 11}, {240, 24, 10}, {250, 25, 10}, {289, 26, 9},  {300, 27, 9},  {311, 28, 9},
    {362, 29, 8},  {375, 30, 8},  {388, 31, 8},  {400, 32, 8},
};

static const struct ratio square_2880[] = {
    {25, 22, 90},  {26, 22, 87},  {27, 22, 84},  {28, 22, 81},  {32, 25, 78},  {33, 25, 75},
    {34, 25, 73},  {40, 28, 70},  {42, 28, 67},  {47, 30, 64},  {49, 30, 61},  {51, 30, 59},
    {55, 33, 60},  {59, 33, 56},  {68, 36, 53},  {72, 36, 50},  {78, 39, 50},  {83, 39, 47},
    {89, 42, 47},  {93, 42, 45},  {100, 45, 45}, {107, 45, 42}, {112, 47, 42}, {121, 47, 39},
    {128, 50, 39}, {139, 50, 36}, {147, 53, 36}, {170, 56, 33}, {182, 60, 33}, {203, 61, 30},
    {213, 64, 30}, {239, 67, 28}, {250, 70, 28}, {292, 73, 25}, {300, 75, 25}, {312, 78, 25},
    {368, 81, 22}, {382, 84, 22}, {395, 87, 22}, {400, 90, 22},
};

/* ---- both ------------------------------------------------------------------------------------ */

static const struct ratio *ratio_at(const struct aspect_size *s, int ratio)
{
    if (!s->unit)
        return &ratios[in_list(s, ratio)];
    return strcmp(s->name, "2880") ? &square[ratio] : &square_2880[ratio];
}

int aspect_count(const struct aspect_size *s)
{
    return s->unit ? LENGTH(square) : LENGTH(ratios);
}

int aspect_label(const struct aspect_size *s, int ratio)
{
    return ratio_at(s, ratio)->label;
}

void aspect_frame(const struct aspect_size *s, int ratio, int64_t *height, int64_t *width)
{
    const struct ratio *r = ratio_at(s, ratio);

    *height = r->height * s->unit;
    *width = r->width * s->unit;
    if (!s->unit)
        lines_frame(s, r, height, width);
}

int aspect_nearest(const struct aspect_size *s, int64_t height, int64_t width)
{
    double ratio = (double)height / (double)width, least = INFINITY;
    int nearest = 0;

    for (int i = 0; i < aspect_count(s); i++) {
        double away = fabs(aspect_label(s, i) / 100.0 - ratio);
        if (away < least) {
            least = away;
            nearest = i;
        }
    }
    return nearest;
}
