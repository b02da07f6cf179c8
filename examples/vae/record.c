/*
 * The training step of each stage.
 *
 *     1, 2: the temporal part gives the latents of the pictures back: sum |z - z'| of a frame
 *     1:    and a latent of a single picture is that of the picture: sum |z - latent|
 *     3:    the clip comes back: sum |x - x'| of a frame, and kl_weight times the divergence
 *
 * A clip is one chunk.  Noise is recorded first, so that it is the same however the rest is cut.
 */
#include <string.h>
#include "../common/dump.h"
#include "ckpt_ways.h"
#include "run.h"

struct step {
    ckpt_tensor x, noise_2d, noise;
};

static ckpt_tensor noise_of(const struct vae_run *r, ckpt_tape *t, const char *name, int64_t batch,
                            int64_t frames)
{
    const struct vae_data *d = &r->data;
    int64_t factor = vae_factor(&r->model.config);
    int64_t shape[] = {batch, frames, d->padded_height / factor, d->padded_width / factor,
                       r->model.config.latent};

    return d->noise ? ckpt_input(t, name, CKPT_F32, 5, shape) : ckpt_randn(t, CKPT_F32, 5, shape);
}

/* Sum of differences of a frame, mean over frames; [B, T, h, w, C]. */
static ckpt_tensor difference(ckpt_tape *t, ckpt_tensor x, ckpt_tensor y)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor mean = ckpt_l1(t, y, x);

    if (d.ndim != 5)
        return CKPT_NONE;
    ckpt_output(t, VAE_L1, mean);
    return ckpt_affine(t, mean, (float)(d.shape[2] * d.shape[3] * d.shape[4]), 0.f);
}

static ckpt_tensor crop(const struct vae_data *d, ckpt_tape *t, ckpt_tensor x)
{
    return vae_part(t, vae_part(t, x, 2, 0, d->height), 3, 0, d->width);
}

static ckpt_tensor pixel_loss(const struct vae_program *p, ckpt_tape *t, const struct step *in,
                              ckpt_tensor z, const struct vae_posterior *latent)
{
    const struct vae_run *r = p->run;
    ckpt_tensor y = crop(&r->data, t, vae_spatial_decode(&r->model, t, z, p->part));

    ckpt_label(t, "loss");
    if (r->options.dump)
        dump_record(r->context, t, ckpt_cast(t, y, CKPT_F32));
    ckpt_tensor kl = ckpt_kl_normal(t, latent->mean, latent->logvar);
    ckpt_output(t, VAE_KL, kl);
    return ckpt_add(t, difference(t, crop(&r->data, t, in->x), y),
                    ckpt_affine(t, kl, (float)r->options.kl_weight, 0.f));
}

static ckpt_tensor latent_loss(const struct vae_program *p, ckpt_tape *t, ckpt_tensor pictures,
                               ckpt_tensor latent, ckpt_tensor back)
{
    const struct vae_run *r = p->run;

    ckpt_label(t, "loss");
    if (r->options.dump)
        dump_record(r->context, t, ckpt_cast(t, back, CKPT_F32));
    ckpt_tensor loss = difference(t, pictures, back);
    if (r->options.stage > 1 || p->frames > 1)
        return loss;
    struct ckpt_desc d = ckpt_desc_of(t, pictures);
    ckpt_tensor same = ckpt_l1(t, latent, pictures);
    return ckpt_add(t, loss,
                    ckpt_affine(t, same, (float)(d.shape[2] * d.shape[3] * d.shape[4]), 0.f));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct vae_program *p = user;
    const struct vae_run *r = p->run;
    const struct vae_data *d = &r->data;
    struct step in;

    ckpt_label(t, "input");
    in.x = ckpt_input(t, "x", CKPT_F32, 5,
                      (int64_t[]){batch, p->frames, d->padded_height, d->padded_width, 3});
    in.noise_2d = noise_of(r, t, "noise_2d", batch, p->frames);
    in.noise = noise_of(r, t, "noise", batch, vae_latent_frames(p->frames, 0));
    struct vae_posterior picture =
        vae_posterior(t, vae_spatial_encode(&r->model, t, in.x, p->part));
    ckpt_tensor z = ckpt_affine(t, vae_sample(t, &picture, in.noise_2d), VAE_FACTOR, 0.f);
    struct vae_posterior latent = vae_posterior(t, vae_temporal_encode(&r->model, t, z, 0));
    ckpt_tensor sample = vae_sample(t, &latent, in.noise);
    ckpt_tensor back = vae_temporal_decode(&r->model, t, sample, p->frames, 0);
    if (r->options.stage == 3)
        return pixel_loss(p, t, &in, back, &latent);
    return latent_loss(p, t, z, sample, back);
}

/* ---- compiling ----------------------------------------------------------------------------- */

/* All frames, those of a clip, then halves of it down to single frames. */
static int parts_of(const struct vae_program *p, struct vae_program *way)
{
    int n = 1;

    way[0] = *p;
    way[0].part = 0;
    for (int64_t part = p->frames / (p->run->options.batch > 1 ? 1 : 2); part >= 1; part /= 2) {
        way[n] = *p;
        way[n++].part = part;
    }
    return n;
}

static int compile(struct vae_program *p, const struct ckpt_adamw *adamw)
{
    struct vae_run *r = p->run;
    struct vae_program user[16];
    struct ckpt_way ways[16];
    int n = 1, chosen;

    user[0] = *p;
    if (p->part == CKPT_AUTO)
        n = parts_of(p, user);
    for (int i = 0; i < n; i++)
        ways[i] = (struct ckpt_way){record, &user[i]};
    if (ckpt_compile_fastest(r->context, n, ways, adamw, r->options.batch, &p->program, &chosen))
        return say_fail("clips of %lld frames: %s", (long long)p->frames, ckpt_error(r->context));
    p->part = user[chosen].part;
    return 0;
}

int vae_compile(struct vae_run *r)
{
    const struct vae_options *o = &r->options;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;

    adamw.lr = (float)o->lr;
    adamw.weight_decay = (float)o->weight_decay;
    adamw.clip_norm = (float)o->clip_norm;
    adamw.ema_decay = (float)o->ema_decay;
    adamw.grad_dtype = strcmp(o->grad_dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    for (int i = 0; i < o->n_lengths; i++) {
        r->program[i] = (struct vae_program){.run = r, .frames = o->length[i], .part = o->part};
        if (compile(&r->program[i], &adamw))
            return -1;
    }
    return 0;
}
