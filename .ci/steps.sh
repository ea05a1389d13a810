# What .ci/run and .ci/deep share: steps with their times, and what has to be installed. Sourced by both.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never CARGO_NET_RETRY=5 RUST_BACKTRACE=1
# Lines of backtraces cost a part of each build; a failure is repeated alone, outside of here, with them.
export CARGO_PROFILE_DEV_DEBUG=none CARGO_PROFILE_TEST_DEBUG=none

engine=(-p thermocline-base -p thermocline-temperature -p thermocline-pool -p thermocline-region -p thermocline-remote -p thermocline-engine)
names=() times=() results=()

summary() {
  local status=$? i
  printf '\n%-20s %8s  %s\n' step seconds result
  for i in "${!names[@]}"; do printf '%-20s %8s  %s\n' "${names[i]}" "${times[i]}" "${results[i]}"; done
  printf '%-20s %8s  %s\n' all "$SECONDS" "$([ "$status" = 0 ] && echo ok || echo FAILED)"
}
trap summary EXIT

# begin <name> <what it is for>: notes that a step begins.
begin() {
  printf '\n=== %s: %s\n' "$1" "$2"
  names+=("$1") times+=(-) results+=(FAILED)
  outcome=ok began=$SECONDS
}

# finish: notes that it has ended well.
finish() {
  times[-1]=$((SECONDS - began))
  results[-1]=$outcome
}

# skip <why>: the running step has nothing to run.
skip() {
  outcome="not run: $*"
  echo "$outcome"
}

# tests <cargo test …>: runs tests; if one fails, says how to run that one alone.
tests() {
  local log status=0
  log=$(mktemp)
  "$@" 2>&1 | tee "$log" || status=$?
  if [ "$status" != 0 ]; then
    local target name
    # What cargo says last: "to rerun pass `-p crate --lib`".
    target=$(sed -n 's/^.*to rerun pass `\(.*\)`.*$/\1/p' "$log" | tail -n 1)
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sed 's/ - should panic$//' | sort -u | while read -r name; do
      printf '\nFAILED: %s\nalone:  %s %s -- --exact --include-ignored %s\n' "$name" "$(alone "$@")" "$target" "$name"
    done
  fi
  rm -f "$log"
  return "$status"
}

# alone <cargo test …>: the same command without what says which crates, targets and tests.
alone() {
  local word words=()
  while [ $# -gt 0 ]; do
    word=$1
    shift
    case "$word" in
      --) break ;;
      --workspace | --lib | --bins | --tests) ;;
      -p | --test) shift ;;
      *) words+=("$word") ;;
    esac
  done
  printf '%s' "${words[*]}"
}

packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'install ok' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

nightly() {
  rustup run nightly rustc --version 2>/dev/null || rustup toolchain install nightly --profile minimal
  rustup component add rust-src --toolchain nightly
}
