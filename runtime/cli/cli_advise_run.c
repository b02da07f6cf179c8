/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program to get the graph of its step: with --plan-only, so it reads no data and runs no
 * step, and without a budget, so that nothing is refused before the graph is written.  Its output
 * is kept for an error message.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "cli/advise.h"
#include "cli/hold_signals.h"
#include "report/progress.h"

enum { ADDED = 7 };

/* Options of files that a run writes or resumes from: trainers refuse them with --plan-only. */
static const char *const left_out[] = {
    "--save",        "--save-low",   "--save-ema",  "--save-int8",  "--save-state", "--save-pt2",
    "--lora-merge",  "--save-every", "--keep",      "--keep-every", "--resume",     "--log",
    "--tensorboard", "--dump",       "--trace-out", "--machine-out"};

/* The number of words of an option that is left out, with its value; else 0. */
static int words_left_out(char **word)
{
    size_t length = strcspn(*word, "=");
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strlen(left_out[i]) == length && !strncmp(*word, left_out[i], length))
            return (*word)[length] || !word[1] || !strncmp(word[1], "--", 2) ? 1 : 2;
    return 0;
}

/* The command line with the options that make it write its graph; the caller frees it. */
static char **planning_arguments(char **command, const char *graph, const char *machine)
{
    int n = 0, k = 0;
    while (command[n])
        n++;
    char **all = calloc((size_t)n + ADDED + 1, sizeof *all);
    if (!all)
        return NULL;
    for (int i = 0, skip; i < n; i += skip ? skip : 1)
        if (!(skip = words_left_out(command + i)))
            all[k++] = command[i];
    all[k++] = "--plan-only";
    all[k++] = "--vram";
    all[k++] = "none";
    all[k++] = "--graph-out";
    all[k++] = (char *)graph;
    if (machine) {
        all[k++] = "--machine";
        all[k++] = (char *)machine;
    }
    return all;
}

/* Runs in the child: redirects output to the file.  If exec fails, writes the reason there. */
static void exec_program(char **arguments, int output)
{
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(arguments[0], arguments);
    dprintf(output, "%s\n", strerror(errno));
    _exit(127);
}

/* Waits for the program, with lines of progress; *status as of wait.  Returns 0 or an errno. */
static int wait_for(pid_t child, const char *program, int *status)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    double start = clock_seconds();
    char what[ADVISE_LINE];
    int reported = 0;
    snprintf(what, sizeof what, "running %s for the graph of its step", program);
    for (;;) {
        pid_t ended = waitpid(child, status, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR))
            return ended < 0 ? errno : 0;
        int seconds = (int)(clock_seconds() - start);
        if (seconds > reported)
            progress_seconds(stderr, what, reported = seconds);
        nanosleep(&pause, NULL);
    }
}

/* Runs the program and waits; *status as of wait. */
static int run(char **arguments, int output, int *status)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return cli_fail("%s cannot be started: %s", arguments[0], strerror(errno));
    if (!child)
        exec_program(arguments, output);
    hold_signals_for(child);
    int failed = wait_for(child, arguments[0], status);
    hold_signals_for(0);
    return failed ? cli_fail("%s cannot be waited for: %s", arguments[0], strerror(failed)) : 0;
}

/* The last non-empty line of its output, without the newline. */
static void last_line(const char *path, char line[ADVISE_LINE])
{
    char next[ADVISE_LINE];
    FILE *f = fopen(path, "r");
    *line = 0;
    while (f && fgets(next, sizeof next, f)) {
        next[strcspn(next, "\n")] = 0;
        if (*next)
            snprintf(line, ADVISE_LINE, "%s", next);
    }
    if (f)
        fclose(f);
}

/* Prints what went wrong in one sentence.  A program that rejects the options is not a trainer. */
static int explain(const char *program, int status, const char *log)
{
    char line[ADVISE_LINE];
    const char *hint = "";
    last_line(log, line);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return cli_usage("%s cannot be run: %s", program, *line ? line : "not found");
    if (WIFSIGNALED(status))
        return cli_fail("%s ended by signal %d before it had written its graph", program,
                        WTERMSIG(status));
    if (strstr(line, "No such file") || strstr(line, "no such directory"))
        hint = "; of a model, its config.json is enough here";
    else if (strstr(line, "no such cache"))
        hint = "; a plan needs none: give --data random in its place";
    else if (!*line || strstr(line, "--plan-only") || strstr(line, "--graph-out"))
        hint = "; give a program that takes --plan-only and --graph-out, as stdit-train";
    return cli_fail("%s wrote no graph%s%s%s", program, *line ? "; it said: " : "", line, hint);
}

int advise_run(char **command, const char *machine, const char *directory, const char *graph)
{
    char log[ADVISE_PATH];
    struct stat about;
    int status = 0;
    snprintf(log, sizeof log, "%s/log", directory);
    char **arguments = planning_arguments(command, graph, machine);
    int output = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = arguments && output >= 0 ? run(arguments, output, &status)
                                      : cli_fail("%s cannot be written", log);
    if (!rc && (status || stat(graph, &about) || about.st_size == 0))
        rc = explain(command[0], status, log);
    if (output >= 0)
        close(output);
    free(arguments);
    unlink(log);
    return rc;
}
