#!/bin/sh
# One deploy at a time: whoever comes second waits, and is told for whom. A deploy that hangs is stopped.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

deploy() {
  fencelock run -w 1m --max-hold 30s --note "deploy $1" deploy/shop -- \
    sh -c "echo 'begin $1' >> '$work/log'; sleep 1; echo 'end $1' >> '$work/log'"
}
deploy v41 &
deploy v42 &
# What anybody sees meanwhile.
until fencelock status -q deploy/shop; do sleep 0.01; done
fencelock status deploy/shop
wait

# Never one in the midst of another: each `end` is that of the `begin` before it.
cat "$work/log"
awk '{ if ($1 == "end" && $2 != open) exit 1; open = $2 }' "$work/log"
test "$(wc -l < "$work/log")" -eq 4

# 75: it is taken, and this one does not wait.
fencelock run --note 'a long one' deploy/shop -- sleep 5 &
until fencelock status -q deploy/shop; do sleep 0.01; done
code=0
fencelock run -n deploy/shop -- true || code=$?
test "$code" -eq 75
wait

# 76: one that hangs is stopped, with all that it has started, and the next one gets in.
code=0
fencelock run --max-hold 1s --note 'one that hangs' deploy/shop -- sh -c 'sleep 600 & wait' || code=$?
test "$code" -eq 76
fencelock run -n deploy/shop -- true
