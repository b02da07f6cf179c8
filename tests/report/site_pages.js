/* SPDX-License-Identifier: Apache-2.0 */
/* Opens each of `pages`, a path and a width, in a frame of that width, and writes into the title what a
 * reader would find broken: a page wider than the frame, with what sticks out, or a picture that is
 * not there. */
"use strict";

/* Whether a box of its own scrolls what it holds, as those of code and of tables do. */
function scrolls(element, view) {
    for (let e = element.parentElement; e; e = e.parentElement)
        if (view.getComputedStyle(e).overflowX !== "visible")
            return true;
    return false;
}

function widest(page, view, width) {
    let right = width, name = "";
    for (const e of page.querySelectorAll("article *")) {
        const box = e.getBoundingClientRect();
        if (box.width && box.right > right + 1 && !scrolls(e, view)) {
            right = box.right;
            name = e.tagName + " '" + e.textContent.trim().slice(0, 40) + "'";
        }
    }
    return name;
}

function faults(frame, path, width) {
    const page = frame.contentDocument, found = [];
    const over = page.documentElement.scrollWidth - width;
    const out = widest(page, frame.contentWindow, width);
    if (over > 0 || out)
        found.push(path + " at " + width + ": " + over + " too wide: " + out);
    for (const image of page.images)
        if (!image.naturalWidth)
            found.push(path + ": no picture " + image.getAttribute("src"));
    if (!page.querySelector("h1"))
        found.push(path + ": no title");
    return found;
}

async function look(path, width) {
    const frame = document.createElement("iframe");
    frame.style.width = width + "px";
    frame.style.height = "2000px";
    frame.style.border = "0";
    document.body.append(frame);
    await new Promise(loaded => { frame.onload = loaded; frame.src = path; });
    for (const image of frame.contentDocument.images) {
        image.loading = "eager";
        if (!image.complete)
            await new Promise(loaded => { image.onload = image.onerror = loaded; });
    }
    const found = faults(frame, path, width);
    frame.remove();
    return found;
}

async function main() {
    const found = [];
    for (const [path, width] of pages) {
        document.title = "broken: " + path + " does not load";
        found.push(...await look(path, width));
    }
    document.title = found.length ? "broken: " + found.join("; ") : "pages ok: " + pages.length;
}

main().catch(e => { document.title = "broken: " + e; });
