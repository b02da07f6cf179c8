/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target of command lines: the bytes are arguments, each ended by a zero or a line end, for
 * the options of the library and for a table like those of the trainers.  Accepted values are
 * within their range, and nothing outside of the structs is written.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "fuzz/fuzz.h"

struct trainer {
    uint64_t before;
    const char *model, *size;
    int64_t hidden, steps, part, seed;
    double lr, decay;
    bool partial;
    uint64_t after;
};

#define ROW(...)   CKPT_OPTION(struct trainer, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct trainer, __VA_ARGS__)
#define GUARD      UINT64_C(0x5a5a5a5a5a5a5a5a)

static const struct ckpt_option table[] = {
    ROW("model", STRING, model, "NAME", "preset"),
    ROW("size", STRING, size, "WxH", "size"),
    RANGE("hidden", INT, hidden, "N", "width", 4, 65536),
    RANGE("steps", INT, steps, "N", "steps", 0, 1000000000),
    RANGE("frames-2d", COUNT, part, "N", "frames", 0, 4096),
    ROW("sample-seed", INT, seed, "N", "any number"),
    RANGE("lr", FLOAT, lr, "X", "learning rate", 0, 1e30),
    RANGE("ema-decay", FLOAT, decay, "X", "decay", 0, 0.9999999),
    ROW("partial", FLAG, partial, NULL, "switch"),
    {0},
};

enum { MOST = 64 };

/* The arguments behind a name; the words lie in text. */
static int split(char *text, size_t size, char *argv[MOST + 2])
{
    int argc = 1;

    argv[0] = (char *)"fuzz";
    for (size_t at = 0; at < size && argc <= MOST; at += strlen(text + at) + 1)
        argv[argc++] = text + at;
    argv[argc] = NULL;
    return argc;
}

static void check(const struct trainer *t)
{
    if (t->before != GUARD || t->after != GUARD)
        abort();
    if (t->hidden != -1 && (t->hidden < 4 || t->hidden > 65536))
        abort();
    if (t->steps != -1 && (t->steps < 0 || t->steps > 1000000000))
        abort();
    if (t->part < CKPT_AUTO || t->part > 4096)
        abort();
    if (t->lr != -1 && !(t->lr >= 0 && t->lr <= 1e30))
        abort();
    if (!(t->decay >= 0 && t->decay < 1) || (t->model && !*t->model))
        abort();
}

static void run(int argc, char **argv)
{
    const struct ckpt_option *tables[] = {table, ckpt_options_table()};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct trainer t = {.before = GUARD, .hidden = -1, .steps = -1, .lr = -1, .after = GUARD};
    int rc = ckpt_options_parse(&o, &argc, argv);

    if (!rc)
        rc = ckpt_option_table_parse(table, &t, &argc, argv);
    check(&t);
    bool budget = o.vram >= -100 || o.vram == CKPT_VRAM_AUTO;
    if (!rc && (o.micro_batch < CKPT_AUTO || o.threads < 0 || o.host < -100 || !budget ||
                o.zero < CKPT_AUTO || o.zero > 3 || !(o.io_deadline >= 0)))
        abort();
    if (!rc)
        rc = ckpt_options_reject(argc, argv, 2, tables);
    if (argc < 1 || argv[argc])
        abort();
    /* A word with a line end cannot come here: they divide words. */
    if (rc)
        fuzz_sentence(rc, error_get());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[MOST + 2], *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\n')
            text[i] = 0;
    run(split(text, size, argv), argv);
    free(text);
    return 0;
}
