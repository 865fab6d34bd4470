#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Check a picture of `ramps train` against its log, and that it is a picture.

usage: check_plot.py FILE.svg FILE.csv [FILE.png]

Every series of the SVG must be the log's column to the precision of its coordinates, its texts name what the
axes show, and the PNG rendered from it must have each series' colour on a mostly white ground.
"""

import csv
import re
import struct
import sys
import xml.etree.ElementTree as ET
import zlib

SVG = "{http://www.w3.org/2000/svg}"
COLUMNS = {"loss": ("loss", 1), "epoch-loss": ("epoch_loss", 1), "accuracy": ("test_accuracy", 100)}


def expect(condition, text):
    if not condition:
        sys.exit("check_plot: " + text)


def check_series(line, rows):
    name, scale = COLUMNS[line.get("id")]
    expected = [(float(r["seconds"]), float(r[name]) * scale) for r in rows if r[name]]
    points = [tuple(map(float, p.split(","))) for p in line.get("points").split()]
    expect(len(points) == len(expected), f"{name}: {len(points)} points, {len(expected)} in the log")
    left, top, wide, tall = map(float, line.get("data-box").split())
    x0, x1, y0, y1 = (float(line.get("data-" + key)) for key in ("x0", "x1", "y0", "y1"))
    for (px, py), (seconds, value) in zip(points, expected):
        x = x0 + (px - left) / wide * (x1 - x0)
        y = y0 + (top + tall - py) / tall * (y1 - y0)
        # Two decimals of a pixel, and six of the value in the log.
        expect(abs(x - seconds) <= 0.006 * (x1 - x0) / wide + 1e-6, f"{name}: at {x} s, not {seconds}")
        expect(abs(y - value) <= 0.006 * (y1 - y0) / tall + 1e-4, f"{name}: {y}, not {value}")
        expect(left <= px <= left + wide and top <= py <= top + tall, f"{name}: {px},{py} is outside")
    return re.search("#[0-9a-f]{6}", line.get("stroke"))[0]


def read_png(path):
    """Rows of (r, g, b) of an 8-bit RGB or RGBA image."""
    with open(path, "rb") as file:
        data = file.read()
    expect(data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG")
    at, body, head = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            head = struct.unpack(">2I5B", data[at + 8:at + 21])
        elif kind == b"IDAT":
            body += data[at + 8:at + 8 + length]
        at += 12 + length
    width, height, depth, colour = head[:4]
    expect(depth == 8 and colour in (2, 6) and head[6] == 0, f"PNG of another kind: {head}")
    n = 3 if colour == 2 else 4
    raw, rows, before = zlib.decompress(body), [], bytes(width * n)
    for y in range(height):
        kind, line = raw[y * (width * n + 1)], bytearray(raw[y * (width * n + 1) + 1:(y + 1) * (width * n + 1)])
        for i, up in enumerate(before):
            a = line[i - n] if i >= n else 0
            c = before[i - n] if i >= n else 0
            if kind == 4:
                p = a + up - c
                guess = min(((abs(p - a), 0, a), (abs(p - up), 1, up), (abs(p - c), 2, c)))[2]
            else:
                guess = (0, a, up, (a + up) // 2)[kind]
            line[i] = (line[i] + guess) & 255
        before = bytes(line)
        rows.append([tuple(before[i:i + 3]) for i in range(0, width * n, n)])
    return rows


def check_png(path, colours):
    pixels = [p for row in read_png(path) for p in row]
    white = sum(p == (255, 255, 255) for p in pixels) / len(pixels)
    expect(0.6 < white < 0.99, f"{white:.2f} of the picture is white")
    for colour in colours:
        rgb = tuple(bytes.fromhex(colour[1:]))
        expect(min(rgb) <= 180, f"{colour} is hard to see on white")
        found = sum(max(abs(a - b) for a, b in zip(p, rgb)) < 40 for p in pixels)
        expect(found >= 30, f"{colour}: {found} pixels")


def main():
    root = ET.parse(sys.argv[1]).getroot()
    with open(sys.argv[2], encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    expect(rows, "the log is empty")
    lines = root.findall(f"{SVG}polyline")
    expect(sorted(line.get("id") for line in lines) == sorted(COLUMNS), "other series")
    colours = [check_series(line, rows) for line in lines]
    expect(len(set(colours)) == len(colours), "two series of one colour")
    texts = ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    for wanted in ("Training loss (cross-entropy, nats)", "Test accuracy", "time (s)"):
        expect(wanted in texts, f"no text '{wanted}'")
    expect(sum(t.endswith(" %") for t in texts) >= 2, "no per cent at the axis")
    if len(sys.argv) > 3:
        check_png(sys.argv[3], colours)


main()
