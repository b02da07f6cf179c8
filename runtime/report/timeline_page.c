/* The lines of timeline.html, written by build-aux/embed: change that file. */
#include <stddef.h>
#include "report/timeline.h"

/* clang-format off */
const char *const timeline_page[] = {
    "<!doctype html>",
    "<html lang=\"en\">",
    "<head>",
    "<meta charset=\"utf-8\">",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    "<title>Memory over a step</title>",
    "<style>",
    ":root {",
    "  color-scheme: light dark;",
    "  --page: #f6f7f9; --card: #ffffff; --ink: #1c2330; --soft: #5d6878; --line: #dfe3e9"
    ";",
    "  --empty: #f1f3f6; --limit: #c2362b; --shadow: 0 1px 3px rgba(20, 30, 50, .12);",
    "}",
    "@media (prefers-color-scheme: dark) {",
    "  :root {",
    "    --page: #12161c; --card: #1b2129; --ink: #e8ecf2; --soft: #9aa6b6; --line: #323b"
    "47;",
    "    --empty: #151a21; --limit: #ff7a6b; --shadow: none;",
    "  }",
    "}",
    "* { box-sizing: border-box; }",
    "body { margin: 0; background: var(--page); color: var(--ink);",
    "  font: 14px/1.45 system-ui, \"Segoe UI\", Roboto, \"Helvetica Neue\", sans-serif; }",
    "main { max-width: 1680px; margin: 0 auto; padding: 20px 24px 28px; }",
    "h1 { font-size: 20px; margin: 0 0 2px; font-weight: 650; }",
    ".sub { color: var(--soft); margin: 0 0 14px; }",
    ".facts { display: flex; flex-wrap: wrap; gap: 10px; margin: 0 0 14px; padding: 0; }",
    ".facts div { background: var(--card); border-radius: 8px; padding: 8px 14px; min-wid"
    "th: 118px;",
    "  box-shadow: var(--shadow); }",
    ".facts dt { color: var(--soft); font-size: 12px; }",
    ".facts dd { margin: 0; font-size: 17px; font-weight: 600; font-variant-numeric: tabu"
    "lar-nums; }",
    ".facts small { font-size: 12px; font-weight: 400; color: var(--soft); }",
    ".bar { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 16px; margin-bo"
    "ttom: 8px; }",
    ".group { display: inline-flex; border: 1px solid var(--line); border-radius: 7px;",
    "  overflow: hidden; background: var(--card); }",
    ".group button { border: 0; background: none; color: var(--ink); font: inherit; paddi"
    "ng: 4px 12px;",
    "  cursor: pointer; }",
    ".group button + button { border-left: 1px solid var(--line); }",
    ".group button[aria-pressed=true] { background: #3b6fb6; color: #fff; }",
    "input { font: inherit; color: var(--ink); background: var(--card); border: 1px solid"
    " var(--line);",
    "  border-radius: 7px; padding: 4px 10px; width: 230px; }",
    ".legend { display: flex; flex-wrap: wrap; gap: 4px 14px; color: var(--soft); }",
    ".legend span { display: inline-flex; align-items: center; gap: 6px; }",
    ".under { margin: 8px 2px 0; }",
    ".legend i { width: 12px; height: 12px; border-radius: 3px; }",
    ".card { background: var(--card); border-radius: 10px; box-shadow: var(--shadow);",
    "  padding: 6px 8px 2px; position: relative; }",
    "canvas { display: block; width: 100%; cursor: crosshair; outline-offset: 4px; touch-"
    "action: none; }",
    ".hint { color: var(--soft); font-size: 12.5px; margin: 8px 2px 0; }",
    "#tip { position: fixed; z-index: 2; pointer-events: none; max-width: 460px; padding:"
    " 9px 12px;",
    "  border-radius: 8px; background: #10161f; color: #f2f5f9; font-size: 13px; line-hei"
    "ght: 1.4;",
    "  box-shadow: 0 4px 18px rgba(0, 0, 0, .3); }",
    "#tip[hidden] { display: none; }",
    "#tip b { overflow-wrap: anywhere; }",
    "#tip table { border-spacing: 0; margin-top: 4px; font-variant-numeric: tabular-nums;"
    " }",
    "#tip td { padding: 0 14px 0 0; color: #c9d2de; }",
    "#tip td + td { text-align: right; color: #fff; padding: 0; }",
    "#tip i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-"
    "right: 6px; }",
    "</style>",
    "</head>",
    "<body>",
    "<main>",
    "<h1>Memory over a step</h1>",
    "<p class=\"sub\" id=\"sub\"></p>",
    "<dl class=\"facts\" id=\"facts\"></dl>",
    "<div class=\"bar\">",
    "  <div class=\"group\" role=\"group\" aria-label=\"view\">",
    "    <button id=\"by-kind\" aria-pressed=\"true\">by kind</button>",
    "    <button id=\"by-address\" aria-pressed=\"false\">by address</button>",
    "  </div>",
    "  <div class=\"group\" role=\"group\" aria-label=\"axis\">",
    "    <button id=\"in-time\" aria-pressed=\"true\">time</button>",
    "    <button id=\"in-steps\" aria-pressed=\"false\">steps</button>",
    "  </div>",
    "  <div class=\"group\" role=\"group\" aria-label=\"bytes\">",
    "    <button id=\"all-bytes\" aria-pressed=\"true\">all bytes</button>",
    "    <button id=\"moving-bytes\" aria-pressed=\"false\">above what stays</button>",
    "  </div>",
    "  <input id=\"find\" type=\"search\" placeholder=\"highlight storages by name\" aria-label"
    "=\"highlight\">",
    "</div>",
    "<div class=\"bar\"><div class=\"legend\" id=\"legend\"></div></div>",
    "<div class=\"card\"><canvas id=\"plot\" tabindex=\"0\" aria-label=\"memory over the step\"><"
    "/canvas></div>",
    "<div class=\"bar under\"><div class=\"legend\" id=\"phases\"></div></div>",
    "<p class=\"hint\">Wheel zooms, dragging moves, a double click shows the whole step. A "
    "click on a block",
    "in the view by address marks every stretch of that storage. Keys: + &minus; &larr; &"
    "rarr; 0.</p>",
    "</main>",
    "<div id=\"tip\" hidden></div>",
    "<script src=\"timeline.js\"></script>",
    "</body>",
    "</html>",
    NULL};
