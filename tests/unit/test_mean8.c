/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running means in 8 bits: what has a code stays, in any block and with any noise; the expectation
 * of what has none; a mean of squares is never 0 but where it is; blocks of nothing, of one
 * element, of denormal and of infinite ones.  The update against a replay in double with codes
 * found by search, bit by bit, for every kind and instruction set; shares of buckets against whole
 * parameters; and why not to nearest.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attr.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "core/mean8.h"
#include "core/random.h"
#include "optim/host_update.h"
#include "optim/optim.h"
#include "unit/typical_update.h"

enum { MOST = 2 * OPTIM_CHUNK + 77, NOISES = 1 << 16, TOPS = 2041 /* the last is infinity */ };

#define D(x) ((double)(x))

/* ---- codes ----------------------------------------------------------------------------------- */

static float number(uint32_t index)
{
    return float_of_bits(index << MEAN8_SHIFT);
}

/* Every code of every block, with noises at both ends: its value has that code again. */
static void test_codes_stay(void **state)
{
    static const uint32_t noise[] = {0, 1, MEAN8_NEAREST, 0x8000, 0xffff};
    (void)state;
    for (int square = 0; square < 2; square++)
        for (uint32_t top = 0; top < TOPS; top++) {
            const uint32_t base = mean8_base(top, square), most = square ? 255 : 127;
            for (uint32_t code = 0; code < 256; code++) {
                const float x = mean8_decode(code, base, square);
                if ((code & most) + base > top && (code & most))
                    continue; /* above the top */
                assert_true(mean8_ceil(x) <= top);
                for (size_t k = 0; k < sizeof noise / sizeof *noise; k++)
                    assert_int_equal(mean8_encode(x, base, noise[k], square), code);
            }
        }
}

/* What a block of one top holds is the same in a block of any lower one that still holds it, and is
 * a bf16 number: so values pass through fp32 and bf16 without a change. */
static void test_grid(void **state)
{
    (void)state;
    for (int square = 0; square < 2; square++)
        for (uint32_t code = 0; code < 256; code++)
            for (uint32_t top = 300; top < 420; top++) {
                const float x = mean8_decode(code, mean8_base(top, square), square);
                const uint32_t own = mean8_base(mean8_ceil(x), square);
                const float y = mean8_decode(mean8_encode(x, own, 0x1234, square), own, square);
                assert_memory_equal(&x, &y, sizeof x);
                assert_int_equal(float_bits(x) & 0xffff, 0);
            }
}

/* All noises: neighbours alone, and the mean is x within 2^-17 of their distance. */
static void check_expectation(float x, uint32_t top, bool square)
{
    const uint32_t base = mean8_base(top, square), index = float_bits(fabsf(x)) >> MEAN8_SHIFT;
    const bool low = index <= base;
    const double below = low ? 0 : D(number(index)), above = D(number((low ? base : index) + 1));
    double sum = 0;
    for (uint32_t noise = 0; noise < NOISES; noise++) {
        const double y = D(mean8_decode(mean8_encode(x, base, noise, square), base, square));
        assert_true(fabs(y) == below || fabs(y) == above);
        assert_true(y == 0 || (y < 0) == (x < 0));
        sum += y;
    }
    if (square && low)
        assert_true(sum / NOISES == above);
    else
        assert_true(fabs(sum / NOISES - D(x)) <= 0x1p-17 * (above - below));
}

static void test_expectation(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        const float x = ldexpf(1.f + (float)(i * 2654435761u >> 9) * 0x1p-23f, 3 - (int)i % 25);
        const uint32_t top = mean8_ceil(16.f);
        check_expectation(x, top, false);
        check_expectation(-x, top, false);
        check_expectation(x, top, true);
    }
    check_expectation(1e-40f, 5, false); /* denormal, and the block begins at 0 */
    check_expectation(1e-39f, 20, false);
    check_expectation(3e-5f, mean8_ceil(1.f), false);
}

/* All of n values are encoded and decoded, to nearest. */
static void pass(const float *x, float *y, int64_t n, bool square)
{
    uint8_t *memory = malloc((size_t)mean8_words(n) * 4 + 1);
    memory[mean8_words(n) * 4] = 0x5a;
    mean8_to(x, n, square, memory);
    assert_int_equal(memory[mean8_words(n) * 4], 0x5a);
    mean8_from(memory, n, square, y);
    free(memory);
}

static void test_nearest(void **state)
{
    float x[1000], y[1000], z[1000];
    (void)state;
    for (int64_t n = 1; n <= 1000; n = 3 * n + 1)
        for (int square = 0; square < 2; square++) {
            for (int64_t i = 0; i < n; i++)
                x[i] = ldexpf(1.f + (float)(i % 97) / 97.f, -(int)(i % 14)) *
                       (i % 3 || square ? 1.f : -1.f);
            pass(x, y, n, square);
            pass(y, z, n, square);
            assert_memory_equal(y, z, (size_t)n * sizeof *y);
            for (int64_t i = 0; i < n; i++)
                assert_true(fabsf(y[i] - x[i]) <= fabsf(x[i]) / 16);
        }
}

static void test_odd_blocks(void **state)
{
    float x[MEAN8_BLOCK + 1] = {0}, y[MEAN8_BLOCK + 1];
    (void)state;
    for (int square = 0; square < 2; square++) {
        memset(x, 0, sizeof x);
        pass(x, y, MEAN8_BLOCK + 1, square);
        assert_memory_equal(x, y, sizeof x);
        x[MEAN8_BLOCK] = 0x1.6p-3f; /* alone in its block */
        x[3] = 0x1p-149f, x[4] = 0x1p-127f;
        pass(x, y, MEAN8_BLOCK + 1, square);
        assert_true(y[MEAN8_BLOCK] == x[MEAN8_BLOCK] && y[4] == x[4]);
        assert_int_equal(y[3] > 0, square); /* squares do not become 0 */
        x[3] = INFINITY, x[4] = 1.f;
        pass(x, y, MEAN8_BLOCK + 1, square);
        assert_true(isinf(y[3]) && y[0] == 0.f && y[MEAN8_BLOCK] == x[MEAN8_BLOCK]);
        for (int sign = 0; sign < 2; sign++) { /* what no state is saved with, without its sign */
            x[3] = float_of_bits(0x7fc00000u | (uint32_t)sign << 31);
            pass(x, y, MEAN8_BLOCK + 1, square);
            assert_true(y[3] == INFINITY);
        }
    }
    x[3] = -INFINITY;
    pass(x, y, MEAN8_BLOCK, false);
    assert_true(y[3] == -INFINITY);
    x[3] = FLT_MAX;
    pass(x, y, MEAN8_BLOCK, false);
    assert_true(y[3] > 0x1p127f);
}

/* Far below the largest: a mean keeps its expectation, squares become the smallest number. */
static void test_far_below(void **state)
{
    const uint32_t base = mean8_base(mean8_ceil(1.f), true), least = base + 1;
    (void)state;
    for (uint32_t noise = 0; noise < NOISES; noise += 4097) {
        assert_int_equal(mean8_encode(1e-30f, base, noise, true), 1);
        assert_int_equal(mean8_encode(0.f, base, noise, true), 0);
    }
    assert_true(number(least) < 0x1p-31f);
    assert_true(number(mean8_base(mean8_ceil(1.f), false) + 1) < 0x1p-15f);
}

/* ---- the update ------------------------------------------------------------------------------ */

enum { WORDS = (MOST + MEAN8_BLOCK) / MEAN8_BLOCK * 17 };

struct operands {
    uint16_t w[MOST], half[MOST];
    int32_t m[WORDS], v[WORDS];
    float ema[MOST], g[MOST];
};

static struct operands ours, theirs;

static float draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* n elements; each with a scale of its own, so that some are far below others. */
static void fill(struct operands *o, uint64_t seed, int64_t n)
{
    static float m[MOST], v[MOST];
    memset(o, 0, sizeof *o);
    for (int i = 0; i < MOST; i++) {
        const float scale = ldexpf(1.f, -(int)(fabsf(draw(&seed)) * 24.f));
        o->w[i] = bf16_round(draw(&seed));
        m[i] = draw(&seed) * 0.1f * scale;
        v[i] = fabsf(draw(&seed)) * 1e-3f * scale * scale;
        o->ema[i] = draw(&seed);
        o->g[i] = draw(&seed) * scale;
        o->half[i] = bf16_round(draw(&seed) * scale);
    }
    mean8_to(m, n, false, o->m);
    mean8_to(v, n, true, o->v);
}

static float once(double x)
{
    volatile float f = (float)x;
    return f;
}

/* The largest index whose number is at most x, which is not negative. */
static uint32_t find(double x)
{
    uint32_t low = 0, high = TOPS - 1;
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (D(number(middle)) <= x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* A code by the distances of neighbours, in 2^-16 of which noise is. */
static uint8_t code_by_definition(float x, uint32_t base, uint32_t noise, bool square)
{
    const double a = fabs(D(x)), part = (noise + 0.5) / NOISES;
    const uint8_t sign = !square && signbit(x) ? 128 : 0;
    if (a < D(number(base + 1)))
        return (uint8_t)((square ? a > 0 : a > part * D(number(base + 1))) | sign);
    const uint32_t i = find(a);
    const double gap = i + 1 < TOPS - 1 ? D(number(i + 1)) - D(number(i)) : D(number(i)) / 8;
    const double here = floor((a - D(number(i))) / gap * 0x1p20); /* of the bits 20 are left */
    return (uint8_t)((i + (here + 16. * noise + 8 >= 0x1p20) - base) | sign);
}

/* Stores the means of a parameter of n elements of a block from `at` on. */
static void store(void *memory, int64_t n, int64_t at, const float *x, const uint32_t *noise,
                  bool square)
{
    const int64_t some = min_i64(MEAN8_BLOCK, n - at);
    const struct mean8 s = mean8_at(memory, n, at);
    double most = 0;
    for (int64_t i = 0; i < some; i++)
        most = fmax(most, fabs(D(x[i])));
    const uint32_t top = find(most) + (D(number(find(most))) < most);
    const uint32_t base = mean8_base(top, square);
    for (int64_t i = 0; i < some; i++)
        s.code[i] = code_by_definition(x[i], base, noise[i], square);
    *s.top = (uint16_t)(float_bits(number(top)) >> 16);
}

static uint16_t round_by_definition(float x, uint32_t noise)
{
    const uint16_t below = (uint16_t)(float_bits(x) >> 16);
    const double gap = D(bf16_load((uint16_t)(below + 1))) - D(bf16_load(below));
    return (uint16_t)(below + ((D(x) - D(bf16_load(below))) / gap * NOISES + noise >= NOISES));
}

/* AdamW of n elements whose means begin at the memory, in double and rounded once after each
 * operation: that is the fp32 result of IEEE 754 (Figueroa 1995). */
static void define(struct operands *o, const struct host_update *p, int64_t n)
{
    const struct update_constants *c = &typical;
    static float m[MOST], v[MOST];
    static uint32_t word[MOST], low[MOST], both[MOST];
    mean8_from(o->m, n, false, m);
    mean8_from(o->v, n, true, v);
    random_words(&p->noise, p->first, word, n);
    for (int64_t i = 0; i < n; i++) {
        const float w = bf16_load(p->value[i]);
        float g = p->half ? bf16_load(((const uint16_t *)p->gradient)[i])
                          : ((const float *)p->gradient)[i];
        g = once(D(g) * D(c->clip));
        m[i] = once(D(once(D(c->beta1) * D(m[i]))) + D(once(D(c->new1) * D(g))));
        v[i] = once(D(once(D(c->beta2) * D(v[i]))) + D(once(D(once(D(c->new2) * D(g))) * D(g))));
        float root = once(D(once(sqrt(D(once(D(v[i]) * D(c->unbias2)))))) + D(c->eps));
        float change = once(D(once(D(m[i]) * D(c->unbias1))) / D(root));
        change = once(D(change) + D(once(D(c->weight_decay) * D(w))));
        p->value[i] =
            round_by_definition(once(D(w) - D(once(D(c->lr) * D(change)))), word[i] >> 16);
        low[i] = word[i] & 0xffff;
        both[i] = word[i] >> 16 ^ low[i];
        if (p->ema)
            p->ema[i] = once(D(once(D(c->ema) * D(p->ema[i]))) +
                             D(once(D(c->new_ema) * D(bf16_load(p->value[i])))));
    }
    for (int64_t at = 0; at < n; at += MEAN8_BLOCK) {
        store(o->m, n, at, m + at, low + at, false);
        store(o->v, n, at, v + at, both + at, true);
    }
}

static struct host_update call_of(struct operands *o, bool half, int64_t n)
{
    return (struct host_update){
        .narrow = true,
        .value = o->w,
        .byte_m = mean8_at(o->m, n, 0),
        .byte_v = mean8_at(o->v, n, 0),
        .ema = half ? o->ema : NULL,
        .gradient = half ? (const void *)o->half : o->g,
        .half = half,
        .n = n,
        .noise = {.seed = 77, .step = 3},
        .first = 64 * 5,
    };
}

static void test_sets(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 17, 63, 64, 65, 255, 256, 257, 600, 1031, 20011};
    (void)state;
    for (enum host_update_set set = 0; set < HOST_UPDATE_SETS; set++) {
        if (!host_update_name(set))
            continue;
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            fill(&ours, i, sizes[i / 2]);
            theirs = ours;
            struct host_update a = call_of(&ours, i % 2, sizes[i / 2]);
            struct host_update b = call_of(&theirs, i % 2, sizes[i / 2]);
            host_update_with(set, &typical, &a);
            define(&theirs, &b, sizes[i / 2]);
            assert_memory_equal(&ours, &theirs, sizeof ours);
        }
    }
}

/* Kinds with one mean, several steps: each instruction set gives the results of the plain code. */
static void test_kinds(void **state)
{
    static const int kinds[] = {UPDATE_SGD, UPDATE_LION, UPDATE_ADAMW};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (enum host_update_set set = 1; set < HOST_UPDATE_SETS; set++) {
            struct update_constants c = typical;
            if (!host_update_name(set))
                continue;
            c.kind = kinds[k];
            fill(&ours, k, 1031);
            theirs = ours;
            for (uint64_t s = 0; s < 5; s++) {
                struct host_update a = call_of(&ours, true, 1031), b = call_of(&theirs, true, 1031);
                if (c.kind != UPDATE_ADAMW)
                    a.byte_v = b.byte_v = (struct mean8){NULL, NULL};
                a.noise.step = b.noise.step = s;
                host_update_with(set, &c, &a);
                host_update_with(HOST_UPDATE_PLAIN, &c, &b);
            }
            assert_memory_equal(&ours, &theirs, sizeof ours);
        }
}

static void test_threads(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        fill(&ours, 5, MOST);
        theirs = ours;
        struct host_update a = call_of(&ours, half, MOST), b = call_of(&theirs, half, MOST);
        host_update(&typical, &a);
        host_update_with(HOST_UPDATE_PLAIN, &typical, &b);
        assert_memory_equal(&ours, &theirs, sizeof ours);
    }
}

/* ---- as an op -------------------------------------------------------------------------------- */

static struct ckpt_view view(void *data, enum ckpt_dtype dtype, int64_t n)
{
    return (struct ckpt_view){data,
                              {.dtype = dtype, .ndim = data ? 1 : -1, .shape = {n}, .stride = {1}}};
}

enum { A = 300, B = 41, OFFSET = 320, WHOLE = 384, SHARE = WHOLE / 2 };

/* One operand: the values of elements [at, at + n), whose means are from the beginning. */
static void run_op(struct operands *o, const struct rounding *r, int64_t at, int64_t n, bool finite)
{
    const float clip[CLIP_VALUES] = {[CLIP_NORM] = finite ? 3.f : NAN,
                                     [CLIP_FACTOR] = 0.5f,
                                     [CLIP_UNBIAS1] = 5.f,
                                     [CLIP_UNBIAS2] = 500.f};
    struct ckpt_adamw settings = CKPT_ADAMW_INIT;
    struct ckpt_run run = {.lr = 1e-3f, .seed = 9, .opt_step = 4};
    struct narrow_update_attr attr = {.update = optim_adamw_attr(&settings), .rounding = *r};
    struct ckpt_view in[UPDATE_STATES + 2];
    attr.update.narrow = NARROW_8BIT;
    attr.update.ema_decay = 0.9f;
    in[UPDATE_VALUE] = view(o->w + at, CKPT_BF16, n);
    in[UPDATE_MASTER] = view(NULL, CKPT_F32, 0);
    in[UPDATE_EXP_AVG] = view(o->m, CKPT_I32, mean8_words(n));
    in[UPDATE_EXP_AVG_SQ] = view(o->v, CKPT_I32, mean8_words(n));
    in[UPDATE_EMA] = view(o->ema + at, CKPT_F32, n);
    in[UPDATE_STATES] = view(o->g + at, CKPT_F32, n);
    in[UPDATE_STATES + 1] = view((void *)(uintptr_t)clip, CKPT_F32, CLIP_VALUES);
    struct ckpt_view out[UPDATE_STATES];
    memcpy(out, in, sizeof out);
    struct ckpt_kernel_args args = {.in = in,
                                    .out = out,
                                    .n_in = UPDATE_STATES + 2,
                                    .n_out = UPDATE_STATES,
                                    .attr = &attr,
                                    .run = &run};
    assert_int_equal(cpu_update(&args), 0);
}

/* What the means of two operands hold from these elements on. */
static void same_means(struct operands *a, int64_t na, int64_t from, struct operands *b, int64_t nb,
                       int64_t at, int64_t n)
{
    static float x[MOST], y[MOST];
    for (int square = 0; square < 2; square++) {
        mean8_from(square ? a->v : a->m, na, square, x);
        mean8_from(square ? b->v : b->m, nb, square, y);
        assert_memory_equal(x + from, y + at, (size_t)n * sizeof *x);
    }
}

/* Where a bucket has no elements, nothing. */
static void fill_bucket(struct operands *o, int64_t first, int64_t n)
{
    static float m[MOST], v[MOST];
    uint64_t seed = 8;
    memset(o, 0, sizeof *o);
    for (int64_t i = 0; i < WHOLE; i++) {
        const bool there = i < A || (i >= OFFSET && i < OFFSET + B);
        const float scale = ldexpf(there, -(int)(i % 20));
        o->w[i] = bf16_round(draw(&seed) * (float)there);
        m[i] = draw(&seed) * scale;
        v[i] = fabsf(draw(&seed)) * scale * scale;
        o->g[i] = draw(&seed) * scale;
    }
    mean8_to(m + first, n, false, o->m);
    mean8_to(v + first, n, true, o->v);
}

/* A parameter in a bucket, and its parts in shares of it: its place changes no bit. */
static void test_shares(void **state)
{
    struct rounding bucket = {.begin = {0, 2}, .part = {{11, 0}, {22, OFFSET}}};
    struct rounding alone = {.begin = {0, 1}, .part = {{11, 0}}};
    (void)state;
    fill_bucket(&ours, 0, WHOLE);
    run_op(&ours, &bucket, 0, WHOLE, true);
    fill_bucket(&theirs, 0, A);
    run_op(&theirs, &alone, 0, A, true);
    assert_memory_equal(ours.w, theirs.w, A * sizeof *ours.w);
    same_means(&ours, WHOLE, 0, &theirs, A, 0, A);
    for (int rank = 0; rank < 2; rank++) {
        const int64_t at = rank * SHARE;
        struct rounding share = {.begin = {0, 2}, .part = {{11, -at}, {22, OFFSET - at}}};
        fill_bucket(&theirs, at, SHARE);
        run_op(&theirs, &share, at, SHARE, true);
        assert_memory_equal(ours.w + at, theirs.w + at, SHARE * sizeof *ours.w);
        same_means(&ours, WHOLE, at, &theirs, SHARE, 0, SHARE);
    }
}

/* If the norm is not finite nothing is written. */
static void test_not_updated(void **state)
{
    const struct rounding r = {.begin = {0, 1}, .part = {{.name = 11}}};
    (void)state;
    fill(&ours, 3, A);
    theirs = ours;
    run_op(&ours, &r, 0, A, false);
    assert_memory_equal(&ours, &theirs, sizeof ours);
}

/* ---- why ------------------------------------------------------------------------------------- */

/* A mean of squares that loses a thousandth a step: half a gap is 3 to 6 % of it, so to nearest it
 * stays as it is; rounded stochastically the mean of many follows.  One element of each block is
 * larger, and holds the top. */
static void test_small_changes(void **state)
{
    enum { N = 1 << 14, STEPS = 400 };
    struct update_constants c = typical;
    static float v[N], nearest[N];
    const double expected = pow(0.999, STEPS);
    double sum = 0;
    (void)state;
    c.lr = 0.f;
    memset(&ours, 0, sizeof ours);
    for (int i = 0; i < N; i++)
        v[i] = nearest[i] = i % MEAN8_BLOCK ? 1.f : 3.f;
    mean8_to(v, N, true, ours.v);
    for (uint64_t s = 0; s < STEPS; s++) {
        struct host_update p = call_of(&ours, false, N);
        p.noise.step = s;
        host_update(&c, &p);
        for (int i = 0; i < N; i++)
            nearest[i] *= 0.999f;
        pass(nearest, nearest, N, true);
    }
    mean8_from(ours.v, N, true, v);
    for (int i = 0; i < N; i++) {
        sum += i % MEAN8_BLOCK ? D(v[i]) / (N - N / MEAN8_BLOCK) : 0;
        assert_true(nearest[i] == (i % MEAN8_BLOCK ? 1.f : 3.f));
    }
    /* A step from x adds at most gap times its change to the variance: 1/16 of a thousandth. */
    const double deviation = sqrt(STEPS * 0x1p-4 * 0.001 / N);
    print_message("%g, and exactly %g\n", sum, expected);
    assert_true(fabs(sum - expected) < 5 * deviation);
    assert_true(5 * deviation < 0.1 * (1 - expected));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_stay),  cmocka_unit_test(test_grid),
        cmocka_unit_test(test_expectation), cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_odd_blocks),  cmocka_unit_test(test_far_below),
        cmocka_unit_test(test_sets),        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_shares),
        cmocka_unit_test(test_not_updated), cmocka_unit_test(test_small_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
