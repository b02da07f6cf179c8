#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of well-known models as graph files: what torch.compile partitions, for our planner.

    pip install torch transformers timm diffusers
    python3 torch_graphs.py --list
    python3 torch_graphs.py OUT [NAME ...]

A model has random weights and is traced with fake tensors, so its size costs no memory.  Its joint
graph of forward and backward pass, before PyTorch partitions it, becomes OUT/NAME.graph (see
doc/formats.md): a view has the storage of its base, a storage that no op reads later ends there, and
one op per parameter applies its gradient.  OUT/products/NAME.graph is the same graph with a cost for
matrix products, convolutions and attention only.  Exits with 77 if a package is missing.
"""

import contextlib
import hashlib
import operator
import os
import sys

try:
    import torch
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch._functorch.compile_utils import fx_graph_cse
    from torch.utils.flop_counter import flop_registry
except ImportError as e:
    print(f"torch_graphs.py: {e}", file=sys.stderr)
    sys.exit(77)

ALIGN = 512            # bytes: storages of a graph file are multiples of it
FLOPS, BYTES = 1.2e14, 8e11  # rates of the seconds in the files, about an RTX 4090
LAUNCH = 3e-6          # seconds

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

# ---- models ------------------------------------------------------------------------------------

MODELS = {}


def model(name, dtype=torch.float32):
    def add(build):
        MODELS[name] = (build, dtype)
        return build
    return add


class Loss(torch.nn.Module):
    """A module whose result is one number: the loss of the model, or the mean square of its output."""

    def __init__(self, net, options):
        super().__init__()
        self.net, self.options = net, options

    def forward(self, *args, **kwargs):
        out = self.net(*args, **kwargs, **self.options)
        out = out[0] if isinstance(out, (tuple, list)) else out
        return out if out.dim() == 0 else out.float().pow(2).mean()


def rand(*shape):
    return torch.randn(shape)


def ids(*shape, high=1000):
    return torch.randint(0, high, shape)


class Encoder(torch.nn.Module):
    """The plain transformer of PyTorch: 4 layers."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True,
                                             norm_first=True)
            for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@model("transformer4")
def _():
    return Encoder(256, 4), (rand(4, 128, 256),), {}


def mlp(width, layers, batch):
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts), (rand(batch, width),), {}


@model("mlp16")
def _():
    return mlp(512, 16, 256)


class Lstm(torch.nn.Module):
    """Two layers, unrolled over time."""

    def __init__(self, width, length, vocabulary):
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.first = torch.nn.LSTMCell(width, width)
        self.second = torch.nn.LSTMCell(width, width)
        self.head = torch.nn.Linear(width, vocabulary)
        self.width, self.length = width, length

    def forward(self, x, y):
        e = self.embed(x)
        a = b = (x.new_zeros(x.shape[0], self.width, dtype=e.dtype),) * 2
        rows = []
        for t in range(self.length):
            a = self.first(e[:, t], a)
            b = self.second(a[0], b)
            rows.append(b[0])
        logits = self.head(torch.stack(rows, 1))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())


@model("lstm32")
def _():
    return Lstm(512, 32, 4096), (ids(32, 32), ids(32, 32)), {}


@model("lstm128")
def _():
    return Lstm(512, 128, 4096), (ids(32, 128), ids(32, 128)), {}


class Block3d(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.c1, self.c2 = torch.nn.Conv3d(a, b, 3, padding=1), torch.nn.Conv3d(b, b, 3, padding=1)
        self.n1, self.n2 = torch.nn.GroupNorm(8, b), torch.nn.GroupNorm(8, b)

    def forward(self, x):
        x = torch.nn.functional.silu(self.n1(self.c1(x)))
        return torch.nn.functional.silu(self.n2(self.c2(x)))


class Unet3d(torch.nn.Module):
    """A segmentation network: skips of every length."""

    def __init__(self, width, levels):
        super().__init__()
        sizes = [width << i for i in range(levels)]
        self.down = torch.nn.ModuleList(
            Block3d(1 if i == 0 else sizes[i - 1], sizes[i]) for i in range(levels))
        self.up = torch.nn.ModuleList(
            torch.nn.ConvTranspose3d(sizes[i + 1], sizes[i], 2, 2) for i in range(levels - 1))
        self.join = torch.nn.ModuleList(
            Block3d(2 * sizes[i], sizes[i]) for i in range(levels - 1))
        self.out = torch.nn.Conv3d(width, 2, 1)

    def forward(self, x, y):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else torch.nn.functional.max_pool3d(x, 2))
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([skips[i], self.up[i](x)], 1))
        return torch.nn.functional.cross_entropy(self.out(x), y)


@model("unet3d")
def _():
    return Unet3d(32, 5), (rand(1, 1, 96, 96, 96), ids(1, 96, 96, 96, high=2)), {}


def timm_model(name, batch, size=224):
    def build():
        import timm
        return timm.create_model(name, pretrained=False), (rand(batch, 3, size, size),), {}
    return build


for name, net, batch in [("resnet50", "resnet50", 32), ("vit_b16", "vit_base_patch16_224", 32),
                         ("convnext_t", "convnext_tiny", 32), ("efficientnet_b0",) * 2 + (32,),
                         ("swin_t", "swin_tiny_patch4_window7_224", 32),
                         ("densenet121", "densenet121", 32), ("mixer_b16", "mixer_b16_224", 32),
                         ("maxvit_t", "maxvit_tiny_rw_224", 16)]:
    model(name)(timm_model(net, batch))


def language(name, config, kind=None, batch=4, length=1024, labels=True, **sizes):
    """A language model of transformers, from the name of its configuration."""
    def build():
        import transformers
        c = getattr(transformers, config)(**sizes)
        c.use_cache = False
        net = getattr(transformers, kind or config.replace("Config", "ForCausalLM"))(c)
        x = ids(batch, length)
        return net, (), dict(input_ids=x, labels=x, use_cache=False, return_dict=False)
    model(name, torch.bfloat16)(build)


language("gpt2", "GPT2Config", "GPT2LMHeadModel", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
language("gpt2_xl", "GPT2Config", "GPT2LMHeadModel", n_layer=48, n_head=25, n_embd=1600,
         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
language("llama_1b", "LlamaConfig", vocab_size=32000, hidden_size=2048, intermediate_size=8192,
         num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
language("llama_8b", "LlamaConfig", vocab_size=128256, hidden_size=4096, intermediate_size=14336,
         num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, batch=1, length=4096)
language("qwen3_moe", "Qwen3MoeConfig", vocab_size=32000, hidden_size=1024, num_hidden_layers=12,
         num_attention_heads=16, num_key_value_heads=4, head_dim=64, num_experts=16,
         num_experts_per_tok=4, moe_intermediate_size=512)
language("mixtral", "MixtralConfig", vocab_size=32000, hidden_size=1024, intermediate_size=2048,
         num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, num_local_experts=8)
language("mamba2", "Mamba2Config", vocab_size=32000, hidden_size=768, num_hidden_layers=24,
         num_heads=24, head_dim=64, state_size=64, n_groups=1)
language("mamba", "MambaConfig", vocab_size=32000, hidden_size=512, num_hidden_layers=6,
         state_size=16, length=64)
language("gemma2", "Gemma2Config", vocab_size=32000, hidden_size=1024, intermediate_size=4096,
         num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=4, head_dim=128)
language("t5_base", "T5Config", "T5ForConditionalGeneration", d_model=768, d_ff=3072, num_layers=12,
         num_heads=12, dropout_rate=0.0, decoder_start_token_id=0, length=512)


@model("bert_base", torch.bfloat16)
def _():
    import transformers
    c = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    x = ids(16, 512)
    return transformers.BertForMaskedLM(c), (), dict(input_ids=x, labels=x, return_dict=False)


@model("whisper_s", torch.bfloat16)
def _():
    import transformers
    c = transformers.WhisperConfig(d_model=768, encoder_layers=12, decoder_layers=12,
                                   encoder_attention_heads=12, decoder_attention_heads=12,
                                   encoder_ffn_dim=3072, decoder_ffn_dim=3072, dropout=0.0)
    return (transformers.WhisperForConditionalGeneration(c), (),
            dict(input_features=rand(4, 80, 3000), labels=ids(4, 256), use_cache=False,
                 return_dict=False))


@model("clip_b16", torch.bfloat16)
def _():
    import transformers
    c = transformers.CLIPConfig(vision_config=dict(patch_size=16))
    return (transformers.CLIPModel(c), (),
            dict(input_ids=ids(32, 77), pixel_values=rand(32, 3, 224, 224), return_loss=True,
                 return_dict=False))


@model("wan_1b", torch.bfloat16)
def _():
    import diffusers
    net = diffusers.WanTransformer3DModel(num_attention_heads=12, attention_head_dim=128,
                                          ffn_dim=8960, num_layers=30)
    return net, (), dict(hidden_states=rand(1, 16, 13, 60, 104), timestep=ids(1),
                         encoder_hidden_states=rand(1, 512, 4096), return_dict=False)


@model("cogvideox_2b", torch.bfloat16)
def _():
    import diffusers
    net = diffusers.CogVideoXTransformer3DModel(num_attention_heads=30, attention_head_dim=64,
                                                num_layers=30)
    return net, (), dict(hidden_states=rand(1, 13, 16, 60, 90), timestep=ids(1),
                         encoder_hidden_states=rand(1, 226, 4096), return_dict=False)


@model("dit_xl2", torch.bfloat16)
def _():
    import diffusers
    net = diffusers.DiTTransformer2DModel(num_attention_heads=16, attention_head_dim=72,
                                          in_channels=4, out_channels=8, num_layers=28,
                                          sample_size=32, num_embeds_ada_norm=1000)
    return net, (rand(16, 4, 32, 32),), dict(timestep=ids(16), class_labels=ids(16),
                                             return_dict=False)


@model("flux_4", torch.bfloat16)
def _():
    import diffusers
    net = diffusers.FluxTransformer2DModel(num_layers=4, num_single_layers=8, guidance_embeds=True)
    return net, (), dict(hidden_states=rand(1, 1024, 64), encoder_hidden_states=rand(1, 256, 4096),
                         pooled_projections=rand(1, 768), timestep=rand(1), guidance=rand(1),
                         img_ids=rand(1024, 3), txt_ids=rand(256, 3), return_dict=False)


@model("sd15_unet", torch.bfloat16)
def _():
    import diffusers
    net = diffusers.UNet2DConditionModel(cross_attention_dim=768)
    return net, (rand(4, 4, 64, 64), ids(4), rand(4, 77, 768)), dict(return_dict=False)


@model("sdxl_unet", torch.bfloat16)
def _():
    import diffusers
    net = diffusers.UNet2DConditionModel(
        block_out_channels=(320, 640, 1280), cross_attention_dim=2048,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(5, 10, 20), transformer_layers_per_block=(1, 2, 10),
        use_linear_projection=True)
    return net, (rand(2, 4, 128, 128), ids(2), rand(2, 77, 2048)), dict(return_dict=False)


@model("vae_kl")
def _():
    import diffusers
    net = diffusers.AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4)
    return net, (rand(1, 3, 256, 256),), dict(return_dict=False)


# ---- the joint graph ---------------------------------------------------------------------------


@contextlib.contextmanager
def without_values():
    """Weights are allocated, but nothing is written to them: their pages are never backed."""
    init = torch.nn.init
    names = [n for n in dir(init) if n.endswith("_") and not n.startswith("_")]
    before = {n: getattr(init, n) for n in names}
    for n in names:
        setattr(init, n, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for n in names:
            setattr(init, n, before[n])


class Joint:
    """The joint graph of a model before it is partitioned, without equal subexpressions."""

    def __init__(self, name):
        build, dtype = MODELS[name]
        torch.manual_seed(0)
        torch.set_default_dtype(dtype)
        with without_values():
            net, args, kwargs = build()
        options = {k: v for k, v in kwargs.items() if isinstance(v, bool)}
        kwargs = {k: v for k, v in kwargs.items() if k not in options}
        net = Loss(net, options).eval()  # no dropout
        for part in net.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.train()
        torch.compiler._is_compiling_flag = True  # no branch of a model depends on values
        with contextlib.ExitStack() as stack:
            joint = aot_export_joint_with_descriptors(stack, net, args, kwargs)
        torch.compiler._is_compiling_flag = False
        self.name, self.module = name, joint.graph_module
        descs = self.module.graph.output_node().meta["desc"]
        self.n_forward = sum(d is not None and "Grad" not in type(d).__name__ for d in descs)
        self.grad_of = [getattr(d, "grad_of", None) for d in descs[self.n_forward:]]
        self.merge_equal()

    def merge_equal(self):
        """As the partitioner begins; it then finds nothing to merge."""
        graph = self.module.graph
        graph.eliminate_dead_code()
        backward = set()
        stack = [n for n in graph.output_node().args[0][self.n_forward:] if n is not None]
        while stack:
            node = stack.pop()
            if node not in backward:
                backward.add(node)
                stack.extend(node.all_input_nodes)
        desc = graph.output_node().meta["desc"]
        self.module.graph = fx_graph_cse(graph, extra_node_key=lambda n: n in backward)
        self.module.graph.output_node().meta["desc"] = desc
        self.module.recompile()

    def outputs(self):
        """Nodes that leave the forward pass, and the gradients."""
        out = self.module.graph.output_node().args[0]
        return out[:self.n_forward], out[self.n_forward:]

    def forward_nodes(self):
        """What the results of the forward pass depend on."""
        seen, stack = set(), [n for n in self.outputs()[0] if n is not None]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(node.all_input_nodes)
        return seen


# ---- costs -------------------------------------------------------------------------------------


def values(node):
    """The tensors of a node, in a list."""
    val = node.meta.get("val")
    return list(val) if isinstance(val, (list, tuple)) else [val]


def tensor_bytes(t):
    """Bytes of a tensor; no more than those of its storage, which an expanded tensor repeats."""
    return min(t.numel() * t.element_size(), t.untyped_storage().nbytes())


def storage_bytes(t):
    return max(ALIGN, -(-t.untyped_storage().nbytes() // ALIGN) * ALIGN)


def grouped_flops(node):
    """A product of groups of rows, [m, k] with [groups, k, n], or of columns: 2 m k n."""
    a, b = (n.meta["val"] for n in node.all_input_nodes[:2])
    out = values(node)[0]
    return 2 * a.shape[-2] * a.shape[-1] * (b.shape[-1] if out.dim() == 2 else out.shape[-1])


def product_flops(node):
    """The arithmetic of a matrix product, convolution or attention; of others 0."""
    packet = getattr(node.target, "_overloadpacket", None)
    if "grouped_mm" in str(node.target):
        return grouped_flops(node)
    if packet not in flop_registry:
        return 0
    value = lambda n: n.meta["val"]
    args = torch.fx.node.map_arg(node.args, value)
    kwargs = torch.fx.node.map_arg(node.kwargs, value)
    return int(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))


def moved_bytes(node):
    tensors = [n.meta["val"] for n in node.all_input_nodes if torch.is_tensor(n.meta.get("val"))]
    return sum(map(tensor_bytes, tensors + [t for t in values(node) if torch.is_tensor(t)]))


def cost_key(node):
    """Equal for ops that take the same time."""
    text = [str(node.target)]
    for t in [n.meta.get("val") for n in node.all_input_nodes] + values(node):
        text.append(f"{t.dtype}{list(t.shape)}{t.stride()}" if torch.is_tensor(t) else "-")
    return hashlib.sha256(" ".join(text).encode()).hexdigest()[:16]


# ---- conversion --------------------------------------------------------------------------------


class Op:
    def __init__(self, phase, name, reads, writes, flops=0, moved=0, key="0" * 16, rerun=False):
        self.phase, self.name, self.reads, self.writes = phase, name, reads, writes
        self.flops, self.moved, self.key, self.rerun = flops, moved, key, rerun

    def seconds(self, products_only):
        if products_only:
            return self.flops / FLOPS
        return LAUNCH + max(self.flops / FLOPS, self.moved / BYTES)


def is_view(node):
    """Whether the result shares the storage of the first operand."""
    if str(node.target) == "aten._unsafe_view.default":
        return True
    schema = getattr(node.target, "_schema", None)
    if not schema or not schema.returns:
        return False
    info = schema.returns[0].alias_info
    return info is not None and not info.is_write


class Steps:
    """Storages and ops of a joint graph, as graph files have them."""

    def __init__(self, joint):
        self.storages, self.ops = [], []  # [kind, bytes, words, name]
        self.of = {}                      # a node, or (node, index): the number of its storage
        self.node_op = {}                 # the name of a node: the op it belongs to
        graph = joint.module.graph
        forward = joint.forward_nodes()
        grads = [n for n in joint.outputs()[1] if n is not None]
        self.add_inputs(graph)
        for is_forward in (True, False):
            for node in graph.nodes:
                if node.op == "placeholder" and "tangents" in node.name and not is_forward:
                    self.add_tangent(node)
                if node.op in ("call_function", "get_attr") and (node in forward) == is_forward:
                    self.add_node(node, is_forward)
        for node in grads:
            s = self.storages[self.of[node]]
            s[0] = "gradient" if s[0] == "temporary" else s[0]
        self.n_body = len(self.ops)
        self.add_updates(joint)

    def phase_of(self, name):
        """The phase of the op of a node, by the name of the node."""
        return self.ops[self.node_op[name]].phase if name in self.node_op else None

    def add_storage(self, kind, t, name, words=""):
        size = storage_bytes(t) if torch.is_tensor(t) else ALIGN
        self.storages.append([kind, size, words, name])
        return len(self.storages) - 1

    def add_inputs(self, graph):
        """Parameters and buffers are persistent; a batch is fed."""
        fed = []
        for node in graph.nodes:
            if node.op != "placeholder" or "tangents" in node.name:
                continue
            desc = node.meta.get("desc")
            name = getattr(desc, "target", node.name)
            if hasattr(desc, "target"):
                self.of[node] = self.add_storage("parameter", node.meta["val"], name, " persistent")
            else:
                self.of[node] = self.add_storage("input", node.meta["val"], name)
                fed.append(node)
        for node in fed:
            self.ops.append(Op("forward", f"feed of {node.name}", [], [self.of[node]],
                               moved=tensor_bytes(node.meta["val"]), rerun=True))

    def add_tangent(self, node):
        self.of[node] = self.add_storage("temporary", node.meta["val"], "gradient of the loss")
        self.ops.append(Op("backward", "gradient of the loss", [], [self.of[node]]))

    def add_node(self, node, is_forward):
        if node.target is operator.getitem:
            self.of[node] = self.of[(node.args[0], node.args[1])]
            return
        if node.op == "get_attr":  # a constant of the model
            self.of[node] = self.add_storage("parameter", node.meta["val"], node.name,
                                             " persistent")
            return
        tensors = values(node)
        if is_view(node):
            base = self.of[node.all_input_nodes[0]]
            self.of[node] = base
            self.of.update({(node, i): base for i in range(len(tensors))})
            return
        kind = "activation" if is_forward else "temporary"
        writes = []
        for i, t in enumerate(tensors):
            if torch.is_tensor(t):
                writes.append(self.add_storage(kind, t, node.name))
                self.of[(node, i)] = writes[-1]
        self.of[node] = writes[0]
        reads = list(dict.fromkeys(self.of[n] for n in node.all_input_nodes))
        self.node_op[node.name] = len(self.ops)
        self.ops.append(Op("forward" if is_forward else "backward", f"{node.name} ({node.target})",
                           reads, writes, product_flops(node), moved_bytes(node), cost_key(node),
                           is_forward))

    def add_updates(self, joint):
        """Buffers get the values that the forward pass returned, parameters a step of SGD."""
        results, grads = joint.outputs()
        descs = joint.module.graph.output_node().meta["desc"]
        named = {s[3]: i for i, s in enumerate(self.storages) if "persistent" in s[2]}
        for node, desc in zip(results, descs):
            source = getattr(desc, "mutated_input", None)
            if source is not None:
                self.update("set", named[source.target], self.of[node], copied=True)
        for node, source in zip(grads, joint.grad_of):
            if node is not None:
                self.update("sgd", named[source.target], self.of[node])

    def update(self, what, to, source, copied=False):
        name = self.storages[to][3]
        moved = self.storages[to][1] * (2 if copied else 3)
        self.ops.append(Op("update", f"{what} {name}", [source] if copied else [to, source], [to],
                           moved=moved))

    def write(self, path, products_only=False):
        refs = sum(len(o.reads) + len(o.writes) for o in self.ops)
        with open(path + ".part", "w") as f:
            f.write(f"libckpt-graph 1\nmicro 1\nstorages {len(self.storages)}\n"
                    f"ops {len(self.ops)}\nbody {self.n_body}\nrefs {refs}\n")
            for kind, size, words, name in self.storages:
                f.write(f"storage {kind} {size}{words}  # {name}\n")
            for i, o in enumerate(self.ops):
                lists = ("reads", *o.reads, "writes", *o.writes)
                f.write(f"op {o.phase} {i} 0 {o.flops} {o.moved} {o.key} "
                        f"{o.seconds(products_only)!r}{' rerun' if o.rerun else ''} "
                        f"{' '.join(map(str, lists))}  # {o.name}\n")
            f.write("end\n")
        os.replace(path + ".part", path)


def main():
    names = sys.argv[2:] or list(MODELS)
    if len(sys.argv) < 2 or sys.argv[1] == "--list":
        print("\n".join(MODELS))
        return 0
    out = sys.argv[1]
    os.makedirs(os.path.join(out, "products"), exist_ok=True)
    failed = 0
    for name in names:
        try:
            steps = Steps(Joint(name))
        except Exception as e:  # a model of another version of its package
            print(f"{name}: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)
            failed += 1
            continue
        steps.write(os.path.join(out, f"{name}.graph"))
        steps.write(os.path.join(out, "products", f"{name}.graph"), products_only=True)
        print(f"{name}: {len(steps.ops)} ops, {len(steps.storages)} storages", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
