# SPDX-License-Identifier: Apache-2.0
"""More small models of transformers, diffusers and timm for make_models.py all: families that are written in other
ways than those there, each in the smallest form that has all of it."""

# Causal language models by family, and what they have beside the sizes that all have.
LANGUAGE = {
    "Gemma": dict(head_dim=8), "Phi": {}, "Olmo2": {}, "Olmo3": {}, "StableLm": {}, "Starcoder2": {}, "Cohere": {},
    "Cohere2": dict(head_dim=8), "Granite": {}, "Glm": dict(head_dim=8), "Glm4": dict(head_dim=8), "Nemotron": {},
    "SmolLM3": {}, "Helium": dict(head_dim=8), "Ernie4_5": dict(head_dim=8), "Exaone4": dict(head_dim=8), "Lfm2": {},
    "Falcon": dict(ffn_hidden_size=64, alibi=False), "Bloom": dict(n_layer=2, n_head=4),
    "GPTJ": dict(n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64),
    "GPTNeo": dict(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4),
    "GPTBigCode": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "Mpt": dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
    "GraniteMoe": dict(num_local_experts=4, num_experts_per_tok=2),
    "Mamba2": dict(hidden_size=16, state_size=8, num_heads=4, head_dim=8, n_groups=1, chunk_size=8),
    "Bamba": dict(mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8),
    "Rwkv": dict(attention_hidden_size=32, context_length=32),
    "RecurrentGemma": dict(lru_width=32, attention_window_size=8, head_dim=8),
    "DeepseekV3": dict(n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=16,
                       q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
                       first_k_dense_replace=1, num_key_value_heads=4),
    "Olmo": {}, "Apertus": {}, "Arcee": {}, "BitNet": {}, "SeedOss": dict(head_dim=8),
    "Persimmon": dict(num_key_value_heads=4),
    "FalconH1": dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1,
                     mamba_chunk_size=8),
    "MiniMax": dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8, block_size=8,
                    layer_types=["linear_attention", "full_attention"]),
    "Qwen3Next": dict(head_dim=8, num_experts=4, num_experts_per_tok=2, linear_num_key_heads=2,
                      linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
                      moe_intermediate_size=16, shared_expert_intermediate_size=16,
                      layer_types=["linear_attention", "full_attention"]),
}
EAGER = ("Bloom", "GPTNeo", "Mpt", "Mamba2", "Rwkv")

# Encoders and decoders of text.
SEQUENCES = dict(vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                 decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
                 pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None)

# Classifiers of pictures of `size`, or what gives features of them.
VIT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4,
           num_labels=5)
PICTURES = {
    "BeitForImageClassification": (16, dict(VIT, use_relative_position_bias=True)),
    "DeiTForImageClassification": (16, VIT),
    "Swinv2ForImageClassification": (32, dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2],
                                              num_heads=[2, 2], window_size=4, num_labels=5)),
    "ConvNextV2ForImageClassification": (32, dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5)),
    "ResNetForImageClassification": (32, dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)),
    "EfficientNetForImageClassification": (32, dict(image_size=32, width_coefficient=0.25, depth_coefficient=0.3,
                                                    hidden_dim=320, num_labels=5)),
    "MobileViTForImageClassification": (32, dict(image_size=32, patch_size=2, hidden_sizes=[8, 12, 16],
                                                 neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 16], num_attention_heads=2,
                                                 num_labels=5)),
    "LevitForImageClassification": (64, dict(image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 2, 2],
                                             depths=[1, 1, 1], key_dim=[8, 8, 8], num_labels=5)),
    "FocalNetForImageClassification": (32, dict(image_size=32, embed_dim=8, depths=[1, 1], hidden_sizes=[8, 16],
                                                focal_levels=[2, 2], focal_windows=[3, 3], num_labels=5)),
    "Dinov2WithRegistersModel": (16, VIT),
    "SamVisionModel": (32, dict(hidden_size=16, output_channels=8, num_hidden_layers=2, num_attention_heads=2,
                                image_size=32, patch_size=4, window_size=4, global_attn_indexes=[1], num_pos_feats=8,
                                mlp_dim=32)),
}


def add(m):
    """Enters them in MODELS of make_models.py, the module m."""
    for family, config in LANGUAGE.items():
        m.language(family.lower(), family, attention="eager" if family in EAGER else "sdpa", **config)
    m.language("llama4", "Llama4", of="Llama4TextConfig", head_dim=8, num_local_experts=2, intermediate_size_mlp=64)
    for name, cls, config in (("bart", "BartForConditionalGeneration", "BartConfig"),
                              ("m2m", "M2M100ForConditionalGeneration", "M2M100Config"),
                              ("marian", "MarianMTModel", "MarianConfig")):
        m.hugging(name, cls, config, SEQUENCES, lambda: dict(
            input_ids=m.integers(99, 2, 16), labels=m.integers(99, 2, 10), use_cache=False))
    m.hugging("modernbert", "ModernBertForMaskedLM", "ModernBertConfig", dict(
        m.TEXT, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=8), m.tokens())
    m.hugging("xlnet", "XLNetLMHeadModel", "XLNetConfig", dict(vocab_size=99, d_model=16, n_layer=2, n_head=2, d_inner=32),
              m.tokens(use_mems=False), attention="eager")
    for cls, (size, config) in PICTURES.items():
        family = cls.replace("ForImageClassification", "").replace("Model", "")
        labels = {} if cls.endswith("Model") else dict(labels=5)
        m.hugging(family.lower(), cls, family + "Config", config, lambda size=size, labels=labels: dict(
            pixel_values=m.floats(2, 3, size, size), **{k: m.integers(n, 2) for k, n in labels.items()}), attention="eager")
    m.hugging("vitmae", "ViTMAEForPreTraining", "ViTMAEConfig", dict(
        VIT, decoder_hidden_size=16, decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
        decoder_intermediate_size=32, mask_ratio=0.5),
        lambda: dict(pixel_values=m.floats(2, 3, 16, 16), noise=m.floats(2, 16)))
    m.hugging("videomae", "VideoMAEForVideoClassification", "VideoMAEConfig", dict(VIT, num_frames=4, tubelet_size=2),
              lambda: dict(pixel_values=m.floats(2, 4, 3, 16, 16), labels=m.integers(5, 2)))
    m.diffusion("svd", "UNetSpatioTemporalConditionModel", dict(
        block_out_channels=(32, 64), down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"), cross_attention_dim=8,
        num_attention_heads=2, out_channels=4, in_channels=4, layers_per_block=1, sample_size=8,
        projection_class_embeddings_input_dim=24, addition_time_embed_dim=8),
        lambda: dict(sample=m.floats(1, 2, 4, 8, 8), timestep=m.integers(999, 1),
                     encoder_hidden_states=m.floats(1, 1, 8), added_time_ids=m.floats(1, 3)))
    m.diffusion("sana", "SanaTransformer2DModel", dict(
        patch_size=1, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=4, num_attention_heads=2,
        num_cross_attention_heads=2, cross_attention_head_dim=4, cross_attention_dim=8, caption_channels=8, sample_size=8),
        lambda: dict(hidden_states=m.floats(1, 4, 8, 8), encoder_hidden_states=m.floats(1, 6, 8),
                     timestep=m.integers(999, 1)))
    m.diffusion("sd3", "SD3Transformer2DModel", dict(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=16, out_channels=4, pos_embed_max_size=8,
        qk_norm="rms_norm", dual_attention_layers=(0,)),
        lambda: dict(hidden_states=m.floats(1, 4, 8, 8), encoder_hidden_states=m.floats(1, 6, 16),
                     pooled_projections=m.floats(1, 16), timestep=m.integers(999, 1)))
    m.diffusion("ltx", "LTXVideoTransformer3DModel", dict(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, cross_attention_dim=16, num_layers=1,
        caption_channels=16),
        lambda: dict(hidden_states=m.floats(1, 32, 4), encoder_hidden_states=m.floats(1, 6, 16), num_frames=2, height=4,
                     width=4, timestep=m.integers(999, 1), encoder_attention_mask=m.torch.ones(1, 6).bool()))
    m.diffusion("controlnet", "ControlNetModel", dict(
        block_out_channels=(8, 16), layers_per_block=1, in_channels=4, norm_num_groups=4, cross_attention_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), attention_head_dim=4,
        conditioning_embedding_out_channels=(4, 8)),
        lambda: dict(sample=m.floats(1, 4, 8, 8), timestep=m.integers(999, 1), encoder_hidden_states=m.floats(1, 5, 8),
                     controlnet_cond=m.floats(1, 3, 16, 16)))
