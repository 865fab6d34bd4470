#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a model that `ramps train` has saved does, computed without it.

usage: model.py accuracy FILE DIR      of the test set in DIR (plain IDX files), as a fraction
       model.py same FILE FILE         whether all values agree to 1e-4, and are not all 0
       model.py descent FILE DIR RATE STEPS  whether softmax is what STEPS steps over the whole set give,
                                       at a rate that falls linearly from RATE to 0
"""

import array
import json
import math
import struct
import sys


def load(path):
    """Tensors by name: (shape, values)."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    body, end, tensors = data[8 + length:], 0, {}
    assert length % 8 == 0 and header.pop("__metadata__")["model"] in ("softmax", "mlp")
    for name, entry in header.items():
        begin, entry_end = entry["data_offsets"]
        assert begin == end and entry["dtype"] == "F32"
        end = entry_end
        values = array.array("f", body[begin:end])
        assert len(values) == math.prod(entry["shape"]), name
        tensors[name] = (entry["shape"], values)
    assert end == len(body)
    return tensors


def idx(directory, name):
    with open(f"{directory}/{name}-images-idx3-ubyte", "rb") as file:
        count, rows, columns = struct.unpack(">4x3I", file.read(16))
        pixels = file.read()
    with open(f"{directory}/{name}-labels-idx1-ubyte", "rb") as file:
        labels = file.read()[8:]
    size = rows * columns
    return [[p / 255 for p in pixels[i * size:(i + 1) * size]] for i in range(count)], labels


def layer(x, weight, bias):
    columns = weight[0][1]
    out = list(bias[1])
    for i, value in enumerate(x):
        if value:
            for j in range(columns):
                out[j] += value * weight[1][i * columns + j]
    return out


def scores(tensors, x):
    if "weight" in tensors:
        return layer(x, tensors["weight"], tensors["bias"])
    hidden = [max(0, h) for h in layer(x, tensors["hidden.weight"], tensors["hidden.bias"])]
    return layer(hidden, tensors["output.weight"], tensors["output.bias"])


def accuracy(path, directory):
    tensors = load(path)
    images, labels = idx(directory, "t10k")
    right = 0
    for x, label in zip(images, labels):
        s = scores(tensors, x)
        right += s.index(max(s)) == label
    print(f"{right / len(images):.4f}")


def same(path, other):
    a, b = load(path), load(other)
    assert a.keys() == b.keys()
    worst = max(abs(x - y) for name in a for x, y in zip(a[name][1], b[name][1]))
    assert worst < 1e-4, f"values differ by {worst}"
    assert any(a[name][1][0] for name in a)


def descent(path, directory, rate, steps):
    images, labels = idx(directory, "train")
    classes = max(labels) + 1
    weight = ([len(images[0]), classes], [0.0] * (len(images[0]) * classes))
    bias = ([classes], [0.0] * classes)
    for step in range(int(steps)):
        factor = float(rate) * (1 - step / int(steps)) / len(images)
        gradient, bias_gradient = [0.0] * len(weight[1]), [0.0] * classes
        for x, label in zip(images, labels):
            s = layer(x, weight, bias)
            powers = [math.exp(v - max(s)) for v in s]
            delta = [p / sum(powers) - (j == label) for j, p in enumerate(powers)]
            for j, d in enumerate(delta):
                bias_gradient[j] += d
                for i, value in enumerate(x):
                    gradient[i * classes + j] += value * d
        weight = (weight[0], [w - factor * g for w, g in zip(weight[1], gradient)])
        bias = (bias[0], [w - factor * g for w, g in zip(bias[1], bias_gradient)])
    saved = load(path)
    for name, values in (("weight", weight[1]), ("bias", bias[1])):
        worst = max(abs(a - b) for a, b in zip(saved[name][1], values))
        assert worst < 1e-4, f"{name}: differs by {worst}"
    assert max(map(abs, weight[1])) > 0.01


{"accuracy": accuracy, "same": same, "descent": descent}[sys.argv[1]](*sys.argv[2:])
