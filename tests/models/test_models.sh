#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600 s
#
# Checks the models in this folder with spin. A model's head comment lists its
# runs, one a line:
#   quick  NAME: FLAGS    must hold
#   full   NAME: FLAGS    must hold; left out when QUICK is set
#   broken NAME: FLAGS    a rule is broken on purpose: spin must find an error.
#                         When QUICK is set, only the first of each model
# MODELS="barrier.pml ring.pml" picks some of them.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# Below 1 GiB of memory, and a depth that no run needs: else pan says so.
PAN_FLAGS=(-DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=1000)
PAN_DEPTH=1000000
RUN_S=120

# make_pan MODEL FLAGS OPTIMISATION: its verifier, in the current directory.
make_pan()
{
	local flags
	read -ra flags <<<"$2"
	spin -a "${flags[@]}" "$1" && gcc "$3" -w "${PAN_FLAGS[@]}" -o pan pan.c
}

# run KIND NAME MODEL FLAGS
run()
{
	local kind=$1 name why='' states errors begin level=-O0 verdict="holds in"

	name="$(basename "$3" .pml), $2"
	[ "$kind" = full ] && level=-O2
	begin=$(date +%s%N)
	rm -rf "$scratch/run"
	mkdir "$scratch/run"
	if ! (cd "$scratch/run" && make_pan "$3" "$4" $level) >"$scratch/make" 2>&1; then
		echo "not ok $name: no verifier: $(grep -m 1 -i error "$scratch/make")"
		failed=1
		return
	fi
	(cd "$scratch/run" && timeout $RUN_S ./pan -m$PAN_DEPTH) >"$scratch/output" 2>&1 ||
		why="pan's exit status is $?"
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$scratch/output")
	states=$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' "$scratch/output")
	if [ -z "$errors" ] || grep -qE 'too small|out of memory' "$scratch/output"; then
		why="not searched to the end in $RUN_S s and $PAN_DEPTH steps; $why"
	elif [ "$kind" != broken ] && [ "$errors" -ne 0 ]; then
		why=$(sed -n 's/^pan:1: //p' "$scratch/output")
	elif [ "$kind" = broken ] && [ "$errors" -eq 0 ]; then
		why="no error found"
	fi
	[ -z "$why" ] || echo "    spin -a $4 ${3#"$PWD"/}"
	[ "$kind" != broken ] || verdict="found within"
	[ -z "$why" ] || verdict="after"
	printf '%s %s: %s%s %s states, %s s\n' "$([ -z "$why" ] && echo ok || echo not ok)" "$name" \
		"${why:+$why; }" "$verdict" "${states:-?}" \
		"$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $begin) / 1e9 }")"
	[ -z "$why" ] || failed=1
}

# Run lines of a model, as KIND|NAME|FLAGS.
runs_of()
{
	sed -nE 's/^ \* (quick|full|broken) +([^:]+): *(.*)$/\1|\2|\3/p' "$1"
}

cd "$here/../.." || exit 1
for model in ${MODELS:-$(cd "$here" && ls ./*.pml)}; do
	model=$here/$(basename "$model")
	[ "$(runs_of "$model" | grep -c '^broken')" -gt 0 ] || echo "not ok $(basename "$model"): no broken variants"
	first=1
	while IFS='|' read -r kind name flags; do
		case $kind in
		full) [ -z "${QUICK:-}" ] || continue ;;
		broken)
			[ -z "${QUICK:-}" ] || [ $first -eq 1 ] || continue
			first=0
			;;
		esac
		run "$kind" "$name" "$model" "$flags"
	done < <(runs_of "$model")
done
exit $failed
