#!/usr/bin/env bash
# with_server.sh THERMOCLINE CMD…: runs a command beside a server with an empty database; its port is the last argument. Nothing of
# it stays.
set -euo pipefail
thermocline=$1
shift
source "$(dirname "${BASH_SOURCE[0]}")/../../server/tests/started.sh"
"$@" "$port"
