"""A contender from another library: kazoo's recipes behind one line in, one line out.

    kazoo_peer.py CONNECT_STRING SESSION_TIMEOUT_MS [digest USER:PASSWORD]

`ready` once connected, then one answer to each line, in turn; the end of the input is `quit`.

    acquire KIND PATH MILLIS [1/MAX]        ok HANDLE NODE | busy | error TEXT
    rounds KIND PATH N FILE [1/MAX]         ok N MICROS | error TEXT
    leader PATH ID [kazoo]                  ok HANDLE - | busy | error TEXT
    release HANDLE                          ok | error TEXT
    participants KIND PATH                  ok A|B|C: the data of their nodes, `-` where there is none
    state, quit                             ok STATE | ok

KIND is mutex, read or write, which contend with Curator, or kazoo's own: kazoo-mutex, kazoo-read, kazoo-write,
kazoo-permits. `rounds` and `participants` know leader and kazoo-election too. Readers of `rounds` only look whether the
number stays. Nothing is left behind by `busy`, which may come later than MILLIS: kazoo waits that long for each
predecessor.
"""

import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NoNodeError
from kazoo.recipe.election import Election
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock
from kazoo.security import CREATOR_ALL_ACL

LONGEST = 60


class CuratorLock(Lock):
    """A whole peer of Curator's InterProcessMutex: Curator wants the digits behind the last `lock-`."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class CuratorWrite(Lock):
    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["__WRIT__", "__READ__"]


class CuratorRead(Lock):
    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]


class CuratorElection(Election):
    def __init__(self, client, path, identifier=None):
        self.lock = CuratorLock(client, path, identifier)


LOCKS = {
    "mutex": CuratorLock,
    "read": CuratorRead,
    "write": CuratorWrite,
    "kazoo-mutex": Lock,
    "kazoo-read": ReadLock,
    "kazoo-write": WriteLock,
}
ELECTIONS = {"leader": CuratorElection, "kazoo-election": Election}


class Claim:
    """A lock or a lease of a semaphore."""

    def __init__(self, client, kind, path, permits=None):
        if kind == "kazoo-permits":
            if permits is None:
                raise ValueError("1/MAX is missing")
            one, most = map(int, permits.split("/"))
            if one != 1:
                raise ValueError("kazoo has one permit at a time")
            self.lock = Semaphore(client, path, max_leases=most)
        elif kind in LOCKS:
            self.lock = LOCKS[kind](client, path)
        else:
            raise ValueError(f"unknown kind {kind}")
        self.path = path

    def acquire(self, seconds):
        """The path of the node; None if it was not got in time."""
        try:
            got = self._take(seconds)
        except NoNodeError:
            # It remembers that its path is there, and the server has taken the empty container away since.
            self.lock.assured_path = False
            got = self._take(seconds)
        if not got:
            return None
        return self.lock.create_path if isinstance(self.lock, Semaphore) else f"{self.path}/{self.lock.node}"

    def _take(self, seconds):
        try:
            return self.lock.acquire(timeout=seconds) if seconds else self.lock.acquire(blocking=False)
        except LockTimeout:
            return False

    def release(self):
        if not self.lock.release():
            raise RuntimeError("not held")


class Leader:
    """An election of one candidate; run() holds the thread for as long as it leads."""

    def __init__(self, election):
        self.election = election
        self.leads = threading.Event()
        self.enough = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            self.election.run(self._lead)
        except Exception as failure:
            self.failure = failure
            self.leads.set()

    def _lead(self):
        self.leads.set()
        self.enough.wait()

    def acquire(self, seconds):
        self.thread.start()
        if not self.leads.wait(seconds):
            self.enough.set()
            self.election.cancel()
            self.thread.join()
            return None
        if self.failure:
            raise self.failure
        return "-"

    def release(self):
        self.enough.set()
        self.thread.join()
        if self.failure:
            raise self.failure


class Peer:
    def __init__(self, hosts, timeout_ms, scheme=None, credential=None):
        secured = {"auth_data": [(scheme, credential)], "default_acl": CREATOR_ALL_ACL} if scheme else {}
        self.client = KazooClient(hosts=hosts, timeout=int(timeout_ms) / 1000, **secured)
        self.client.start(timeout=LONGEST)
        self.held = {}
        self.handles = 0

    def answer(self, command, *words):
        known = {
            "acquire": self.acquire,
            "rounds": self.rounds,
            "leader": self.leader,
            "release": self.release,
            "participants": self.participants,
            "state": lambda: f"ok {self.client.state}",
        }
        try:
            if command not in known:
                raise ValueError(f"unknown command {command}")
            return known[command](*words)
        except Exception as failure:
            return " ".join(["error", type(failure).__name__, *str(failure).split()])

    def acquire(self, kind, path, millis, permits=None):
        return self._hold(Claim(self.client, kind, path, permits), int(millis) / 1000)

    def leader(self, path, identity, kind=None):
        election = ELECTIONS["kazoo-election" if kind == "kazoo" else "leader"]
        return self._hold(Leader(election(self.client, path, identity)), LONGEST)

    def _hold(self, claim, seconds):
        node = claim.acquire(seconds)
        if node is None:
            return "busy"
        self.handles += 1
        handle = f"h{self.handles}"
        self.held[handle] = claim
        return f"ok {handle} {node}"

    def release(self, handle):
        claim = self.held.pop(handle, None)
        if claim is None:
            return f"error no handle {handle}"
        claim.release()
        return "ok"

    def rounds(self, kind, path, rounds, file, permits=None):
        """The counter is exact only if nobody else was inside."""
        start = time.monotonic()
        for each in range(int(rounds)):
            # A new one each time: a used Lock takes its parent for granted, and a container may have gone meanwhile.
            claim = (
                Leader(ELECTIONS[kind](self.client, path, "theirs"))
                if kind in ELECTIONS
                else Claim(self.client, kind, path, permits)
            )
            if claim.acquire(LONGEST) is None:
                return f"error not got in {LONGEST} s in round {each}"
            try:
                before = number(file)
                time.sleep(0.0002)
                if not kind.endswith("read"):
                    with open(file, "w") as out:
                        out.write(str(before + 1))
                elif number(file) != before:  # Readers are together, so they only look.
                    return f"error a writer was inside in round {each}"
            finally:
                claim.release()
        return f"ok {rounds} {int((time.monotonic() - start) * 1_000_000)}"

    def participants(self, kind, path):
        if self.client.exists(path) is None:  # contenders() would make it.
            return "ok"
        if kind == "kazoo-permits":
            who = Semaphore(self.client, path).lease_holders()
        else:
            who = {**LOCKS, **ELECTIONS}[kind](self.client, path).contenders()
        return ("ok " + "|".join(each.replace("\n", " ") or "-" for each in who)).strip()

    def close(self):
        self.client.stop()
        self.client.close()


def number(file):
    with open(file) as text:
        return int(text.read())


def main():
    try:
        peer = Peer(*sys.argv[1:])
    except Exception as failure:
        print(f"error not connected: {failure}", flush=True)
        sys.exit(1)
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split() or [""]
        if words == ["quit"]:
            peer.close()
            print("ok", flush=True)
            return
        print(peer.answer(*words), flush=True)
    peer.close()


if __name__ == "__main__":
    main()
