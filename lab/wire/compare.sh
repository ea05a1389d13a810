#!/usr/bin/env bash
# PostgreSQL and `thermocline serve` beside each other, in a temporary directory, on sockets only, measured with one client.
#
#   lab/wire/compare.sh [warehouses, default 4] [seconds a round, default 10] [rounds, default 3]
#
# Needs PostgreSQL's programs (Debian: postgresql; PG_BIN says where else), and builds what it measures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
warehouses=${1:-4} seconds=${2:-10} rounds=${3:-3}
pg_options='-c max_parallel_workers_per_gather=0 -c hash_mem_multiplier=1'
source lab/wire/servers.sh

"$wire" load "${servers[@]}" --warehouses "$warehouses"
"$wire" queries "${servers[@]}" --each || true
"$wire" tpcc "${servers[@]}" --warehouses "$warehouses" --seconds "$seconds" --rounds "$rounds"
"$wire" kept "${servers[@]}" || true
