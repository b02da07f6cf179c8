#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports small PyTorch models with what PyTorch computes for them: see tests/import/README.

    make_models.py kept FOLDER [NAME...]   the models whose files are in tests/import/models, packed
    make_models.py all  FOLDER [NAME...]   these and many more, not packed: a few GB
    make_models.py crossed FOLDER          the two in tests/import/crossed

Run by hand, with torch, diffusers, transformers, timm and safetensors installed; nothing is downloaded.
Files depend on the versions, which are written in them.  A model that cannot be made is reported and
skipped; the exit status is then 1.
"""
import gzip
import logging
import os
import sys
import time
import warnings
import zlib

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import modules  # noqa: E402
import more_models  # noqa: E402

MODELS = {}  # name: (in tests/import/models, function that returns module, args, kwargs)


def model(name, kept=False):
    def enter(make):
        MODELS[name] = (kept, make)
        return make
    return enter


def floats(*shape):
    return torch.randn(shape)


def integers(top, *shape):
    return torch.randint(0, top, shape)


model("dynamic", kept=True)(lambda: (modules.Dynamic(), (floats(3, 10, 8), floats(3)), {}))
# Those exported with other sizes: the arguments of the export, and the dimensions that may differ.
DYNAMIC = {"dynamic": ((torch.ones(5, 16, 8), torch.ones(5)),
                       ({0: torch.export.Dim("b", min=2, max=64), 1: 2 * torch.export.Dim("t", min=3, max=32)},
                        {0: torch.export.Dim("b", min=2, max=64)})),
           "pairs": ((torch.ones(5, 6, 8),), ({0: torch.export.Dim("b", min=2, max=64)},))}
model("probe", kept=True)(lambda: (modules.Probe(), (), dict(ids=integers(40, 2, 6), weights=floats(2, 6))))
model("norms", kept=True)(lambda: (modules.Norms(), (floats(4, 3, 12, 12), integers(10, 4)), {}))
model("volume", kept=True)(lambda: (modules.Volume(), (floats(1, 1, 6, 8, 8), integers(3, 1, 6, 8, 8)), {}))
model("autoencoder3d", kept=True)(lambda: (modules.Autoencoder3d(), (floats(1, 3, 3, 8, 8),), {}))

# ---- diffusers ----------------------------------------------------------------------------------


def diffusion(name, cls, config, inputs, kept=False):
    def make():
        import diffusers
        return getattr(diffusers, cls)(**config), (), dict(inputs(), return_dict=False)
    model(name, kept)(make)


def wan(channels, timestep):
    return (dict(num_attention_heads=2, attention_head_dim=24, in_channels=channels, out_channels=channels,
                 text_dim=16, freq_dim=16, ffn_dim=48, num_layers=1, rope_max_seq_len=32),
            lambda: dict(hidden_states=floats(1, channels, 3, 8, 8), timestep=integers(999, *timestep),
                         encoder_hidden_states=floats(1, 7, 16)))


def cogvideo(rotary):
    def inputs():
        more = dict(image_rotary_emb=(floats(32, 16), floats(32, 16))) if rotary else {}
        return dict(hidden_states=floats(1, 2, 4, 8, 8), timestep=integers(999, 1),
                    encoder_hidden_states=floats(1, 6, 24), **more)
    return dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=16,
                text_embed_dim=24, num_layers=1 if not rotary else 2, sample_width=8, sample_height=8,
                sample_frames=5, max_text_seq_length=6, use_rotary_positional_embeddings=rotary), inputs


diffusion("wan", "WanTransformer3DModel", *wan(16, (1,)), kept=True)
diffusion("wan_turns", "WanTransformer3DModel", *wan(8, (1, 48)))
diffusion("cogvideo", "CogVideoXTransformer3DModel", *cogvideo(False), kept=True)
diffusion("cogvideo_rotary", "CogVideoXTransformer3DModel", *cogvideo(True))
diffusion("hunyuanvideo", "HunyuanVideoTransformer3DModel",
          dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1,
               num_single_layers=1, num_refiner_layers=1, patch_size=1, patch_size_t=1, guidance_embeds=True,
               text_embed_dim=16, pooled_projection_dim=8, rope_axes_dim=(4, 4, 4)),
          lambda: dict(hidden_states=floats(1, 4, 3, 4, 4), timestep=integers(999, 1),
                       encoder_hidden_states=floats(1, 12, 16), encoder_attention_mask=torch.ones(1, 12),
                       pooled_projections=floats(1, 8), guidance=floats(1)))
diffusion("flux", "FluxTransformer2DModel",
          dict(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
               num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
               guidance_embeds=True),
          lambda: dict(hidden_states=floats(1, 16, 4), encoder_hidden_states=floats(1, 8, 32),
                       pooled_projections=floats(1, 32), timestep=floats(1), img_ids=floats(16, 3),
                       txt_ids=floats(8, 3), guidance=floats(1)))
diffusion("qwenimage", "QwenImageTransformer2DModel",
          dict(patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16,
               num_attention_heads=3, joint_attention_dim=16, axes_dims_rope=(8, 4, 4)),
          lambda: dict(hidden_states=floats(1, 16, 16), encoder_hidden_states=floats(1, 7, 16),
                       encoder_hidden_states_mask=torch.ones(1, 7).long(), timestep=floats(1),
                       img_shapes=[(1, 4, 4)]))
diffusion("pixart", "PixArtTransformer2DModel",
          dict(sample_size=8, num_layers=2, patch_size=2, attention_head_dim=8, num_attention_heads=3,
               caption_channels=32, in_channels=4, cross_attention_dim=24, out_channels=8, norm_num_groups=8,
               use_additional_conditions=False),
          lambda: dict(hidden_states=floats(1, 4, 8, 8), encoder_hidden_states=floats(1, 9, 32),
                       timestep=integers(999, 1), added_cond_kwargs=dict(resolution=None, aspect_ratio=None)))
diffusion("mochi", "MochiTransformer3DModel",
          dict(patch_size=2, num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16,
               in_channels=4, qk_norm="rms_norm", text_embed_dim=16, time_embed_dim=4, activation_fn="swiglu",
               max_sequence_length=16),
          lambda: dict(hidden_states=floats(1, 4, 2, 16, 16), encoder_hidden_states=floats(1, 16, 16),
                       timestep=integers(999, 1), encoder_attention_mask=torch.ones(1, 16).bool()))
diffusion("dit", "DiTTransformer2DModel",
          dict(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=8, num_layers=1,
               sample_size=8, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4),
          lambda: dict(hidden_states=floats(2, 4, 8, 8), timestep=integers(999, 2), class_labels=integers(10, 2)),
          kept=True)


def unet(widths, size, heads, projection):
    config = dict(block_out_channels=widths, layers_per_block=1, sample_size=size, in_channels=4, out_channels=4,
                  down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                  up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=heads,
                  norm_num_groups=4, cross_attention_dim=8)
    if projection:
        config.update(use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
                      transformer_layers_per_block=(1, 1), projection_class_embeddings_input_dim=80)

    def inputs():
        more = dict(added_cond_kwargs=dict(text_embeds=floats(1, 32), time_ids=floats(1, 6))) if projection else {}
        return dict(sample=floats(1, 4, size, size), timestep=integers(999, 1),
                    encoder_hidden_states=floats(1, 7, 8), **more)
    return config, inputs


diffusion("unet", "UNet2DConditionModel", *unet((4, 8), 8, 2, False), kept=True)
diffusion("unet_sdxl", "UNet2DConditionModel", *unet((32, 64), 16, (2, 4), True))


def vae(name, cls, config, *shape):
    def make():
        import diffusers
        return modules.Recon(getattr(diffusers, cls)(**config)), (floats(*shape),), {}
    model(name)(make)


TWO = dict(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
vae("vae_image", "AutoencoderKL", dict(block_out_channels=(16, 32), latent_channels=4, norm_num_groups=8, **TWO),
    1, 3, 16, 16)
vae("vae_wan", "AutoencoderKLWan",
    dict(base_dim=16, decoder_base_dim=16, z_dim=48, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
         temperal_downsample=[False, True, True], is_residual=True, in_channels=12, out_channels=12, patch_size=2,
         scale_factor_spatial=16), 1, 3, 5, 32, 32)
vae("vae_cogvideo", "AutoencoderKLCogVideoX",
    dict(block_out_channels=(8, 8, 8, 8), latent_channels=4, layers_per_block=1, norm_num_groups=2), 1, 3, 9, 16, 16)
vae("vae_hunyuan", "AutoencoderKLHunyuanVideo",
    dict(latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4), 1, 3, 9, 16, 16)


@model("written", kept=True)
def written():
    return modules.Written(), (floats(4, 8), torch.randperm(4), integers(4, 4), integers(3, 4, 2), integers(8, 4)), {}


@model("settings", kept=True)
def settings():
    return modules.Settings(), (floats(4, 4, 4), integers(4, 4), integers(5, 4)), {}


@model("edges", kept=True)
def edges():
    return modules.Edges(), (floats(3, 4), integers(4, 3), floats(1, 2, 7, 7)), {}


@model("sums", kept=True)
def sums():
    return modules.Sums(), (floats(3, 4), integers(3, 2, 3, 4), integers(5, 3), integers(20, 3)), {}


@model("angles", kept=True)
def angles():
    return modules.Angles(), (floats(2, 6, 16),), {}


@model("islands", kept=True)
def islands():
    return modules.Islands(), (floats(2, 6, 16), floats(2, 3, 16)), {}


model("pairs", kept=True)(lambda: (modules.Pairs(), (floats(3, 6, 8),), {}))


@model("tiles", kept=True)
def tiles():
    return modules.Tiles(), (floats(3, 4), torch.tensor([[0, 1], [1, 0], [1, 0]])), {}


@model("slots", kept=True)
def slots():
    return modules.Slots(), (floats(3, 4),), {}


model("aliases", kept=True)(lambda: (modules.Aliases(), (floats(3, 4),), {}))
model("recurrent", kept=True)(lambda: (modules.Recurrent(), (floats(5, 3, 4), floats(4, 3, 5)), {}))


@model("nothing", kept=True)
def nothing():
    return modules.Nothing(), (floats(2, 3, 4),), {}


@model("products", kept=True)
def products():
    return modules.Products(), (floats(4, 6),), {}


@model("special", kept=True)
def special():
    return modules.Special(), (floats(4, 6), integers(6, 4, 2)), {}


@model("ends", kept=True)
def ends():
    x = torch.tensor([[1.0, 9, -2, 0, 3], [9, 1, 9, 2, -1], [9, 9, 1, -1, -2], [2, 2, 9, 9, -0.0]])
    return modules.Ends(), (x,), {}


@model("distances", kept=True)
def distances():
    return modules.Distances(), (floats(4, 6), integers(2, 4).float() * 2 - 1, integers(9, 4, 3), floats(4, 3)), {}


for unkept in ("weight", "part", "gradient", "window", "constant", "frozen", "diagonal"):
    model("unkept_" + unkept, kept=True)(lambda kind=unkept: (modules.Unkept(kind), (floats(4),), {}))


for teacher in ("teacher", "teacher_functional"):
    model(teacher, kept=True)(lambda: (modules.Teacher(), (floats(3, 4),), {}))


@model("mixed")
def mixed():
    return modules.Mixed(), (floats(6, 16),), {}


@model("whole", kept=True)
def whole():
    return modules.Whole(), (integers(100, 5),), {}


@model("vq")
def _():
    import diffusers
    return (diffusers.VQModel(block_out_channels=(16, 32), latent_channels=3, num_vq_embeddings=32,
                              norm_num_groups=8, **TWO), (floats(1, 3, 16, 16),), dict(return_dict=False))


# ---- transformers -------------------------------------------------------------------------------


def hugging(name, cls, config_class, config, inputs, kept=False, attention="sdpa"):
    def make():
        import transformers
        c = getattr(transformers, config_class)(**config)
        c.use_cache = False
        m = getattr(transformers, cls)._from_config(c, attn_implementation=attention)
        return m, (), dict(inputs(), return_dict=False)
    model(name, kept)(make)


def tokens(vocabulary=99, **more):
    def inputs():
        ids = integers(vocabulary, 2, 16)
        return dict(input_ids=ids, labels=integers(vocabulary, 2, 16), **more)
    return inputs


def language(name, family, kept=False, attention="sdpa", of=None, **config):
    every = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=64, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    hugging(name, family + "ForCausalLM", of or family + "Config", {**every, **config}, tokens(use_cache=False), kept,
            attention)


SIZES = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
SMALL = dict(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
hugging("gpt2", "GPT2LMHeadModel", "GPT2Config", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        tokens(use_cache=False), kept=True)
language("llama", "Llama", kept=True)
language("qwen2", "Qwen2")
language("qwen3", "Qwen3", head_dim=8)
language("mistral", "Mistral")
language("gemma2", "Gemma2", attention="eager", head_dim=8)
language("phi3", "Phi3")
language("gpt_oss", "GptOss", attention="eager", head_dim=8, num_local_experts=4, num_experts_per_tok=2)
language("qwen3_moe", "Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
language("mixtral", "Mixtral", kept=True, num_local_experts=4, hidden_size=16, intermediate_size=16,
         num_hidden_layers=1)
language("gpt_neox", "GPTNeoX")
language("olmoe", "Olmoe", num_experts=4, num_experts_per_tok=2)
language("qwen2_moe", "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
         shared_expert_intermediate_size=24)
language("granitemoe", "GraniteMoe", num_local_experts=4, num_experts_per_tok=2)
language("deepseek_v3", "DeepseekV3", n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2,
         moe_intermediate_size=16, first_k_dense_replace=1, q_lora_rank=12, kv_lora_rank=8, qk_rope_head_dim=4,
         qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4)
language("jamba", "Jamba", num_experts=4, num_experts_per_tok=2, mamba_d_state=4, mamba_dt_rank=4,
         use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2)
language("glm4_moe", "Glm4Moe", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8)

T5 = dict(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)


def masked_ids():
    return dict(input_ids=integers(99, 2, 16), attention_mask=torch.ones(2, 16).long())


hugging("t5_encoder", "T5EncoderModel", "T5Config", dict(T5, feed_forward_proj="gated-gelu"), masked_ids)
hugging("umt5_encoder", "UMT5EncoderModel", "UMT5Config", dict(T5, feed_forward_proj="gated-gelu"), masked_ids)
hugging("t5", "T5ForConditionalGeneration", "T5Config", dict(T5, decoder_start_token_id=0),
        lambda: dict(input_ids=integers(99, 2, 16), labels=integers(99, 2, 8), use_cache=False))
hugging("bert", "BertForMaskedLM", "BertConfig", dict(SMALL, max_position_embeddings=24), tokens(), kept=True)
hugging("distilbert", "DistilBertForSequenceClassification", "DistilBertConfig",
        dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64),
        lambda: dict(input_ids=integers(99, 2, 16), labels=integers(2, 2)))
PIXELS = dict(image_size=16, patch_size=4, num_labels=5)
hugging("vit", "ViTForImageClassification", "ViTConfig", dict(SMALL, **PIXELS),
        lambda: dict(pixel_values=floats(2, 3, 16, 16), labels=integers(5, 2)), kept=True)
hugging("clip", "CLIPModel", "CLIPConfig",
        dict(text_config=dict(SIZES, max_position_embeddings=16, eos_token_id=2),
             vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                image_size=32, patch_size=8)),
        lambda: dict(input_ids=integers(99, 2, 16), pixel_values=floats(2, 3, 32, 32), return_loss=True))
hugging("dinov2", "Dinov2Model", "Dinov2Config",
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14),
        lambda: dict(pixel_values=floats(2, 3, 28, 28)))
hugging("whisper", "WhisperForConditionalGeneration", "WhisperConfig",
        dict(vocab_size=99, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1,
             encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
             max_source_positions=16, max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             decoder_start_token_id=1),
        lambda: dict(input_features=floats(2, 8, 32), labels=integers(99, 2, 10), use_cache=False), kept=True)

# ---- of transformers, one per idea that those above do not have ----------------------------------

TEXT = dict(SMALL, max_position_embeddings=24)
hugging("roberta", "RobertaForMaskedLM", "RobertaConfig", dict(TEXT, pad_token_id=1), tokens())
hugging("electra", "ElectraForPreTraining", "ElectraConfig", dict(SMALL, embedding_size=8),
        lambda: dict(input_ids=integers(99, 2, 16), labels=integers(2, 2, 16)))
hugging("deberta_v2", "DebertaV2ForMaskedLM", "DebertaV2Config",
        dict(TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, type_vocab_size=0,
             share_att_key=True, norm_rel_ebd="layer_norm"), lambda: dict(tokens()(), **masked_ids()), attention="eager")
hugging("albert", "AlbertForMaskedLM", "AlbertConfig", dict(TEXT, embedding_size=8), tokens())
hugging("mamba", "MambaForCausalLM", "MambaConfig",
        dict(vocab_size=99, hidden_size=16, state_size=4, num_hidden_layers=2, time_step_rank=4), tokens(),
        attention="eager")
hugging("opt", "OPTForCausalLM", "OPTConfig",
        dict(vocab_size=99, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32,
             max_position_embeddings=32, word_embed_proj_dim=16),
        lambda: dict(tokens(use_cache=False)(), attention_mask=torch.tensor([[1] * 16, [0] * 4 + [1] * 12])))
SPEECH = dict(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
              conv_dim=(8, 8, 8), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2), num_feat_extract_layers=3,
              num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, mask_time_prob=0.3)
hugging("wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", SPEECH,
        lambda: dict(input_values=floats(2, 800), mask_time_indices=torch.rand(2, 39) > 0.7))
hugging("swin", "SwinForImageClassification", "SwinConfig",
        dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4, num_labels=5),
        lambda: dict(pixel_values=floats(2, 3, 32, 32), labels=integers(5, 2)))
hugging("segformer", "SegformerForSemanticSegmentation", "SegformerConfig",
        dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[8, 16], patch_sizes=[7, 3],
             strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=5),
        lambda: dict(pixel_values=floats(2, 3, 32, 32), labels=integers(5, 2, 32, 32)))
TOWER = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, patch_size=4)
hugging("siglip", "SiglipModel", "SiglipConfig",
        dict(text_config=dict(SMALL, max_position_embeddings=16), vision_config=dict(TOWER, image_size=16)),
        lambda: dict(input_ids=integers(99, 2, 16), pixel_values=floats(2, 3, 16, 16), return_loss=True))
hugging("llava", "LlavaForConditionalGeneration", "LlavaConfig",
        dict(text_config=dict(SMALL, model_type="llama", num_hidden_layers=1, max_position_embeddings=32),
             vision_config=dict(TOWER, model_type="clip_vision_model", image_size=8, projection_dim=16),
             image_token_index=98, image_seq_length=4),
        lambda: dict(input_ids=torch.cat([torch.full((2, 4), 98), integers(98, 2, 12)], 1),
                     pixel_values=floats(2, 3, 8, 8), labels=integers(98, 2, 16), use_cache=False), kept=True)

more_models.add(sys.modules[__name__])

# ---- timm ---------------------------------------------------------------------------------------

for timm_name in ("resnet50", "convnext_tiny", "vit_small_patch16_224", "efficientnet_b0", "regnety_004",
                  "deit3_small_patch16_224", "densenet121", "maxvit_tiny_rw_224"):
    def timm_make(name=timm_name):
        import timm
        return timm.create_model(name, pretrained=False), (floats(2, 3, 224, 224),), {}
    model("timm_" + timm_name)(timm_make)


# ---- in bf16 -------------------------------------------------------------------------------------

BF16 = {"bert_bf16": "bert", "norms_bf16": "norms", "islands_bf16": "islands",
        "mixed_bf16": "mixed"}  # whose losses are bf16, too
for bf16_name, of in BF16.items():
    model(bf16_name, kept=True)(MODELS[of][1])

# ---- export and reference -----------------------------------------------------------------------


def without_dropout(module):
    """No two programs draw the same numbers."""
    for m in module.modules():
        for holder in (m, getattr(m, "config", None)):
            for key, value in list(getattr(holder, "__dict__", {}).items()):
                if isinstance(value, float) and "drop" in key:
                    setattr(holder, key, 0.0)
        if isinstance(m, nn.modules.dropout._DropoutNd):
            m.p = 0.0


def shorten(module):
    """Values of 16 bits, which pack to half; nothing that starts as a constant stays one."""
    if hasattr(module, "whole_values"):
        return
    with torch.no_grad():
        for p in module.parameters():
            if p.numel() > 1 and (p == p.flatten()[0]).all():
                p.add_(0.1 * torch.randn(p.shape))
            p.copy_(p.to(torch.bfloat16).float())


def without_paths(graph_module):
    """Source lines are named from the packages, not from where they are installed."""
    folders = sorted(sys.path + [os.path.dirname(os.path.abspath(__file__))], key=len, reverse=True)
    for m in graph_module.modules():
        for node in getattr(getattr(m, "graph", None), "nodes", []):
            trace = node.meta.get("stack_trace")
            for folder in filter(None, folders if trace else []):
                trace = trace.replace(folder + "/", "")
            if trace:
                node.meta["stack_trace"] = trace


def flat(outputs):
    return [x for x in torch.utils._pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]


def loss_of(outputs, targets):
    """The first output if it is a number, else the mean squared distances to targets, added."""
    if outputs[0].ndim == 0:
        return outputs[0]
    return sum(F.mse_loss(x, targets[i].to(x.dtype)) for i, x in enumerate(outputs) if i in targets)


def make_targets(outputs):
    if outputs[0].ndim == 0:
        return {}
    return {i: torch.randn(x.shape) for i, x in enumerate(outputs) if x.is_floating_point() and x.requires_grad}


def to_type(tree, dtype):
    return torch.utils._pytree.tree_map(
        lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, tree)


def kept_of(m):
    """What stays from step to step and is not trained, by name."""
    return {**dict(m.named_buffers()), **{n: p for n, p in m.named_parameters() if not p.requires_grad}}


def run(make, state, args, kwargs, targets, dtype):
    """Loss, gradients by name, buffers after it, outputs; of a module of its own, in a dtype."""
    torch.manual_seed(0)
    m = make()[0]
    without_dropout(m)
    m.load_state_dict(state)
    m.to(dtype).train()
    if dtype == torch.float64 and hasattr(m, "set_experts_implementation"):
        m.set_experts_implementation("eager")  # grouped products have no fp64
    args, kwargs = torch.utils._pytree.tree_map(  # a model may write its inputs
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, to_type((args, kwargs), dtype))
    outputs = flat(m(*args, **kwargs))
    targets = make_targets(outputs) if targets is None else targets
    loss = loss_of(outputs, targets)
    loss.backward()
    grads = {n: p.grad if p.grad is not None else torch.zeros_like(p)
             for n, p in m.named_parameters() if p.requires_grad}
    return loss.detach(), grads, kept_of(m), [x.detach() for x in outputs], targets


def distance(a, b):
    """The largest difference of two sets of gradients, each over the largest value of its tensor or
    a thousandth of the largest of all."""
    top = max([float(x.abs().max()) for x in b.values() if x.numel()] + [1e-30])
    return max(float((a[n].double() - b[n].double()).abs().max()) / max(float(b[n].abs().max()), 1e-3 * top)
               for n in b if b[n].numel())


def inputs_by_name(program, args, kwargs):
    values = program._get_flat_args_with_check(args, kwargs)[0]
    specs = [s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    assert len(values) == len(specs)
    return {s.arg.name: v for s, v in zip(specs, values) if isinstance(v, torch.Tensor)}


def same_storage(t):
    return t.detach().clone().contiguous()


def reference(name, make, module, program, args, kwargs, kept):
    before = {n: b.clone() for n, b in kept_of(module).items()}
    state = {n: t.clone() for n, t in module.state_dict().items()}
    dtype = torch.bfloat16 if name in BF16 else torch.float32
    loss, grads, after, outputs, targets = run(make, state, args, kwargs, None, dtype)
    kind, error = ("output" if outputs[0].ndim == 0 else "mse"), ""
    try:
        loss64, grads64, after64, outputs64, _ = run(make, state, args, kwargs, targets, torch.float64)
        error = f"{distance(grads, grads64):.2e}"
        loss, grads, after, outputs = loss64, grads64, after64, outputs64
    except (RuntimeError, ValueError, TypeError) as e:
        print(f"{name}: no reference in fp64: {str(e).splitlines()[0][:100]}")
    narrow = lambda t: same_storage(t.float() if t.is_floating_point() else t)  # noqa: E731
    tensors = {"loss": narrow(loss)}
    tensors.update({"input." + n: narrow(t) for n, t in inputs_by_name(program, args, kwargs).items()})
    tensors.update({f"target.{i}": narrow(t) for i, t in targets.items()})
    tensors.update({"grad." + n: narrow(t) for n, t in grads.items()})
    tensors.update({"after." + n: narrow(t) for n, t in after.items()
                    if not torch.equal(t.double(), before[n].double())})
    if not kept:
        tensors.update({f"output.{i}": narrow(t) for i, t in enumerate(outputs)})
    notes = {"torch": torch.__version__, "loss": kind, "error": error, "dtype": str(dtype), "model": name}
    return tensors, notes


def pack(path):
    with open(path, "rb") as f, gzip.GzipFile(path + ".gz", "wb", 9, mtime=0) as g:
        g.write(f.read())
    os.remove(path)


WITHOUT_VALUES = ("norms", "bert")  # in the folder "empty", too


def export_empty(module, args, kwargs, path):
    args, kwargs = torch.utils._pytree.tree_map(
        lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, (args, kwargs))
    program = torch.export.export(module.to("meta"), args, kwargs, strict=False)
    without_paths(program.graph_module)
    torch.export.save(program, path)


def make_one(name, folder, packed):
    kept, make = MODELS[name]
    torch.manual_seed(0)
    module, _, _ = make()
    torch.manual_seed(zlib.crc32(name.encode()))
    without_dropout(module)
    shorten(module)
    _, args, kwargs = make()
    if name in BF16:
        module.to(torch.bfloat16)
        args, kwargs = to_type((args, kwargs), torch.bfloat16)
    module.train()
    state = {n: t.clone() for n, t in module.state_dict().items()}
    others, sizes = DYNAMIC.get(name, (args, None))
    program = torch.export.export(module, others, kwargs, dynamic_shapes=sizes, strict=False)
    if name.endswith("_functional"):
        program = program.run_decompositions({})
    without_paths(program.graph_module)
    module.load_state_dict(state)
    path = os.path.join(folder, name + ".pt2")
    torch.export.save(program, path)
    tensors, notes = reference(name, make, module, program, args, kwargs, packed)
    save_file(tensors, os.path.join(folder, name + ".safetensors"), metadata=notes)
    if name in WITHOUT_VALUES:
        empty = os.path.join(os.path.dirname(os.path.abspath(folder)) if packed else folder, "empty")
        os.makedirs(empty, exist_ok=True)
        export_empty(make()[0], args, kwargs, os.path.join(empty, name + ".pt2"))
        if packed:
            pack(os.path.join(empty, name + ".pt2"))
    if packed:
        pack(path)
        pack(os.path.join(folder, name + ".safetensors"))
    return notes, sum(p.numel() for p in module.parameters())


class Crossed(nn.Module):
    """A transformer of one block with batches and lengths of any size, dropout, a loss of its own,
    matrices that are large enough for codes, and a table that is large enough to be offloaded."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8192, 64)
        self.norm = nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.head = nn.Linear(64, 40, bias=False)

    def forward(self, ids, labels):
        x = self.embed(ids)
        q, k, v = (p.unflatten(-1, (4, 16)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.out(a), 0.1, self.training)
        x = x + F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training)
        return F.cross_entropy(self.head(x).float().flatten(0, 1), labels.flatten())


class MeanOfLinear(nn.Module):
    """The loss is bf16."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x).mean()


def make_crossed(folder):
    """fp32 and bf16, with weights of 17 values and a table of zeros behind row 40, so that they pack."""
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        torch.manual_seed(0)
        module, ids = Crossed().train(), integers(40, 3, 12)
        sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=512)}
        with torch.no_grad():
            for p in module.parameters():
                p.copy_((p * 32).round().clamp(-8, 8) / 32 if p.ndim > 1 else p.round())
            module.embed.weight[40:] = 0
        program = torch.export.export(module.to(dtype), (ids, ids), dynamic_shapes=(sizes, sizes), strict=False)
        without_paths(program.graph_module)
        path = os.path.join(folder, name + ".pt2")
        torch.export.save(program, path)
        pack(path)
        print(f"crossed {name}: {sum(p.numel() for p in module.parameters())} values", flush=True)
    path = os.path.join(folder, "loss.pt2")
    torch.export.save(torch.export.export(MeanOfLinear(), (torch.ones(2, 4, dtype=torch.bfloat16),), strict=False), path)
    pack(path)
    return 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "crossed":
        return make_crossed(sys.argv[2])
    if len(sys.argv) < 3 or sys.argv[1] not in ("kept", "all"):
        sys.exit(__doc__)
    packed, folder = sys.argv[1] == "kept", sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    failed = 0
    for name in sys.argv[3:] or [n for n, (kept, _) in MODELS.items() if kept or not packed]:
        start = time.time()
        try:
            notes, count = make_one(name, folder, packed)
            print(f"{name}: {count} values, torch's own error {notes['error'] or 'unknown'}, "
                  f"{time.time() - start:.0f} s", flush=True)
        except Exception as e:  # the next model may work
            failed = 1
            print(f"{name}: {type(e).__name__}: {str(e).splitlines()[0][:300] if str(e) else ''}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
