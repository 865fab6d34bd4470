#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 300 s
#
# `ramps bench`: what it prints, that it does exactly what it was told, what it refuses, and who survives whom.
# Nothing here depends on how long anything takes.
# shellcheck disable=SC2329 # functions are called by name
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=server.sh
. "$top/tests/tools/server.sh"

count=$BUILD/tests/tools/prog_count
# The pull tests' sizes under -a.
sizes=4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576,2097152,4194304,8388608

# self OPTION...: both sides; the output in $work/out.
self()
{
	timeout 120 "$ramps" bench --self "$@" >"$work/out" 2>"$work/err" ||
		fail "status $? of: bench --self $*: $(cat "$work/err")"
	[ ! -s "$work/err" ] || fail "bench --self $*: $(cat "$work/err")"
}

perftest()
{
	python3 tests/tools/perftest.py "$@"
}

# The parser must know perftest's own rows, else it shows nothing about ours.
parser_reads_perftest()
{
	local tab=$'\t'

	cat >"$work/lat" <<END
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          18.76          417.08       38.52    $tab       36.51       ${tab}15.68  $tab${tab}101.80  $tab${tab}417.08 
---------------------------------------------------------------------------------------
END
	cat >"$work/lat-D" <<END
 #bytes        #iterations       t_avg[usec]    tps average
 2             24472            40.88          24462.53
---------------------------------------------------------------------------------------
END
	cat >"$work/bw" <<END
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      50               124.21             119.59 $tab$tab   0.001914
---------------------------------------------------------------------------------------
END
	perftest lat "$work/lat" 2 1000
	perftest lat-D "$work/lat-D" 2 24472
	perftest bw "$work/bw" 65536 50
	sed -i 's/ 124.21 *119.59/ 119.59/' "$work/bw"
	fails perftest bw "$work/bw" 65536 50 2>&1
}

latency_rows_are_perftests()
{
	own_shm
	self pull_lat -n 1000
	perftest lat "$work/out" 8 1000
	self pull_lat -s 4096 -n 77
	perftest lat "$work/out" 4096 77
	self push_lat -n 300
	perftest lat "$work/out" 8 300
	self add_lat -n 500
	perftest lat "$work/out" 8 500
	self barrier_lat -n 200
	perftest lat "$work/out" 0 200
	self clock_lat -n 200 -w 3 --staleness 2
	perftest lat "$work/out" 0 200
	self round_lat -n 50
	perftest lat "$work/out" 65536 50
	self pull_lat -D 0.4 -f 0.1
	perftest lat-D "$work/out" 8 any
	self barrier_lat -w 3 -D 0.4 -f 0.1
	perftest lat-D "$work/out" 0 any
	nothing_left
}

bandwidth_rows_are_perftests()
{
	own_shm
	self pull_bw -n 50
	perftest bw "$work/out" 65536 50
	self pull_bw -n 50 --report_gbits
	perftest bw-gbits "$work/out" 65536 50
	self push_bw -n 50 -s 4096
	perftest bw "$work/out" 4096 50
	self add_bw -n 5000
	perftest bw "$work/out" 8 5000
	self pull_bw -D 0.4 -f 0.1
	perftest bw "$work/out" 65536 any
	self pull_bw -N -n 20
	grep -qE '^ 65536      20               0.00  ' "$work/out"
	nothing_left
}

all_sizes_have_a_row()
{
	own_shm
	self pull_lat -a -n 5 --plot "$work/plot.svg" --out_json --out_json_file "$work/json"
	perftest lat "$work/out" "$sizes" 5
	perftest svg "$work/plot.svg" curve 22
	[ "$(perftest json "$work/json" MsgSize n_iterations t_min t_max t_typical t_avg t_stdev percentile_99 \
		percentile_99.9 percentile_99.99)" = 22 ]
	self pull_bw -a -n 3 --plot "$work/plot.svg"
	perftest bw "$work/out" "$sizes" 3
	perftest svg "$work/plot.svg" curve 22
	self round_lat -a -n 3
	perftest lat "$work/out" "$sizes" 3
	self pull_bw -a -D 0.1 -f 0.02
	perftest bw "$work/out" "$sizes" any
	self push_lat -a -D 0.1 -f 0.02 -w 2
	perftest lat-D "$work/out" "$sizes" any
}

default_is_as_long_as_it_takes()
{
	own_shm
	self pull_bw
	perftest bw "$work/out" 65536 any
	[ "$(awk '$1 == 65536 { print $2 }' "$work/out")" -ge 1000 ]
}

# Exactly what was asked for, whatever the depth, and the server's own count says the same. $1 is the count.
counted()
{
	local wanted=$1 workers=$2 table=$3 test=$4 got

	shift 4
	serve --job "bench.$test" "shm://$test"
	timeout 120 "$ramps" bench "$test" -w "$workers" "$@" "shm://$test" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	got=$("$count" "shm://$test" "bench.$test" "$workers" "$table") || fail "$got"
	[ "$got" = "$wanted" ] || fail "$test $*: the server counts $got, not $wanted"
	kill "$server"
	ends "$server" 0
}

counts_are_exact()
{
	own_shm
	counted 33 1 add_bw.1 add_bw -n 33
	counted 99 1 add_bw.1 add_bw -n 33 -t 7 -q 3 -Q 5
	counted 198 2 add_bw.1 add_bw -n 33 -t 7 -q 3 -Q 5
	counted 101 1 add_bw.1 add_bw -n 101 -l 7
	counted 303 1 add_bw.1 add_bw -n 101 -l 7 -t 20 -q 3 -Q 2
	counted 1001 1 add_bw.131072 add_bw -n 1001 -l 64 -t 256 --pattern stride64
	counted 777 1 add_bw.8192 add_bw -n 777 -l 5 --pattern random --span 64K
	counted 5 1 add_bw.1 add_bw -n 5 -t 256 -Q 256
	counted 1 1 add_bw.1 add_bw -n 1
	counted 37 1 add_lat.1 add_lat -n 37
	counted 37 1 add_lat.1 add_lat -n 37 --batch 5
	counted 333 1 add_lat.8192 add_lat -n 37 -l 9 --pattern stride8 --span 64K
	nothing_left
}

# Before the count come as many as it tried: what it says it did is what came since, and it looks itself.
pushes_are_counted_by_the_test_itself()
{
	own_shm
	self push_bw -n 33 -t 7 -q 3 -Q 5 -s 1000
	perftest bw "$work/out" 1000 99
	self push_bw -n 7 -s 8388608 -t 3
	perftest bw "$work/out" 8388608 7
	self push_lat -n 41 --level applied -w 2
	perftest lat "$work/out" 8 41
	self pull_bw -n 33 -t 7 -q 3 -Q 5
	perftest bw "$work/out" 65536 99
	self add_bw -D 0.3 -f 0.1 -t 64 -q 3 -Q 5
	perftest bw "$work/out" 8 any
	self push_bw -D 0.3 -f 0.1 -t 64 -q 3 -Q 5 -w 2 -s 4096
	perftest bw "$work/out" 4096 any
}

# An add of somebody else between must make it fail: it does look.
a_wrong_count_is_an_error()
{
	own_shm
	serve --job bench.add_bw shm://wrong
	env --default-signal=INT "$ramps" bench add_bw --run_infinitely -D 0.1 shm://wrong >"$work/out" 2>"$work/err" &
	client=$!
	pids+=("$client")
	until_row 8 "$work/out"
	"$BUILD/tests/tools/prog_poke" "$RAMPS_SHM_DIR"/ramps.*.wrong add_bw.1
	kill -INT "$client"
	ends "$client" 1
	expect "operations were done, but the server has" "$work/err"
	kill "$server"
	ends "$server" 0
}

# until_row BYTES FILE: until $client has printed one.
until_row()
{
	local end=$((SECONDS + 30))

	until grep -qs "^ $1 " "$2"; do
		kill -0 "$client" 2>/dev/null || fail "the client ended: $(cat "$2")"
		[ "$SECONDS" -lt "$end" ] || fail "no row: $(cat "$2")"
	done
}

samples_and_statistics_agree()
{
	own_shm
	self pull_lat -n 3000 -U --batch 2 --out_json --out_json_file "$work/json"
	[ "$(perftest samples "$work/out" "$work/json")" = unsorted ]
	perftest lat "$work/out" 8 3000
	self pull_lat -n 3001 -H --batch 2 --out_json --out_json_file "$work/json" --plot "$work/plot.svg"
	[ "$(perftest samples "$work/out" "$work/json")" = sorted ]
	[ "$(grep -cE '^[0-9]+, ' "$work/out")" -eq 1501 ]
	perftest svg "$work/plot.svg" distribution 1501
	[ "$(perftest json "$work/json" n_samples ops_per_sample tps_average)" = 1 ]
	self add_lat -n 100 -C --out_json --out_json_file "$work/json"
	expect "t_min[cycles]" "$work/out"
	expect '"Unit": "cycles"' "$work/json"
}

one_figure_alone()
{
	own_shm
	for what in "pull_bw --output=bandwidth" "pull_bw --output=message_rate" "pull_lat --output=latency"; do
		# shellcheck disable=SC2086 # words
		self $what -n 100
		grep -qxE '[0-9]+\.[0-9]+' "$work/out" || fail "$what: $(cat "$work/out")"
		[ "$(wc -l <"$work/out")" -eq 1 ]
	done
}

shared_memory_is_called_so()
{
	own_shm
	self pull_lat -n 100 --out_json --out_json_file "$work/json"
	expect "Transport type : shared memory" "$work/out"
	expect "Device         : none" "$work/out"
	expect " Cores           : " "$work/out"
	expect '"Transport_type": "shared memory"' "$work/json"
	if grep -iE 'infiniband|\bIB\b|ethernet|\bRC\b' "$work/out" "$work/json"; then
		fail "it names a network"
	fi
}

# refused TEXT ARGUMENT...: before anything is connected: a usage error that says TEXT first.
refused()
{
	local text=$1 status=0

	shift
	timeout 10 "$ramps" bench "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
	[ "$status" -eq 2 ] || fail "status $status of: bench $*: $(cat "$work/stderr")"
	[ ! -s "$work/stdout" ] || fail "bench $*: $(cat "$work/stdout")"
	head -n 1 "$work/stderr" >"$work/first"
	expect "$text" "$work/first"
}

what_makes_no_sense_is_refused_with_the_reason()
{
	local letter

	own_shm
	# There is no server at this address: who connected first would say so.
	for letter in -b -e "-o 1" "-X 1" "-L 1" -O "-r 1" -z "-W x"; do
		# shellcheck disable=SC2086 # words
		refused "${letter%% *}: " pull_bw $letter shm://none
	done
	for letter in "-c RC" "-d x" "-i 1" "-I 1" "-m 1024" "-p 1" -R "-S 1" "-T 1" "-u 1" "-x 1"; do
		# shellcheck disable=SC2086 # words
		refused "${letter%% *}: over shared memory there " pull_bw $letter shm://none
	done
	refused "-N: pull_lat: " pull_lat -N shm://none
	refused "-q: pull_lat: " pull_lat -q 2 shm://none
	refused "-Q: pull_lat: " pull_lat -Q 2 shm://none
	refused "-t: pull_lat: " pull_lat -t 2 shm://none
	refused "-y: pull_lat: " pull_lat -y 2 shm://none
	refused "--run_infinitely: pull_lat: " pull_lat --run_infinitely shm://none
	refused "--report_gbits: pull_lat: " pull_lat --report_gbits shm://none
	refused "-H: pull_bw: " pull_bw -H shm://none
	refused "-U: pull_bw: " pull_bw -U shm://none
	refused "-C: pull_bw: " pull_bw -C shm://none
	refused "-s: add_bw: a fetch-add has 8 bytes" add_bw -s 8 shm://none
	refused "-a: barrier_lat: no data is moved" barrier_lat -a shm://none
	refused "-l: pull_bw: lists are of fetch-adds" pull_bw -l 2 shm://none
	refused "-s 6: a value has 4 bytes" pull_lat -s 6 shm://none
	refused "-s 16777216: " pull_lat -s 16777216 shm://none
	refused "-n and -D" pull_lat -n 5 -D 9 shm://none
	refused "-a and -s" pull_lat -a -s 8 shm://none
	refused "both margins of 2 s" pull_lat -D 3 shm://none
	refused "-f: margins are of a duration" pull_lat -f 1 shm://none
	refused "at most 256 operations" pull_bw -t 257 shm://none
	refused "--plot: of a bandwidth" pull_bw --plot x.svg shm://none
	refused "--pattern and --span: pull_bw" pull_bw --pattern random shm://none
	refused "--level: pull_bw" pull_bw --level applied shm://none
	refused "--output: pull_lat" pull_lat --output=bandwidth shm://none
	refused "there is no test 'read_lat'" read_lat shm://none
	refused "which test?"
	refused "also 'shm://b'" pull_lat shm://a shm://b
	refused "'tcp://x'" pull_lat tcp://x
	refused "--pin_cores: 'a' is not" pull_lat --pin_cores a shm://none
	refused "--pin_cores: this process may not run on core 1023" pull_lat --pin_cores 1023 shm://none
	refused "--self" pull_lat --self shm://none
	nothing_left
}

what_changes_nothing_is_taken()
{
	own_shm
	self pull_lat -F -n 100 --perform_warm_up
	perftest lat "$work/out" 8 100
	"$ramps" bench -h >"$work/help"
	"$ramps" bench --help | cmp - "$work/help"
	[ "$("$ramps" bench -V)" = "ramps 0.1.0" ]
}

below_a_limit_it_fails()
{
	own_shm
	one_failing "message rate is below the limit" add_bw -n 100 -y 1e9
	one_failing "BW average is below the limit" add_bw -n 100 --limit_bw 1e9
	self add_bw -n 100 -y 0.0000001 --limit_bw 0.0000001
}

one_failing()
{
	local text=$1 status=0

	shift
	timeout 60 "$ramps" bench --self "$@" >"$work/out" 2>"$work/err" || status=$?
	[ "$status" -eq 1 ] || fail "status $status: $(cat "$work/err")"
	expect "$text" "$work/err"
	perftest bw "$work/out" 8 100
}

# bench_server OPTION...: a server side, waited for; $server is its pid.
bench_server()
{
	"$ramps" bench "$@" >"$work/server" 2>&1 &
	server=$!
	pids+=("$server")
	waits_for_client 1
}

# waits_for_client N: until the server side has said N times that it waits.
waits_for_client()
{
	local end=$((SECONDS + 30))

	until [ "$(grep -c '^\* Waiting for client to connect... \*$' "$work/server")" -ge "$1" ]; do
		kill -0 "$server" 2>/dev/null || fail "the server side ended: $(cat "$work/server")"
		[ "$SECONDS" -lt "$end" ] || fail "it does not wait: $(cat "$work/server")"
	done
}

server_side_ends_with_its_client()
{
	own_shm
	bench_server pull_bw --listen shm://one
	"$ramps" bench pull_bw -n 20 shm://one >"$work/out"
	perftest bw "$work/out" 65536 20
	ends "$server" 0
	expect "The client is done" "$work/server"
	nothing_left
}

server_side_outlives_a_killed_client()
{
	local round

	own_shm
	bench_server push_bw --listen shm://two
	for round in 1 2 3; do
		rm -f "$work/client" # a row of the last round is none of this
		"$ramps" bench push_bw -s 4096 -w "$round" --run_infinitely -D 0.1 shm://two >"$work/client" &
		client=$!
		pids+=("$client")
		until_row 4096 "$work/client"
		kill -9 "$client"
		waits_for_client $((round + 1))
	done
	[ "$(grep -c 'The client died' "$work/server")" -eq 3 ]
	"$ramps" bench push_bw -n 20 -w 2 shm://two >"$work/out"
	perftest bw "$work/out" 65536 40
	ends "$server" 0
	nothing_left
}

another_test_is_refused_by_name()
{
	own_shm
	bench_server pull_lat --listen shm://three
	one_line_after_head 1 "this is a server of job bench.pull_lat, not of job bench.pull_bw" \
		"$ramps" bench pull_bw shm://three
	"$ramps" bench pull_lat -n 20 shm://three >"$work/out"
	perftest lat "$work/out" 8 20
	ends "$server" 0
}

one_line_after_head()
{
	local expected=$1 text=$2 status=0

	shift 2
	timeout 60 "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
	[ "$status" -eq "$expected" ] || fail "status $status: $(cat "$work/stderr")"
	[ "$(wc -l <"$work/stderr")" -eq 1 ] || fail "not one line: $(cat "$work/stderr")"
	expect "$text" "$work/stderr"
}

signals_end_both_sides_and_nothing_is_left()
{
	own_shm
	bench_server pull_bw --listen shm://four
	kill -INT "$server"
	ends "$server" 130
	for how in INT TERM; do
		rm -f "$work/client"
		env --default-signal=INT "$ramps" bench pull_bw --self -w 2 --run_infinitely -D 0.1 >"$work/client" &
		client=$!
		pids+=("$client")
		until_row 65536 "$work/client"
		kill -"$how" "$client"
		ends "$client" 0
		perftest bw "$work/client" "$(awk '$1 == 65536 { printf "%s%s", n++ ? "," : "", $1 }' "$work/client")" any
	done
	nothing_left
}

# allowed PID: the cores it may run on.
allowed()
{
	sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$1/status"
}

cores_are_those_asked_for()
{
	local core child

	own_shm
	core=$(allowed self | sed 's/.*[-,]//')
	"$ramps" bench pull_bw --self -w 2 --run_infinitely -D 0.1 --pin_cores "$core" >"$work/client" &
	client=$!
	pids+=("$client")
	until_row 65536 "$work/client"
	for child in "$client" $(pgrep -P "$client"); do
		[ "$(allowed "$child")" = "$core" ] || fail "it may run on $(allowed "$child"), not $core"
	done
	[ "$(pgrep -c -P "$client")" -eq 2 ]
	kill -TERM "$client"
	ends "$client" 0
	expect " Cores           : $core for the server, then the workers" "$work/client"
	refused "--pin_cores: '1,,2' is not" pull_lat --self --pin_cores 1,,2
}

killed_self_leaves_nothing()
{
	local end=$((SECONDS + 20))

	own_shm
	"$ramps" bench barrier_lat --self -w 3 -D 60 >"$work/client" &
	client=$!
	pids+=("$client")
	until_row "#bytes" "$work/client"
	kill -9 "$client"
	until [ -z "$(ls -A -I 'tsan.rodata.*' "$RAMPS_SHM_DIR")" ]; do
		[ "$SECONDS" -lt "$end" ] || fail "left: $(ls -AR "$RAMPS_SHM_DIR")"
	done
}

run_tests \
	parser_reads_perftest \
	latency_rows_are_perftests \
	bandwidth_rows_are_perftests \
	all_sizes_have_a_row \
	default_is_as_long_as_it_takes \
	counts_are_exact \
	pushes_are_counted_by_the_test_itself \
	a_wrong_count_is_an_error \
	samples_and_statistics_agree \
	one_figure_alone \
	shared_memory_is_called_so \
	what_makes_no_sense_is_refused_with_the_reason \
	what_changes_nothing_is_taken \
	below_a_limit_it_fails \
	server_side_ends_with_its_client \
	server_side_outlives_a_killed_client \
	another_test_is_refused_by_name \
	signals_end_both_sides_and_nothing_is_left \
	cores_are_those_asked_for \
	killed_self_leaves_nothing
