#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The makefile itself, on a small tree: what is rebuilt when, and what is said
# when something is missing.
# shellcheck source=../support/script.sh
. "$(dirname "$0")/../support/script.sh"

small_tree()
{
	unset BUILD CC CFLAGS SAN V WERROR
	mkdir -p "$work/src/base" "$work/tools" "$work/include/ramps"
	cp Makefile "$work"
	cp src/libramps.map "$work/src"
	echo 'int base_one(void);' >"$work/src/base/one.h"
	printf '#include "base/one.h"\nint base_one(void) { return 1; }\n' >"$work/src/base/one.c"
	printf '#include "base/one.h"\nint ramps_two(void); int ramps_two(void) { return base_one(); }\n' \
		>"$work/src/base/two.c"
	printf '#include "base/one.h"\nint main(void) { return base_one() - 1; }\n' >"$work/tools/main.c"
	cd "$work"
	build
	expect "base/one.o" made
}

# build [ARGUMENT]...: says in the file made what make did.
build()
{
	make V=1 "$@" >made 2>&1 || fail "$(cat made)"
}

nothing_is_rebuilt_without_cause()
{
	small_tree
	build
	expect_no " -o " made
}

changed_header_rebuilds_what_includes_it()
{
	small_tree
	sleep 0.01
	touch src/base/one.h
	build
	expect "base/one.o" made
	expect "base/two.o" made
	expect "-o build/ramps " made
}

changed_source_rebuilds_only_itself()
{
	small_tree
	sleep 0.01
	touch src/base/two.c
	build
	expect "base/two.o" made
	expect_no "-o build/src/base/one.o" made
}

changed_flags_rebuild_everything()
{
	small_tree
	build CFLAGS=-O0
	expect "base/one.o" made
	expect "base/two.o" made
	build CFLAGS=-O0
	expect_no " -o " made
}

removed_header_and_source_are_forgotten()
{
	small_tree
	rm src/base/two.c
	build
	nm build/libramps.a >names
	expect base_one names
	expect_no ramps_two names
	sed -i 's/.*include.*//; s/int base/int base_one(void); int base/' src/base/one.c
	sed -i 's/.*include.*/int base_one(void);/' tools/main.c
	rm src/base/one.h
	build
}

sanitizers_build_beside()
{
	small_tree
	build lib SAN=address,undefined
	build lib SAN=thread
	[ -e build/asan/libramps.so ] && [ -e build/tsan/libramps.so ]
	build
	expect_no " -o " made
}

warnings_are_errors_when_asked()
{
	small_tree
	echo 'static int unused;' >>src/base/one.c
	build
	expect "unused" made
	fails make WERROR=1 >made 2>&1
	expect "error: " made
}

missing_packages_are_named_with_the_command()
{
	small_tree
	fails make PKG_CONFIG=false >made 2>&1
	expect "run: tools/deps build" made
	fails make CC=no-such-compiler >made 2>&1
	expect "no-such-compiler is missing; run: tools/deps build" made
	make help PKG_CONFIG=false CC=no-such-compiler >made
	expect "check" made
}

run_tests nothing_is_rebuilt_without_cause changed_header_rebuilds_what_includes_it \
	changed_source_rebuilds_only_itself changed_flags_rebuild_everything \
	removed_header_and_source_are_forgotten sanitizers_build_beside \
	warnings_are_errors_when_asked missing_packages_are_named_with_the_command
