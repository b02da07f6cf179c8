# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizers, texts and ids that test_tokenizer.c compares.

    pip install tokenizers sentencepiece protobuf      # 0.23, 0.2
    python3 make_tokenizers.py OUTPUT TEXT...          # TEXT: doc/design.md

Each tokenizer has the parts of a published one, and a small vocabulary trained on TEXT and on the
words below.  OUTPUT/NAME.json: its tokenizer.json.  OUTPUT/texts.txt: texts, a JSON string in each
line.  OUTPUT/NAME.ids: for each text FNV-1a over its ids as 32-bit words, low byte first, 32 bits,
eight hexadecimal digits.
"""

import io
import json
import random
import sys
import tempfile

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

WORDS = """the of and to in is that for it was on are as with they be at one have this from
Straße naïve café résumé Ärger über œuvre İstanbul ﬁne Ｆｕｌｌ １２３ ½ ① ㎏ Ⅳ ™ …
你好 世界 北京 東京 日本語 こんにちは カタカナ 한국어 안녕하세요 ประเทศไทย हिन्दी नमस्ते
العربية مرحبا שלום עולם Привет мир Ελλάδα γειά σου ქართული ትግርኛ""".split()

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\u0085", "\u00a0", "\u1680",
          "\u180e", "\u2000", "\u2003", "\u2009", "\u200a", "\u200b", "\u2028", "\u2029",
          "\u202f", "\u205f", "\u3000", "\ufeff", "\n\n", " \n ", "\t\t", "    ", "\n\n\n"]
MARKS = ["e\u0301", "a\u0308\u0323", "\u0301", "o\u0302\u0301", "n\u0303", "\u1100\u1161\u11a8",
         "q\u0323\u0307", "\u0e01\u0e33", "\u0915\u094d\u0937", "\u05e9\u05c1", "\ufb1d",
         "\u212b", "\u2126", "\uac00\u11a8", "\u0344", "ſ", "K", "İ", "ß", "ǆ", "ﷺ", "ﬃ", "㋿", "\u1df6\u0301", "\ua7f2"]
EMOJI = ["😀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩🇪🇫🇷", "👍🏽", "❤️", "☺", "1️⃣", "🧑🏿‍🚀", "\u200d", "\ufe0f"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["—", "«", "»", "、", "。", "।", "؟", "۔",
              "،", "¿", "'s", "'S", "'ll", "'LL", "'ve", "’s", "'\u017f", "...", "…", "--", "!!!"]
DIGITS = ["0", "12", "123", "1234", "1234567", "٣٤٥", "१२३", "²³", "Ⅻ", "3.14", "1,000", "0x1F",
          "１２", "½"]
CONTROL = ["\x01", "\x1b[0m", "\x7f", "\u0080", "\u00ad", "\u061c", "\u200e", "\u202e", "\u2066",
           "\ue000", "\U000f0000", "\ufffd", "\uffff", "\U0010ffff", "\x00"]
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<|begin_of_text|>", "<|im_start|>",
           "[INST]", "<bos>", "<extra_id_0>", "<extra_id_12>", "<fim_prefix>", "<mask>", "cat",
           "<0x41>", "<0x0A>", "▁", "▁the", "Ġ", "Ċ", "##ing", "<|endof", "text|>"]
PIECES = [SPACES, MARKS, EMOJI, PUNCTUATION, DIGITS, CONTROL, SPECIAL, WORDS, WORDS, SPACES]


def texts():
    """About a thousand: each piece alone, amid words, and random rows of pieces."""
    r = random.Random(7)
    all_pieces = [p for kind in PIECES[:-2] for p in kind]
    out = ["", "a", " a", "a ", " a ", "ab cd", "Hello, world! It's  fine.\n"]
    out += all_pieces
    out += ["x" + p + "y " + p + " z" + p for p in all_pieces]
    for kind in (SPACES, SPECIAL, EMOJI, MARKS):
        out += [r.choice(kind) + " " * r.randrange(3) + r.choice(SPECIAL) + r.choice(SPACES)
                + r.choice(kind) for _ in range(40)]
    while len(out) < 990:
        out.append("".join(r.choice(r.choice(PIECES)) for _ in range(r.randrange(2, 14))))
    for p, n in ((" ", 700), ("\n", 300), ("a", 600), ("1", 500), ("\u3000", 200), ("😀", 100),
                 ("e\u0301", 200), ("=-", 300), (" \n", 200), ("你", 300)):
        out.append(p * n + "b")
    return [t for t in out if "\x00" not in t]  # no program can be given one


def corpus(paths):
    lines = [line for p in paths for line in open(p, encoding="utf-8")]
    return lines[:700] + [" ".join(WORDS[i:] + WORDS[:i]) for i in range(0, len(WORDS), 3)]


def special(*names, **flags):
    return [AddedToken(n, special=True, normalized=False, **flags) for n in names]


def byte_level(lines, size, pre, tokens, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    t.add_tokens(tokens)
    return t


def fallback(lines, size, first, normalizer, pre, **model):
    """BPE of SentencePiece's kind: <unk> and others, 256 bytes, then pieces."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("▁[^▁]*"), "isolated")
    trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                           limit_alphabet=150))
    state = json.loads(trained.to_str())["model"]
    names = first + [f"<0x{b:02X}>" for b in range(256)]
    names += [n for n in sorted(state["vocab"], key=state["vocab"].get) if n not in names]
    t = Tokenizer(models.BPE(vocab={n: i for i, n in enumerate(names)},
                             merges=[tuple(m) for m in state["merges"]], unk_token="<unk>",
                             fuse_unk=True, byte_fallback=True, **model))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def unigram(lines, first, last, rules):
    """The model of SentencePiece, and its table of rules (tab-separated code points)."""
    model = io.BytesIO()
    table = tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8")
    table.write(rules)
    table.flush()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=500, model_type="unigram",
        normalization_rule_tsv=table.name, unk_id=2, bos_id=-1, eos_id=1, pad_id=0,
        minloglevel=3, hard_vocab_limit=False, num_threads=1)
    from sentencepiece import sentencepiece_model_pb2 as pb
    proto = pb.ModelProto.FromString(model.getvalue())
    names = [(n, 0.0) for n in first]
    names += [(p.piece, p.score) for p in proto.pieces if p.piece not in first]
    names += [(n, 0.0) for n in last]
    return (Tokenizer(models.Unigram(names, unk_id=first.index("<unk>"), byte_fallback=False)),
            normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))


def rules():
    """A part of NFKC, as the published table has it: wide forms, ligatures, marks, blanks."""
    import unicodedata
    codes = [chr(c) for r in ((0xc0, 0x180), (0x2460, 0x2470), (0xff01, 0xff5f), (0xfb00, 0xfb07),
                              (0xbc, 0xbf), (0x2160, 0x216c), (0x2100, 0x2130), (0x3380, 0x3390))
             for c in range(*r)]
    rows = {c: unicodedata.normalize("NFKC", c) for c in codes}
    for c in codes:
        apart = unicodedata.normalize("NFD", c)
        if len(apart) > 1 and unicodedata.normalize("NFC", apart) == c:
            rows[apart] = c
    rows.update({c: " " for c in "\t\n\r\u00a0\u1680\u2000\u2003\u2009\u200a\u2028\u3000\u200b"})
    rows.update({c: "" for c in "\u00ad\ufeff\u200e\u0001"})
    hexes = lambda s: " ".join(f"{ord(c):X}" for c in s)
    return "".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in sorted(rows.items()) if a != b)


def template(t, single, *names):
    t.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(n, t.token_to_id(n)) for n in names])


def make(lines):
    split = lambda regex: pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    all_t = {}

    t = all_t["gpt2"] = byte_level(lines, 480, gpt2, special("<|endoftext|>"))
    t.post_processor = processors.ByteLevel(trim_offsets=False)

    t = all_t["llama2"] = fallback(lines, 400, ["<unk>", "<s>", "</s>"], normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None)
    t.add_tokens(special("<unk>", "<s>", "</s>"))
    template(t, "<s> $A", "<s>")

    t = all_t["llama3"] = byte_level(lines, 480, split(LLAMA3), special(
        "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), ignore_merges=True)
    template(t, "<|begin_of_text|> $A", "<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            t.post_processor])

    all_t["qwen2"] = byte_level(lines, 480, split(QWEN2), special(
        "<|endoftext|>", "<|im_start|>", "<|im_end|>"), normalizers.NFC())

    t = all_t["mistral"] = fallback(
        lines, 400, ["<unk>", "<s>", "</s>", "[INST]"], None,
        pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False), ignore_merges=True)
    t.add_tokens(special("<unk>", "<s>", "</s>", "[INST]"))
    template(t, "<s> $A", "<s>")

    t = all_t["gemma"] = fallback(lines, 400, ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"],
                                  normalizers.Replace(" ", "▁"),
                                  pre_tokenizers.Split(" ", "merged_with_previous"))
    t.add_tokens(special("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"))
    t.add_tokens([AddedToken(n, normalized=False) for n in ("\n\n", "\n\n\n", "▁▁", "▁▁▁", "\t\t")])
    template(t, "<bos> $A", "<bos>")

    extra = [f"<extra_id_{i}>" for i in range(19, -1, -1)]
    t, table = unigram(lines, ["<pad>", "</s>", "<unk>"], extra, rules())
    all_t["t5"] = t
    t.normalizer = table
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Metaspace("▁", "always")])
    t.add_tokens(special("<pad>", "</s>", "<unk>", *extra))
    template(t, "$A </s>", "</s>")

    t, table = unigram(lines, ["<pad>", "</s>", "<unk>", "<s>"], extra[:5], rules())
    all_t["umt5"] = t
    t.normalizer = normalizers.Sequence([table, normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    t.add_tokens(special("<pad>", "</s>", "<unk>", "<s>"))
    t.add_tokens(special(*extra[:5], lstrip=True, rstrip=True))
    template(t, "$A </s>", "</s>")

    all_t["neox"] = byte_level(
        lines, 480, gpt2, special("<|endoftext|>", "<|padding|>")
        + [AddedToken(" " * n, normalized=True) for n in range(12, 1, -1)]
        + [AddedToken("cat", normalized=True, single_word=True)], normalizers.NFC())

    t = all_t["bloom"] = byte_level(lines, 480, split(BLOOM), special("<unk>", "<s>", "</s>",
                                                                     "<pad>"))

    all_t["starcoder"] = byte_level(
        lines, 480, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        special("<|endoftext|>", "<fim_prefix>") + special("<mask>", lstrip=True))

    all_t["deepseek"] = byte_level(lines, 440, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        special("<|endoftext|>"))

    # Parts that those above do not have.
    t = all_t["other"] = byte_level(
        lines, 440, pre_tokenizers.Sequence([
            pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)]),
        special("<s>", "</s>"),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()]))
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")),
                                                    ("<s>", t.token_to_id("<s>")))

    all_t["bert"] = wordpiece(lines, True)
    all_t["bertcased"] = wordpiece(lines, False)
    return all_t


def wordpiece(lines, lower):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=None)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=700, limit_alphabet=200, show_progress=False, special_tokens=names))
    template(t, "[CLS] $A [SEP]", "[CLS]", "[SEP]")
    return t


def fnv(ids):
    h = 0x811c9dc5
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = (h ^ b) * 0x01000193 & 0xffffffff
    return h


def main():
    out, lines = sys.argv[1], corpus(sys.argv[2:])
    all_texts = texts()
    with open(f"{out}/texts.txt", "w") as f:
        f.writelines(json.dumps(t) + "\n" for t in all_texts)
    for name, t in make(lines).items():
        with open(f"{out}/{name}.json", "w", encoding="utf-8") as f:
            json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        t = Tokenizer.from_file(f"{out}/{name}.json")
        with open(f"{out}/{name}.ids", "w") as f:
            hashes = [f"{fnv(t.encode(text).ids):08x}" for text in all_texts]
            f.writelines(" ".join(hashes[i:i + 10]) + "\n" for i in range(0, len(hashes), 10))


if __name__ == "__main__":
    main()
