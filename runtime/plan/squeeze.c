/*
 * The squeeze: from a schedule down to one peak after the other.  Bytes alive above the target,
 * over all steps, are the excess; the storage at the peak that takes off most of it for a second of
 * recompute goes next.  At the target, what can be kept again without excess is kept.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

#define TARGETS 40

struct move {
    int32_t storage, hold;
};

/* What a trial came to. */
struct outcome {
    double excess, seconds;
};

struct squeezer {
    struct portfolio *pf;
    struct levels levels;
    struct order order;
    int32_t *hold;
    double *score; /* per level: of its last trial */
    int32_t *fresh, round;
    struct move *moves; /* of the running peak */
    int32_t n_moves;
    bool *listed;
    int64_t target, work;
    struct outcome now;
};

static bool spent(const struct squeezer *q)
{
    return simulator_work(q->pf->sim) >= q->work;
}

static double excess_of(const struct schedule *s, int64_t target)
{
    double sum = 0;
    for (int32_t k = 0; k < s->n_steps && s->load > target; k++)
        if (s->alive.data[k] > target)
            sum += (double)(s->alive.data[k] - target);
    return sum;
}

static int measure(struct squeezer *q, struct outcome *o, const struct schedule **schedule)
{
    const struct schedule *s;
    int rc = portfolio_try(q->pf, q->hold, &s);
    if (rc) {
        *o = (struct outcome){INFINITY, INFINITY};
        return rc < 0 ? rc : 0;
    }
    *o = (struct outcome){excess_of(s, q->target), s->recompute_seconds};
    if (schedule)
        *schedule = s;
    return 0;
}

/* Lists the moves that change what is alive at the peak. */
static int list_moves(struct squeezer *q)
{
    const struct program *p = q->pf->p;
    const struct schedule *s;
    int rc = simulate(q->pf->sim, q->hold, &s);
    q->n_moves = 0;
    if (rc)
        return rc < 0 ? rc : 0;
    memset(q->listed, 0, (size_t)p->g->n_storages * sizeof(*q->listed));
    for (int32_t i = 0; i < s->n_instances; i++) {
        const struct plan_instance *t = &s->instances.data[i];
        int32_t x = t->storage;
        if (!p->droppable[x] || q->listed[x] || t->first > s->peak_step || t->last < s->peak_step)
            continue;
        q->listed[x] = true;
        for (int32_t k = q->levels.start[x]; k < q->levels.start[x + 1]; k++)
            if (q->levels.holds[k] != q->hold[x])
                q->moves[q->n_moves++] = (struct move){x, k};
    }
    return 0;
}

/* Excess taken off per second; above all numbers if it costs nothing. */
static double score_of(const struct outcome *before, const struct outcome *after)
{
    double less = before->excess - after->excess, cost = after->seconds - before->seconds;
    if (!(less > 0))
        return -1;
    return cost <= 0 ? 1e300 : less / cost;
}

static int try_move(struct squeezer *q, const struct move *m, struct outcome *o)
{
    int32_t was = q->hold[m->storage];
    q->hold[m->storage] = q->levels.holds[m->hold];
    int rc = measure(q, o, NULL);
    q->hold[m->storage] = was;
    q->score[m->hold] = score_of(&q->now, o);
    q->fresh[m->hold] = q->round;
    return rc;
}

static const struct move *best_listed(const struct squeezer *q)
{
    const struct move *best = NULL;
    for (int32_t i = 0; i < q->n_moves; i++)
        if (q->score[q->moves[i].hold] >= 0 &&
            (!best || q->score[q->moves[i].hold] > q->score[best->hold]))
            best = &q->moves[i];
    return best;
}

/* Makes the best move at the peak: the one whose score, tried now, is above all the old scores. */
static int step_down(struct squeezer *q, bool *moved)
{
    *moved = false;
    int rc = list_moves(q);
    q->round++;
    while (!rc && !spent(q)) {
        struct outcome o;
        const struct move *m = best_listed(q);
        if (!m)
            return 0;
        if (q->fresh[m->hold] != q->round) {
            rc = try_move(q, m, &o);
            continue;
        }
        q->hold[m->storage] = q->levels.holds[m->hold];
        *moved = true;
        return measure(q, &q->now, NULL);
    }
    return rc;
}

/* Forgets scores, so that every move is tried once more. */
static void forget(struct squeezer *q)
{
    for (int32_t i = 0; i < q->levels.n; i++)
        q->score[i] = INFINITY;
}

/* Keeps what can be kept within the target, dearest first. */
static int keep_more(struct squeezer *q)
{
    int rc = 0;
    for (int32_t i = q->order.n - 1; i >= 0 && !rc && !spent(q); i--) {
        int32_t s = q->order.storages[i], was = q->hold[s], kept = was;
        for (int32_t k = q->levels.start[s]; k < q->levels.start[s + 1] && !rc; k++) {
            struct outcome o;
            if (q->levels.holds[k] == was)
                continue;
            q->hold[s] = q->levels.holds[k];
            rc = measure(q, &o, NULL);
            if (o.excess <= q->now.excess && o.seconds < q->now.seconds) {
                q->now = o;
                kept = q->levels.holds[k];
            }
        }
        q->hold[s] = kept;
    }
    return rc;
}

/* From where the last target ended to the next one. */
static int squeeze_to(struct squeezer *q, int64_t target, bool *reached)
{
    bool moved = true, forgot = false;
    q->target = target;
    int rc = measure(q, &q->now, NULL);
    while (!rc && q->now.excess > 0 && !spent(q)) {
        rc = step_down(q, &moved);
        if (!moved && forgot)
            break;
        forgot = !moved;
        if (forgot)
            forget(q);
    }
    *reached = !rc && q->now.excess == 0;
    if (*reached)
        rc = keep_more(q);
    return rc;
}

static void squeezer_free(struct squeezer *q)
{
    levels_free(&q->levels);
    free(q->order.storages);
    free(q->hold);
    free(q->score);
    free(q->fresh);
    free(q->moves);
    free(q->listed);
}

static int squeezer_new(struct squeezer *q, struct portfolio *pf, int64_t work)
{
    size_t n = (size_t)pf->p->g->n_storages + 1;
    *q = (struct squeezer){.pf = pf, .work = work};
    int rc = levels_build(pf->p, &q->levels);
    if (!rc)
        rc = order_build(pf->p, ORDER_OWN, &q->order);
    q->hold = calloc(n, sizeof(*q->hold));
    q->score = calloc((size_t)q->levels.n + 1, sizeof(*q->score));
    q->fresh = calloc((size_t)q->levels.n + 1, sizeof(*q->fresh));
    q->moves = calloc((size_t)q->levels.n + 1, sizeof(*q->moves));
    q->listed = calloc(n, sizeof(*q->listed));
    if (!q->hold || !q->score || !q->fresh || !q->moves || !q->listed)
        rc = CKPT_ENOMEM;
    return rc;
}

int portfolio_squeeze(struct portfolio *pf, int64_t work)
{
    struct squeezer q;
    int rc = squeezer_new(&q, pf, work);
    int64_t least = pf->options.data[0].load, most = pf->options.data[pf->n - 1].load;
    bool reached = true;
    for (int32_t s = 0; s < pf->p->g->n_storages && !rc; s++)
        q.hold[s] = HOLD_ALWAYS;
    if (!rc)
        forget(&q);
    for (int32_t i = TARGETS - 1; i >= 0 && !rc && reached && !spent(&q); i--)
        rc = squeeze_to(&q, least + (most - least) / TARGETS * i, &reached);
    squeezer_free(&q);
    return rc;
}
