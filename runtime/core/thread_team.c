/* SPDX-License-Identifier: Apache-2.0 */
/* Threads for one-time work: see thread_team.h. */
#include "core/cores.h"
#include "core/thread_team.h"

/* The largest frame of a kernel has 270 KB (kernels/cpu/expr.c), and BLAS libraries have
 * their own. */
enum { STACK = 2 << 20 };

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return rc;
    rc = pthread_attr_setstacksize(&attr, STACK);
    if (!rc)
        rc = pthread_create(thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return rc;
}

struct share {
    pthread_t thread;
    void (*run)(void *user, int64_t from, int64_t end);
    void *user;
    int64_t from, end;
};

static void *share_main(void *arg)
{
    const struct share *s = arg;
    s->run(s->user, s->from, s->end);
    return NULL;
}

int thread_team_size(int threads, int64_t n, int64_t min_share)
{
    int max_threads = threads > 0 ? threads : cores_allowed();
    return (int)max_i64(1, min_i64(min_i64(max_threads, THREAD_TEAM_MAX), n / min_share));
}

void thread_team_run(int threads, int64_t n, int64_t unit,
              void (*run)(void *user, int64_t from, int64_t end), void *user)
{
    struct share shares[THREAD_TEAM_MAX];
    int started = 0;
    int64_t step = round_up((n + threads - 1) / threads, unit), from = 0;
    while (threads > 1 && started < threads && from < n) {
        struct share *s = &shares[started];
        *s = (struct share){.run = run, .user = user, .from = from, .end = min_i64(from + step, n)};
        if (thread_start(&s->thread, share_main, s))
            break;
        from = s->end;
        started++;
    }
    if (from < n)
        run(user, from, n);
    for (int i = 0; i < started; i++)
        pthread_join(shares[i].thread, NULL);
}
