/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads: see rank_threads.h. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "dist/comm_threads.h"
#include "dist/rank_threads.h"
#include "dist/ranks.h"

ckpt *rank_open(struct rank_thread *r, struct ckpt_options o, int zero, int per_host)
{
    const int64_t sequence = o.sequence, stages = o.stages, tensor = o.tensor; /* it is alone yet */
    ckpt *c;
    o.sequence = o.stages = o.tensor = 1;
    o.device = "cpu";
    o.threads = 1;
    o.check_ranks = 1;
    o.verify = true;
    r->rc = ckpt_open(&c, &o);
    if (r->rc)
        return NULL;
    ckpt_plan_in_full(c, false);
    c->ranks.options->sequence = sequence;
    c->ranks.options->tensor = tensor;
    c->ranks.options->stages = stages;
    if (r->comm)
        ranks_join(&c->ranks, r->comm, zero);
    if (r->comm && per_host)
        c->ranks.host = (uint64_t)(r->rank / per_host);
    return c;
}

void run_ranks(void *members, size_t size, int n, int first, void *(*work)(void *))
{
    struct comm **comms = calloc((size_t)n, sizeof(struct comm *));
    pthread_t *thread = calloc((size_t)n, sizeof *thread);
    if (n > 1 && comm_open_threads(comms, n, 120))
        fail_msg("no ranks");
    for (int i = 0; i < n; i++) {
        struct rank_thread *r = (struct rank_thread *)((char *)members + (size_t)i * size);
        r->comm = comms[i];
        r->rank = first + i;
        if (pthread_create(&thread[i], NULL, work, r))
            fail_msg("no thread");
    }
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < n; i++)
        assert_int_equal(((struct rank_thread *)((char *)members + (size_t)i * size))->rc, 0);
    free(comms);
    free(thread);
}
