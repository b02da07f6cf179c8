/*
 * Exploring: every option's neighbours, one storage held otherwise at a time, until none brings
 * anything new; then pairs of such changes.  On small programs this ends near the optimum.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

struct explorer {
    struct portfolio *pf;
    struct levels levels;
    int32_t *hold;
    int64_t work;
};

static bool spent(const struct explorer *e)
{
    return simulator_work(e->pf->sim) >= e->work;
}

static int try_hold(struct explorer *e)
{
    int rc = portfolio_try(e->pf, e->hold, NULL);
    return rc < 0 ? rc : 0;
}

/* Changes storages from s on, one at a time; with more, each change together with later ones. */
static int change_one(struct explorer *e, int32_t s, int more)
{
    int rc = 0;
    for (; s < e->pf->p->g->n_storages && !rc; s++) {
        int32_t was = e->hold[s];
        for (int32_t k = e->levels.start[s]; k < e->levels.start[s + 1] && !rc && !spent(e); k++) {
            if (e->levels.holds[k] == was)
                continue;
            e->hold[s] = e->levels.holds[k];
            rc = more ? change_one(e, s + 1, more - 1) : try_hold(e);
        }
        e->hold[s] = was;
    }
    return rc;
}

/* Turns are spread over all loads: each time 5/8 of the way further, round and round. */
static struct option *next_unexplored(struct portfolio *pf, int32_t turn)
{
    int32_t from = (int32_t)((int64_t)turn * 5 % 8 * pf->n / 8);
    for (int32_t k = 0; k < pf->n; k++) {
        int32_t i = (from + k) % pf->n;
        if (!pf->options.data[i].explored)
            return &pf->options.data[i];
    }
    return NULL;
}

static int explore_all(struct explorer *e, int more)
{
    struct option *o;
    int rc = 0;
    for (int32_t turn = 0; !rc && !spent(e) && (o = next_unexplored(e->pf, turn)); turn++) {
        o->explored = true;
        memcpy(e->hold, o->hold, (size_t)e->pf->p->g->n_storages * sizeof(*e->hold));
        rc = change_one(e, 0, more);
    }
    return rc;
}

int portfolio_explore(struct portfolio *pf, int64_t work)
{
    struct explorer e = {.pf = pf, .work = work};
    int rc = levels_build(pf->p, &e.levels);
    e.hold = calloc((size_t)pf->p->g->n_storages + 1, sizeof(*e.hold));
    if (!e.hold)
        rc = CKPT_ENOMEM;
    if (!rc)
        rc = explore_all(&e, 0);
    for (int32_t i = 0; i < pf->n; i++)
        pf->options.data[i].explored = false;
    if (!rc)
        rc = explore_all(&e, 1);
    levels_free(&e.levels);
    free(e.hold);
    return rc;
}
