/* SPDX-License-Identifier: Apache-2.0 */
/* Public calls about the ranks of a context and their requests. */
#include "ckpt_dist.h"
#include "context/context.h"
#include "dist/peers.h"

int ckpt_rank(const ckpt *c)
{
    if (!c)
        return 0;
    return c->ranks.rank;
}

int ckpt_ranks(const ckpt *c)
{
    if (!c)
        return 1;
    return c->ranks.sharing.ranks;
}

int ckpt_sample_group(const ckpt *c)
{
    if (!c)
        return 0;
    return sharing_sample_group(&c->ranks.sharing, c->ranks.rank);
}

int ckpt_sample_groups(const ckpt *c)
{
    if (!c)
        return 1;
    return sharing_sample_groups(&c->ranks.sharing);
}

int ckpt_launched(int *rank, int *ranks)
{
    if (!rank || !ranks)
        return error_set(CKPT_EINVAL, "ckpt_launched: rank or ranks is NULL");
    return comm_launched_as(rank, ranks);
}

bool ckpt_rank_is_lost(const ckpt *c)
{
    struct comm *hosts = c && c->ranks.comm ? comm_of_hosts(c->ranks.comm) : NULL;
    if (!c)
        return peers_are_left();
    return hosts && c->error.code == CKPT_ECOMM && hosts->ops->check(hosts) == CKPT_ECOMM;
}

bool ckpt_job_grows(ckpt *c)
{
    return c && comm_lobby_grows(c->ranks.lobby, c->ranks.sharing.ranks);
}

int ckpt_job_history(ckpt *c, bool *again, bool *saved, int64_t *updates)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(again);
    NOT_NULL(saved);
    NOT_NULL(updates);
    struct peers_state s;
    int rc = peers_history(c->ranks.peers, ranks_all(&c->ranks), again, saved);
    if (!rc)
        rc = peers_find(c->ranks.peers, ranks_all(&c->ranks), &s);
    if (rc)
        return rc;
    *updates = s.parts ? s.updates : -1;
    peers_state_free(&s);
    return 0;
}

int ckpt_restart(ckpt *c, char *const *argv)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(argv);
    if (c ? !c->ranks.peers : !peers_are_left())
        return error_set(CKPT_EINVAL, "ckpt_restart: the job is not elastic: see options.ranks");
    if (c && c->ranks.comm) /* none of them waits for this one */
        c->ranks.comm->ops->give_up(c->ranks.comm, "the job forms again");
    return peers_restart(c ? c->ranks.peers : NULL, argv);
}

void ckpt_request_stop(ckpt *c)
{
    if (c)
        c->ranks.request[CKPT_REQUEST_STOP]++;
}

bool ckpt_stop_requested(const ckpt *c)
{
    if (!c)
        return false;
    return c->ranks.sharing.ranks > 1 ? c->ranks.requested[CKPT_REQUEST_STOP]
                                      : c->ranks.request[CKPT_REQUEST_STOP] != 0;
}

void ckpt_request_save(ckpt *c)
{
    if (c)
        c->ranks.request[CKPT_REQUEST_SAVE] = 1;
}

void ckpt_request_abandon(ckpt *c)
{
    if (c && c->ranks.sharing.ranks > 1)
        c->ranks.request[CKPT_REQUEST_ABANDON] = 1;
}

bool ckpt_save_requested(ckpt *c)
{
    if (!c)
        return false;
    bool requested = c->ranks.requested[CKPT_REQUEST_SAVE];
    if (c->ranks.sharing.ranks < 2)
        requested = ranks_take_request(&c->ranks, CKPT_REQUEST_SAVE) > 0;
    c->ranks.requested[CKPT_REQUEST_SAVE] = false;
    return requested;
}

const char *ckpt_rank_location(const ckpt *c, int rank)
{
    if (!c)
        return "";
    const struct ranks *job = &c->ranks;
    return job->places && rank >= 0 && rank < job->sharing.ranks ? job->places[rank].text : "";
}

int ckpt_rank_seconds(ckpt *c, double *seconds)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(seconds);
    for (int r = 0; r < c->ranks.sharing.ranks; r++)
        seconds[r] = c->ranks.pace.seconds ? c->ranks.pace.seconds[r] : 0;
    return 0;
}

int ckpt_agree(ckpt *c, const struct ckpt_fact *facts, int n)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    if (n < 0 || (n && !facts))
        return error_set(CKPT_EINVAL, "ckpt_agree: %d facts, and no table", n);
    return ranks_agree_facts(&c->ranks, facts, n);
}

int ckpt_mix_programs(ckpt *c, const ckpt_program **differs)
{
    const ckpt_program *unused;
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    return programs_mix(&c->programs, differs ? differs : &unused);
}

int ckpt_gather_ranks(ckpt *c, const void *own, size_t bytes, void *all)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    if (bytes && (!own || !all))
        return error_set(CKPT_EINVAL, "ckpt_gather_ranks: %zu bytes, and no place for them", bytes);
    if (!programs_are_idle(&c->programs))
        return error_set(CKPT_EINVAL,
                         "ckpt_gather_ranks: a step is under way: call ckpt_wait before");
    return ranks_gather(&c->ranks, own, bytes, all);
}
