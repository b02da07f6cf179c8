/* SPDX-License-Identifier: Apache-2.0 */
/* unet3d: a 3-D U-Net in the manner of nnU-Net (Isensee et al. 2021) segments bodies in a noisy
 * volume.  It trains on random patches of volumes.  Inference cuts a whole volume into overlapping
 * windows and averages their logits with Gaussian weights, because a window is most accurate in its
 * middle. */
#include <math.h>
#include "unet.h"
#include "zoo.h"

enum { SIDE = 24, PATCH = 12, VOXELS = PATCH * PATCH * PATCH, LEVELS = 3, WIDTH = 8 };
enum { STRIDE = PATCH / 2, PLACES = (SIDE - PATCH) / STRIDE + 1, ROW = PLACES * PLACES };
enum { VOLUMES = 16, SHAPES = 8, BATCH = 16, STEPS = 40 };

typedef float volume[SIDE][SIDE][SIDE];
/* The logit of every voxel of patches, [batch, PATCH, PATCH, PATCH, 1]: above 0 for a body. */
static ckpt_tensor forward(const struct unet *m, ckpt_tape *t, int64_t batch)
{
    int64_t shape[] = {batch, PATCH, PATCH, PATCH, 1};

    return unet_apply(m, t, ckpt_input(t, "patch", CKPT_F32, 5, shape), false);
}

/* Cross entropy plus 1 - Dice of the probabilities (Milletari et al. 2016), over all voxels. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = forward(user, t, batch), p = ckpt_sigmoid(t, x);
    ckpt_tensor body = ckpt_input(t, "body", CKPT_F32, 5, ckpt_desc_of(t, x).shape);
    ckpt_tensor both = ckpt_sum(t, ckpt_mul(t, p, body), 31u);
    ckpt_tensor all = ckpt_affine(t, ckpt_sum(t, ckpt_add(t, p, body), 31u), 1, 1);
    ckpt_tensor dice = ckpt_reshape(t, ckpt_div(t, both, all), 0, NULL);

    return ckpt_add(t, ckpt_bce_with_logits(t, x, body, CKPT_NONE, CKPT_REDUCE_MEAN),
                    ckpt_affine(t, dice, -2, 1));
}

static ckpt_tensor record_score(ckpt_tape *t, int64_t batch, void *user)
{
    return zoo_output(t, "score", forward(user, t, batch));
}

/* Bodies, ellipsoids of one brightness, in noise. */
static void make(uint64_t seed, volume x, volume body)
{
    float u[SHAPES][6];

    ckpt_fill_uniform(1, seed, 1, &u[0][0], SHAPES * 6);
    ckpt_fill_normal(1, seed, 2, &x[0][0][0], SIDE * SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE * SIDE; i++) {
        int at[3] = {i / (SIDE * SIDE), i / SIDE % SIDE, i % SIDE};
        bool inside = false;
        for (int s = 0; s < SHAPES; s++) {
            float r = 0;
            for (int k = 0; k < 3; k++)
                r += powf(((float)at[k] - u[s][k] * SIDE) / (2 + 3 * u[s][3 + k]), 2);
            inside |= r < 1;
        }
        (&body[0][0][0])[i] = inside ? 1.f : 0.f;
        (&x[0][0][0])[i] = 0.4f * (&x[0][0][0])[i] + (&body[0][0][0])[i];
    }
}

/* The patch of a volume with its first corner at `at`. */
static void cut(volume x, const int at[3], float *patch)
{
    for (int i = 0; i < VOXELS; i++)
        patch[i] = x[at[0] + i / (PATCH * PATCH)][at[1] + i / PATCH % PATCH][at[2] + i % PATCH];
}

/* Adds the weighted logits of the patch at `at`.  Only the sign of the average matters, so there is
 * no division. */
static void add_weighted(volume sum, const int at[3], const float *score)
{
    const float middle = (PATCH - 1) / 2.f, sigma = PATCH / 8.f;

    for (int i = 0; i < VOXELS; i++) {
        int place[3] = {i / (PATCH * PATCH), i / PATCH % PATCH, i % PATCH};
        float far = 0;
        for (int k = 0; k < 3; k++)
            far += powf(((float)place[k] - middle) / sigma, 2);
        sum[at[0] + place[0]][at[1] + place[1]][at[2] + place[2]] += expf(-far / 2) * score[i];
    }
}

static float patch[BATCH][VOXELS], truth[BATCH][VOXELS];

/* Patches at random places of a few volumes. */
static void draw(uint64_t step)
{
    static volume x[VOLUMES], body[VOLUMES];
    float u[BATCH][4];

    for (int v = 0; v < VOLUMES && step == 0; v++)
        make((uint64_t)v, x[v], body[v]);
    ckpt_fill_uniform(2, step, 1, &u[0][0], BATCH * 4);
    for (int b = 0; b < BATCH; b++) {
        int v = (int)(u[b][3] * VOLUMES), at[3];
        for (int k = 0; k < 3; k++)
            at[k] = (int)(u[b][k] * (SIDE - PATCH + 1));
        cut(x[v], at, patch[b]);
        cut(body[v], at, truth[b]);
    }
}

/* Dice on a new volume, one row of windows at a time. */
static int test(ckpt_program *p, bool *learned)
{
    static float row[ROW][VOXELS], score[ROW][VOXELS];
    static volume x, body, sum;
    double both = 0, all = 0;

    make(VOLUMES, x, body);
    for (int z = 0; z < PLACES; z++) {
        for (int i = 0; i < ROW; i++)
            cut(x, (int[]){z * STRIDE, i / PLACES * STRIDE, i % PLACES * STRIDE}, row[i]);
        if (ckpt_feed(p, "patch", row, sizeof row) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "score", score, sizeof score))
            return -1;
        for (int i = 0; i < ROW; i++)
            add_weighted(sum, (int[]){z * STRIDE, i / PLACES * STRIDE, i % PLACES * STRIDE},
                         score[i]);
    }
    for (int i = 0; i < SIDE * SIDE * SIDE; i++) {
        bool said = (&sum[0][0][0])[i] > 0, is = (&body[0][0][0])[i] > 0;
        both += said && is, all += said + is;
    }
    printf("learned: Dice is %.3f on a new volume, of %d windows\n", 2 * both / all, ROW * PLACES);
    *learned = 2 * both / all > 0.75;
    return 0;
}

static const struct zoo_data data = {draw, {{"patch", patch}, {"body", truth}}};
static const struct zoo_steps steps = {
    .batch = BATCH, .steps = STEPS, .lr = 5e-2, .test_batch = ROW};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct unet model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    unet_create(&model, c, &(struct unet_shape){LEVELS, WIDTH, WIDTH << LEVELS, 1, 1, CKPT_F32});
    struct zoo_run run = {
        &model, {{record, ckpt_adamw(c, &adamw), &data, NULL}}, record_score, test};
    return zoo_run(c, &run, &steps);
}
