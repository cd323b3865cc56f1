"use strict";
// Everything that comes from the cluster is set as text, never as HTML.
const $ = id => document.getElementById(id);
const EVERY = 2000, HEAT_EVERY = 3;
// How many owners the first page shows without being asked for all.
const ROWS = 10;
const TERMS = {
  Oldest: "The age of the pod that waits longest, since its first rejection; of gated pods since their creation.",
  Since: "Since the first rejection, over all retries; for gated pods since their creation.",
  Lacks: "The reasons of the last attempt, with the present amounts.", Priority: "spec.priority of the pod.",
};
// Short forms of constant texts of kube-scheduler. Other texts have names in them and are shown as they are.
const PHRASES = {
  TooManyPods: "no place for another pod", UntoleratedTaint: "taint not tolerated", NodeCordoned: "cordoned", NodeNameMismatch: "the pod names another node",
  NodeAffinityMismatch: "node selector or affinity does not match", HostPortTaken: "host port in use", TopologySpread: "topology spread constraint",
  TopologyLabelMissing: "label of the topology spread constraint missing", PodAffinity: "required pod affinity", PodAntiAffinity: "pod anti-affinity",
  ExistingPodsAntiAffinity: "anti-affinity of running pods", VolumeZoneMismatch: "volume in another zone", VolumeNodeAffinity: "volume not accessible",
  StorageFull: "too little storage", VolumeLimit: "no place for another volume", Preempting: "preempted pods have not ended yet",
};
const QUEUES = {unschedulable: "rejected", backoff: "in backoff", active: "in activeQ", gated: "gated"};
let token = "", last = null, heat = null, at = 0, round = 0, searches = 0, updated = null;

// --- texts ---
const number = value => Number(value ?? 0).toLocaleString("en");
const count = (value, one, many = one + "s") => `${number(value)} ${value === 1 ? one : many}`;
function age(seconds) {
  seconds = Math.floor(seconds ?? 0);
  if (seconds < 120) return seconds + " s";
  if (seconds < 7200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
  return Math.floor(seconds / 86400) + " d";
}
function bytes(value) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (Math.abs(value) >= size) return Number((value / size).toFixed(1)) + " " + unit;
  return value + " B";
}
const isBytes = resource => /^(memory|ephemeral-storage|hugepages-)/.test(resource);
const amount = (resource, value) => isBytes(resource) ? bytes(value) : number(resource === "cpu" ? value / 1000 : value);
const unit = resource => resource === "cpu" ? " CPU" : isBytes(resource) ? " " + resource.replace("hugepages-", "huge pages of ") : " " + resource;
// One reason in one line; `of` is the number of pods among which it was counted. A group lacks what its next member lacks.
function reasonText(reason, of, isGroup) {
  let text = PHRASES[reason.code] ?? reason.text.replace(/^node\(s\) /, "");
  if (reason.code === "SchedulingGate") text = "scheduling gate " + text;
  if (reason.wanted && reason.resource !== "pods") {
    const free = isGroup ? "too little free with the other members" : reason.free == null ? "too little free" : `at most ${amount(reason.resource, Math.max(0, reason.free))} free`;
    text = `${amount(reason.resource, reason.wanted)}${unit(reason.resource)} requested, ${free}`;
  }
  return text + (reason.nodes ? ": " + count(reason.nodes, "node") : "") + (reason.pods < of ? ` (${number(reason.pods)} of ${number(of)} pods)` : "");
}
const reasonsText = (reasons, of = 1, isGroup = false) => reasons?.length ? reasons.map(reason => reasonText(reason, of, isGroup)).join("\n") : "no reason known";
const lacksText = lacks => lacks?.map(lack => lack.text).join("\n");
const placesText = places => Object.keys(QUEUES).filter(place => places[place]).map(place => number(places[place]) + " " + QUEUES[place]).join("\n");

// --- elements ---
function make(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (name) made.className = name;
  return made;
}
const setText = (of, text) => { if (of.textContent !== text) of.textContent = text; };
const path = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
// A link; a long name is broken behind a slash.
function link(text, href) {
  const made = make("a");
  made.href = href;
  String(text).split(/(?<=\/)/).forEach((part, n) => made.append(...n ? [make("wbr"), part] : [part]));
  return made;
}
const podLink = (key, text = key) => link(text, path("pod", ...key.split("/")));
const nodeLink = name => name ? link(name, path("node", name)) : "";
function ownerLink(namespace, owner) {
  const [kind, name] = owner.split("/"), made = make("span");
  made.append(link(owner, kind === "PodGroup" ? path("group", namespace, name) : path("owner", namespace, kind, name)), " ", make("span", "in " + namespace, "dim whole"));
  return made;
}
// Updates the children of an element in place, by key: the focus and the place on the page stay.
function keyed(parent, rows, create, update) {
  const old = new Map([...parent.children].map(child => [child.dataset.key, child]));
  let before = null;
  for (const row of rows) {
    let child = old.get(row.key);
    if (child) old.delete(row.key); else { child = create(row); child.dataset.key = row.key; }
    update(child, row);
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== child) parent.insertBefore(child, place);
    before = child;
  }
  for (const child of old.values()) child.remove();
}
// A table. A head that begins with # is a number; `sorts` has the heads that sort by a value of the address.
function table(into, heads, rows, empty, sorts = {}) {
  if (!rows.length) { if (into.textContent !== empty || into.firstElementChild?.tagName !== "P") into.replaceChildren(make("p", empty, "dim")); return; }
  let made = into.querySelector(":scope > table");
  if (made?.dataset.heads !== heads.join("|")) {
    made = make("table"); made.dataset.heads = heads.join("|");
    const head = make("tr");
    for (const name of heads) {
      const text = name.replace(/^#/, ""), cell = make("th", null, name === text ? "" : "n"), term = make(sorts[text] ? "button" : "span", text);
      if (sorts[text]) { term.type = "button"; term.onclick = () => ask("sort", sorts[text]); }
      if (TERMS[text]) term.title = TERMS[text];
      cell.scope = "col"; cell.append(term); head.append(cell);
    }
    made.append(make("thead"), make("tbody")); made.tHead.append(head);
    into.replaceChildren(made);
  }
  const sorted = query().get("sort") ?? Object.values(sorts)[0];
  [...made.tHead.rows[0].cells].forEach(cell => { if (sorts[cell.textContent] === sorted && sorted) cell.ariaSort = sorted === "owner" ? "ascending" : "descending"; else cell.ariaSort = null; });
  keyed(made.tBodies[0], rows.map((row, n) => ({key: String(row.key ?? n), cells: row.cells ?? row})), () => {
    const line = make("tr");
    for (const name of heads) { const cell = make("td", null, name.startsWith("#") ? "n" : ""); cell.dataset.head = name.replace(/^#/, ""); line.append(cell); }
    return line;
  }, (line, row) => row.cells.forEach((value, n) => {
    const cell = line.cells[n];
    if (!(value instanceof Node)) setText(cell, String(value ?? "")); else if (!cell.firstChild?.isEqualNode(value)) cell.replaceChildren(value);
  }));
}

// --- the address: #/page/parts?filters ---
function address() {
  const [page, text] = location.hash.replace(/^#\/?/, "").split("?");
  return {page, parts: page.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(text)};
}
const query = () => address().query;
function hash(page, parameters) { const text = parameters.toString(); return "#/" + page + (text ? "?" + text : ""); }
// Sets a filter in the address and shows what it leaves.
function ask(name, value) {
  const {page, query: all} = address();
  if (value) all.set(name, value); else all.delete(name);
  history.replaceState(null, "", hash(page, all));
  fill();
  round = 0;
  load().catch(failed);
}
const FILTERS = ["namespace", "owner", "reason", "place"];
// Sets the fields to what the address has.
function fill() {
  const all = query();
  for (const id of FILTERS) {
    const value = all.get(id) ?? "", field = $(id);
    if (document.activeElement === field && field.tagName === "INPUT") continue;
    if (field.tagName === "SELECT" && ![...field.options].some(option => option.value === value)) field.append(new Option(value));
    field.value = value;
  }
}

// --- requests ---
const request = path => fetch(path, {headers: token ? {Authorization: "Bearer " + token} : {}, cache: "no-store"});
function refused(status) {
  $("login").hidden = false;
  $("login-why").textContent = status === 401 ? (token ? "401: the token is not valid, or has expired." : "401: this port requires a bearer token.")
    : "403: the user " + (token ? "of the token " : "") + "has no right to get /dashboard/*; bind it to a ClusterRole with that nonResourceURL.";
}
async function get(what, parameters = {}) {
  const answer = await request("dashboard/" + what + "?" + new URLSearchParams(parameters));
  if (answer.status === 401 || answer.status === 403) { refused(answer.status); throw new Error("not authorized"); }
  if (!answer.ok) throw new Error("HTTP " + answer.status);
  $("login").hidden = true;
  return answer.json();
}
// What `berth explain` answers; a paragraph if there is no answer.
async function explained(...parts) {
  const answer = await request("explain/" + parts.map(encodeURIComponent).join("/"));
  if (answer.ok) return answer.json();
  const text = {401: "The explanation requires the right to get /explain/*.", 403: "The explanation requires the right to get /explain/*.", 404: "The scheduler does not know it."};
  return make("p", text[answer.status] ?? "The scheduler returned no explanation: HTTP " + answer.status + ".", "dim");
}

// --- the first page ---
function drawState(state) {
  const {active, backoff, unschedulable, gated} = state.queue, waiting = active + backoff + unschedulable;
  const numbers = [
    ["Waiting pods", number(waiting), placesText({active, backoff, unschedulable}).replaceAll("\n", ", ") || "of " + count(state.pods, "pod"), hash("pods", "")],
    ["Oldest", state.oldest ? age(state.oldest.seconds) : "–", state.oldest?.pod ?? "no pod waits", state.oldest ? path("pod", ...state.oldest.pod.split("/")) : ""],
    ["Gated pods", number(gated), gated ? "blocked by PreEnqueue" : "none", hash("pods", "place=gated")],
    ["Scheduled", (state.isRateOfLess ? "> " : "") + Number(state.placedPerSecond.toFixed(1)) + "/s", "over the last minute", ""],
  ];
  keyed($("numbers"), numbers.map(([key, value, more, href]) => ({key, value, more, href})), row => {
    const made = make("div"); made.append(make("dt", row.key), make("dd", "", "big"), make("dd", "", "small")); return made;
  }, (made, row) => {
    setText(made.children[1], row.value);
    const more = row.href ? link(row.more, row.href) : make("span", row.more);
    if (!made.children[2].firstChild?.isEqualNode(more)) made.children[2].replaceChildren(more);
  });
  const sum = of => Object.values(of).reduce((all, n) => all + n, 0), calls = sum(state.calls.failed);
  const problems = [];
  if (last && (state.attempts.error ?? 0) > (last.attempts.error ?? 0)) problems.push("Scheduling attempts end with errors: see the log of the scheduler.");
  if (state.flushRescues) problems.push(count(state.flushRescues, "pod was", "pods were") + " scheduled only because of the periodic flush: no event moved them.");
  if (calls) problems.push(count(calls, "API call") + " failed since the start: see API calls.");
  table($("problems"), ["Problems"], problems.map(text => [text]), "");
  $("quotas").hidden = !state.quotas.length;
  table($("quota-rows"), ["Quota", "#Pods", "#Oldest", "First in line", "Reason"], state.quotas.slice(0, ROWS).map(row => ({key: row.quota, cells: [
    row.quota, number(row.waiting), age(row.seconds), podLink(row.first, row.first.split("/")[1]), row.reason + (row.isStuck ? "\nIt requests more than the limit and can never be admitted." : "")]})), "");
  $("evictions").hidden = !state.nominations.total;
  table($("nominations"), ["Pod", "Nominated node", "#Priority"], state.nominations.rows.map(row => ({key: row.pod, cells: [podLink(row.pod), nodeLink(row.node), number(row.priority)]})), "");
  setText($("calls"), `API calls: ${number(sum(state.calls.pending))} waiting or in flight, ${number(calls)} failed`);
  last = state;
}
function ownerCell(row) {
  if (row.owner) return ownerLink(row.namespace, row.owner);
  return "none in " + row.namespace;
}
function groupText(group) {
  if (!group) return "";
  return (group.need == null ? "" : `${number(group.need)} must start together; `) + `${number(group.scheduled)} of ${number(group.known)} have a node\n`;
}
async function loadWaiting() {
  const asked = location.hash, all = query(), filters = Object.fromEntries(FILTERS.map(id => [id, all.get(id) ?? ""]));
  const isFiltered = Object.values(filters).some(Boolean), limit = all.get("all") ? 0 : ROWS;
  const waiting = await get("waiting", {...filters, sort: all.get("sort") ?? "", limit});
  // The answer to earlier filters may come later.
  if (asked !== location.hash) return;
  const select = $("namespace"), names = ["", ...waiting.namespaces];
  if ([...select.options].map(o => o.value).join() !== names.join() && document.activeElement !== select) {
    select.replaceChildren(...names.map(name => new Option(name || "all", name)));
    fill();
  }
  $("filters").hidden = !waiting.namespaces.length && !isFiltered;
  $("clear").hidden = !isFiltered;
  table($("waiting"), ["#Pods", "#Oldest", "Owner", "Lacks", "Queue", "Oldest pod"], waiting.rows.map(row => ({
    key: [row.namespace, row.owner, row.owner ? "" : row.oldest].join("|"),
    cells: [number(row.pods), age(row.seconds), ownerCell(row), groupText(row.group) + reasonsText(row.reasons, row.pods, row.group), placesText(row.places), podLink(row.oldest, row.oldest.split("/")[1])]})),
    isFiltered ? "No waiting pod matches the filters." : "No pod waits.", {Pods: "pods", Oldest: "oldest", Owner: "owner"});
  const shown = waiting.rows.length, rest = waiting.total > shown, parts = [];
  if (rest) parts.push(make("span", `${number(shown)} of ${count(waiting.total, "owner")}`));
  if (rest && limit) { all.set("all", "1"); parts.push(link(waiting.total > 100 ? "The first 100 owners" : "All owners", hash("", all))); }
  if (waiting.pods) parts.push(link("Pods one by one", hash("pods", filters.place ? "place=" + filters.place : "")));
  if (!parts.every((part, n) => $("shown").children[n]?.isEqualNode(part)) || parts.length !== $("shown").children.length) $("shown").replaceChildren(...parts);
}
// The titles of the charts with their values: lines of samples, a value, and what applies to all samples.
const milliseconds = value => value >= 1000 ? Number((value / 1000).toFixed(1)) + " s" : Number(value.toFixed(value < 10 ? 2 : 0)) + " ms";
const CHARTS = [
  ["Waiting pods", s => s.waiting, number, () => "dashed: gated", s => s.gated],
  ["Scheduled per second", s => s.scheduledPerSecond, value => Number(value.toFixed(1)), all => count(all.victims, "pod") + " evicted"],
  ["Scheduling attempt, mean", s => s.decisionMilliseconds, milliseconds, all => all.decisionP99AtMost && "p99 at most " + milliseconds(all.decisionP99AtMost)],
  ["Queue to node, mean", s => s.bindingMilliseconds, milliseconds, all => all.bindingP99AtMost && "p99 at most " + milliseconds(all.bindingP99AtMost)],
];
// 1, 2 or 5 times a power of ten.
function roundedUp(value) { const power = 10 ** Math.floor(Math.log10(value)); return [1, 2, 5, 10].map(n => n * power).find(n => n >= value * 0.999); }
// A line with gaps where there is no value. It ends at the right, where now is.
function line(values, top) {
  let pen = "M";
  return values.map((value, n) => {
    if (value === null) { pen = "M"; return ""; }
    const point = `${pen}${90 - values.length + n + 1} ${(30 - value / top * 30).toFixed(1)}`, made = pen === "M" ? point + "h0" : point;
    pen = "L";
    return made;
  }).join("");
}
function drawHistory(all) {
  CHARTS.forEach(([title, of, text, more, second], n) => {
    const chart = $("history").children[n] ?? $("history").appendChild($("chart").content.firstElementChild.cloneNode(true));
    const values = all.samples.map(sample => of(sample) ?? null), dashed = second ? all.samples.map(second) : [];
    const present = values.filter(value => value !== null), highest = Math.max(0, ...present, ...dashed), top = highest ? roundedUp(highest) : 1;
    const value = present.length ? String(text(present.at(-1))) : "–";
    chart.querySelector("figcaption").textContent = title;
    chart.querySelector(".value").textContent = [value, more(all)].filter(Boolean).join("; ");
    chart.querySelector(".scale").firstChild.textContent = highest ? text(top) : "";
    const [dashedPath, path] = chart.querySelectorAll("path");
    path.setAttribute("d", line(values, top)); dashedPath.setAttribute("d", line(dashed, top));
    chart.querySelector("svg").setAttribute("aria-label", `${title}: ${value}, at most ${text(highest)} in 15 minutes`);
  });
}
// The colors of 0 to 100 percent: one hue from light to dark, which is told apart without seeing hues.
function palette() {
  const style = getComputedStyle(document.documentElement);
  const [cold, hot] = ["--cold", "--hot"].map(name => style.getPropertyValue(name).trim().split(" ").map(Number));
  return Array.from({length: 101}, (_, percent) => `rgb(${cold.map((from, n) => Math.round(from + (hot[n] - from) * percent / 100)).join(" ")})`);
}
function layout() {
  const canvas = $("heat"), width = canvas.clientWidth || 600, cells = heat.cells.length;
  const size = Math.max(6, Math.min(28, Math.floor(Math.sqrt(width * 300 / Math.max(1, cells)))));
  const columns = Math.max(1, Math.floor(width / size));
  return {canvas, width, size, columns, height: Math.max(size, Math.ceil(cells / columns) * size)};
}
function drawHeat() {
  if (!heat || $("overview").hidden) return;
  for (const id of ["heat", "legend", "cell"]) $(id).hidden = heat.hasAmounts;
  $("named").hidden = !heat.hasAmounts;
  if (heat.hasAmounts) return drawNamed();
  const {canvas, width, size, columns, height} = layout(), ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  const pen = canvas.getContext("2d"), colors = palette(), style = getComputedStyle(document.documentElement);
  pen.scale(ratio, ratio);
  pen.strokeStyle = style.getPropertyValue("--bad");
  heat.cells.forEach(([, load, flags], n) => {
    const x = n % columns * size, y = Math.floor(n / columns) * size;
    pen.fillStyle = load === null ? "transparent" : colors[Math.min(100, Math.round(load * 100))];
    pen.fillRect(x, y, size - 1, size - 1);
    if (flags & 1) pen.strokeRect(x + 1.5, y + 1.5, size - 4, size - 4);
    if (flags & 2) { pen.beginPath(); pen.moveTo(x + 1, y + 1); pen.lineTo(x + size - 2, y + size - 2); pen.moveTo(x + size - 2, y + 1); pen.lineTo(x + 1, y + size - 2); pen.stroke(); }
  });
  if (document.activeElement === canvas && heat.cells.length) {
    pen.lineWidth = 2; pen.strokeStyle = style.getPropertyValue("--accent");
    pen.strokeRect(at % columns * size + 1, Math.floor(at / columns) * size + 1, size - 3, size - 3);
  }
}
const flagText = flags => (flags & 1 ? ", cordoned" : "") + (flags & 2 ? ", not ready" : "");
// A few nodes by name, with the requested amount.
function drawNamed() {
  keyed($("named"), heat.cells.map(([key, load, flags, requested, allocatable]) => ({key, load, flags, requested, allocatable})), row => {
    const made = make("a", null, "node");
    made.href = path("node", row.key); made.append(make("span", row.key, "name"), make("span"), make("span", null, "load"));
    return made;
  }, (made, row) => {
    const of = row.load === null ? "none" : `${amount(heat.resource, row.requested)} of ${amount(heat.resource, row.allocatable)}` + (heat.resource === "cpu" ? " CPU" : "");
    setText(made.children[1], of + flagText(row.flags));
    made.children[1].classList.toggle("bad", row.flags > 0);
    made.children[2].style.setProperty("--part", Math.min(100, Math.round((row.load ?? 0) * 100)) + "%");
  });
}
function showCell() {
  const cell = heat?.cells[at];
  if (!cell) return;
  const more = heat.nodesPerCell > 1 ? ` and ${heat.nodesPerCell - 1} more nodes` : "";
  $("cell").textContent = cell[0] + more + ": " + (cell[1] === null ? "none" : Math.round(cell[1] * 100) + " %") + " of " + heat.resource + " requested" + flagText(cell[2]);
}
async function loadHeat() {
  const asked = location.hash, answer = await get("heat", {resource: query().get("resource") ?? ""});
  if (asked !== location.hash) return;
  heat = answer;
  if (heat.hasAmounts) heat.cells.sort((a, b) => a[0].localeCompare(b[0], "en", {numeric: true}));
  const select = $("resource");
  if ([...select.options].map(o => o.value).join() !== heat.resources.join()) select.replaceChildren(...heat.resources.map(name => new Option(name)));
  select.value = heat.resource;
  at = Math.min(at, Math.max(0, heat.cells.length - 1));
  drawHeat();
}
async function load() {
  drawState(await get("state"));
  if ($("overview").hidden) return;
  await loadWaiting();
  if (round++ % HEAT_EVERY === 0) { await loadHeat(); drawHistory(await get("history")); }
}
async function search() {
  const text = $("search").value.trim(), asked = ++searches;
  $("found").hidden = !text;
  if (!text) return;
  const found = await get("search", {text});
  // The answer to an earlier text may come later.
  if (asked !== searches) return;
  const rows = [...found.pods.map(pod => ({key: "p" + pod.pod, cells: [podLink(pod.pod), "pod", pod.node ? "on " + pod.node : pod.place ?? "not queued"]})),
    ...found.owners.map(of => ({key: "o" + of.namespace + of.owner, cells: [ownerLink(of.namespace, of.owner), "owner", count(of.pods, "pod")]})),
    ...found.nodes.map(name => ({key: "n" + name, cells: [nodeLink(name), "node", ""]}))];
  table($("found-rows"), ["Name", "Kind", "State"], rows, "Nothing has this name.");
  if ($("overview").hidden) location.hash = "#/";
}

// --- pages with an address ---
const heading = (text, tag) => { const made = make("h3", text); if (tag) made.append(" ", make("span", tag, "tag")); return made; };
function list(into, title, texts, tag) {
  if (!texts?.length) return;
  const made = make("ol");
  made.append(...texts.map(text => make("li", text)));
  into.push(heading(title, tag), made);
}
// A table without the columns that are empty in each row; nothing without rows.
function sub(into, heads, rows, title, tag) {
  if (!rows?.length) return;
  const made = make("div"), used = heads.map((_, n) => rows.some(row => (row[n] ?? "") !== ""));
  table(made, heads.filter((_, n) => used[n]), rows.map(row => row.filter((_, n) => used[n])), "");
  if (title) into.push(heading(title, tag));
  into.push(made);
}
function sentence(into, text, ...links) { const made = make("p", text); made.append(...links); into.push(made); }
function show(title, ...body) { setText($("detail-title"), title); document.title = title + " – Berth"; $("detail-body").replaceChildren(...body); }
// Links to the rows before and after.
function pages(into, list, page, parameters) {
  const to = list.from + list.rows.length, bar = make("p", null, "bar dim");
  const turn = (text, from) => { const all = new URLSearchParams(parameters); all.set("from", from); bar.append(link(text, hash(page, all))); };
  if (list.from > 0) turn("Previous", Math.max(0, list.from - list.pageSize));
  bar.append(make("span", list.total ? `${number(list.from + 1)} to ${number(to)} of ${number(list.total)}` : ""));
  if (to < list.total) turn("Next", list.from + list.pageSize);
  into.push(bar);
}
async function openPods() {
  const place = query().get("place") ?? "", pods = await get("pods", {place, from: query().get("from") ?? 0}), body = [], bar = make("p", null, "bar");
  bar.append(...["", ...Object.keys(QUEUES)].map(name => { const made = link(name || "all", hash("pods", name ? "place=" + name : "")); if (name === place) made.ariaCurrent = "page"; return made; }));
  body.push(bar);
  const rows = make("div");
  table(rows, ["Pod", "Owner", "Queue", "#Since", "#Attempts", "#Priority", "Lacks"], pods.rows.map(row => [podLink(row.pod), row.owner ? ownerLink(row.pod.split("/")[0], row.owner) : "",
    row.place, age(row.seconds), row.attempts, row.priority, reasonsText(row.reasons)]), "No pod waits here.");
  body.push(rows);
  pages(body, pods, "pods", place ? {place} : {});
  show("Pods that are not bound" + (place ? ": " + place : "") + ", the oldest first", ...body);
}
async function openCalls() {
  const {calls} = await get("state"), types = new Set([...Object.keys(calls.pending), ...Object.keys(calls.executed)]), body = [];
  body.push(make("p", "Writes of the scheduler since its start: bindings, statuses of pods, evictions."));
  const rows = make("div");
  table(rows, ["Type", "#Waiting or in flight", "#Executed", "#Failed"], [...types].sort().map(type => [type, number(calls.pending[type]), number(calls.executed[type]), number(calls.failed[type])]), "No call was made.");
  body.push(rows, make("p", `${number(calls.retried)} repeated, ${number(calls.overwritten)} replaced by a later call before they were sent, ${number(calls.skipped)} skipped because they change nothing.`, "dim"));
  show("API calls", ...body);
}
async function openSpread() {
  const answer = await explained("spread"), body = [], rows = make("div");
  if (answer instanceof Node) return show("Spread of workloads", answer);
  body.push(make("p", "The greatest difference between a domain and the domain with the fewest pods, now and without pods of former revisions."));
  table(rows, ["Workload", "Domains", "#Allowed", "#Now", "#After", "Pods after", "Delete for the allowed skew"], answer.workloads.map(of => {
    const [kind, key] = of.workload.split(" "), [namespace, name] = key.split("/"), pods = of.surplus;
    return [ownerLink(namespace, kind + "/" + name), of.topologyKey, of.maxSkew, of.skew, of.skewAfter, of.domains.map(domain => domain.domain + ": " + domain.after).join("\n"),
      pods.slice(0, 5).join("\n") + (pods.length > 5 ? `\nand ${number(pods.length - 5)} more` : "")];
  }), "No workload has topology spread constraints.");
  body.push(rows);
  show("Spread of workloads", ...body);
}
async function openNode(name) {
  const node = await get("node", {name}), body = [];
  if (node.missing) return show("Node " + name, make("p", "This node does not exist any more."));
  body.push(make("p", (node.notReady ? "Not ready. " : "") + (node.unschedulable ? "Cordoned: no further pod is placed here. " : "") + (node.taints.length ? "Taints: " + node.taints.join(", ") : "No taints.")));
  sub(body, ["Resource", "#Requested", "#Allocatable", "#Free", "#Share"], Object.entries(node.resources).map(([resource, of]) => [resource, amount(resource, of.requested), amount(resource, of.allocatable),
    amount(resource, of.allocatable - of.requested), of.load === null ? "" : Math.round(of.load * 100) + " %"]), "Resources");
  const namespace = pod => pod.split("/")[0];
  sub(body, ["Pod", "Owner", "#CPU", "#Memory", "#Priority"], node.pods.map(pod => [podLink(pod.pod), pod.owner ? ownerLink(namespace(pod.pod), pod.owner) : "", number(pod.cpu / 1000), bytes(pod.memory), pod.priority]), count(node.podsTotal, "pod"));
  const explanation = make("div"); body.push(explanation);
  show("Node " + name, ...body);
  const answer = await explained("node", name), parts = [];
  if (answer instanceof Node) return;
  sub(parts, ["Device", "State", "Claim", "Pods", "Taints"], answer.devices?.map(d => [d.device, d.state, d.claim, d.pods?.join(", "), d.taints?.join(", ")]), "Devices");
  sub(parts, ["Waiting pod", "#Pods"], answer.fits?.map(k => [podLink(k.example), k.pods]), "Waiting pods that fit");
  sub(parts, ["Waiting pod", "#Pods", "Lacks"], answer.closestTo?.map(k => [podLink(k.example), k.pods, lacksText(k.lacks)]), "Waiting pods that do not fit, the closest first");
  explanation.replaceChildren(...parts);
}
async function openOwner(namespace, kind, name) {
  const owner = await get("owner", {name: [namespace, kind, name].join("/")}), body = [];
  body.push(make("p", `${count(owner.pods, "pod")}, ${number(owner.bound)} of them with a node.`));
  sub(body, ["Pod", "Node", "Queue", "#Since", "Lacks"], owner.rows.map(row => [podLink(row.pod), nodeLink(row.node), row.place, row.seconds == null ? "" : age(row.seconds), row.place ? reasonsText(row.reasons) : ""]));
  if (owner.rows.length < owner.pods) body.push(make("p", `The first ${number(owner.rows.length)} are shown.`, "dim"));
  show(`${kind} ${namespace}/${name}`, ...body);
}
// What `berth explain podgroup` answers.
function groupParts(group) {
  const {namespace} = group, parts = [make("p", group.summary)];
  list(parts, "What would let it start", group.remedies?.map(remedy => remedy.text), "tried now");
  sub(parts, [group.topologyKey ?? "Domain", "#Nodes", "#Room for members"], group.domains?.map(domain => [domain.name, number(domain.nodes), number(domain.places)]), "Domains");
  sub(parts, ["Group", "#Needed", "#Known", "#With a node", "#Room"], group.children?.map(child => [child.kind === "PodGroup" ? ownerLink(namespace, "PodGroup/" + child.name) : child.name,
    number(child.need), number(child.known), number(child.scheduled), child.places ?? ""]), "Groups below it");
  sub(parts, ["Pod", "State", "Node", "Would get", "Lacks"], group.members?.map(member => [podLink(namespace + "/" + member.name), member.state, nodeLink(member.node), nodeLink(member.place),
    [...member.gates ?? [], ...member.closest?.slice(0, 1).map(node => `closest ${node.node}: ` + node.lacks?.map(lack => lack.text).join("; ")) ?? []].join("\n")]), `Members (${number(group.memberCount)})`);
  if (group.preemption) parts.push(heading("Preemption"), make("p", group.preemption.message));
  list(parts, "Notes", group.notes);
  return parts;
}
async function openGroup(namespace, name) {
  const group = await explained("podgroup", namespace, name);
  show(`PodGroup ${namespace}/${name}`, ...(group instanceof Node ? [group] : groupParts(group)));
}
async function openNodes() {
  const nodes = await get("nodes", {from: query().get("from") ?? 0}), body = [], names = ["cpu", "memory", "pods"];
  sub(body, ["#Nodes", "#CPU", "#Memory"], nodes.classes.map(c => [number(c.nodes), number(c.cpu / 1000), bytes(c.memory)]), "Capacity classes");
  const of = (n, all) => all ? amount(n, all.requested) + " of " + amount(n, all.allocatable) : "";
  sub(body, ["Node", "State", "#CPU", "#Memory", "#Pods", "Others", "Taints"], nodes.rows.map(row => [nodeLink(row.node),
    [row.notReady ? "not ready" : "ready", row.unschedulable ? "cordoned" : ""].filter(Boolean).join(", "), ...names.map(n => of(n, row.resources[n])),
    Object.entries(row.resources).filter(([n]) => !names.includes(n)).map(([n, all]) => n + ": " + of(n, all)).join("\n"), row.taints.join("\n")]), "Requested, by node");
  pages(body, nodes, "nodes", {});
  show("Nodes", ...body);
}
async function openPod(name) {
  const pod = await get("pod", {name}), body = [], namespace = name.split("/")[0];
  if (pod.missing) return show("Pod " + name, make("p", "This pod does not exist any more."));
  if (pod.node) sentence(body, "Bound to ", nodeLink(pod.node), ".");
  else if (pod.assumedOn) sentence(body, "Being bound to ", nodeLink(pod.assumedOn), ".");
  else if (pod.place) sentence(body, `In the queue: ${pod.place} for ${age(pod.seconds)}, ${count(pod.attempts, "attempt")}, priority ${pod.priority}.`);
  if (pod.owner) sentence(body, pod.group ? "Member of " : "Owner: ", ownerLink(namespace, pod.owner));
  if (pod.nominatedNode) sentence(body, "Nominated to ", nodeLink(pod.nominatedNode), ".");
  if (pod.gate) sentence(body, "Waits for " + pod.gate + ".");
  const isExplained = pod.node || pod.place && !pod.assumedOn, explanation = make("div");
  if (isExplained) { explanation.id = "explanation"; explanation.append(make("p", "The explanation is computed.", "dim")); body.push(explanation); }
  if (pod.message) body.push(heading("Message", "last attempt"), make("p", pod.message));
  sub(body, ["Plugin", "Reason", "#Nodes", "Examples"], pod.reasons?.map(r => [r.plugin, r.text, number(r.nodes), r.examples.join(", ")]), "Reasons", "last attempt");
  show("Pod " + name, ...body);
  if (isExplained) await explainPod(namespace, pod, explanation);
}
// What `berth explain pod` answers. A member starts with its group, so what would free the group is shown for it.
async function explainPod(namespace, {pod: key, group, node}, into) {
  const [pod, all] = await Promise.all([explained("pod", ...key.split("/")), group && !node ? explained("podgroup", namespace, group) : null]);
  if (pod instanceof Node) return into.replaceChildren(pod);
  const parts = all instanceof Node ? [all] : all ? groupParts(all) : [make("p", pod.summary)];
  if (!all) {
    list(parts, "What would free it", pod.remedies?.map(remedy => remedy.text), "tried now");
    sub(parts, ["Closest node", "Lacks"], pod.closest?.map(of => [nodeLink(of.node), lacksText(of.lacks)]), "Closest nodes");
    if (pod.preemption) parts.push(heading("Preemption"), make("p", pod.preemption.message));
  }
  sub(parts, ["Request", "Class", "#Wants", "#Exist", "#Match", "#Free", "#Held", "#Tainted", "Held by"], pod.devices?.map(d => [d.claim + "/" + d.request, d.class, d.wanted ?? "all",
    d.exist ?? 0, d.matching ?? 0, d.free ?? 0, d.held ?? 0, d.tainted ?? 0, d.heldBy?.map(h => h.pods?.join(", ")).join(", ")]), "Devices");
  list(parts, "Gated by", pod.gates?.map(gate => gate.name + (gate.message ? ": " + gate.message : "") + (gate.usage?.medianSeconds !== undefined ? `; usually removed after ${age(gate.usage.medianSeconds)}` : "")
    + (gate.isOrphaned ? "; no component seems to remove it any more" : "")));
  if (pod.quota) sub(parts, ["Quota", "Order", "#Place", "#In line", "First in line", "Key", "#Requested", "#Used", "#Limit"], [[pod.quota.quota, pod.quota.order,
    pod.quota.place ?? "", pod.quota.entries ?? 0, pod.quota.first, pod.quota.key, pod.quota.requested, pod.quota.used, pod.quota.limit]], "Deferred quota");
  sub(parts, ["API call", "State", "#Sent", "Error"], pod.calls?.map(call => [call.callType, call.state, call.attempts || 0, call.error]));
  const nodes = pod.decision?.nodes ?? [];
  if (nodes.length) sub(parts, ["Plugin", "#Weight", ...nodes.map(of => "#" + of.node + (of.isChosen ? " (chosen)" : ""))], [
    ...(nodes[0].scores ?? []).map((score, n) => [score.plugin, score.weight, ...nodes.map(of => of.scores[n].weighted ?? 0)]), ["Total", "", ...nodes.map(of => of.total ?? 0)]], "Scores", "at the decision");
  sub(parts, ["Plugin", "Tried again after"], pod.wokenBy?.map(of => [of.plugin, of.events.join(", ")]), "Events");
  if (!all) list(parts, "Notes", pod.notes);
  into.replaceChildren(...parts);
}
async function route() {
  const {parts} = address(), isPage = parts.length > 0, [kind, ...rest] = parts;
  const page = {pod: openPod, node: openNode, group: openGroup, owner: openOwner, nodes: openNodes, pods: openPods, calls: openCalls, spread: openSpread}[kind];
  $("overview").hidden = isPage; $("detail").hidden = !isPage;
  fill();
  // At first the refresh loads it.
  if (!isPage) { document.title = "Berth"; round = 0; return last ? load() : undefined; }
  if (!page) return show("Not found", make("p", "This address names no pod, owner, group or node."));
  await page(...(kind === "pod" ? [rest.join("/")] : rest));
  $("detail-at").textContent = "As of " + new Date().toLocaleTimeString() + ".";
}
async function open() {
  setText($("detail-title"), "Loading"); $("detail-body").replaceChildren(); $("detail-at").textContent = "";
  await route().catch(error => $("detail").hidden ? failed(error) : show("No answer", make("p", error.message, "bad")));
  if (!$("detail").hidden) { $("detail-title").focus(); scrollTo(0, 0); }
}
function failed(error) {
  setText($("status"), "no answer: " + error.message + (updated ? "; the data is of " + updated.toLocaleTimeString() : ""));
  $("status").className = "bad"; document.body.classList.add("stale");
}
async function refresh() {
  if (!document.hidden) {
    try {
      await load();
      updated = new Date();
      setText($("status"), "updated " + updated.toLocaleTimeString());
      $("status").className = "dim"; document.body.classList.remove("stale");
    } catch (error) { failed(error); }
  }
  setTimeout(refresh, EVERY);
}
const themes = ["system", "light", "dark"];
function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  $("theme").textContent = "Theme: " + theme;
  try { localStorage.setItem("berth-theme", theme); } catch { /* The choice is not kept. */ }
  drawHeat();
}
let theme = "system";
try { theme = localStorage.getItem("berth-theme") || "system"; } catch { /* As the system has it. */ }
setTheme(themes.includes(theme) ? theme : "system");
$("theme").onclick = () => { theme = themes[(themes.indexOf(theme) + 1) % themes.length]; setTheme(theme); };
$("again").onclick = () => route().catch(failed);
$("login").onsubmit = event => { event.preventDefault(); token = $("token").value.trim(); round = 0; };
$("search").oninput = () => { clearTimeout(search.timer); search.timer = setTimeout(() => search().catch(() => {}), 200); };
for (const id of ["namespace", "place", "resource"]) $(id).onchange = () => ask(id, $(id).value);
for (const id of ["owner", "reason"]) $(id).oninput = () => { clearTimeout(ask.timer); ask.timer = setTimeout(() => ask(id, $(id).value.trim()), 200); };
$("clear").onclick = () => { location.hash = "#/"; };
$("heat").onfocus = $("heat").onblur = drawHeat;
$("heat").onkeydown = event => {
  if (!heat?.cells.length) return;
  const {columns} = layout(), step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns}[event.key];
  if (step) { at = Math.max(0, Math.min(heat.cells.length - 1, at + step)); event.preventDefault(); drawHeat(); showCell(); }
  if (event.key === "Enter") location.hash = path("node", heat.cells[at][0]);
};
const cellAt = event => { const {size, columns} = layout(); return Math.floor(event.offsetY / size) * columns + Math.floor(event.offsetX / size); };
$("heat").onmousemove = event => { const cell = heat ? cellAt(event) : -1; if (heat?.cells[cell]) { at = cell; showCell(); } };
$("heat").onclick = event => { const cell = heat?.cells[cellAt(event)]; if (cell) location.hash = path("node", cell[0]); };
addEventListener("resize", drawHeat);
addEventListener("hashchange", open);
addEventListener("keydown", event => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "")) { event.preventDefault(); if (!$("detail").hidden) location.hash = "#/"; $("search").focus(); }
  if (event.key === "Escape") {
    if (document.activeElement === $("search")) { $("search").value = ""; $("search").blur(); $("found").hidden = true; }
    else if (!$("detail").hidden) location.hash = "#/";
  }
});
open();
refresh();
