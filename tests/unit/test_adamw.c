/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update on the host against its definition: bit by bit, for every instruction set, on odd
 * sizes and addresses, with values from denormal to huge; and memory that it must not change.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "attr.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "optim/host_update.h"
#include "optim/optim.h"
#include "unit/typical_update.h"

enum { MOST = 2 * OPTIM_CHUNK + 77, GUARD = 8, ROOM = MOST + 2 * GUARD };

/* All operands of one update, with a few guard elements on either side. */
struct operands {
    float w[ROOM], m[ROOM], v[ROOM], ema[ROOM], g[ROOM];
    uint16_t value[ROOM], half[ROOM];
};

/* Any bits but those of NaN and infinity, so all exponents; or values typical of training. */
static float draw(uint64_t *state, bool wild)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint32_t bits = (uint32_t)(*state >> 32);
    if (wild && (bits >> 23 & 0xff) == 0xff)
        bits &= ~(UINT32_C(1) << 30);
    if (!wild)
        return (float)(int32_t)bits * 0x1p-31f;
    return float_of_bits(bits);
}

static void fill(struct operands *o, uint64_t seed, bool wild)
{
    uint64_t state = seed;
    for (int i = 0; i < ROOM; i++) {
        o->w[i] = draw(&state, wild);
        o->m[i] = draw(&state, wild) * 0.1f;
        o->v[i] = fabsf(draw(&state, wild)) * (wild ? 1.f : 1e-3f);
        o->ema[i] = draw(&state, wild);
        o->g[i] = draw(&state, wild);
        o->half[i] = bf16_round(draw(&state, wild));
        o->value[i] = (uint16_t)i;
    }
}

/* ---- the definition -------------------------------------------------------------------------- */

/* In double, rounded once after each operation: this equals the fp32 result of IEEE 754 (Figueroa
 * 1995), whatever the compiler does. */
static float once(double x)
{
    volatile float f = (float)x;
    return f;
}

#define D(x) ((double)(x))
static void define(const struct update_constants *c, const struct host_update *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        float g = p->half ? bf16_load(((const uint16_t *)p->gradient)[i])
                          : ((const float *)p->gradient)[i];
        g = once(D(g) * D(c->clip));
        float old = once(D(c->beta1) * D(p->m[i])), new = once(D(c->new1) * D(g));
        p->m[i] = once(D(old) + D(new));
        old = once(D(c->beta2) * D(p->v[i]));
        new = once(D(once(D(c->new2) * D(g))) * D(g));
        p->v[i] = once(D(old) + D(new));
        float root = once(D(once(sqrt(D(once(D(p->v[i]) * D(c->unbias2)))))) + D(c->eps));
        float change = once(D(once(D(p->m[i]) * D(c->unbias1))) / D(root));
        change = once(D(change) + D(once(D(c->weight_decay) * D(p->w[i]))));
        p->w[i] = once(D(p->w[i]) - D(once(D(c->lr) * D(change))));
        if (p->value)
            p->value[i] = bf16_round(p->w[i]);
        if (p->ema) {
            old = once(D(c->ema) * D(p->ema[i]));
            p->ema[i] = once(D(old) + D(once(D(c->new_ema) * D(p->w[i]))));
        }
    }
}

/* The same bits, or both NaN. */
static void same(const char *what, const float *a, const float *b)
{
    for (int i = 0; i < ROOM; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s[%d] is %a and must be %a", what, i - GUARD, D(a[i]), D(b[i]));
}

static void same_operands(const struct operands *a, const struct operands *b)
{
    same("w", a->w, b->w);
    same("m", a->m, b->m);
    same("v", a->v, b->v);
    same("ema", a->ema, b->ema);
    same("g", a->g, b->g);
    assert_memory_equal(a->half, b->half, sizeof a->half);
    for (int i = 0; i < ROOM; i++)
        if (a->value[i] != b->value[i] &&
            !(isnan(bf16_load(a->value[i])) && isnan(bf16_load(b->value[i]))))
            fail_msg("value[%d] is %04x and must be %04x", i - GUARD, a->value[i], b->value[i]);
}

enum { WITH_VALUE = 1, WITH_HALF = 2, WITH_EMA = 4, WAYS = 8 };

static struct host_update call_of(struct operands *o, int way, int64_t shift, int64_t n)
{
    const int64_t at = GUARD + shift;
    return (struct host_update){
        .w = o->w + at,
        .m = o->m + at,
        .v = o->v + at,
        .ema = way & WITH_EMA ? o->ema + at : NULL,
        .value = way & WITH_VALUE ? o->value + at : NULL,
        .gradient = way & WITH_HALF ? (const void *)(o->half + at) : o->g + at,
        .half = way & WITH_HALF,
        .n = n,
    };
}

static struct operands ours, theirs;

static void check_set(enum host_update_set set, int way, int64_t shift, int64_t n, bool wild)
{
    fill(&ours, (uint64_t)(n * 64 + shift * 8 + way), wild);
    theirs = ours;
    struct host_update a = call_of(&ours, way, shift, n), b = call_of(&theirs, way, shift, n);
    host_update_with(set, &typical, &a);
    define(&typical, &b);
    same_operands(&ours, &theirs);
}

/* The value overwrites the gradient: the result is the same. */
static void check_shared(enum host_update_set set, int64_t n)
{
    fill(&ours, (uint64_t)n, false);
    theirs = ours;
    struct host_update a = call_of(&ours, WAYS - 1, 0, n), b = call_of(&theirs, WAYS - 1, 0, n);
    a.value = ours.half + GUARD;
    host_update_with(set, &typical, &a);
    define(&typical, &b);
    same("w", ours.w, theirs.w);
    same("ema", ours.ema, theirs.ema);
    assert_memory_equal(a.value, b.value, (size_t)n * sizeof *a.value);
}

static void test_sets(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 255, 256, 257, 600, 1031};
    (void)state;
    assert_non_null(host_update_name(HOST_UPDATE_PLAIN));
    for (enum host_update_set set = 0; set < HOST_UPDATE_SETS; set++) {
        if (!host_update_name(set))
            continue;
        print_message("%s\n", host_update_name(set));
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int way = 0; way < WAYS; way++)
                check_set(set, way, way % 3, sizes[i], i % 2);
        check_set(set, WAYS - 1, 1, 20011, true);
        check_set(set, WAYS - 1, 0, 20011, false);
        check_shared(set, 20011);
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        fill(&ours, 77, way % 2);
        theirs = ours;
        struct host_update a = call_of(&ours, way, 0, MOST), b = call_of(&theirs, way, 0, MOST);
        host_update(&typical, &a);
        host_update_with(HOST_UPDATE_PLAIN, &typical, &b);
        same_operands(&ours, &theirs);
    }
}

/* ---- as an op -------------------------------------------------------------------------------- */

static struct ckpt_view view(void *data, enum ckpt_dtype dtype, int64_t n)
{
    return (struct ckpt_view){data,
                              {.dtype = dtype, .ndim = data ? 1 : -1, .shape = {n}, .stride = {1}}};
}

enum { N1 = 300, N2 = 41, STATES = 2 * UPDATE_STATES, OPERANDS = STATES + 2 + 1 };

/* Two parameters, the first in bf16 with a master, the second in fp32. */
static void run_op(struct operands *o, const struct ckpt_adamw *options, const float *clip)
{
    struct ckpt_run run = {.lr = options->lr};
    struct update_attr attr = optim_adamw_attr(options);
    struct ckpt_view in[OPERANDS] = {view(o->value, CKPT_BF16, N1),
                                     view(o->w, CKPT_F32, N1),
                                     view(o->m, CKPT_F32, N1),
                                     view(o->v, CKPT_F32, N1),
                                     view(o->ema, CKPT_F32, N1),
                                     view(o->w + N1, CKPT_F32, N2),
                                     view(NULL, CKPT_F32, 0),
                                     view(o->m + N1, CKPT_F32, N2),
                                     view(o->v + N1, CKPT_F32, N2),
                                     view(o->ema + N1, CKPT_F32, N2),
                                     view(o->half, CKPT_BF16, N1),
                                     view(o->g + N1, CKPT_F32, N2),
                                     view((void *)(uintptr_t)clip, CKPT_F32, CLIP_VALUES)};
    struct ckpt_view out[STATES];
    memcpy(out, in, sizeof out);
    struct ckpt_kernel_args args = {
        .in = in, .out = out, .n_in = OPERANDS, .n_out = STATES, .attr = &attr, .run = &run};
    assert_int_equal(cpu_update(&args), 0);
}

static void define_op(struct operands *o, const struct update_constants *c)
{
    struct host_update first = {.w = o->w,
                                .m = o->m,
                                .v = o->v,
                                .ema = o->ema,
                                .value = o->value,
                                .gradient = o->half,
                                .half = true,
                                .n = N1};
    struct host_update second = {.w = o->w + N1,
                                 .m = o->m + N1,
                                 .v = o->v + N1,
                                 .ema = o->ema + N1,
                                 .gradient = o->g + N1,
                                 .n = N2};
    define(c, &first);
    define(c, &second);
}

static void test_op(void **state)
{
    float clip[CLIP_VALUES] = {[CLIP_NORM] = 3.f,
                               [CLIP_FACTOR] = typical.clip,
                               [CLIP_UNBIAS1] = typical.unbias1,
                               [CLIP_UNBIAS2] = typical.unbias2};
    struct ckpt_adamw options = CKPT_ADAMW_INIT;
    (void)state;
    options.lr = typical.lr;
    options.eps = typical.eps;
    options.weight_decay = typical.weight_decay;
    options.ema_decay = typical.ema;
    struct update_attr attr = optim_adamw_attr(&options);
    struct update_constants c = update_constants_of(&attr);
    c.lr = options.lr;
    c.clip = typical.clip;
    c.unbias1 = typical.unbias1;
    c.unbias2 = typical.unbias2;
    fill(&ours, 5, false);
    theirs = ours;
    run_op(&ours, &options, clip);
    define_op(&theirs, &c);
    same_operands(&ours, &theirs);
    /* If the norm is not finite nothing is updated; a value whose gradient used its memory is
     * restored. */
    for (int i = 0; i < 2; i++) {
        clip[CLIP_NORM] = i ? NAN : INFINITY;
        memset(ours.value, 0x41 + i, N1 * sizeof *ours.value);
        run_op(&ours, &options, clip);
        same_operands(&ours, &theirs);
    }
}

/* ---- binding --------------------------------------------------------------------------------- */

static char nodes[] = "test_adamw.tmp-XXXXXX", node3[64], cpulist[96];

static int make_node(void **state)
{
    (void)state;
    if (!mkdtemp(nodes))
        return -1;
    snprintf(node3, sizeof node3, "%s/node3", nodes);
    snprintf(cpulist, sizeof cpulist, "%s/cpulist", node3);
    return mkdir(node3, 0777);
}

static int remove_node(void **state)
{
    (void)state;
    unlink(cpulist);
    return rmdir(node3) || rmdir(nodes);
}

struct binding {
    int node, processes, rc, cpus; /* where; what came back; processors afterwards */
};

/* In a separate thread: it stays bound. */
static void *bind_thread(void *user)
{
    struct binding *b = user;
    cpu_set_t set;
    b->rc = host_update_bind(b->node, b->processes, nodes);
    sched_getaffinity(0, sizeof set, &set);
    b->cpus = CPU_COUNT(&set);
    return NULL;
}

/* Binds to the node of these processors, or with NULL to any that this thread may use. */
static struct binding bind_to(const char *list, int processes)
{
    struct binding b = {.node = list ? 3 : -1, .processes = processes};
    pthread_t thread;
    FILE *f = fopen(cpulist, "w");
    assert_non_null(f);
    fputs(list ? list : "", f);
    fclose(f);
    assert_int_equal(pthread_create(&thread, NULL, bind_thread, &b), 0);
    pthread_join(thread, NULL);
    return b;
}

static void test_bind(void **state)
{
    static const char *const bad[] = {"x", "1-", "-1", "2-1", "0;1", "0-99999", "", "\n"};
    char list[64];
    cpu_set_t set;
    int first = 0;
    (void)state;
    sched_getaffinity(0, sizeof set, &set);
    while (!CPU_ISSET((size_t)first, &set))
        first++;
    snprintf(list, sizeof list, "%d,%d-%d\n", first, CPU_SETSIZE - 2, CPU_SETSIZE - 1);
    struct binding b = bind_to(list, 1);
    assert_int_equal(b.rc, 1);
    assert_int_equal(b.cpus, 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        b = bind_to(bad[i], 1);
        assert_int_equal(b.rc, CKPT_EIO);
        assert_int_equal(b.cpus, CPU_COUNT(&set));
    }
    /* Two processors stay free for other work, but no more than half. */
    b = bind_to(NULL, 1);
    int all = CPU_COUNT(&set);
    assert_int_equal(b.cpus, all);
    assert_int_equal(b.rc, all > 3 ? all - 2 : all - all / 2);
    /* Ranks that may use the same processors divide them, and each has at least one. */
    for (int processes = 2; processes <= all + 1; processes++) {
        int part = all / processes > 1 ? all / processes : 1;
        b = bind_to(NULL, processes);
        assert_int_equal(b.rc, part > 3 ? part - 2 : part - part / 2);
        assert_int_equal(b.cpus, all);
    }
    assert_int_equal(host_update_bind(4, 1, nodes), CKPT_EIO);
    assert_non_null(strstr(error_get(), "node4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_op),
        cmocka_unit_test_setup_teardown(test_bind, make_node, remove_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
