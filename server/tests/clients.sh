#!/usr/bin/env bash
# clients.sh THERMOCLINE: psql, pgbench, drivers and what applications put between, against a server with an empty database; nothing
# of it stays. Drivers come from their registries into the temporary directory. The last line says how many steps of how many passed.
set -euo pipefail
thermocline=$1
here=$(dirname "${BASH_SOURCE[0]}")
source "$here/started.sh"
export PGHOST=$dir PGPORT=$port PGUSER=postgres PGDATABASE=postgres PYTHONDONTWRITEBYTECODE=1

passed=0 steps=0 failed=()

# client NAME CMD…: runs a client against an empty schema. It is one step, unless it says `P of N steps` of its own.
client() {
    local name=$1 status=0 said p=0 n=1
    shift
    psql -X -q -c "drop schema public cascade" -c "create schema public" 2>/dev/null
    said=$("$@" 2>&1) || status=$?
    if [[ $said =~ ([0-9]+)\ of\ ([0-9]+)\ steps ]]; then
        p=${BASH_REMATCH[1]} n=${BASH_REMATCH[2]}
    elif [ "$status" = 0 ]; then
        p=1
    fi
    passed=$((passed + p)) steps=$((steps + n))
    echo "$name: $p of $n"
    [ "$status" = 0 ] || { echo "$said" && failed+=("$name"); }
}

# Steps of a client that is asked from here; `counted` is its last line.
right=0 all=0
step() {
    all=$((all + 1))
    if "$@"; then right=$((right + 1)); else echo "  FAILED $*"; fi
}
counted() {
    echo "$right of $all steps"
    [ "$right" = "$all" ]
}

asked() {
    psql -X -q -v ON_ERROR_STOP=1 "$@"
}

# expect COMMAND TEXT: psql's answer has the text.
expect() {
    local found
    found=$(psql -X -c "$1") && [[ $found == *"$2"* ]] || { echo "psql -c '$1' says:"; echo "$found"; echo "without: $2"; return 1; }
}

with_psql() {
    step asked -c "create table shown (id bigint primary key, name varchar(10) not null default 'x')" -c "create index shown_name on shown (name desc)"
    step expect '\d shown' '"shown_name" btree (name DESC)'
    step expect '\d shown' '"shown_pkey" PRIMARY KEY, btree (id)'
    step expect '\d shown' "| not null | 'x'::character varying"
    step expect '\dt' 'public | shown | table | postgres'
    step expect '\di' 'public | shown_name | index | postgres | shown'
    step expect '\dn' 'public | postgres'
    step expect '\l' 'postgres | postgres | UTF8'
    step asked -c "create schema app" -c "create table app.shown (n int unique, s serial)"
    step expect '\dn' 'app    | postgres'
    step expect '\d app.shown' 'Table "app.shown"'
    step expect '\d app.shown' "nextval('app.shown_s_seq'::regclass)"
    step expect '\d app.shown' '"shown_n_key" UNIQUE CONSTRAINT, btree (n)'
    step expect '\dt app.*' 'app    | shown | table | postgres'
    PGOPTIONS='-c search_path=app' step expect '\dt' 'app    | shown | table | postgres'
    step asked -c "drop schema app cascade"
    step asked -c "create table parents (id int generated always as identity primary key, n int check (n > 0))" \
        -c "create table kids (id serial primary key, p int constraint kids_p references parents on delete cascade)" \
        -c "create view seen as select id, n * 2 as twice from parents"
    step expect '\d parents' 'generated always as identity'
    step expect '\d parents' '"parents_n_check" CHECK ((n > 0))'
    step expect '\d parents' 'TABLE "kids" CONSTRAINT "kids_p" FOREIGN KEY (p) REFERENCES parents(id) ON DELETE CASCADE'
    step expect '\d kids' "nextval('kids_id_seq'::regclass)"
    step expect '\d kids' '"kids_p" FOREIGN KEY (p) REFERENCES parents(id) ON DELETE CASCADE'
    step expect '\dv' 'public | seen | view | postgres'
    step expect '\ds' 'public | kids_id_seq    | sequence | postgres'
    counted
}

# What TPC-B moves stays the same in sum.
sums() {
    local found
    found=$(psql -X -At -c "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches), (select count(*) from pgbench_history)")
    [ "$found" = "t|1200" ] || { echo "pgbench left $found"; return 1; }
}

with_pgbench() {
    step pgbench -i -q -s 1
    for protocol in simple extended prepared; do
        step pgbench -n -t 100 -c 4 -M "$protocol"
        step pgbench -n -t 100 -c 4 -S -M "$protocol"
    done
    step sums
    counted
}

client psql with_psql
client pgbench with_pgbench

(cd "$dir" && npm install --silent --no-fund --no-audit pg@8 knex@3 sequelize@6 typeorm@0.3 reflect-metadata@0.2 >/dev/null)
export NODE_PATH=$dir/node_modules
client node-postgres node "$here/clients/with_node.js"
client knex node "$here/clients/with_knex.js"
client sequelize node "$here/clients/with_sequelize.js"
client typeorm node "$here/clients/with_typeorm.js"

if command -v go >/dev/null; then
    (cd "$here/clients/with_pgx" && go build -o "$dir/with_pgx" .)
    client pgx "$dir/with_pgx"
else
    echo "pgx: passed over, no go here"
fi

CARGO_TARGET_DIR=$dir/tokio-postgres cargo build --quiet --locked --manifest-path "$here/clients/with_tokio_postgres/Cargo.toml"
client tokio-postgres "$dir/tokio-postgres/debug/with-tokio-postgres"

python3 -m venv "$dir/python"
"$dir/python/bin/pip" install --quiet --disable-pip-version-check asyncpg 'sqlalchemy>=2' greenlet 'psycopg[binary]>=3' 'django>=5,<6'
for name in psycopg asyncpg sqlalchemy django; do
    client "$name" "$dir/python/bin/python" "$here/clients/with_$name.py"
done

if command -v mvn >/dev/null; then
    cp -r "$here/clients/with_jvm" "$dir/jvm"
    mvn -q -B -f "$dir/jvm/pom.xml" compile dependency:build-classpath -Dmdep.outputFile="$dir/jvm/classpath" >/dev/null
    classpath="$dir/jvm/target/classes:$(cat "$dir/jvm/classpath")"
    export PGJDBC_URL="jdbc:postgresql://127.0.0.1:$port/postgres"
    client pgjdbc java -cp "$classpath" WithPgjdbc
    for name in flyway liquibase hibernate; do
        client "$name" java -cp "$classpath" WithJvm "$name"
    done
else
    echo "pgjdbc, flyway, liquibase, hibernate: passed over, no mvn here"
fi

echo "$passed of $steps steps passed"
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
