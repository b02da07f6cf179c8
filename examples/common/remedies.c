/* SPDX-License-Identifier: Apache-2.0 */
/* What would help a refused run: see remedies.h. */
#include "remedies.h"
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "run_clock.h"
#include "say.h"

extern char **environ;

/* Set in the processes that plan, to the file of the graph, or to nothing; no option, so it has no
 * name of one. */
#define PLANNING "LIBCKPT_REMEDY"

/* No further process is started after this time. */
static const double most_seconds = 30;

bool remedies_planning(void)
{
    return getenv(PLANNING) != NULL;
}

void remedies_set_options(struct ckpt_options *library)
{
    const char *graph = getenv(PLANNING);

    library->plan_only = true;
    library->plan_out = NULL;
    library->graph_out = *graph ? graph : NULL;
}

void remedies_add(struct remedies *r, const struct remedy *remedy)
{
    if (r->n < REMEDIES)
        r->row[r->n++] = *remedy;
}

int64_t remedies_needs(const char *sentence)
{
    static const char phrase[] = "needs at least ";
    const char *at = strstr(sentence, phrase);
    char size[32];
    int64_t bytes;

    if (!at)
        return 0;
    at += strlen(phrase);
    size_t n = strspn(at, "0123456789.KMGT");
    snprintf(size, sizeof size, "%.*s", (int)(n < sizeof size ? n : 0), at);
    return ckpt_parse_size(size, &bytes) ? 0 : bytes;
}

/* ---- planning in another process ------------------------------------------------------------- */

/* Keeps what fits of the output. */
static void read_all(int from, char output[REMEDIES_OUTPUT])
{
    char rest[4096];
    size_t n = 0;
    ssize_t got;

    do {
        bool full = n + sizeof rest > REMEDIES_OUTPUT;
        got = read(from, full ? rest : output + n, full ? sizeof rest : REMEDIES_OUTPUT - 1 - n);
        n += got > 0 && !full ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    output[n] = 0;
}

/* Starts this program with the words; its output can be read from *from.  Returns -1 on failure. */
static pid_t start(char *const *words, const char *graph, int *from)
{
    posix_spawn_file_actions_t actions;
    int end[2];
    pid_t child = -1;

    if (pipe(end))
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, end[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, end[0]);
    posix_spawn_file_actions_addclose(&actions, end[1]);
    if (setenv(PLANNING, graph ? graph : "", 1) ||
        posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ))
        child = -1;
    unsetenv(PLANNING);
    posix_spawn_file_actions_destroy(&actions);
    close(end[1]);
    if (child < 0)
        close(end[0]);
    *from = end[0];
    return child;
}

int remedies_plan(char *const *words, const char *graph, char output[REMEDIES_OUTPUT])
{
    int from, status = 0;
    pid_t child = start(words, graph, &from);

    if (child < 0)
        return -1;
    read_all(from, output);
    close(from);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Bytes that the command needs with the words; 0: it fits; -1: that is unknown. */
static int64_t plan(char *const *words)
{
    char *output = malloc(REMEDIES_OUTPUT);
    const int status = output ? remedies_plan(words, NULL, output) : -1;
    int64_t needs = status >= 0 ? remedies_needs(output) : -1;

    if (!needs && status)
        needs = -1;
    free(output);
    return needs;
}

/* The command and the words of the rows between first and last. */
static int64_t plan_with(const struct remedies *r, int first, int last)
{
    int n = 0;

    while (r->command[n])
        n++;
    char **words = calloc((size_t)(n + REMEDY_WORDS * r->n) + 1, sizeof *words);
    if (!words)
        return -1;
    memcpy(words, r->command, (size_t)n * sizeof *words);
    for (int i = first; i < last; i++)
        for (int k = 0; k < REMEDY_WORDS && r->row[i].word[k]; k++)
            words[n++] = (char *)r->row[i].word[k];
    int64_t needs = plan(words);
    free(words);
    return needs;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int least_first(const void *a, const void *b)
{
    const struct remedy *x = a, *y = b;

    return (x->needs > y->needs) - (x->needs < y->needs);
}

/* Leaves the rows that help, the best first. */
static void sort_out(struct remedies *r, int64_t needs)
{
    int n = 0;

    for (int i = 0; i < r->n; i++)
        if (r->row[i].needs >= 0 && r->row[i].needs < needs)
            r->row[n++] = r->row[i];
    r->n = n;
    qsort(r->row, (size_t)n, sizeof *r->row, least_first);
}

static void put_words(const struct remedy *row)
{
    fputs(" ", stderr);
    for (int k = 0; k < REMEDY_WORDS && row->word[k]; k++)
        fprintf(stderr, " %s", row->word[k]);
}

static void put_needs(int64_t needs)
{
    char size[32];

    if (needs)
        fprintf(stderr, ": needs %s\n", say_bytes(size, needs));
    else
        fprintf(stderr, ": fits\n");
}

static void put_rows(const struct remedies *r)
{
    fprintf(stderr, "%s: what would help, planned with each:\n", say_program);
    for (int i = 0; i < r->n; i++) {
        put_words(&r->row[i]);
        put_needs(r->row[i].needs);
    }
    if (r->n < 2 || !r->row[0].needs)
        return;
    int64_t needs = plan_with(r, 0, r->n);
    if (needs < 0 || needs >= r->row[0].needs)
        return;
    fprintf(stderr, "  all of them");
    put_needs(needs);
}

void remedies_print(struct remedies *r, int64_t needs)
{
    double begun = run_clock_now();

    for (int i = 0; i < r->n; i++)
        r->row[i].needs = run_clock_now() - begun < most_seconds ? plan_with(r, i, i + 1) : -1;
    sort_out(r, needs);
    if (r->n)
        put_rows(r);
}
