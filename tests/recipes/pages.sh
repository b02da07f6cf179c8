# SPDX-License-Identifier: Apache-2.0
# Runs the commands of a page as they stand there, read by the tests of pages.  The programs are in
# $work/bin: scripts that add options for a tiny size behind those of the page, of which the last
# counts.  Everything happens in $work/home, with the blocks of a page in their order.
. "${srcdir:-.}/tests/model/programs.sh"
case $root in /*) ;; *) root=$PWD/$root ;; esac
build=$PWD
mkdir -p "$work/bin/examples" "$work/home"

# program NAME [OPTION...]: NAME of the page runs with these options added.
program() {
    name=$1
    shift
    printf '#!/bin/sh\nexec "%s/%s" "$@" %s\n' "$build" "$name" "$*" >"$work/bin/$name"
    chmod +x "$work/bin/$name"
}

# stand_in NAME: a command of another maker; its script is read from standard input.
stand_in() {
    { echo '#!/bin/sh' && cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

# Two ranks of MPI, where it is there; under its whole name, since ours is found before it.
stand_in_mpirun() {
    mpirun=$(command -v "${MPIRUN:-mpirun}" || echo none)
    stand_in mpirun <<SH
words=
while :; do
    case \$1 in
    -np | --hostfile) shift 2 ;;
    -x) words="\$words -x \$2" && shift 2 ;;
    *) break ;;
    esac
done
if [ ! -f "$build/.libs/ckpt_mpi.so" ] || [ "$mpirun" = none ]; then
    echo "no MPI here"
    exit 0
fi
export CKPT_PLUGIN_DIR="$build/.libs"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
exec "$mpirun" -np 2 \$words "\$@"
SH
}

# blocks PAGE DIR: its blocks of commands, each a file of DIR.  A block is indented by four columns or
# fenced as sh; code in C is fenced as c, and is a file, whose name the line before has in
# backquotes, as is one that starts with "#!".  A comment before a block says how else it is held to
# the truth: "<!-- not run: REASON -->", "<!-- fails -->", or "<!-- part of FILE -->" for C.  What is
# fenced as text behind a block is what this prints: NN.says.
blocks() {
    awk -v dir="$2" '
        function begin(  wanted) {
            out = ""
            wanted = !left_out && !part
            if (part)
                print part >>(dir "/parts")
            if (part || wanted)
                out = sprintf("%s/%s%02d", dir, part ? "part-" : "", part ? ++parts : ++n)
            if (wanted && failing)
                printf "" >(out ".fails")
            part = ""
            left_out = failing = 0
        }
        function name_it() {
            if (match(text, /`[^`]*`/))
                print substr(text, RSTART + 1, RLENGTH - 2) >(out ".name")
        }
        function close_block() {
            if (out)
                close(out)
            out = ""
        }
        /^```/ {
            close_block()
            fenced = !fenced
            if (fenced && /^```(c|sh)$/) {
                begin()
                if (out && out !~ /part-/ && /c$/)
                    name_it()
                if (out)
                    printf "" >out
            } else if (fenced && /^```text$/ && n && !left_out)
                out = sprintf("%s/%02d.says", dir, n)
            left_out = 0
            next
        }
        fenced { if (out) print >out; next }
        /^    / && (inside || before == "") {
            if (!inside) {
                begin()
                inside = 1
                if (out && $1 ~ /^#!/)
                    name_it()
            }
            if (out)
                print substr($0, 5) >out
            before = ""
            next
        }
        /^$/ { before = ""; if (out) print "" >out; next }
        {
            close_block()
            inside = 0
            left_out = /^<!-- not run: .* -->$/
            failing = /^<!-- fails -->$/
            part = /^<!-- part of .* -->$/ ? $4 : ""
            before = text = $0
        }' "$1"
}

# check_says PAGE BLOCK: each line behind a block is one that this or an earlier one printed.
check_says() {
    while read -r line; do
        line=$(echo "$line" | tr -s ' ')
        cat "$work/blocks"/*.out | tr -s ' ' | grep -qF -- "$line" || fail "$1: no block prints \"$line\""
    done <"$2.says"
}

# run_page PAGE N [says]: files first, then commands in their order.  Fails with the block that failed, or where it has not N; with "says" also
# where the page prints what no block does.
run_page() {
    rm -rf "$work/blocks"
    mkdir "$work/blocks"
    blocks "$root/$1" "$work/blocks"
    ! grep -qw python3 "$work"/blocks/[0-9][0-9] || PATH=$work/bin:$PATH command -v python3 >/dev/null || exit 77
    found=0
    for name in "$work/blocks"/*.name; do
        [ ! -e "$name" ] || cp "${name%.name}" "$work/home/$(cat "$name")"
    done
    for block in "$work/blocks"/[0-9][0-9]; do
        [ -e "$block" ] || break
        found=$((found + 1))
        [ ! -e "$block.name" ] || continue
        wanted=0
        [ ! -e "$block.fails" ] || wanted=1
        (cd "$work/home" && PATH=$work/bin:$PATH timeout 300 "${page_shell:-sh}" -e "$block") >"$block.out" 2>&1
        [ $? = $wanted ] || fail "$1: $(cat "$block"): $(tail -n 5 "$block.out")"
        [ -z "${3-}" ] || [ ! -e "$block.says" ] || check_says "$1" "$block"
    done
    [ $found = "$2" ] || fail "$1 has $found blocks that are run, not $2"
    echo "$1: $found blocks"
}

# fresh_home: an empty one, with the examples where the build has them.
fresh_home() {
    rm -rf "$work/home"
    mkdir -p "$work/home/examples"
    ln -s "$root/examples/data" "$work/home/examples/data"
    ln -s "$build/.libs" "$work/home/.libs"
    for example in mlp custom_op; do
        program examples/$example --device cpu
        mv "$work/bin/examples/$example" "$work/home/examples/$example"
    done
}

# downloads FAMILY: hf brings the model of $tiny, and there are clips with captions; skipped without the text encoder.
downloads() {
    stand_in hf <<SH
[ "\$1" = download ] || exit 1
[ \$# = 4 ] || shift
[ "\$3" = --local-dir ] && mkdir -p "\$4" && cp -r "$tiny/." "\$4"
SH
    mkdir "$work/home/clips"
    for name in a b c; do
        cp "$root/examples/data/bunny.rgb" "$work/home/clips/$name.rgb"
        echo "rbbt in a meadow, $name" >"$work/home/clips/$name.txt"
    done
    if ! ./text-encode --family "$1" --model "$tiny" --device cpu --threads 1 --prompts "$work/home/clips/a.txt" \
        --output "$work/y" >"$work/out" 2>&1; then
        grep -q "built without" "$work/out" && exit 77
        fail "$(cat "$work/out")"
    fi
}
