#!/usr/bin/env bash
# with_postgres.sh CMD…: runs a command beside a private PostgreSQL 15, which it finds by PGHOST; nothing of it stays.
set -euo pipefail
bin=/usr/lib/postgresql/15/bin
[ -x "$bin/postgres" ] || { echo "with_postgres.sh: no PostgreSQL 15 (apt-get install postgresql-15)" >&2; exit 3; }
dir=$(mktemp -d -t thermocline-postgres.XXXXXX)
as=()
if [ "$(id -u)" = 0 ]; then
    chown postgres "$dir"
    as=(setpriv --reuid=postgres --regid=postgres --init-groups)
fi
stop() {
    "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true
    rm -rf "$dir"
}
trap stop EXIT
cd "$dir"
"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres --locale=C.UTF-8 -E UTF8 --no-sync >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" -o "-k $dir -h '' -c fsync=off -c timezone=UTC" start >/dev/null
export PGHOST=$dir PGUSER=postgres PGDATABASE=postgres
cd "$OLDPWD"
"$@"
