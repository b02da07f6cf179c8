#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every page of the site in a real browser, as wide as a phone and as a desk: nothing sticks out to the
# right, every picture is there.  Skipped without Sphinx, its theme or Chromium.
set -eu
. "${srcdir:-.}/tests/first_failure.sh"

find_browser
[ -n "${SPHINXBUILD-}" ] && [ -d man/man3 ] || exit 77
srcdir=$srcdir "$srcdir/build-aux/site" man "$work/pages" "$work/html" >"$work/said" 2>&1 ||
    fail "the site: $(tail -n 3 "$work/said")"

# look FOLDER: the outcome of all its pages in two widths is in title.
look() {
    {
        echo '<meta charset="utf-8"><title>begun</title><body><script>const pages = ['
        (cd "$1" && find . -name '*.html' ! -name genindex.html ! -name search.html ! -name look.html) |
            sort | awk '{ printf "[\"%s\", 390],\n[\"%s\", 1280],\n", $0, $0 }'
        echo '];</script><script>'
        cat "$srcdir/tests/report/site_pages.js"
        echo '</script>'
    } >"$1/look.html"
    timeout 600 "$browser" --headless --no-sandbox --disable-gpu --allow-file-access-from-files \
        --disable-web-security --window-size=1300,2100 --user-data-dir="$work/profile" \
        --virtual-time-budget=600000 --dump-dom "file://$1/look.html" >"$work/dom" 2>"$work/log" ||
        fail "the browser failed: $(tail -n 3 "$work/log")"
    title=$(sed -n 's|.*<title>\(.*\)</title>.*|\1|p' "$work/dom" | head -n 1)
}

look "$work/html"
case $title in "pages ok: "[1-9]*) ;; *) fail "$title" ;; esac

# What is broken must not pass.
mkdir "$work/broken"
echo '<article><h1>a</h1><p style="width: 800px">wide</p><img src="none.png"></article>' >"$work/broken/a.html"
look "$work/broken"
case $title in *"too wide: P 'wide'"*"no picture none.png"*) ;; *) fail "a broken page passed: $title" ;; esac
echo ok
