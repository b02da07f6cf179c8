#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws doc/zoo.svg: for each program of the zoo its loss while it learns, what it reached, and the
# memory of a step without a budget and under the smallest.
#
#   gallery.sh ZOO LOGS [PROGRAM...]  ZOO: the folder of the programs; LOGS: a folder for what they
#                                     print; a program whose output is there already does not run
#                                     again.  The picture goes to standard output.
set -eu
zoo=$1
logs=$2
shift 2
[ $# -gt 0 ] || set -- resnet unet2d unet3d vit moe lstm ssm ddpm gan t5
mkdir -p "$logs"
for name; do
    [ ! -s "$logs/$name" ] || continue
    "$zoo/$name" >"$logs/$name.part"
    mv "$logs/$name.part" "$logs/$name"
done
cd "$logs"
"${AWK:-awk}" '
function bytes(n, unit) {
    return n * (unit == "GiB" ? 2 ^ 30 : unit == "MiB" ? 2 ^ 20 : unit == "KiB" ? 1024 : 1)
}
function size(n) {
    return n >= 2 ^ 20 ? sprintf("%.1f MiB", n / 2 ^ 20) : sprintf("%.0f KiB", n / 1024)
}
function text(class, x, y, what) {
    printf "<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, what
}
# The loss on a logarithmic axis; one below a thousandth of the first stands at its foot.
function curve(name, x, y,   i, low, high, v) {
    high = log(loss[name, 1])
    low = high - 1
    for (i = 1; i <= n[name]; i++) {
        v = loss[name, i] > exp(high) / 1000 ? log(loss[name, i]) : high - log(1000)
        level[i] = v
        if (v < low) low = v
        if (v > high) high = v
    }
    printf "<polyline class=\"loss\" points=\""
    for (i = 1; i <= n[name]; i++)
        printf "%.1f,%.1f ", x + 208 * (step[name, i] - 1) / (step[name, n[name]] - 1),
            y + 60 * (high - level[i]) / (high - low)
    print "\"/>"
}
function bar(class, x, y, share, what) {
    printf "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"8\"/>\n", class, x, y,
        112 * share
    text("small", x + 118, y + 8, what)
}
function panel(name, x, y) {
    printf "<rect class=\"panel\" x=\"%d\" y=\"%d\" ", x, y
    print "width=\"232\" height=\"160\" rx=\"6\"/>"
    text("name", x + 12, y + 22, name)
    curve(name, x + 12, y + 34)
    text("small", x + 12, y + 116, learned[name])
    bar("free", x + 12, y + 126, 1, size(peak[name]))
    bar("least", x + 12, y + 140, least[name] / peak[name], size(least[name]))
}
FNR == 1 { names[++m] = FILENAME }
$1 == "peak" && bytes($2, $3) > peak[FILENAME] { peak[FILENAME] = bytes($2, $3) }
$1 == "budget" && /smallest possible/ {
    if (bytes($(NF - 1), $NF) > least[FILENAME])
        least[FILENAME] = bytes($(NF - 1), $NF)
}
/^step +[0-9]+ +loss / {
    i = ++n[FILENAME]
    step[FILENAME, i] = $2
    loss[FILENAME, i] = $4
}
/^learned: / {
    sub(/^learned: /, "")
    sub(/,.*/, "")
    sub(/^the mean /, "")
    sub(/ (on (a )?new|without) .*/, "")
    learned[FILENAME] = $0
}
END {
    columns = m < 4 ? m : 4
    rows = int((m + columns - 1) / columns)
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" ",
        columns * 244 + 12, rows * 172 + 36
    print "aria-label=\"Losses and memory of the programs of the zoo\">"
    print "<style>text { font: 12px sans-serif; fill: #1f2933 }"
    print ".name { font-weight: bold; font-size: 14px }"
    print ".small { font-size: 10.5px; fill: #52606d } .panel { fill: #f5f7fa; stroke: #cbd2d9 }"
    print ".loss { fill: none; stroke: #0b69a3; stroke-width: 2 }"
    print ".free { fill: #9aa5b1 } .least { fill: #e67700 }"
    print "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    for (i = 0; i < m; i++) {
        name = names[i + 1]
        if (!n[name] || !peak[name] || !least[name] || learned[name] == "") {
            print "gallery.sh: " name " printed no loss, plan or result" >"/dev/stderr"
            exit 1
        }
        panel(name, 12 + i % columns * 244, 12 + int(i / columns) * 172)
    }
    y = rows * 172 + 24
    printf "<rect class=\"free\" x=\"12\" y=\"%d\" width=\"14\" height=\"8\"/>\n", y - 8
    text("small", 32, y, "memory of a step without a budget")
    printf "<rect class=\"least\" x=\"256\" y=\"%d\" width=\"14\" height=\"8\"/>\n", y - 8
    text("small", 276, y, "under the smallest; losses are on a logarithmic axis")
    print "</svg>"
}' "$@"
