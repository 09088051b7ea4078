#!/usr/bin/env bash
# The plan for one node of eight GPUs: bash benchmarks/studies/other_libraries/plans/eight_gpus.sh OUTPUT. It was not run yet; on CPUs, --device cpu works.
# Wanted: error at most 2e-5 in float32 and 5e-3 in bfloat16; sent_mib as docs/distributed.md computes it; ms of 8 processes at
# most 1.5 times what one process needs for its share, that is ms(1) * 8, where the pairs are eight times as many.
set -euo pipefail
output="${1:?the file of results, one JSON line a measurement}"
shift
for layout in two-view cross-view:directions=ab+ba,softmax=separate; do
    for case in "2048 128 float32" "4096 1024 bfloat16" "16384 1024 bfloat16"; do
        read -r rows dimension dtype <<< "$case"
        for world in 1 2 4 8; do
            check=""
            [ "$rows" -gt 4096 ] && check="--no-check"
            for gather in all ring; do
                torchrun --standalone --nproc-per-node "$world" -m studies.other_libraries.processes --rows "$rows" \
                    --dimension "$dimension" --dtype "$dtype" --layout "$layout" --gather "$gather" --steps 20 --output "$output" \
                    $check "$@"
            done
        done
    done
done
