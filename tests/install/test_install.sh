#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What `make install` leaves is enough to build a program with pkg-config.
# shellcheck source=../support/script.sh
. "$(dirname "$0")/../support/script.sh"

# Outside PREFIX, so that nothing of the sources' tree can be found by chance.
install_to_root()
{
	root=$work/root
	make -s install BUILD="$BUILD" DESTDIR="$root" PREFIX=/opt/ramps >/dev/null
	libdir=$root/opt/ramps/lib
	pkg=(env PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config
		--define-variable=prefix="$root/opt/ramps")
	cat >"$work/user.c" <<-'END'
		#include <stdio.h>

		#include <ramps/ramps.h>

		int main(void)
		{
			int (*volatile start)(const struct ramps_server_options *,
					      struct ramps_server **) = ramps_server_start;

			puts(ramps_version());
			return start ? 0 : 1;
		}
	END
	version=$("${pkg[@]}" --modversion ramps)
}

program_builds_and_runs_with_the_shared_library()
{
	install_to_root
	read -ra flags < <("${pkg[@]}" --cflags --libs ramps)
	cd "$work"
	gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -o user user.c "${flags[@]}"
	[ "$(LD_LIBRARY_PATH=$libdir ./user)" = "$version" ]
	readelf -d user >needed
	expect "[libramps.so.0]" needed
	expect_no openblas needed
}

program_builds_and_runs_with_the_static_library()
{
	install_to_root
	rm "$libdir"/libramps.so*
	read -ra flags < <("${pkg[@]}" --static --cflags --libs ramps)
	cd "$work"
	gcc -Wall -Werror -o user user.c "${flags[@]}"
	[ "$(./user)" = "$version" ]
	readelf -d user >needed
	expect_no libramps needed
}

soname_is_the_major_version()
{
	install_to_root
	readelf -d "$libdir/libramps.so" >"$work/dynamic"
	expect "soname: [libramps.so.0]" "$work/dynamic"
	[ "$(readlink "$libdir/libramps.so")" = libramps.so.0 ]
	[ "$(readlink "$libdir/libramps.so.0")" = "libramps.so.$version" ]
}

only_public_names_are_exported()
{
	install_to_root
	nm -D --defined-only "$libdir/libramps.so" | awk '{ print $3 }' >"$work/names"
	expect "ramps_version@@RAMPS_0.1" "$work/names"
	fails grep -v -e '^ramps_.*@@RAMPS_' -e '^RAMPS_[0-9.]*$' "$work/names"
}

every_function_of_the_headers_is_exported()
{
	install_to_root
	nm -D --defined-only "$libdir/libramps.so" | sed 's/.* //; s/@.*//' | sort >"$work/names"
	# Declarations only: comments and fields are no lines that begin with a type.
	cat "$root"/opt/ramps/include/ramps/*.h | sed -n 's/^[a-z].*[ *]\(ramps_[a-z0-9_]*\)(.*/\1/p' |
		sort -u >"$work/declared"
	[ -s "$work/declared" ]
	[ -z "$(comm -13 "$work/names" "$work/declared" | tee "$work/missing")" ] ||
		fail "not in the library: $(cat "$work/missing")"
}

command_runs_and_knows_its_version()
{
	install_to_root
	"$root/opt/ramps/bin/ramps" --version >"$work/output"
	expect "$version" "$work/output"
}

# As a user would, in a folder of one's own, with the flags of pkg-config and no more than -lm for softmax.
example_build()
{
	cp "$top/examples/$1.c" "$work"
	gcc -std=gnu11 -O2 -Wall -Werror -o "$work/$1" "$work/$1.c" "${flags[@]}" -lm
}

examples_build_and_run_with_the_installed_library()
{
	local data=/usr/share/datasets/fashion-mnist

	install_to_root
	RAMPS_SHM_DIR=$(mktemp -d /dev/shm/ramps-test.XXXXXX)
	export RAMPS_SHM_DIR
	trap 'rm -rf "$RAMPS_SHM_DIR"' EXIT
	export LD_LIBRARY_PATH=$libdir
	read -ra flags < <("${pkg[@]}" --cflags --libs ramps)
	for example in first counters softmax; do
		example_build "$example"
	done
	[ "$("$work/first")" = "0.5 -1 2 0.25" ]
	"$root/opt/ramps/bin/ramps" run -n 3 --no-prefix -- "$work/counters" 100 >"$work/output"
	[ "$(awk '{ sum += $2 } END { print sum }' "$work/output")" -eq 30000 ] || fail "$(cat "$work/output")"
	[ -d "$data" ] || skip "no $data: install dataset-fashion-mnist"
	"$root/opt/ramps/bin/ramps" run -n 2 --no-prefix -- "$work/softmax" "$data" 1 >"$work/output"
	accuracy=$(sed -n 's/^epoch 1: test accuracy \([0-9]*\).*/\1/p' "$work/output")
	[ "$accuracy" -ge 75 ] || fail "$(cat "$work/output")"
}

uninstall_leaves_nothing()
{
	install_to_root
	[ "$(find "$root" ! -type d | wc -l)" -ge 6 ]
	make -s uninstall DESTDIR="$root" PREFIX=/opt/ramps
	[ -z "$(find "$root" ! -type d)" ] || fail "left: $(find "$root" ! -type d)"
	[ ! -e "$root/opt/ramps/include/ramps" ]
}

run_tests program_builds_and_runs_with_the_shared_library \
	program_builds_and_runs_with_the_static_library soname_is_the_major_version \
	only_public_names_are_exported every_function_of_the_headers_is_exported \
	command_runs_and_knows_its_version examples_build_and_run_with_the_installed_library \
	uninstall_leaves_nothing
