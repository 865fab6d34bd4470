#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 300 s
#
# `ramps train` on bad input, with workers that fail, and interrupted.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=train.sh
. "$top/tests/launch/train.sh"

# refuses TEXT OPTION...: three workers end within 5 s, with status 1 and TEXT, before any epoch.
refuses()
{
	local text=$1 status=0 begun=$SECONDS

	shift
	timeout 60 "$ramps" run -n 3 -s 1 -- "$ramps" train --epochs 2 "$@" >"$work/out" 2>"$work/err" || status=$?
	[ "$status" -eq 1 ] || fail "status $status of: $* $(cat "$work/err")"
	[ $((SECONDS - begun)) -le 5 ] || fail "took $((SECONDS - begun)) s: $*"
	expect "$text" "$work/err"
	[ ! -s "$work/out" ] || fail "it began: $(cat "$work/out")"
}

# with FILE COMMAND...: a copy of the data whose FILE is what COMMAND makes of it.
with()
{
	local file=$1

	shift
	rm -rf "$work/bad"
	cp -r "$work/data" "$work/bad"
	rm "$work/bad/$file"
	"$@" <"$work/data/$file" >"$work/bad/$file"
}

folder_without_data_is_named()
{
	own_shm
	refuses "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in /no/such" --data /no/such
	mkdir "$work/empty"
	refuses "--data names a folder" --data "$work/empty"
	nothing_left
}

damaged_files_are_refused()
{
	own_shm
	data --train 50 --test 20
	with train-images-idx3-ubyte head -c 1000
	refuses "train-images-idx3-ubyte: is cut off" --data "$work/bad"
	with train-images-idx3-ubyte head -c 10
	refuses "is cut off" --data "$work/bad"
	with t10k-labels-idx1-ubyte cat - /etc/passwd
	refuses "t10k-labels-idx1-ubyte: goes on after its last sample" --data "$work/bad"
	with train-labels-idx1-ubyte cat "$work/data/train-images-idx3-ubyte"
	refuses "is no IDX file of labels" --data "$work/bad"
	with train-images-idx3-ubyte cat /etc/services
	refuses "is no IDX file of images" --data "$work/bad"
	with train-labels-idx1-ubyte cat "$work/data/t10k-labels-idx1-ubyte"
	refuses "another number of labels" --data "$work/bad"
	with t10k-images-idx3-ubyte printf '\0\0\10\3\0\0\0\0\0\0\0\10\0\0\0\10'
	refuses "no samples" --data "$work/bad"
	with train-images-idx3-ubyte printf '\0\0\10\3\377\377\377\377\377\377\377\377\377\377\377\377'
	refuses "a million pixels" --data "$work/bad"
	nothing_left
}

damaged_archives_are_refused()
{
	own_shm
	data --train 50 --test 20 --gzip
	with train-images-idx3-ubyte.gz head -c 1000
	refuses "is cut off" --data "$work/bad"
	with train-images-idx3-ubyte.gz gzip -c
	refuses "was packed twice" --data "$work/bad"
	# A byte in the middle is another.
	with train-images-idx3-ubyte.gz python3 -c '
import sys
data = bytearray(sys.stdin.buffer.read())
data[len(data) // 2] ^= 0x55
sys.stdout.buffer.write(data)'
	refuses "train-images-idx3-ubyte.gz: is " --data "$work/bad"
	nothing_left
}

other_test_set_is_refused()
{
	own_shm
	data
	python3 tests/launch/make_idx.py "$work/other" --side 9
	cp "$work/other"/t10k-* "$work/data"
	refuses "the test set has other images or classes" --data "$work/data"
}

more_workers_than_samples_are_refused()
{
	own_shm
	data --train 2 --classes 1
	refuses "3 workers for 2 samples" --data "$work/data"
}

outputs_that_cannot_be_written_are_found_before()
{
	local option

	own_shm
	data --train 50
	for option in save plot log; do
		refuses "$work/none/file: No such file" --data "$work/data" --"$option" "$work/none/file"
		refuses "$work: Is a directory" --data "$work/data" --"$option" "$work"
		refuses "/proc/file: " --data "$work/data" --"$option" /proc/file
	done
	refuses "is to hold two outputs" --data "$work/data" --log "$work/a" --plot "$work/a"
	refuses "empty name" --data "$work/data" --log ""
	nothing_left
}

# By hand there is no ramps run that would end the others.
others_do_not_hang_when_rank_0_cannot_write()
{
	local begun=$SECONDS workers=() pid

	own_shm
	data --train 50
	serve shm://here
	export RAMPS_SERVERS=shm://here RAMPS_WORKERS=2
	for rank in 1 0; do
		RAMPS_RANK=$rank "$ramps" train --data "$work/data" --log "$work/none/log" >"$work/out$rank" 2>"$work/err$rank" &
		workers+=($!)
		pids+=($!)
	done
	for pid in "${workers[@]}"; do
		ends "$pid" 1
	done
	[ $((SECONDS - begun)) -le 5 ] || fail "took $((SECONDS - begun)) s"
	expect "none/log" "$work/err1"
	unset RAMPS_SERVERS RAMPS_WORKERS
	kill "$server"
	ends "$server" 0
}

full_disk_at_the_end_is_an_error_and_the_rest_is_written()
{
	own_shm
	data
	status=0
	train 2 --epochs 1 --log /dev/full --save "$work/model" --plot "$work/plot.svg" 2>"$work/err" || status=$?
	[ "$status" -eq 1 ] || fail "status $status"
	expect "/dev/full: No space left on device" "$work/err"
	[ -c /dev/full ]
	[ -s "$work/model" ] && [ -s "$work/plot.svg" ]
	nothing_left
}

outputs_go_where_links_and_pipes_lead()
{
	own_shm
	data --train 50
	ln -s target "$work/link"
	echo old >"$work/target"
	train 0 --epochs 1 --log "$work/link"
	[ -L "$work/link" ]
	expect "step,epoch" "$work/target"
	expect_no old "$work/target"
	train 0 --epochs 1 --log /dev/stdout --quiet
	expect "step,epoch" "$work/out"
	expect "softmax: test accuracy" "$work/out"
	train 0 --epochs 1 --log /dev/null
	[ -c /dev/null ]
	[ -z "$(find "$work" -name '*.part*')" ]
}

worker_that_dies_ends_the_others_who_say_so()
{
	local begun workers=() rank

	own_shm
	data
	serve shm://here
	export RAMPS_SERVERS=shm://here RAMPS_WORKERS=3
	for rank in 0 1 2; do
		RAMPS_RANK=$rank "$ramps" train --data "$work/data" --epochs 100000 >"$work/out$rank" 2>"$work/err$rank" &
		workers+=($!)
		pids+=($!)
	done
	until_true grep -q "'^epoch'" "$work/out0"
	begun=$SECONDS
	kill -9 "${workers[1]}"
	ends "${workers[0]}" 1
	ends "${workers[2]}" 1
	forget "${workers[1]}"
	[ $((SECONDS - begun)) -le 5 ] || fail "took $((SECONDS - begun)) s"
	for rank in 0 2; do
		grep -qE 'another worker died|rank 1 died|ranks .*1.* died' "$work/err$rank" || fail "$(cat "$work/err$rank")"
		[ "$(wc -l <"$work/err$rank")" -eq 1 ] || fail "$(cat "$work/err$rank")"
	done
	unset RAMPS_SERVERS RAMPS_WORKERS
	kill "$server"
	ends "$server" 0
}

worker_killed_in_a_run_ends_it()
{
	own_shm
	data
	"$ramps" run -n 3 -s 2 -- "$ramps" train --data "$work/data" --epochs 100000 >"$work/out" 2>"$work/err" &
	run=$!
	pids+=("$run")
	until_true grep -q "'epoch'" "$work/out"
	pkill -9 -n -P "$run" -f ' train --data'
	ends "$run" 137
	nothing_left
}

rate_that_is_too_high_is_explained()
{
	own_shm
	data
	status=0
	train 2 --epochs 5 --rate 1e38 2>"$work/err" || status=$?
	[ "$status" -eq 1 ] || fail "status $status"
	expect "give a lower --rate" "$work/err"
	nothing_left
}

# begin OPTION...: a long training of three workers, $run, that has begun.
begin()
{
	data --train 2000
	"$ramps" run -n 3 -s 2 --no-prefix -- "$ramps" train --data "$work/data" --epochs 100000 --batch 100 "$@" >"$work/out" 2>"$work/err" &
	run=$!
	pids+=("$run")
	until_true grep -q "'^epoch'" "$work/out"
}

# Rank 0 may have trained for a while before another has begun.
all_ranks_train()
{
	local server

	server=$(basename "$own"/ramps.*-0)
	"$ramps" stat --json "shm://${server#ramps.*.}" | grep -oE '"applied": ?[0-9]+' | sort | uniq -c >"$work/applied" &&
		[ "$(grep -c . "$work/applied")" -gt 0 ] && ! grep -qE '"applied": ?0$' "$work/applied"
}

one_interrupt_ends_after_the_step_and_saves()
{
	local sync

	for sync in bsp async ssp:2; do
		own_shm
		begin --sync "$sync" --save "$work/model" --plot "$work/plot.svg" --log "$work/log.csv"
		until_true all_ranks_train
		kill -INT "$run"
		ends "$run" 0
		expect "stopping after this step" "$work/err"
		[ "$(wc -l <"$work/err")" -eq 1 ] || fail "$(cat "$work/err")"
		grep -qE '^softmax: test accuracy' <(tail -n 1 "$work/out") || fail "$(tail "$work/out")"
		[ "$(model accuracy "$work/model" "$work/data")" = "$(logged_accuracy "$work/log.csv")" ]
		python3 tests/launch/check_plot.py "$work/plot.svg" "$work/log.csv"
		nothing_left
		rm -r "$own"
	done
}

second_interrupt_ends_at_once()
{
	own_shm
	# Steps of several seconds.
	data --train 4000 --side 28
	"$ramps" run -n 2 -s 1 --no-prefix -- "$ramps" train --data "$work/data" --model mlp:8000 --epochs 100000 --batch 4000 --save "$work/model" >"$work/out" 2>"$work/err" &
	run=$!
	pids+=("$run")
	until_true grep -q "'^mlp: 2 workers'" "$work/out"
	kill -INT "$run"
	until_true grep -q "'stopping after'" "$work/err"
	begun=$SECONDS
	kill -INT "$run"
	ends "$run" 130
	# TSan has signals wait for the end of the sgemm.
	[ $((SECONDS - begun)) -le $((${SAN:+20} + 2)) ] || fail "took $((SECONDS - begun)) s"
	[ ! -e "$work/model" ]
	nothing_left
}

interrupt_while_waiting_for_others_ends_at_once()
{
	own_shm
	data --train 50
	# A rank that the others never come to.
	serve shm://here
	RAMPS_SERVERS=shm://here RAMPS_WORKERS=2 RAMPS_RANK=0 "$ramps" train --data "$work/data" >"$work/out" 2>"$work/err" &
	run=$!
	pids+=("$run")
	until_true "$ramps stat shm://here | grep -q train/epoch"
	begun=$SECONDS
	kill -INT "$run"
	ends "$run" 130
	[ $((SECONDS - begun)) -le 2 ] || fail "took $((SECONDS - begun)) s"
	[ ! -s "$work/err" ] || fail "$(cat "$work/err")"
	kill "$server"
	ends "$server" 0
}

interrupt_at_any_time_leaves_nothing()
{
	local workers moment status

	own_shm
	data --train 2000
	for workers in 0 2; do
		for moment in 0.01 0.03 0.05 0.08 0.12 0.2 0.4; do
			status=0
			rm -f "$work/log.csv"
			if [ "$workers" -eq 0 ]; then
				set -- "$ramps" train
			else
				set -- "$ramps" run -n "$workers" -s 2 -- "$ramps" train
			fi
			timeout --foreground -s INT --preserve-status -k 10 "$moment" "$@" --data "$work/data" --epochs 100000 --log "$work/log.csv" \
				>"$work/out" 2>"$work/err" || status=$?
			case $status in
			0) [ -s "$work/log.csv" ] || fail "nothing saved after $moment s" ;;
			130) [ ! -e "$work/log.csv" ] || fail "saved, and yet 130 after $moment s" ;;
			*) fail "status $status after $moment s: $(cat "$work/err")" ;;
			esac
			expect_no "ramps run:" "$work/err"
			nothing_left
		done
	done
}

bad_options_are_refused()
{
	own_shm
	fails "$ramps" train --model cnn 2>"$work/err"
	expect "--model: 'cnn' is none of" "$work/err"
	fails "$ramps" train --model mlp:0 2>"$work/err"
	expect "'0' is not a number" "$work/err"
	fails "$ramps" train --sync ssp 2>"$work/err"
	expect "--sync: 'ssp'" "$work/err"
	fails "$ramps" train --rate -1 2>"$work/err"
	expect "not a number above 0" "$work/err"
	fails "$ramps" train --epochs 0 2>"$work/err"
	expect "--epochs" "$work/err"
	fails "$ramps" train --schedule step 2>"$work/err"
	expect "--schedule" "$work/err"
}

run_tests folder_without_data_is_named damaged_files_are_refused damaged_archives_are_refused \
	other_test_set_is_refused more_workers_than_samples_are_refused \
	outputs_that_cannot_be_written_are_found_before others_do_not_hang_when_rank_0_cannot_write \
	full_disk_at_the_end_is_an_error_and_the_rest_is_written outputs_go_where_links_and_pipes_lead \
	worker_that_dies_ends_the_others_who_say_so worker_killed_in_a_run_ends_it \
	rate_that_is_too_high_is_explained one_interrupt_ends_after_the_step_and_saves \
	second_interrupt_ends_at_once interrupt_while_waiting_for_others_ends_at_once \
	interrupt_at_any_time_leaves_nothing bad_options_are_refused
