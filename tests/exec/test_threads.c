/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread rules of ckpt.h: two contexts at the same time, two programs of one context in turns
 * from two threads, requests from any thread, a search that is watched and stopped.  Also the
 * ownership of handles: tensors of another tape, and parameters and optimizers of another context
 * are refused.  ThreadSanitizer checks the same test.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"

enum { STEPS = 6, WIDTH = 16, BATCH = 8 };

struct model {
    ckpt *c;
    ckpt_tensor w[2];
    ckpt_program *p;
    float loss[STEPS];
    int rc;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor h = ckpt_gelu_tanh(t, ckpt_linear(t, x, m->w[0], CKPT_NONE));
    return ckpt_mse(t, ckpt_linear(t, h, m->w[1], CKPT_NONE), x, CKPT_NONE);
}

/* No asserts here: cmocka's only work in the test's thread. */
static int model_open(struct model *m)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.threads = 1;
    int rc = ckpt_open(&m->c, &o);
    if (rc)
        return rc;
    for (int i = 0; i < 2; i++)
        m->w[i] = ckpt_param(m->c, i ? "second" : "first", CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH},
                             CKPT_XAVIER, true);
    return 0;
}

static int compile(struct model *m, ckpt_program **p)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    a.lr = 1e-2f;
    return ckpt_compile(m->c, record, m, ckpt_adamw(m->c, &a), BATCH, p);
}

static int step(ckpt_program *p, int i, float *loss)
{
    float x[BATCH * WIDTH];
    ckpt_fill_normal(3, (uint64_t)i, 1, x, BATCH * WIDTH);
    int rc = ckpt_feed(p, "x", x, sizeof x);
    return rc ? rc : ckpt_step(p, loss);
}

static void *train(void *user)
{
    struct model *m = user;
    m->rc = model_open(m);
    if (!m->rc)
        m->rc = compile(m, &m->p);
    for (int i = 0; i < STEPS && !m->rc; i++)
        m->rc = step(m->p, i, &m->loss[i]);
    ckpt_close(m->c);
    return NULL;
}

static void test_two_contexts(void **state)
{
    (void)state;
    struct model alone = {.rc = 0}, both[2] = {{.rc = 0}, {.rc = 0}};
    pthread_t thread[2];
    train(&alone);
    assert_int_equal(alone.rc, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, train, &both[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(both[i].rc, 0);
        assert_memory_equal(both[i].loss, alone.loss, sizeof alone.loss);
    }
}

/* State of one thread that takes turns: its program runs every second step. */
struct turns {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int next; /* step */
    ckpt_program *p[2];
    float loss[STEPS];
    int rc;
};

struct player {
    struct turns *t;
    int which;
};

static void *play(void *user)
{
    const struct player *me = user;
    struct turns *t = me->t;
    for (int i = me->which; i < STEPS; i += 2) {
        pthread_mutex_lock(&t->lock);
        while (t->next != i)
            pthread_cond_wait(&t->moved, &t->lock);
        if (!t->rc)
            t->rc = step(t->p[me->which], i, &t->loss[i]);
        t->next++;
        pthread_cond_broadcast(&t->moved);
        pthread_mutex_unlock(&t->lock);
    }
    return NULL;
}

/* Runs two programs that train the same parameters, from one thread or from two. */
static void take_turns(bool threads, float loss[STEPS])
{
    struct turns t = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    struct player player[2] = {{&t, 0}, {&t, 1}};
    struct model m = {.rc = 0};
    pthread_t thread[2];
    assert_int_equal(model_open(&m), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(compile(&m, &t.p[i]), 0);
    for (int i = 0; i < 2 && threads; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, play, &player[i]), 0);
    for (int i = 0; i < 2 && threads; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < STEPS && !threads && !t.rc; i++)
        t.rc = step(t.p[i % 2], i, &t.loss[i]);
    assert_int_equal(t.rc, 0);
    memcpy(loss, t.loss, sizeof t.loss);
    ckpt_close(m.c);
}

static void test_two_programs(void **state)
{
    (void)state;
    float one[STEPS], two[STEPS];
    take_turns(false, one);
    take_turns(true, two);
    assert_memory_equal(one, two, sizeof one);
    assert_true(one[STEPS - 1] < one[0]);
}

static void *ask(void *user)
{
    ckpt_request_save(user);
    ckpt_request_stop(user);
    ckpt_parse_size("x", &(int64_t){0}); /* the error of this thread */
    return strstr(ckpt_error(NULL), "x") ? user : NULL;
}

static void test_requests(void **state)
{
    (void)state;
    struct model m = {.rc = 0};
    pthread_t thread;
    void *mine;
    float loss;
    assert_int_equal(model_open(&m), 0);
    assert_int_equal(compile(&m, &m.p), 0);
    assert_int_equal(ckpt_parse_size("quarter", &(int64_t){0}), CKPT_EINVAL);
    assert_int_equal(pthread_create(&thread, NULL, ask, m.c), 0);
    for (int i = 0; !ckpt_stop_requested(m.c); i++)
        assert_int_equal(step(m.p, i, &loss), 0);
    pthread_join(thread, &mine);
    assert_ptr_equal(mine, m.c);
    assert_true(ckpt_save_requested(m.c) && !ckpt_save_requested(m.c));
    assert_non_null(strstr(ckpt_error(NULL), "quarter"));
    ckpt_request_abandon(m.c); /* for several ranks: this one can submit nothing */
    assert_int_equal(step(m.p, 1, &loss), 0);
    ckpt_request_abandon(NULL);
    ckpt_close(m.c);
}

/* ---- a search that is watched -------------------------------------------------------------- */

struct watched {
    struct model m;
    int calls, seconds;
};

/* The seconds of a search count from before its recorder: its first check comes after one. */
static ckpt_tensor record_late(ckpt_tape *t, int64_t batch, void *user)
{
    const struct watched *w = user;
    nanosleep(&(struct timespec){1, 50000000}, NULL);
    return record(t, batch, (void *)&w->m);
}

static void stop_search(void *user, int seconds)
{
    struct watched *w = user;
    w->calls++;
    w->seconds = seconds;
    ckpt_request_stop(w->m.c);
}

/* The call is made, and each request ends one search; a request of before does not end the next. */
static void test_stop_search(void **state)
{
    (void)state;
    struct watched w = {.calls = 0};
    ckpt_program *p;
    assert_int_equal(model_open(&w.m), 0);
    assert_int_equal(ckpt_watch_plan(w.m.c, stop_search, &w), 0);
    for (int calls = 1; calls <= 2; calls++) {
        assert_int_equal(ckpt_compile(w.m.c, record_late, &w, NULL, BATCH, &p), CKPT_ESTOP);
        assert_null(p);
        assert_int_equal(w.calls, calls);
    }
    assert_in_range(w.seconds, 1, 60);
    assert_non_null(strstr(ckpt_error(w.m.c), "stopped by a request"));
    assert_true(ckpt_stop_requested(w.m.c));
    assert_int_equal(ckpt_watch_plan(w.m.c, NULL, NULL), 0);
    assert_int_equal(compile(&w.m, &w.m.p), 0);
    assert_int_equal(w.calls, 2);
    ckpt_close(w.m.c);
}

/* ---- ownership of handles ------------------------------------------------------------------ */

static ckpt_tensor kept; /* of the tape before */

static ckpt_tensor record_kept(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor y = ckpt_gelu_tanh(t, kept.id ? kept : x);
    kept = x;
    return y;
}

static void test_other_tape(void **state)
{
    (void)state;
    struct model m = {.rc = 0};
    ckpt_program *p;
    assert_int_equal(model_open(&m), 0);
    kept = CKPT_NONE;
    assert_int_equal(ckpt_compile(m.c, record_kept, &m, NULL, BATCH, &p), 0);
    assert_int_equal(ckpt_compile(m.c, record_kept, &m, NULL, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(m.c), "a tensor of another tape"));
    assert_non_null(strstr(ckpt_error(m.c), "test_threads.c:"));
    ckpt_close(m.c);
}

static void test_other_context(void **state)
{
    (void)state;
    struct model a = {.rc = 0}, b = {.rc = 0};
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    struct ckpt_adamw settings = CKPT_ADAMW_INIT;
    ckpt_program *p;
    assert_int_equal(model_open(&a), 0);
    assert_int_equal(model_open(&b), 0);
    assert_int_equal(ckpt_compile(a.c, record, &b, NULL, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(a.c), "a parameter of another context"));
    assert_int_equal(ckpt_param_info(a.c, b.w[0], &info), CKPT_ENAME);
    assert_int_equal(ckpt_param_info(b.c, b.w[0], &info), 0);
    assert_int_equal(ckpt_compile(a.c, record, &a, ckpt_adamw(b.c, &settings), BATCH, &p),
                     CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(a.c), "another context"));
    ckpt_close(a.c);
    ckpt_close(b.c);
}

/* A failed optimizer makes later calls fail, as a failed parameter does. */
static void test_no_optimizer(void **state)
{
    (void)state;
    struct model m = {.rc = 0};
    struct ckpt_adamw settings = {.lr = 1};
    ckpt_program *p;
    assert_int_equal(model_open(&m), 0);
    assert_null(ckpt_adamw(NULL, &settings));
    assert_null(ckpt_adamw(m.c, &settings));
    assert_int_equal(ckpt_compile(m.c, record, &m, NULL, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(m.c), "struct ckpt_adamw"));
    ckpt_close(m.c);
    assert_int_equal(ckpt_version_number(), CKPT_VERSION_NUMBER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_contexts), cmocka_unit_test(test_two_programs),
        cmocka_unit_test(test_requests),     cmocka_unit_test(test_stop_search),
        cmocka_unit_test(test_other_tape),   cmocka_unit_test(test_other_context),
        cmocka_unit_test(test_no_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
