# SPDX-License-Identifier: Apache-2.0
# Runs the commands of a page as they stand there, read by the tests of pages.  The programs are in
# $work/bin: scripts that add options for a tiny size behind those of the page, of which the last
# counts.  Everything happens in $work/home, with the blocks of a page in their order.
. "${srcdir:-.}/tests/model/programs.sh"
case $root in /*) ;; *) root=$PWD/$root ;; esac
build=$PWD
mkdir -p "$work/bin" "$work/home" "$work/blocks"

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

# blocks PAGE: its blocks of commands, each a file.  A block is indented by four columns (code of
# another language is fenced); one behind
# a comment "<!-- not run: REASON -->" is left out; one that starts with "#!" is a file, whose name
# the line before it has in backquotes.
blocks() {
    awk -v dir="$work/blocks" '
        function close_block() {
            if (out)
                close(out)
            out = ""
        }
        /^```/ { fenced = !fenced; close_block(); next }
        fenced { next }
        /^    / && (out || before == "") {
            if (!out && !left_out) {
                n++
                out = sprintf("%s/%02d", dir, n)
                if ($1 ~ /^#!/ && match(text, /`[^`]*`/))
                    print substr(text, RSTART + 1, RLENGTH - 2) >(out ".name")
            }
            if (out)
                print substr($0, 5) >out
            before = ""
            next
        }
        /^$/ { before = ""; if (out) print "" >out; next }
        { close_block(); left_out = /^<!-- not run: .* -->$/; before = text = $0 }' "$1"
}

# run_page PAGE N: fails with the block that failed, or where it has not N.
run_page() {
    blocks "$root/$1"
    found=0
    for block in "$work/blocks"/[0-9][0-9]; do
        [ -e "$block" ] || break
        found=$((found + 1))
        if [ -e "$block.name" ]; then
            cp "$block" "$work/home/$(cat "$block.name")"
        elif ! (cd "$work/home" && PATH=$work/bin:$PATH timeout 120 sh -e "$block") >"$work/out" 2>&1; then
            fail "$1: $(cat "$block"): $(tail -n 5 "$work/out")"
        fi
    done
    [ $found = "$2" ] || fail "$1 has $found blocks that are run, not $2"
    echo "$1: $found blocks"
}
