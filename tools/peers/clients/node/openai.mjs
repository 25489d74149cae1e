// OpenAI's Node SDK.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import {
  ASK_WEATHER, CAPITAL, CITY, EMOJI, KEY, KEYED_URL, LONG, MODEL, URL_, WEATHER_TOOL, check, checkCity,
  checkWeatherArguments, main, uniqueSystem, user, waitIdle,
} from "./checks.mjs";

const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: "none", maxRetries: 0, timeout: 120000 });
const slow = new OpenAI({ baseURL: `${KEYED_URL}/v1`, apiKey: KEY, maxRetries: 0 });
const endless = { model: "mock", messages: user(LONG), max_tokens: 2000, ignore_eos: true };

function ask(text = CAPITAL, options = {}) {
  return client.chat.completions.create(
    { model: MODEL, messages: user(text), temperature: 0, max_tokens: 40, ...options });
}

const textOf = async (text, options) => (await ask(text, options)).choices[0].message.content;

async function streamed(text, options) {
  let whole = "";
  for await (const chunk of await ask(text, { ...options, stream: true }))
    whole += chunk.choices[0]?.delta.content ?? "";
  return whole;
}

check("answer_and_usage", async () => {
  const answer = await ask();
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

check("stream_is_the_whole_answer", async () => {
  assert.equal(await streamed(LONG), await textOf(LONG));
});

check("stream_helper", async () => {
  const stream = client.chat.completions.stream(
    { model: MODEL, messages: user(LONG), temperature: 0, max_tokens: 40, stream_options: { include_usage: true } });
  assert.equal(await stream.finalContent(), await textOf(LONG));
  assert.equal((await stream.totalUsage()).completion_tokens, 40);
});

check("cached_tokens_grow", async () => {
  const messages = [{ role: "system", content: uniqueSystem() }, ...user("Who wrote Faust?")];
  const cached = [];
  for (let turn = 0; turn < 3; turn += 1) {
    const answer = await ask("", { messages });
    cached.push(answer.usage.prompt_tokens_details.cached_tokens);
    messages.push(answer.choices[0].message, ...user("And who else?"));
  }
  assert.ok(cached[0] < 30 && cached[1] > 200 && cached[2] > cached[1], String(cached));
});

check("forced_call", async () => {
  const options = { tools: [WEATHER_TOOL], tool_choice: "required", max_tokens: 400 };
  const calls = (await ask(ASK_WEATHER, options)).choices[0].message.tool_calls;
  assert.ok(calls.length >= 1);
  for (const call of calls) checkWeatherArguments(call.function.arguments);
  const stream = client.chat.completions.stream(
    { model: MODEL, messages: user(ASK_WEATHER), temperature: 0, ...options });
  const built = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  assert.deepEqual(built.map((c) => c.function.arguments), calls.map((c) => c.function.arguments));
});

check("run_tools", async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model: MODEL, messages: user(ASK_WEATHER), temperature: 0, max_tokens: 400,
    tool_choice: { type: "function", function: { name: "get_weather" } },
    tools: [{ ...WEATHER_TOOL, function: { ...WEATHER_TOOL.function, parse: JSON.parse,
      function: (args) => { asked.push(args); return "Sunny, 21 degrees."; } } }],
  }, { maxChatCompletions: 2 });
  await runner.done();
  assert.ok(asked.length >= 1);
  asked.forEach(checkWeatherArguments);
});

check("zod_schema", async () => {
  const City = z.object({ name: z.string().max(40), kind: z.enum(["town", "city"]), inhabitants: z.number().int() });
  const answer = await client.chat.completions.parse({
    model: MODEL, messages: user("Describe Rome."), temperature: 0, max_tokens: 400,
    response_format: zodResponseFormat(City, "city") });
  City.parse(answer.choices[0].message.parsed);
});

check("json_schema", async () => {
  const response_format = { type: "json_schema", json_schema: { name: "city", schema: CITY, strict: true } };
  for (const seed of [1, 2, 3])
    checkCity(JSON.parse(await textOf("Describe Rome.", { response_format, temperature: 1.5, seed, max_tokens: 400 })));
});

check("stop_strings", async () => {
  const whole = await textOf(LONG);
  const word = whole.split(/\s+/)[5];
  const cut = whole.slice(0, whole.indexOf(word));
  assert.equal(await textOf(LONG, { stop: [word] }), cut);
  assert.equal(await streamed(LONG, { stop: word }), cut);
});

check("log_probabilities", async () => {
  const answer = await ask(LONG, { logprobs: true, top_logprobs: 2, max_tokens: 6 });
  assert.equal(answer.choices[0].logprobs.content.length, 6);
  assert.equal(answer.choices[0].logprobs.content.map((e) => e.token).join(""), answer.choices[0].message.content);
});

check("several_choices", async () => {
  const answer = await ask(LONG, { n: 3, temperature: 1 });
  assert.equal(new Set(answer.choices.map((c) => c.message.content)).size, 3);
});

check("seeds", async () => {
  const texts = [];
  for (const seed of [7, 7, 8]) texts.push(await textOf(LONG, { temperature: 1, seed }));
  assert.equal(texts[0], texts[1]);
  assert.notEqual(texts[0], texts[2]);
});

check("unicode_is_kept", async () => {
  assert.equal(await streamed(EMOJI, { guided_choice: [EMOJI] }), EMOJI);
});

check("completion_and_models", async () => {
  const answer = await client.completions.create(
    { model: MODEL, prompt: "The capital of France is", temperature: 0, max_tokens: 5 });
  assert.ok(answer.choices[0].text.startsWith(" Paris"));
  assert.deepEqual((await client.models.list()).data.map((m) => m.id), [MODEL]);
});

check("errors", async () => {
  await assert.rejects(ask("Hi", { temperature: 7 }), OpenAI.BadRequestError);
  await assert.rejects(ask("word ".repeat(20000)), { status: 400, code: "context_length_exceeded" });
  const wrong = new OpenAI({ baseURL: `${KEYED_URL}/v1`, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
  await assert.rejects(client.embeddings.create({ model: MODEL, input: "x" }), OpenAI.InternalServerError);
});

check("timeout", async () => {
  await assert.rejects(slow.chat.completions.create(endless, { timeout: 500 }), OpenAI.APIConnectionTimeoutError);
  await waitIdle();
});

check("abort_mid_stream", async () => {
  const stream = await slow.chat.completions.create({ ...endless, stream: true });
  let n = 0;
  for await (const _ of stream) if ((n += 1) === 5) break;
  await waitIdle(5);
});

check("together_as_alone", async () => {
  const questions = [2, 3, 4, 5, 6].map((i) => `Name ${i} animals.`);
  const both = await Promise.all(questions.map((q) => textOf(q)));
  for (const [i, q] of questions.entries()) assert.equal(both[i], await textOf(q));
});

await main();
