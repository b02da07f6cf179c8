/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damages files: bits and bytes, ranges, lines, numbers in binary and in text, values of JSON.
 * Every choice comes from the seed.
 */
#include <string.h>
#include "fuzz/mutate.h"

/* The bytes to change, and the state of the generator (splitmix64). */
struct piece {
    uint8_t *at;
    size_t n, room;
    uint64_t state;
};

static uint64_t draw(struct piece *p, uint64_t below)
{
    uint64_t x = p->state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return below ? (x ^ x >> 31) % below : 0;
}

/* Replaces `old` bytes by m bytes, or by m times the byte fill. */
static void replace(struct piece *p, size_t at, size_t old, const void *bytes, size_t m, int fill)
{
    uint8_t copy[4096];

    if (m > sizeof copy || p->n - old + m > p->room)
        return;
    if (bytes)
        memcpy(copy, bytes, m); /* which may lie in the piece */
    else
        memset(copy, fill, m);
    memmove(p->at + at + m, p->at + at + old, p->n - at - old);
    memcpy(p->at + at, copy, m);
    p->n += m - old;
}

static void put_text(struct piece *p, size_t at, size_t old, const char *text)
{
    replace(p, at, old, text, strlen(text), 0);
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

static void flip_bit(struct piece *p)
{
    size_t at = draw(p, p->n);

    p->at[at] ^= (uint8_t)(1u << draw(p, 8));
}

static void set_byte(struct piece *p)
{
    static const uint8_t bytes[] = {0,  1,  9,  10,  13,  27,  32,  34,  44,  45,
                                    91, 92, 93, 123, 125, 127, 128, 192, 237, 255};
    size_t at = draw(p, p->n);

    p->at[at] = bytes[draw(p, sizeof bytes)];
}

static void cut_end(struct piece *p)
{
    p->n = draw(p, p->n + 1);
}

static void cut_range(struct piece *p)
{
    size_t at = draw(p, p->n), most = p->n - at < 64 ? p->n - at : 64;

    replace(p, at, 1 + draw(p, most), NULL, 0, 0);
}

static void copy_range(struct piece *p)
{
    size_t from = draw(p, p->n), m = 1 + draw(p, p->n - from < 64 ? p->n - from : 64);

    replace(p, draw(p, p->n), 0, p->at + from, m, 0);
}

/* A little-endian whole number of 2, 4 or 8 bytes. */
static void set_number(struct piece *p)
{
    static const int64_t numbers[] = {
        0,     1,         -1,        2,          127,       255,       256,     32767,  65535,
        65536, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 1 << 24, 1 << 30};
    size_t width = (size_t)2 << draw(p, 3), at = draw(p, p->n);
    int64_t x = numbers[draw(p, sizeof numbers / sizeof *numbers)];

    at -= draw(p, 2) ? at % width : 0;
    if (at + width <= p->n)
        memcpy(p->at + at, &x, width);
}

static void nest(struct piece *p)
{
    replace(p, draw(p, p->n), 0, NULL, 1 + draw(p, 4095), draw(p, 2) ? '[' : '(');
}

static void insert_odd(struct piece *p)
{
    static const char *const odd[] = {
        "\xff",         "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xef\xbb\xbf", "\\u0000",  "\\ud800",      "\x1b[2J",
        "%s%n",         "\"\"",     "../../",       "{\"a\":1,\"a\":2}"};

    put_text(p, draw(p, p->n), 0, odd[draw(p, sizeof odd / sizeof *odd)]);
}

/* ---- lines -------------------------------------------------------------------------------------
 */

/* The line around a place, with its end. */
static size_t line_at(const struct piece *p, size_t *at)
{
    size_t end = *at;

    while (*at && p->at[*at - 1] != '\n')
        --*at;
    while (end < p->n && p->at[end] != '\n')
        end++;
    return end + (end < p->n) - *at;
}

static void change_lines(struct piece *p)
{
    size_t from = draw(p, p->n), n = line_at(p, &from), to = draw(p, p->n);

    line_at(p, &to);
    if (draw(p, 2))
        replace(p, from, n, NULL, 0, 0);
    else
        replace(p, to, 0, p->at + from, n, 0);
}

/* ---- values of text ----------------------------------------------------------------------------
 */

static bool is_number(uint8_t c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The next number from a random place on.  Returns its length, 0: there is none. */
static size_t find_number(struct piece *p, size_t *at)
{
    size_t n = 0;

    for (*at = draw(p, p->n); *at < p->n && (p->at[*at] < '0' || p->at[*at] > '9'); ++*at)
        ;
    while (*at && is_number(p->at[*at - 1]))
        --*at;
    while (*at + n < p->n && is_number(p->at[*at + n]))
        n++;
    return n;
}

static void change_number(struct piece *p)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "7",
                                          "-1",
                                          "-0",
                                          "0.5",
                                          "1e30",
                                          "1e300",
                                          "1e999",
                                          "-1e300",
                                          "1e-320",
                                          "nan",
                                          "inf",
                                          "-inf",
                                          "255",
                                          "256",
                                          "65536",
                                          "65537",
                                          "16777215",
                                          "16777216",
                                          "1048576",
                                          "4096",
                                          "2147483647",
                                          "2147483648",
                                          "4294967295",
                                          "4294967296",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "0x10",
                                          "1,5",
                                          ""};
    size_t at, n = find_number(p, &at);

    if (n)
        put_text(p, at, n, numbers[draw(p, sizeof numbers / sizeof *numbers)]);
}

/* Replaces a string of JSON with its quotes, or the text after a colon, by another value. */
static void change_value(struct piece *p)
{
    static const char *const values[] = {"null", "true", "false",      "\"\"", "\"x\"",
                                         "[]",   "{}",   "[1]",        "-1",   "0",
                                         "1.5",  "[[]]", "\"\\u0001\""};
    size_t at = draw(p, p->n), n = 1;

    while (at < p->n && p->at[at] != '"' && p->at[at] != ':')
        at++;
    if (at < p->n && p->at[at] == ':')
        at++;
    while (at + n < p->n && p->at[at + n] != '"' && p->at[at + n] != ',' && p->at[at + n] != '}')
        n++;
    if (at + n < p->n)
        put_text(p, at, n + (p->at[at + n] == '"'),
                 values[draw(p, sizeof values / sizeof *values)]);
}

/* ---- all ---------------------------------------------------------------------------------------
 */

static void mutate_piece(struct piece *p)
{
    static void (*const ways[])(struct piece *) = {
        flip_bit,   set_byte,     cut_end,       cut_range,     copy_range,   set_number,  nest,
        insert_odd, change_lines, change_number, change_number, change_value, change_value};

    for (uint64_t i = 1 + draw(p, 4); i && p->n; i--)
        ways[draw(p, sizeof ways / sizeof *ways)](p);
}

/* JSON bytes after a length, as in safetensors; 0: there is none. */
static uint64_t header_of(const uint8_t *data, size_t n)
{
    uint64_t length = 0;

    if (n > 8)
        memcpy(&length, data, sizeof length);
    return length && length <= n - 8 && data[8] == '{' ? length : 0;
}

size_t mutate(uint8_t *data, size_t n, size_t room, uint64_t seed)
{
    struct piece p = {data, n, room, seed};
    uint64_t header = header_of(data, n), before = header;

    if (!n)
        return 0;
    if (!header || !draw(&p, 4)) {
        mutate_piece(&p);
        return p.n;
    }
    uint8_t text[1 << 16];
    if (header > sizeof text / 2)
        return n;
    p = (struct piece){memcpy(text, data + 8, header), header, sizeof text, p.state};
    mutate_piece(&p);
    if (n - before + p.n > room)
        return n;
    memmove(data + 8 + p.n, data + 8 + before, n - 8 - before);
    memcpy(data + 8, text, p.n);
    header = p.n;
    memcpy(data, &header, sizeof header);
    return n - before + p.n;
}
