//! What the help of a subcommand says below its options: what a line there has no room for, and examples.
//! Each example is parsed by a test, and run by another one where it needs no server.

pub(crate) const RUN: &str = "\
Examples:
  fencelock run backup -- pg_dump -f db.sql app      one at a time, the others wait
  fencelock run -n --skip-ok --at-least 20s nightly -- ./report
                                                     the same cron job on many hosts: one runs it, also where clocks
                                                     differ by less than 20 s
  fencelock run -s config -- ./serve                 readers of `config`, beside each other
  fencelock run --write config -- ./deploy           its writer: waits for the readers, and keeps new ones out
  fencelock run --permits 1/3 partner-api -- ./sync  at most three at once
  fencelock run --permits 3/3 partner-api -- ./move  all of it

A name is one kind of lock at a time: a mutex (neither -s, --write nor --permits), a read-write lock (-s and --write) or
a semaphore (--permits, and all say the same N). Another kind or size than the one in use ends with 78.

The job finds FENCELOCK_NAME, FENCELOCK_HOLD, FENCELOCK_ENGINE, FENCELOCK_TTL_MS and FENCELOCK_MODE (mutex, read, write or
permits). FENCELOCK_TOKEN, for fenced writes, is there in the modes mutex and write only: the number of a hold that has
others beside it orders nothing. FENCELOCK_OUTER names the holds of the runs around it. On etcd there are ETCD_LOCK_KEY
and ETCD_LOCK_REV, too.

With --reentrant a script can be called by itself and from a script that holds NAME already: below that run it joins, in
the same or a lesser mode (-s below --write), and its job ends with the lock of the outer run, at the latest. A run with
--on-loss warn stops nobody: its job finds FENCELOCK_ON_LOSS=warn, and what it holds is not joined.

Exit codes: the job's own, 128+n when a signal ended it; 75 not got in time, 76 lost and the job stopped, 69 engine
unreachable, 78 configuration, 64 usage, 126/127 command not executable / not found. A release that nobody answers is told,
and the job's own code counts; a signal ends the wait for it.";

pub(crate) const HOLD: &str = "\
Examples:
  coproc fencelock hold deploy                       in bash: it is held for as long as the script lives
  read -r held <&\"${COPROC[0]}\" || exit 75          waits for the line that says so; no line: it was not got
  fencelock hold -w 5s deploy < fifo | jq .token     the token, for fenced writes

When it is held one line of JSON says so, on standard output. It ends, and gives the lock back, when its standard input does,
or when a signal says so: with 0. A standard input that is /dev/null, as a service has, or the terminal of one that runs in
the background, is not looked at. A pipe has ended when nobody has its other side any more: a program that the script has left
behind counts.

Nobody is stopped when the lock is lost: that is told by the exit code 76, at once, and whoever uses it has to look. Nor is
anybody when this process is killed, which frees the lock, when its ttl is over at the latest. `run` stops its job in both cases: take it wherever you can.

Exit codes: 0 given back, 75 not got in time, or standard input had ended before, 76 lost, 74 nobody reads standard output
any more, or it cannot be written (a reader that is slow is waited for), 69 engine unreachable, 78 configuration, 64 usage,
128+n ended by a signal while it waited.";

pub(crate) const CELL_GET: &str = "\
Example:
  fencelock cell get config/limit                    the value, byte for byte
  fencelock cell get config/limit --json             {\"name\":\"config/limit\",\"version\":12,\"value\":\"80\"}

A value that is not UTF-8 is told in JSON as \"hex\".";

pub(crate) const CELL_SET: &str = "\
Examples:
  fencelock cell set config/limit 80                   whatever stands there
  fencelock cell set config/limit 80 --if-version 12   if nobody has written since; else it ends with 75
  fencelock cell set config/limit 80 --if-version 0    if it was never written
  fencelock cell set page --stdin < page.html          256 KiB at most
  fencelock cell set config/limit --remove

A name is a cell or a lock, not both (78).";

pub(crate) const RESIZE: &str = "\
Example:
  fencelock semaphore resize partner-api 3 5         from now on --permits K/5; K/3 ends with 78

It may be repeated. Whoever holds keeps it; one of another size than FROM or TO ends with 78. One that nobody has used yet
gets the size TO.";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  fencelock completions bash > ~/.local/share/bash-completion/completions/fencelock
  fencelock completions zsh > ~/.zfunc/_fencelock
  fencelock completions fish > ~/.config/fish/completions/fencelock.fish";

pub(crate) const MAN: &str = "\
Examples:
  fencelock man | man -l -                           the page of fencelock
  fencelock man run | man -l -                       of `fencelock run`
  fencelock man --dir /usr/local/share/man/man1      all of them, as files";

pub(crate) const BENCH: &str = "\
Examples:
  fencelock bench                                      SQLite in the default place
  fencelock bench redis://10.0.0.5 postgres://db/app --html bench.html
                                                       two of them, one after the other, and a page with plots, too
  fencelock bench --json --seconds 10 --tasks 1,64

It works on the engines themselves: names begin with bench/, and the others who use them feel the load. Cases:
  uncontended  each task locks and releases a name of its own; beside it the bare driver sends the same statements
  contended    so many clients want one lock and hold it for a millisecond; hand: from the release to the next one's grant;
               commands: what the clients send for each grant, signs of life and all; each has connections of its own: give
               fewer --waiters to a server that has no more
  renew        so many locks are held and kept alive
ratio: what ours is to the bare driver, in turns of a tenth of a second; the median of all rounds.
cpu is percent of a core, of this process with all its clients.

An engine that cannot be measured is told, and the others are: the exit code is that of the first one, 69 if it could not be
reached, 78 if its URL is wrong.";

pub(crate) const MIGRATE: &str = "\
Whoever may create tables needs none of this: the first connection makes them. For the others, whose role may not:
  fencelock migrate --role app > schema.sql          to be read, and run by psql or mariadb
  fencelock migrate --role app --run                 as a role that may, once; app needs to create nothing
Other engines have no schema.";

pub(crate) const ACL_REDIS: &str = "\
Examples:
  fencelock acl redis --user app --namespace shop | redis-cli          its keys, its channels, the commands that are sent
  fencelock acl redis --url 'redis://db?layout=plain&template=lock:{}' --version 6.2
  fencelock acl redis --layout plain --prefix lock: --topology cluster

Nobody is asked: what is printed goes by --url or FENCELOCK_URL, where there is one of Redis, and by these options, which win.
It replaces keys, channels and commands of the user, and leaves its passwords. A new one has none, and is off:
  ACL SETUSER app on >PASSWORD
Keys are those of every database. `list` needs SCAN, which shows the names of all keys: -scan takes that away.";

pub(crate) const STATUS: &str = "\
Examples:
  fencelock status backup                            held 4m12s by web-3 pid 812 \"pg_dump\" (token 1181, lease 8 s left)
  fencelock status -q backup                         in a script: 0 it is held, 1 it is free
  fencelock status --json backup";

pub(crate) const LIST: &str = "\
Examples:
  fencelock list                                     one line for each lock
  fencelock list billing/ --watch                    again whenever somebody takes one, or gives it back
  fencelock list --json";

pub(crate) const RELEASE: &str = "\
Examples:
  fencelock release backup --force                   shows who holds it, and the token that has to be said
  fencelock release backup --force --token 1181      takes it away from that holder, and from no other

A job that has ended, or has died, has given its lock back by itself.";
