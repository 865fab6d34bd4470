#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Programs with a planted fault, built with the flags of `make SAN=...` and run
# as the runner runs tests: the sanitizer has to speak up and fail the test.
# shellcheck source=../support/script.sh
. "$(dirname "$0")/../support/script.sh"

# run_with SAN CC: builds $work/fault.c as the only test of a tree and runs it.
run_with()
{
	local san=$1 cc=$2 flags

	mkdir -p "$work/tests/unit" "$work/tree/tests/unit"
	cp "$work/fault.c" "$work/tests/unit/test_fault.c"
	read -ra flags < <(make -s san-flags SAN="$san" CC="$cc")
	"$cc" "${flags[@]}" -o "$work/tree/tests/unit/test_fault" "$work/fault.c" -lcmocka -lpthread
	(cd "$work" && "$top/tests/run" "tree=$san") >"$work/output"
}

# caught SAN CC TEXT: the runner fails, and TEXT says why.
caught()
{
	fails run_with "$1" "$2"
	expect "$3" "$work/output"
}

# A cmocka program whose only test does what the text says, between two lines.
plant()
{
	cat >"$work/fault.c" <<-END
		#include <limits.h>
		#include <pthread.h>
		#include <setjmp.h>
		#include <stdarg.h>
		#include <stddef.h>
		#include <stdint.h>
		#include <stdlib.h>

		#include <cmocka.h>

		static volatile int word;
		static volatile int one = 1;

		static void *add(void *arg)
		{
			for (int i = 0; i < 1000; i++)
				word++;
			return arg;
		}

		static void fault(void **state)
		{
			(void)state;
			(void)add;
			$1
		}

		int main(void)
		{
			const struct CMUnitTest tests[] = { cmocka_unit_test(fault) };

			return cmocka_run_group_tests(tests, NULL, NULL);
		}
	END
}

heap_overflow_is_caught()
{
	plant 'volatile char *volatile p = malloc(8); p[7 + one] = 1; free((void *)p);'
	caught address,undefined gcc heap-buffer-overflow
	caught address,undefined clang heap-buffer-overflow
}

leak_is_caught()
{
	plant '*(void *volatile *)&state = malloc(64); state = NULL;'
	caught address,undefined gcc "detected memory leaks"
}

undefined_behaviour_is_caught()
{
	plant 'int most = INT_MAX; word = most + one;'
	caught address,undefined gcc "signed integer overflow"
	caught address,undefined clang "signed integer overflow"
}

data_race_is_caught()
{
	plant 'pthread_t t; pthread_create(&t, NULL, add, NULL); add(NULL); pthread_join(t, NULL);'
	caught thread gcc "data race"
	caught thread clang "data race"
}

without_a_fault_nothing_is_said()
{
	plant ''
	run_with address,undefined gcc
	expect "1 passed, 0 failed, 0 skipped" "$work/output"
	run_with thread gcc
	expect "1 passed, 0 failed, 0 skipped" "$work/output"
}

run_tests heap_overflow_is_caught leak_is_caught undefined_behaviour_is_caught \
	data_race_is_caught without_a_fault_nothing_is_said
