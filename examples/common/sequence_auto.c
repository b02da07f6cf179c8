/* SPDX-License-Identifier: Apache-2.0 */
/* See sequence_auto.h.  Each number is planned as it would be trained, so what a model refuses for
 * one number is refused here with the same sentence. */
#include "sequence_auto.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "remedies.h"
#include "say.h"

enum { WORDS = 5, NUMBER = 24 };

#define TOLD "a step of the plan: "

/* A plan counts as faster if it takes less than this part of the time. */
static const double faster = 1 - 1e-4;

struct choice {
    int64_t n;      /* 0: none fits */
    double seconds; /* of a step, times n: of as many samples */
};

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

/* That of the state to resume; 0: there is no state, or it does not say.  The newest of --resume
 * auto is found when the job has formed: here the last save counts. */
static int64_t of_state(const struct resume_options *o)
{
    const char *from =
        o->automatic || (o->from && !strcmp(o->from, RESUME_AUTO)) ? o->save : o->from;
    int64_t n = 0;
    ckpt_file *f;

    if (!from || (o->from == NULL && !o->automatic) || ckpt_file_open(&f, from))
        return 0; /* resume reports the error */
    const char *was = ckpt_file_note(f, CKPT_STATE_NOTE "sequence");
    if (was)
        n = strtoll(was, NULL, 10);
    ckpt_file_close(f);
    return n > 0 ? n : 0;
}

/* ---- planning -------------------------------------------------------------------------------- */

void sequence_tell(const struct trainer *t)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    if (!*t->program || ckpt_program_info(*t->program, &info))
        return;
    printf(TOLD "%.17g s, %lld bytes\n", info.step_seconds,
           (long long)(info.planned_peak + info.overhead_bytes));
}

/* Plans with n; output has what that said.  Returns its exit status, or -1. */
static int plan(const struct trainer *t, char *const *argv, int world, int64_t n, char *output)
{
    char ranks[NUMBER], number[NUMBER], graph[4096];
    int k = 0;

    while (argv[k])
        k++;
    char **words = calloc((size_t)k + WORDS, sizeof *words);
    if (!words)
        return -1;
    memcpy(words, argv, (size_t)k * sizeof *words);
    snprintf(ranks, sizeof ranks, "%d", world);
    snprintf(number, sizeof number, "%lld", (long long)n);
    words[k++] = "--ranks";
    words[k++] = ranks;
    words[k++] = "--sequence";
    words[k++] = number;
    if (t->library->graph_out)
        snprintf(graph, sizeof graph, "%s.%lld", t->library->graph_out, (long long)n);
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

/* Plans with n, prints what comes of it, and takes it if it is the fastest so far. */
static void consider(const struct trainer *t, char *const *argv, int world, int64_t n, char *output,
                     struct choice *best)
{
    const int status = plan(t, argv, world, n, output);
    const char *told = status ? NULL : strstr(output, TOLD);
    char size[32];
    long long bytes;
    double seconds;

    printf("  sequence %lld: ", (long long)n);
    if (told && sscanf(told, TOLD "%lf s, %lld bytes", &seconds, &bytes) == 2) {
        printf("%.4g s a step of %lld samples, %s of a rank\n", seconds,
               (long long)(t->train->batch * (world / n)), say_bytes(size, bytes));
        if (!best->n || seconds * (double)n < best->seconds * faster)
            *best = (struct choice){n, seconds * (double)n};
    } else if (remedies_needs(output)) {
        printf("does not fit, needs at least %s\n", say_bytes(size, remedies_needs(output)));
    } else {
        say_print("%s\n", status < 0 ? "it cannot be planned" : last_line(output));
    }
    fflush(stdout);
}

static int choose(const struct trainer *t, char *const *argv, int world)
{
    char *output = malloc(REMEDIES_OUTPUT);
    struct choice best = {.n = 0};

    if (!output || !argv) {
        free(output);
        return say_fail("no memory for --sequence auto");
    }
    printf("--sequence auto: %d ranks\n", world);
    fflush(stdout);
    for (int64_t n = 1; n <= world; n++)
        if (world % n == 0)
            consider(t, argv, world, n, output, &best);
    free(output);
    if (!best.n)
        return say_fail("--sequence auto: no number of ranks that split sequences has a plan");
    t->library->sequence = best.n;
    printf("--sequence %lld: of what fits, the least time for each sample\n", (long long)best.n);
    fflush(stdout);
    return 0;
}

/* Takes the number of the state, unless options that are new are refused with it. */
static int keep(const struct trainer *t, char *const *argv, int world, int64_t was)
{
    char *output = malloc(REMEDIES_OUTPUT);
    const int status = output && argv ? plan(t, argv, world, was, output) : -1;
    int rc = 0;

    if (status < 0)
        rc = say_fail("--sequence auto: it cannot be planned");
    else if (status && !remedies_needs(output))
        rc = say_fail("%s", last_line(output));
    free(output);
    if (rc)
        return rc;
    t->library->sequence = was;
    printf("--sequence %lld: as in the resumed run\n", (long long)was);
    fflush(stdout);
    return 0;
}

int sequence_choose(const struct trainer *t, char *const *argv)
{
    struct ckpt_options *o = t->library;
    int rank, world;

    if (o->sequence != CKPT_AUTO)
        return 0;
    if (!t->splits)
        return say_fail("--sequence auto: this program has no sequences that ranks split; leave it "
                        "out");
    if (o->tensor > 1 || o->stages > 1)
        return say_fail("--sequence auto: sequences are not split beside layers; leave out "
                        "--sequence or %s",
                        o->tensor > 1 ? "--tensor" : "--stages");
    if (t->varies && t->varies(t->run))
        return say_fail("--sequence auto: steps of several sizes have a plan each; give a number");
    if (t->train->state.elastic && !o->plan_only)
        return say_fail("--elastic: groups that split sequences cannot lose a rank; leave out "
                        "--sequence");
    if (find_world(o, &rank, &world) || rank)
        return rank ? 0 : -1;
    if (world == 1) {
        o->sequence = 1;
        return 0;
    }
    const int64_t was = of_state(&t->train->state);
    return was && world % was == 0 ? keep(t, argv, world, was) : choose(t, argv, world);
}
