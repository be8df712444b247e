#!/usr/bin/env bash
# Mounts the disk of the runs on the head, and formats it if it is new: mount_runs.sh DEVICE FOLDER
set -euo pipefail
device=$1
folder=$2

for _ in $(seq 60); do # an attached disk takes some seconds to appear
  if [ -e "$device" ]; then break; fi
  sleep 2
done
[ -b "$device" ] || { echo "mount_runs.sh: no disk at $device" >&2; exit 1; }
mkdir -p "$folder"
if mountpoint -q "$folder"; then exit 0; fi
if ! sudo blkid "$device" > /dev/null; then sudo mkfs.ext4 -q "$device"; fi
sudo mount "$device" "$folder"
sudo chown "$(id -u):$(id -g)" "$folder"
