# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the tests of `ramps train` share.
# shellcheck source=launch.sh
. "$top/tests/launch/launch.sh"

# data OPTION...: a small set of images in $work/data.
data()
{
	python3 "$top/tests/launch/make_idx.py" "$work/data" "$@"
}

model()
{
	python3 "$top/tests/launch/model.py" "$@"
}

# train WORKERS OPTION...: trains on it; 0 workers: alone, without ramps run.
train()
{
	local workers=$1

	shift
	if [ "$workers" -eq 0 ]; then
		"$ramps" train --data "$work/data" "$@" >"$work/out"
	else
		"$ramps" run -n "$workers" -s 2 --no-prefix -- "$ramps" train --data "$work/data" "$@" >"$work/out"
	fi
}

# The accuracy of the last epoch, as the log has it.
logged_accuracy()
{
	tail -n 1 "$1" | cut -d , -f 6
}
