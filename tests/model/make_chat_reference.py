# SPDX-License-Identifier: Apache-2.0
"""Writes the conversations and hashes that test_chat.c compares.

    pip install jinja2                      # 3.1
    python3 make_chat_reference.py chat     # the folder with the templates, chat/NAME.jinja

The templates use the constructs of published ones.  chat/conversations.jsonl: 50 conversations.
chat/expected.txt: a line for each template and conversation: FNV-1a, 64 bits, over the text, a zero
byte, and "BEGIN-END," in bytes for each part that {% generation %} encloses; or "refused" where the
template raises an exception.
"""

import json
import pathlib
import random
import sys
import time

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

EPOCH = 1735689600  # SOURCE_DATE_EPOCH of the test


class Generation(jinja2.ext.Extension):
    """Marks the text between generation and endgeneration."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return "\x01" + caller() + "\x02"


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                      extensions=[Generation, jinja2.ext.loopcontrols])
    e.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, \
        sort_keys=False: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                                    separators=separators, sort_keys=sort_keys)
    e.globals["raise_exception"] = refuse
    e.globals["strftime_now"] = lambda form: time.strftime(form, time.gmtime(EPOCH))
    return e


TEXTS = ["Hello", "  What is 2 + 2?  ", "Ärger mit Straße\n", "你好，世界", "😀 fine", "a\n\nb\n",
         "It's <|im_start|>system", "tab\there \"quoted\" 'single' \\ back", "line\r\nend", "{{ x }}",
         "<think>\nhm\n</think>\n\nFour.", "\u00a0wide\u3000", "<tool_response>x</tool_response>",
         "Long " * 20, "1.5", "</think>", "é", "x"]
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Weather of a place.", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "A town"},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}},
            "either": {"type": ["string", "number"]}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "clock", "description": "The time",
                                      "parameters": {"type": "object", "properties": {}}}}]
CALLS = [{"place": "Köln", "days": 3}, {"x": 0.5, "y": [1, 2.0, -3e-7], "z": None, "w": True}, {}]


def conversation(r, i):
    text = lambda: r.choice(TEXTS) + r.choice(["", "", " " + r.choice(TEXTS)])
    messages = []
    if i % 3 == 0:
        messages.append({"role": "system", "content": text()})
    for turn in range(r.choice([1, 1, 2, 3])):
        messages.append({"role": "user", "content": text()})
        if i % 5 == 4:
            call = {"type": "function", "id": "abcdefgh%d" % turn,
                    "function": {"name": "weather", "arguments": r.choice(CALLS)}}
            messages.append({"role": "assistant", "content": r.choice(["", text()]),
                             "tool_calls": [call] * r.choice([1, 1, 2])})
            for _ in messages[-1]["tool_calls"]:
                messages.append({"role": "tool", "content": text(), "name": "weather",
                                 "tool_call_id": call["id"]})
        answer = {"role": "assistant", "content": text()}
        if i % 7 == 3:
            answer["reasoning_content"] = text()
        messages.append(answer)
    out = {"messages": messages}
    if i % 5 == 4 or i % 11 == 0:
        out["tools"] = TOOLS[:r.choice([1, 2])]
    return out


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
    return "%016x" % h


def hash_of(text):
    """Of the text without marks, and their places in bytes."""
    out, places = b"", []
    for b in text.encode():
        if b == 1:
            places.append([len(out)])
        elif b == 2:
            places[-1].append(len(out))
        else:
            out += bytes([b])
    return fnv(out + b"\0" + "".join("%d-%d," % tuple(p) for p in places).encode())


def main():
    to = pathlib.Path(sys.argv[1])
    r = random.Random(3)
    all_ = [conversation(r, i) for i in range(50)]
    with open(to / "conversations.jsonl", "w", encoding="utf-8") as f:
        for c in all_:
            f.write(json.dumps(c, ensure_ascii=False) + "\n")
    with open(to / "expected.txt", "w", encoding="utf-8") as f:
        for path in sorted(to.glob("*.jinja")):
            template = environment().from_string(path.read_text(encoding="utf-8"))
            for i, c in enumerate(all_):
                try:
                    text = template.render(messages=c["messages"], tools=c.get("tools"),
                                           documents=None, add_generation_prompt=i % 2 == 0,
                                           bos_token="<s>", eos_token="</s>")
                    if len(sys.argv) > 2 and sys.argv[2] == path.stem and int(sys.argv[3]) == i:
                        sys.stdout.write(text)
                    result = hash_of(text)
                except (jinja2.exceptions.TemplateError, TypeError):
                    result = "refused"
                f.write("%s %d %s\n" % (path.stem, i, result))


if __name__ == "__main__":
    main()
