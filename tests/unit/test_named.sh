#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the pages tell a reader to type exists: every target of make starts, in this build or in the
# folder of the examples, every file that a target runs is there, and configure knows every option.
set -u
srcdir=${srcdir:-.}
[ -f Makefile ] && [ -x "$srcdir/configure" ] || exit 77
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
pages="$srcdir/README.md $srcdir/CONTRIBUTING.md $srcdir/doc/*.md $srcdir/doc/bench/*.md"
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# Commands are indented by four blanks or stand between backquotes; in the table of doc/build.md the
# targets have a column.  Words behind "make" are targets up to the next operator, but for variables.
commands() {
    # shellcheck disable=SC2086
    cat $pages | awk '
        /^    / { sub(/ #.*/, ""); print; next }
        { n = split($0, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }'
}
targets() {
    commands | tr '&;|' '\n\n\n' | awk '
        { sub(/^ +/, ""); gsub(/"[^"]*"/, "") }
        { for (i = 1; i <= NF && $i ~ /^([A-Z_]+=|sudo$)/; i++); }
        $i == "make" {
            for (i++; i <= NF; i++)
                if ($i == "-C" || $i == "-j") i++
                else if ($i ~ /^[a-z][a-z-]*$/) print $i
                else if ($i !~ /^([A-Z_]+=|-)/) next
        }'
    awk -F '`' '/^\| target of make/ { on = 1 } /^$/ { on = 0 }
        on && /^\| `/ { print $2; if ($3 == ", ") print $4 }' "$srcdir/doc/build.md"
}
targets | sort -u >"$work/targets"
[ "$(wc -l <"$work/targets")" -gt 30 ] || fail "only $(wc -l <"$work/targets") targets are named"
for target in $(cat "$work/targets"); do
    if [ "$target" = check ] || [ "$target" = install ]; then
        continue # they run now, or were run by test_install.sh
    elif ! grep -qE "^([a-z-]+ )*$target( [a-z%_-]+)*:" Makefile "$srcdir/examples/Makefile"; then
        fail "a page names make $target, which is no target"
    fi
done

# In one call of make, which goes on after a target that cannot start.  Rules of distcheck call make
# between other commands, so "make -n" runs them.
known=$(grep -xE "$(sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' Makefile | sort -u | paste -sd '|')" \
    "$work/targets" | grep -vxE 'check|check-all|distcheck|distcheck-quick|install|uninstall')
# shellcheck disable=SC2086
MAKEFLAGS='' make -nk $known >"$work/out" 2>"$work/err" || fail "make -n: $(cat "$work/err")"
for file in $(grep -oE "[^ '\"=]*/(tests|examples|build-aux|\.ci)/[^ '\")]*\.(sh|py)" "$work/out" | sort -u); do
    [ -e "$file" ] || fail "a target runs $file, which does not exist"
done

# ---- configure -----------------------------------------------------------------------------------

"$srcdir/configure" --help >"$work/help"
commands | grep -oE -- '--(with|without|enable|disable)-[a-z-]+' | sort -u >"$work/options"
for option in $(cat "$work/options"); do
    name=$(echo "$option" | sed 's/^--without-/--with-/; s/^--disable-/--enable-/')
    grep -qE -- "(${name}|$(echo "$name" | sed 's/^--enable-/--disable-/; s/^--with-/--without-/'))[^a-z-]" \
        "$work/help" || fail "a page names $option, which configure does not know"
done
exit $failed
