// Ollama's package for Node.
import assert from "node:assert/strict";
import { Ollama } from "ollama";
import {
  ASK_WEATHER, CAPITAL, CITY, EMOJI, KEY, KEYED_URL, LONG, MODEL, URL_, WEATHER_TOOL, check, checkCity, main,
  user, waitIdle,
} from "./checks.mjs";

const client = new Ollama({ host: URL_ });
const slow = new Ollama({ host: KEYED_URL, headers: { Authorization: `Bearer ${KEY}` } });

function ask(text = CAPITAL, { options, ...rest } = {}) {
  return client.chat({ model: MODEL, messages: user(text), options: { temperature: 0, num_predict: 40, ...options }, ...rest });
}

check("chat", async () => {
  const answer = await ask();
  assert.match(answer.message.content, /Paris/);
  assert.ok(answer.done && answer.done_reason === "stop" && answer.eval_count > 3);
});

check("stream_is_the_whole_answer", async () => {
  const parts = [];
  for await (const part of await ask(LONG, { stream: true })) parts.push(part);
  assert.equal(parts.map((p) => p.message.content).join(""), (await ask(LONG)).message.content);
  assert.equal(parts.at(-1).done_reason, "length");
});

check("generate", async () => {
  const options = { temperature: 0, num_predict: 20 };
  const whole = await client.generate({ model: MODEL, prompt: LONG, system: "Be brief.", options });
  let text = "";
  for await (const part of await client.generate({ model: MODEL, prompt: LONG, system: "Be brief.", options, stream: true }))
    text += part.response;
  assert.equal(text, whole.response);
  const raw = await client.generate({ model: MODEL, prompt: "The capital of France is", raw: true, options });
  assert.ok(raw.response.startsWith(" Paris"));
});

check("format_is_kept", async () => {
  for (const temperature of [0, 1.5])
    checkCity(JSON.parse((await ask("Describe Rome.", { format: CITY, options: { temperature, num_predict: 400 } })).message.content));
});

check("tools_are_offered", async () => {
  const { message } = await ask(ASK_WEATHER, { tools: [WEATHER_TOOL], options: { num_predict: 300 } });
  assert.ok(message.content || message.tool_calls.length);
  for (const call of message.tool_calls ?? []) assert.equal(call.function.name, "get_weather");
});

check("stop_and_seed", async () => {
  const whole = (await ask(LONG)).message.content;
  const word = whole.split(/\s+/)[5];
  assert.equal((await ask(LONG, { options: { stop: [word] } })).message.content, whole.slice(0, whole.indexOf(word)));
  const texts = [];
  for (const seed of [7, 7, 8]) texts.push((await ask(LONG, { options: { temperature: 1, seed } })).message.content);
  assert.equal(texts[0], texts[1]);
  assert.notEqual(texts[0], texts[2]);
});

check("unicode_is_kept", async () => {
  const format = { type: "object", properties: { text: { const: EMOJI } }, required: ["text"] };
  assert.equal(JSON.parse((await ask(EMOJI, { format })).message.content).text, EMOJI);
});

check("list_show_ps_version", async () => {
  const name = `${MODEL}:latest`;
  assert.equal((await client.list()).models[0].name, name);
  assert.equal((await client.ps()).models[0].model, name);
  assert.ok((await client.show({ model: name })).capabilities.includes("completion"));
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

check("errors", async () => {
  await assert.rejects(ask("Hi", { options: { temperature: 7 } }), { name: "ResponseError", status_code: 400 });
  await assert.rejects(ask("word ".repeat(20000)), { name: "ResponseError", status_code: 400 });
  await assert.rejects(client.embed({ model: MODEL, input: "x" }), { name: "ResponseError", status_code: 501 });
  const wrong = new Ollama({ host: KEYED_URL, headers: { Authorization: "Bearer wrong" } });
  await assert.rejects(wrong.list(), { name: "ResponseError", status_code: 401 });
});

check("abort_mid_stream", async () => {
  // The schema keeps the mock engine from ending its answer early.
  const stream = await slow.chat({ model: "mock", messages: user(LONG), stream: true,
    format: { type: "string", minLength: 2000 }, options: { num_predict: 2000 } });
  let n = 0;
  await assert.rejects(async () => {
    for await (const _ of stream) if ((n += 1) === 5) slow.abort();
  }, { name: "AbortError" });
  await waitIdle(5);
});

check("together_as_alone", async () => {
  const questions = [2, 3, 4, 5, 6].map((i) => `Name ${i} animals.`);
  const both = await Promise.all(questions.map((q) => ask(q)));
  for (const [i, q] of questions.entries()) assert.equal(both[i].message.content, (await ask(q)).message.content);
});

await main();
