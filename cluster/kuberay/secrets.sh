#!/usr/bin/env bash
# Makes the Secrets that the files in this folder name; what exists already is left alone. Needs kubectl and openssl.
#
#   gspo-ray-token   Ray's token, random                  gspo-ray-hub     HF_TOKEN, if it is set
#   gspo-ray-mlflow  MLflow's database password, random   gspo-ray-bucket  AWS_ACCESS_KEY_ID and _SECRET_..., if set
set -euo pipefail

make() { # make NAME KEY=VALUE ...
  local name=$1 && shift
  if kubectl -n gspo-ray get secret "$name" > /dev/null 2>&1; then
    echo "secret/$name is there already"
  else
    printf '%s\n' "$@" | kubectl -n gspo-ray create secret generic "$name" --from-env-file=/dev/stdin
  fi
}

make gspo-ray-token "auth_token=$(openssl rand -hex 32)"
make gspo-ray-mlflow "postgres-password=$(openssl rand -hex 24)"
if [ -n "${HF_TOKEN:-}" ]; then
  make gspo-ray-hub "HF_TOKEN=$HF_TOKEN"
fi
if [ -n "${AWS_SECRET_ACCESS_KEY:-}" ]; then
  make gspo-ray-bucket "AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY"
fi
