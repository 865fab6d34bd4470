#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The table, JSON and picture that bench/report makes of figures.
. "$(dirname "$0")/../support/script.sh"

# figures ENTRY...: a file of comparisons.
figures()
{
	local IFS=,

	printf '{"quick": false, "machine": ["a machine"], "comparisons": [%s]}' "$*" >"$work/figures"
}

# comparison ID COMPARE GOAL OURS THEIRS
comparison()
{
	printf '{"id": "%s", "title": "%s title", "peer": "a <peer>", "show": "time", "compare": "%s",
		"goal": %s, "ours": [%s], "theirs": [%s], "probe": [100, 130]}' "$1" "$1" "$2" "$3" "$4" "$5"
}

report()
{
	bench/report --json "$work/json" --svg "$work/svg" "$work/figures" >"$work/table"
}

# value EXPRESSION: of the JSON, whose comparisons are c by id.
value()
{
	python3 -c 'import json, sys
c = {x["id"]: x for x in json.load(open(sys.argv[1]))["comparisons"]}
print(eval(sys.argv[2]))' "$work/json" "$1"
}

is()
{
	local is

	is=$(value "$1")
	[ "$is" = "$2" ] || fail "$1 is $is, not $2"
}

ratios_are_of_medians_and_spreads_of_pairs()
{
	figures "$(comparison t time 0.5 '10, 34, 20' '50, 40, 100')"
	report
	is 'c["t"]["ours_ns"]' 20
	is 'c["t"]["theirs_ns"]' 50
	is 'c["t"]["ratio"]' 0.4
	is 'c["t"]["least"], c["t"]["greatest"]' '(0.2, 0.85)'
	is 'c["t"]["pairs"]' 3
	is 'c["t"]["verdict"]' met
	grep -qE '^t title \(time\) +a <peer> +20.0 ns +50.0 ns +0.400 +0.200 .. 0.850 +<= 0.5 +met$' \
		"$work/table" || fail "$(cat "$work/table")"
}

a_speed_is_theirs_over_ours_and_has_to_reach_its_goal()
{
	figures "$(comparison fast speed 0.9 '10, 10' '9, 9')" "$(comparison slow speed 0.91 '10' '9')"
	report
	is 'c["fast"]["ratio"], c["fast"]["verdict"]' "(0.9, 'met')"
	is 'c["slow"]["ratio"], c["slow"]["verdict"]' "(0.9, 'missed')"
	grep -qE '^slow title \(speed\).*>= 0.91 +MISSED$' "$work/table" || fail "$(cat "$work/table")"
	expect '1 of 2 goals met' "$work/table"
	expect "round trip meanwhile: 100 .. 130 ns" "$work/table"
}

a_goal_just_reached_is_met_and_just_missed_is_marked()
{
	figures "$(comparison at time 0.5 5 10)" "$(comparison above time 0.5 5.001 10)" \
		"$(comparison free time null 5 10)"
	report
	is '[c[i]["verdict"] for i in ("at", "above", "free")]' "['met', 'missed', 'none']"
}

figures_have_units_that_suit_them()
{
	figures "$(comparison ns time null 1.234 12.34)" "$(comparison us time null 12345 999.4)" \
		"$(comparison ms time null 1234567 123456789)" \
		'{"id": "gb", "title": "gb", "peer": "p", "show": "GB/s", "bytes": 4096, "compare": "speed",
		  "goal": null, "ours": [64], "theirs": [32]}' \
		'{"id": "m", "title": "m", "peer": "p", "show": "M/s", "compare": "speed", "goal": null,
		  "ours": [10], "theirs": [20]}' \
		'{"id": "i", "title": "i", "peer": "p", "show": "images/s", "compare": "speed", "goal": null,
		  "ours": [10000], "theirs": [20000]}'
	report
	for line in 'ns title.* 1.23 ns +12.3 ns' 'us title.* 12.3 us +999 ns' 'ms title.* 1.23 ms +123 ms' \
		'gb .* 64.0 GB/s +128 GB/s' 'm .* 100 M/s +50.0 M/s' \
		'i .* 100,000 images/s +50,000 images/s'; do
		grep -qE "^$line" "$work/table" || fail "no '$line' in $(cat "$work/table")"
	done
}

what_could_not_be_measured_is_said_and_fails()
{
	figures "$(comparison good time null 1 2)" \
		'{"id": "bad", "title": "bad", "peer": "p", "show": "time", "compare": "time", "goal": 1,
		  "ours": [], "theirs": [], "probe": [], "error": "no mpirun"}'
	fails report
	expect 'FAILED: no mpirun' "$work/table"
	expect '0 of 1 goals met' "$work/table"
	is 'c["bad"]["verdict"]' failed
	expect 'id="good"' "$work/svg"
	expect_no 'id="bad"' "$work/svg"
}

figures_without_pairs_are_refused()
{
	figures "$(comparison t time 0.5 '10, 30' '50')"
	fails report
	figures "$(comparison t time 0.5 '0' '50')"
	fails report
}

# Reads back where dots and goals are: the axis is logarithmic, and the left side is ours.
the_picture_shows_each_ratio_at_its_place()
{
	figures "$(comparison half time 0.5 5 10)" "$(comparison double speed 0.9 2 1)"
	report
	rsvg-convert "$work/svg" -o "$work/png"
	[ -s "$work/png" ]
	python3 - "$work/svg" <<'PY'
import math, re, sys
import xml.etree.ElementTree as xml

svg = xml.parse(sys.argv[1]).getroot()
space = "{http://www.w3.org/2000/svg}"
ticks = {}
for text in svg.iter(space + "text"):
    if text.get("text-anchor") == "middle":
        ticks[float(text.text)] = float(text.get("x"))
low, high = min(ticks), max(ticks)

def value(x):
    part = (x - ticks[low]) / (ticks[high] - ticks[low])
    return low * (high / low) ** part

dots = {c.get("id"): value(float(c.get("cx"))) for c in svg.iter(space + "circle") if c.get("id")}
assert math.isclose(dots["half"], 0.5, rel_tol=0.01), dots
assert math.isclose(dots["double"], 2.0, rel_tol=0.01), dots
goals = sorted(value(float(l.get("x1"))) for l in svg.iter(space + "line") if l.get("class") == "goal")
assert math.isclose(goals[0], 0.5, rel_tol=0.01) and math.isclose(goals[1], 1 / 0.9, rel_tol=0.01), goals
PY
}

run_tests ratios_are_of_medians_and_spreads_of_pairs \
	a_speed_is_theirs_over_ours_and_has_to_reach_its_goal \
	a_goal_just_reached_is_met_and_just_missed_is_marked figures_have_units_that_suit_them \
	what_could_not_be_measured_is_said_and_fails figures_without_pairs_are_refused \
	the_picture_shows_each_ratio_at_its_place
