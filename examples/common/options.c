/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line handling that the programs share: see options.h.  Values are refused with a
 * sentence; no file is opened. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "options.h"
#include "resume.h"
#include "say.h"

/* Numbers with an x between: widthxheight (n = 2) or framesxheightxwidth (3), each 1 to 65,536. */
int option_sizes(const char *option, const char *text, const char *example, int n, int64_t **value)
{
    const char *at = text;

    for (int i = 0; i < n; i++) {
        char *end;
        long v = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (v < 1 || v > 65536 || *end != (i + 1 < n ? 'x' : 0))
            return say_fail("--%s %s: give %s, as %s", option, text,
                            n == 2 ? "a width and a height" : "frames, height and width", example);
        *value[i] = v;
        at = end + 1;
    }
    return 0;
}

/* Units of a time, each at most once and in this order. */
int option_duration(const char *option, const char *text, double *seconds)
{
    static const struct {
        char unit;
        double seconds;
    } parts[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
    enum { PARTS = sizeof parts / sizeof *parts };
    const char *at = text;

    *seconds = 0;
    for (int i = 0; *at && i < PARTS; i++) {
        size_t n = strspn(at, "0123456789.");
        if (!n || at[n] != parts[i].unit)
            continue;
        char *end;
        *seconds += strtod(at, &end) * parts[i].seconds;
        at = end == at + n ? at + n + 1 : "?";
    }
    if (*at || !(*seconds > 0) || *seconds > 1e9)
        return say_fail("--%s %s: give a time, as 30m, 3h30m or 1d12h", option, text);
    return 0;
}

int option_dtype(const char *option, const char *name)
{
    if (strcmp(name, "fp32") && strcmp(name, "bf16"))
        return say_fail("--%s %s: give fp32 or bf16", option, name);
    return 0;
}

int option_clip(const char *clip, const char *input, bool plan_only, bool has_input)
{
    return clip && (!plan_only || has_input)
               ? say_fail("--clip %s: is for --plan-only, in place of %s", clip, input)
               : 0;
}

/* The library refuses a warm-up that is no part of the steps by NaN, for any step. */
int option_schedule(const char *kind, int64_t warmup, int64_t steps, double final_lr,
                    struct ckpt_schedule *schedule)
{
    static const char *const kinds[] = {[CKPT_SCHEDULE_CONSTANT] = "constant",
                                        [CKPT_SCHEDULE_LINEAR] = "linear",
                                        [CKPT_SCHEDULE_COSINE] = "cosine",
                                        [CKPT_SCHEDULE_WSD] = "wsd",
                                        [CKPT_SCHEDULE_INVERSE_SQRT] = "invsqrt"};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int i = 0;

    while (i < KINDS && strcmp(kind, kinds[i]))
        i++;
    if (i == KINDS)
        return say_fail("--schedule %s: give constant, linear, cosine, wsd or invsqrt", kind);
    *schedule = (struct ckpt_schedule)CKPT_SCHEDULE_INIT;
    schedule->kind = (enum ckpt_schedule_kind)i;
    schedule->warmup = warmup;
    schedule->total = steps;
    schedule->final = final_lr;
    if (steps && isnan(ckpt_schedule(schedule, 1, 0)))
        return say_fail("--schedule %s: --warmup %lld must be less than --steps %lld", kind,
                        (long long)warmup, (long long)steps);
    return 0;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* Options of the library that mean nothing to a program that only samples or encodes. */
static const char *const of_training[] = {
    "plan-in",    "plan-out",    "graph-out", "machine-out", "trace-out", "zero",
    "shard-over", "check-ranks", "state",     "activations", "qat",       "qat-ranges",
    "qat-skip",   "sequence",    "stages",    "tensor",      "save-async"};

static bool is_in(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

/* The library options that a program supports.  A program that does not train has no options about
 * plan files or about sharing between ranks. */
static const struct ckpt_option *options_of_library(bool trains)
{
    enum { MOST = 64 };
    static struct ckpt_option rows[MOST];
    int n = 0;

    if (trains)
        return ckpt_options_table();
    for (const struct ckpt_option *row = ckpt_options_table(); row->name && n < MOST - 1; row++)
        if (!is_in(of_training, sizeof of_training / sizeof *of_training, row->name))
            rows[n++] = *row;
    rows[n] = (struct ckpt_option){0};
    return rows;
}

/* Where an option is given twice, its first value would be lost without a word. */
static int check_once(const char *const once[2], int argc, char **argv)
{
    const char *option = once[0];
    const size_t n = strlen(option);
    int found = 0;

    for (int i = 1; i < argc; i++)
        found += !strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, option, n) &&
                 (!argv[i][2 + n] || argv[i][2 + n] == '=');
    return found > 1 ? say_fail("--%s is given twice: %s", option, once[1]) : 0;
}

/* Takes known options out of argv, those of the library first; what is left is options_reject's. */
int options_take(const struct option_reading *r, int *argc, char **argv)
{
    if (r->once && check_once(r->once, *argc, argv))
        return -1;
    int rc = ckpt_options_parse(r->library, argc, argv);

    for (int i = 0; i < OPTION_PARTS && !rc && r->own[i].rows; i++)
        rc = ckpt_option_table_parse(r->own[i].rows, r->own[i].values, argc, argv);
    return rc ? say_fail("%s", ckpt_error(NULL)) : 0;
}

static void print_help(const struct option_reading *r)
{
    fputs(r->usage, stdout);
    for (int i = 0; i < OPTION_PARTS && r->own[i].rows; i++) {
        if (r->own[i].title)
            printf("\n%s:\n", r->own[i].title);
        ckpt_option_table_help(r->own[i].rows, stdout);
    }
    ckpt_option_table_help(options_of_library(r->trains), stdout);
}

/* Returns 1 where the program has nothing to do but print.  Also names a variable of the
 * environment that the library does not know, which is no failure. */
int options_print(const struct option_reading *r)
{
    if (*r->help)
        print_help(r);
    else if (*r->version)
        printf("%s (libckpt) %s\n", say_program, ckpt_version());
    else if (ckpt_environment_check())
        say_note("%s", ckpt_error(NULL));
    return *r->help || *r->version;
}

/* Options that a program does not have are refused, with a name that is like it. */
int options_reject(const struct option_reading *r, int argc, char **argv)
{
    const struct ckpt_option *tables[3] = {options_of_library(r->trains)};
    int n = 1;

    for (int i = 0; i < OPTION_PARTS && r->own[i].rows; i++)
        tables[n++] = r->own[i].rows;
    return ckpt_options_reject(argc, argv, n, tables) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

/* ---- ranks that wait for this one ------------------------------------------------------------ */

void options_refuse(const struct ckpt_options *library, bool elastic)
{
    struct ckpt_options o = *library;
    char where[4200];

    fflush(NULL); /* the others may come late */
    if (!o.ranks || !*o.ranks)
        return;
    snprintf(where, sizeof where, "elastic:1:%s", o.ranks); /* nothing is divided */
    if (elastic && strncmp(o.ranks, "elastic:", 8))
        o.ranks = where;
    ckpt_give_up(NULL, &o, say_failure());
}

/* Takes what says where the job is, and how long its ranks wait.  Other words may be wrong. */
static void take_where(struct ckpt_options *o, int argc, char **argv)
{
    static const char *const where[] = {"ranks", "comm-deadline", "sequence", "tensor"};
    struct ckpt_option table[2] = {{0}};

    for (const struct ckpt_option *row = ckpt_options_table(); row->name; row++) {
        if (!ckpt_option_has_value(row) || !is_in(where, sizeof where / sizeof *where, row->name))
            continue;
        table[0] = *row;
        ckpt_option_table_parse(table, o, &argc, argv);
    }
}

/* words: all that were given. */
static int refuse_words(const struct option_reading *r, int n, char **words)
{
    struct ckpt_options o = *r->library;
    bool elastic = false;

    for (int i = 0; i < n && words; i++)
        elastic |= !strncmp(words[i], "--elastic", 9);
    if (words)
        take_where(&o, n, words);
    options_refuse(&o, elastic);
    return -1;
}

/* argv without the words that the parsers take out of it. */
char **options_copy(int argc, char **argv)
{
    char **words = calloc((size_t)argc + 1, sizeof *words);

    if (words)
        memcpy(words, argv, (size_t)argc * sizeof *words);
    return words;
}

int options_read(const struct option_reading *r, int argc, char **argv)
{
    char **words = options_copy(argc, argv);
    const int n = argc;
    int rc = options_take(r, &argc, argv) || options_reject(r, argc, argv) ? -1 : 0;

    rc = rc ? refuse_words(r, n, words) : options_print(r);
    free(words);
    return rc;
}

/* ---- how options affect a run's results ------------------------------------------------------ */

/* --batch is free: only a step's samples over all ranks count, and the library compares them.  A
 * data path does not identify its contents, so a different path is only reported. */
static const char *const tunes[] = {
    "lr",           "warmup",        "schedule",   "final-lr",  "beta2",      "clip-norm",
    "weight-decay", "ema-decay",     "video",      "video-dir", "vae",        "text",
    "features",     "tensors",       "lpips",      "size",      "data",       "tokenizer",
    "latents",      "videos",        "prompts",    "csv",       "text-drop",  "buckets",
    "images",       "text-encoder",  "loss-chunk", "shared",    "lr-factors", "decay-factors",
    "distill",      "chat-template", "too-long",   "null-text", RESUME_DEALT, "sequence",
    "tensor"};
static const char *const is_free[] = {"adapter",
                                      "batch",
                                      "dump",
                                      "elastic",
                                      "eval",
                                      "frames-2d",
                                      "guidance",
                                      "help",
                                      "keep",
                                      "keep-every",
                                      "load",
                                      "loader-memory",
                                      "log",
                                      "lora-merge",
                                      "max-bad",
                                      "output",
                                      "partial",
                                      "prompt",
                                      "random",
                                      "resume",
                                      "resume-changed",
                                      "sample-every",
                                      "sample-seed",
                                      "sample-steps",
                                      "sample-tokens",
                                      "samples",
                                      "save",
                                      "save-ema",
                                      "save-every",
                                      "save-hf",
                                      "save-state",
                                      "shard-size",
                                      "stages",
                                      "steps",
                                      "temperature",
                                      "tensorboard",
                                      "time-limit",
                                      "top-k",
                                      "top-p",
                                      "val",
                                      "unpack",
                                      "val-batches",
                                      "val-every",
                                      "version",
                                      "workers",
                                      "sample-ema",
                                      "val-ema",
                                      "fps",
                                      "sample-image",
                                      "sample-prompt",
                                      "negative",
                                      "negative-prompt",
                                      "sample-prompts",
                                      "sample-text",
                                      "solver",
                                      "text-encoder",
                                      "guidance-schedule",
                                      "batch-seconds",
                                      "lora-format",
                                      "names",
                                      "lora-other-base",
                                      "save-pt2",
                                      "save-int8",
                                      "save-logits",
                                      "save-low",
                                      "logits-top",
                                      "reference-cache"};
/* Options that may differ between ranks. */
static const char *const is_own[] = {"log", "output", "tensorboard", "help", "version"};

/* An option in none of the lists is one of the model: a state with another value is refused. */
enum option_role option_role(const char *name)
{
    if (is_in(is_free, sizeof is_free / sizeof *is_free, name))
        return OPTION_FREE;
    return is_in(tunes, sizeof tunes / sizeof *tunes, name) ? OPTION_TUNES : OPTION_SHAPES;
}

/* The value as it would be typed; dst holds numbers, texts are borrowed. */
const char *option_text(const struct ckpt_option *row, const void *owner, char dst[32])
{
    const char *at = (const char *)owner + row->offset, *text;
    int64_t number;
    double x;

    switch (row->type) {
    case CKPT_OPT_FLAG:
        return *(const bool *)at ? "yes" : "no";
    case CKPT_OPT_STRING:
        memcpy(&text, at, sizeof text);
        return text ? text : "none";
    case CKPT_OPT_FLOAT:
        memcpy(&x, at, sizeof x);
        snprintf(dst, 32, "%.9g", x);
        if (strtod(dst, NULL) != x) /* use 9 digits if they identify the value */
            snprintf(dst, 32, "%.17g", x);
        return dst;
    default:
        memcpy(&number, at, sizeof number);
        snprintf(dst, 32, "%lld", (long long)number);
        return dst;
    }
}

/* ---- ranks ---------------------------------------------------------------------------------- */

enum { VALUE_BYTES = 64 };

/* Whether ranks must have the same value. */
static bool is_compared(const struct ckpt_option *row)
{
    return ckpt_option_has_value(row) && !is_in(is_own, sizeof is_own / sizeof *is_own, row->name);
}

/* A path: hosts may store a file under different names, so ranks compare only whether one is given.
 */
static bool is_path(const struct ckpt_option *row)
{
    return row->type == CKPT_OPT_STRING &&
           (!strcmp(row->metavar, "FILE") || !strcmp(row->metavar, "DIR"));
}

static int count_rows(const struct option_part own[OPTION_PARTS])
{
    int count = 0;

    for (int i = 0; i < OPTION_PARTS && own[i].rows; i++)
        for (const struct ckpt_option *row = own[i].rows; row->name; row++)
            count += is_compared(row);
    return count;
}

/* The option as "--name", and its value. */
struct words {
    char name[VALUE_BYTES], value[4 * VALUE_BYTES];
};

static void fill_words(struct words *w, const struct ckpt_option *row, const void *values)
{
    char number[32];
    const char *text = option_text(row, values, number);

    snprintf(w->name, sizeof w->name, "--%s", row->name);
    if (is_path(row))
        text = strcmp(text, "none") ? "given" : "not given";
    snprintf(w->value, sizeof w->value, "%s", text);
}

/* One fact for each option that is compared; their texts point into `words`. */
static int fill_facts(const struct option_part own[OPTION_PARTS], struct ckpt_fact *facts,
                      struct words *words)
{
    int at = 0;

    for (int i = 0; i < OPTION_PARTS && own[i].rows; i++) {
        for (const struct ckpt_option *row = own[i].rows; row->name; row++) {
            struct words *w = &words[at];
            if (!is_compared(row))
                continue;
            fill_words(w, row, own[i].values);
            facts[at++] = (struct ckpt_fact){w->name, w->value, strlen(w->value)};
        }
    }
    return at;
}

/* Refuses a process of several that would train alone beside the others. */
int options_alone(const struct ckpt_options *library)
{
    int rank, ranks;

    if (library->ranks || library->plan_only)
        return 0;
    if (ckpt_launched(&rank, &ranks))
        return say_fail("%s (or run alone with --ranks none)", ckpt_error(NULL));
    if (ranks == 1)
        return 0;
    return say_fail("this is process %d of %d that a launcher started, and --ranks is not given: "
                    "each would run alone, and all would write the same files; share the work with "
                    "--ranks mpi or --ranks tcp:HOST:PORT, or run alone with --ranks none",
                    rank, ranks);
}

/* Collective: every rank calls it, with the same program. */
int options_agree(ckpt *c, const struct option_part own[OPTION_PARTS])
{
    int count = count_rows(own);
    struct ckpt_fact *facts = calloc((size_t)count + 1, sizeof *facts);
    struct words *words = calloc((size_t)count + 1, sizeof *words);
    int rc = facts && words ? 0 : say_fail("no memory to compare the options of ranks");

    if (!rc && ckpt_agree(c, facts, fill_facts(own, facts, words)))
        rc = say_fail("%s", ckpt_error(c));
    free(facts);
    free(words);
    return rc;
}
