/*
 * Trains the crew of crew.h and prints the digest of losses, norms and weights, which must not
 * depend on who carries the messages.
 *
 *     train_ranks threads SIZE [ZERO]
 *     train_ranks --ranks WHERE [--zero ZERO]     one of the processes
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_ranks.h"
#include "dist/crew.h"

static int report(const struct crew *crew, struct crew_result *r, int rc, const char *message)
{
    if (rc)
        fprintf(stderr, "[rank of %d] %s\n", crew->ranks, message);
    else
        printf("%d ranks: %016llx\n", crew->ranks, (unsigned long long)crew_digest(r));
    crew_free(r);
    return rc ? 1 : 0;
}

static int run_threads(int ranks, int zero)
{
    struct crew crew = crew_small(ranks, zero, 0);
    struct crew_result r;
    crew_train(&crew, &r);
    return report(&crew, &r, r.rc[0], r.message[0]);
}

static int run_process(struct ckpt_options *options)
{
    struct crew crew = crew_small(1, 0, 0);
    struct crew_result r = {0};
    ckpt *c;
    options->device = "cpu";
    options->threads = 1;
    if (ckpt_open(&c, options)) {
        fprintf(stderr, "%s\n", ckpt_error(NULL));
        return 77;
    }
    int rank = ckpt_rank(c), rc = 1;
    crew.ranks = ckpt_ranks(c);
    if (crew.ranks <= CREW_MOST && crew.model.batch % crew.ranks == 0)
        rc = crew_member(&crew, c, rank, &r);
    const char *message = rc ? ckpt_error(c) : "";
    int status = rank && !rc ? 0 : 1;
    if (rank == 0 || rc)
        status = report(&crew, &r, rc, message);
    else
        crew_free(&r);
    ckpt_close(c);
    return status;
}

int main(int argc, char **argv)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    if (argc > 2 && !strcmp(argv[1], "threads"))
        return run_threads(atoi(argv[2]), argc > 3 ? atoi(argv[3]) : 3);
    if (ckpt_options_parse(&options, &argc, argv)) {
        fprintf(stderr, "%s\n", ckpt_error(NULL));
        return 2;
    }
    return run_process(&options);
}
