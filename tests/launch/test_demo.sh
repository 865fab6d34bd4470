#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 600 s
#
# The demo on real images: as accurate as we say, whatever the seed. Quick and under sanitizers, only softmax and
# a little of it.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=train.sh
. "$top/tests/launch/train.sh"

images=/usr/share/datasets/fashion-mnist

# accurate MODEL LEAST
accurate()
{
	awk -v value="$(logged_accuracy "$work/demo/$1.csv")" -v least="$2" 'BEGIN { exit !(value >= least) }' ||
		fail "$1: $(logged_accuracy "$work/demo/$1.csv"), below $2"
	[ "$(grep -c "^$1: test accuracy [0-9.]* %$" "$work/out")" -eq 1 ] || fail "$(cat "$work/out")"
}

demo_is_accurate_for_each_seed()
{
	local seed

	[ -d "$images" ] || skip "dataset-fashion-mnist is missing"
	own_shm
	for seed in 1 2 3; do
		DEMO_SEED=$seed tools/demo "$ramps" "$work/demo" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
		accurate softmax 0.835
		accurate mlp 0.870
		grep -A 1 "^softmax: test" "$work/out"
		sed -n 's/^  time *//p' "$work/out"
	done
	[ "$(tail -n 1 "$work/out")" = "pictures: $work/demo/softmax.svg $work/demo/mlp.svg" ]
	for model in softmax mlp; do
		rsvg-convert -z 2 "$work/demo/$model.svg" -o "$work/demo/$model.png"
		python3 "$top/tests/launch/check_plot.py" "$work/demo/$model.svg" "$work/demo/$model.csv" "$work/demo/$model.png"
		[ -s "$work/demo/$model.safetensors" ]
	done
	nothing_left
}

first_epoch_learns_most()
{
	[ -d "$images" ] || skip "dataset-fashion-mnist is missing"
	own_shm
	mkdir "$work/demo"
	"$ramps" run -n 4 -s 2 --no-prefix -- "$ramps" train --data "$images" --epochs 1 --log "$work/demo/softmax.csv" >"$work/out"
	accurate softmax 0.75
	nothing_left
}

demo_without_data_says_so()
{
	own_shm
	status=0
	DEMO_DATA=/no/such tools/demo "$ramps" "$work/demo" >"$work/out" 2>&1 || status=$?
	[ "$status" -eq 1 ]
	expect "no train-images-idx3-ubyte" "$work/out"
}

names=(first_epoch_learns_most demo_without_data_says_so)
[ -n "${SAN:-}${QUICK:-}" ] || names+=(demo_is_accurate_for_each_seed)
run_tests "${names[@]}"
