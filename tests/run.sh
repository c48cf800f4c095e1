#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests with ctest.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly AREAS=(quickstart repeat same-bytes precision torchvision language codecs soak rounds recover kills liars pruning
  pipeline-kills coordinator-kills snapshot-cost tls-cost strangers fuzz moves chaos scale bench bed replicas replicas-bed
  speed round-speed ddp studies dashboards torch-free tsan asan trixie machines arm64)

usage() {
  cat <<USAGE
usage: tests/run.sh [--preset NAME] [-R REGEX]
       tests/run.sh --nightly [AREA]

  --preset NAME     a preset of CMakePresets.json (default: release)
  -R REGEX          only the tests whose name matches, as ctest -R
  --nightly [AREA]  the long ones: ${AREAS[*]}
                    (default: all).  Results are kept in
                    build/nightly/<commit>/; what has passed there for this
                    commit is not run again.
  --help            this text
USAGE
}

# LibTorch and gRPC keep some memory until the process ends; the suppressions
# name those places, and nothing of ours.
suppressions=suppressions=$PWD/tests/support
export ASAN_OPTIONS=${ASAN_OPTIONS:-strict_string_checks=1:allocator_may_return_null=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-$suppressions/lsan.supp:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-$suppressions/tsan.supp:history_size=4}

# suite PRESET [CTEST OPTION...]
suite() {
  local preset=$1
  shift
  cmake --preset "$preset" -DPACELINE_WERROR=ON >/dev/null
  deploy/build.sh "$preset"
  # One more than there are cores, since most process tests wait.
  ctest --preset "$preset" -j $(($(nproc) + 1)) --no-tests=error "$@"
}

readonly PROGRAMS=(paceline paceline-coordinator paceline-worker)

# script SCRIPT [OPTION...]: one of tests/nightly, with Debian's Python, which is
# the one that has PyTorch and a browser.
script() { /usr/bin/python3 tests/nightly/run.py "$@"; }

# with_programs SCRIPT [OPTION...]: one that runs the three programs.
with_programs() {
  deploy/build.sh release "${PROGRAMS[@]}"
  script "$@"
}

area_repeat() { suite release --repeat until-fail:20; }
area_torch_free() { suite torch-free; }
area_tsan() { suite tsan; }
area_asan() { suite asan; }

area_same_bytes() {
  with_programs jobs/same_bytes
}

# One job in fp32, bf16 and with activations computed once more, in one table.
area_precision() {
  with_programs jobs/variants --part precision
}

# logits NAME SCRIPT VARIABLE: weights and expected logits of real sizes, two
# gigabytes for a while; ours agree with them.
logits() {
  local folder=build/$1
  deploy/build.sh release torch_tests
  rm -rf "$folder"
  script "logits/$2" --full "$folder"
  env "$3=$folder" build/release/bin/torch_tests --gtest_filter='Logits.*'
  rm -rf "$folder"
}

area_torchvision() {
  logits torchvision torchvision PACELINE_TORCHVISION_LOGITS
}

# GPT-2, BERT and RoBERTa, with weights drawn by a formula.
area_language() {
  logits language language PACELINE_LANGUAGE_LOGITS
}

area_codecs() {
  with_programs jobs/variants --part codecs
}

# A million schedules of faults for the core of the rolling server, and the
# large cases of its model.
area_rounds() {
  deploy/build.sh release round_simulation
  build/release/bin/round_simulation --schedules 1000000 --coverage
  tests/core/round/model_check.py nightly
}

# 200,000 schedules of faults for the core of the recovery, and the large cases
# of its model.
area_recover() {
  deploy/build.sh release recover_simulation
  build/release/bin/recover_simulation --schedules 200000 --coverage
  tests/core/recover/model_check.py nightly
}

# The server of a round is killed in each phase, twenty times; a quarter of an
# hour.
area_kills() {
  with_programs kills/rounds
}

# Workers of a pipeline are killed: every one, pairs, and while another one is
# recovered from; an hour.
area_pipeline_kills() {
  with_programs kills/pipeline
}

# Replicas of a pipeline's stages are killed: one of each stage, the first ones,
# and where the gate is; half an hour.
area_replicas() {
  with_programs kills/replicas
}

# The coordinator is killed twenty times in one job, and hangs for a minute.
area_coordinator_kills() {
  with_programs kills/coordinator
}

# The same job with and without snapshots, here and, as root, on the bed.
area_snapshot_cost() {
  with_programs jobs/costs --part snapshots
  [[ $EUID -ne 0 ]] || script jobs/costs --part snapshots-bed
}

# The same job with and without TLS.
area_tls_cost() {
  with_programs jobs/costs --part tls --turns 6
}

# Five jobs that a Prometheus watches: each panel has data, and is drawn by
# Grafana's components, which npm fetches.
area_dashboards() {
  with_programs dashboards/proof
  script dashboards/render
}

# Ten thousand connections and messages without an end, beside a job.
area_strangers() {
  with_programs scale/strangers
}

# Five minutes for each parser of bytes of others, on all cores.
area_fuzz() {
  local corpus
  deploy/build.sh release fuzz_parsers
  for corpus in tests/fuzz/corpus/*; do
    tests/fuzz/run.sh build/release/bin/fuzz_parsers "${corpus##*/}" \
      -max_total_time=300 -fork="$(nproc)"
  done
}

# A machine becomes slow, another one joins: layers move.  A quarter of an hour;
# needs root.
area_moves() {
  with_programs beds/moves
}

# Half an hour, and one fault every 20 s; as root ten minutes more on emulated
# machines, whose links are cut.
area_chaos() {
  with_programs kills/chaos
  [[ $EUID -ne 0 ]] || script kills/chaos --bed --minutes 10 --steps 150
}

# A thousand workers on one coordinator; twenty watchers of two hundred, and a
# browser; 20,000 jobs that have ended.
area_scale() {
  deploy/build.sh release paceline-coordinator paceline bench_many_workers
  build/release/bin/bench_many_workers --check
  build/release/bin/bench_many_workers --check --workers 200 --watchers 20
  script scale/page
  script scale/long_store
}

# What each rule withstands: nine members of which two, then four lie.
area_liars() {
  with_programs rounds/liars
}

# Half of a model's multiply-adds: what it costs in accuracy, and, as root, what
# four machines with it are to one with the whole model.  An hour.
area_pruning() {
  with_programs beds/pruning --model vit
  with_programs beds/pruning --model resnet18 \
    --set cpu_capability=avx2 --set pipeline.codec=bf16
}

# Machines that boot: set up over ssh, rebooted, purged; one with less memory than
# its worker wants.  Needs root.
area_machines() {
  deploy/build.sh release "${PROGRAMS[@]}"
  tests/process/machine_life.py --bin build/release/bin
  tests/nightly/systems/memory_limit.sh
}

area_soak() {
  with_programs jobs/soak
}

area_bench() {
  deploy/build.sh release
  build/release/bin/bench_frame
  build/release/bin/bench_images
  build/release/bin/bench_simulate --check
  build/release/bin/bench_plan --check
  build/release/bin/bench_pipedream --check
  build/release/bin/bench_data_plane --check
}

# Predicted against measured step time on emulated machines; needs root.
area_bed() {
  with_programs beds/prediction
}

# Stages of several workers that train there, beside stages of one; needs root.
area_replicas_bed() {
  with_programs beds/replicas
}

# How fast DeiT-S runs and trains there, an hour; needs root.
area_speed() {
  deploy/build.sh release bench_plain_vit
  with_programs beds/speed
}

# How fast four members agree on a gradient, there and here, beside Gloo, and
# how a round grows with its members; needs root and PyTorch.
area_round_speed() {
  deploy/build.sh release bench_round_exchange bench_members
  with_programs rounds/round_speed
  build/release/bin/bench_members --check
}

# A data-parallel step with default settings, beside PyTorch's DDP; needs the
# same.
area_ddp() {
  with_programs rounds/ddp_beside
}

# What studies must show; needs root, and packages of data.
area_studies() {
  with_programs beds/studies
}

# As a newcomer runs it, without a terminal: three minutes of training at most
# and an accuracy of 0.89 at least.
area_quickstart() {
  local log=build/quickstart-nightly.log accuracy seconds
  mkdir -p build
  deploy/quickstart.sh </dev/null 2>&1 | tee "$log"
  accuracy=$(sed -n 's/^test accuracy: //p' "$log")
  seconds=$(sed -n 's/^trained for \([0-9]*\) s.*/\1/p' "$log")
  python3 -c "import sys; sys.exit(not (float(sys.argv[1]) >= 0.89 and int(sys.argv[2]) <= 180))" \
    "$accuracy" "$seconds"
}

# Debian 13: the quickstart and the suite in a root of its own; needs root.
area_trixie() { tests/nightly/systems/trixie.sh; }

# Cross-compiled, and unit tests in an emulator; needs root.
area_arm64() { tests/nightly/systems/arm64.sh; }

# The commit, and whether the tree differs from it: such results are
# overwritten every time.
commit_name() {
  local commit
  commit=$(git rev-parse --short=12 HEAD) || commit=no-git-dirty
  [[ -z $(git status --porcelain) ]] || commit+=-dirty
  echo "$commit"
}

# A function of its own process: `set -e` holds inside, unlike in a condition.
run_area() {
  local area=$1 folder=$2 code=0
  if [[ -e $folder/$area.ok && $folder != *-dirty ]]; then
    echo "nightly $area: passed before ($folder/$area.log)"
    return 0
  fi
  rm -f "$folder/$area.ok"
  echo "nightly $area: running, log in $folder/$area.log"
  tests/run.sh --area "$area" 2>&1 | tee "$folder/$area.log" || code=$?
  if ((code == 0)); then
    date -u +%FT%TZ >"$folder/$area.ok"
  fi
  return "$code"
}

nightly() {
  local folder failed=() area
  folder=build/nightly/$(commit_name)
  mkdir -p "$folder"
  for area in "$@"; do
    run_area "$area" "$folder" || failed+=("$area")
  done
  [[ ${#failed[@]} -eq 0 ]] || {
    echo "nightly: failed: ${failed[*]} (logs in $folder)"
    return 1
  }
  echo "nightly: passed: $* (logs in $folder)"
}

is_area() { [[ " ${AREAS[*]} " == *" $1 "* ]]; }

refuse() {
  echo "run.sh: $*" >&2
  usage >&2
  exit 2
}

main() {
  local preset=release mode=suite areas=("${AREAS[@]}") ctest_options=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --preset) preset=${2:?--preset needs a name}; shift ;;
      -R) ctest_options+=(-R "${2:?-R needs a regular expression}"); shift ;;
      --nightly)
        mode=nightly
        if [[ $# -gt 1 && $2 != -* ]]; then
          is_area "$2" || refuse "no nightly area '$2'"
          areas=("$2")
          shift
        fi
        ;;
      --area)  # one area in this process; what --nightly calls
        is_area "${2:-}" || refuse "no nightly area '${2:-}'"
        "area_${2//-/_}"
        return
        ;;
      --help | -h) usage; return ;;
      *) refuse "unknown option '$1'" ;;
    esac
    shift
  done

  if [[ $mode == nightly ]]; then
    deploy/install-deps.sh --nightly
    nightly "${areas[@]}"
  else
    deploy/install-deps.sh --test
    suite "$preset" ${ctest_options[@]+"${ctest_options[@]}"}
  fi
}

main "$@"
