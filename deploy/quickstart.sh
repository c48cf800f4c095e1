#!/usr/bin/env bash
# From a bare Debian 12 or 13 machine to a trained network: installs what is
# missing, builds, starts a mesh of four workers on this machine, trains
# deploy/jobs/fashion-mnist.yaml over a pipeline of four stages, exports the
# weights, stops the mesh.  Safe to run again; then it goes straight to
# training.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PROGRAMS=(paceline paceline-coordinator paceline-worker)
readonly BIN=build/release/bin
readonly OUT=build/quickstart
readonly WEIGHTS=$OUT/fashion-mnist.safetensors
readonly READY_SECONDS=130  # `paceline up` gives up by itself before that
readonly STOP_SECONDS=15

keep=false
mesh_pid=
submit_pid=
state=

usage() {
  cat <<'USAGE'
usage: deploy/quickstart.sh [--keep]

  --keep   leave the mesh running at the end, and say how to talk to it
  --help   this text
USAGE
}

say() { printf '\n== %s\n' "$*" >&2; }

show_logs() {
  local log
  for log in "$OUT/mesh.log" "$state"/*.log "$state"/*/*.log; do
    [[ -s $log ]] || continue
    printf -- '\n--- last lines of %s\n' "$log" >&2
    tail -n 15 "$log" >&2
  done
}

# The mesh is a process group of its own, so that nothing of it is left
# behind even when `paceline up` itself cannot stop it any more.
stop_mesh() {
  [[ -n $mesh_pid ]] || return 0
  kill -TERM "$mesh_pid" 2>/dev/null || true
  local waited=0
  while kill -0 "$mesh_pid" 2>/dev/null && ((waited++ < STOP_SECONDS * 10)); do
    sleep 0.1
  done
  kill -KILL -- "-$mesh_pid" 2>/dev/null || true
  wait "$mesh_pid" 2>/dev/null || true
  mesh_pid=
}

# EXIT runs after every end, wanted or not.
on_exit() {
  local code=$?
  trap '' INT TERM
  [[ -z $submit_pid ]] || kill "$submit_pid" 2>/dev/null || true
  stop_mesh
  case $code in
    0) ;;
    130 | 143) echo "quickstart.sh: interrupted" >&2 ;;
    *)
      [[ -z $state ]] || show_logs
      echo "quickstart.sh: failed with exit code $code, see above" >&2
      [[ -z $state ]] || echo "quickstart.sh: state is kept in $state" >&2
      exit "$code"
      ;;
  esac
  [[ -z $state ]] || rm -rf "$state"
  exit "$code"
}

# Prints the text behind `"key":` in the ready file.
ready_value() {
  sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$state/ready.json" | head -n 1
}

start_mesh() {
  mkdir -p "$OUT"
  state=$(mktemp -d "$OUT/mesh.XXXXXX")
  setsid "$BIN/paceline" up --workers 4 --port 0 --http-port 0 \
    --state "$state" \
    --ready-file "$state/ready.json" </dev/null >"$OUT/mesh.log" 2>&1 &
  mesh_pid=$!
  local waited=0
  until [[ -s $state/ready.json ]]; do
    kill -0 "$mesh_pid" 2>/dev/null || {
      echo "quickstart.sh: the mesh ended before it was ready" >&2
      return 1
    }
    ((waited++ < READY_SECONDS * 10)) || {
      echo "quickstart.sh: the mesh is not ready after $READY_SECONDS s" >&2
      return 1
    }
    sleep 0.1
  done
  PACELINE_COORDINATOR=$(ready_value coordinator)
  export PACELINE_COORDINATOR
}

train() {
  local started=$SECONDS
  # In the background, since bash sees to a signal only when it is not waiting
  # for a command in the foreground.
  "$BIN/paceline" job submit deploy/jobs/fashion-mnist.yaml &
  submit_pid=$!
  wait "$submit_pid"
  submit_pid=
  echo "trained for $((SECONDS - started)) s"
  "$BIN/paceline" job export last -o "$WEIGHTS"
}

what_next() {
  cat <<NEXT

The weights are in $WEIGHTS
NEXT
  if $keep; then
    trap - EXIT
    cat <<KEPT
The mesh is still running; its state is in $state:
  kill $mesh_pid            stops it
  export PACELINE_COORDINATOR=$PACELINE_COORDINATOR
Try next:
KEPT
  else
    cat <<MESH
Try next:
  $BIN/paceline up --workers 4
and in a second terminal:
MESH
  fi
  cat <<NEXT
  $BIN/paceline model inspect $WEIGHTS
  $BIN/paceline job submit deploy/jobs/vit-small.yaml
  $BIN/paceline job submit deploy/jobs/fashion-mnist.yaml \\
    --set pipeline.stages=2 --set train.epochs=1
  $BIN/paceline job show last
  $BIN/paceline node list
README.md shows how a second machine joins.
NEXT
}

while [[ $# -gt 0 ]]; do
  case $1 in
    --keep) keep=true ;;
    --help | -h) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown option '$1'" >&2
       usage >&2
       exit 2 ;;
  esac
  shift
done

trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
deploy/install-deps.sh --build
say "building (the first time takes 5 to 20 minutes)"
deploy/build.sh release "${PROGRAMS[@]}"
say "starting a mesh: one coordinator, four workers"
start_mesh
say "training"
train
what_next
