#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of BERT pretraining by PyTorch and transformers, compiled: random weights, bf16 with fp32 masters, fused AdamW, clipping.

    pip install torch transformers numpy
    python3 peer_bert.py --model bert-base --batch 64 --length 512 --head masked --next-sentence

--head all is the class of transformers as it is, which computes the scores of all tokens; masked computes those of the tokens to
predict, as lm-train does. --data FILE draws lengths from documents that [SEP] divides in a file of lm-train; else no sample is padded.
peer.py says what is printed.
"""

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

import peer

SEP, MASK, HEADER = 102, 103, 1024
SIZES = {"bert-base": (768, 12, 12, 3072), "bert-large": (1024, 24, 16, 4096), "tiny": (64, 2, 2, 128)}


def read_options():
    p = peer.options(__doc__.split("\n")[0])
    p.add_argument("--model", default="bert-base", choices=SIZES)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--head", default="all", choices=["all", "masked"])
    p.add_argument("--next-sentence", action="store_true")
    p.add_argument("--data")
    return p.parse_args()


def document_lengths(path, room):
    """Tokens of the pieces that documents are cut to."""
    token = np.fromfile(path, np.uint16, offset=HEADER)
    ends = np.flatnonzero(token == SEP)
    sizes = np.diff(np.concatenate([[-1], ends])) - 1
    return np.concatenate([[min(room, n - at) for at in range(0, n, room)] for n in sizes if n > 0])


class Pretraining(torch.nn.Module):
    """The model with its loss; rows: the numbers of the tokens to predict, or None for all."""

    def __init__(self, model, pairs):
        super().__init__()
        self.model, self.pairs = model, pairs

    def forward(self, ids, segments, seen, rows, labels, neighbours):
        if rows is None:
            more = {"next_sentence_label": neighbours} if self.pairs else {}
            return self.model(input_ids=ids, token_type_ids=segments, attention_mask=seen, labels=labels, **more).loss
        out = self.model.bert(input_ids=ids, token_type_ids=segments, attention_mask=seen)
        picked = out.last_hidden_state.reshape(-1, out.last_hidden_state.shape[-1])[rows]
        head = self.model.cls.predictions(picked)
        loss = torch.nn.functional.cross_entropy(head.float(), labels.reshape(-1)[rows])
        if self.pairs:
            loss = loss + torch.nn.functional.cross_entropy(self.model.cls.seq_relationship(out.pooler_output).float(), neighbours)
        return loss


def make_batch(o, lengths, generator):
    room = o.length - 2 - o.next_sentence
    n = generator.choice(lengths, o.batch) if lengths is not None else np.full(o.batch, room)
    seen = torch.zeros(o.batch, o.length, dtype=torch.long)
    labels = torch.full((o.batch, o.length), -100)
    ids = torch.from_numpy(generator.integers(MASK + 1, 30522, (o.batch, o.length)))
    rows = np.zeros((o.batch, max(1, round(0.15 * room))), np.int64)
    for b, k in enumerate(n):
        seen[b, : k + 2 + o.next_sentence] = 1
        at = 1 + generator.permutation(k)[: max(1, round(0.15 * k))]
        labels[b, at] = ids[b, at]
        ids[b, at] = MASK
        rows[b, : len(at)] = b * o.length + at
        rows[b, len(at):] = b * o.length  # without a target, so that the number of rows is fixed
    on = lambda x: x.to(o.device)
    segments = torch.arange(o.length).expand(o.batch, -1) > o.length // 2
    return [on(ids), on(segments.long() * o.next_sentence), on(seen) if lengths is not None else None,
            on(torch.from_numpy(rows.reshape(-1))) if o.head == "masked" else None, on(labels),
            on(torch.from_numpy(generator.integers(0, 2, o.batch)))]


def main():
    o = read_options()
    torch.manual_seed(0)
    width, layers, heads, mlp = SIZES[o.model]
    config = BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=mlp,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
    kind = BertForPreTraining if o.next_sentence else BertForMaskedLM
    model = Pretraining(kind(config).to(o.device, torch.bfloat16).train(), o.next_sentence)
    generator = np.random.default_rng(0)
    lengths = document_lengths(o.data, o.length - 2 - o.next_sentence) if o.data else None
    peer.run(o, model, lambda: make_batch(o, lengths, generator), model if o.eager else torch.compile(model), 1e-4, 0.01)


if __name__ == "__main__":
    main()
