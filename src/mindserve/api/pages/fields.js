// The parameters: a control for each field of the contract, and the text of the request that they add up to.

const OF_THE_CONVERSATION = ["model", "messages"];
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const INTEGER = /^-?(0|[1-9]\d*)$/;

/** Build the controls for `fields`; what was typed into controls of the same name stays. */
function showFields(fields) {
  const typed = typedValues();
  const form = byId("fields");
  form.replaceChildren(...fields.filter((field) => !OF_THE_CONVERSATION.includes(field.name)).map(fieldRow));
  for (const control of controls()) {
    const first = control.dataset.name === "stream" ? "true" : "";
    control.value = typed.get(control.dataset.name) ?? first;
    checkField(control);
  }
  const messages = fields.find((field) => field.name === "messages");
  byId("messages-note").textContent = messages ? `A request takes ${messages.bounds} of messages.` : "";
}

function controls() {
  return [...byId("fields").querySelectorAll("[data-name]")];
}

function typedValues() {
  return new Map(controls().map((control) => [control.dataset.name, control.value]));
}

function fieldRow(field) {
  const id = `field-${field.name}`;
  const control = fieldControl(field);
  control.id = id;
  control.dataset.name = field.name;
  control.setAttribute("aria-describedby", `${id}-wrong ${id}-limits ${id}-notes`);
  control.addEventListener("input", () => { checkField(control); showRequest(); });
  const label = element("label", {}, element("code", {}, field.name));
  label.htmlFor = id;
  return element("div", { class: field.kind === "json" ? "field wide" : "field" }, label, control,
    element("p", { id: `${id}-wrong`, class: "wrong", hidden: "" }),
    element("p", { id: `${id}-limits`, class: "limits" }, limits(field)),
    element("p", { id: `${id}-notes`, class: "notes" }, [field.notes, field.source && `(${field.source})`].filter(Boolean).join(" ")));
}

function limits(field) {
  const least = field.default && `default ${field.default}`;
  return [field.type, field.bounds, least].filter(Boolean).join("; ");
}

function fieldControl(field) {
  if (field.kind === "boolean" || field.kind === "choice") {
    const values = field.kind === "boolean" ? ["true", "false"] : field.values;
    return element("select", {}, option("", "not sent"), ...values.map((value) => option(value, value)));
  }
  if (field.kind === "json") return element("textarea", { rows: "1", spellcheck: "false" });
  const mode = { integer: "numeric", number: "decimal" }[field.kind] ?? "text";
  return element("input", { type: "text", inputmode: mode, spellcheck: "false", autocomplete: "off" });
}

/** Tell at the control what the contract says against its text, if anything. */
function checkField(control) {
  const field = currentFields().find((one) => one.name === control.dataset.name);
  const text = control.value.trim();
  control.closest(".field").classList.toggle("set", text !== "");
  tellWrong(control, text === "" ? "" : breach(field, text));
}

function tellWrong(control, words) {
  const place = byId(`${control.id}-wrong`);
  place.textContent = words;
  place.hidden = words === "";
  if (words) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
}

/** What is wrong with `text` as a value of `field`, in words; "" when nothing is. */
function breach(field, text) {
  const expected = [field.type, field.bounds].filter(Boolean).join(", ");
  if (field.kind === "integer" || field.kind === "number") {
    const isOne = (field.kind === "integer" ? INTEGER : JSON_NUMBER).test(text);
    return isOne && isWithin(field, text) ? "" : `${field.name} must be: ${expected}`;
  }
  return field.kind === "json" && !field.admits_text && parsed(text) === undefined
    ? `${field.name} is not JSON and would be sent as text; it must be: ${expected}` : "";
}

function isWithin(field, text) {
  const number = field.kind === "integer" ? BigInt : Number;  // seeds are longer than a Number is exact
  const value = number(text);
  return !((field.min !== undefined && value < number(field.min)) || (field.max !== undefined && value > number(field.max))
    || (field.above !== undefined && value <= Number(field.above)) || (field.below !== undefined && value >= Number(field.below))
    || (field.not !== undefined && value === number(field.not)));
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

/** The text of the body, exactly as it is sent: numbers keep the digits that were typed. */
function requestText(model, messages) {
  const pairs = [["model", JSON.stringify(model)], ["messages", indented(messages)]];
  for (const control of controls()) {
    const text = control.value.trim();
    if (text !== "") pairs.push([control.dataset.name, asJson(control.dataset.name, text)]);
  }
  return `{\n${pairs.map(([name, value]) => `  ${JSON.stringify(name)}: ${value}`).join(",\n")}\n}`;
}

function asJson(name, text) {
  const field = currentFields().find((one) => one.name === name);
  if (field.kind === "text" || field.kind === "choice") return JSON.stringify(text);
  return parsed(text) === undefined ? JSON.stringify(text) : text;
}

function indented(value) {
  return JSON.stringify(value, null, 2).replaceAll("\n", "\n  ");
}

/** The control of the field that an error is about, by what it names or how it begins; null when there is none. */
function controlAtFault(name, words) {
  const said = (name || words).split(/[.[\s:]/, 1)[0];
  return controls().find((control) => control.dataset.name === said) ?? null;
}

/** Hide the fields that have nothing of `words` in them. */
function findFields(words) {
  const wanted = words.trim().toLowerCase();
  for (const row of byId("fields").children) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}
