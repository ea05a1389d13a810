#!/usr/bin/env bash
# clients.sh THERMOCLINE: psql, pgbench and drivers against a server with an empty database; nothing of it stays. Drivers come from
# their registries into the temporary directory.
set -euo pipefail
thermocline=$1
here=$(dirname "${BASH_SOURCE[0]}")
dir=$(mktemp -d -t thermocline-clients.XXXXXX)
"$thermocline" serve --data-dir "$dir/data" --listen 127.0.0.1:0 --socket-dir "$dir" 2>"$dir/log" &
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
export PGHOST=$dir PGPORT=${socket##*.} PGUSER=postgres PGDATABASE=postgres

echo "psql"
psql -X -q -v ON_ERROR_STOP=1 -c "create table shown (id bigint primary key, name varchar(10) not null default 'x')" -c "create index shown_name on shown (name desc)"
expect() {
    local found
    found=$(psql -X -c "$1")
    [[ $found == *"$2"* ]] || { echo "psql -c '$1' says:"; echo "$found"; echo "without: $2"; exit 1; }
}
expect '\d shown' '"shown_name" btree (name DESC)'
expect '\d shown' '"shown_pkey" PRIMARY KEY, btree (id)'
expect '\d shown' "| not null | 'x'::character varying"
expect '\dt' 'public | shown | table | postgres'
expect '\di' 'public | shown_name | index | postgres | shown'
expect '\dn' 'public | postgres'
expect '\l' 'postgres | postgres | UTF8'
psql -X -q -v ON_ERROR_STOP=1 -c "create schema app" -c "create table app.shown (n int unique, s serial)"
expect '\dn' 'app    | postgres'
expect '\d app.shown' 'Table "app.shown"'
expect '\d app.shown' "nextval('app.shown_s_seq'::regclass)"
expect '\d app.shown' '"shown_n_key" UNIQUE CONSTRAINT, btree (n)'
expect '\dt app.*' 'app    | shown | table | postgres'
PGOPTIONS='-c search_path=app' expect '\dt' 'app    | shown | table | postgres'
psql -X -q -c "drop schema app cascade" 2>/dev/null

echo "pgbench"
pgbench -i -q -s 1 2>/dev/null
for protocol in simple extended prepared; do
    pgbench -n -t 100 -c 4 -M "$protocol" >/dev/null
    pgbench -n -t 100 -c 4 -S -M "$protocol" >/dev/null
done
# What TPC-B moves stays the same in sum.
sums=$(psql -X -At -c "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches), (select count(*) from pgbench_history)")
[ "$sums" = "t|1200" ] || { echo "pgbench left $sums"; exit 1; }

psql -X -q -v ON_ERROR_STOP=1 -c "create table parents (id int generated always as identity primary key, n int check (n > 0))" \
    -c "create table kids (id serial primary key, p int constraint kids_p references parents on delete cascade)" \
    -c "create view seen as select id, n * 2 as twice from parents"
expect '\d parents' 'generated always as identity'
expect '\d parents' '"parents_n_check" CHECK ((n > 0))'
expect '\d parents' 'TABLE "kids" CONSTRAINT "kids_p" FOREIGN KEY (p) REFERENCES parents(id) ON DELETE CASCADE'
expect '\d kids' "nextval('kids_id_seq'::regclass)"
expect '\d kids' '"kids_p" FOREIGN KEY (p) REFERENCES parents(id) ON DELETE CASCADE'
expect '\dv' 'public | seen | view | postgres'
expect '\ds' 'public | kids_id_seq    | sequence | postgres'
psql -X -q -c "drop view seen" -c "drop table kids" -c "drop table parents"

echo "node-postgres, knex, sequelize, typeorm"
(cd "$dir" && npm install --silent --no-fund --no-audit pg@8 knex@3 sequelize@6 typeorm@0.3 reflect-metadata@0.2 >/dev/null)
for with in node knex sequelize typeorm; do
    NODE_PATH=$dir/node_modules node "$here/clients/with_$with.js"
done

echo "pgx"
if command -v go >/dev/null; then
    (cd "$here/clients/with_pgx" && go build -o "$dir/with_pgx" .)
    "$dir/with_pgx"
else
    echo "  passed over: no go here"
fi

echo "tokio-postgres"
CARGO_TARGET_DIR=$dir/tokio-postgres cargo build --quiet --locked --manifest-path "$here/clients/with_tokio_postgres/Cargo.toml"
"$dir/tokio-postgres/debug/with-tokio-postgres"

echo "psycopg, asyncpg, sqlalchemy, django"
python3 -m venv "$dir/python"
"$dir/python/bin/pip" install --quiet --disable-pip-version-check asyncpg 'sqlalchemy>=2' greenlet 'psycopg[binary]>=3' 'django>=5,<6'
"$dir/python/bin/python" "$here/clients/with_psycopg.py"
"$dir/python/bin/python" "$here/clients/with_asyncpg.py"
"$dir/python/bin/python" "$here/clients/with_sqlalchemy.py"
"$dir/python/bin/python" "$here/clients/with_django.py"

echo "pgjdbc"
if command -v javac >/dev/null; then
    address=$(grep -o 'address=127[.0-9:]*' "$dir/log" | head -n 1)
    jar=$dir/pgjdbc.jar
    curl -sfL -o "$jar" https://repo1.maven.org/maven2/org/postgresql/postgresql/42.7.4/postgresql-42.7.4.jar
    javac -d "$dir" "$here/clients/WithPgjdbc.java"
    PGJDBC_URL="jdbc:postgresql://${address#address=}/postgres" java -cp "$dir:$jar" WithPgjdbc
else
    echo "  passed over: no javac here"
fi

echo "flyway, liquibase, hibernate"
if command -v mvn >/dev/null; then
    cp -r "$here/clients/with_jvm" "$dir/jvm"
    mvn -q -B -f "$dir/jvm/pom.xml" compile dependency:build-classpath -Dmdep.outputFile="$dir/jvm/classpath" >/dev/null
    PGJDBC_URL="jdbc:postgresql://${address#address=}/postgres" java -cp "$dir/jvm/target/classes:$(cat "$dir/jvm/classpath")" WithJvm
else
    echo "  passed over: no mvn here"
fi
