# Sourced by scripts that need a server: starts one of the program $thermocline with an empty database, in the temporary directory
# $dir, which is where its socket is as well. It listens at 127.0.0.1 and $port. Both end with the script.

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
    socket=$(find "$dir" -maxdepth 1 -name '.s.PGSQL.*' | head -n 1)
    [ -z "$socket" ] || break
    sleep 0.1
done
[ -n "$socket" ] || { cat "$dir/log" >&2; exit 1; }
port=${socket##*.}
