/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a trace as a viewer does, for test_trace.sh.  Every slice is of a named thread and ends
 * before the next one of it begins; counters rise and fall in time.  Prints a line "PROCESS THREAD
 * SLICES" a thread, "PROCESS COUNTER most N" a counter, and "ms KIND RUNS MILLISECONDS" for each
 * kind of op that was measured, as --profile has them.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES = 17, THREADS = 16, KINDS = 256 };

static struct {
    const char *name;
    double ends; /* the last slice so far, microseconds */
    int slices;
} threads[PROCESSES][THREADS];

static struct {
    const char *name;
    double ms;
    int runs;
} kinds[KINDS];

static struct {
    const char *name;
    json_int_t most;
    double at;
} counters[PROCESSES][4];

static const char *process_names[PROCESSES];

static void refuse(const char *why, const json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT | JSON_ENCODE_ANY);
    printf("%s: %s\n", why, text ? text : "");
    exit(1);
}

static double number(const json_t *event, const char *key)
{
    const json_t *v = json_object_get(event, key);
    if (!json_is_number(v) || json_number_value(v) < 0)
        refuse(key, event);
    return json_number_value(v);
}

static const char *string(const json_t *event, const char *key)
{
    const char *v = json_string_value(json_object_get(event, key));
    if (!v || !*v)
        refuse(key, event);
    return v;
}

static void count_kind(const char *name, double ms)
{
    int i = 0;
    while (i < KINDS - 1 && kinds[i].name && strcmp(kinds[i].name, name))
        i++;
    kinds[i].name = name;
    kinds[i].ms += ms;
    kinds[i].runs++;
}

/* Slices of a thread are in the order of time. */
static void read_slice(const json_t *e, int process, int thread)
{
    double start = number(e, "ts"), ms = number(e, "dur");
    const char *kind = json_string_value(json_object_get(json_object_get(e, "args"), "kind"));
    string(e, "name");
    string(e, "cat");
    if (!threads[process][thread].name)
        refuse("a thread without a name", e);
    if (start < threads[process][thread].ends - 1e-6)
        refuse("overlaps", e);
    threads[process][thread].ends = start + ms;
    threads[process][thread].slices++;
    if (kind)
        count_kind(kind, ms * 1e-3);
}

static void read_counter(const json_t *e, int process)
{
    const char *name = string(e, "name");
    json_int_t bytes = json_integer_value(json_object_get(json_object_get(e, "args"), "bytes"));
    int i = 0;
    while (i < 3 && counters[process][i].name && strcmp(counters[process][i].name, name))
        i++;
    if (number(e, "ts") < counters[process][i].at || bytes < 0)
        refuse("a counter", e);
    counters[process][i].name = name;
    counters[process][i].at = number(e, "ts");
    if (bytes > counters[process][i].most)
        counters[process][i].most = bytes;
}

static void read_meta(const json_t *e, int process, int thread)
{
    const json_t *args = json_object_get(e, "args");
    if (!strcmp(string(e, "name"), "process_name"))
        process_names[process] = string(args, "name");
    if (!strcmp(string(e, "name"), "thread_name"))
        threads[process][thread].name = string(args, "name");
}

static void read_event(const json_t *e)
{
    int process = (int)number(e, "pid"), thread = (int)number(e, "tid");
    const char *kind = string(e, "ph");
    if (process < 1 || process >= PROCESSES || thread >= THREADS)
        refuse("an unknown place", e);
    if (*kind == 'M')
        read_meta(e, process, thread);
    else if (*kind == 'X')
        read_slice(e, process, thread);
    else if (*kind == 'C')
        read_counter(e, process);
    else
        refuse("an unknown event", e);
}

static void print_process(int process)
{
    for (int t = 0; t < THREADS; t++)
        if (threads[process][t].slices)
            printf("%s %s %d\n", process_names[process], threads[process][t].name,
                   threads[process][t].slices);
    for (int i = 0; i < 4; i++)
        if (counters[process][i].name)
            printf("%s %s most %lld\n", process_names[process], counters[process][i].name,
                   (long long)counters[process][i].most);
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *root = argc > 1 ? json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error) : NULL;
    const json_t *events = json_object_get(root, "traceEvents");
    if (!json_array_size(events))
        refuse(argc > 1 ? error.text : "usage: check_trace FILE", NULL);
    for (size_t i = 0; i < json_array_size(events); i++)
        read_event(json_array_get(events, i));
    for (int p = 1; p < PROCESSES; p++)
        print_process(p);
    for (int i = 0; i < KINDS && kinds[i].name; i++)
        printf("ms %s %d %.4f\n", kinds[i].name, kinds[i].runs, kinds[i].ms);
    json_decref(root);
    return 0;
}
