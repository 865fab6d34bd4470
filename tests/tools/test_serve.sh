#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 300 s
#
# The life of `ramps serve`, and `ramps stat` beside it.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=server.sh
. "$top/tests/tools/server.sh"
exec 3>&1 # for figures

says_what_it_serves()
{
	own_shm
	serve --job night/run.1 --arena 64M --slots 100K shm://a.b-c/d
	[ "$line" = "ramps: serving job night/run.1 at shm://a.b-c/d, arena 64 MiB, slots 128 KiB a worker, pid $server" ] ||
		fail "$line"
	[ -d "$RAMPS_SHM_DIR/ramps.$(id -u).a.b-c+d" ]
	kill "$server"
	ends "$server" 0
	[ ! -s "$work/log" ] || fail "$(cat "$work/log")"
}

defaults_are_shm_default_and_the_environment()
{
	own_shm
	RAMPS_JOB=from-env serve
	[ "$line" = "ramps: serving job from-env at shm://default, arena 1 GiB, slots 4 MiB a worker, pid $server" ] ||
		fail "$line"
	kill "$server"
	ends "$server" 0
	serve
	expect "serving job default at" - <<<"$line"
}

signals_end_it_with_0_and_nothing_left()
{
	local signal

	own_shm
	for signal in TERM INT HUP; do
		serve
		hold 0 1 create:w:10:10:slots push:1:3
		kill -"$signal" "$server"
		ends "$server" 0
		kill -9 "$held"
		nothing_left
	done
}

# Both are there before it looks: it takes SIGINT first, and SIGTERM at once.
second_signal_ends_it_at_once()
{
	own_shm
	serve
	kill -STOP "$server"
	kill -INT "$server"
	kill -TERM "$server"
	kill -CONT "$server"
	ends "$server" 130
}

killed_server_is_resumed_with_all_that_was_in_it()
{
	own_shm
	serve
	work_of 0 1 create:a:100:10:slots push:2:5 create:b:7:7:direct push:3:2 leave
	kill -9 "$server"
	ends "$server" 137
	"$ramps" stat >"$work/stat"
	expect ", dead, life 1," "$work/stat"
	serve
	expect ", resumed 2 tables" - <<<"$line"
	work_of 0 1 open:a pull:10 push:1:1 pull:11 open:b pull:6
	"$ramps" stat >"$work/stat"
	expect ", life 2," "$work/stat"
	expect_no ", dead," "$work/stat"
}

keep_leaves_the_arena_for_a_later_server()
{
	own_shm
	serve --keep
	work_of 0 1 create:a:10:10:slots push:2:5 leave
	kill "$server"
	ends "$server" 0
	serve
	expect ", resumed 1 table" - <<<"$line"
	expect_no "tables" - <<<"$line"
	work_of 0 1 open:a pull:10
	kill "$server"
	ends "$server" 0
	nothing_left
}

fresh_discards_what_was_there()
{
	own_shm
	serve
	work_of 0 1 create:a:10:10:slots leave
	kill -9 "$server"
	ends "$server" 137
	serve --fresh --job other
	expect_no "resumed" - <<<"$line"
	"$ramps" stat >"$work/stat"
	expect "job other" "$work/stat"
	expect_no "TABLE" "$work/stat"
}

second_server_of_an_address_is_told_whose_it_is()
{
	local first

	own_shm
	serve
	first=$server
	one_line 1 "$first" "$ramps" serve
	one_line 1 "$first" "$ramps" serve --fresh
	work_of 0 1 create:a:10:10:slots push:1:1 pull:1
	kill "$first"
	ends "$first" 0
	nothing_left
}

another_job_is_refused_what_an_earlier_one_left()
{
	own_shm
	serve --keep --job one
	kill "$server"
	ends "$server" 0
	one_line 1 "job one" "$ramps" serve --job two
	serve --job one
	expect "resumed 0 tables" - <<<"$line"
}

# Nothing that is in the arena's place is changed.
what_is_no_arena_is_refused_and_left_alone()
{
	local place before kind

	own_shm
	place=$RAMPS_SHM_DIR/ramps.$(id -u).default
	for kind in file link foreign others region; do
		mkdir "$work/target" 2>/dev/null || :
		case $kind in
		file) echo precious >"$place" ;;
		link) ln -s "$work/target" "$place" ;;
		foreign) mkdir -m 700 "$place" && echo precious >"$place/mine" ;;
		others) mkdir -m 777 "$place" && chmod 777 "$place" ;;
		region) mkdir -m 700 "$place" && ln -s "$work/target" "$place/published" ;;
		esac
		before=$(ls -lR "$RAMPS_SHM_DIR" "$work/target")
		one_line 1 "nothing was changed" "$ramps" serve
		one_line 1 "nothing was changed" "$ramps" serve --fresh
		[ "$(ls -lR "$RAMPS_SHM_DIR" "$work/target")" = "$before" ] || fail "$kind was changed"
		fails "$ramps" stat >"$work/stat" 2>&1
		rm -rf "$place"
	done
}

empty_directory_is_taken()
{
	own_shm
	mkdir -m 700 "$RAMPS_SHM_DIR/ramps.$(id -u).default"
	serve
	kill "$server"
	ends "$server" 0
	nothing_left
}

full_file_system_is_an_error_and_not_a_crash()
{
	own_shm
	mkdir "$work/full" "$work/small"
	mount -t tmpfs -o size=1m none "$work/full" 2>/dev/null || skip "mounting a tmpfs needs root"
	RAMPS_SHM_DIR=$work/full one_line 1 "file system" "$ramps" serve
	[ -z "$(ls -A "$work/full")" ] || fail "left: $(ls -AR "$work/full")"
	mount -t tmpfs -o size=24m none "$work/small"
	export RAMPS_SHM_DIR=$work/small
	serve
	work_of 0 1 create:fits:1000:100:slots push:1:1 leave
	fails work_of 0 1 create:large:1000:10000:slots >"$work/answer"
	work_of 0 1 open:fits pull:1 push:1:1 pull:2
	kill "$server"
	ends "$server" 0
	[ -z "$(ls -A "$work/small")" ] || fail "left: $(ls -AR "$work/small")"
}

it_serves_though_nobody_reads_its_line()
{
	own_shm
	"$ramps" serve >/dev/full 2>"$work/log" &
	server=$!
	pids+=("$server")
	work_of 0 1 create:a:10:10:slots push:1:1 leave
	kill "$server"
	ends "$server" 0
	expect "can't write to stdout, serving all the same" "$work/log"
	# Nothing may be written to a file that got the number of a closed one.
	"$ramps" serve <&- >&- 2>&- &
	server=$!
	pids+=("$server")
	work_of 0 1 create:a:10:10:slots push:1:1 leave
	[ "$(cat "$own"/*/lock)" = "$server" ] || fail "lock: $(cat "$own"/*/lock)"
	kill "$server"
	ends "$server" 0
}

stat_shows_a_live_job()
{
	own_shm
	serve --on-death continue
	hold 0 4 create:w:1000:64:slots push:1:3 create:d:10:3:direct push:1:2 clock:train:5 arrive:epoch
	hold 1 4 open:w push:1:4 clock:train:7 arrive:epoch
	hold 3 4 clock:train:9
	"$ramps" stat --json >"$work/json"
	python3 -m json.tool "$work/json" >/dev/null
	python3 - "$work/json" "$server" "$held" <<'PY'
import json, sys
s, = json.load(open(sys.argv[1]))["servers"]
assert s["pid"] == int(sys.argv[2]) and s["alive"] and s["lives"] == 1, s
assert s["on_death"] == "continue" and s["workers_of_job"] == 4 and s["live_workers"] == 3, s
w, d = sorted(s["tables"], key=lambda t: t["name"], reverse=True)
assert (w["name"], w["rows"], w["dim"], w["mode"], w["state"]) == ("w", 1000, 64, "slots", "ready"), w
assert w["step"] == 7 and w["updates"] == 28 and w["elements"] == 64000, w
assert (d["name"], d["mode"], d["updates"]) == ("d", "direct", None), d
assert [x["state"] for x in s["workers"]] == ["live", "live", "absent", "live"], s["workers"]
assert [x["staged_cells"] for x in s["workers"]] == [0] * 4, s["workers"]
assert [x["applied"] for x in s["workers"]][:2] == [12, 16], s["workers"]
assert [x["added"] for x in s["workers"]] == [60, 0, 0, 0], s["workers"]
assert s["workers"][3]["pid"] == int(sys.argv[3]), s["workers"]
c, = s["clocks"]
assert (c["name"], c["counts"][0], c["counts"][3]) == ("train", 5, 14), c
assert c["least"] == 5 and c["slowest"] == [0], c
b, = s["barriers"]
assert (b["name"], b["members"], b["arrived"], b["missing"]) == ("epoch", 4, 2, [2, 3]), b
PY
	"$ramps" stat >"$work/stat"
	expect "3 of 4 workers live, 1 absent (2)" "$work/stat"
	expect "2 of 4  2, 3" "$work/stat"
}

stat_ends_well()
{
	own_shm
	serve
	"$ramps" stat --watch=0.01 | head -n 1 >"$work/first"
	[ "${PIPESTATUS[*]}" = "0 0" ] || fail "${PIPESTATUS[*]}"
	expect "shm://default  job default" "$work/first"
	fails "$ramps" stat >/dev/full 2>"$work/log"
	expect "ramps stat: can't write to stdout: No space left" "$work/log"
	mkfifo "$work/blocks"
	"$ramps" stat --watch=0.05 >"$work/blocks" &
	pids+=($!)
	{
		read -r -t 20 line
		kill -INT $!
		timeout 20 cat >"$work/rest"
	} <"$work/blocks"
	ends $! 0
	"$ramps" stat --watch 0.01 --count 3 >"$work/blocks" &
	pids+=($!)
	cat "$work/blocks" >"$work/rest"
	ends $! 0
	[ "$(grep -c "^shm://default" "$work/rest")" -eq 3 ]
	[ "$(grep -c "^$" "$work/rest")" -eq 2 ]
}

# On a terminal of 24 lines: the other screen, redrawn, then back with the last sample on it.
stat_draws_in_place_on_a_terminal()
{
	own_shm
	serve
	RAMPS=$ramps timeout 20 python3 - >"$work/screen" <<'PY'
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execl(os.environ["RAMPS"], "ramps", "stat", "--watch=0.05", "--count=3")
text = b""
try:
    while part := os.read(fd, 4096):
        text += part
except OSError:
    pass
assert os.waitpid(pid, 0)[1] == 0
assert text.startswith(b"\033[?1049h"), text
assert text.count(b"\033[H\033[2J") == 3, text
last = text[text.rindex(b"\033[?1049l"):]
assert b"job default" in last and b"\033[H" not in last, text
PY
}

stat_sees_a_server_come_and_go()
{
	own_shm
	one_line 1 "no server at shm://default" "$ramps" stat
	"$ramps" stat --watch=0.01 --json >"$work/lines" &
	pids+=($!)
	serve
	kill "$server"
	ends "$server" 0
	serve
	SECONDS=0
	until tail -n 2 "$work/lines" | grep -q '"alive":true'; do
		[ "$SECONDS" -lt 20 ] || fail "no line of a live server: $(tail -n 2 "$work/lines")"
	done
	kill $!
	ends $! 0
	[ "$(grep -c '"error"' "$work/lines")" -ge 1 ]
	python3 -c 'import json, sys; [json.loads(l) for l in sys.stdin]' <"$work/lines"
}

# used PID: clock ticks of CPU time
used()
{
	local fields

	read -ra fields <"/proc/$1/stat"
	echo $((fields[13] + fields[14]))
}

idle_server_sleeps()
{
	local before ticks

	own_shm
	serve
	hold 0 1 create:w:1000:64:slots push:1:200 clock:c:100
	sleep 0.2 # what it still does after the load
	before=$(used "$server")
	sleep 2
	ticks=$(($(used "$server") - before))
	echo "CPU time of an idle server in 2 s: $ticks ticks of $(getconf CLK_TCK) a second" >&3
	[ $((ticks * 100)) -le $((2 * $(getconf CLK_TCK))) ]
	"$ramps" stat >"$work/stat"
	expect "alive, asleep" "$work/stat"
}

idle_server_wakes_quickly()
{
	local bound=1000

	[ -z "${SAN-}" ] || bound=20000
	own_shm
	serve
	work_of 0 1 create:w:1:2:slots latency:50 >"$work/latency"
	cat "$work/latency" >&3
	[ "$(sed 's/.*median \([0-9]*\) us.*/\1/' "$work/latency")" -le "$bound" ]
}

run_tests \
	says_what_it_serves \
	defaults_are_shm_default_and_the_environment \
	signals_end_it_with_0_and_nothing_left \
	second_signal_ends_it_at_once \
	killed_server_is_resumed_with_all_that_was_in_it \
	keep_leaves_the_arena_for_a_later_server \
	fresh_discards_what_was_there \
	second_server_of_an_address_is_told_whose_it_is \
	another_job_is_refused_what_an_earlier_one_left \
	what_is_no_arena_is_refused_and_left_alone \
	empty_directory_is_taken \
	full_file_system_is_an_error_and_not_a_crash \
	it_serves_though_nobody_reads_its_line \
	stat_shows_a_live_job \
	stat_ends_well \
	stat_draws_in_place_on_a_terminal \
	stat_sees_a_server_come_and_go \
	idle_server_sleeps \
	idle_server_wakes_quickly
