#!/usr/bin/env node
// A worker: it reads questions in lines of JSON and answers each in a line. See docs/workers.md.
import { createInterface } from "node:readline";

// What takes its time is done once: imports, a connection, a list that is read into memory.
const zones = { eu: "a", us: "a" };

async function answer({ regions }) {
  if (!Array.isArray(regions)) return { error: "regions: a list, please", code: "invalid_input" };
  return { output: regions.map((region) => ({ region, zone: zones[region] ?? "a" })) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, request } = JSON.parse(line);
  // A question without an answer: the next one may have one.
  const said = await answer(request.input.parameters).catch((error) => ({ error: String(error) }));
  process.stdout.write(JSON.stringify({ id, ...said }) + "\n");
}
