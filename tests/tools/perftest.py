#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Read what perftest 4.5 prints, by its heads and columns, as scripts do.

usage: perftest.py lat|lat-D|bw|bw-gbits FILE BYTES ITERATIONS    rows of these sizes (a comma between), of so many
                                                              iterations ("any" allowed)
       perftest.py samples FILE JSON                          what -U prints, against the JSON's figures
       perftest.py json FILE KEY...                           strict JSON whose results have these keys
       perftest.py svg FILE curve|distribution COUNT          a picture with so many points, or samples
"""

import json
import math
import re
import sys
import xml.etree.ElementTree as ET

# The heads as perftest prints them, and the columns of the figures that are compared.
HEADS = {
    "lat": " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
           "   99% percentile[usec]   99.9% percentile[usec] ",
    "lat-D": " #bytes        #iterations       t_avg[usec]    tps average",
    "bw": " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]",
    "bw-gbits": " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
}
COLUMNS = {"lat": 9, "lat-D": 4, "bw": 5, "bw-gbits": 5}
LINE = "-" * 87


def expect(condition, text):
    if not condition:
        sys.exit("perftest.py: " + text)


def rows_of(kind, lines):
    """The rows behind the last head, up to the closing line."""
    heads = [i for i, line in enumerate(lines) if line.startswith(HEADS[kind])]
    expect(heads, f"no head of {kind}")
    rows = []
    for line in lines[heads[-1] + 1:]:
        if line.startswith("---"):
            expect(line == LINE, f"not perftest's line: {line}")
            return rows
        fields = line.split()
        expect(line.startswith(" ") and len(fields) >= COLUMNS[kind], f"not a row: {line}")
        rows.append([float(field) for field in fields])
        expect(all(math.isfinite(value) for value in rows[-1]), f"not finite: {line}")
    expect(False, "no line at the end")


def check_rows(kind, path, sizes, iterations):
    with open(path, encoding="utf-8") as file:
        rows = rows_of(kind, file.read().splitlines())
    expect([int(row[0]) for row in rows] == [int(s) for s in sizes.split(",")], f"sizes of {rows}")
    for row in rows:
        expect(iterations == "any" or row[1] == int(iterations), f"{row[1]} iterations, not {iterations}")
        expect(row[1] > 0, "no iterations")
        if kind == "lat":
            least, most, typical, average, _, p99, p999 = row[2:9]
            expect(0 < least <= typical <= p99 <= p999 <= most, f"order of {row}")
            expect(least * 0.999 <= average <= most * 1.001, f"average of {row}")
        elif kind == "lat-D":
            expect(abs(row[2] * row[3] / 1e6 - 1) < 0.01, f"average and rate of {row}")
        else:
            unit = 1e9 / 8 if kind == "bw-gbits" else 1 << 20
            expect(row[3] > 0 and row[2] >= 0, f"bandwidth of {row}")
            # Two decimals of the bandwidth, six of the rate.
            rate = row[3] * unit / row[0] * 1e-6 if row[0] else row[4]
            expect(abs(rate - row[4]) <= 0.005 * unit / row[0] * 1e-6 + 1e-3 * row[4] + 1e-6, f"rate of {row}")


def refuse_constant(text):
    raise ValueError(text)


def no_twins(pairs):
    keys = [key for key, _ in pairs]
    expect(len(set(keys)) == len(keys), f"a key twice among {keys}")
    return dict(pairs)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_constant=refuse_constant, object_pairs_hook=no_twins)


def check_samples(path, json_path):
    """Statistics computed here from the samples printed must be those reported."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    rows = [re.fullmatch(r"(\d+), (\S+)", line) for line in lines]
    values = [float(m[2]) for m in rows if m]
    expect([int(m[1]) for m in rows if m] == list(range(1, len(values) + 1)), "numbers of the samples")
    got = load(json_path)["results"]
    expect(got["n_samples"] == len(values), f"{len(values)} samples, not {got['n_samples']}")
    ordered = sorted(values)
    mean = sum(values) / len(values)
    n = len(values)
    wanted = {
        "t_min": ordered[0],
        "t_max": ordered[-1],
        "t_typical": (ordered[(n - 1) // 2] + ordered[n // 2]) / 2,
        "t_stdev": math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)),
        "percentile_99": ordered[-(-n * 9900 // 10000) - 1],
        "percentile_99.9": ordered[-(-n * 9990 // 10000) - 1],
        "percentile_99.99": ordered[-(-n * 9999 // 10000) - 1],
    }
    for key, value in wanted.items():
        expect(abs(got[key] - value) <= 1e-4 * abs(value), f"{key} is {got[key]}, not {value}")
    # What is printed has six digits, the report all that a double has.
    expect(abs(got["tps_average"] * got["t_avg"] / 1e6 - 1) < 1e-12, "the report is not in full precision")
    print("sorted" if ordered == values else "unsorted")


def check_json(path, keys):
    all_of_it = load(path)
    expect(all_of_it["results"] == all_of_it["rows"][-1], "the results are not the last row")
    for row in all_of_it["rows"]:
        for key in keys:
            expect(isinstance(row[key], (int, float)), f"{key} is {row.get(key)}")
    for key in ("test", "Device", "Transport_type", "Connection_type", "Number_of_qps", "TX_depth"):
        expect(key in all_of_it["test_info"], f"no {key}")
    print(len(all_of_it["rows"]))


def check_svg(path, kind, count):
    svg = "{http://www.w3.org/2000/svg}"
    root = ET.parse(path).getroot()
    expect(root.tag == svg + "svg", "no SVG")
    width, height = float(root.get("width")), float(root.get("height"))
    texts = " ".join("".join(text.itertext()) for text in root.iter(svg + "text"))
    if kind == "curve":
        lines = root.findall(svg + "polyline")
        expect(lines, "no curve")
        for line in lines:
            points = [tuple(map(float, p.split(","))) for p in line.get("points").split()]
            expect(len(points) == count, f"{len(points)} points, not {count}")
            expect(all(0 <= x <= width and 0 <= y <= height for x, y in points), "points outside")
            expect(points == sorted(points), "sizes do not grow")
    else:
        bins = [r for r in root.iter(svg + "rect") if r.get("class") == "bin"]
        expect(bins, "no bins")
        expect(f"{count} samples" in texts, f"not {count} samples: {texts}")
        expect("99.99%" in texts and "median" in texts, texts)
        for r in bins:
            x, y, w, h = (float(r.get(key)) for key in ("x", "y", "width", "height"))
            expect(0 <= x <= x + w <= width and 0 <= y <= y + h <= height, "a bin outside")


def main():
    kind, path, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if kind == "samples":
        check_samples(path, rest[0])
    elif kind == "json":
        check_json(path, rest)
    elif kind == "svg":
        check_svg(path, rest[0], int(rest[1]))
    else:
        check_rows(kind, path, *rest)


main()
