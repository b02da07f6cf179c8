/* SPDX-License-Identifier: Apache-2.0 */
/* See split_auto.h.  Each number is planned as it would be trained, so what a model refuses for
 * one number is refused here with the same sentence. */
#include "split_auto.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "remedies.h"
#include "say.h"

enum { SEQUENCE, TENSOR, STAGES, KINDS };
enum { WORDS = 2 * KINDS + 3, NUMBER = 24 };

static const char *const options[KINDS] = {"--sequence", "--tensor", "--stages"};

#define TOLD "a step of the plan: "

/* A plan counts as faster if it takes less than this part of the time. */
static const double faster = 1 - 1e-4;

/* Ranks of a group by kind; 1: they split nothing.  At most one is more. */
struct split {
    int64_t n[KINDS];
};

struct choice {
    struct split split; /* 0: none fits */
    double seconds;     /* of a step, times the ranks of a group: of as many samples */
    double alone;       /* the same of ranks that split nothing; 0: it does not fit */
};

static int64_t *option_of(struct ckpt_options *o, int kind)
{
    return kind == SEQUENCE ? &o->sequence : kind == TENSOR ? &o->tensor : &o->stages;
}

static bool is_auto(const struct trainer *t, int kind)
{
    return *option_of(t->library, kind) == CKPT_AUTO;
}

static int64_t ranks_of(const struct split *s)
{
    return s->n[SEQUENCE] * s->n[TENSOR] * s->n[STAGES];
}

/* The options that are chosen: with a split "sequence 2, tensor 1", else as they were given. */
static const char *name(const struct trainer *t, const struct split *s, char dst[80])
{
    size_t n = 0;

    for (int kind = 0; kind < KINDS; kind++)
        if (is_auto(t, kind) && s)
            n += (size_t)snprintf(dst + n, 80 - n, "%s%s %lld", n ? ", " : "", options[kind] + 2,
                                  (long long)s->n[kind]);
        else if (is_auto(t, kind))
            n += (size_t)snprintf(dst + n, 80 - n, "%s%s auto", n ? " " : "", options[kind]);
    return dst;
}

/* One that is auto: of several the last one. */
static const char *one_of(const struct trainer *t)
{
    int kind = KINDS - 1;

    while (kind > 0 && !is_auto(t, kind))
        kind--;
    return options[kind];
}

/* ---- what the run is ------------------------------------------------------------------------- */

/* The ranks of the job and the number of this one.  Returns 0, or -1 after an error message. */
static int find_world(const struct ckpt_options *o, int *rank, int *world)
{
    *rank = 0;
    *world = 1;
    if (!o->ranks || !*o->ranks || !strcmp(o->ranks, "none"))
        return 0;
    if (*o->ranks >= '0' && *o->ranks <= '9') { /* the library checks it */
        *world = atoi(o->ranks);
        return 0;
    }
    return ckpt_launched(rank, world) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

static int64_t note_of(const ckpt_file *f, const char *key)
{
    const char *was = ckpt_file_note(f, key);

    return was ? strtoll(was, NULL, 10) : 0;
}

/* That of the state to resume, with 0 for what it does not say.  The newest of --resume auto is
 * found when the job has formed: here the last save counts. */
static struct split of_state(const struct resume_options *o)
{
    const char *from =
        o->automatic || (o->from && !strcmp(o->from, RESUME_AUTO)) ? o->save : o->from;
    struct split was = {{0}};
    ckpt_file *f;

    if (!from || (o->from == NULL && !o->automatic) || ckpt_file_open(&f, from))
        return was; /* resume reports the error */
    was.n[SEQUENCE] = note_of(f, CKPT_STATE_NOTE "sequence");
    was.n[TENSOR] = note_of(f, CKPT_STATE_NOTE "tensor");
    was.n[STAGES] = note_of(f, CKPT_STATE_NOTE "stages");
    ckpt_file_close(f);
    return was;
}

/* Whether that can be kept.  What is not chosen is 1. */
static bool divides(const struct trainer *t, struct split *was, int world)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (!is_auto(t, kind))
            was->n[kind] = 1;
    return ranks_of(was) > 0 && world % ranks_of(was) == 0;
}

/* ---- planning -------------------------------------------------------------------------------- */

void split_tell(const struct trainer *t)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    if (!*t->program || ckpt_program_info(*t->program, &info))
        return;
    printf(TOLD "%.17g s, %lld bytes\n", info.step_seconds,
           (long long)(info.planned_peak + info.overhead_bytes));
}

/* Appends the option and its value, for which there is room in text. */
static int add_number(char **words, int k, const char *option, int64_t n, char text[NUMBER])
{
    snprintf(text, NUMBER, "%lld", (long long)n);
    words[k++] = (char *)option;
    words[k++] = text;
    return k;
}

/* Where the graph goes: FILE.N, or FILE.tensor.N; the library names those of stages after FILE. */
static void name_graph(char *path, size_t size, const char *to, const struct split *s)
{
    if (s->n[STAGES] > 1)
        snprintf(path, size, "%s", to);
    else
        snprintf(path, size, "%s.%s%lld", to, s->n[TENSOR] > 1 ? "tensor." : "",
                 (long long)ranks_of(s));
}

/* Plans with a split; output has what that said.  Returns its exit status, or -1. */
static int plan(const struct trainer *t, char *const *argv, int world, const struct split *s,
                char *output)
{
    char number[KINDS + 1][NUMBER], graph[4096];
    int k = 0;

    while (argv[k])
        k++;
    char **words = calloc((size_t)k + WORDS, sizeof *words);
    if (!words)
        return -1;
    memcpy(words, argv, (size_t)k * sizeof *words);
    k = add_number(words, k, "--ranks", world, number[KINDS]);
    for (int kind = 0; kind < KINDS; kind++)
        k = add_number(words, k, options[kind], s->n[kind], number[kind]);
    if (t->library->graph_out)
        name_graph(graph, sizeof graph, t->library->graph_out, s);
    const int status = remedies_plan(words, t->library->graph_out ? graph : NULL, output);
    free(words);
    return status;
}

/* The last line of a text, without what is before the first colon if that is the program. */
static char *last_line(char *text)
{
    size_t n = strlen(text), name = strlen(say_program);

    while (n && text[n - 1] == '\n')
        text[--n] = 0;
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    return !strncmp(line, say_program, name) && line[name] == ':' ? line + name + 2 : line;
}

/* Plans with a split, prints what comes of it, and takes it if it is the fastest so far. */
static void consider(const struct trainer *t, char *const *argv, int world, struct split s,
                     char *output, struct choice *best)
{
    const int status = plan(t, argv, world, &s, output);
    const char *told = status ? NULL : strstr(output, TOLD);
    const int64_t n = ranks_of(&s);
    char size[32], text[80];
    long long bytes;
    double seconds;

    printf("  %s: ", name(t, &s, text));
    if (told && sscanf(told, TOLD "%lf s, %lld bytes", &seconds, &bytes) == 2) {
        printf("%.4g s a step of %lld samples, %s of a rank\n", seconds,
               (long long)(t->train->batch * (world / n)), say_bytes(size, bytes));
        if (n == 1)
            best->alone = seconds;
        if (!best->split.n[0] || seconds * (double)n < best->seconds * faster) {
            best->split = s;
            best->seconds = seconds * (double)n;
        }
    } else if (remedies_needs(output)) {
        printf("does not fit, needs at least %s\n", say_bytes(size, remedies_needs(output)));
    } else {
        say_print("%s\n", status < 0 ? "it cannot be planned" : last_line(output));
    }
    fflush(stdout);
}

static void consider_all(const struct trainer *t, char *const *argv, int world, char *output,
                         struct choice *best)
{
    const struct split none = {{1, 1, 1}};

    consider(t, argv, world, none, output, best);
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t n = 2; n <= world && is_auto(t, kind); n++) {
            struct split s = none;
            s.n[kind] = n;
            if (world % n == 0)
                consider(t, argv, world, s, output, best);
        }
}

/* Sets the options that are auto, and says why. */
static void take(const struct trainer *t, const struct split *s, const char *why)
{
    const char *before = "";

    for (int kind = 0; kind < KINDS; kind++) {
        if (is_auto(t, kind)) {
            printf("%s%s %lld", before, options[kind], (long long)s->n[kind]);
            before = " ";
        }
        *option_of(t->library, kind) = s->n[kind];
    }
    printf(": %s\n", why);
    fflush(stdout);
}

static int choose(const struct trainer *t, char *const *argv, int world)
{
    char *output = malloc(REMEDIES_OUTPUT), why[128], asked[80];
    struct choice best = {.alone = 0};

    if (!output || !argv) {
        free(output);
        return say_fail("no memory for %s", name(t, NULL, asked));
    }
    printf("%s: %d ranks\n", name(t, NULL, asked), world);
    fflush(stdout);
    consider_all(t, argv, world, output, &best);
    free(output);
    if (!best.split.n[0])
        return say_fail("%s: no number of ranks that split sequences or layers has a plan", asked);
    int n = snprintf(why, sizeof why, "of what fits, the least time for each sample");
    if (ranks_of(&best.split) > 1 && best.alone > 0)
        snprintf(why + n, sizeof why - (size_t)n, ", %.3g of the time without",
                 best.seconds / best.alone);
    else if (ranks_of(&best.split) > 1)
        snprintf(why + n, sizeof why - (size_t)n, "; without, a step does not fit");
    take(t, &best.split, why);
    return 0;
}

/* Takes the numbers of the state, unless options that are new are refused with them.  A state of
 * stages goes on with any number. */
static int keep(const struct trainer *t, char *const *argv, int world, const struct split *was)
{
    char *output = malloc(REMEDIES_OUTPUT), asked[80];
    const int status = output && argv ? plan(t, argv, world, was, output) : -1;
    const bool refused = status > 0 && !remedies_needs(output), again = was->n[STAGES] > 1;
    int rc = 0;

    if (status < 0)
        rc = say_fail("%s: it cannot be planned", name(t, NULL, asked));
    else if (refused && !again)
        rc = say_fail("%s", last_line(output));
    free(output);
    if (rc || (refused && again))
        return rc ? rc : choose(t, argv, world);
    take(t, was, "as in the resumed run");
    return 0;
}

/* What an automatic choice does not go together with; NULL: nothing. */
static const char *other_of(const struct trainer *t)
{
    for (int kind = KINDS - 1; kind >= 0; kind--)
        if (*option_of(t->library, kind) > 1)
            return options[kind];
    return NULL;
}

static int check(const struct trainer *t)
{
    const struct ckpt_options *o = t->library;
    const char *other = other_of(t);
    char asked[80];

    name(t, NULL, asked);
    if (is_auto(t, SEQUENCE) && !t->splits)
        return say_fail("--sequence auto: this program has no sequences that ranks split; leave it "
                        "out");
    if (is_auto(t, TENSOR) && !t->widths)
        return say_fail("--tensor auto: this program has no layers that ranks split; leave it out");
    if (other)
        return say_fail("%s does not go together with %s; leave out %s or %s", asked, other,
                        one_of(t), other);
    if (is_auto(t, STAGES) && (o->plan_in || o->plan_out))
        return say_fail("%s: each stage has a plan of its own; leave out --plan-in and --plan-out",
                        asked);
    if (is_auto(t, STAGES) && o->graph_out && !o->plan_only)
        return say_fail("%s: each stage has a graph of its own, which --graph-out writes with "
                        "--plan-only and a number of --ranks; leave it out",
                        asked);
    if (t->varies && t->varies(t->run))
        return say_fail("%s: steps of several sizes have a plan each; give a number", asked);
    if (t->train->state.elastic && !o->plan_only)
        return say_fail("--elastic: groups that split sequences or layers cannot lose a rank; "
                        "leave out %s",
                        asked);
    return 0;
}

int split_choose(const struct trainer *t, char *const *argv)
{
    struct ckpt_options *o = t->library;
    int rank, world;

    if (!is_auto(t, SEQUENCE) && !is_auto(t, TENSOR) && !is_auto(t, STAGES))
        return 0;
    if (check(t))
        return -1;
    if (find_world(o, &rank, &world) || rank)
        return rank ? 0 : -1;
    if (world == 1) {
        o->sequence = o->tensor = o->stages = 1;
        return 0;
    }
    struct split was = of_state(&t->train->state);
    return divides(t, &was, world) ? keep(t, argv, world, &was) : choose(t, argv, world);
}

int split_take(const struct trainer *t)
{
    struct ckpt_options *o = t->library;
    const int ranks = ckpt_ranks(*t->context);
    const struct split own = {{o->sequence, o->tensor, o->stages}};
    struct split *all = calloc((size_t)ranks, sizeof *all);
    int rc = all ? 0 : say_fail("no memory for the splits of ranks");

    if (!rc && ckpt_gather_ranks(*t->context, &own, sizeof own, all))
        rc = say_fail("%s", ckpt_error(*t->context));
    for (int kind = 0; kind < KINDS && !rc; kind++)
        if (is_auto(t, kind))
            *option_of(o, kind) = all[0].n[kind];
    free(all);
    return rc;
}
