#!/usr/bin/env bash
# Runs a command in a memory cgroup, and tells whether the kernel had to kill anything there. As root, on Linux.
#
#   lab/capped.sh LIMIT_MIB COMMAND …
#
# The cgroup may take LIMIT_MIB and 15 %, no swap: that is what a database with this memory limit has to survive. What the
# system keeps of files counts there, too, and goes first. Ends with 0 if the command does and nothing was killed; with 77 if
# there can be no such cgroup here.

set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
limit=$(($1 * 1024 * 1024 / 100 * 115))
shift

cannot() {
  echo "no memory cgroup can be made here: $*" >&2
  exit 77
}

[ "$(id -u)" = 0 ] || cannot "this needs root"
if [ -d /sys/fs/cgroup/memory ]; then
  group=/sys/fs/cgroup/memory/thermocline.$$
  names=(memory.limit_in_bytes memory.memsw.limit_in_bytes memory.max_usage_in_bytes memory.oom_control)
elif [ -f /sys/fs/cgroup/cgroup.controllers ]; then
  group=/sys/fs/cgroup/thermocline.$$
  names=(memory.max memory.swap.max memory.peak memory.events)
else
  cannot "there is neither version of them"
fi
mkdir "$group" 2>/dev/null || cannot "$group cannot be made"
trap 'rmdir "$group"' EXIT
{ echo "$limit" > "$group/${names[0]}"; } 2>/dev/null || cannot "its limit cannot be set"
# Without accounting of swap there is no such file.
case ${names[1]} in
  memory.swap.max) swap=0 ;;
  *) swap=$limit ;;
esac
{ echo "$swap" > "$group/${names[1]}"; } 2>/dev/null || true

status=0
bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@" || status=$?
peak=$(cat "$group/${names[2]}" 2>/dev/null || echo 0)
kills=$(sed -n 's/^oom_kill //p' "$group/${names[3]}")
echo "cgroup of $((limit >> 20)) MiB: $((peak >> 20)) MiB at most, the files' pages counted; ${kills:-0} killed; ended with $status"
[ "${kills:-0}" = 0 ] || exit 1
exit "$status"
