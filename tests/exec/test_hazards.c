/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The waits of random command lists, checked by brute force over some steps: all conflicting
 * commands are ordered, and every wait is necessary for that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "exec/hazards.h"

enum { COMMANDS = 24, STEPS = 3, MOST = 512 };

static uint64_t seed;

static int32_t draw(int32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int32_t)((seed >> 33) % (uint64_t)n);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void add_command(struct commands *c, enum command_kind kind, enum queue queue)
{
    assert_int_equal(ARRAY_RESERVE(&c->list, c->n), 0);
    c->list.data[c->n++] = (struct command){
        .kind = kind, .instr.queue = queue, .access = c->n_access, .joins = kind == COMMAND_RUNS};
}

static void add_access(struct commands *c)
{
    assert_int_equal(ARRAY_RESERVE(&c->access, c->n_access), 0);
    c->access.data[c->n_access++] = (struct access){.space = (enum space)draw(2),
                                                    .offset = draw(6),
                                                    .bytes = 1 + draw(3),
                                                    .writes = draw(2) == 0};
    c->list.data[c->n - 1].n_access++;
}

/* Two parts of commands on `queues` queues; whole: each part begins with a fork and ends with a
 * join. */
static struct commands make_commands(int32_t queues, bool whole)
{
    struct commands c = {0};
    for (int part = 0; part < 2; part++) {
        if (whole)
            add_command(&c, COMMAND_FORKS, QUEUE_COMPUTE);
        for (int32_t i = 0, n = 1 + draw(COMMANDS / 2); i < n; i++) {
            add_command(&c, COMMAND_RUNS, (enum queue)draw(queues));
            for (int32_t j = 0, m = 1 + draw(2); j < m; j++)
                add_access(&c);
        }
        if (whole)
            add_command(&c, COMMAND_JOINS, QUEUE_COMPUTE);
        c.n_body = part ? c.n_body : c.n;
    }
    return c;
}

static void free_commands(struct commands *c)
{
    free(c->list.data);
    free(c->access.data);
}

/* ---- brute force ----------------------------------------------------------------------------- */

/* The submitted commands, in order; before[i][j]: j has ended when i begins. */
struct line {
    const struct commands *of[MOST]; /* whose command it is */
    int32_t command[MOST], part[MOST], n;
    bool before[MOST][MOST];
};

static struct line line;

static void unroll(const struct commands *c, int32_t n_micro, int32_t steps)
{
    for (int32_t step = 0, part = 0; step < steps; step++)
        for (int32_t run = 0; run <= n_micro; run++, part++) {
            bool body = run < n_micro;
            for (int32_t i = body ? 0 : c->n_body; i < (body ? c->n_body : c->n); i++) {
                assert_true(line.n < MOST);
                line.of[line.n] = c;
                line.part[line.n] = part;
                line.command[line.n++] = i;
            }
        }
}

static enum queue queue_of(int32_t i)
{
    return line.of[i]->list.data[line.command[i]].instr.queue;
}

static void follow(int32_t i, int32_t j)
{
    line.before[i][j] = true;
    for (int32_t k = 0; k < j; k++)
        line.before[i][k] |= line.before[j][k];
}

/* Orders command i after its previous submission, if there is one. */
static void follow_last(int32_t i, const struct commands *of, int32_t command)
{
    for (int32_t j = i - 1; j >= 0; j--)
        if (line.of[j] == of && line.command[j] == command) {
            follow(i, j);
            return;
        }
}

static void follow_queue(int32_t i)
{
    for (int32_t j = i - 1; j >= 0; j--)
        if (queue_of(j) == queue_of(i)) {
            follow(i, j);
            return;
        }
}

/* Orders the line by queues and by all waits except `without`; -1: by all. */
static void order(const struct hazards *h, int32_t without)
{
    memset(line.before, 0, sizeof line.before);
    for (int32_t i = 0; i < line.n; i++) {
        follow_queue(i);
        for (int32_t k = 0; k < h->n; k++)
            if (h->list.data[k].waiting == line.command[i] && k != without)
                follow_last(i, line.of[i], h->list.data[k].awaited);
    }
}

static bool conflict(int32_t i, int32_t j)
{
    const struct command *a = &line.of[i]->list.data[line.command[i]];
    const struct command *b = &line.of[j]->list.data[line.command[j]];
    for (int32_t x = 0; x < a->n_access; x++)
        for (int32_t y = 0; y < b->n_access; y++) {
            const struct access *s = &line.of[i]->access.data[a->access + x];
            const struct access *t = &line.of[j]->access.data[b->access + y];
            if (s->space == t->space && (s->writes || t->writes) &&
                s->offset < t->offset + t->bytes && t->offset < s->offset + s->bytes)
                return true;
        }
    return false;
}

/* Whether all conflicting commands are ordered, and with `whole` each part after all before it. */
static bool is_ordered(bool whole)
{
    for (int32_t i = 0; i < line.n; i++)
        for (int32_t j = 0; j < i; j++)
            if (!line.before[i][j] && (conflict(i, j) || (whole && line.part[j] < line.part[i])))
                return false;
    return true;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void try(int32_t queues, int32_t n_micro, bool whole)
{
    struct commands c = make_commands(queues, whole);
    struct hazards h;
    assert_int_equal(hazards_find(&c, n_micro, whole, &h), 0);
    line.n = 0;
    unroll(&c, n_micro, STEPS);
    order(&h, -1);
    assert_true(is_ordered(whole));
    for (int32_t k = 0; k < h.n && whole; k++) /* nothing of another part is waited for */
        assert_true(h.list.data[k].awaited < h.list.data[k].waiting &&
                    (h.list.data[k].awaited < c.n_body) == (h.list.data[k].waiting < c.n_body));
    for (int32_t k = 0; k < h.n && n_micro == 1; k++) {
        order(&h, k);
        assert_false(is_ordered(whole));
    }
    hazards_free(&h);
    free_commands(&c);
}

static bool edges_meet(const struct edge *first, const struct edge *last)
{
    return first->space == last->space && (first->writes || last->writes) &&
           first->begin < last->end && last->begin < first->end;
}

/* Orders a step of each of two lists, the second after what the first leaves; one edge, `without`,
 * is left out. */
static void order_two(const struct commands c[2], const struct hazards h[2], int32_t without)
{
    memset(line.before, 0, sizeof line.before);
    for (int32_t i = 0; i < line.n; i++) {
        bool second = line.of[i] == &c[1];
        follow_queue(i);
        for (int32_t k = 0; k < h[second].n; k++)
            if (h[second].list.data[k].waiting == line.command[i])
                follow_last(i, line.of[i], h[second].list.data[k].awaited);
        for (int32_t k = 0; k < h[1].first.n && second; k++)
            for (int32_t m = 0; m < h[0].last.n; m++)
                if (h[1].first.list.data[k].command == line.command[i] && m != without &&
                    edges_meet(&h[1].first.list.data[k], &h[0].last.list.data[m]))
                    follow_last(i, &c[0], h[0].last.list.data[m].command);
    }
}

static bool two_are_ordered(int32_t queues, int32_t n_micro, bool *needed)
{
    struct commands c[2] = {make_commands(queues, false), make_commands(queues, false)};
    struct hazards h[2];
    line.n = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hazards_find(&c[i], n_micro, false, &h[i]), 0);
        unroll(&c[i], n_micro, 1);
    }
    order_two(c, h, -1);
    bool ordered = is_ordered(false);
    for (int32_t m = 0; m < h[0].last.n && !*needed; m++) {
        order_two(c, h, m);
        *needed = !is_ordered(false);
    }
    for (int i = 0; i < 2; i++) {
        hazards_free(&h[i]);
        free_commands(&c[i]);
    }
    return ordered;
}

/* Between two programs only the commands that a step leaves pending and the first commands of the
 * next one need edges. */
static void test_edges(void **state)
{
    bool needed = false;
    (void)state;
    for (seed = 0; seed < 300; seed++) {
        uint64_t kept = seed;
        assert_true(two_are_ordered(2 + (int32_t)(seed % 4), 1 + (int32_t)(seed % 3), &needed));
        seed = kept;
    }
    assert_true(needed);
}

static void test_steps(void **state)
{
    (void)state;
    for (seed = 0; seed < 300; seed++) {
        uint64_t kept = seed;
        try(2 + (int32_t)(seed % 4), 1, false);
        seed = kept;
    }
}

static void test_micro_steps(void **state)
{
    (void)state;
    for (seed = 0; seed < 300; seed++) {
        uint64_t kept = seed;
        try(2 + (int32_t)(seed % 4), 2 + (int32_t)(seed % 2), false);
        seed = kept;
    }
}

static void test_whole(void **state)
{
    (void)state;
    for (seed = 0; seed < 300; seed++) {
        uint64_t kept = seed;
        try(2 + (int32_t)(seed % 3), 1 + (int32_t)(seed % 3), true);
        seed = kept;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
