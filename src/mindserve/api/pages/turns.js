// The conversation: what was said, what is being said, and what goes into the next request.

const turns = [];

/** Make `message` part of the next request; `row` shows it, a new one where it is not shown yet. */
function addTurn(message, row = null) {
  turns.push(message);
  const shown = row ?? shownTurn(message);
  const remove = element("button", { type: "button" }, "remove");
  remove.addEventListener("click", () => {
    turns.splice(turns.indexOf(message), 1);
    shown.remove();
    showRequest();
    byId("say").focus();
  });
  shown.querySelector(".who").append(remove);
}

function shownTurn(message) {
  const row = turnRow(message.role);
  if (Array.isArray(message.content)) {
    row.querySelector(".media").append(...mediaOf(message).map(preview));
    for (const part of message.content) showPart(row, "text", part.text);
  } else {
    showPart(row, "text", message.content);
  }
  byId("turns").append(row);
  return row;
}

function turnRow(role) {
  return element("li", { class: `turn ${role}` }, element("div", { class: "who" }, element("span", {}, role)),
    element("div", { class: "media" }), element("div", { class: "thought" }), element("div", { class: "text" }), element("div", { class: "calls" }));
}

/** Add to a part of a turn; what is shown already is left alone, so that long answers stay cheap. */
function showPart(row, kind, text) {
  if (text) row.querySelector(`.${kind}`).append(text);
}

function showCalls(row, calls) {
  row.querySelector(".calls").replaceChildren(...calls.map(
    (call) => element("pre", {}, `${call.function.name}(${call.function.arguments})\n${call.id}`)));
}

function remark(row, words) {
  row.querySelector(".who").append(element("span", {}, words));
}

/** An answer that grows: one row for each sequence, filled by pieces; the first one joins the conversation at its end. */
function growingAnswer(isFullText) {
  const rows = new Map();

  function sequence(index) {
    if (!rows.has(index)) {
      const row = turnRow("assistant");
      row.setAttribute("aria-busy", "true");
      if (index > 0) remark(row, `sequence ${index + 1}, not part of the next request`);
      byId("turns").append(row);
      rows.set(index, { row, message: { role: "assistant", content: "" }, finish: null });
    }
    return rows.get(index);
  }

  return {
    take(choice) {
      const one = sequence(choice.index);
      join(one, choice.message ?? choice.delta, isFullText);
      one.finish = choice.finish_reason ?? one.finish;
    },
    settle() {
      for (const { row } of rows.values()) row.removeAttribute("aria-busy");
      const first = rows.get(0);
      if (first) addTurn(first.message, first.row);
    },
    /** It broke off: what has come is shown but goes into no request. */
    breakOff(why) {
      for (const { row } of rows.values()) {
        row.removeAttribute("aria-busy");
        remark(row, why);
      }
    },
    get finishes() { return [...rows.values()].map(({ finish }) => finish); },
  };
}

/** Put a message or a delta behind what a sequence has said; `isFullText`: its content is all of the content so far. */
function join({ row, message }, piece, isFullText) {
  if (piece.reasoning_content) {
    message.reasoning_content = (message.reasoning_content ?? "") + piece.reasoning_content;
    showPart(row, "thought", piece.reasoning_content);
  }
  if (piece.content) {
    const fresh = isFullText ? piece.content.slice(message.content.length) : piece.content;
    message.content += fresh;
    showPart(row, "text", fresh);
  }
  for (const [position, call] of (piece.tool_calls ?? []).entries()) {
    message.tool_calls ??= [];
    const index = call.index ?? position;
    const known = message.tool_calls[index];
    if (known) known.function.arguments += call.function.arguments;
    else message.tool_calls[index] = { id: call.id, type: "function", function: { ...call.function } };
    showCalls(row, message.tool_calls);
  }
}
