#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The project's own lint scripts, on small trees with one thing wrong in each.
# shellcheck source=../support/script.sh
. "$(dirname "$0")/../support/script.sh"

licence='/* SPDX-License-Identifier: BSD-2-Clause */'

# source_file PATH [LINE]...: a C file with its licence line and these lines.
source_file()
{
	mkdir -p "$work/$(dirname "$1")"
	{
		echo "$licence"
		printf '%s\n' "${@:2}"
	} >"$work/$1"
}

# lint PART: through make, as `make lint` does it.
lint()
{
	mkdir -p "$work/tools" "$work/src"
	cp Makefile "$work"
	cp -r tools/lint "$work/tools"
	make -s -C "$work" "lint-$1" >"$work/output" 2>&1
}

# forbidden PATH HEADER: this include is found, with its line.
forbidden()
{
	source_file "$1" "#include $2"
	fails lint includes
	expect "$1:2: $(tr -d '<>"' <<<"$2")" "$work/output"
	rm "$work/$1"
}

# allowed PATH HEADER
allowed()
{
	source_file "$1" "#include $2"
	lint includes || fail "$1: $2: $(cat "$work/output")"
}

downward_includes_are_allowed()
{
	allowed src/base/clock.c '"base/clock.h"'
	allowed src/fabric/fabric.c '"base/error.h"'
	allowed src/shm/shm.c '"fabric/fabric.h"'
	allowed src/core/arena.c '"fabric/fabric.h"'
	allowed src/core/arena.h '<ramps/ramps.h>'
	allowed src/ps/control.c '"sync/barrier.h"'
	allowed src/worker/pull.c '"core/layout.h"'
	allowed src/api/server.c '"shm/shm.h"'
	allowed src/verbs/verbs.c '<infiniband/verbs.h>'
	allowed tools/stat.c '"core/layout.h"'
	allowed examples/sgd.c '<ramps/ramps.h>'
	allowed include/ramps/ramps.h '<stdint.h>'
	allowed tests/unit/test_x.c '"worker/worker.h"'
	source_file tests/support/arena.h
	allowed tests/unit/test_y.c '"support/arena.h"'
	source_file tools/tool.h
	allowed tools/main.c '"tool.h"'
}

upward_includes_are_found()
{
	forbidden src/base/clock.c '"core/layout.h"'
	forbidden src/fabric/fabric.c '"shm/shm.h"'
	forbidden src/core/arena.c '"sync/sync.h"'
	forbidden src/sync/barrier.c '"ps/ps.h"'
	forbidden src/worker/pull.h '"api/api.h"'
	forbidden tools/stat.c '"worker/worker.h"'
}

nobody_knows_a_fabric_by_name()
{
	local folder fabric

	for folder in core sync ps worker; do
		for fabric in verbs shm sim; do
			forbidden "src/$folder/x.c" "\"$fabric/$fabric.h\""
		done
		forbidden "src/$folder/x.c" '<infiniband/verbs.h>'
	done
}

fabrics_do_not_know_each_other()
{
	forbidden src/shm/x.c '"verbs/verbs.h"'
	forbidden src/verbs/x.c '"sim/sim.h"'
	forbidden src/sim/x.c '"shm/shm.h"'
}

server_and_worker_do_not_know_each_other()
{
	forbidden src/ps/x.c '"worker/worker.h"'
	forbidden src/worker/x.c '"ps/ps.h"'
}

public_headers_and_examples_stay_public()
{
	forbidden include/ramps/ramps.h '"base/error.h"'
	forbidden include/ramps/ramps.h '<rdma/rdma_cma.h>'
	forbidden examples/sgd.c '"core/layout.h"'
}

detours_are_found()
{
	forbidden src/core/x.c '"../shm/shm.h"'
	forbidden src/base/x.c '"ramps/ramps.h"'
	forbidden src/base/x.c '"elsewhere.h"'
	forbidden tests/unit/test_x.c '"support/elsewhere.h"'
	source_file src/extra/x.c
	fails lint includes
	expect "src/extra is not in the list of layers" "$work/output"
}

oversized_files_are_found()
{
	mapfile -t lines < <(yes 'int x;' | head -n 500)
	source_file src/base/x.c "${lines[@]:1}"
	lint sizes
	source_file src/base/x.c "${lines[@]}"
	source_file tests/unit/test_x.c "${lines[@]}"
	fails lint sizes
	expect "src/base/x.c: 501 lines, at most 500" "$work/output"
	expect_no "test_x.c" "$work/output"
}

oversized_functions_are_found()
{
	mapfile -t lines < <(yes '	f();' | head -n 68)
	source_file src/base/x.c 'static int fits(int a)' '{' "${lines[@]}" '}'
	lint sizes
	source_file src/base/x.c 'static int long_one(int a)' '{' "${lines[@]}" '	f();' '}'
	fails lint sizes
	expect "long_one: 71 lines, at most 70" "$work/output"
}

too_many_parameters_are_found()
{
	source_file src/base/x.c 'int six(int a, int b, int (*c)(int, int), int d,' '	int e, int f)' '{' '}'
	lint sizes
	source_file src/base/x.c 'int seven(int a, int b, int (*c)(int, int), int d,' \
		'	int e, int f, int g)' '{' '}'
	fails lint sizes
	expect "seven: 7 parameters, at most 6" "$work/output"
}

missing_licence_is_found()
{
	mkdir -p "$work/src/base" "$work/tools"
	echo 'int x;' >"$work/src/base/x.c"
	printf '#!/bin/bash\necho\n' >"$work/tools/thing"
	fails lint sizes
	expect "src/base/x.c:1: first line must be $licence" "$work/output"
	expect "tools/thing:1: no line # SPDX" "$work/output"
}

run_tests downward_includes_are_allowed upward_includes_are_found \
	nobody_knows_a_fabric_by_name fabrics_do_not_know_each_other \
	server_and_worker_do_not_know_each_other public_headers_and_examples_stay_public \
	detours_are_found oversized_files_are_found oversized_functions_are_found \
	too_many_parameters_are_found missing_licence_is_found
