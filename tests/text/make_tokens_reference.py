#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference files of the tokenizer of prompts.

    pip install sentencepiece
    python3 make_tokens_reference.py [DIRECTORY]

writes DIRECTORY/tokenizer/spiece.model, a small unigram model with the special tokens of T5, made of
a text that this script writes, and DIRECTORY/tokens.txt: a line with tokens for each prompt of
PROMPTS, as SentencePiece's own binding gives them, </s> added once.  A prompt with special tokens
in it is cut there, and what is between is encoded by itself, as Hugging Face's slow T5Tokenizer does.
"""

import io
import json
import pathlib
import re
import sys
import tempfile

import sentencepiece

SUBJECTS = ["a rabbit", "the old fisherman", "a red car", "two children", "a dog", "the sun", "a bird",
            "a woman in a blue dress", "the camera", "a train", "snow", "an astronaut"]
VERBS = ["walks across", "looks at", "runs through", "flies over", "waits beside", "slowly passes",
         "jumps over", "turns towards", "moves along", "rises above"]
PLACES = ["a green meadow", "the mountains", "a busy street at night", "the sea", "a wooden bridge",
          "a forest in autumn", "the river", "an empty room", "tall buildings", "a field of flowers"]
ENDS = [".", ", with soft light.", ", aesthetic score: 6.5.", ", motion score: 5.0.",
        ", camera motion: pan left.", ", in slow motion.", ", 4k, cinematic."]

PROMPTS = [
    "", " ", "a", "A rabbit walks across a green meadow.",
    "the old fisherman looks at the sea, aesthetic score: 6.5.",
    "  two   spaces\tand a tab \n and a line  ",
    "caf\u00e9 \u2014 na\u00efve \u00fcber", "\uff11\uff12\uff13 \ufb01ne", "\u4f60\u597d, \u4e16\u754c",
    "\U0001f430 \U0001f468\u200d\U0001f680", "zero\u200bwidth", "x" * 300,
    "</s>", "a dog</s>", "a dog</s> runs", "<pad> a <unk> b", "<extra_id_0> sea <extra_id_99>.",
    "<extra_id_7><extra_id_07> <extra_id_100>", "a < b </S> <pad", "<extra_id_",
    "The sun rises above the mountains. " * 30,
]


def corpus():
    for i in range(12 * 10 * 10):
        yield (f"{SUBJECTS[i % 12]} {VERBS[i // 12 % 10]} {PLACES[i // 120]}{ENDS[i % 7]}")
    for i in range(100):
        yield f"The number is {i * 37 % 1000}: {SUBJECTS[i % 12].title()}; {ENDS[i % 7]}"


# A few of the rules of nmt_nfkc, by which the real model normalises; all of them take 240 KB.
RULES = {"\t": " ", "\n": " ", "\u200b": " ", "\ufb01": "fi", "\u2014": "-",
         **{chr(0xff10 + i): str(i) for i in range(10)}}


def train(path):
    model, rules = io.BytesIO(), tempfile.NamedTemporaryFile("w", suffix=".tsv")
    for before, after in RULES.items():
        code = [" ".join(f"{ord(c):X}" for c in x) for x in (before, after)]
        rules.write("\t".join(code) + "\n")
    rules.flush()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=model, model_type="unigram", vocab_size=180,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_tsv=rules.name,
        character_coverage=1.0, minloglevel=2, num_threads=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.getvalue())


def special(processor, name):
    sentinel = re.fullmatch(r"<extra_id_(\d+)>", name)
    return processor.get_piece_size() + 99 - int(sentinel[1]) if sentinel else \
        processor.piece_to_id(name)


def encode(processor, text):
    ids = []
    for part in re.split(r"(</s>|<pad>|<unk>|<extra_id_(?:\d|[1-9]\d)>)", text):
        if re.fullmatch(r"</s>|<pad>|<unk>|<extra_id_\d+>", part) and part != "<extra_id_07>":
            ids.append(special(processor, part))
        else:
            ids += processor.encode(part)
    return ids if ids and ids[-1] == 1 else ids + [1]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    model = root / "tokenizer" / "spiece.model"
    train(model)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    with open(root / "tokens.txt", "w") as f:
        for text in PROMPTS:
            ids = encode(processor, text)
            f.write(f"{json.dumps(text)}\t{' '.join(map(str, ids))}\n")
    print(processor.get_piece_size(), "pieces,", model.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
