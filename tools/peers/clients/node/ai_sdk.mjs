// Vercel's AI SDK with @ai-sdk/openai-compatible.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import {
  ASK_WEATHER, CAPITAL, EMOJI, KEY, KEYED_URL, LONG, MODEL, URL_, check, main, uniqueSystem, user, waitIdle,
} from "./checks.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const provider = (url, apiKey) => createOpenAICompatible(
  { name: "radish", baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const radish = provider(URL_, "none");
const City = z.object({
  name: z.string().max(40), kind: z.enum(["town", "city"]), inhabitants: z.number().int().min(1).max(40000000) });
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string().max(40), unit: z.enum(["celsius", "fahrenheit"]) }),
  execute: async ({ city }) => `Sunny, 21 degrees in ${city}.`,
});

const ask = (prompt, options = {}) => ({
  model: radish(MODEL), prompt, temperature: 0, maxOutputTokens: 40, maxRetries: 0, ...options });
const textOf = async (prompt, options) => (await generateText(ask(prompt, options))).text;

check("answer_and_usage", async () => {
  const { text, usage, finishReason } = await generateText(ask(CAPITAL));
  assert.match(text, /Paris/);
  assert.equal(finishReason, "stop");
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
  assert.ok(usage.outputTokens > 3);
});

check("stream_is_the_whole_answer", async () => {
  const stream = streamText(ask(LONG));
  let text = "";
  for await (const part of stream.textStream) text += part;
  assert.equal(text, await textOf(LONG));
  assert.equal(await stream.finishReason, "length");
  assert.equal((await stream.usage).outputTokens, 40);
});

check("cached_tokens_grow", async () => {
  const messages = [{ role: "system", content: uniqueSystem() }, ...user("Who wrote Faust?")];
  const cached = [];
  for (let turn = 0; turn < 3; turn += 1) {
    const { usage, text } = await generateText(ask(undefined, { messages, allowSystemInMessages: true }));
    cached.push(usage.cachedInputTokens ?? usage.inputTokenDetails.cacheReadTokens);
    messages.push({ role: "assistant", content: text }, ...user("And who else?"));
  }
  assert.ok(cached[0] < 30 && cached[1] > 200 && cached[2] > cached[1], String(cached));
});

check("forced_call", async () => {
  const options = { tools: { weather }, toolChoice: "required", maxOutputTokens: 400 };
  const { toolCalls, toolResults, finishReason } = await generateText(ask(ASK_WEATHER, options));
  assert.ok(toolCalls.length >= 1 && toolCalls.every((call) => call.toolName === "weather" && !call.invalid));
  assert.match(toolResults[0].output, /Sunny/);
  assert.equal(finishReason, "tool-calls");
  const streamed = await streamText(ask(ASK_WEATHER, options)).toolCalls;
  assert.deepEqual(streamed.map((call) => call.input), toolCalls.map((call) => call.input));
});

check("named_call_and_second_step", async () => {
  const { steps } = await generateText(ask(ASK_WEATHER, {
    tools: { weather }, maxOutputTokens: 400, stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : { type: "tool", toolName: "weather" } }),
  }));
  assert.equal(steps.length, 2);
  assert.ok(steps[0].toolResults.length >= 1 && steps[1].text.length > 0);
});

check("object", async () => {
  for (const temperature of [0, 1.5]) {
    const { output } = await generateText(ask("Describe Rome.", {
      output: Output.object({ schema: City }), temperature, maxOutputTokens: 400 }));
    City.parse(output);
  }
});

check("streamed_object", async () => {
  const stream = streamText(ask("Describe Rome.", { output: Output.object({ schema: City }), maxOutputTokens: 400 }));
  let last;
  for await (const part of stream.partialOutputStream) last = part;
  City.parse(last);
});

check("array_and_choice", async () => {
  const list = await generateText(ask("Describe a city.", {
    output: Output.array({ element: City }), maxOutputTokens: 1500, temperature: 0.8, seed: 3 }));
  z.array(City).parse(list.output);
  const choice = await generateText(ask("Is this spam? 'You won a prize!'", {
    output: Output.choice({ options: ["spam", "ham"] }) }));
  assert.ok(["spam", "ham"].includes(choice.output));
});

check("stop_strings", async () => {
  const whole = await textOf(LONG);
  const word = whole.split(/\s+/)[5];
  assert.equal(await textOf(LONG, { stopSequences: [word] }), whole.slice(0, whole.indexOf(word)));
});

check("seeds", async () => {
  const texts = [];
  for (const seed of [7, 7, 8]) texts.push(await textOf(LONG, { temperature: 1, seed }));
  assert.equal(texts[0], texts[1]);
  assert.notEqual(texts[0], texts[2]);
});

check("unicode_is_kept", async () => {
  const { output } = await generateText(ask(EMOJI, {
    output: Output.object({ schema: z.object({ text: z.literal(EMOJI) }) }) }));
  assert.equal(output.text, EMOJI);
});

check("errors", async () => {
  const failing = (options) => assert.rejects(generateText(ask("Hi", options)), (error) => {
    assert.ok(APICallError.isInstance(error), String(error));
    return error.statusCode === (options.model ? 401 : 400);
  });
  await failing({ temperature: 7 });
  await failing({ prompt: "word ".repeat(20000) });
  await failing({ model: provider(KEYED_URL, "wrong")("mock") });
});

check("abort_and_timeout", async () => {
  const endless = {
    model: provider(KEYED_URL, KEY)("mock"), prompt: LONG, maxOutputTokens: 2000, maxRetries: 0,
    providerOptions: { radish: { ignore_eos: true } } };
  await assert.rejects(generateText({ ...endless, abortSignal: AbortSignal.timeout(500) }));
  await waitIdle();
  const abort = new AbortController();
  let n = 0;
  for await (const _ of streamText({ ...endless, abortSignal: abort.signal, onError() {} }).textStream)
    if ((n += 1) === 5) abort.abort();
  await waitIdle(5);
  assert.ok(n >= 5);
});

check("together_as_alone", async () => {
  const questions = [2, 3, 4, 5].map((i) => `Name ${i} animals.`);
  const both = await Promise.all(questions.map((q) => textOf(q)));
  for (const [i, q] of questions.entries()) assert.equal(both[i], await textOf(q));
});

await main();
