/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets of H.264; see video_h264.h.
 *
 * A packet is a row of NAL units.  In MP4 and Matroska a length precedes each (avcC, ISO/IEC
 * 14496-15); elsewhere the bytes 0, 0, 1 do.
 */
#include "video_h264.h"
#include <stddef.h>
#include <string.h>

enum { NAL_TYPE = 0x1f, NAL_IDR = 5 };

static bool is_idr(uint8_t first)
{
    return (first & NAL_TYPE) == NAL_IDR;
}

static bool find_by_length(const uint8_t *at, size_t n, size_t digits)
{
    while (n > digits) {
        size_t length = 0;
        for (size_t i = 0; i < digits; i++)
            length = length << 8 | at[i];
        if (is_idr(at[digits]))
            return true;
        if (length > n - digits)
            return false;
        at += digits + length;
        n -= digits + length;
    }
    return false;
}

static bool find_by_mark(const uint8_t *at, size_t n)
{
    static const uint8_t mark[] = {0, 0, 1};

    for (size_t i = 0; i + sizeof mark < n; i++)
        if (!memcmp(at + i, mark, sizeof mark) && is_idr(at[i + sizeof mark]))
            return true;
    return false;
}

bool video_h264_has_idr(const uint8_t *extra, int extra_size, const uint8_t *packet, int size)
{
    size_t n = size > 0 ? (size_t)size : 0;

    if (extra && extra_size > 4 && extra[0] == 1) /* avcC */
        return find_by_length(packet, n, (extra[4] & 3u) + 1);
    return find_by_mark(packet, n);
}
