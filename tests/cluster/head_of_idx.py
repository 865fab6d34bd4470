#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Copy the first images of a set of four IDX files.

usage: head_of_idx.py FROM TO COUNT
"""

import gzip
import pathlib
import struct
import sys

for path in pathlib.Path(sys.argv[1]).glob("*-ubyte.gz"):
    data = gzip.decompress(path.read_bytes())
    dimensions = data[3]
    sizes = list(struct.unpack_from(f">{dimensions}I", data, 4))
    each = 1
    for size in sizes[1:]:
        each *= size
    begin = 4 + 4 * dimensions
    sizes[0] = min(sizes[0], int(sys.argv[3]))
    head = data[:4] + struct.pack(f">{dimensions}I", *sizes) + data[begin:begin + sizes[0] * each]
    (pathlib.Path(sys.argv[2]) / path.stem).write_bytes(head)
