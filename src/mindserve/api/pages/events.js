// Server-sent events: bytes in, one call per event out, whatever pieces the bytes come in.

/** Feed `push` with text; `onEvent(raw, data)` gets each block's own text, and its data or null for a comment. */
function eventParser(onEvent) {
  let rest = "";
  return {
    push(text) {
      rest += text;
      let end;
      while ((end = /\r\n\r\n|\n\n|\r\r(?!\n)/.exec(rest)) !== null) {
        const block = rest.slice(0, end.index);
        rest = rest.slice(end.index + end[0].length);
        onEvent(block, dataOf(block));
      }
    },
    get unfinished() { return rest; },
  };
}

function dataOf(block) {
  const lines = block.split(/\r\n|\n|\r/).filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}

/** Read a body to its end, `onText` getting each piece as it comes. */
async function readText(response, onText) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    onText(decoder.decode(value, { stream: !done }));
    if (done) return;
  }
}
