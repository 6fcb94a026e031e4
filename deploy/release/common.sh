# shellcheck shell=bash
# What the scripts of a release have in common: they source this file. It changes to the root of the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# shellcheck source=../release.env
. deploy/release.env
: "${VERSION:?}" "${REPOSITORY:?}" "${IMAGE:?}" "${CMP_IMAGE:?}" "${CHARTS:?}"
# All times in what is released are the commit's.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# What is released as files, and the digests of what was pushed.
files=target/release/files
digests=target/release/digests
mkdir -p "$files" "$digests"

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# The target of rustc for an architecture of images.
rust_target() {
  case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    *) fail "$1 is not amd64 or arm64" ;;
  esac
}
