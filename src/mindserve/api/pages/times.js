// The chart: where the time of the last answer went. Whole answers of the vllm dialect carry the engine's own figures;
// of a stream the times between its events are measured here, and its last event has the queue waits.

const PLOT_WIDTH = 760;
const PLOT_HEIGHT = 84;
const LEAST_BAR = 3;

/** What a whole answer says of its times, in ms; null when it says nothing. */
function timesOfAnswer(body) {
  if (body.prefill_time === undefined) return null;
  return { prefill: body.prefill_time, decode: body.decode_time_arr, waits: waitsOf(body.usage), isMeasuredHere: false };
}

/** What was seen of a stream: `arrivals` are the times, from the request on, at which text of one choice came. */
function timesOfStream(arrivals, usage) {
  if (arrivals.length === 0) return null;
  const decode = arrivals.slice(1).map((at, index) => at - arrivals[index]);
  return { prefill: arrivals[0], decode, waits: waitsOf(usage), isMeasuredHere: true };
}

function waitsOf(usage) {
  return (usage?.queue_wait_time ?? []).map((microseconds) => microseconds / 1000);
}

function showTimes(times) {
  const place = byId("chart");
  if (times === null) {
    place.replaceChildren(element("p", { class: "hint" }, "This answer says nothing of its times: the vllm dialect does, and of streams they are measured here."));
    return;
  }
  const names = times.isMeasuredHere ? ["to the first text", "between events"] : ["prefill", "decode"];
  const rows = [["wait", "queue wait", times.waits], ["prefill", names[0], [times.prefill]], ["decode", names[1], times.decode]];
  const source = times.isMeasuredHere
    ? "Streams carry no prefill and decode times: these were measured in the browser. The queue waits are the server's."
    : "The server's own figures: prefill_time, decode_time_arr and usage.queue_wait_time.";
  place.replaceChildren(
    element("ul", { class: "legend" }, ...rows.map(legendItem)),
    totals(rows),
    ...rows.filter(([kind, , values]) => kind !== "prefill" && most(values) > 0).flatMap(bars),
    element("p", { class: "hint" }, source), numbers(rows));
}

function legendItem([kind, name, values]) {
  const mark = element("i", { class: kind });
  const sum = total(values);
  if (values.length === 0) return element("li", {}, mark, `${name}: not told`);
  const rest = kind === "prefill" ? "" : kind === "decode"
    ? ` for ${values.length}, median ${inMs(median(values))}` : ` for ${values.length} tokens, longest ${inMs(most(values))}`;
  return element("li", {}, mark, `${name} ${inMs(sum)}${rest}`);
}

/** One bar of the whole answer, as long as its parts together. Waits lie inside the other two, so they get a bar below. */
function totals(rows) {
  const [waits, prefill, decode] = rows.map(([, , values]) => total(values));
  const whole = Math.max(prefill + decode, waits, 1e-9);
  const part = (value) => (value / whole) * PLOT_WIDTH;
  const said = rows.map(([, name, values]) => `${name} ${inMs(total(values))}`).join(", ");
  return svg("svg", { viewBox: `0 0 ${PLOT_WIDTH} 26`, role: "img", "aria-label": `Totals: ${said}` },
    svg("rect", { class: "prefill", x: 0, y: 0, width: part(prefill), height: 14 }),
    svg("rect", { class: "decode", x: part(prefill), y: 0, width: part(decode), height: 14 }),
    svg("rect", { class: "wait", x: 0, y: 17, width: part(waits), height: 6 }));
}

function bars([kind, name, values]) {
  const highest = most(values);
  const width = Math.max(PLOT_WIDTH, 60 + values.length * (LEAST_BAR + 1));
  const step = (width - 60) / values.length;
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${PLOT_HEIGHT + 16}`, role: "img",
    "aria-label": `${name} of each of ${values.length}: at most ${inMs(highest)}` },
    svg("text", { x: 0, y: 9 }, inMs(highest)), svg("text", { x: 0, y: PLOT_HEIGHT }, "0"),
    svg("line", { class: "axis", x1: 60, x2: width, y1: PLOT_HEIGHT, y2: PLOT_HEIGHT }),
    svg("text", { x: 60, y: PLOT_HEIGHT + 13 }, "1"),
    svg("text", { x: width, y: PLOT_HEIGHT + 13, "text-anchor": "end" }, String(values.length)));
  values.forEach((value, index) => {
    const height = (value / highest) * (PLOT_HEIGHT - 2);
    const bar = svg("rect", { class: kind, x: 60 + index * step, y: PLOT_HEIGHT - height, height,
      width: Math.min(24, Math.max(1, step - Math.min(2, step / 4))) });
    bar.append(svg("title", {}, `${index + 1}: ${inMs(value)}`));
    drawn.append(bar);
  });
  if (width > PLOT_WIDTH) drawn.style.width = `${width}px`;
  return [element("h3", {}, kind === "wait" ? "queue wait of each token" : name === "decode" ? "decode time of each further token" : "time between events"),
    element("div", { class: "plot", tabindex: "0", role: "region", "aria-label": `Chart: ${name}` }, drawn)];
}

function numbers(rows) {
  const [waits, prefill, decode] = rows.map(([, , values]) => values);
  const spans = [...prefill, ...decode];
  const count = Math.max(spans.length, waits.length);
  const lines = Array.from({ length: count }, (_, index) => element("tr", {},
    element("th", { scope: "row" }, String(index + 1)), element("td", {}, index in spans ? inMs(spans[index]) : ""),
    element("td", {}, index in waits ? inMs(waits[index]) : "")));
  const head = element("tr", {}, ...["#", `${rows[1][1]}, then ${rows[2][1]}`, "queue wait"].map((name) => element("th", { scope: "col" }, name)));
  return element("details", {}, element("summary", {}, "The numbers"),
    element("div", { class: "numbers", tabindex: "0", role: "region", "aria-label": "Numbers of the chart" },
      element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines))));
}

function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/** The largest of them, 0 of none; there may be more than a call takes arguments. */
function most(values) {
  return values.reduce((found, value) => Math.max(found, value), 0);
}

function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

function inMs(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 0.1 || value === 0 ? `${Number(value.toPrecision(3))} ms` : `${Number((value * 1000).toPrecision(3))} µs`;
}
