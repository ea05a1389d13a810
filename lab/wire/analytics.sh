#!/usr/bin/env bash
# CH-benCHmark, point selects beside a query, memory of long answers, and TPC-H: PostgreSQL with its workers, DuckDB and `thermocline
# serve`, on the same rows.
#
#   lab/wire/analytics.sh [warehouses, default 4] [TPC-H's scale, default 1] [options of `thermocline-wire ch` and `tpch` …]
#
# 0 in place of the warehouses or the scale leaves that part out. Needs PostgreSQL's programs (Debian: postgresql; PG_BIN says where
# else) and a Python with DuckDB (`pip install duckdb`; PYTHON says which), and builds what it measures. Takes minutes, and at scale 1
# some 12 GiB of memory and 10 GiB of disk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
warehouses=${1:-4} scale=${2:-1}
shift $(($# < 2 ? $# : 2))
pg_options='-c work_mem=64MB -c max_wal_size=8GB'
limit=${LIMIT:-6GiB}
python=${PYTHON:-python3}
"$python" -c 'import duckdb' || { echo "$python has no DuckDB: pip install duckdb, or set PYTHON" >&2; exit 2; }
source lab/wire/servers.sh

suite=("${servers[@]}" --duckdb "$python" --files "$dir/rows" --memory "thermocline=$ours")
if [ "$warehouses" != 0 ]; then
  "$wire" ch "${suite[@]}" --warehouses "$warehouses" "$@"
  "$wire" beside "${servers[@]}" --warehouses "$warehouses"
  "$wire" stream "${servers[@]}" --memory "thermocline=$ours"
fi
[ "$scale" = 0 ] || "$wire" tpch "${suite[@]}" --scale "$scale" "$@"
