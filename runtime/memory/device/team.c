/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread team of kernels: the worker threads of a thread that runs loops sleep until there is a
 * loop.  gcc's OpenMP library lets them spin for milliseconds instead, so that a step took two to
 * four times as long beside another program, and it ends the process if a thread cannot be started.
 * The loops are ordinary OpenMP; the three calls that the compiler makes for them come here
 * (team_calls.h).
 *
 * A loop is one word: a count that distinguishes it from the loop before, and its number of
 * threads. A worker beyond that number sees from the word alone that nobody waits for it.
 */
#include "core/base.h"
#include "core/cores.h"
#include "core/thread_team.h"
#include "memory/device/team.h"
#ifdef CKPT_OWN_TEAM
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPIN = 256, /* polls before a thread sleeps: some microseconds */
    MAX_THREADS = 4095,
    LOOP_UNIT = MAX_THREADS + 1
};

struct team;

struct worker {
    struct team *team;
    struct worker *next;
    pthread_t thread;
    uint32_t number;
};

/* The team of one thread, which is thread 0 of each loop. */
struct team {
    struct worker *workers; /* the last started first */
    uint32_t size, started; /* threads per loop; threads that exist, thread 0 included */
    void (*body)(void *data);
    void *data;
    bool ended;
    uint32_t loop;   /* number of loops so far, times LOOP_UNIT, plus the threads of the last one */
    uint32_t asleep; /* number of sleeping workers */
    uint32_t busy;   /* workers that have not finished the loop */
    uint32_t waiting; /* 1 if thread 0 sleeps until they have */
};

static _Thread_local struct team *own_team;
static _Thread_local struct {
    uint32_t number, n;
    bool inside; /* in a loop that several threads share */
} current = {0, 1, false};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;
static bool have_key;

/* ---- waiting --------------------------------------------------------------------------------- */

static uint32_t load(const uint32_t *x)
{
    return __atomic_load_n(x, __ATOMIC_SEQ_CST);
}

static void store(uint32_t *x, uint32_t value)
{
    __atomic_store_n(x, value, __ATOMIC_SEQ_CST);
}

static void wake_all(uint32_t *x)
{
    syscall(SYS_futex, x, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until x differs from `value`; *asleep counts the threads that sleep meanwhile. */
static uint32_t wait_while(uint32_t *x, uint32_t value, uint32_t *asleep)
{
    for (int i = 0; i < SPIN; i++) {
        if (load(x) != value)
            return load(x);
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#endif
    }
    __atomic_fetch_add(asleep, 1, __ATOMIC_SEQ_CST);
    while (load(x) == value)
        syscall(SYS_futex, x, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    __atomic_fetch_sub(asleep, 1, __ATOMIC_SEQ_CST);
    return load(x);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct worker *w = arg;
    struct team *t = w->team;
    /* It takes no part in loops that began before it started. */
    for (uint32_t seen = 0;;) {
        seen = wait_while(&t->loop, seen, &t->asleep);
        if (w->number >= seen % LOOP_UNIT)
            continue;
        if (t->ended)
            return NULL;
        current.number = w->number;
        current.n = seen % LOOP_UNIT;
        current.inside = true;
        t->body(t->data);
        if (__atomic_sub_fetch(&t->busy, 1, __ATOMIC_SEQ_CST) == 0 && load(&t->waiting))
            wake_all(&t->busy);
    }
}

/* Blocks all signals in the worker: they are for the threads of the program. */
static int start_thread(struct worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = thread_start(&w->thread, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void start_workers(struct team *t, uint32_t n)
{
    while (t->started < n) {
        struct worker *w = calloc(1, sizeof *w);
        if (!w)
            return;
        *w = (struct worker){.team = t, .next = t->workers, .number = t->started};
        if (start_thread(w)) {
            free(w);
            return;
        }
        t->workers = w;
        t->started++;
    }
}

static void begin_loop(struct team *t, uint32_t n)
{
    store(&t->busy, n - 1);
    store(&t->loop, (t->loop / LOOP_UNIT + 1) * LOOP_UNIT + n);
    if (load(&t->asleep))
        wake_all(&t->loop);
}

/* Called when the thread that owns the team exits. */
static void end_team(void *arg)
{
    struct team *t = arg;
    t->ended = true;
    begin_loop(t, t->started);
    for (struct worker *w = t->workers, *next; w; w = next) {
        next = w->next;
        pthread_join(w->thread, NULL);
        free(w);
    }
    free(t);
}

static void make_key(void)
{
    have_key = !pthread_key_create(&at_exit, end_team);
}

/* NULL: out of memory. */
static struct team *team_of_thread(void)
{
    if (own_team)
        return own_team;
    pthread_once(&once, make_key);
    struct team *t = have_key ? calloc(1, sizeof *t) : NULL;
    if (t && pthread_setspecific(at_exit, t)) {
        free(t);
        return NULL;
    }
    if (t) {
        t->size = (uint32_t)team_count(0);
        t->started = 1;
    }
    return own_team = t;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int team_count(int threads)
{
    if (threads <= 0)
        threads = cores_allowed();
    return threads < MAX_THREADS ? threads : MAX_THREADS;
}

int team_size(int threads)
{
    struct team *t = team_of_thread();
    const int before = t ? (int)t->size : 1;
    if (t)
        t->size = (uint32_t)team_count(threads);
    return before;
}

int team_start(void)
{
    struct team *t = team_of_thread();
    if (t)
        start_workers(t, t->size);
    return t && t->started >= t->size ? 0 : CKPT_ENOMEM;
}

/* Nested loops, and loops for which no thread can be started, run on one thread. */
void team_run(void (*body)(void *data), void *data, unsigned threads, unsigned flags)
{
    struct team *t = current.inside ? NULL : team_of_thread();
    uint32_t n = t ? (threads ? (uint32_t)team_count((int)threads) : t->size) : 1;
    (void)flags;
    if (n > 1)
        start_workers(t, n);
    n = t && n > t->started ? t->started : n;
    const __typeof__(current) outside = current;
    current.number = 0;
    current.n = n;
    if (n > 1) {
        current.inside = true;
        t->body = body;
        t->data = data;
        begin_loop(t, n);
    }
    body(data);
    current = outside;
    for (uint32_t busy; n > 1 && (busy = load(&t->busy)) > 0;)
        wait_while(&t->busy, busy, &t->waiting);
}

int team_number(void)
{
    return (int)current.number;
}

int team_threads(void)
{
    return (int)current.n;
}

#else
#ifdef _OPENMP
#include <omp.h>
#endif

int team_count(int threads)
{
#ifdef _OPENMP
    return threads > 0 ? threads : omp_get_num_procs();
#else
    (void)threads;
    return 1;
#endif
}

int team_size(int threads)
{
#ifdef _OPENMP
    const int before = omp_get_max_threads();
    omp_set_num_threads(team_count(threads));
#ifdef __clang__
    kmp_set_blocktime(0); /* a thread without work sleeps */
#endif
    return before;
#else
    (void)threads;
    return 1;
#endif
}

int team_start(void)
{
    return 0; /* OpenMP starts its threads with the first loop */
}
#endif
