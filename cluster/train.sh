#!/usr/bin/env bash
# The training job of the clusters in this folder: bash cluster/train.sh [--any.key value ...]
#
# Actors go to their node groups by label, runs to the disk that outlives the nodes, and a job that is tried again goes
# on from its newest complete checkpoint. GSPO_RAY_CONFIG, GSPO_RAY_NAME and GSPO_RAY_STORAGE name others than these.
set -euo pipefail
cd "$(dirname "$0")/.."

config=${GSPO_RAY_CONFIG:-configs/dapo_qwen3_5_4b.yaml}
name=${GSPO_RAY_NAME:-dapo-qwen3.5-4b}
storage=${GSPO_RAY_STORAGE:-$HOME/runs}
data=$storage/data/dapo

if [ ! -e "$data/train.jsonl" ]; then # from the Hugging Face hub, once
  gspo-ray prepare dapo-math-17k --out "$data"
fi

run=(
  gspo-ray train --config "$config" --name "$name" --storage_path "$storage"
  --data.source jsonl --data.path "$data/train.jsonl"
  --cluster.learner_labels "{gspo-ray/group: learner}"
  --cluster.engine_labels "{gspo-ray/group: sampler}"
  --cluster.reward_labels "{gspo-ray/group: reward}"
  --cluster.placement_timeout_s 1800 # a node is rented, set up and joined in five to fifteen minutes
  --checkpoint.every 5               # a spot node may go at any time: at most five steps are done again
  "$@"
)
if compgen -G "$storage/$name-[0-9]*-[0-9]*/checkpoints/*/COMPLETE" > /dev/null; then
  run+=(--resume)
fi
exec "${run[@]}"
