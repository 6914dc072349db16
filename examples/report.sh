#!/bin/sh
# The job of the README's first command: two of it never run at once, however often it is started.
echo "report: started by pid $$ with fencing token ${FENCELOCK_TOKEN:-none}"
sleep 2
echo "report: written"
