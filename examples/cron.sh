#!/bin/sh
# The same line in the crontab of three hosts: one of them runs the job, and the others do nothing. Here the hosts are three
# processes, and their clocks differ: the last one comes when the report is long made.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

host() {
  # -n: it does not wait; --skip-ok: that it is taken is no error, so cron sends no mail; --at-least: the report is made in no
  # time, and a host whose clock is a second late must not make another one.
  fencelock run -n --skip-ok --at-least 5s nightly-report -- sh -c "echo 'made by $1' >> '$work/reports'"
}
host web-1 &
host web-2 &
sleep 1
host web-3
wait
cat "$work/reports"
test "$(wc -l < "$work/reports")" -eq 1
