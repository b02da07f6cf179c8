#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of LoRA on a Llama shape by PyTorch: random frozen weights, in bf16 or NF4, adapters on all linear layers of the blocks in
bf16 with fp32 masters, fused AdamW, clipping, compiled blocks, the loss in chunks of rows that are recomputed in the backward pass.

    pip install torch
    python3 peer_lora.py --model llama3.1-8B --length 8192 --checkpoints
    python3 peer_lora.py --model llama3.1-8B --length 8192 --checkpoints --frozen nf4 --peft
    python3 peer_lora.py --model llama3.1-8B --length 4096 --batch 8 --mix --checkpoints

The model is written out, so neither transformers nor peft is needed; with --peft it is transformers' with peft's adapters, whose
scores are not in chunks. --frozen nf4 has codes of 4 bits and decodes them in both passes; --frozen bnb takes those of bitsandbytes.
--mix draws lengths (mix.py) and pads them to the longest one of each batch. peer.py says what is printed.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import mix
import peer

# width, layers, heads, heads of keys, width of a head, MLP, vocabulary, bias of q, k and v
SIZES = {"llama3.1-8B": (4096, 32, 32, 8, 128, 14336, 128256, False), "llama3.2-1B": (2048, 16, 32, 8, 64, 8192, 128256, False),
         "qwen2.5-7B": (3584, 28, 28, 4, 128, 18944, 152064, True), "qwen2.5-14B": (5120, 48, 40, 8, 128, 13824, 152064, True),
         "tiny-llama": (64, 2, 4, 2, 16, 128, 256, False)}
PADDED, NO_TARGET = 64, -100

# The 16 values of NF4 (Dettmers et al. 2023) and the borders between them; a scale for each 64 weights.
NF4 = (-1, -.6961928, -.52507305, -.3949175, -.28444138, -.18477343, -.09105004, 0,
       .0795803, .1609302, .2461123, .33791524, .44070983, .562617, .72295684, 1)
BLOCK = 64


def read_options():
    p = peer.options(__doc__.split("\n")[0])
    p.add_argument("--model", default="llama3.1-8B", choices=SIZES)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--length", type=int, default=8192)
    p.add_argument("--lora-rank", type=int, default=16)
    p.add_argument("--loss-chunk", type=int, default=4096)
    p.add_argument("--checkpoints", action="store_true")
    p.add_argument("--frozen", default="bf16", choices=["bf16", "nf4", "bnb"])
    p.add_argument("--peft", action="store_true")
    p.add_argument("--mix", action="store_true")
    o = p.parse_args()
    if o.peft and o.mix or o.frozen == "bnb" and not o.peft:
        p.error("--peft has no --mix, and --frozen bnb needs --peft")
    return o


# ---- frozen layers -----------------------------------------------------------------------------


def decode(codes, scale, table, shape):
    pairs = torch.stack([codes >> 4, codes & 15], -1).view(-1, BLOCK)
    return (table[pairs.int()] * scale).to(torch.bfloat16).view(shape)


class Product(torch.autograd.Function):
    """x W^T, which keeps the codes of W for the backward pass, not W."""

    @staticmethod
    def forward(ctx, x, codes, scale, table, shape):
        ctx.save_for_backward(codes, scale, table)
        ctx.weight = shape
        return F.linear(x, decode(codes, scale, table, shape))

    @staticmethod
    def backward(ctx, dy):
        return dy @ decode(*ctx.saved_tensors, ctx.weight), None, None, None, None


class Nf4Linear(nn.Linear):
    def __init__(self, given):
        super().__init__(given.in_features, given.out_features, bias=False, device="meta")
        table = torch.tensor(NF4, dtype=torch.float32)
        blocks = given.weight.detach().float().view(-1, BLOCK)
        scale = blocks.abs().amax(1, keepdim=True)
        codes = torch.bucketize(blocks / scale, (table[1:] + table[:-1]) / 2).to(torch.uint8)
        self.weight = nn.Parameter((codes[:, ::2] << 4) | codes[:, 1::2], requires_grad=False)
        self.bias = given.bias
        self.register_buffer("scale", scale)
        self.register_buffer("table", table)

    def forward(self, x):
        y = Product.apply(x, self.weight, self.scale, self.table, (self.out_features, self.in_features))
        return y if self.bias is None else y + self.bias


def in_codes(layer, kind):
    if kind == "nf4":
        return Nf4Linear(layer)
    import bitsandbytes as bnb
    coded = bnb.nn.Linear4bit(layer.in_features, layer.out_features, layer.bias is not None, torch.bfloat16, quant_type="nf4")
    coded.weight = bnb.nn.Params4bit(layer.weight.detach().cpu(), requires_grad=False, quant_type="nf4")
    coded.bias = layer.bias
    return coded.to(layer.weight.device)


class Linear(nn.Module):
    """A frozen layer with an adapter of rank r, scaled by alpha / r = 1."""

    def __init__(self, n_in, n_out, o, bias=False):
        super().__init__()
        base = nn.Linear(n_in, n_out, bias).requires_grad_(False)
        base.weight.normal_(0, 0.02)
        self.base = base if o.frozen == "bf16" else in_codes(base, o.frozen)
        self.a = nn.Parameter(torch.empty(o.lora_rank, n_in).normal_(0, n_in**-0.5))
        self.b = nn.Parameter(torch.zeros(n_out, o.lora_rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)


# ---- the model, written out --------------------------------------------------------------------


def frozen(*shape):
    return nn.Parameter(torch.ones(shape) if len(shape) == 1 else torch.empty(shape).normal_(0, 0.02), requires_grad=False)


def turn(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        width, _, self.heads, self.keys, self.head, mlp, _, bias = SIZES[o.model]
        self.norm1, self.norm2 = frozen(width), frozen(width)
        self.q = Linear(width, self.heads * self.head, o, bias)
        self.k = Linear(width, self.keys * self.head, o, bias)
        self.v = Linear(width, self.keys * self.head, o, bias)
        self.o = Linear(self.heads * self.head, width, o)
        self.gate, self.up, self.down = Linear(width, mlp, o), Linear(width, mlp, o), Linear(mlp, width, o)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        split = lambda y, n: y.view(batch, length, n, self.head).transpose(1, 2)
        y = F.rms_norm(x, (width,), self.norm1, 1e-5)
        q, k, v = split(self.q(y), self.heads), split(self.k(y), self.keys), split(self.v(y), self.keys)
        y = F.scaled_dot_product_attention(turn(q, cos, sin), turn(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.heads != self.keys)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        y = F.rms_norm(x, (width,), self.norm2, 1e-5)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        width, layers, _, _, head, _, vocabulary, _ = SIZES[o.model]
        self.tokens, self.norm, self.head = frozen(vocabulary, width), frozen(width), frozen(vocabulary, width)
        self.blocks = nn.ModuleList(Block(o) for _ in range(layers))
        angle = torch.arange(o.length).float()[:, None] / 5e5 ** (torch.arange(0, head, 2).float() / head)
        angle = torch.cat([angle, angle], -1)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
        self.options = o
        if not o.eager:
            for block in self.blocks:
                block.compile(dynamic=True if o.mix else None)
            self.loss_of_rows = torch.compile(self.loss_of_rows)

    def loss_of_rows(self, x, targets):
        x = F.rms_norm(x, (x.shape[-1],), self.norm, 1e-5)
        return F.cross_entropy(F.linear(x, self.head).float(), targets, reduction="sum", ignore_index=NO_TARGET)

    def forward(self, ids, targets):
        o, x = self.options, F.embedding(ids, self.tokens)
        x.requires_grad_()
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False) if o.checkpoints else block(x, cos, sin)
        rows, targets = x.reshape(-1, x.shape[-1]), targets.reshape(-1)
        parts = zip(rows.split(o.loss_chunk), targets.split(o.loss_chunk))
        return sum(checkpoint(self.loss_of_rows, a, b, use_reentrant=False) for a, b in parts) / self.counted


# ---- transformers and peft ---------------------------------------------------------------------


class Published(nn.Module):
    def __init__(self, o):
        super().__init__()
        import peft
        import transformers
        width, layers, heads, keys, head, mlp, vocabulary, bias = SIZES[o.model]
        kind = transformers.Qwen2Config if bias else transformers.LlamaConfig
        config = kind(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=keys, head_dim=head,
                      intermediate_size=mlp, vocab_size=vocabulary, max_position_embeddings=max(o.length, 8192), use_cache=False,
                      tie_word_embeddings=False)
        base = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        base.to(o.device)
        for block in base.model.layers if o.frozen != "bf16" else ():
            for part in (block.self_attn, block.mlp):
                for name, layer in list(part.named_children()):
                    if isinstance(layer, nn.Linear):
                        setattr(part, name, in_codes(layer, o.frozen))
        base.is_loaded_in_4bit = o.frozen == "bnb"
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        adapters = peft.LoraConfig(r=o.lora_rank, lora_alpha=o.lora_rank, target_modules=targets, task_type="CAUSAL_LM")
        self.model = peft.get_peft_model(base, adapters, autocast_adapter_dtype=False).train()
        for w in self.model.parameters():
            w.data = w.data.to(torch.bfloat16) if w.requires_grad else w.data
        if o.checkpoints:
            base.gradient_checkpointing_enable({"use_reentrant": False})
        base.enable_input_require_grads()
        for block in base.model.layers if not o.eager else ():
            block.compile()

    def forward(self, ids, targets):
        scores = self.model(input_ids=ids).logits
        return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)


def batches(o, model):
    vocabulary = SIZES[o.model][6]
    drawn = iter(mix.lengths(o.length, o.batch * o.steps) if o.mix else [])

    def batch():
        sizes = [next(drawn) for _ in range(o.batch)] if o.mix else [o.length] * o.batch
        longest = min(o.length, -(-max(sizes) // PADDED) * PADDED)
        ids = torch.randint(0, vocabulary, (o.batch, longest + 1), device=o.device)
        targets = ids[:, 1:].clone()
        for row, size in enumerate(sizes):
            targets[row, size:] = NO_TARGET
        model.counted = sum(sizes)
        return ids[:, :-1], targets

    return batch


def main():
    o = read_options()
    torch.manual_seed(0)
    torch.set_default_device(o.device)
    torch.set_default_dtype(torch.bfloat16)
    model = Published(o) if o.peft else Model(o)
    peer.run(o, model, batches(o, model), model, 2e-4)


if __name__ == "__main__":
    main()
