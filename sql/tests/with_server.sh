#!/usr/bin/env bash
# with_server.sh THERMOCLINE CMD…: runs a command beside a server with an empty database; its port is the last argument. Nothing of
# it stays.
set -euo pipefail
thermocline=$1
shift
dir=$(mktemp -d -t thermocline-server.XXXXXX)
"$thermocline" serve --data-dir "$dir/data" --listen 127.0.0.1:0 --socket-dir "$dir" 2>"$dir/log" >&2 &
pid=$!
stop() {
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" || true
    rm -rf "$dir"
}
trap stop EXIT
for _ in $(seq 100); do
    socket=$(find "$dir" -name '.s.PGSQL.*' | head -n 1)
    [ -z "$socket" ] || break
    sleep 0.1
done
[ -n "$socket" ] || { cat "$dir/log" >&2; exit 1; }
"$@" "${socket##*.}"
