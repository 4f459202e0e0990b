// openai-node: `create`, the `.stream()` helper, `parse` and `runTools`.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { ANSWER, BASE_URL, MODEL, attempt, equal, thrown, user } from "./attempts.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "any", maxRetries: 0 });
const completions = client.chat.completions;
const Weather = z.object({ city: z.string(), degrees: z.number().int() });
const asked = [];
const TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: JSON.parse,
    function: ({ city }) => { asked.push(city); return "21 degrees"; },
  },
};
const collect = async (stream) => { const all = []; for await (const one of stream) all.push(one); return all; };

await attempt("whole answer", async () => {
  const answer = await completions.create({ model: MODEL, messages: user("count") });
  equal([answer.choices[0].message.content, answer.usage.completion_tokens], ["1 2 3 4 5", 6]);
});
await attempt("stream", async () => {
  const chunks = await collect(await completions.create({ model: MODEL, messages: user("count"), stream: true }));
  equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "1 2 3 4 5");
});
await attempt("usage of a stream", async () => {
  const chunks = await collect(await completions.create(
    { model: MODEL, messages: user("count"), stream: true, stream_options: { include_usage: true } }));
  equal(chunks.filter((chunk) => chunk.usage).map((chunk) => chunk.usage.completion_tokens), [6]);
});
await attempt("stream helper", async () => {
  equal(await completions.stream({ model: MODEL, messages: user("count") }).finalContent(), "1 2 3 4 5");
});
await attempt("stream helper: role", async () => {
  equal((await completions.stream({ model: MODEL, messages: user("count") }).finalMessage()).role, "assistant");
});
await attempt("tool loop", async () => {
  const runner = completions.runTools({ model: MODEL, messages: user("weather in Oslo"), tools: [TOOL] });
  equal([await runner.finalContent(), asked.splice(0)], [ANSWER, ["Oslo"]]);
});
await attempt("tool call, streamed", async () => {
  const runner = completions.runTools({ model: MODEL, messages: user("weather in Oslo"), tools: [TOOL], stream: true });
  equal([await runner.finalContent(), asked.splice(0)], [ANSWER, ["Oslo"]]);
});
await attempt("structured answer", async () => {
  const format = zodResponseFormat(Weather, "weather");
  const answer = await completions.parse({ model: MODEL, messages: user("as json"), response_format: format });
  equal(answer.choices[0].message.parsed, { city: "Oslo", degrees: 21 });
});
await attempt("structured answer, streamed", async () => {
  const format = zodResponseFormat(Weather, "weather");
  const stream = completions.stream({ model: MODEL, messages: user("as json"), response_format: format });
  equal((await stream.finalChatCompletion()).choices[0].message.parsed, { city: "Oslo", degrees: 21 });
});
const refused = () => thrown(
  () => completions.create({ model: MODEL, messages: user("count"), temperature: -1 }), "it was not refused");
await attempt("refusal names the field", async () => { equal((await refused()).message.includes("temperature"), true); });
await attempt("refusal: message", async () => {
  const { message } = await refused();
  if (!message.includes("temperature")) throw new Error(message);
});
await attempt("refusal: param", async () => { equal((await refused()).param, "temperature"); });
await attempt("stream that breaks off", async () => {
  const error = await thrown(
    async () => collect(await completions.create({ model: MODEL, messages: user("fail"), stream: true })),
    "a stream that broke off looked whole");
  equal(error instanceof OpenAI.APIError, true);
});
await attempt("MindIE's parameters", async () => {
  const answer = await completions.create({ model: MODEL, messages: user("count"), top_k: 5, repetition_penalty: 1.1 });
  equal(answer.choices[0].message.content, "1 2 3 4 5");
  await thrown(() => completions.create({ model: MODEL, messages: user("count"), top_k: 0 }), "top_k 0 was not refused");
});
await attempt("MindIE's times", async () => {
  equal("prefill_time" in await completions.create({ model: MODEL, messages: user("count") }), true);
});
