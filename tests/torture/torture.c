/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call fails once.  A program runs once to count its calls, with tests/torture/shim.c loaded
 * before it, and then once for each call, which fails.  Each run must end within a minute and not
 * by a signal,
 *   - either with 0 and the same files as a run without a fault, or with 1 or 2 and a sentence;
 *   - and leave the old state file or the new one, with its parts, and no other file.
 *
 *     torture [--all] [--rest] [--jobs N] [--scenario NAME] [--kind KIND,...] [--most N]
 *
 * With --all: of each kind, the first 100 calls, and 100 of the later ones, evenly spaced; 8 and 8
 * if a run takes seconds.  Without: a few calls of each kind (--most N), evenly spaced, in the
 * quick scenarios only, and of some the kinds that matter; with --rest all that this leaves out.
 * Without --kind there are limits of address space, too.  Exits 0, 1, or 77 if it cannot run.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "scenarios.h"

#define BEGUN "begun" /* see shim.c */

enum { DEADLINE = 60, KINDS = 64, DENSE = 100, HEAVY = 8, ENOUGH = 10, PATH = 4096, TEXT = 8192 };

static struct {
    char here[PATH], source[PATH]; /* where the programs are built, and what they are built of */
    char shim[PATH], fake[PATH];
    bool all, rest;
    int jobs;
    long most;
    const char *scenario, *kind;
} torture = {.jobs = 2, .most = 2};

/* ---- small things ---------------------------------------------------------------------------- */

static void fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fatal(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("torture: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

/* Formats a path into dst. */
static void join(char dst[PATH], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void join(char dst[PATH], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(dst, PATH, fmt, ap) >= PATH)
        fatal("a path is too long: %s", dst);
    va_end(ap);
}

/* The contents of a file, with a final zero; NULL if there is none. */
static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, got = 0;
    while (f) {
        size += 1 << 16;
        text = realloc(text, size + 1);
        got += fread(text + got, 1, size - got, f);
        if (got < size)
            break;
    }
    if (f)
        fclose(f);
    if (text)
        text[got] = 0;
    *n = got;
    return text;
}

static bool same(const char *a, const char *b)
{
    size_t n, m;
    char *x = slurp(a, &n), *y = slurp(b, &m);
    bool equal = x && y && n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return equal;
}

static void copy(const char *from, const char *to)
{
    size_t n;
    char *text = slurp(from, &n);
    FILE *f = text ? fopen(to, "wb") : NULL;
    if (!f || fwrite(text, 1, n, f) != n || fclose(f))
        fatal("cannot copy %s to %s", from, to);
    free(text);
}

static int each_file(const char *dir, bool (*visit)(const char *path, const char *name))
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH];
        join(path, "%s/%s", dir, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            n += visit(path, e->d_name);
    }
    if (d)
        closedir(d);
    return n;
}

static bool remove_it(const char *path, const char *name)
{
    (void)name;
    if (unlink(path) && errno == EISDIR)
        each_file(path, remove_it);
    return rmdir(path) == 0;
}

/* A directory in which a program ran, and its output. */
static void remove_run(const char *dir)
{
    char err[PATH];
    each_file(dir, remove_it);
    rmdir(dir);
    for (int rank = 0; rank < 2; rank++) {
        join(err, "%s.err%d", dir, rank);
        unlink(err);
    }
}

/* A part of a state of ranks: one that its index names, or of a save that failed on another rank,
 * which the next save removes. */
static bool is_part(const char *name)
{
    return !strncmp(name, "state.part-", 11) && !strstr(name, ".tmp-");
}

static bool is_left(const char *path, const char *name)
{
    static const char *const own[] = {"state",  "w",          "log",        "plan",      "w.rgb",
                                      "sample", "sample.png", "sample.mp4", "sample.rgb"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i]))
            return false;
    if (is_part(name))
        return false;
    if (!strncmp(name, "state-0", 7) || !strncmp(name, "w-0", 3)) /* --keep */
        return false;
    printf("    left behind: %s\n", path);
    return true;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* The built program of a command, without libtool's wrapper script. */
static bool find_program(const char *name, char *path)
{
    const char *places[] = {"tests/torture/.libs", ".libs", "tests/torture", ".", "tests/cogvideo"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        join(path, "%s/%s/%s", torture.here, places[i], name);
        if (!access(path, X_OK))
            return true;
    }
    return false;
}

struct run {
    const struct scenario *s;
    const char *dir, *base; /* where it runs; where what prepare made is */
    const char *order;      /* what fails, or NULL */
    const char *counts;     /* file for counts, or NULL */
    rlim_t space;           /* bytes of address space, or 0 */
    int port;               /* where its ranks meet */
    int jobs;               /* so many at a time */
};

/* In the child: splits the command and executes it. */
static void become(const struct run *r, const char *command, const char *err)
{
    char text[TEXT], *argv[80], path[PATH];
    int argc = 0;
    size_t n = 0;
    for (; *command && n + PATH < sizeof text; command++)
        if (*command == '@' || *command == '^')
            n += (size_t)sprintf(text + n, "%s", *command == '@' ? r->base : torture.source);
        else if (*command == '%')
            n += (size_t)sprintf(text + n, "%d", r->port);
        else
            text[n++] = *command;
    text[n] = 0;
    for (char *word = strtok(text, " "); word && argc < 79; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    if (!find_program(argv[0], path))
        fatal("%s is not built", argv[0]);
    int fd = open(err, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    int nothing = open("/dev/null", O_RDWR);
    if (chdir(r->dir) || fd < 0 || dup2(fd, 2) < 0 || dup2(nothing, 1) < 0 || dup2(nothing, 0) < 0)
        _exit(126);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (r->space)
        setrlimit(RLIMIT_AS, &(struct rlimit){r->space, r->space});
    execv(path, argv);
    _exit(127);
}

static pid_t start(const struct run *r, const char *command, int rank, bool shim)
{
    char err[PATH];
    join(err, "%s.err%d", r->dir, rank > 0);
    pid_t pid = fork();
    if (pid)
        return pid;
    if (rank >= 0) {
        setenv("RANK", rank ? "1" : "0", 1);
        setenv("WORLD_SIZE", "2", 1);
    }
    char libraries[2 * PATH + 2];
    snprintf(libraries, sizeof libraries, "%s %s", shim ? torture.shim : "", torture.fake);
    setenv("LD_PRELOAD", libraries, 1);
    if (!r->s->cuda)
        setenv("FAKE_CUDA_DEVICES", "0", 1);
    if (shim) {
        char orders[256];
        snprintf(orders, sizeof orders, "%s,%s", r->order ? r->order : "",
                 r->s->also ? r->s->also : "");
        setenv("CKPT_TORTURE", orders, 1);
    }
    if (shim && r->counts)
        setenv("CKPT_TORTURE_COUNTS", r->counts, 1);
    if (shim && r->space)
        setenv("CKPT_TORTURE_BEGUN", BEGUN, 1);
    become(r, command, err);
    return 0;
}

/* The status of a child; -1 if it had to be killed. */
static int await(pid_t pid, time_t until)
{
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (time(NULL) > until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return status;
}

/* Without the address space, libraries crash while they are loaded, before main(). */
static bool has_begun(const struct run *r)
{
    char path[PATH];
    join(path, "%s/" BEGUN, r->dir);
    return !r->space || !access(path, F_OK);
}

/* The fault in how a program ended, or NULL; its exit code. */
static const char *judge_end(const struct run *r, int rank, int status, int *code)
{
    char err[PATH];
    size_t n;
    join(err, "%s.err%d", r->dir, rank > 0);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (status == -1)
        return "a hang";
    if (!WIFEXITED(status))
        return has_begun(r) ? "a signal" : NULL;
    bool loader = r->space && *code == 127; /* no space for libraries: nothing has begun */
    char *said = slurp(err, &n);
    /* OpenMP ends the process by itself, and the fake of CUDA then tells what was in use. */
    bool openmp = said && strstr(said, "libgomp: Out of memory");
    bool silent = *code && n < 10;
    bool strange = *code > 2 && !loader && !openmp;
    free(said);
    return strange ? "an exit code that nobody gives" : silent ? "no sentence" : NULL;
}

static const char *out_name(const struct scenario *s)
{
    return s->out ? s->out : "w";
}

/* Whether its files are those of a run without a fault. */
static bool same_out(const struct run *r)
{
    char out[PATH], after[PATH];
    join(out, "%s/%s", r->dir, out_name(r->s));
    join(after, "%s/out", r->base);
    bool is = !access(out, F_OK), was = !access(after, F_OK);
    return is == was && (!is || r->s->varies || same(out, after));
}

static int named_parts(const char *dir, const char *index)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += is_part(e->d_name) && strstr(index, e->d_name);
    if (d)
        closedir(d);
    return n;
}

/* Whether the state is that of a run without a fault.  Of ranks it is an index of two parts, with
 * other names each time. */
static bool is_new(const struct run *r, const char *now, const char *after)
{
    size_t n;
    if (r->s->rank < 0)
        return same(now, after);
    char *text = slurp(now, &n);
    bool whole = text && n && text[0] == '{' && named_parts(r->dir, text) == 2;
    free(text);
    return whole;
}

static const char *judge_files(const struct run *r, bool good)
{
    char now[PATH], before[PATH], after[PATH], out[PATH];
    join(now, "%s/state", r->dir);
    join(before, "%s/before", r->base);
    join(after, "%s/after", r->base);
    join(out, "%s/%s", r->dir, out_name(r->s));
    if (good && !is_new(r, now, after))
        return "exit code 0 without the new state";
    if (good && !same_out(r))
        return "exit code 0 without the output";
    if (!same(now, before) && !is_new(r, now, after))
        return "a damaged state file";
    if (!access(out, F_OK) && !same_out(r))
        return "damaged output";
    return each_file(r->dir, is_left) ? "files left behind" : NULL;
}

static const char *run_once(const struct run *r, bool judge)
{
    char state[PATH], before[PATH];
    const struct scenario *s = r->s;
    each_file(r->dir, remove_it);
    join(state, "%s/state", r->dir);
    join(before, "%s/before", r->base);
    copy(before, state);
    time_t until = time(NULL) + DEADLINE;
    int codes[2] = {0, 0}, first = s->rank < 0 ? -1 : 0;
    pid_t pids[2] = {start(r, s->run, first, s->rank < 1)};
    if (s->rank >= 0)
        pids[1] = start(r, s->run, 1, s->rank == 1);
    const char *bad = judge_end(r, first, await(pids[0], until), &codes[0]);
    if (s->rank >= 0) {
        const char *other = judge_end(r, 1, await(pids[1], until), &codes[1]);
        bad = bad ? bad : other;
    }
    if (!bad && judge)
        bad = judge_files(r, codes[0] == 0 && codes[1] == 0);
    return bad ? bad : !judge && (codes[0] || codes[1]) ? "it fails by itself" : NULL;
}

/* ---- one scenario -----------------------------------------------------------------------------
 */

struct counts {
    int n;
    char kind[KINDS][32];
    long calls[KINDS];
};

/* Whether a word stands in a list with commas. */
static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n]))
            return true;
    return false;
}

static void read_counts(const char *path, struct counts *c)
{
    FILE *f = fopen(path, "r");
    c->n = 0;
    while (f && c->n < KINDS && fscanf(f, "%31s %ld", c->kind[c->n], &c->calls[c->n]) == 2)
        c->n += !torture.kind || in_list(torture.kind, c->kind[c->n]);
    if (f)
        fclose(f);
    if (!f)
        fatal("%s was not written: is the shim loaded?", path);
}

static void move(const char *dir, const char *name, const char *base, const char *as)
{
    char from[PATH], to[PATH];
    join(from, "%s/%s", dir, name);
    join(to, "%s/%s", base, as);
    if (rename(from, to))
        fatal("%s was not written", from);
}

/* A picture as a clip, for readers of pictures. */
static void write_clip(const char *base)
{
    char path[PATH];
    join(path, "%s/clip.rgb", base);
    FILE *f = fopen(path, "wb");
    if (f)
        fputs("RGBCLIP 16 8 1 25\n", f);
    for (int i = 0; f && i < 16 * 8 * 3; i++)
        fputc(i * 37 % 251, f);
    if (!f || fclose(f))
        fatal("%s: %s", path, strerror(errno));
}

/* Files to compare with, and the calls of a run without a fault. */
static void prepare(struct run *r, struct counts *c)
{
    char counts[PATH], out[PATH];
    join(counts, "%s/counts", r->base);
    write_clip(r->base);
    for (int i = 0; i < 3 && r->s->prepare[i]; i++) {
        struct run alone = *r;
        alone.dir = r->base;
        if (await(start(&alone, r->s->prepare[i], -1, false), time(NULL) + 10 * DEADLINE))
            fatal("%s: cannot be prepared; see %s.err0", r->s->name, r->base);
    }
    move(r->base, "state", r->base, "before");
    r->counts = counts;
    const char *bad = run_once(r, false);
    if (bad)
        fatal("%s: %s; see %s.err0", r->s->name, bad, r->dir);
    r->counts = NULL;
    read_counts(counts, c);
    move(r->dir, "state", r->base, "after");
    join(out, "%s/%s", r->dir, out_name(r->s));
    if (!access(out, F_OK))
        move(r->dir, out_name(r->s), r->base, "out");
}

/* The output of the ranks of a run. */
static void show_said(const struct run *r)
{
    for (int rank = 0; rank < 2; rank++) {
        char err[PATH];
        size_t n;
        join(err, "%s.err%d", r->dir, rank);
        char *said = slurp(err, &n);
        fputs(said ? said : "", stdout);
        free(said);
    }
}

/* The i-th of `most` evenly spaced numbers from first to last. */
static long spread(long i, long most, long first, long last)
{
    return most > 1 ? first + i * (last - first) / (most - 1) : last;
}

/* Each selected call fails once alone and once with all later calls.  The last call of a kind
 * matters as much as the first. */
static int torture_kind(struct run *r, const char *kind, long calls, int job, long *runs)
{
    long all = r->s->heavy ? HEAVY : DENSE, dense = torture.all ? all : 0;
    long most = torture.all ? 2 * all : r->s->heavy ? 1 : torture.most;
    int failed = 0;
    dense = dense < calls ? dense : calls;
    most = most < calls ? most : calls;
    for (long i = 0; i < 2 * most; i++) {
        char order[64];
        long at = i / 2;
        long n = at < dense ? at + 1 : spread(at - dense, most - dense, dense + 1, calls);
        snprintf(order, sizeof order, "%s:%ld%s", kind, n, i % 2 ? "+" : "");
        if ((*runs)++ % r->jobs != job)
            continue;
        r->order = order;
        const char *bad = run_once(r, true);
        if (!bad)
            continue;
        printf("torture: %s, %s of %ld fails: %s\n", r->s->name, order, calls, bad);
        if (getenv("CKPT_TORTURE_TRACE"))
            show_said(r);
        fflush(stdout);
        failed++;
    }
    return failed;
}

static bool is_chosen(const struct scenario *s, const char *kind)
{
    bool usual = !s->few || strstr(s->few, kind);
    return torture.rest ? s->slow || !usual : torture.all || torture.kind || usual;
}

static int torture_job(const struct run *clean, const struct counts *c, int job)
{
    char dir[PATH];
    struct run r = *clean;
    long runs = 0;
    int failed = 0;
    join(dir, "%s.%d", clean->dir, job);
    mkdir(dir, 0700);
    r.dir = dir;
    r.port += 1 + job;
    for (int i = 0; i < c->n; i++)
        if (is_chosen(r.s, c->kind[i]))
            failed += torture_kind(&r, c->kind[i], c->calls[i], job, &runs);
    remove_run(dir);
    return failed > 100 ? 100 : failed;
}

/* From too little address space for the loader to enough for everything, in small steps. */
static int torture_limits(const char *base)
{
    static const struct scenario two_threads = {
        .name = "limits",
        .run = "job 3 256 - state w --device cpu --threads 2 --vram 16M",
        .rank = -1};
    char dir[PATH];
    struct run r = {.s = &two_threads, .dir = dir, .base = base};
    const rlim_t unit = (rlim_t)1 << 20, step = torture.all ? unit : 50 * unit;
    int failed = 0, code = 1, enough = 0;
    join(dir, "%s.run", base);
    mkdir(dir, 0700);
    for (r.space = 10 * unit; r.space <= 4096 * unit && enough < ENOUGH; r.space += step) {
        pid_t pid = start(&r, r.s->run, -1, true);
        const char *bad = judge_end(&r, -1, await(pid, time(NULL) + DEADLINE), &code);
        enough = code ? 0 : enough + 1;
        if (bad)
            printf("torture: ulimit -v %lld: %s\n", (long long)(r.space >> 10), bad);
        failed += bad != NULL;
        each_file(dir, remove_it);
    }
    if (code)
        printf("torture: %lld MiB are not enough for two threads\n", (long long)(r.space >> 20));
    remove_run(dir);
    printf("limits: %d findings\n", failed + (code != 0));
    return failed + (code != 0);
}

static int torture_scenario(const struct scenario *s, const char *base)
{
    char dir[PATH];
    struct counts c;
    struct run r = {.s = s, .dir = dir, .base = base, .jobs = s->alone ? 1 : torture.jobs};
    long calls = 0;
    int failed = 0, status;
    time_t begin = time(NULL);
    r.port = 20000 + getpid() % 1000 * 10;
    join(dir, "%s.run", base);
    mkdir(dir, 0700);
    prepare(&r, &c);
    for (int i = 0; i < c.n; i++)
        calls += c.calls[i];
    for (int job = 0; job < r.jobs; job++) {
        fflush(stdout);
        if (fork() == 0)
            _exit(torture_job(&r, &c, job));
    }
    while (wait(&status) > 0)
        failed += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    remove_run(dir);
    each_file(base, remove_it);
    printf("%s: %ld calls, %d findings, %ld s\n", s->name, calls, failed,
           (long)(time(NULL) - begin));
    return failed;
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--all") || !strcmp(argv[i], "--rest")) {
            torture.all |= !strcmp(argv[i], "--all");
            torture.rest |= !strcmp(argv[i], "--rest");
            continue;
        }
        if (!strcmp(argv[i], "--jobs"))
            torture.jobs = atoi(value);
        else if (!strcmp(argv[i], "--most"))
            torture.most = atol(value);
        else if (!strcmp(argv[i], "--scenario"))
            torture.scenario = value;
        else if (!strcmp(argv[i], "--kind"))
            torture.kind = value;
        else
            fatal("%s: there are --all, --rest, --jobs, --most, --scenario and --kind", argv[i]);
        i++;
    }
    if (torture.jobs < 1 || torture.most < 1)
        fatal("--jobs and --most begin at 1");
}

int main(int argc, char **argv)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    puts("torture: sanitizers have an allocator of their own");
    return 77;
#endif
    char base[PATH], libs[PATH];
    int failed = 0;
    read_options(argc, argv);
    if (!getcwd(torture.here, sizeof torture.here))
        fatal("%s", strerror(errno));
    const char *source = getenv("srcdir");
    if (!realpath(source ? source : ".", torture.source))
        fatal("%s: %s", source ? source : ".", strerror(errno));
    join(torture.shim, "%s/tests/torture/shim.so", torture.here);
    join(torture.fake, "%s/tests/torture/fake_cuda.so", torture.here);
    if (access(torture.shim, R_OK))
        fatal("%s is not built", torture.shim);
    bool cuda = access(torture.fake, R_OK) == 0; /* built where the CUDA device is */
    if (!cuda)
        torture.fake[0] = 0;
    join(libs, "%s/.libs", torture.here);
    setenv("LD_LIBRARY_PATH", libs, 1);
    unsetenv("CKPT_VERIFY");
    join(base, "%s/torture.XXXXXX", torture.here);
    if (!mkdtemp(base))
        fatal("%s: %s", base, strerror(errno));
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *s = &scenarios[i];
        bool chosen = torture.scenario ? !strcmp(torture.scenario, s->name)
                      : torture.all    ? true
                      : torture.rest   ? s->slow || s->few
                                       : !s->slow;
        if (chosen && s->cuda && !cuda)
            printf("%s: left out, the CUDA device is not built\n", s->name);
        else if (chosen && s->needs && !find_program(s->needs, libs))
            printf("%s: left out, %s is not built\n", s->name, s->needs);
        else if (chosen)
            failed += torture_scenario(s, base);
    }
    if (torture.scenario ? !strcmp(torture.scenario, "limits") : !torture.kind && !torture.rest)
        failed += torture_limits(base);
    remove_run(base);
    return failed ? 1 : 0;
}
