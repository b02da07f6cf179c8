/* SPDX-License-Identifier: Apache-2.0 */
/* The thread team of loops: each requested thread runs the loop once, and idle threads sleep. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/base.h"
#include "memory/device/team.h"

#ifdef CKPT_OWN_TEAM
enum { MOST = 6, LOOPS = 3000, PLACES = 4 };

struct loop {
    int runs[MOST];
    int threads; /* as each of them saw it */
    int nested;  /* runs of loops in it */
};

static void count_one(void *data)
{
    __atomic_fetch_add((int *)data, 1, __ATOMIC_RELAXED);
}

static void body(void *data)
{
    struct loop *l = data;
    __atomic_fetch_add(&l->runs[team_number()], 1, __ATOMIC_RELAXED);
    __atomic_store_n(&l->threads, team_threads(), __ATOMIC_RELAXED);
    team_run(count_one, &l->nested, 3, 0);
}

/* Loops of this thread with 1 to MOST threads, in mixed order. */
static int run_loops(void)
{
    int wrong = 0;
    for (int i = 0; i < LOOPS; i++) {
        int n = 1 + (i * 7 + i / 5) % MOST;
        struct loop l = {{0}, 0, 0};
        team_run(body, &l, (unsigned)n, 0);
        for (int k = 0; k < MOST; k++)
            wrong += l.runs[k] != (k < n);
        wrong += l.threads != n || l.nested != (n > 1 ? n : 3);
    }
    return wrong;
}

static void *run_elsewhere(void *wrong)
{
    team_size(2);
    *(int *)wrong = team_start() ? 1 : run_loops();
    return NULL;
}

/* Threads of this process in the state of this letter; 0: in any state. */
static int threads_in(char state)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[64], name[64], s = 0;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f && fscanf(f, "%*d (%63[^)]) %c", name, &s) == 2)
            n += !state || s == state;
        if (f)
            fclose(f);
    }
    closedir(d);
    return n;
}

static void test_loops(void **state)
{
    pthread_t thread[PLACES];
    int wrong[PLACES];
    (void)state;
    assert_int_equal(run_loops(), 0);
    int before = threads_in(0);
    for (int i = 0; i < PLACES; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_elsewhere, &wrong[i]), 0);
    for (int i = 0; i < PLACES; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
    /* A thread that ends also ends the threads of its loops; the kernel may list them for a moment.
     * */
    for (int i = 0; i < 1000 && threads_in(0) != before; i++)
        usleep(10000);
    assert_int_equal(threads_in(0), before);
    assert_int_equal(run_loops(), 0);
}

static void test_sleep(void **state)
{
    struct loop l = {{0}, 0, 0};
    (void)state;
    team_run(body, &l, MOST, 0);
    /* All but this one, which looks. */
    for (int i = 0; i < 1000 && threads_in('S') < MOST - 1; i++)
        usleep(10000);
    assert_true(threads_in('S') >= MOST - 1);
}

static void test_size(void **state)
{
    (void)state;
    assert_true(team_count(0) >= 1);
    assert_int_equal(team_count(3), 3);
    team_size(3);
    assert_int_equal(team_start(), 0);
    int runs = 0;
    team_run(count_one, &runs, 0, 0);
    assert_int_equal(runs, 3);
    assert_int_equal(team_number(), 0);
    assert_int_equal(team_threads(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops), cmocka_unit_test(test_sleep),
                                       cmocka_unit_test(test_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 77;
}
#endif
