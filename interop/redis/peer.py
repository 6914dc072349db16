"""Contenders from other libraries: redis-py's Lock, python-redis-lock and pottery behind one line in, one line out.

    peer.py HOST:PORT

`ready` once connected, then one answer to each line, in turn; the end of the input ends it.

    acquire KIND NAME MILLIS        ok HANDLE - | busy | error TEXT
    rounds KIND NAME N FILE         ok N MICROS | error TEXT
    release HANDLE                  ok | error TEXT

KIND is redis-py, whose name is the key; python-redis-lock, whose key is `lock:NAME`; pottery, whose key is `redlock:NAME`.
"""

import sys
import time

import redis
import redis_lock
from pottery import Redlock

LEASE = 30
LONGEST = 120


class RedisPy:
    def __init__(self, client, name):
        self.lock = client.lock(name, timeout=LEASE, sleep=0.01)

    def acquire(self, seconds):
        return self.lock.acquire(blocking_timeout=seconds)

    def release(self):
        self.lock.release()


class PythonRedisLock:
    def __init__(self, client, name):
        self.lock = redis_lock.Lock(client, name, expire=LEASE)

    def acquire(self, seconds):
        if seconds < 1:
            return self.lock.acquire(blocking=False)
        # It waits for whole seconds, and no longer than a lease lasts.
        return self.lock.acquire(timeout=min(int(seconds), LEASE))

    def release(self):
        self.lock.release()


class Pottery:
    def __init__(self, client, name):
        self.lock = Redlock(key=name, masters={client}, auto_release_time=LEASE)

    def acquire(self, seconds):
        return self.lock.acquire(timeout=seconds)

    def release(self):
        self.lock.release()


KINDS = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock, "pottery": Pottery}


class Peer:
    def __init__(self, place):
        host, port = place.rsplit(":", 1)
        # Whoever blocks on a list is answered late.
        self.client = redis.Redis(host=host, port=int(port), socket_timeout=None)
        self.client.ping()
        self.held = {}

    def answer(self, command, *words):
        known = {"acquire": self.acquire, "rounds": self.rounds, "release": self.release}
        try:
            return known[command](*words)
        except Exception as failure:
            return " ".join(["error", type(failure).__name__, *str(failure).split()])

    def acquire(self, kind, name, millis):
        lock = KINDS[kind](self.client, name)
        if not lock.acquire(int(millis) / 1000):
            return "busy"
        handle = f"h{len(self.held) + 1}"
        self.held[handle] = lock
        return f"ok {handle} -"

    def release(self, handle):
        self.held.pop(handle).release()
        return "ok"

    def rounds(self, kind, name, rounds, file):
        """The counter is exact only if nobody else was inside."""
        start = time.monotonic()
        for each in range(int(rounds)):
            lock = KINDS[kind](self.client, name)
            if not lock.acquire(LONGEST):
                return f"error not got in {LONGEST} s in round {each}"
            try:
                with open(file) as text:
                    before = int(text.read())
                time.sleep(0.0002)
                with open(file, "w") as out:
                    out.write(str(before + 1))
            finally:
                lock.release()
        return f"ok {rounds} {int((time.monotonic() - start) * 1_000_000)}"


def main():
    try:
        peer = Peer(sys.argv[1])
    except Exception as failure:
        print(f"error not connected: {failure}", flush=True)
        sys.exit(1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(peer.answer(*line.split()), flush=True)


if __name__ == "__main__":
    main()
