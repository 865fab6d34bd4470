#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Make a small set of images as four IDX files, the same every time.

usage: make_idx.py DIR [--train N] [--test N] [--side N] [--classes N] [--noise X] [--seed N] [--gzip]

Each class is a random picture, each sample its class's picture and noise: a linear model tells them apart.
"""

import argparse
import gzip
import os
import random
import struct


def samples(rng, pictures, count, noise):
    labels = bytes(rng.randrange(len(pictures)) for _ in range(count))
    pixels = bytearray()
    for label in labels:
        for value in pictures[label]:
            pixels.append(min(255, max(0, round(value + rng.gauss(0, noise)))))
    return bytes(pixels), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--train", type=int, default=300)
    parser.add_argument("--test", type=int, default=100)
    parser.add_argument("--side", type=int, default=8)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--noise", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gzip", action="store_true")
    args = parser.parse_args()

    rng = random.Random(args.seed)
    pictures = [[rng.randrange(256) for _ in range(args.side ** 2)] for _ in range(args.classes)]
    os.makedirs(args.directory, exist_ok=True)
    for name, count in (("train", args.train), ("t10k", args.test)):
        pixels, labels = samples(rng, pictures, count, args.noise)
        images = struct.pack(">4I", 0x803, count, args.side, args.side) + pixels
        for kind, body in (("images-idx3", images), ("labels-idx1", struct.pack(">2I", 0x801, count) + labels)):
            path = os.path.join(args.directory, f"{name}-{kind}-ubyte")
            opener, path = (gzip.open, path + ".gz") if args.gzip else (open, path)
            with opener(path, "wb") as file:
                file.write(body)


main()
