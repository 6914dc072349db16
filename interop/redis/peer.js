// A contender from another library: node-redlock behind one line in, one line out.
//
//     peer.js HOST:PORT
//
// `ready` once connected, then one answer to each line, in turn; the end of the input ends it.
//
//     acquire redlock KEY MILLIS        ok HANDLE - | busy | error TEXT
//     rounds redlock KEY N FILE         ok N MICROS | error TEXT
//     release HANDLE                    ok | error TEXT
"use strict";
const fs = require("fs");
const readline = require("readline");
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const LEASE = 30_000;
const DELAY = 20;
const [host, port] = process.argv[2].split(":");
const client = new Redis({ host, port: Number(port) });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const held = new Map();

function locks(millis) {
  return new Redlock([client], {
    retryCount: Math.ceil(millis / DELAY),
    retryDelay: DELAY,
    retryJitter: DELAY / 2,
  });
}
async function acquire(kind, key, millis) {
  let lock;
  try {
    lock = await locks(Number(millis)).acquire([key], LEASE);
  } catch (failure) {
    if (failure.name === "ExecutionError") return "busy";
    throw failure;
  }
  const handle = `h${held.size + 1}`;
  held.set(handle, lock);
  return `ok ${handle} -`;
}
async function release(handle) {
  await held.get(handle).release();
  held.delete(handle);
  return "ok";
}
// The counter is exact only if nobody else was inside.
async function rounds(kind, key, n, file) {
  const start = process.hrtime.bigint();
  for (let each = 0; each < Number(n); each++) {
    const lock = await locks(120_000).acquire([key], LEASE);
    const before = Number(fs.readFileSync(file, "utf8"));
    await pause(1);
    fs.writeFileSync(file, String(before + 1));
    await lock.release();
  }
  return `ok ${n} ${(process.hrtime.bigint() - start) / 1000n}`;
}

async function main() {
  await client.ping();
  console.log("ready");
  const known = { acquire, rounds, release };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.trim().split(/\s+/);
    try {
      console.log(await known[command](...words));
    } catch (failure) {
      console.log(`error ${failure}`.replace(/\s+/g, " "));
    }
  }
  client.disconnect();
}
main().catch((failure) => {
  console.log(`error not connected: ${failure}`);
  process.exit(1);
});
