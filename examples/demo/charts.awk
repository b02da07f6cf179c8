# SPDX-License-Identifier: Apache-2.0
# Writes the facts and the two charts of the demo's page, as HTML and SVG.  Each input line is
# "step loss norm ms bytes": first the run with a budget, then the one without.
function mib(bytes) { return sprintf("%.1f MiB", bytes / 1048576) }
function px(step) { return left + (step - 1) / (last - 1 > 0 ? last - 1 : 1) * width }
function fact(name, value, more) {
    printf "<div><dt>%s</dt><dd>%s</dd><small>%s</small></div>\n", name, value, more >facts
}
function begin_chart(file, label) {
    printf "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", left + width + 20,
        top + height + 44, label >file
}
function level_line(file, class, y) {
    printf "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", class, left,
        left + width, y, y >file
}
function grid_line(file, y, text) {
    level_line(file, "grid", y)
    printf "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left - 8, y + 4, text >file
}
function step_axis(file,   i, every) {
    every = last > 400 ? 200 : last > 40 ? 20 : last > 8 ? 5 : 1
    for (i = every; i <= last; i += every)
        printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", px(i),
            top + height + 18, i >file
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", left + width / 2,
        top + height + 38 >file
}
function curve(file, class, values, n, low, high, logarithm,   i, v) {
    printf "<polyline class=\"%s\" points=\"", class >file
    for (i = 1; i <= n; i++) {
        v = logarithm ? log(values[i]) : values[i]
        printf "%.1f,%.1f ", px(i), top + height - (v - low) / (high - low) * height >file
    }
    print "\"/>" >file
}
FNR == NR {
    n = FNR
    loss[n] = $2
    bytes[n] = $5
    next
}
{
    free_n = FNR
    free_loss[free_n] = $2
    free_bytes[free_n] = $5
}
END {
    left = 74; top = 12; width = 830; height = 220; last = n
    facts = svg "/facts"
    fact("same bits", same,
         compared " losses and gradient norms: " numbers "; all weights: " weights)
    fact("memory", mib(x), "at most, in a budget of " mib(wall))
    fact("without a budget", mib(y), sprintf("the budget leaves %.0f %% of it", 100 * wall / y))
    fact("cost in time", sprintf("%+.0f %%", 100 * (a / b - 1)),
         sprintf("%.0f ms a step instead of %.0f ms", a, b))
    fact("steps", n, sprintf("loss %.2f at first, %.2f at last", loss[1], loss[n]))

    low = high = log(loss[1])
    for (i = 1; i <= n; i++) {
        v = log(loss[i])
        low = v < low ? v : low
        high = v > high ? v : high
    }
    if (high - low < 0.1)
        high = low + 0.1
    file = svg "/loss"
    begin_chart(file, "loss of every step, with and without the budget")
    for (i = -12; i < 24; i++) { # 1, 2, 5, 10, ...
        v = (i % 3 == 0 ? 1 : (i + 12) % 3 == 1 ? 2 : 5) * exp(log(10) * int((i + 12) / 3 - 4))
        if (log(v) >= low && log(v) <= high)
            grid_line(file, top + height - (log(v) - low) / (high - low) * height, v)
    }
    curve(file, "free", free_loss, free_n, low, high, 1)
    curve(file, "kept", loss, n, low, high, 1)
    step_axis(file)
    print "</svg>" >file

    file = svg "/memory"
    high = 1.1 * (y > wall ? y : wall)
    begin_chart(file, "bytes that each step takes, and the budget")
    for (i = 0; i <= high; i += 4 * 1048576)
        grid_line(file, top + height - i / high * height, sprintf("%d MiB", i / 1048576))
    curve(file, "free", free_bytes, free_n, 0, high, 0)
    curve(file, "kept", bytes, n, 0, high, 0)
    level_line(file, "wall", top + height - wall / high * height)
    printf "<text class=\"wall\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">the budget, %s</text>\n",
        left + width, top + height - wall / high * height - 6, mib(wall) >file
    step_axis(file)
    print "</svg>" >file
}
