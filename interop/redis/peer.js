// Contenders from other libraries: node-redlock, redis-semaphore and node-redisson behind one line in, one line out.
//
//     peer.js HOST:PORT
//
// `ready` once connected, then one answer to each line, in turn; the end of the input ends it.
//
//     acquire KIND NAME MILLIS          ok HANDLE - | busy | error TEXT
//     rounds KIND NAME N FILE           ok N MICROS | error TEXT
//     release HANDLE                    ok | error TEXT
//
// KIND is redlock or redisson, whose name is the key; redis-semaphore, whose key of a mutex is `mutex:NAME`.
"use strict";
const fs = require("fs");
const readline = require("readline");
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");
const { Mutex } = require("redis-semaphore");
const { Redisson } = require("node-redisson");

const LEASE = 30_000;
const DELAY = 20;
const LONGEST = 120_000;
const [host, port] = process.argv[2].split(":");
const client = new Redis({ host, port: Number(port) });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const held = new Map();

// Each gives a lock that has a `release`, or nothing when it was not got in time.
const kinds = {
  async redlock(key, millis) {
    const locks = new Redlock([client], {
      retryCount: Math.ceil(millis / DELAY),
      retryDelay: DELAY,
      retryJitter: DELAY / 2,
    });
    try {
      return await locks.acquire([key], LEASE);
    } catch (failure) {
      if (failure.name === "ExecutionError") return null;
      throw failure;
    }
  },
  async "redis-semaphore"(name, millis) {
    const mutex = new Mutex(client, name, { lockTimeout: LEASE, acquireTimeout: millis, retryInterval: DELAY });
    return (await mutex.tryAcquire()) ? mutex : null;
  },
  // It waits for messages; without a limit it looks all the time.
  async redisson(key, millis) {
    theirs ??= new Redisson({ redis: { options: { host, port: Number(port) } } });
    const lock = theirs.getLock(key);
    if (millis === undefined) await lock.lock();
    else if (!(await lock.tryLock(millis))) return null;
    return { release: () => lock.unlock() };
  },
};
let theirs;
async function acquire(kind, name, millis) {
  const lock = await kinds[kind](name, Number(millis));
  if (!lock) return "busy";
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
async function rounds(kind, name, n, file) {
  const start = process.hrtime.bigint();
  for (let each = 0; each < Number(n); each++) {
    const lock = await kinds[kind](name, kind === "redisson" ? undefined : LONGEST);
    if (!lock) return `error not got in ${LONGEST} ms in round ${each}`;
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
  process.exit(0);
}
main().catch((failure) => {
  console.log(`error not connected: ${failure}`);
  process.exit(1);
});
