#!/usr/bin/env bash
# Fails when a source is not formatted as .clang-format says. Version 14 alone, so that everybody
# gets the same result.
#   tools/check_format.sh         names what differs
#   tools/check_format.sh --fix   formats in place
source "$(dirname "$0")/env.sh"

formatter=""
for candidate in clang-format-14 clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then
    formatter=$candidate
    break
  fi
done
[ -n "$formatter" ] || die "clang-format 14 was not found. \`make setup\` installs it (Debian: clang-format-14)."

case "${1:-}" in
  "") action=(--dry-run -Werror) ;;
  --fix) action=(-i) ;;
  *) die "usage: tools/check_format.sh [--fix]" ;;
esac
git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cu' '*.cuh' |
  xargs -0 -r -n 16 -P "$(nproc)" "$formatter" "${action[@]}" ||
  die "some sources are not formatted. \`make format\` formats them."
