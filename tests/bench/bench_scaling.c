/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicted against published scaling: the speed of a rank among many ranks, relative to its speed
 * among few.  The time of a step among few ranks is taken from the publication, so that links alone
 * determine the rest.  If a publication omits the tokens per rank or the links, the row says which
 * values are assumed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/models.h"
#include "plan/scale/scaling_study.h"

static const struct links h100 = {3.6e11, 4e-6, 4.5e10, 1.5e-5, 8, 8e-5, .45};
static const struct links a100 = {2.3e11, 4e-6, 2e10, 1.5e-5, 8, 8e-5, .45};
/* Rate between hosts inferred from the two rows themselves. */
static const struct links weak = {3.6e11, 4e-6, 7.9e9, 1.5e-5, 4, 8e-5, .45};

static const struct row {
    const char *what, *note;
    const struct links *links;
    double parameters;
    int32_t layers, few, many;
    double tokens;    /* a rank in a step */
    double few_rate;  /* tokens a second of a rank among few */
    double published; /* rate among many over that */
} rows[] = {
    {"torchtitan, Llama 3.1 8B, H100", "", &h100, 8e9, 32, 8, 128, 16384, 6667, 6514. / 6667},
    {"torchtitan, the same in eager mode", "", &h100, 8e9, 32, 8, 128, 16384, 5762, 5605. / 5762},
    {"LLM-Foundry, 13B, H100", "8192 tokens a pass assumed", &h100, 13e9, 40, 8, 64, 8192, 4792,
     4800. / 4792},
    {"LLM-Foundry, 7B, A100 40 GB", "8192 tokens a pass assumed", &a100, 7e9, 32, 8, 128, 8192,
     3679, 3623. / 3679},
    {"LLM-Foundry, 13B, A100 40 GB", "8192 tokens a pass assumed", &a100, 13e9, 40, 16, 128, 8192,
     1993, 1972. / 1993},
    {"Kempner, 7B, H200, 4 to 8 ranks", "links fitted to both rows", &weak, 7e9, 32, 4, 8, 8192,
     12600, .53 / .93},
    {"Kempner, 7B, H200, 4 to 32 ranks", "the same links", &weak, 7e9, 32, 4, 32, 8192, 12600,
     .47 / .93},
};

/* A row being predicted: the search adjusts the machine's rate of arithmetic. */
struct trial {
    const struct row *r;
    struct machine m;
    struct scaling_study *w;
};

static double seconds_of(struct trial *t, int32_t ranks)
{
    struct scaling_layout l = {ranks, ranks, 1};
    struct scaling_step step;
    if (scaling_study_plan(t->w, &l, INT64_MAX, &step)) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return step.seconds;
}

static void open_trial(struct trial *t, const struct row *r)
{
    struct ranks_shape s = {.layers = r->layers,
                            .ranks = 2,
                            .numel = (int64_t)(r->parameters / r->layers),
                            .gradient = 2,
                            .stream = 1 << 26,
                            .kept = 1 << 28,
                            .flops = 2 * r->parameters / r->layers * r->tokens,
                            .early = true};
    *t = (struct trial){.r = r, .m = machine_cuda};
    t->m.bandwidth = 1e15; /* the published time of a step is all there is of other ops */
    t->m.overhead = 0;
    t->m.links = *r->links;
    t->m.flops = 6 * r->parameters * r->few_rate;
    struct graph *g = model_ranks(&s, &t->m);
    if (scaling_study_open(g, &t->m, &t->w)) {
        fprintf(stderr, "%s\n", error_get());
        exit(1);
    }
    graph_free(g);
}

/* Speed among many ranks divided by the speed among few, with the published time for few. */
static double predict(const struct row *r)
{
    struct trial t;
    open_trial(&t, r);
    for (int i = 0; i < 4; i++)
        t.m.flops *= seconds_of(&t, r->few) * r->few_rate / r->tokens;
    double ratio = seconds_of(&t, r->few) / seconds_of(&t, r->many);
    scaling_study_free(t.w);
    return ratio;
}

int main(void)
{
    int32_t near = 0, n = (int32_t)(sizeof(rows) / sizeof(*rows));
    printf("%-36s %5s %5s %10s %10s %7s\n", "speed of a rank among many", "few", "many",
           "published", "predicted", "error");
    for (int32_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];
        double predicted = predict(r);
        double error = predicted / r->published - 1;
        near += fabs(error) <= .05;
        printf("%-36s %5d %5d %9.1f%% %9.1f%% %+6.1f%%  %s\n", r->what, (int)r->few, (int)r->many,
               100 * r->published, 100 * predicted, 100 * error, r->note);
        fflush(stdout);
    }
    printf("%d of %d within 5 %%\n", (int)near, (int)n);
    return 0;
}
