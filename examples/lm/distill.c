/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of distillation, and what a teacher writes: see distill.h. */
#include "distill.h"
#include "run.h"

/* Scores of one chunk.  They are fp32, and a plan keeps or recomputes them a chunk at a time. */
enum { SCORES_AT_ONCE = 1 << 27 };

/* The smallest number of equal chunks of at most `chunk` rows; the library's limit if there is
 * none.
 */
static int count_chunks(int64_t rows, int64_t vocabulary, int64_t chunk)
{
    const int64_t most = chunk ? chunk : SCORES_AT_ONCE / vocabulary + 1;
    int best = 1;

    for (int n = 1; n <= CKPT_MAX_PARTS; n++)
        if (rows % n == 0) {
            best = n;
            if (rows / n <= most)
                break;
        }
    return best;
}

/* What is computed of one chunk of rows. */
struct chunk {
    const struct lm_run *r;
    ckpt_tape *t;
    ckpt_tensor rows, targets, ids, logps; /* [n, width], [n], [n, K] and [n, K] */
};

/* Splits a tensor [B, T, ...] whose last axis has `width` values (0: none) into n chunks. */
static void split(ckpt_tape *t, ckpt_tensor x, int64_t rows, int64_t width, int n,
                  ckpt_tensor part[CKPT_MAX_PARTS])
{
    ckpt_tensor flat = ckpt_reshape(t, x, width ? 2 : 1, (int64_t[]){rows, width});

    ckpt_split(t, flat, 0, n, part);
}

/* The teacher's probabilities and their logarithms, [n, K]. */
static ckpt_tensor teacher(const struct chunk *c, float temperature)
{
    return ckpt_log_softmax(c->t, ckpt_affine(c->t, c->logps, 1 / temperature, 0), 1);
}

/* The cross entropy and the divergence of each row, [n, 2]. */
static ckpt_tensor record_chunk(const struct chunk *c)
{
    const float temperature = (float)c->r->options.distill.temperature;
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tape *t = c->t;
    ckpt_tensor scores = lm_scores(&c->r->model, t, c->rows);

    spec.reduction = CKPT_REDUCE_NONE;
    ckpt_tensor entropy = ckpt_cross_entropy(t, scores, c->targets, &spec);
    scores = ckpt_affine(t, scores, 1 / temperature, 0);
    ckpt_tensor p =
        ckpt_sub(t, ckpt_gather(t, scores, 1, c->ids), ckpt_logsumexp(t, scores, 1u << 1));
    ckpt_tensor q = teacher(c, temperature);
    ckpt_tensor each = ckpt_mul(t, ckpt_exp(t, q), ckpt_sub(t, q, p));
    return ckpt_concat(t, 1, 2,
                       (ckpt_tensor[]){ckpt_unsqueeze(t, entropy, 1), ckpt_sum(t, each, 1u << 1)});
}

static ckpt_tensor mean_of(ckpt_tape *t, ckpt_tensor both, int k, ckpt_tensor mask)
{
    return ckpt_masked_mean(t, ckpt_squeeze(t, ckpt_slice(t, both, 1, k, k + 1), 1), mask);
}

ckpt_tensor distill_record(const struct lm_run *r, ckpt_tape *t, ckpt_tensor rows,
                           ckpt_tensor targets, int64_t chunk)
{
    const struct distill_options *o = &r->options.distill;
    const struct ckpt_desc d = ckpt_desc_of(t, rows);
    const int64_t n = d.shape[0] * d.shape[1], top = r->distill.top;
    const int64_t shape[] = {d.shape[0], d.shape[1], top};
    const int parts = count_chunks(n, r->options.config.vocabulary, chunk);
    ckpt_tensor x[CKPT_MAX_PARTS], y[CKPT_MAX_PARTS], ids[CKPT_MAX_PARTS], logps[CKPT_MAX_PARTS],
        out[CKPT_MAX_PARTS];

    split(t, rows, n, d.shape[2], parts, x);
    split(t, targets, n, 0, parts, y);
    split(t, ckpt_input(t, "teacher", CKPT_I32, 3, shape), n, top, parts, ids);
    split(t, ckpt_input(t, "teacher_logps", CKPT_F32, 3, shape), n, top, parts, logps);
    for (int i = 0; i < parts; i++)
        out[i] = record_chunk(&(struct chunk){r, t, x[i], y[i], ids[i], logps[i]});
    ckpt_tensor both = ckpt_concat(t, 0, parts, out);
    ckpt_tensor flat = ckpt_reshape(t, targets, 1, &n);
    ckpt_tensor mask = ckpt_ne(t, flat, ckpt_full(t, DATASET_IGNORED, CKPT_I32, 0, NULL));
    ckpt_tensor entropy = mean_of(t, both, 0, mask), divergence = mean_of(t, both, 1, mask);
    ckpt_output(t, "ce_loss", entropy);
    ckpt_output(t, "distill_loss", divergence);
    const double weight = o->weight * o->temperature * o->temperature;
    return ckpt_add(t, ckpt_affine(t, entropy, (float)(1 - o->weight), 0),
                    ckpt_affine(t, divergence, (float)weight, 0));
}

int distill_log(struct lm_run *r, ckpt_program *p)
{
    static const char *const names[] = {"ce_loss", "distill_loss"};

    for (int i = 0; i < 2; i++) {
        float x;
        if (ckpt_fetch(p, names[i], &x, sizeof x))
            return say_fail("%s", ckpt_error(r->context));
        log_float(&r->log, names[i], (double)x);
    }
    return 0;
}

/* ---- the teacher ----------------------------------------------------------------------------- */

ckpt_tensor distill_record_top(const struct lm_run *r, ckpt_tape *t, ckpt_tensor rows,
                               int64_t chunk)
{
    const struct ckpt_desc d = ckpt_desc_of(t, rows);
    const int64_t n = d.shape[0] * d.shape[1], top = r->options.distill.top;
    const int64_t shape[] = {d.shape[0], d.shape[1], top};
    const int parts = count_chunks(n, r->options.config.vocabulary, chunk);
    ckpt_tensor x[CKPT_MAX_PARTS], ids[CKPT_MAX_PARTS], logps[CKPT_MAX_PARTS];

    split(t, rows, n, d.shape[2], parts, x);
    for (int i = 0; i < parts; i++) {
        ckpt_tensor scores = lm_scores(&r->model, t, x[i]);
        ckpt_tensor best = ckpt_topk(t, scores, top, &ids[i]);
        logps[i] = ckpt_sub(t, best, ckpt_logsumexp(t, scores, 1u << 1));
    }
    ckpt_output(t, "ids", ckpt_reshape(t, ckpt_concat(t, 0, parts, ids), 3, shape));
    ckpt_tensor all = ckpt_reshape(t, ckpt_concat(t, 0, parts, logps), 3, shape);
    ckpt_output(t, "logps", all);
    return ckpt_reshape(t, ckpt_mean(t, all, CKPT_ALL_AXES), 0, NULL);
}
