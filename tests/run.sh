#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests with ctest.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly AREAS=(quickstart repeat same-bytes precision torchvision language codecs soak rounds recover joint kills liars pruning
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
  # Two process tests for each core, since most of these wait; or one of what
  # computes, which counts for two.
  ctest --preset "$preset" -j $((2 * $(nproc))) --no-tests=error "$@"
}

readonly PROGRAMS=(paceline paceline-coordinator paceline-worker)

# script SCRIPT [OPTION...]: one of tests/nightly, with Debian's Python, which is
# the one that has PyTorch and a browser.
script() { /usr/bin/python3 tests/nightly/run.py "$@"; }

# with_programs [TARGET...] -- SCRIPT [OPTION...]
with_programs() {
  local targets=()
  while [[ $1 != -- ]]; do targets+=("$1"); shift; done
  shift
  deploy/build.sh release "${PROGRAMS[@]}" "${targets[@]}"
  script "$@"
}

# README.md says what each area is.
area_same_bytes() { with_programs -- jobs/variants --part stages --steps 60; }
area_precision() { with_programs -- jobs/variants --part precision; }
area_codecs() { with_programs -- jobs/variants --part codecs; }
area_soak() { with_programs -- jobs/soak; }
area_kills() { with_programs -- kills/rounds; }
area_pipeline_kills() { with_programs -- kills/pipeline; }
area_replicas() { with_programs -- kills/replicas; }
area_coordinator_kills() { with_programs -- kills/coordinator; }
area_tls_cost() { with_programs -- jobs/costs --part tls --turns 6; }
area_strangers() { with_programs -- scale/strangers; }
area_liars() { with_programs -- rounds/liars; }
area_moves() { with_programs -- beds/moves; }
area_bed() { with_programs -- beds/prediction; }
area_replicas_bed() { with_programs -- beds/replicas; }
area_speed() { with_programs bench_plain_vit -- beds/speed; }
area_ddp() { with_programs -- rounds/ddp_beside; }
area_studies() { with_programs -- beds/studies; }
area_repeat() { suite release --repeat until-fail:20; }
area_torch_free() { suite torch-free; }
area_tsan() { suite tsan; }
area_asan() { suite asan; }
area_trixie() { tests/nightly/systems/trixie.sh; }
area_arm64() { tests/nightly/systems/arm64.sh; }

# logits SCRIPT VARIABLE: weights and expected logits of real sizes, two gigabytes
# for a while; ours agree with them.
logits() {
  local folder=build/$1
  deploy/build.sh release torch_tests
  rm -rf "$folder"
  script "logits/$1" --full "$folder"
  env "$2=$folder" build/release/bin/torch_tests --gtest_filter='Logits.*'
  rm -rf "$folder"
}
area_torchvision() { logits torchvision PACELINE_TORCHVISION_LOGITS; }
area_language() { logits language PACELINE_LANGUAGE_LOGITS; }

# model NAME SCHEDULES: faults for a core, and the large cases of its model.
model() {
  local program=${1}_simulation
  deploy/build.sh release "$program"
  "build/release/bin/$program" --schedules "$2" --coverage
  tests/core/model_check.py "$1" nightly
}
area_rounds() { model round 1000000; }
area_recover() { model recover 200000; }
area_joint() {
  deploy/build.sh release joint_simulation
  build/release/bin/joint_simulation --schedules 200000 --coverage
}

area_snapshot_cost() {
  with_programs -- jobs/costs --part snapshots
  [[ $EUID -ne 0 ]] || script jobs/costs --part snapshots-bed
}

area_dashboards() {
  with_programs -- dashboards/proof
  script dashboards/render
}

area_chaos() {
  with_programs -- kills/chaos
  [[ $EUID -ne 0 ]] || script kills/chaos --bed --minutes 10 --steps 150
}

area_fuzz() {
  local corpus
  deploy/build.sh release fuzz_parsers
  for corpus in tests/fuzz/corpus/*; do
    tests/fuzz/run.sh build/release/bin/fuzz_parsers "${corpus##*/}" \
      -max_total_time=300 -fork="$(nproc)"
  done
}

area_scale() {
  deploy/build.sh release paceline-coordinator paceline bench_many_workers
  build/release/bin/bench_many_workers --check
  build/release/bin/bench_many_workers --check --workers 200 --watchers 20
  script scale/page
  script scale/long_store
}

area_pruning() {
  with_programs -- beds/pruning --model vit
  script beds/pruning --model resnet18 \
    --set cpu_capability=avx2 --set pipeline.codec=bf16
}

area_machines() {
  deploy/build.sh release "${PROGRAMS[@]}"
  tests/process/run.py machine_life --bin build/release/bin
  tests/nightly/systems/memory_limit.sh
}

area_bench() {
  local bench
  deploy/build.sh release
  for bench in simulate plan pipedream data_plane; do
    "build/release/bin/bench_$bench" --check
  done
}

area_round_speed() {
  with_programs bench_round_exchange bench_members -- rounds/round_speed
  build/release/bin/bench_members --check
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
