/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training step of each stage.
 *
 *     1, 2: the temporal part reconstructs the latents of the pictures: sum |z - z'| of a frame
 *     1:    and the latent of a single picture matches the picture's: sum |z - latent|
 *     3:    the clip is reconstructed: sum |x - x'| of a frame, LPIPS, kl_weight times the
 * divergence
 *
 * A clip is one chunk.  Noise is recorded first, so that it does not depend on the cuts of the
 * rest.
 */
#include <string.h>
#include "../../common/compiled.h"
#include "../../common/dump.h"
#include "../../common/variants.h"
#include "ckpt.h"
#include "run.h"

static ckpt_tensor noise_of(const struct vae_run *r, ckpt_tape *t, const char *name, int64_t batch,
                            int64_t frames)
{
    const struct vae_data *d = &r->data;
    int64_t factor = vae_factor(&r->model.config);
    int64_t shape[] = {batch, frames, d->padded_height / factor, d->padded_width / factor,
                       r->model.config.latent};

    return d->noise ? ckpt_input(t, name, CKPT_F32, 5, shape) : ckpt_randn(t, CKPT_F32, 5, shape);
}

/* Adds a term of the loss, times its weight, to sum; the log shows the term. */
static ckpt_tensor add_term(ckpt_tape *t, ckpt_tensor sum, const char *name, ckpt_tensor term,
                            double weight)
{
    ckpt_output(t, name, term);
    term = ckpt_affine(t, term, (float)weight, 0.f);
    return sum.id ? ckpt_add(t, sum, term) : term;
}

/* The number of values of a frame. */
static double values(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);

    return d.ndim == 5 ? (double)(d.shape[2] * d.shape[3] * d.shape[4]) : 0;
}

static ckpt_tensor crop(const struct vae_data *d, ckpt_tape *t, ckpt_tensor x)
{
    return vae_part(t, vae_part(t, x, 2, 0, d->height), 3, 0, d->width);
}

/* LPIPS is a value per frame; it is scaled by the values of a frame, as the L1 sum is. */
static ckpt_tensor pixel_loss(const struct vae_program *p, ckpt_tape *t, ckpt_tensor x,
                              ckpt_tensor z)
{
    const struct vae_run *r = p->run;
    ckpt_tensor y = crop(&r->data, t, vae_spatial_decode(&r->model, t, z, p->part));

    ckpt_label(t, "loss");
    x = crop(&r->data, t, x);
    if (r->options.train.dump)
        dump_record(r->context, t, ckpt_cast(t, y, CKPT_F32));
    ckpt_tensor loss = add_term(t, CKPT_NONE, VAE_L1, ckpt_l1(t, y, x), values(t, x));
    if (r->options.lpips)
        loss = add_term(t, loss, VAE_LPIPS, vae_lpips(&r->lpips, t, x, y, p->part),
                        r->options.lpips_weight * values(t, x));
    return loss;
}

static ckpt_tensor latent_loss(const struct vae_program *p, ckpt_tape *t, ckpt_tensor pictures,
                               ckpt_tensor latent, ckpt_tensor back)
{
    const struct vae_run *r = p->run;

    ckpt_label(t, "loss");
    if (r->options.train.dump)
        dump_record(r->context, t, ckpt_cast(t, back, CKPT_F32));
    double n = values(t, pictures);
    ckpt_tensor loss = add_term(t, CKPT_NONE, VAE_L1, ckpt_l1(t, back, pictures), n);
    if (r->options.stage > 1 || p->frames > 1)
        return loss;
    ckpt_tensor same = ckpt_l1(t, latent, pictures);
    return ckpt_add(t, loss, ckpt_affine(t, same, (float)n, 0.f));
}

/* A latent for the decoder, and its term of the loss. */
struct latent {
    ckpt_tensor sample, term;
    const char *name;
    double weight;
};

/* v1.2 uses the divergence in stage 3 only; a codebook needs its term in every stage. */
static struct latent latent_of(const struct vae_run *r, ckpt_tape *t, ckpt_tensor moments,
                               ckpt_tensor noise)
{
    struct vae_posterior p = vae_posterior(t, moments);
    struct latent l = {.name = VAE_KL, .weight = r->options.kl_weight};

    if (r->options.vq) {
        l.sample = vae_quantizer_record(&r->quantizer, t, p.mean, &l.term);
        l.name = VAE_COMMITMENT;
        l.weight = r->options.commitment * values(t, p.mean);
        return l;
    }
    l.sample = vae_sample(t, &p, noise);
    if (r->options.stage == 3)
        l.term = ckpt_kl_normal(t, p.mean, p.logvar);
    return l;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant_step *step = user;
    struct vae_program program = *(struct vae_program *)step->user, *p = &program;
    const struct vae_run *r = p->run;
    const struct vae_data *d = &r->data;

    p->part = step->size;
    ckpt_label(t, "input");
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 5,
                               (int64_t[]){batch, p->frames, d->padded_height, d->padded_width, 3});
    ckpt_tensor noise_2d = noise_of(r, t, "noise_2d", batch, p->frames);
    ckpt_tensor noise = noise_of(r, t, "noise", batch, vae_latent_frames(p->frames, 0));
    struct vae_posterior picture = vae_posterior(t, vae_spatial_encode(&r->model, t, x, p->part));
    ckpt_tensor z = ckpt_affine(t, vae_sample(t, &picture, noise_2d), VAE_FACTOR, 0.f);
    struct latent l = latent_of(r, t, vae_temporal_encode(&r->model, t, z, 0), noise);
    ckpt_tensor back = vae_temporal_decode(&r->model, t, l.sample, p->frames, 0), loss;
    if (r->options.stage == 3)
        loss = pixel_loss(p, t, x, back);
    else
        loss = latent_loss(p, t, z, l.sample, back);
    return l.term.id ? add_term(t, loss, l.name, l.term, l.weight) : loss;
}

/* ---- compiling ----------------------------------------------------------------------------- */

static int compile(struct vae_program *p, const ckpt_optimizer *optimizer)
{
    struct vae_run *r = p->run;
    /* for auto: all frames, the frames of one clip, then halves down to single frames */
    int64_t part[VARIANT_SIZES] = {p->part == CKPT_AUTO ? 0 : p->part};
    char what[64];
    int n = 1;

    if (p->part == CKPT_AUTO)
        n += variants_halve(p->frames / (r->options.train.batch > 1 ? 1 : 2), VARIANT_SIZES - 1,
                            part + 1);
    snprintf(what, sizeof what, "clips of %lld frames: ", (long long)p->frames);
    int rc = variants_compile_step(r->context, record, p, n, part, optimizer,
                                   r->options.train.batch, &p->program, &p->part);
    return compiled(r->context, rc, p->program, what);
}

int vae_compile(struct vae_run *r)
{
    const struct vae_options *o = &r->options;
    struct ckpt_adamw adamw = training_adamw(&o->train);

    const ckpt_optimizer *optimizer = optimizer_make(r->context, o->train.optimizer, &adamw);
    for (int i = 0; i < o->n_lengths; i++) {
        r->program[i] = (struct vae_program){.run = r, .frames = o->length[i], .part = o->part};
        if (compile(&r->program[i], optimizer))
            return -1;
    }
    return 0;
}
