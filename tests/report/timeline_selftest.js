// SPDX-License-Identifier: Apache-2.0
// What a person would do with the page of a plan, with the outcome in its title: test_timeline.sh
// puts this at the end of its script.
function fire(type, x, y, more) {
  const r = canvas.getBoundingClientRect();
  const make = type === 'wheel' ? WheelEvent : PointerEvent;
  canvas.dispatchEvent(new make(type, Object.assign({clientX: r.left + x, clientY: r.top + y,
    bubbles: true, cancelable: true}, more)));
}
function colours(p) { // colours of categories that can be seen in a panel
  const ratio = canvas.width / width, seen = new Set();
  const copy = document.createElement('canvas'), into = copy.getContext('2d', {willReadFrequently: true});
  copy.width = Math.floor((width - LEFT - RIGHT) * ratio);
  copy.height = Math.floor(p.height * ratio);
  into.drawImage(canvas, -LEFT * ratio, -p.y * ratio);
  const data = into.getImageData(0, 0, copy.width, copy.height).data;
  for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
  return seen;
}
function selftest() {
  const failed = [], check = (ok, what) => { if (!ok) failed.push(what); };
  const big = tiers[0].blocks.reduce((a, b) => a[4] * (a[2] - a[1] + 1) > b[4] * (b[2] - b[1] + 1) ? a : b);
  panels.filter((p) => p.tier).forEach((p) => {
    const seen = colours(p);
    CATEGORY.forEach(([name, colour], i) => {
      const share = p.tier.sums[i].reduce((a, b) => Math.max(a, b), 0) / p.tier.span * p.height;
      check(share < 3 || seen.has(parseInt(colour.slice(1), 16)), `no ${name} is drawn in ${p.tier.name}`);
    });
  });
  check(colours(panels[panels.length - 1]).size > 1, 'no ops are drawn');
  const p = panels[0], k = (big[1] + big[2]) >> 1;
  const x = toX((at(k) + endOf(k)) / 2), y = toY(p, big[3] + big[4] / 2);
  fire('pointermove', x, p.y + p.height - 4);
  check(!tip.hidden && tip.textContent.includes('alive'), 'no tip over the kinds');
  document.getElementById('by-address').click();
  draw();
  fire('pointermove', x, y);
  check(!tip.hidden && tip.textContent.includes(storageName(big[0], big[1])), 'no tip over a block');
  fire('pointermove', x, panels[panels.length - 1].y + 3);
  check(!tip.hidden && /forward|backward|update|recompute/.test(tip.textContent), 'no tip over the ops');
  fire('pointermove', 2, 2);
  check(tip.hidden, 'a tip outside');
  const before = to - from;
  fire('wheel', (LEFT + width) / 2, y, {deltaY: -300});
  check(to - from < before, 'the wheel does not zoom');
  const left = from;
  fire('pointerdown', width / 2, y, {pointerId: 1});
  fire('pointermove', width / 2 - 60, y, {pointerId: 1});
  fire('pointerup', width / 2 - 60, y, {pointerId: 1});
  check(from > left, 'dragging does not move');
  document.getElementById('moving-bytes').click();
  check(p.tier.base > 0 || !STAYS, 'what stays is still shown');
  document.getElementById('all-bytes').click();
  document.getElementById('in-steps').click();
  fire('dblclick', x, y);
  check(from === 0 && to === NS, 'a double click does not show all');
  draw();
  const waited = waits.findIndex((w) => w > end() / 100);
  document.getElementById('in-time').click();
  draw();
  if (waited >= 0) {
    const limit = parseInt(ink.limit.slice(1), 16);
    check(colours(panels[panels.length - 1]).has(limit), 'no wait is drawn');
    check(/waits before/.test(describeOp(waited)), 'no tip about a wait');
  }
  lanes.forEach((lane, i) => check(colours(panels.find((q) => q.lanes)).size > 1, `no ${lane.name}`));
  const page = `const D = ${JSON.stringify(Object.assign({}, D, {seconds: 2 * D.seconds}))};\nconst errors = [];`;
  readOther(new File([page], 'other.html')).then(() => {
    draw();
    check(document.querySelectorAll('.other').length > 4, 'no facts of another plan');
    check(other && colours(panels[0]).has(parseInt(ink.ink.slice(1), 16)), 'no line of another plan');
    tell(failed);
  });
  check(!errors.length, errors.join('; '));
}
function tell(failed) {
  document.title = failed.length ? 'selftest failed: ' + failed.join(', ') : 'selftest ok';
  document.documentElement.dataset.blocks = device.length;
  document.documentElement.dataset.waits = waits.filter((w) => w > 0).length;
}
selftest();
