#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints bucket_reference.h: how numpy and torch assign and order samples, as Open-Sora 1.2 does.

    pip install torch numpy
    python3 make_bucket_reference.py >bucket_reference.h

Sizes are drawn here by a generator of their own and stand in the file, too.
"""

import numpy as np
import torch

LINES = [.38, .43, .48, .50, .53, .54, .56, .62, .67, .75, 1, 1.33, 1.5, 1.78, 1.89, 2, 2.08]
SQUARE = [.25, .26, .27, .28, .32, .33, .35, .40, .42, .48, .50, .52, .57, .60, .68, .72, .78, .82,
          .88, .94, 1, 1.07, 1.13, 1.21, 1.29, 1.38, 1.46, 1.67, 1.75, 2, 2.09, 2.4, 2.5, 2.89, 3,
          3.11, 3.62, 3.75, 3.88, 4]
PIXELS = {"144p": 36864, "256": 65536, "240p": 102240, "480p": 409920}
# size: frames: (keep or (keep, look), batch), the sizes and the frames from many to few
TABLE = {
    "480p": {1: (.5, 3), 51: (.3, 1)},
    "240p": {1: (.3, 4), 51: (.4, 2), 102: ((.4, .33), 1)},
    "256": {1: (.4, 4), 51: (.5, 3), 102: ((.5, .33), 2), 204: (0, None)},
    "144p": {1: (1, 5), 51: (1, 4), 102: ((1, .33), 2), 204: ((1, .1), 1)},
}
SEED, EPOCH, SAMPLES, INTERVAL = 1024, 3, 240, 2


def table():
    order = sorted(TABLE, key=lambda size: PIXELS[size], reverse=True)
    return [(size, sorted(TABLE[size].items(), reverse=True)) for size in order]


def labels(size):
    return LINES if size.endswith("p") else SQUARE


def assign(frames, height, width, seed):
    number = -1
    numbers = {}
    for size, row in table():
        for count, _ in row:
            number += 1
            numbers[size, count] = number
    for size, row in table():
        if height * width < PIXELS[size] * .8:
            continue
        for count, (p, _) in row:
            rng = np.random.default_rng(seed + numbers[size, count])
            if frames == 1:
                if count == 1 and rng.random() < p:
                    break
                continue
            if isinstance(p, tuple) and rng.random() > p[1]:
                continue
            if count == 1 or frames <= count * INTERVAL:
                continue
            keep = p[0] if isinstance(p, tuple) else p
            count = count if keep >= 1 or rng.random() < keep else 0
            break
        else:
            continue
        if count:
            near = min(range(len(labels(size))),
                       key=lambda i: abs(labels(size)[i] - height / width))
            return size, count, round(100 * labels(size)[near])
    return None


def samples():
    rng = np.random.default_rng(7)
    for _ in range(SAMPLES):
        frames = int(rng.choice([1, 60, 102, 103, 120, 204, 205, 300, 500]))
        yield frames, int(rng.integers(100, 900)), int(rng.integers(100, 900))


def main():
    total = sum(len(labels(size)) * len(row) for size, row in table())
    lists = {}
    print("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by make_bucket_reference.py. */")
    print("/* seed of numpy, its first two numbers */")
    print("static const struct {\n    uint64_t seed;\n    double first, second;\n} numbers[] = {")
    for seed in (0, 1, 1027, 2**32 - 1, 2**32, 2**40 + 12345, 2**63 - 1):
        rng = np.random.default_rng(seed)
        print("    {%dU, %s, %s}," % (seed, rng.random().hex(), rng.random().hex()))
    print("};\n\n/* of torch: two permutations of one generator each */")
    for n, seed in ((7, 0), (700, 1027), (5, 2**32 + 5)):
        g = torch.Generator()
        g.manual_seed(seed)
        for k in (1, 2):
            order = torch.randperm(n, generator=g).tolist()
            print("static const int64_t permutation_%d_%d[] = {%s};" %
                  (n, k, ", ".join(map(str, order))))
    print("\n/* frames, height, width; then size, frames, label of the bucket, 0: none */")
    print("static const int64_t samples[][3] = {")
    found = []
    for i, (frames, height, width) in enumerate(samples()):
        print("    {%d, %d, %d}," % (frames, height, width))
        found.append(assign(frames, height, width, SEED + EPOCH + i * total))
    print("};\n\nstatic const struct {\n    const char *size;\n    int64_t frames;\n    int label;\n"
          "} assigned[] = {")
    for i, b in enumerate(found):
        print("    {\"%s\", %d, %d}," % (b or ("", 0, 0)))
        if b:
            lists.setdefault(b, []).append(i)
    g = torch.Generator()
    g.manual_seed(SEED + EPOCH)
    order = []
    for b, ids in lists.items():
        batch = TABLE[b[0]][b[1]][1]
        ids = ids[:len(ids) - len(ids) % batch]
        lists[b] = [ids[i] for i in torch.randperm(len(ids), generator=g).tolist()]
        order += [b] * (len(ids) // batch)
    order = [order[i] for i in torch.randperm(len(order), generator=g).tolist()]
    print("};\n\n/* the batches of one rank: how many samples, which */")
    print("static const int64_t batches[][6] = {")
    for b in order:
        batch = TABLE[b[0]][b[1]][1]
        ids, lists[b] = lists[b][:batch], lists[b][batch:]
        print("    {%s}," % ", ".join(map(str, [batch] + ids)))
    print("};")


main()
