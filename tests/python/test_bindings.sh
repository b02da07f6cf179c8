#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C API from other languages, by declarations made from the headers: the program of README.md in
# Python (cffi) and in Rust has the loss that it has in C, also under a budget.
. "${srcdir:-.}/tests/model/programs.sh"
case $root in /*) ;; *) root=$PWD/$root ;; esac
python3 -c 'import cffi, pycparser' 2>/dev/null || { echo "no cffi"; exit 77; }
build=$PWD
CC=$(sed -n 's/^CC = //p' Makefile) CKPT_LIBRARY=$build/.libs/libckpt.so.0
sanitizers=$(sed -n 's/^SANITIZER_FLAGS = //p' Makefile)
PYTHONDONTWRITEBYTECODE=1
export CC CKPT_LIBRARY PYTHONDONTWRITEBYTECODE
[ -f "$CKPT_LIBRARY" ] && [ -z "$sanitizers" ] || { echo "no shared library, or one of a sanitizer"; exit 77; }

# C
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/README.md" >"$work/mlp.c"
$CC -std=gnu11 "-I$root/runtime" "$work/mlp.c" -o "$work/mlp" -L.libs "-Wl,-rpath,$build/.libs" -lckpt -lm ||
    fail "the program of README.md does not compile"
"$work/mlp" --device cpu --vram 4M >"$work/c" || fail "C: $(cat "$work/c")"

# same LANGUAGE COMMAND...: the same loss, with a budget and without, and the same refusal.
same() {
    language=$1
    shift
    for budget in 4M none; do
        "$@" --device cpu --vram $budget >"$work/said" 2>&1 || fail "$language: $(tail -n 5 "$work/said")"
        cmp -s "$work/c" "$work/said" || fail "$language, $budget: $(cat "$work/said")"
    done
    "$@" --device cpu --vram 1M >"$work/said" 2>&1 && fail "$language: 1M was not refused"
    grep -q "needs at least" "$work/said" || fail "$language: $(cat "$work/said")"
}

python3 "$root/examples/python/bindings.py" python "$root/runtime" >"$work/ckpt_cffi.py" || fail "no ckpt_cffi.py"
cp "$root/examples/python/mlp.py" "$work"
same Python python3 "$work/mlp.py"

if ! cargo --version >/dev/null 2>&1; then
    echo "no cargo, so no Rust"
    finish
fi
mkdir "$work/bin"
cat >"$work/bin/pkg-config" <<SH
#!/bin/sh
case \$1 in
--cflags) echo "-I$root/runtime" ;;
*) echo "-L$build/.libs -lckpt" ;;
esac
SH
chmod +x "$work/bin/pkg-config"
cp -r "$root/examples/rust" "$work/rust"
chmod -R u+w "$work/rust"
(cd "$work/rust" && PATH=$work/bin:$PATH CKPT_BINDINGS=$root/examples/python/bindings.py CARGO_HOME=$work/cargo \
    timeout 300 cargo build --offline --quiet --example mlp) >"$work/said" 2>&1 || fail "Rust: $(tail -n 5 "$work/said")"
LD_LIBRARY_PATH=$build/.libs same Rust "$work/rust/target/debug/examples/mlp"
finish
