#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations whose lengths are those of a mix: log-normal, with a median of a sixteenth of a row, as in bench_balance.c.

    python3 mix.py LENGTH N FILE      N conversations of one answer, a byte a token, of at most LENGTH tokens

A fifth of a conversation is the question. The mean is 1.7 times the median where nothing is cut.
"""

import json
import math
import random
import sys

MARKS = 80  # at most so many tokens of a conversation are the template's


def lengths(length, n, seed=0):
    draw = random.Random(seed)
    drawn = (round(length / 16 * math.exp(1.2 * draw.gauss(0, 1))) for _ in range(n))
    return [max(16, min(length - MARKS, tokens)) for tokens in drawn]


def main():
    length, n, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    draw = random.Random(1)
    letters = lambda count: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=count - 2)).join("xx")
    with open(path, "w") as f:
        for tokens in lengths(length, n):
            asks = max(4, tokens // 5)
            turns = [("user", letters(asks)), ("assistant", letters(tokens - asks))]
            print(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}), file=f)


if __name__ == "__main__":
    main()
