#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tools/deps, with stand-ins for the package tools that keep a list of what is
# installed and a log of what was called.
# shellcheck source=../support/script.sh
. "$(dirname "$0")/../support/script.sh"

build_packages="gcc make pkg-config libc6-dev libopenblas-serial-dev libjansson-dev zlib1g-dev libibverbs-dev librdmacm-dev libsodium-dev"

stand_in()
{
	printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
	chmod +x "$work/bin/$1"
}

# A machine where nothing is installed. Only coreutils stay on the PATH.
fresh_machine()
{
	mkdir -p "$work/bin"
	: >"$work/installed"
	: >"$work/log"
	stand_in dpkg-query '
package=${!#}
grep -qxF -e "$package" "$WORK/installed" || exit 1
echo "install ok installed"'
	stand_in apt-get '
echo "apt-get $*" >>"$WORK/log"
echo "frontend=${DEBIAN_FRONTEND-}" >>"$WORK/log"
if [ -s "$WORK/refuse" ]; then
	sed -i 1d "$WORK/refuse"
	exit 100
fi
found=
for word; do
	[ -z "$found" ] || case $word in -*) ;; *) echo "$word" >>"$WORK/installed" ;; esac
	[ "$word" != install ] || found=yes
done'
	stand_in id 'echo 0'
	local tool
	for tool in bash env dirname cat sleep sed grep; do
		ln -s "$(command -v "$tool")" "$work/bin/"
	done
}

deps()
{
	env -i PATH="$work/bin" WORK="$work" DEPS_RETRY_S=0 "$top/tools/deps" "$@" </dev/null
}

sorted()
{
	printf '%s\n' "$@" | sort
}

missing_packages_are_installed_and_named()
{
	fresh_machine
	deps build >"$work/output"
	# shellcheck disable=SC2086
	diff <(sorted $build_packages) <(sort "$work/installed")
	expect "installing for build: $build_packages" "$work/output"
	expect "frontend=noninteractive" "$work/log"
	expect "--no-install-recommends" "$work/log"
	expect "DPkg::Lock::Timeout=" "$work/log"
	[ "$(grep -c '^apt-get' "$work/log")" = 2 ]
	grep '^apt-get' "$work/log" | head -n 1 | grep -q ' update$'
}

second_run_installs_nothing()
{
	fresh_machine
	deps build check lint demo bench >/dev/null
	: >"$work/log"
	[ -z "$(deps build check lint demo bench)" ]
	[ ! -s "$work/log" ]
}

only_what_is_missing_is_installed()
{
	fresh_machine
	# shellcheck disable=SC2086
	sorted $build_packages | grep -vx make >"$work/installed"
	deps build >"$work/output"
	expect "installing for build: make" "$work/output"
	grep -q ' install .* make$' "$work/log"
	expect_no gcc "$work/log"
}

each_purpose_installs_only_its_own()
{
	local purpose

	for purpose in build check lint demo; do
		fresh_machine
		deps "$purpose" >/dev/null
		sort "$work/installed" >"$work/of_$purpose"
		[ -s "$work/of_$purpose" ]
		rm -r "${work:?}/bin"
	done
	fails grep -x libjansson-dev "$work/of_check" "$work/of_lint" "$work/of_demo"
	fails grep -x clang-tidy "$work/of_check" "$work/of_build" "$work/of_demo"
	fails grep -x libcmocka-dev "$work/of_build" "$work/of_demo"
	grep -qx libcmocka-dev "$work/of_check"
	grep -qx shellcheck "$work/of_lint"
}

softroce_list_belongs_to_check()
{
	fresh_machine
	mkdir "$work/tools"
	cp tools/deps "$work/tools/"
	printf '# comment\n\nqemu-system-x86  # why\niproute2\n' >"$work/tools/softroce.packages"
	env -i PATH="$work/bin" WORK="$work" "$work/tools/deps" check >/dev/null
	grep -qx qemu-system-x86 "$work/installed"
	grep -qx iproute2 "$work/installed"
	fails grep -e '#' -e why -e comment "$work/installed"
}

without_rights_says_the_one_command()
{
	fresh_machine
	stand_in id 'echo 1000'
	fails deps build 2>"$work/output"
	expect "sudo apt-get install -y --no-install-recommends $build_packages" "$work/output"
	[ ! -s "$work/log" ]
	# sudo that asks for a password nobody can type is no right either
	stand_in sudo 'exit 1'
	fails deps build 2>"$work/output"
	expect "sudo apt-get install -y" "$work/output"
}

sudo_is_used_where_it_works()
{
	fresh_machine
	stand_in id 'echo 1000'
	stand_in sudo '[ "$1" != -n ] || shift; [ "$1" = true ] && exit 0; echo sudo >>"$WORK/log"; exec "$@"'
	deps build >/dev/null
	# shellcheck disable=SC2086
	diff <(sorted $build_packages) <(sort "$work/installed")
	[ "$(grep -cx sudo "$work/log")" = 2 ]
	expect "frontend=noninteractive" "$work/log"
}

held_lists_lock_is_waited_for()
{
	fresh_machine
	printf '1\n2\n' >"$work/refuse"
	deps build >/dev/null
	# shellcheck disable=SC2086
	diff <(sorted $build_packages) <(sort "$work/installed")
}

failed_install_fails()
{
	fresh_machine
	stand_in apt-get '[ "${!#}" = update ]'
	fails deps build 2>"$work/output"
	expect "could not install" "$work/output"
}

unknown_purpose_is_refused()
{
	fresh_machine
	fails deps nonsense 2>"$work/output"
	expect "usage:" "$work/output"
	fails deps 2>"$work/output"
	[ ! -s "$work/log" ]
}

run_tests missing_packages_are_installed_and_named second_run_installs_nothing \
	only_what_is_missing_is_installed each_purpose_installs_only_its_own \
	softroce_list_belongs_to_check without_rights_says_the_one_command \
	sudo_is_used_where_it_works held_lists_lock_is_waited_for \
	failed_install_fails unknown_purpose_is_refused
