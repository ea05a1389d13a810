# PostgreSQL and `thermocline serve` in a temporary directory, on sockets only, for the scripts beside this file. Sourced from the root
# of the repository. The caller may set before:
#   pg_options   more of PostgreSQL's options            limit   Thermocline's memory limit, 2GiB if it is not set
# Afterwards there are: servers (arguments of thermocline-wire), wire, dir, bin, ours (the process of `thermocline serve`).
bin=${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
[ -x "$bin/initdb" ] || { echo "there is no PostgreSQL here: install it, or set PG_BIN" >&2; exit 2; }

thermocline=${THERMOCLINE:-}
if [ -z "$thermocline" ]; then
  cargo build --profile dist -p thermocline-cli
  thermocline=${CARGO_TARGET_DIR:-target}/dist/thermocline
fi
wire=${THERMOCLINE_WIRE:-}
if [ -z "$wire" ]; then
  (cd lab/wire && cargo build --release)
  wire=${CARGO_TARGET_DIR:-lab/wire/target}/release/thermocline-wire
fi

dir=$(mktemp -d)
chmod 755 "$dir"
# PostgreSQL does not run as root.
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid=postgres --regid=postgres --init-groups)
mkdir "$dir/pg" "$dir/sock"
[ "$(id -u)" != 0 ] || chown postgres "$dir/pg"
ours=
finish() {
  [ -z "$ours" ] || { kill -TERM "$ours"; wait "$ours" || true; }
  "${as[@]}" "$bin/pg_ctl" -D "$dir/pg/data" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$dir"
}
trap finish EXIT

"${as[@]}" "$bin/initdb" -D "$dir/pg/data" -U postgres --locale=C.UTF-8 -E UTF8 >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$dir/pg/data" -w -l "$dir/pg/log" \
  -o "-k $dir/pg -h '' -c shared_buffers=2GB ${pg_options:-}" start >/dev/null
"$thermocline" serve --data-dir "$dir/data" --listen 127.0.0.1:0 --socket-dir "$dir/sock" --memory-limit "${limit:-2GiB}" \
  >"$dir/log" 2>&1 &
ours=$!
for _ in $(seq 100); do
  port=$(ls -A "$dir/sock" | sed -n 's/^\.s\.PGSQL\.\([0-9]*\)$/\1/p')
  [ -z "$port" ] || break
  sleep 0.1
done
[ -n "$port" ] || { cat "$dir/log" >&2; exit 1; }

servers=(--server "postgres=host=$dir/pg user=postgres dbname=postgres"
  --server "thermocline=host=$dir/sock port=$port user=postgres dbname=postgres")
"$bin/postgres" --version
