// Vercel AI SDK, with its provider for servers of OpenAI's API.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { ANSWER, BASE_URL, MODEL, attempt, equal, thrown } from "./attempts.mjs";

const provider = createOpenAICompatible(
  { name: "mindserve", baseURL: BASE_URL, apiKey: "any", supportsStructuredOutputs: true, includeUsage: true });
const quietly = { model: provider(MODEL), maxRetries: 0 };
const failures = [];
const streamed = (options) => streamText({ ...quietly, onError: ({ error }) => { failures.push(error); }, ...options });
const output = Output.object({ schema: z.object({ city: z.string(), degrees: z.number() }) });
const asked = [];
const tools = {
  get_weather: tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => { asked.push(city); return "21 degrees"; },
  }),
};
const loop = { prompt: "weather in Oslo", tools, stopWhen: stepCountIs(3) };

await attempt("whole answer", async () => {
  const answer = await generateText({ ...quietly, prompt: "count" });
  equal([answer.text, answer.usage.outputTokens], ["1 2 3 4 5", 6]);
});
await attempt("stream", async () => { equal(await streamed({ prompt: "count" }).text, "1 2 3 4 5"); });
await attempt("usage of a stream", async () => { equal((await streamed({ prompt: "count" }).usage).outputTokens, 6); });
await attempt("tool loop", async () => {
  equal([(await generateText({ ...quietly, ...loop })).text, asked.splice(0)], [ANSWER, ["Oslo"]]);
});
await attempt("tool call, streamed", async () => { equal([await streamed(loop).text, asked.splice(0)], [ANSWER, ["Oslo"]]); });
await attempt("structured answer", async () => {
  equal((await generateText({ ...quietly, prompt: "as json", output })).output, { city: "Oslo", degrees: 21 });
});
await attempt("structured answer, streamed", async () => {
  equal(await streamed({ prompt: "as json", output }).output, { city: "Oslo", degrees: 21 });
});
const refused = () => thrown(() => generateText({ ...quietly, prompt: "count", temperature: -1 }), "it was not refused");
await attempt("refusal names the field", async () => {
  const { message, responseBody } = await refused();
  equal(`${message} ${responseBody}`.includes("temperature"), true);
});
await attempt("refusal: message", async () => {
  const { message } = await refused();
  if (!message.includes("temperature")) throw new Error(message);
});
await attempt("refusal: param", async () => { equal((await refused()).data?.error?.param, "temperature"); });
await attempt("MindIE's times", async () => {
  const { response } = await generateText({ ...quietly, prompt: "count", include: { responseBody: true } });
  equal(response.body.prefill_time !== undefined, true);
});
await attempt("stream that breaks off", async () => {
  failures.length = 0;
  const parts = [];
  for await (const part of streamed({ prompt: "fail" }).fullStream) parts.push(part.type);
  if (failures.length === 0) throw new Error(`no error was told: ${parts.join(" ")}`);
});
await attempt("MindIE's parameters", async () => {
  const own = { mindserve: { top_k: 5, repetition_penalty: 1.1 } };
  equal((await generateText({ ...quietly, prompt: "count", providerOptions: own })).text, "1 2 3 4 5");
  const wrong = { mindserve: { top_k: 0 } };
  await thrown(() => generateText({ ...quietly, prompt: "count", providerOptions: wrong }), "top_k 0 was not refused");
});
