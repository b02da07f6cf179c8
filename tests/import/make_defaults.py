#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes runtime/import/defaults_table.h: the defaults of the schemas of the ops that the import knows.

    make_defaults.py [SOURCE]

Run by hand in the source tree with torch installed, after an op was added to a table of
runtime/import/ops_*.c.  The version of torch is written into the table.
"""
import glob
import os
import re
import sys

import torch

ROOT = sys.argv[1] if len(sys.argv) > 1 else "."


def names():
    """The ops of the tables, as their macros write them."""
    found = set()
    for path in sorted(glob.glob(os.path.join(ROOT, "runtime/import/ops_*.c"))):
        text = open(path).read()
        found.update(re.findall(r'"(aten\.[\w.]+)"', text))
        found.update("aten." + n for n in re.findall(r'(?:OP|VIEW|MAY_COPY|DROPOUT)\(\s*"([\w.]+)"', text))
        for macro, suffixes in (("UNARY_OPS", ("default",)), ("BINARY_OPS", ("default", "Tensor", "Scalar"))):
            body = re.search(r"#define %s\(X\)((?:.*\\\n)*.*)" % macro, text)
            for op in re.findall(r"X\((\w+),", body.group(1)) if body else []:
                found.update(f"aten.{op}.{s}" for s in suffixes)
    return sorted(found)


def schema_of(name):
    """An op that has only a form in place has the schema of that."""
    _, op, overload = name.split(".")
    for candidate in (op, op + "_"):
        packet = getattr(torch.ops.aten, candidate, None)
        if packet is not None and overload in packet.overloads():
            return getattr(packet, overload)._schema
    return None


def value_of(value):
    """The members of a row: the kind, a number, a text."""
    if isinstance(value, (list, tuple)):
        if len(set(value)) > 1:
            raise ValueError(value)
        value = value[0] if value else None
    if value is None:
        return "ARG_NONE, 0, NULL"
    if isinstance(value, bool):
        return f"ARG_BOOL, {int(value)}, NULL"
    if isinstance(value, int):
        return f"ARG_INT, {value}, NULL" if abs(value) < 2**53 else f"ARG_INT, {float(value)}, NULL"
    if isinstance(value, float):
        return f"ARG_FLOAT, {value!r}, NULL"
    return f'ARG_STRING, 0, "{value}"'


def main():
    lines, missing = [], []
    for name in names():
        schema = schema_of(name)
        if schema is None:
            missing.append(name)
            continue
        for a in schema.arguments:
            optional = str(a.type).startswith("Optional")
            if a.has_default_value() or optional:
                value = a.default_value if a.has_default_value() else None
                if isinstance(value, list) and len(set(value)) > 1:
                    continue  # the op knows these itself
                lines.append(f'{{"{name}", "{a.name}", {value_of(value)}}},')
    with open(os.path.join(ROOT, "runtime/import/defaults_table.h"), "w") as f:
        f.write("/* SPDX-License-Identifier: Apache-2.0 */\n"
                f"/* Written by tests/import/make_defaults.py with torch {torch.__version__}. */\n")
        f.write("\n".join(lines) + "\n")
    print(f"{len(lines)} defaults; torch has no {', '.join(missing) or 'other op'}")


main()
