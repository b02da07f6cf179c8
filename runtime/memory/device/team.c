/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of kernels.  OpenMP starts those of a thread with its first loop, and ends the
 * process where it cannot.  So a queue starts them before its first command, after as many threads
 * of our own have shown that they can be had: what is missing is an error then.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "ckpt.h"
#include "memory/device/team.h"

int team_count(int threads)
{
#ifdef _OPENMP
    return threads > 0 ? threads : omp_get_num_procs();
#else
    (void)threads;
    return 1;
#endif
}

void team_size(int threads)
{
#ifdef _OPENMP
    omp_set_num_threads(team_count(threads));
#else
    (void)threads;
#endif
}

#ifdef _OPENMP
/* Holds a thread until all have been started. */
static void *stand(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

static bool can_start(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    int started = 0;
    pthread_mutex_lock(&gate);
    while (threads && started < n && !pthread_create(&threads[started], NULL, stand, &gate))
        started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    pthread_mutex_destroy(&gate);
    return started == n;
}
#endif

int team_start(void)
{
#ifdef _OPENMP
    int n = omp_get_max_threads();
    if (n > 1 && !can_start(n - 1))
        return CKPT_ENOMEM;
#pragma omp parallel num_threads(n)
    {
#pragma omp barrier
    }
#endif
    return 0;
}
