// What happens when: the page's one state is the form and the conversation.

const FACTS = JSON.parse(byId("facts").textContent);
const ROLES = ["user", "system", "developer", "assistant", "tool"];
const MOST_EVENTS_SHOWN = 4000;
const AT_END_PX = 40;
let running = null;
let unshown = [];  // events that came since the last frame
let isFollowing = true;  // the end of the conversation, unless somebody scrolled up from it
let lastTop = 0;

function currentFields() {
  return FACTS.fields[byId("dialect").value];
}

function headers() {
  const made = { "Content-Type": "application/json" };
  if (byId("dialect").value !== FACTS.dialect) made["X-Mindserve-Dialect"] = byId("dialect").value;
  if (byId("key").value) made.Authorization = `Bearer ${byId("key").value}`;
  return made;
}

/** The request as it would be sent now, the message that is being written included. */
function showRequest() {
  const shown = Object.entries(headers()).map(([name, value]) => `${name}: ${name === "Authorization" ? "Bearer ..." : value}`);
  byId("request").textContent = `POST /v1/chat/completions\n${shown.join("\n")}\n\n${requestText(byId("model").value, shortForm(withDraft()))}`;
}

function withDraft() {
  const draft = draftTurn();
  return draft === null ? turns : [...turns, draft];
}

function draftTurn() {
  const content = contentWith(byId("say").value);
  if (content === "") return null;
  const role = byId("role").value;
  return role === "tool" ? { role, content, tool_call_id: byId("call").value } : { role, content };
}

async function loadModels() {
  const response = await fetch("v1/models", { headers: headers() });
  const body = await response.json();
  if (response.status === 401 && !byId("key").value) {
    byId("key-label").hidden = false;
    setStatus("This server wants an API key.");
    return;
  }
  hideRefusal();
  if (!response.ok) {
    showRefusal(response.status, body);
    return;
  }
  byId("model").replaceChildren(...body.data.map((model) => option(model.id, model.id)));
  setStatus("");
  showRequest();
}

async function send() {
  await attaching;  // files that are still being read belong to this message
  if (running) return;
  const draft = draftTurn();
  if (draft !== null) addTurn(draft);
  byId("say").value = "";
  detachAll();
  hideRefusal();
  const text = requestText(byId("model").value, turns);
  showRequest();
  unshown = [];
  byId("events").replaceChildren();
  isFollowing = true;
  setRunning(new AbortController());
  setStatus("Waiting for the answer.");
  try {
    await converse(text, running.signal);
  } catch (error) {
    setStatus(error.name === "AbortError" ? "Stopped." : `The connection failed: ${error.message}`);
  } finally {
    setRunning(null);
    showNews();
  }
}

async function converse(text, signal) {
  const started = performance.now();
  const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: text, signal });
  addEvent(null, `${response.status} ${response.headers.get("content-type")}\nRequestUUID: ${response.headers.get("RequestUUID")}`);
  if (response.ok && response.headers.get("content-type").startsWith("text/event-stream")) {
    await readStream(response, started);
    return;
  }
  const body = await response.text();
  addEvent(performance.now() - started, body);
  if (!response.ok) {
    setStatus("Refused.");
    if (response.status === 401) byId("key-label").hidden = false;
    showRefusal(response.status, parsed(body) ?? { error: body });
    return;
  }
  const answer = JSON.parse(body);
  const growing = growingAnswer(false);
  for (const choice of answer.choices) growing.take(choice);
  growing.settle();
  showTimes(timesOfAnswer(answer));
  tellEnd(growing, answer.usage);
}

async function readStream(response, started) {
  const growing = growingAnswer(FACTS.full_text && byId("dialect").value === "vllm");
  const seen = { arrivals: [], usage: null, isDone: false, failure: null };
  const parser = eventParser((raw, data) => {
    const at = performance.now() - started;
    addEvent(at, raw);
    if (data !== null) takeData(data, at, growing, seen);
  });
  try {
    await readText(response, parser.push);
  } catch (error) {
    growing.breakOff(error.name === "AbortError" ? "stopped" : "broken off");
    throw error;
  }
  showTimes(timesOfStream(seen.arrivals, seen.usage));
  if (seen.isDone) {
    growing.settle();
    tellEnd(growing, seen.usage);
    return;
  }
  growing.breakOff("broken off");
  setStatus("The stream ended before its end mark.");
  if (seen.failure) showRefusal("In the stream,", seen.failure);
}

function takeData(data, at, growing, seen) {
  if (data === "[DONE]") {
    seen.isDone = true;
    return;
  }
  const chunk = JSON.parse(data);
  if (chunk.error) {
    seen.failure = chunk;
    return;
  }
  for (const choice of chunk.choices) {
    const { delta } = choice;
    if (choice.index === 0 && (delta.content || delta.reasoning_content || delta.tool_calls)) seen.arrivals.push(at);
    growing.take(choice);
  }
  if (chunk.usage && (chunk.choices[0]?.index ?? 0) === 0) seen.usage = chunk.usage;
  if (seen.arrivals.length === 1) setStatus("Answering.");
}

function tellEnd(growing, usage) {
  const tokens = usage ? `, ${usage.completion_tokens} tokens after ${usage.prompt_tokens} of the prompt` : "";
  setStatus(`The answer is complete: ${growing.finishes.join(", ")}${tokens}.`);
}

function addEvent(at, text) {
  const time = element("span", { class: "at" }, at === null ? "" : `+${at.toFixed(0)} ms  `);
  unshown.push(element("span", { class: "event" }, time, `${text}\n\n`));
  if (unshown.length === 1) requestAnimationFrame(showNews);
  if (unshown.length > MOST_EVENTS_SHOWN) unshown.shift();  // nobody looks: a hidden page has no frames
}

/** Once a frame, for asking where a pane is scrolled to lays all of it out. */
function showNews() {
  const pane = byId("events");
  follow();
  const wasAtEnd = isAtEnd(pane);
  pane.append(...unshown);
  unshown = [];
  while (pane.childElementCount > MOST_EVENTS_SHOWN) pane.firstElementChild.remove();
  if (wasAtEnd) pane.scrollTop = pane.scrollHeight;
  if (isFollowing) byId("turns").scrollTop = byId("turns").scrollHeight;
  lastTop = byId("turns").scrollTop;
}

/** The text may have grown by the time that a scroll is told: only who scrolls up wants to stay where they are. */
function follow() {
  const pane = byId("turns");
  if (isAtEnd(pane)) isFollowing = true;
  else if (pane.scrollTop < lastTop) isFollowing = false;
  lastTop = pane.scrollTop;
}

function isAtEnd(pane) {
  return pane.scrollHeight - pane.scrollTop - pane.clientHeight < AT_END_PX;
}

/** The error in the dialect's own shape, and at the field that it names; `where` is its status, or in words where it came. */
function showRefusal(where, body) {
  const particulars = typeof body.error === "string" ? { message: body.error, type: body.error_type } : body.error;
  const place = byId("error");
  const control = controlAtFault(particulars.param, particulars.message);
  const what = element("p", { class: "what" }, `${where} ${particulars.type ?? ""}: ${particulars.message}`);
  place.replaceChildren(what);
  if (control) {
    tellWrong(control, particulars.message);
    const go = element("button", { type: "button" }, `Go to ${control.dataset.name}`);
    go.addEventListener("click", () => { findFields(byId("find").value = ""); control.focus(); });
    place.append(go);
  }
  place.append(element("pre", {}, JSON.stringify(body, null, 2)));
  place.hidden = false;
}

function hideRefusal() {
  byId("error").hidden = true;
  controls().forEach(checkField);
}

function setStatus(words) {
  byId("status").textContent = words;
}

function setRunning(controller) {
  running = controller;
  // Not "disabled": a button that is would lose the focus.
  byId("send").setAttribute("aria-disabled", String(controller !== null));
  byId("stop").setAttribute("aria-disabled", String(controller === null));
}

async function clearConversation() {
  running?.abort();
  await attaching;
  turns.length = 0;
  byId("turns").replaceChildren();
  hideRefusal();
  detachAll();
  byId("say").focus();
}

function listen() {
  byId("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  byId("fields").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  byId("say").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
  byId("turns").addEventListener("scroll", follow);
  byId("say").addEventListener("input", showRequest);
  byId("call").addEventListener("input", showRequest);
  byId("model").addEventListener("change", showRequest);
  byId("role").addEventListener("change", () => { byId("call-label").hidden = byId("role").value !== "tool"; showRequest(); });
  byId("dialect").addEventListener("change", changeDialect);
  byId("key").addEventListener("change", loadModels);
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", clearConversation);
  byId("find").addEventListener("input", () => findFields(byId("find").value));
  byId("reset").addEventListener("click", () => {
    for (const control of controls()) { control.value = ""; checkField(control); }
    showRequest();
  });
}

function changeDialect() {
  byId("docs").href = `docs?dialect=${byId("dialect").value}`;
  showFields(currentFields());
  findFields(byId("find").value);
  showRequest();
}

byId("dialect").replaceChildren(...Object.keys(FACTS.fields).map((name) => option(name, name)));
byId("dialect").value = FACTS.dialect;
byId("role").replaceChildren(...ROLES.map((role) => option(role, role)));
changeDialect();
listen();
listenForFiles();
loadModels().catch((error) => setStatus(`The models could not be asked for: ${error.message}`));
