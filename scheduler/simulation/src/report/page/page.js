"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const SVG = "http://www.w3.org/2000/svg";
const COLORS = 6;
const QUANTILES = [["median", "median"], ["p90", "90 %"], ["p99", "99 %"], ["max", "largest"]];

const byId = (id) => document.getElementById(id);
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// --- numbers ---------------------------------------------------------------------------------------------
// A value and its unit stay on one line. `like` is the value whose digits or unit a deviation or difference has.
function count(value, like = value) {
  const digits = Math.abs(like) >= 100 ? 0 : Math.abs(like) >= 1 ? 1 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}
const percent = (value) => `${(100 * value).toFixed(1)}\u00a0%`;
function span(seconds, like = seconds) {
  const size = Math.abs(seconds || like);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (size >= length) return `${+(seconds / length).toFixed(size >= 10 * length ? 0 : 1)}\u00a0${unit}`;
  }
  const [value, unit] = size >= 1 || size === 0 ? [seconds.toFixed(1), "s"] : [(seconds * 1000).toFixed(0), "ms"];
  return `${+value}\u00a0${unit}`;
}

// --- configurations --------------------------------------------------------------------------------------
const configs = report.comparison.map((compared, at) => ({
  name: compared.config,
  seeds: compared.seeds,
  metrics: compared.metrics,
  color: `var(--c${at % COLORS})`,
  runs: report.runs.filter((run) => run.config === compared.config),
}));

/** The resources that pods request. */
const resources = Object.keys(report.runs[0]?.series.capacity ?? {}).filter((name) => name !== "pods" &&
  report.runs.some(({ series }) => [series.allocated, series.requested].some((of) => of[name]?.some((value) => value > 0))));

/** The mean over the seeds of a series, with its times; of the first seed if the intervals differ. */
function mean(config, pick) {
  const [first] = config.runs;
  const alike = config.runs.filter((run) => run.series.intervalSeconds === first.series.intervalSeconds);
  const longest = alike.reduce((a, b) => (b.series.at.length > a.series.at.length ? b : a));
  const values = longest.series.at.map((_, at) => {
    const known = alike.map((run) => pick(run.series)?.[at]).filter((value) => value !== undefined);
    return known.reduce((sum, value) => sum + value, 0) / Math.max(known.length, 1);
  });
  return { times: longest.series.at, values };
}

// --- results ---------------------------------------------------------------------------------------------
const METRICS = [
  ["bound", "Pods that ran", count],
  ["finished", "Pods that finished", count],
  ["neverBound", "Pods that never ran", count],
  ["waitMedian", "Wait, median", span],
  ["waitMean", "Wait, mean", span],
  ["waitP90", "Wait, 90 %", span],
  ["waitP99", "Wait, 99 %", span],
  ["waitMax", "Wait, largest", span],
  ["preempted", "Preemptions", count],
  ["disrupted", "Pods of lost nodes", count],
  ["lostWorkSeconds", "Lost work", span],
  ["nodesMax", "Nodes, largest number", count],
  ["nodesUsedMean", "Nodes with pods, mean", count],
  ["nodesUsedMax", "Nodes with pods, largest number", count],
  ["cost", "Cost", count],
  ["fairness", "Fairness between namespaces", count],
  ["attempts", "Attempts", count],
];

function rowsOfMetrics() {
  const known = new Set(configs.flatMap((config) => Object.keys(config.metrics)));
  const ofResources = [...known].sort().flatMap((name) => {
    const [kind, ...resource] = name.split("/");
    const titles = { utilization: ["Utilization of", ", mean"], fragmentation: ["Free", " that no waiting pod can use"] };
    if (kind === "bufferRoom") return [[name, `Buffer ${resource.join("/")}, all chunks with room`, percent]];
    const [before, after] = titles[kind] ?? [];
    const of = resource.join("/");
    return before && resources.includes(of) ? [[name, `${before} ${of}${after}`, percent]] : [];
  });
  const some = ([name]) => configs.some((config) => config.metrics[name]?.mean || config.metrics[name]?.difference);
  const always = ["bound", "waitMedian", "waitMax"];
  const isShown = (row) => always.includes(row[0]) || row[0].startsWith("bufferRoom/") || some(row);
  return [...METRICS, ...ofResources].filter((row) => known.has(row[0]) && isShown(row));
}

function table(heads, rows) {
  const cell = ([text, apart], at) => {
    const made = element("td", at ? { class: "n", "data-head": heads[at] } : {}, text);
    if (apart) made.append(element("span", { class: "apart" }, apart));
    return made;
  };
  const head = heads.map((text, at) => element("th", at ? { class: "n", scope: "col" } : { scope: "col" }, text));
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
}

function showResults() {
  const rows = rowsOfMetrics().map(([name, title, show]) => [[title], ...configs.map((config, at) => {
    const value = config.metrics[name] ?? { mean: 0, sd: 0, difference: 0, differenceSd: 0 };
    const like = (part) => show(part, value.mean);
    const text = config.seeds > 1 ? `${show(value.mean)}\u00a0±\u00a0${like(value.sd)}` : show(value.mean);
    const sign = value.difference > 0 ? "+" : "";
    const isShown = at && Number.parseFloat(like(Math.abs(value.difference))) > 0;
    const apart = isShown ? `${sign}${like(value.difference)}` : "";
    return [text, apart];
  })]);
  byId("compared").className = configs.length > 1 ? "" : "single";
  byId("compared").replaceChildren(table(["", ...configs.map((config) => config.name)], rows));
  const [run] = report.runs;
  const seeds = Math.max(...configs.map((config) => config.seeds));
  byId("span").textContent = `${run.start.slice(0, 16).replace("T", " ")} UTC, ${span(run.seconds)}`;
  byId("about").textContent = `${count(run.summary.arrived)} pods, ${count(run.summary.nodesMax)} nodes at most` +
    (seeds > 1 ? `. Means over ${seeds} seeds ± standard deviation.` : ".") +
    (configs.length > 1 ? ` Differences are from ${configs[0].name}.` : "");
  const notes = new Set(report.runs.flatMap((run) => run.notes ?? []));
  byId("notes").replaceChildren(...[...notes].map((note) => element("li", {}, note)));
}

// --- charts ----------------------------------------------------------------------------------------------
function ticks(most, wanted) {
  if (!(most > 0)) return [0, 1];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, at) => at * step);
}

const TIME_STEPS = [1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
function timeTicks(most, wanted) {
  const step = TIME_STEPS.find((step) => most / step <= wanted) ?? 2592000 * Math.ceil(most / 2592000 / wanted);
  const unit = step >= 86400 ? ["d", 86400] : step >= 3600 ? ["h", 3600] : step >= 60 ? ["min", 60] : ["s", 1];
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => [at * step, `${at * step / unit[1]} ${unit[0]}`]);
}

function figure(title, height, draw) {
  const output = element("output");
  const svg = drawn("svg", { role: "img", "aria-label": title, height });
  const made = element("figure", {}, element("figcaption", {}, element("strong", {}, title), output), svg);
  let width = 0;
  const redraw = () => {
    const now = Math.round(svg.getBoundingClientRect().width);
    if (now === width || now === 0) return;
    width = now;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    draw(svg, width, height, output);
  };
  new ResizeObserver(redraw).observe(svg);
  return made;
}

/** Lines over time: each has a name, a color, times and values. Shares above a half have the scale up to `whole`. */
function lines(title, all, show, whole) {
  const end = Math.max(...all.flatMap((line) => line.times.slice(-1)), 1);
  const largest = all.flatMap((line) => line.values).reduce((most, value) => Math.max(most, value), 0);
  const highest = whole && largest > whole / 2 ? whole : largest;
  return figure(title, 220, (svg, width, height, output) => {
    const marks = ticks(highest, 4);
    const top = marks.at(-1);
    const left = 12 + Math.max(...marks.map((mark) => show(mark).length)) * 7;
    const x = (time) => left + (time / end) * (width - left - 8);
    const y = (value) => height - 24 - (value / top) * (height - 34);
    for (const mark of marks) {
      svg.append(drawn("path", { class: "grid", d: `M${left} ${y(mark)}H${width - 8}` }),
        drawn("text", { x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, show(mark)));
    }
    const times = timeTicks(end, Math.max(2, Math.floor(width / 90)));
    for (const [time, text] of times) {
      const anchor = time === 0 ? "start" : x(time) > width - 30 ? "end" : "middle";
      svg.append(drawn("text", { x: x(time), y: height - 6, "text-anchor": anchor }, text));
    }
    for (const line of all) {
      const points = line.times.map((time, at) => `${x(time).toFixed(1)},${y(line.values[at]).toFixed(1)}`);
      const drawnLine = drawn("polyline", { points: points.join(" "), class: line.dashed ? "second" : "" });
      drawnLine.style.stroke = line.color;
      svg.append(drawnLine);
    }
    const at = drawn("path", { class: "at", d: "" });
    svg.append(at);
    svg.onpointermove = (event) => {
      const time = ((event.offsetX - left) / (width - left - 8)) * end;
      const values = all.map((line) => {
        const place = line.times.findIndex((known) => known >= time);
        return `${line.name} ${show(line.values[place < 0 ? line.values.length - 1 : place])}`;
      });
      const bounded = Math.min(Math.max(time, 0), end);
      at.setAttribute("d", `M${x(bounded)} 6V${height - 24}`);
      output.textContent = `${span(bounded)}: ${values.join(", ")}`;
    };
    svg.onpointerleave = () => {
      at.setAttribute("d", "");
      output.textContent = "";
    };
  });
}

function over(title, pick, show = count, most = undefined, second = null) {
  const all = configs.map((config) => ({ name: config.name, color: config.color, ...mean(config, pick) }));
  if (second) {
    const more = configs.map((config) => ({
      name: `${config.name}, ${second.name}`, color: config.color, dashed: true, ...mean(config, second.pick),
    }));
    all.unshift(...more);
  }
  return all.some((line) => line.values.some((value) => value > 0)) ? [lines(title, all, show, most)] : [];
}

function showCourse() {
  byId("legend").replaceChildren(...configs.map((config) => {
    const entry = element("span", {}, config.name);
    entry.style.setProperty("--own", config.color);
    return entry;
  }));
  const share = (name) => (series) => series.allocated[name]?.map((value, at) => {
    const capacity = series.capacity[name]?.[at] ?? 0;
    return capacity > 0 ? value / capacity : 0;
  });
  const whole = (value) => `${+(100 * value).toFixed(1)}\u00a0%`;
  byId("charts").replaceChildren(
    ...resources.flatMap((name) => over(`Utilization of ${name}`, share(name), whole, 1)),
    ...over("Pods that wait", (series) => series.waiting),
    ...over("Pods on nodes", (series) => series.running),
    ...over("Nodes (dashed) and nodes with pods", (series) => series.nodesUsed, count, undefined,
      { name: "all", pick: (series) => series.nodes }),
    ...over("Cost since the start", (series) => series.cost),
    ...resources.flatMap((name) => over(`Free ${name} that no waiting pod can use`,
      (series) => series.fragmentation[name], whole, 1)));
}

// --- waiting times ---------------------------------------------------------------------------------------
function waitingOf(config, pick) {
  const all = config.runs.map(pick).filter((waiting) => waiting);
  if (!all.length) return null;
  const average = (of) => all.reduce((sum, waiting) => sum + of(waiting), 0) / all.length;
  return {
    pods: average((waiting) => waiting.pods),
    neverBound: average((waiting) => waiting.neverBound),
    times: Object.fromEntries(QUANTILES.map(([name]) => [name, average((waiting) => waiting.toBinding[name])])),
  };
}

/** Bars on a logarithmic scale, from 10 ms on: waiting times span many orders of magnitude. */
function bars() {
  const waits = configs.map((config) => ({ config, waiting: waitingOf(config, (run) => run.waiting) }));
  const most = Math.max(...waits.map(({ waiting }) => waiting.times.max), 1);
  const [low, high] = [Math.log10(0.01), Math.log10(most)];
  const step = 18;
  const group = step * configs.length + 12;
  const height = QUANTILES.length * group + 28;
  return figure("Wait of all pods", height, (svg, width) => {
    const [left, right] = [62, 64];
    const x = (seconds) => left + Math.max(0, (Math.log10(Math.max(seconds, 0.01)) - low) / (high - low)) * (width - left - right);
    const marks = [0.01, 1, 60, 3600, 86400, 864000].filter((mark) => mark <= most);
    let before = -100;
    for (const mark of marks) {
      svg.append(drawn("path", { class: "grid", d: `M${x(mark)} 4V${height - 22}` }));
      if (x(mark) - before < 48) continue;
      before = x(mark);
      svg.append(drawn("text", { x: x(mark), y: height - 6, "text-anchor": "middle" }, span(mark)));
    }
    QUANTILES.forEach(([name, title], row) => {
      const top = row * group + 8;
      svg.append(drawn("text", { x: left - 8, y: top + (group - 12) / 2 + 4, "text-anchor": "end" }, title));
      waits.forEach(({ config, waiting }, at) => {
        const seconds = waiting.times[name];
        const bar = drawn("rect", {
          x: left, y: top + at * step + 2, height: step - 5, width: Math.max(x(seconds) - left, 1),
        });
        bar.style.fill = config.color;
        const title = drawn("title", {}, `${config.name}: ${span(seconds)}`);
        bar.append(title);
        svg.append(bar, drawn("text", { x: x(seconds) + 6, y: top + at * step + step - 6 }, span(seconds)));
      });
    });
  });
}

function showGroups() {
  const by = byId("by").value;
  const names = [...new Set(report.runs.flatMap((run) => Object.keys(run[by])))];
  const rows = names.flatMap((name) => configs.flatMap((config) => {
    const waiting = waitingOf(config, (run) => run[by][name]);
    if (!waiting) return [];
    const title = configs.length > 1 ? `${name} · ${config.name}` : name;
    const times = QUANTILES.map(([quantile]) => [span(waiting.times[quantile])]);
    return [[[title], [count(waiting.pods)], [count(waiting.neverBound)], ...times]];
  }));
  byId("groups").replaceChildren(table(["", "Pods", "Never bound", ...QUANTILES.map(([, title]) => title)], rows));
}

// --- the page --------------------------------------------------------------------------------------------
function nextTheme() {
  const root = document.documentElement;
  const next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  byId("theme").textContent = `Theme: ${next ?? "system"}`;
}

if (report.runs.length) {
  showResults();
  showCourse();
  byId("waits").replaceChildren(bars());
  showGroups();
  byId("by").onchange = showGroups;
} else {
  byId("about").textContent = "The report has no runs.";
}
byId("theme").onclick = nextTheme;
