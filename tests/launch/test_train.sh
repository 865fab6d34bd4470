#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 300 s
#
# `ramps train`: right results for any sizes, and what it writes.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=train.sh
. "$top/tests/launch/train.sh"

# at_least VALUE LEAST
at_least()
{
	awk -v value="$1" -v least="$2" 'BEGIN { exit !(value >= least) }' || fail "$1 is below $2"
}

workers_train_softmax_together()
{
	own_shm
	data
	train 3 --epochs 5 --batch 32 --log "$work/log.csv"
	at_least "$(logged_accuracy "$work/log.csv")" 0.9
	grep -qE '^softmax: test accuracy [0-9.]+ %$' <(tail -n 1 "$work/out") || fail "$(cat "$work/out")"
	[ "$(grep -cE '^epoch [1-5] of 5  loss [0-9.]+  test accuracy [ 0-9.]+ %  [0-9.]+ s$' "$work/out")" -eq 5 ] || fail "$(cat "$work/out")"
	nothing_left
}

alone_it_brings_its_own_server()
{
	own_shm
	data --gzip
	train 0 --model mlp:16 --epochs 5 --batch 32 --rate 0.5 --log "$work/log.csv"
	at_least "$(logged_accuracy "$work/log.csv")" 0.9
	expect "mlp: 1 worker, 1 server, bsp, batch 32, 5 epochs" "$work/out"
	grep -qE '^mlp: test accuracy [0-9.]+ %$' <(tail -n 1 "$work/out") || fail "$(cat "$work/out")"
	nothing_left
}

steps_are_gradient_descent()
{
	own_shm
	data --train 60 --test 10
	train 3 --epochs 4 --batch 60 --rate 0.5 --save "$work/a" --log "$work/log.csv"
	model descent "$work/a" "$work/data" 0.5 4
	# It begins with four classes that are all as likely.
	[ "$(sed -n '2s/^1,1.0000,[^,]*,\(1.38629[0-9]\),.*/ln 4/p' "$work/log.csv")" = "ln 4" ] || fail "$(cat "$work/log.csv")"
	# A batch larger than the set is the set.
	train 2 --epochs 4 --batch 1000000 --rate 0.5 --save "$work/b"
	model same "$work/a" "$work/b"
	# Not just anything passes.
	fails model descent "$work/a" "$work/data" 0.5 5 2>"$work/err"
}

uneven_shares_give_what_one_worker_gives()
{
	local workers

	own_shm
	# 101 samples in batches of 7, of which the last has 3: with 5 workers some have none.
	data --train 101
	for model in softmax mlp:9; do
		train 1 --model "$model" --epochs 3 --batch 7 --save "$work/one"
		for workers in 3 5; do
			train "$workers" --model "$model" --epochs 3 --batch 7 --save "$work/many" --log "$work/log.csv"
			model same "$work/one" "$work/many"
			[ "$(tail -n 1 "$work/log.csv" | cut -d , -f 1)" -eq 45 ]
		done
	done
	nothing_left
}

seed_decides_the_result()
{
	own_shm
	data
	for seed in 1 2; do
		train 2 --model mlp:8 --epochs 1 --seed "$seed" --save "$work/$seed"
	done
	train 2 --model mlp:8 --epochs 1 --seed 2 --save "$work/again"
	cmp "$work/2" "$work/again"
	fails model same "$work/1" "$work/2" 2>"$work/err"
}

schedules_differ()
{
	own_shm
	data
	for schedule in constant linear cosine; do
		train 0 --epochs 2 --schedule "$schedule" --save "$work/$schedule"
	done
	fails model same "$work/constant" "$work/linear" 2>"$work/err"
	fails model same "$work/linear" "$work/cosine" 2>"$work/err"
}

asynchronous_training_gets_there()
{
	own_shm
	data
	for sync in async ssp:0 ssp:3; do
		train 3 --sync "$sync" --epochs 8 --batch 30 --rate 0.1 --log "$work/log.csv"
		at_least "$(logged_accuracy "$work/log.csv")" 0.9
		expect "${sync%:*}" "$work/out"
	done
	nothing_left
}

saved_model_reproduces_the_accuracy()
{
	own_shm
	# Noisy, so that some are wrong.
	data --noise 200
	for kind in softmax mlp:12; do
		train 2 --model "$kind" --epochs 3 --log "$work/log.csv" --save "$work/model"
		[ "$(model accuracy "$work/model" "$work/data")" = "$(logged_accuracy "$work/log.csv")" ]
		tail -n 1 "$work/out" >"$work/last"
		expect "$(awk -v x="$(logged_accuracy "$work/log.csv")" 'BEGIN { printf "accuracy %.1f %%", 100 * x }')" "$work/last"
		[ "$(logged_accuracy "$work/log.csv")" != 1.0000 ]
	done
}

picture_shows_the_log()
{
	command -v rsvg-convert >/dev/null || skip "rsvg-convert is missing"
	own_shm
	data --noise 200
	train 2 --epochs 6 --plot "$work/plot.svg" --log "$work/log.csv"
	rsvg-convert "$work/plot.svg" -o "$work/plot.png"
	python3 "$top/tests/launch/check_plot.py" "$work/plot.svg" "$work/log.csv" "$work/plot.png"
	expect "softmax 64-4" "$work/plot.svg"
	# The check is one: another log is not what the picture shows.
	sed '3s/,0\./,1./g' "$work/log.csv" >"$work/other.csv"
	fails python3 "$top/tests/launch/check_plot.py" "$work/plot.svg" "$work/other.csv" 2>"$work/err"
}

picture_of_one_epoch_is_one_too()
{
	own_shm
	data --train 5
	train 0 --epochs 1 --batch 5 --plot "$work/plot.svg" --log "$work/log.csv"
	python3 "$top/tests/launch/check_plot.py" "$work/plot.svg" "$work/log.csv"
}

log_counts_every_sample()
{
	own_shm
	data
	train 3 --epochs 4 --batch 50 --log "$work/log.csv"
	[ "$(head -n 1 "$work/log.csv")" = "step,epoch,seconds,loss,epoch_loss,test_accuracy,images_per_s" ]
	# 6 steps an epoch; time and steps only grow.
	[ "$(tail -n 1 "$work/log.csv" | cut -d , -f 1,2)" = "24,4.0000" ]
	awk -F , 'NR > 2 && ($1 <= step || $3 <= time) { exit 1 } NR > 1 { step = $1; time = $3 }' "$work/log.csv"
	[ "$(cut -d , -f 6 "$work/log.csv" | grep -c '^[01]')" -eq 4 ]
}

table_has_time_rate_and_shares()
{
	own_shm
	data
	train 2 --epochs 2
	for name in time images/s compute pull push wait; do
		grep -qE "^  $name +[0-9.]+( s| %)?$" "$work/out" || fail "no $name in $(cat "$work/out")"
	done
	awk '/^  (compute|pull|push|wait) / { sum += $2 } END { exit !(sum > 99.7 && sum < 100.3) }' "$work/out" || fail "$(cat "$work/out")"
}

quiet_prints_one_line()
{
	own_shm
	data
	train 2 --epochs 2 --quiet
	[ "$(wc -l <"$work/out")" -eq 1 ]
}

terminal_has_one_line_of_progress()
{
	own_shm
	data --train 2000
	# script(1) gives it a terminal; it ends when asked to.
	timeout 60 script -qec "timeout -s INT 2 $ramps train --data $work/data --epochs 100000 --model mlp:64; echo status \$?" /dev/null >"$work/out" </dev/null
	tr '\r' '\n' <"$work/out" >"$work/lines"
	grep -qE 'epoch +[0-9.]+ of 100000  step [0-9]+ of [0-9]+  loss [0-9.]+  [0-9.]+ [kM]? ?images/s  pull [0-9]+ MB/s  push [0-9]+ MB/s  [0-9]+ s left' "$work/lines" ||
		fail "$(tail -c 2000 "$work/lines")"
	# Ten a second at most.
	[ "$(grep -c ' left' "$work/lines")" -le 25 ] || fail "$(grep -c ' left' "$work/lines") lines of progress"
}

plain_output_has_few_lines()
{
	own_shm
	data --train 2000
	status=0
	timeout -s INT 2 "$ramps" train --data "$work/data" --epochs 1000 --model mlp:64 >"$work/out" 2>"$work/err" || status=$?
	[ "$(grep -cE '^epoch +[0-9]+ of 1000 ' "$work/out")" -ge 2 ] || fail "$(cat "$work/out")"
	expect_no $'\r' "$work/out"
	[ "$(grep -c ' left' "$work/out")" -le 1 ] || fail "$(grep ' left' "$work/out")"
}

example_trains_as_well()
{
	own_shm
	data --gzip --side 28 --classes 10
	"$ramps" run -n 3 -s 2 -- "$BUILD/examples/softmax" "$work/data" 3 >"$work/out"
	expect "[0] epoch 3: test accuracy" "$work/out"
	at_least "$(sed -n 's/.*epoch 3: test accuracy \(.*\) %/\1/p' "$work/out")" 90
}

run_tests workers_train_softmax_together alone_it_brings_its_own_server steps_are_gradient_descent \
	uneven_shares_give_what_one_worker_gives seed_decides_the_result schedules_differ \
	asynchronous_training_gets_there saved_model_reproduces_the_accuracy picture_shows_the_log \
	picture_of_one_epoch_is_one_too log_counts_every_sample table_has_time_rate_and_shares \
	quiet_prints_one_line terminal_has_one_line_of_progress plain_output_has_few_lines example_trains_as_well
