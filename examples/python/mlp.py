#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program of libckpt's README in Python, by cffi:

    python3 bindings.py python >ckpt_cffi.py
    python3 mlp.py --vram 4M"""
import sys
from ckpt_cffi import check, ffi, init, init_of, lib, shape, string

BATCH, STEPS = 64, 100
F32, I32 = lib.CKPT_F32, lib.CKPT_I32
model = {}


@ffi.callback("ckpt_tensor(ckpt_tape *, int64_t, void *)")
def record(t, batch, user):
    x = lib.ckpt_input(t, b"x", F32, 2, shape(batch, 784))
    label = lib.ckpt_input(t, b"label", I32, 1, shape(batch))
    h = lib.ckpt_gelu_tanh(t, lib.ckpt_linear(t, x, model["w1"], model["b1"]))
    return lib.ckpt_cross_entropy(t, lib.ckpt_linear(t, h, model["w2"], model["b2"]), label, ffi.NULL)


def parameter(c, name, kind, *sizes):
    model[name] = lib.ckpt_param(c, string(name), F32, len(sizes), shape(*sizes), init_of(kind), True)


def main():
    opt, adamw = init("ckpt_options"), init("ckpt_adamw")
    adamw.lr = 1e-3
    argc = ffi.new("int *", len(sys.argv))
    argv = ffi.new("char *[]", [string(a) for a in sys.argv] + [ffi.NULL])
    check(lib.ckpt_options_parse(opt, argc, argv))
    c = ffi.new("ckpt **")
    check(lib.ckpt_open(c, opt))
    c = c[0]
    parameter(c, "w1", lib.CKPT_INIT_XAVIER_UNIFORM, 256, 784)
    parameter(c, "b1", lib.CKPT_INIT_ZEROS, 256)
    parameter(c, "w2", lib.CKPT_INIT_XAVIER_UNIFORM, 10, 256)
    parameter(c, "b2", lib.CKPT_INIT_ZEROS, 10)
    step = ffi.new("ckpt_program **")
    check(lib.ckpt_compile(c, record, ffi.NULL, lib.ckpt_adamw(c, adamw), BATCH, step), c)
    x, label, loss = ffi.new("float[]", BATCH * 784), ffi.new("int32_t[]", BATCH), ffi.new("float *")
    for i in range(STEPS):
        lib.ckpt_fill_normal(1, i, 0, x, BATCH * 784)
        for b in range(BATCH):
            label[b] = (i + b) % 10
            x[b * 784 + label[b]] += 4
        check(lib.ckpt_feed(step[0], b"x", x, ffi.sizeof(x)), c)
        check(lib.ckpt_feed(step[0], b"label", label, ffi.sizeof(label)), c)
        check(lib.ckpt_step(step[0], loss), c)
    print(f"loss {loss[0]:.4f}")
    lib.ckpt_close(c)


try:
    main()
except RuntimeError as e:
    sys.exit(str(e))
