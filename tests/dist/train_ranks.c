/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains the crew of crew.h and prints the digest of losses, norms and weights, which must not
 * depend on the transport.
 *
 *     train_ranks threads SIZE [ZERO [PER_HOST]]
 *     train_ranks [--ranks WHERE] [OPTION ...] [WORD ...]     one of the processes
 *
 * WORD: bf16 selects that dtype; stop and kill send this signal to the last rank half-way; save
 * writes the weights at the end, to /dev/null.
 * Prints the losses, on a GPU also the memory of the process, and fails if that exceeds the budget.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "context/context.h"
#include "dist/crew.h"

static int report(const struct crew *crew, struct crew_result *r, int rc, const char *message)
{
    if (rc)
        fprintf(stderr, "[rank of %d] %s\n", crew->ranks, message);
    else
        printf("%d ranks: %016llx\n", crew->ranks, (unsigned long long)crew_digest(r));
    for (int s = 0; s < CREW_STEPS && !rc; s++)
        printf("%s%.7g%s", s ? " " : "losses: ", (double)r->loss[0][s],
               s + 1 < CREW_STEPS ? "" : "\n");
    crew_free(r);
    return rc ? 1 : 0;
}

static int run_threads(int ranks, int zero, int per_host)
{
    struct crew crew = crew_small(ranks, zero, 0);
    struct crew_result r;
    crew.per_host = per_host;
    crew.options.shard_over = "host";
    crew_train(&crew, &r);
    return report(&crew, &r, r.rc[0], r.message[0]);
}

static int check_memory(const ckpt *c, int rank)
{
    int64_t bytes =
        c->memory.device->ops->overhead(c->memory.device) + programs_arena_bytes(&c->programs);
    if (c->programs.backend == CKPT_ON_CUDA)
        fprintf(stderr, "[rank %d on %s at %s] %lld of %lld bytes\n", rank, c->memory.device->name,
                c->memory.device->where, (long long)bytes, (long long)c->memory.budget);
    return bytes <= c->memory.budget ? 0 : 1;
}

static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], word))
            return true;
    return false;
}

static void take_words(struct crew *crew, int argc, char **argv)
{
    if (has_word(argc, argv, "bf16"))
        crew->model.dtype = CKPT_BF16;
    if (has_word(argc, argv, "stop"))
        crew->halt = SIGSTOP;
    if (has_word(argc, argv, "kill"))
        crew->halt = SIGKILL;
}

static int run_process(struct ckpt_options *options, int argc, char **argv)
{
    struct crew crew = crew_small(1, 0, 0);
    struct crew_result r = {0};
    ckpt *c;
    if (strcmp(options->device, "cuda"))
        options->device = "cpu";
    else
        crew.model =
            (struct tiny){.dtype = CKPT_F32, .batch = 8, .length = 256, .width = 192, .heads = 4};
    options->threads = 1;
    crew.deadline = 0;
    take_words(&crew, argc, argv);
    if (ckpt_open(&c, options)) {
        fprintf(stderr, "%s\n", ckpt_error(NULL));
        return 77;
    }
    int rank = ckpt_rank(c), rc = 1;
    crew.ranks = ckpt_ranks(c);
    crew.faulty = crew.ranks - 1;
    if (crew.ranks <= CREW_MOST && crew.model.batch % crew.ranks == 0)
        rc = crew_member(&crew, c, rank, &r);
    if (!rc && has_word(argc, argv, "save"))
        rc = ckpt_save_params(c, "/dev/null", CKPT_VALUE);
    const char *message = rc ? ckpt_error(c) : "";
    int status = rc ? 1 : check_memory(c, rank);
    if (rank == 0 || rc)
        status |= report(&crew, &r, rc, message);
    else
        crew_free(&r);
    ckpt_close(c);
    return status;
}

int main(int argc, char **argv)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    if (argc > 2 && !strcmp(argv[1], "threads"))
        return run_threads(atoi(argv[2]), argc > 3 ? atoi(argv[3]) : 3,
                           argc > 4 ? atoi(argv[4]) : 0);
    if (ckpt_options_parse(&options, &argc, argv)) {
        fprintf(stderr, "%s\n", ckpt_error(NULL));
        return 2;
    }
    return run_process(&options, argc, argv);
}
