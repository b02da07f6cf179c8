'use strict';
const D = /*DATA*/null;
const errors = [];
window.onerror = (m) => { errors.push(String(m)); };

// ---- categories: the kinds of storages, and recomputed ones ------------------------------------
const KIND = ['input', 'activation', 'temporary', 'gradient', 'parameter', 'optimizer'];
const CATEGORY = [
  ['parameters', '#3b6fb6'], ['optimizer state', '#8fb0dd'], ['gradients', '#8a63b8'],
  ['inputs', '#2f9c96'], ['activations', '#57a55a'], ['recomputed', '#ef8e2c'],
  ['temporaries', '#dfc03a'], ['workspace', '#a0745c'], ['context, libraries', '#c7a6a0']];
const PROCESS = 8, UPWARD = [PROCESS, 0, 1, 2, 3, 4, 5, 6, 7]; // from the bottom of the picture
const OF_KIND = [3, 4, 6, 2, 0, 1];
const PHASE = ['forward', 'backward', 'update'];
const PHASE_COLOUR = ['#b9c2cd', '#64707f', '#4fb0c6'];
const AGAIN = '#ef8e2c'; // recomputed ops and their results
const NS = D.steps.length;

function category(plan, storage, first) {
  if (storage === -2) return PROCESS;
  if (storage < 0) return 7;
  const c = OF_KIND[plan.storages[storage][1]];
  return (c === 3 || c === 4) && plan.steps[first][1] ? 5 : c;
}

// ---- times: the steps of the compute queue in order, with waits between them ----------------------
// Collectives and host updates have their own queues.  Here they start at the current time of the
// compute queue and take no time on it.  Deferred updates run in the body, where no step waits for
// that; they are drawn with the other queues.
const COMPUTE = 0, COLLECTIVE = 1, DEFERRED = 3;
function timesOf(plan) {
  const n = plan.steps.length, start = new Float64Array(n + 1), waits = new Float64Array(n);
  const deferred = plan.steps.filter((s) => s[2] === DEFERRED);
  let t = 0, late = 0;
  plan.steps.forEach(([, , queue, from, to], k) => {
    start[k] = queue === COMPUTE ? from : t;
    if (queue !== COMPUTE) return;
    let waited = from - t;
    for (; late < deferred.length && deferred[late][3] < from; late++)
      waited -= deferred[late][4] - deferred[late][3];
    waits[k] = waited > 1e-9 * to ? waited : 0;
    t = to;
  });
  start[n] = t;
  return {start, waits};
}
const {start, waits} = timesOf(D);

// ---- blocks of memory ----------------------------------------------------------------------------
// A block: storage, first step, last step, offset, bytes, category.  Persistent storages that never
// leave are drawn below the others for the whole step.
function blocksOf(plan) {
  const device = [], host = [], nvme = [], n = plan.steps.length;
  if (plan.process) device.push([-2, 0, n - 1, 0, plan.process, PROCESS]);
  const placed = new Set(plan.instances.filter((i) => i[0] >= 0).map((i) => i[0]));
  let at = plan.process;
  plan.storages.forEach((s, i) => {
    if (!s[3] || placed.has(i)) return;
    device.push([i, 0, n - 1, at, s[2], category(plan, i, 0)]);
    at += s[2];
  });
  for (const [s, first, last, offset] of plan.instances) {
    const bytes = s < 0 ? plan.ops[plan.steps[first][0]][3] : plan.storages[s][2];
    device.push([s, first, last, plan.process + plan.persistent + offset, bytes, category(plan, s, first)]);
  }
  for (const [s, tier, out, , , use, offset] of plan.offloads) {
    const to = tier === 2 ? host : nvme, bytes = plan.storages[s][2], c = category(plan, s, 0);
    if (use > out) to.push([s, out, use, offset, bytes, c]);
    else if (use === out) to.push([s, 0, n - 1, offset, bytes, c]);
    else to.push([s, out, n - 1, offset, bytes, c], [s, 0, use, offset, bytes, c]);
  }
  return {device, host, nvme};
}
const {device, host, nvme} = blocksOf(D);

function totals(blocks, NS) { // per category and step
  const sums = CATEGORY.map(() => new Float64Array(NS + 1));
  for (const b of blocks) {
    sums[b[5]][b[1]] += b[4];
    sums[b[5]][b[2] + 1] -= b[4];
  }
  for (const s of sums) for (let k = 1; k <= NS; k++) s[k] += s[k - 1];
  return sums;
}

function aliveOf(sums, n) {
  const all = new Float64Array(n);
  for (let k = 0; k < n; k++) for (const s of sums) all[k] += s[k];
  return all;
}
function tier(name, blocks, top, budget, height) {
  const sums = totals(blocks, NS), all = aliveOf(sums, NS);
  const peak = all.reduce((a, b) => Math.max(a, b), 0);
  const most = Math.max(top, peak, 1), high = 1.06 * (budget < 1.6 * most ? Math.max(most, budget) : most);
  return {name, blocks, sums, all, peak, budget, height, base: 0, top: high, span: high};
}
const STAYS = D.process + D.persistent, PEAK = STAYS + D.transient;
const tiers = [tier('device', device, PEAK, D.budget, 340)];
if (host.length) tiers.push(tier('host', host, D.host_bytes, 0, 110));
if (nvme.length) tiers.push(tier('nvme', nvme, D.nvme_bytes, 0, 110));

// ---- text ----------------------------------------------------------------------------------------
function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  while (n >= 1023.995 && u < 4) { n /= 1024; u++; }
  return (u ? n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0) : n) + ' ' + units[u];
}
function seconds(s) {
  if (!s) return '0 s';
  if (s >= 1) return s.toPrecision(4) + ' s';
  if (s >= 1e-3) return (s * 1e3).toPrecision(4) + ' ms';
  return (s * 1e6).toPrecision(3) + ' \u00b5s';
}
function escape(text) {
  return text.replace(/[&<>"]/g, (c) => '&#' + c.charCodeAt(0) + ';');
}
function storageName(s, step) {
  if (s === -2) return 'context, libraries';
  return s < 0 ? 'workspace of ' + D.ops[D.steps[step][0]][0] : D.storages[s][0];
}

// ---- the head ------------------------------------------------------------------------------------
let other = null; // the plan that this one is compared with
function factsOf(plan) {
  const compute = plan.seconds - plan.recompute - plan.exposed;
  const percent = (x) => compute > 0 ? '+' + (100 * x / compute).toFixed(1) + ' %' : '';
  const context = plan.process ? bytes(plan.process) + ' context' : '';
  return [
    ['predicted step', seconds(plan.seconds), plan.micro > 1 ? plan.micro + ' micro-steps' : ''],
    ['recompute', seconds(plan.recompute), percent(plan.recompute)],
    ['exposed', seconds(plan.exposed), percent(plan.exposed)],
    ['device peak', bytes(plan.process + plan.persistent + plan.transient), context],
    ['device budget', plan.budget ? bytes(plan.budget) : 'none', ''],
    ['host', bytes(plan.host_bytes), ''], ['nvme', bytes(plan.nvme_bytes), '']];
}
function showFacts() {
  const own = factsOf(D), others = other ? factsOf(other.plan) : [];
  const used = own.filter((f, i) => !['host', 'nvme'].includes(f[0]) || f[1] !== '0 B' ||
    (other && others[i][1] !== '0 B'));
  document.getElementById('facts').innerHTML = used.map(([name, value, note]) => {
    const its = others.find((f) => f[0] === name);
    return `<div><dt>${name}</dt><dd>${value} <small>${note}</small></dd>` +
      (its ? `<dd class="other">${its[1]} <small>${its[2]}</small></dd>` : '') + '</div>';
  }).join('');
}
showFacts();
{
  document.getElementById('sub').textContent =
    `${D.machine}: ${NS.toLocaleString('en')} steps, ` +
    `${D.steps.filter((s) => s[1]).length.toLocaleString('en')} of them recompute` +
    (D.micro > 1 ? '; the body is drawn once' : '');
  const used = CATEGORY.filter((c, i) => tiers.some((t) => t.sums[i].some((v) => v > 0)));
  document.getElementById('legend').innerHTML = used.map(([name, colour]) =>
    `<span><i style="background:${colour}"></i>${name}</span>`).join('');
  const phases = PHASE.map((name, i) => [name, PHASE_COLOUR[i]]);
  document.getElementById('phases').innerHTML = 'ops:' + [...phases, ['recompute', AGAIN], ['waiting', 'var(--limit)']].map(
    ([name, colour]) => `<span><i style="background:${colour}"></i>${name}</span>`).join('');
}

// ---- the other queues ------------------------------------------------------------------------------
const lanes = [];
function addLane(name, spans) {
  if (spans.length) lanes.push({name, spans});
}
{
  const copy = (q, time, steps, way) => ({time, steps, colour: CATEGORY[category(D, q[0], 0)][1],
    title: D.storages[q[0]][0], facts: [['copied ' + way, bytes(D.storages[q[0]][2])],
      ['tier', q[1] === 2 ? 'host' : 'nvme']]});
  const beside = (wanted, colour, what) => D.steps.flatMap(([op, , queue, from, to], k) =>
    queue !== wanted ? [] : [{time: [from, to], steps: [k, k + 1], colour, title: D.ops[op][0],
      facts: [['step ' + k, what]]}]);
  addLane('copy out', D.offloads.filter((q) => q[8] > q[7]).map((q) =>
    copy(q, [q[7], q[8]], [q[2] + 1, q[3] + 1], 'out')));
  addLane('copy in', D.offloads.map((q) => copy(q, [q[9], q[10]], [q[4], q[5]], 'in')));
  addLane('collectives', beside(COLLECTIVE, PHASE_COLOUR[1], 'collective'));
  addLane('deferred', beside(DEFERRED, PHASE_COLOUR[2], 'update of the step before'));
  const repeats = (D.repeats || []).map(([k, from, to]) => ({time: [from, to], steps: [k, k + 1],
    colour: AGAIN, title: D.ops[D.steps[k][0]][0], facts: [['step ' + k, 'repeated on the host']]}));
  addLane('on host', beside(2, PHASE_COLOUR[2], 'update on the host').concat(repeats));
}
// The spans that end when the compute queue stops waiting.
function awaited(k) {
  return lanes.flatMap((lane) => lane.spans).filter((q) =>
    Math.abs(q.time[1] - start[k]) <= 1e-6 * end()).map((q) => q.title);
}

// ---- the picture ---------------------------------------------------------------------------------
const canvas = document.getElementById('plot'), c = canvas.getContext('2d');
const tip = document.getElementById('tip');
const LEFT = 86, RIGHT = 14, GAP = 34, OPS = 30, LANE = 13;
let view = 'kind', axis = 'time', marked = -1, query = '', panels = [];
let from = 0, to = 1; // visible range, in units of the axis
let width = 0, height = 0;

const end = () => axis === 'time' ? Math.max(start[NS], other ? other.start[other.n] : 0) || 1 : NS;
const at = (k) => axis === 'time' ? start[k] : k;
const toX = (v) => LEFT + (v - from) / (to - from) * (width - LEFT - RIGHT);
const toV = (x) => from + (x - LEFT) / (width - LEFT - RIGHT) * (to - from);
const duration = (k) => D.steps[k][2] === COMPUTE ? D.steps[k][4] - D.steps[k][3] : 0;
const endOf = (k) => axis === 'time' ? start[k] + duration(k) : k + 1;

function stepAt(v) { // the last step that starts at or before v
  let low = 0, high = NS;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at(middle) <= v) low = middle; else high = middle;
  }
  return low;
}

function layout() {
  let y = 26;
  panels = tiers.map((t) => {
    const p = {tier: t, y, height: t.height};
    y += t.height + GAP;
    return p;
  });
  if (lanes.length) {
    panels.push({lanes: true, y, height: lanes.length * (LANE + 4)});
    y += lanes.length * (LANE + 4) + 6;
  }
  panels.push({ops: true, y, height: OPS});
  y += OPS + 30;
  const ratio = window.devicePixelRatio || 1;
  width = canvas.parentElement.clientWidth - 16;
  height = y;
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
}

let ink = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['card', 'ink', 'soft', 'line', 'empty', 'limit'])
    ink[name] = style.getPropertyValue('--' + name).trim();
}

const toY = (p, v) => p.y + p.height * (1 - (v - p.tier.base) / p.tier.span);

function niceStep(range, n) {
  const power = Math.pow(10, Math.floor(Math.log10(range / n))), rest = range / n / power;
  return power * (rest > 5 ? 10 : rest > 2 ? 5 : rest > 1 ? 2 : 1);
}

function drawScale(p) {
  const t = p.tier, unit = Math.pow(1024, Math.min(4, Math.floor(Math.log(t.span) / Math.log(1024))));
  const step = niceStep(t.span / unit, p.height / 48) * unit;
  c.fillStyle = ink.empty;
  c.fillRect(LEFT, p.y, width - LEFT - RIGHT, p.height);
  c.font = '12px system-ui, sans-serif';
  c.textAlign = 'right';
  c.textBaseline = 'middle';
  for (let v = Math.ceil(t.base / step) * step; v <= t.base + t.span; v += step) {
    const y = toY(p, v);
    c.strokeStyle = ink.line;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(LEFT, y);
    c.lineTo(width - RIGHT, y);
    c.stroke();
    c.fillStyle = ink.soft;
    c.fillText(v ? bytes(v).replace(/\.0+ /, ' ') : '0', LEFT - 8, y);
  }
}

// By kind: one column per pixel, showing the step with the most bytes.
function drawKinds(p) {
  const t = p.tier, x1 = width - RIGHT;
  let k = stepAt(toV(LEFT));
  for (let x = LEFT; x < x1; x++) {
    const limit = toV(x + 1);
    let best = k;
    for (; k + 1 < NS && at(k + 1) < limit; k++) if (t.all[k + 1] > t.all[best]) best = k + 1;
    if (at(best) >= limit || toV(x) >= end()) continue;
    let sum = 0;
    for (const i of UPWARD) {
      const v = t.sums[i][best];
      if (v <= 0) continue;
      const y0 = toY(p, sum + v), y1 = toY(p, sum);
      c.fillStyle = CATEGORY[i][1];
      c.fillRect(x, y0, 1.5, y1 - y0 + .3);
      sum += v;
    }
  }
}

// The other plan, as a line over this one.
function drawOther(p) {
  const all = other && axis === 'time' && other.alive[p.tier.name];
  if (!all) return;
  c.strokeStyle = ink.ink;
  c.lineWidth = 2;
  c.beginPath();
  all.forEach((v, k) => {
    const y = toY(p, v);
    c.lineTo(toX(other.start[k]), y);
    c.lineTo(toX(other.start[k + 1]), y);
  });
  c.stroke();
}

function drawBlock(p, b, strong) {
  const x0 = Math.max(LEFT, toX(at(b[1]))), x1 = Math.min(width - RIGHT, toX(endOf(b[2])));
  if (x1 <= LEFT || x0 >= width - RIGHT) return;
  const y = toY(p, b[3] + b[4]), h = b[4] / p.tier.span * p.height;
  if (y > p.y + p.height) return;
  const w = Math.max(x1 - x0, .6), gap = w > 3 && h > 3 ? .7 : 0;
  c.globalAlpha = strong === false ? .18 : .8 + .2 * ((b[0] * 7 & 15) / 15);
  c.fillStyle = CATEGORY[b[5]][1];
  c.fillRect(x0, y, w - gap, Math.max(h - gap, .4));
  c.globalAlpha = 1;
  if (strong && w > 4 && h > 4) {
    c.strokeStyle = ink.ink;
    c.lineWidth = 1.5;
    c.strokeRect(x0, y, w, Math.max(h, 1));
  }
  if (w > 70 && h > 13) {
    c.save();
    c.beginPath();
    c.rect(x0, y, w - 6, h);
    c.clip();
    c.fillStyle = strong === false ? ink.soft : '#fff';
    c.font = '11px system-ui, sans-serif';
    c.textAlign = 'left';
    c.textBaseline = 'middle';
    c.fillText(storageName(b[0], b[1]), x0 + 5, y + h / 2 + .5);
    c.restore();
  }
}

function wanted(b) { // true: highlighted, false: faded, undefined: no filter
  if (marked >= 0) return b[0] === marked;
  if (query) return storageName(b[0], b[1]).toLowerCase().includes(query);
  return undefined;
}

function drawAddresses(p) {
  const later = [];
  for (const b of p.tier.blocks) {
    const w = wanted(b);
    if (w) later.push(b); else drawBlock(p, b, w);
  }
  for (const b of later) drawBlock(p, b, true);
}

// Where backward and update begin: a thin line through the panel, with the name of the phase.
const BEGINS = [0, 1, 2].map((phase) =>
  D.steps.findIndex(([op, again]) => !again && D.ops[op][1] === phase));
function drawPhases(p) {
  c.font = '12px system-ui, sans-serif';
  c.textAlign = 'left';
  c.textBaseline = 'bottom';
  BEGINS.forEach((k, phase) => {
    const x = k < 0 ? -1 : toX(at(k));
    if (x < LEFT || x > width - RIGHT) return;
    if (k > 0) {
      c.strokeStyle = ink.soft;
      c.lineWidth = 1;
      c.setLineDash([2, 3]);
      c.beginPath();
      c.moveTo(x, p.y);
      c.lineTo(x, p.y + p.height);
      c.stroke();
      c.setLineDash([]);
    }
    c.fillStyle = ink.soft;
    const room = width - RIGHT - x;
    c.textAlign = room < 60 ? 'right' : 'left';
    if (phase || x > LEFT + 60 || room > 200)
      c.fillText(PHASE[phase], phase ? x + (room < 60 ? -3 : 3) : x + 58, p.y - 1);
  });
}

function drawLimit(p) {
  const t = p.tier;
  c.textBaseline = 'bottom';
  c.textAlign = 'left';
  c.font = '600 12.5px system-ui, sans-serif';
  c.fillStyle = ink.ink;
  c.fillText(t.name, LEFT + 2, p.y - 1);
  if (!t.budget) return;
  const y = toY(p, t.budget);
  c.strokeStyle = c.fillStyle = ink.limit;
  c.textAlign = 'right';
  if (t.budget > t.base + t.span) { // far above the used memory
    c.fillText('budget ' + bytes(t.budget) + ' \u2191', width - RIGHT - 4, p.y - 1);
    return;
  }
  c.lineWidth = 1.6;
  c.setLineDash([7, 4]);
  c.beginPath();
  c.moveTo(LEFT, y);
  c.lineTo(width - RIGHT, y);
  c.stroke();
  c.setLineDash([]);
  c.fillText('budget ' + bytes(t.budget), width - RIGHT - 4, y - 2);
}

function drawLanes(p) { // each span at its own time
  c.font = '12px system-ui, sans-serif';
  c.textBaseline = 'middle';
  lanes.forEach((lane, i) => {
    const y = p.y + i * (LANE + 4);
    c.textAlign = 'right';
    c.fillStyle = ink.soft;
    c.fillText(lane.name, LEFT - 8, y + LANE / 2);
    c.fillStyle = ink.empty;
    c.fillRect(LEFT, y, width - LEFT - RIGHT, LANE);
    for (const q of lane.spans) {
      const [a, b] = axis === 'time' ? q.time : q.steps;
      const x0 = Math.max(LEFT, toX(a)), x1 = Math.min(width - RIGHT, toX(b));
      if (x1 <= x0) continue;
      c.fillStyle = q.colour;
      c.fillRect(x0, y, Math.max(x1 - x0 - .5, .5), LANE);
    }
  });
}

function drawOps(p) {
  c.font = '12px system-ui, sans-serif';
  c.textAlign = 'right';
  c.textBaseline = 'middle';
  c.fillStyle = ink.soft;
  c.fillText('ops', LEFT - 8, p.y + p.height / 2);
  c.fillStyle = ink.empty;
  c.fillRect(LEFT, p.y, width - LEFT - RIGHT, p.height);
  for (let k = stepAt(from); k < NS && at(k) < to; k++) {
    const x0 = Math.max(LEFT, toX(at(k))), x1 = Math.min(width - RIGHT, toX(endOf(k)));
    const w = x1 - x0, [op, again] = D.steps[k], before = Math.max(LEFT, toX(at(k) - waits[k]));
    if (waits[k] && axis === 'time' && x0 > before) {
      c.fillStyle = ink.limit;
      c.fillRect(before, p.y + p.height / 3, x0 - before, p.height / 3);
    }
    if (w <= 0) continue;
    c.fillStyle = again ? AGAIN : PHASE_COLOUR[D.ops[op][1]];
    c.fillRect(x0, p.y, Math.max(w > 2.5 ? w - .7 : w, .5), p.height);
    if (w < 46) continue;
    c.save();
    c.beginPath();
    c.rect(x0, p.y, w - 4, p.height);
    c.clip();
    c.fillStyle = again || D.ops[op][1] === 0 ? '#10161f' : '#fff';
    c.font = '11px system-ui, sans-serif';
    c.textAlign = 'left';
    c.fillText(D.ops[op][0], x0 + 4, p.y + p.height / 2);
    c.restore();
  }
}

function drawAxis() {
  const y = height - 26, step = niceStep(to - from, Math.max(2, width / 130));
  c.font = '12px system-ui, sans-serif';
  c.textBaseline = 'top';
  c.textAlign = 'center';
  for (let i = Math.ceil(from / step); i * step <= to * (1 + 1e-12); i++) {
    const v = i * step, x = toX(v);
    if (axis !== 'time' && step < 1 && v % 1) continue;
    c.strokeStyle = ink.line;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x, y + 5);
    c.stroke();
    c.fillStyle = ink.soft;
    c.textAlign = x > width - 36 ? 'right' : 'center';
    c.fillText(axis !== 'time' ? v.toLocaleString('en') : tickText(v, step), Math.min(x, width - 2), y + 8);
  }
}
function tickText(v, step) {
  const [unit, name] = end() >= 1 && step >= 1e-3 ? [1, ' s'] : step >= 1e-6 * 50 ? [1e-3, ' ms']
    : [1e-6, ' \u00b5s'];
  return (v / unit).toFixed(Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9))) + name;
}

function draw() {
  c.clearRect(0, 0, width, height);
  for (const p of panels) {
    if (p.ops) drawOps(p);
    else if (p.lanes) drawLanes(p);
    else {
      drawScale(p);
      c.save();
      c.beginPath();
      c.rect(LEFT, p.y, width - LEFT - RIGHT, p.height);
      c.clip();
      if (view === 'kind') drawKinds(p); else drawAddresses(p);
      drawOther(p);
      c.restore();
      drawPhases(p);
      drawLimit(p);
    }
  }
  drawAxis();
}
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

// ---- hovering ------------------------------------------------------------------------------------
function row(name, value, colour) {
  const mark = colour ? `<i style="background:${colour}"></i>` : '';
  return `<tr><td>${mark}${escape(name)}</td><td>${escape(value)}</td></tr>`;
}
function blockAt(p, k, y) {
  const offset = p.tier.base + (p.y + p.height - y) / p.height * p.tier.span;
  return p.tier.blocks.find((b) => b[1] <= k && k <= b[2] && b[3] <= offset && offset < b[3] + b[4]);
}
function describeOp(k) {
  const [op, again] = D.steps[k], o = D.ops[op], for_ = waits[k] ? awaited(k) : [];
  return `<b>${escape(o[0])}</b><table>` +
    row('step ' + k, again ? 'recompute' : PHASE[o[1]], again ? AGAIN : PHASE_COLOUR[o[1]]) +
    row('takes', seconds(duration(k))) + (waits[k] ? row('waits before', seconds(waits[k]), 'var(--limit)') : '') +
    (for_.length ? row('for', for_.slice(0, 3).join(', ')) : '') + (o[3] ? row('workspace', bytes(o[3])) : '') +
    row('device bytes alive', bytes(tiers[0].all[k])) + '</table>';
}
function describeBlock(p, b, k) {
  return `<b>${escape(storageName(b[0], b[1]))}</b><table>` +
    row(CATEGORY[b[5]][0], bytes(b[4]), CATEGORY[b[5]][1]) +
    (b[0] >= 0 ? row('storage', '#' + b[0]) : '') +
    row('in ' + p.tier.name, `steps ${b[1]} to ${b[2]}`) + row('for', seconds(start[b[2] + 1] - start[b[1]])) +
    row('at offset', bytes(b[3])) + row('now', 'step ' + k) + '</table>';
}
function describeKinds(p, k) {
  let rows = '';
  CATEGORY.forEach(([name, colour], i) => {
    if (p.tier.sums[i][k] > 0) rows = row(name, bytes(p.tier.sums[i][k]), colour) + rows;
  });
  return `<b>${escape(D.ops[D.steps[k][0]][0])}</b><table>` + row('step ' + k, seconds(start[k])) +
    rows + row(p.tier.name + ', alive', bytes(p.tier.all[k])) + '</table>';
}
function describeLane(p, x, y) {
  const lane = lanes[Math.min(lanes.length - 1, Math.floor((y - p.y) / (LANE + 4)))], v = toV(x);
  const within = (q) => { const [a, b] = axis === 'time' ? q.time : q.steps; return a <= v && v < b; };
  const q = lane.spans.find(within);
  if (!q) return '';
  return `<b>${escape(q.title)}</b><table>` + q.facts.map(([name, value]) => row(name, value)).join('') +
    row('takes', seconds(q.time[1] - q.time[0])) + '</table>';
}
function describe(x, y) {
  const p = panels.find((q) => y >= q.y && y < q.y + q.height);
  if (!p || x < LEFT || x > width - RIGHT || !NS) return '';
  const k = Math.min(NS - 1, stepAt(toV(x)));
  if (p.ops) return describeOp(k);
  if (p.lanes) return describeLane(p, x, y);
  if (view === 'kind') return describeKinds(p, k);
  const b = blockAt(p, k, y);
  return b ? describeBlock(p, b, k) : '';
}
function place(e) {
  const text = describe(e.offsetX, e.offsetY);
  tip.hidden = !text;
  if (!text) return;
  tip.innerHTML = text;
  const r = tip.getBoundingClientRect(), margin = 14;
  let x = e.clientX + margin, y = e.clientY + margin;
  if (x + r.width > innerWidth - 6) x = Math.max(6, e.clientX - margin - r.width);
  if (y + r.height > innerHeight - 6) y = Math.max(6, e.clientY - margin - r.height);
  tip.style.left = x + 'px';
  tip.style.top = y + 'px';
}

// ---- moving --------------------------------------------------------------------------------------
function show(a, b) {
  const least = axis === 'time' ? end() / 1e7 : 4, w = Math.min(end(), Math.max(least, b - a));
  from = Math.max(0, Math.min(end() - w, a + (b - a - w) / 2));
  to = from + w;
  redraw();
}
function zoom(v, factor) { show(v - (v - from) * factor, v + (to - v) * factor); }

let drag = null;
canvas.addEventListener('wheel', (e) => {
  e.preventDefault();
  if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
    const d = e.deltaX / (width - LEFT - RIGHT) * (to - from);
    show(from + d, to + d);
  } else zoom(toV(Math.max(LEFT, e.offsetX)), Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))));
  place(e);
}, {passive: false});
canvas.addEventListener('pointerdown', (e) => {
  drag = {x: e.offsetX, from, to, moved: false};
  try { canvas.setPointerCapture(e.pointerId); } catch (_) { /* an event of a script */ }
});
canvas.addEventListener('pointermove', (e) => {
  if (!drag) return place(e);
  const d = (drag.x - e.offsetX) / (width - LEFT - RIGHT) * (drag.to - drag.from);
  drag.moved = drag.moved || Math.abs(drag.x - e.offsetX) > 3;
  if (drag.moved) {
    tip.hidden = true;
    show(drag.from + d, drag.to + d);
  }
});
canvas.addEventListener('pointerup', (e) => {
  const click = drag && !drag.moved;
  drag = null;
  if (!click || view !== 'address') return;
  const p = panels.find((q) => q.tier && e.offsetY >= q.y && e.offsetY < q.y + q.height);
  const b = p && blockAt(p, Math.min(NS - 1, stepAt(toV(e.offsetX))), e.offsetY);
  marked = b && b[0] >= 0 && b[0] !== marked ? b[0] : -1;
  redraw();
});
canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
canvas.addEventListener('dblclick', () => show(0, end()));
canvas.addEventListener('keydown', (e) => {
  const w = to - from, middle = (from + to) / 2;
  const moves = {'+': () => zoom(middle, .7), '=': () => zoom(middle, .7), '-': () => zoom(middle, 1.4),
    ArrowLeft: () => show(from - w / 6, to - w / 6), ArrowRight: () => show(from + w / 6, to + w / 6),
    '0': () => show(0, end())};
  if (!moves[e.key]) return;
  e.preventDefault();
  moves[e.key]();
});
function choose(pair, on, set) {
  for (const id of pair)
    document.getElementById(id).setAttribute('aria-pressed', String(id === on));
  set();
  redraw();
}
const VIEWS = ['by-kind', 'by-address'], AXES = ['in-time', 'in-steps'];
const RANGES = ['all-bytes', 'moving-bytes'];
for (const id of RANGES)
  document.getElementById(id).onclick = () => choose(RANGES, id, () => {
    const t = tiers[0];
    t.base = id === 'all-bytes' ? 0 : Math.min(STAYS, .99 * t.top);
    t.span = t.top - t.base;
    if (t.base) t.span = 1.06 * (t.top / 1.06 - t.base);
  });
for (const id of VIEWS)
  document.getElementById(id).onclick = () => choose(VIEWS, id, () => { view = id.slice(3); });
for (const id of AXES)
  document.getElementById(id).onclick = () => choose(AXES, id, () => {
    const a = stepAt(from), b = Math.min(NS, stepAt(to) + 1), whole = from <= 0 && to >= end() * .999;
    axis = id.slice(3);
    if (whole) show(0, end()); else show(at(a), at(b));
  });
// ---- comparing ------------------------------------------------------------------------------------
function compareWith(plan) {
  const n = plan.steps.length, blocks = blocksOf(plan), {start} = timesOf(plan);
  const alive = {};
  for (const name of ['device', 'host', 'nvme']) {
    alive[name] = aliveOf(totals(blocks[name], n), n);
    const t = tiers.find((q) => q.name === name), peak = Math.max(...alive[name]);
    if (t && 1.06 * peak > t.top) t.span += 1.06 * peak - t.top, t.top = 1.06 * peak;
  }
  other = {plan, n, start, alive};
  showFacts();
  show(0, end());
}
async function readOther(file) {
  const found = /^const D = (\{[^]*?\});\nconst errors = /m.exec(await file.text());
  if (found) compareWith(JSON.parse(found[1]));
  document.getElementById('other').setCustomValidity(found ? '' : 'no page of ckpt plan --timeline');
  document.getElementById('other').reportValidity();
}
document.getElementById('other').addEventListener('change', (e) => {
  if (e.target.files.length) readOther(e.target.files[0]);
});
document.getElementById('find').addEventListener('input', (e) => {
  query = e.target.value.trim().toLowerCase();
  marked = -1;
  if (query && view === 'kind') document.getElementById('by-address').click();
  redraw();
});
new ResizeObserver(() => { layout(); draw(); }).observe(canvas.parentElement);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); draw(); });
readColours();
to = end();
layout();
draw();
