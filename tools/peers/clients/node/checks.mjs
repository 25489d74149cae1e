// What the Node checks share. See ../checks.py for the arguments and the lines that are printed.
import assert from "node:assert/strict";

export const [URL_, KEYED_URL, MODEL] = process.argv.slice(2);
export const KEY = "secret";
export const CAPITAL = "Is the capital of France Paris? Answer in one sentence.";
export const LONG = "Write a long story about a ship, an island and a storm.";
export const ASK_WEATHER = "What is the weather in Paris, in celsius?";
export const EMOJI = "Grüße 東京 👩‍👩‍👧";
export const CITY = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 40 },
    inhabitants: { type: "integer", minimum: 1, maximum: 40000000 },
    kind: { enum: ["town", "city"] },
  },
  required: ["name", "inhabitants", "kind"],
  additionalProperties: false,
};
export const WEATHER_TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 40 }, unit: { enum: ["celsius", "fahrenheit"] } },
      required: ["city", "unit"],
      additionalProperties: false,
    },
  },
};

const checks = [];

export function check(name, run) {
  checks.push([name, run]);
}

export async function main() {
  let failed = 0;
  for (const [name, run] of checks) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${name}: ${String(error).replaceAll("\n", " ").slice(0, 600)}`);
      console.error(error);
    }
  }
  process.exit(failed ? 1 : 0);
}

export const user = (content) => [{ role: "user", content }];
export const uniqueSystem = () =>
  `Note ${process.hrtime.bigint()}. ` + "You are a helpful assistant of a small library. ".repeat(20);

export function checkCity(city) {
  assert.deepEqual(Object.keys(city).sort(), ["inhabitants", "kind", "name"]);
  assert.ok(Number.isInteger(city.inhabitants) && city.inhabitants >= 1 && city.inhabitants <= 40000000);
  assert.ok(["town", "city"].includes(city.kind));
}

export function checkWeatherArguments(value) {
  const parsed = typeof value === "string" ? JSON.parse(value) : value;
  assert.deepEqual(Object.keys(parsed).sort(), ["city", "unit"]);
  assert.ok(["celsius", "fahrenheit"].includes(parsed.unit));
}

export async function waitIdle(seconds = 10) {
  const headers = { Authorization: "Bearer operator" };
  for (let i = 0; i < seconds * 20; i += 1) {
    const stats = await (await fetch(`${KEYED_URL}/stats`, { headers })).json();
    if (stats.running + stats.waiting === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("the server is still generating");
}
