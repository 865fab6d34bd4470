#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tests/run against tests that misbehave, in a tree of their own. Programs are
# shell scripts that print what cmocka would.
# shellcheck source=../support/script.sh
. "$(dirname "$0")/../support/script.sh"

# program NAME BODY: a test program unit/test_NAME, already built.
program()
{
	mkdir -p "$work/tests/unit" "$work/build/tests/unit"
	[ -e "$work/tests/unit/test_$1.c" ] || : >"$work/tests/unit/test_$1.c"
	printf '#!/bin/bash\n%s\n' "$2" >"$work/build/tests/unit/test_$1"
	chmod +x "$work/build/tests/unit/test_$1"
}

# script NAME BODY: a script test sh/test_NAME.sh.
script()
{
	mkdir -p "$work/tests/sh" "$work/build"
	printf '%s\n' "$2" >"$work/tests/sh/test_$1.sh"
}

# A cmocka group with one test of outcome $1.
one_test()
{
	echo 'echo "[==========] Running 1 test(s)."; echo "[ RUN      ] one"'
	case $1 in
	ok) echo 'echo "[       OK ] one"' ;;
	failed) echo 'echo "[  FAILED  ] one"' ;;
	skipped) echo 'echo "SKIP: no device"; echo "[  SKIPPED ] one"' ;;
	esac
	echo 'echo "[==========] 1 test(s) run."'
	case $1 in
	ok) echo 'echo "[  PASSED  ] 1 test(s)."' ;;
	failed) echo 'echo "[  FAILED  ] 1 test(s), listed below:"; echo "[  FAILED  ] one"; exit 1' ;;
	skipped) echo 'echo "[  SKIPPED ] 1 test(s), listed below:"; echo "[  SKIPPED ] one"' ;;
	esac
}

# run STATUS SUM [ENV=...]: runs the tree, wants this exit status and last line.
run()
{
	local want=$1 sum=$2 status=0

	shift 2
	(cd "$work" && env -u CI "$@" "$top/tests/run" build) >"$work/output" 2>&1 || status=$?
	[ "$status" = "$want" ] || fail "exit status $status: $(cat "$work/output")"
	[ "$(tail -n 1 "$work/output")" = "$sum" ] || fail "$(cat "$work/output")"
}

counts_add_up_over_programs_and_scripts()
{
	program a "$(one_test ok)"
	program b "$(one_test failed)"
	program c "$(one_test skipped)"
	script d 'echo "ok one"; echo "ok two"; echo "not ok three: broken"; echo "skip four: too late"; exit 1'
	run 1 "3 passed, 2 failed, 2 skipped"
	expect "tests/unit/test_b in build: one: failed" "$work/output"
	expect "tests/sh/test_d in build: three: broken" "$work/output"
	expect "tests/unit/test_c in build: one: no device" "$work/output"
	expect "tests/sh/test_d in build: four: too late" "$work/output"
	expect "[  PASSED  ] 1 test(s)." "$work/output"
}

all_green_exits_zero()
{
	program a "$(one_test ok)"
	script b 'echo "ok one"'
	run 0 "2 passed, 0 failed, 0 skipped"
}

groups_of_one_program_add_up()
{
	program a "$(one_test ok; one_test skipped; one_test ok)"
	run 0 "2 passed, 0 failed, 1 skipped"
}

hang_is_killed_and_its_tail_shown()
{
	script a '# timeout: 1 s
echo "about to wait"; sleep 300 & sleep 300'
	script b '# timeout: 1 s
echo "ok one"; sleep 300'
	run 1 "1 passed, 2 failed, 0 skipped"
	expect "exit: killed by the watchdog after 1 s" "$work/output"
	expect "no test reported, killed by the watchdog after 1 s" "$work/output"
	expect "about to wait" "$work/output"
}

hang_of_a_program_is_killed()
{
	mkdir -p "$work/tests/unit"
	printf '/* first line */\n/* timeout: 1 s */\n' >"$work/tests/unit/test_a.c"
	program a 'echo "[==========] Running 1 test(s)."; echo "[ RUN      ] stuck"; exec sleep 300'
	run 1 "0 passed, 1 failed, 0 skipped"
	expect "stuck: died before its summary: killed by the watchdog after 1 s" "$work/output"
}

crash_without_summary_is_one_named_failure()
{
	program a 'echo "[==========] Running 2 test(s)."; echo "[ RUN      ] one"
echo "[       OK ] one"; echo "[ RUN      ] two"; kill -SEGV $$'
	run 1 "1 passed, 1 failed, 0 skipped"
	expect "two: died before its summary: killed by SIGSEGV" "$work/output"
}

silent_program_fails()
{
	program a 'exit 0'
	script b 'true'
	run 1 "0 passed, 2 failed, 0 skipped"
	expect "no test reported" "$work/output"
}

unbuilt_program_fails()
{
	program a "$(one_test ok)"
	: >"$work/tests/unit/test_b.c"
	run 1 "1 passed, 1 failed, 0 skipped"
	expect "test_b in build: output: no test reported, not started" "$work/output"
}

bad_exit_after_good_tests_fails()
{
	program a "$(one_test ok); exit 99"
	script b 'echo "ok one"; exit 3'
	run 1 "2 passed, 2 failed, 0 skipped"
	expect "exit status 99" "$work/output"
	expect "exit status 3" "$work/output"
}

all_skipped_is_not_passed()
{
	program a "$(one_test skipped)"
	run 0 "0 passed, 0 failed, 1 skipped"
	expect "== skip tests/unit/test_a.c" "$work/output"
}

skip_fails_in_ci()
{
	program a "$(one_test ok)"
	program b "$(one_test skipped)"
	run 1 "1 passed, 0 failed, 1 skipped" CI=true
	expect "CI=true: a skipped test is a failure" "$work/output"
}

no_tests_at_all_fails()
{
	mkdir -p "$work/tests" "$work/build"
	run 1 "0 passed, 0 failed, 0 skipped"
	expect "no test ran" "$work/output"
}

left_process_is_a_failure_and_is_killed()
{
	script a 'sleep 311 & echo "ok one"'
	run 1 "1 passed, 1 failed, 0 skipped"
	expect "left processes: sleep" "$work/output"
	fails grep -lzx 311 /proc/[0-9]*/cmdline
}

left_process_of_another_session_is_found()
{
	script a '(setsid sleep 312 &) ; sleep 0.1; echo "ok one"'
	run 1 "1 passed, 1 failed, 0 skipped"
	expect "left processes: sleep" "$work/output"
	fails grep -lzx 312 /proc/[0-9]*/cmdline
}

left_shared_memory_is_a_failure()
{
	local name=ramps-left-$$

	script a ": >/dev/shm/$name; echo 'ok one'"
	run 1 "1 passed, 1 failed, 0 skipped"
	rm -f "/dev/shm/$name"
	expect "left in /dev/shm: $name" "$work/output"
}

only_picks_tests_by_source_or_folder()
{
	program a "$(one_test ok)"
	program b "$(one_test failed)"
	script c 'echo "ok one"; echo "ok two"'
	cd "$work"
	[ "$("$top/tests/run" --only tests/unit/test_a.c build | tail -n 1)" = "1 passed, 0 failed, 0 skipped" ]
	[ "$("$top/tests/run" --only tests/sh build | tail -n 1)" = "2 passed, 0 failed, 0 skipped" ]
	fails "$top/tests/run" --only tests/unit/test_nonsense.c build
}

builds_add_up_and_sanitizers_skip_build_tests()
{
	program a 'echo "SAN is ${SAN-unset} TSAN ${TSAN_OPTIONS+set}"; exit 1'
	mkdir -p "$work/tests/install"
	cp -r "$work/build" "$work/tsan"
	echo 'echo "ok one"' >"$work/tests/install/test_b.sh"
	cd "$work"
	fails env -u SAN -u TSAN_OPTIONS "$top/tests/run" build tsan=thread >"$work/output"
	[ "$(tail -n 1 "$work/output")" = "1 passed, 2 failed, 0 skipped" ]
	expect "SAN is unset TSAN" "$work/output"
	expect "SAN is thread TSAN set" "$work/output"
}

run_tests counts_add_up_over_programs_and_scripts all_green_exits_zero \
	groups_of_one_program_add_up hang_is_killed_and_its_tail_shown \
	hang_of_a_program_is_killed crash_without_summary_is_one_named_failure \
	silent_program_fails unbuilt_program_fails bad_exit_after_good_tests_fails \
	all_skipped_is_not_passed skip_fails_in_ci no_tests_at_all_fails \
	left_process_is_a_failure_and_is_killed left_process_of_another_session_is_found \
	left_shared_memory_is_a_failure only_picks_tests_by_source_or_folder \
	builds_add_up_and_sanitizers_skip_build_tests
