#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes libckpt's C API for another language, from the installed headers:

    bindings.py python [FOLDER] >ckpt_cffi.py       a module for cffi
    bindings.py rust [FOLDER] >ckpt.rs              declarations for extern "C"

FOLDER has ckpt.h (default: what pkg-config says).  It needs a C compiler ($CC) and, for Rust,
pycparser, which cffi installs.  The API is that of C: the contract of each call is in the headers
and in "man ckpt_open".  Values of CKPT_..._INIT and of constants come from the compiler."""
import os
import re
import shlex
import subprocess
import sys
import tempfile

HEADERS = ["ckpt.h", "ckpt_dist.h", "ckpt_files.h", "ckpt_import.h", "ckpt_nn.h", "ckpt_tools.h"]
CONSTANTS = ["CKPT_VERSION_NUMBER", "CKPT_AUTO", "CKPT_VRAM_AUTO", "CKPT_VRAM_NONE", "CKPT_MAX_DIMS",
             "CKPT_MAX_PARTS", "CKPT_ALL_AXES"]
CC = shlex.split(os.environ.get("CC", "cc"))


def include_flags(folder):
    if folder:
        return ["-I" + folder]
    return shlex.split(subprocess.check_output(["pkg-config", "--cflags", "libckpt"], text=True))


def preprocess(flags):
    """The declarations of the headers alone, without attributes and functions in the header."""
    source = "".join(f"#include <{h}>\n" for h in HEADERS)
    out = subprocess.run([*CC, "-E", "-DCKPT_NO_AT", *flags, "-x", "c", "-"], input=source,
                         capture_output=True, text=True, check=True).stdout
    kept, ours = [], False
    for line in out.split("\n"):
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = os.path.basename(marker[1]).startswith("ckpt")
        elif ours:
            kept.append(line)
    text = "\n".join(kept)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", text)
    text = re.sub(r"static inline\b[^;{]*\{.*?\n\}", "", text, flags=re.S)
    return re.sub(r"\n\s*\n+", "\n", text).strip() + "\n"


def structs_of_inits(flags):
    """{macro: the struct that it fills}."""
    source = "".join(f"#include <{h}>\n" for h in HEADERS)
    out = subprocess.run([*CC, "-E", "-dM", *flags, "-x", "c", "-"], input=source, capture_output=True,
                         text=True, check=True).stdout
    return dict(sorted(re.findall(r"#define (CKPT_\w+_INIT) .*sizeof\(struct (\w+)\)", out)))


def string_fields(text, struct):
    """Names of a struct's members that are strings."""
    body = re.search(r"struct %s \{(.*?)\n\};" % struct, text, re.S)[1]
    lines = re.findall(r"^ *const char ([^;\[]*);", body, re.M)
    return [name.strip(" *") for line in lines for name in line.split(",")]


def evaluate(text, flags):
    """{constant: value}, and {struct: (bytes of its CKPT_..._INIT, {member: string})}."""
    body = "".join(f'    printf("{c} %lld\\n", (long long)({c}));\n' for c in CONSTANTS)
    for macro, struct in structs_of_inits(flags).items():
        body += f'    {{ struct {struct} v; memset(&v, 0, sizeof v); v = (struct {struct}){macro};\n'
        for name in string_fields(text, struct):
            body += f'      if (v.{name}) printf("{struct}.{name} %s\\n", v.{name});\n      v.{name} = 0;\n'
        body += f'      put("{struct}", &v, sizeof v); }}\n'
    program = "#include <stdio.h>\n#include <string.h>\n" + "".join(f"#include <{h}>\n" for h in HEADERS) + f"""
static void put(const char *name, const void *v, size_t n)
{{
    printf("%s ", name);
    for (size_t i = 0; i < n; i++)
        printf("%02x", ((const unsigned char *)v)[i]);
    printf("\\n");
}}
int main(void)
{{
{body}    return 0;
}}
"""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "values")
        subprocess.run([*CC, *flags, "-x", "c", "-", "-o", path], input=program, text=True, check=True)
        rows = dict(line.split(" ", 1) for line in subprocess.check_output([path], text=True).splitlines())
    strings = {name: value for name, value in rows.items() if "." in name}
    return ({name: int(rows[name]) for name in CONSTANTS},
            {struct: (value, {n.split(".")[1]: v for n, v in strings.items() if n.startswith(struct + ".")})
             for struct, value in rows.items() if struct not in CONSTANTS and struct not in strings})


def write_python(text, constants, inits):
    print('''# Written by bindings.py from libckpt's headers.
"""libckpt's C API: lib.ckpt_open(...), ffi.new("struct ckpt_options *"), init("ckpt_options")."""
import os
import cffi

ffi = cffi.FFI()
ffi.cdef("""''')
    print(text + '""")')
    print('lib = ffi.dlopen(os.environ.get("CKPT_LIBRARY", "libckpt.so.0"))\n')
    for name, value in constants.items():
        print(f"{name} = {value}")
    print("INIT = {")
    for name, (value, strings) in inits.items():
        print(f'    "{name}": ("{value}", {strings!r}),')
    print('''}
CKPT_NONE = ffi.new("ckpt_tensor *")[0]


def init(name):
    """A struct with the values of its CKPT_..._INIT."""
    value = ffi.new(f"struct {name} *")
    ffi.memmove(value, bytes.fromhex(INIT[name][0]), ffi.sizeof(f"struct {name}"))
    for member, text in INIT[name][1].items():
        setattr(value, member, string(text))
    return value


STRINGS = {}


def string(text):
    """A string of C that lives as long as the program."""
    return STRINGS.setdefault(text, ffi.new("char[]", text.encode()))


def init_of(kind, a=0.0):
    """Initial values: init_of(lib.CKPT_INIT_XAVIER_UNIFORM)."""
    return ffi.new("struct ckpt_init *", {"kind": kind, "a": a})[0]


def check(code, c=ffi.NULL):
    """Raises the sentence of a call that failed."""
    if code:
        raise RuntimeError(ffi.string(lib.ckpt_error(c)).decode())


def shape(*sizes):
    return ffi.new("int64_t[]", sizes)''')


def self_name(name):
    return "r#" + name if name in Rust.RESERVED else name


class Rust:
    """Declarations of a syntax tree of pycparser as Rust's."""
    NAMES = {"int": "c_int", "unsigned int": "c_uint", "unsigned": "c_uint", "char": "c_char", "float": "f32", "double": "f64",
             "size_t": "usize", "void": "c_void", "_Bool": "bool", "unsigned char": "u8", "long": "c_long",
             "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32",
             "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "FILE": "FILE"}
    RESERVED = set("as async await become box crate do dyn final fn impl in let loop macro match mod move mut override "
                   "priv pub ref trait try type typeof unsafe unsized use virtual where yield".split())

    def __init__(self, tree):
        from pycparser import c_ast
        self.ast, self.values, self.waiting, self.done = c_ast, {}, set(), set()
        for node in tree.ext:
            self.declare(node)

    def type_of(self, node):
        a = self.ast
        if isinstance(node, a.PtrDecl):
            if isinstance(node.type, a.FuncDecl):
                return f"Option<{self.function(node.type)}>"
            const = "const" in getattr(node.type, "quals", [])
            return ("*const " if const else "*mut ") + self.type_of(node.type)
        if isinstance(node, a.ArrayDecl):
            return f"[{self.type_of(node.type)}; {node.dim.value}]"
        if isinstance(node, a.TypeDecl):
            return self.type_of(node.type)
        if isinstance(node, (a.Struct, a.Enum)):
            self.declare_tag(node)
            return node.name
        word = " ".join(node.names)
        return self.NAMES.get(word, word)

    def parameters(self, node):
        a, out = self.ast, []
        for i, p in enumerate(node.args.params if node.args else []):
            if isinstance(p, a.EllipsisParam):
                out.append("...")
                continue
            of = p.type
            if isinstance(of, a.ArrayDecl):
                const = "const" in getattr(of.type, "quals", [])
                kind = ("*const " if const else "*mut ") + self.type_of(of.type)
            elif isinstance(of, a.FuncDecl):
                kind = f"Option<{self.function(of)}>"
            else:
                kind = self.type_of(of)
            if kind != "c_void":
                out.append(f"{self_name(p.name or f'a{i}')}: {kind}")
        result = self.type_of(node.type)
        return f"({', '.join(out)})" + ("" if result == "c_void" else f" -> {result}")

    def function(self, node):
        return f'unsafe extern "C" fn{self.parameters(node)}'

    def declare_tag(self, node):
        a = self.ast
        if node.name in self.done:
            return
        if isinstance(node, a.Enum):
            if node.values:
                self.done.add(node.name)
                self.enum(node)
        elif node.decls:
            self.done.add(node.name)
            fields = [f"    pub {self_name(d.name)}: {self.type_of(d.type)},\n" for d in node.decls]
            print(f"#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {node.name} {{\n{''.join(fields)}}}")

    def enum(self, node):
        value, rows = -1, []
        for e in node.values.enumerators:
            value = value + 1 if e.value is None else self.constant(e.value)
            self.values[e.name] = value
            rows.append((e.name, value))
        kind = "c_int" if min(v for _, v in rows) < 0 else "c_uint"
        if node.name:
            print(f"pub type {node.name} = {kind};")
        for name, v in rows:
            print(f"pub const {name}: {kind} = {v};")

    def constant(self, node):
        if isinstance(node, self.ast.UnaryOp):
            return -self.constant(node.expr)
        if isinstance(node, self.ast.BinaryOp):
            left, right = self.constant(node.left), self.constant(node.right)
            return {"<<": left << right, "|": left | right, "+": left + right}[node.op]
        if isinstance(node, self.ast.ID):
            return self.values[node.name]
        return int(node.value.rstrip("uUlL"), 0)

    def declare(self, node):
        a = self.ast
        if isinstance(node, a.Typedef):
            if node.name in ("FILE", *self.NAMES):
                return
            of = node.type.type
            if isinstance(of, a.Struct) and not of.decls and of.name not in self.done:
                if of.name != node.name:
                    print(f"pub type {node.name} = {of.name};")
                self.opaque(of.name)
            elif isinstance(of, a.Struct):
                of.name = of.name or node.name
                self.declare_tag(of)
                if of.name != node.name:
                    print(f"pub type {node.name} = {of.name};")
            elif isinstance(node.type, a.FuncDecl):
                print(f"pub type {node.name} = {self.function(node.type)};")
            else:
                print(f"pub type {node.name} = {self.type_of(node.type)};")
            return
        if isinstance(node.type, a.FuncDecl):
            text = self.parameters(node.type)
            print(f'extern "C" {{\n    pub fn {node.name}{text};\n}}')
        elif isinstance(node.type, (a.Struct, a.Enum)):
            if isinstance(node.type, a.Struct) and not node.type.decls:
                self.opaque(node.type.name)
            else:
                self.declare_tag(node.type)

    def opaque(self, name):
        self.waiting.add(name)

    def close(self):
        for name in sorted(self.waiting - self.done):
            print(f"#[repr(C)]\npub struct {name} {{\n    _private: [u8; 0],\n}}")


def write_rust(text, constants, inits):
    from pycparser import CParser
    known = "typedef int FILE;\n" + "".join(
        f"typedef int {t};\n" for t in Rust.NAMES if t.endswith("_t"))
    print("// Written by bindings.py from libckpt's headers.\nuse std::os::raw::*;\n")
    print("#[repr(C)]\npub struct FILE {\n    _private: [u8; 0],\n}")
    Rust(CParser().parse(known + text)).close()
    for name, value in constants.items():
        print(f"pub const {name}: i64 = {value};")
    print("pub const CKPT_NONE: ckpt_tensor = ckpt_tensor { id: 0, owner: 0 };")
    for name, (value, strings) in inits.items():
        words = ", ".join(f"0x{value[i:i + 2]}" for i in range(0, len(value), 2))
        print(f"impl {name} {{\n    /// The values of its CKPT_..._INIT.\n    pub fn init() -> Self {{")
        print(f"        let bytes: [u8; {len(value) // 2}] = [{words}];")
        print(f"        let {'mut ' if strings else ''}value: Self = unsafe {{ std::mem::transmute(bytes) }};")
        for member, string in strings.items():
            print(f'        value.{self_name(member)} = b"{string}\\0".as_ptr() as *const c_char;')
        print("        value\n    }\n}")


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in ("python", "rust"):
        sys.exit(__doc__)
    flags = include_flags(sys.argv[2] if len(sys.argv) > 2 else None)
    text = preprocess(flags)
    constants, inits = evaluate(text, flags)
    (write_python if sys.argv[1] == "python" else write_rust)(text, constants, inits)


main()
