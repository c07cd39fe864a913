#!/usr/bin/env bash
# ci.sh TARGET...: makes each target, the later ones also when one fails, and says at the end what each took.
# The last line is the count of tests.
set -uo pipefail
cd "$(dirname "$0")/.."

rm -f build/test/summary*
table=() failed=()
all=$SECONDS
for target in "$@"; do
  echo "--- make $target"
  from=$SECONDS
  # shellcheck disable=SC2086 # a target may bring variables
  if make $target; then result=ok; else result=FAILED failed+=("$target"); fi
  table+=("$(printf '  %-18s %5d s  %s' "$target" $((SECONDS - from)) "$result")")
done

echo
printf '%s\n' "${table[@]}"
printf '  %-18s %5d s\n' together $((SECONDS - all))
[ ${#failed[@]} -eq 0 ] || echo "failed: ${failed[*]}"
cat build/test/summary* 2>/dev/null | awk '{ passed += $1; failed += $3 }
  END { if (NR) printf "%d passed, %d failed\n", passed, failed; else print "no tests were run" }'
[ ${#failed[@]} -eq 0 ]
