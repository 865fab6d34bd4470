#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compare what workers under faults were told with what the servers hold.

usage: check_faults.py SHOWN NOTES...

SHOWN is what `prog_faults show` printed, NOTES the output of each worker; a name
followed by "=dies" is of a worker that may end in the middle. Prints a line of
sums, and a line for each thing that is wrong.
"""

import re
import sys

CHUNKS = 3


class Sums:
    def __init__(self):
        self.acknowledged = self.unknown = 0    # additions to direct words
        self.pushed = self.under_way = 0        # pushes to slots
        self.errors = {}
        self.wrong = []


def read_notes(path, dies, sums):
    direct = slots = None
    done = False
    with open(path, encoding="utf-8", errors="replace") as notes:
        lines = notes.read().splitlines()
    for line in lines:
        words = line.split()
        if line.startswith("direct begin"):
            direct = int(words[2])
        elif line.startswith("direct end") and direct is not None and len(words) == 3:
            unknown = int(words[2])
            sums.acknowledged += direct - unknown
            sums.unknown += unknown
            direct = None
        elif line.startswith("slots begin"):
            slots = True
        elif line.startswith("slots end"):
            sums.pushed += 1
            slots = None
        elif line.startswith("error"):
            sums.errors[words[1]] = sums.errors.get(words[1], 0) + 1
            if not re.search(r"verbs://|rank|connection|device|lands?ed", line):
                sums.wrong.append(f"{path}: an error that does not say who and why: {line}")
        elif line.startswith("slow"):
            sums.wrong.append(f"{path}: {line}")
        elif line.startswith("fatal") and not dies:
            sums.wrong.append(f"{path}: {line}")
        elif line == "done":
            done = True
    if direct is not None:
        sums.unknown += direct
    if slots is not None:
        sums.under_way += 1
    if not done and not dies:
        sums.wrong.append(f"{path}: ended before it was done: {lines[-1:]}")


def check_shown(path, sums):
    chunks = 0
    with open(path, encoding="utf-8", errors="replace") as shown:
        for line in shown:
            words = line.split()
            if words[0] == "direct":
                total = int(words[1])
                if not sums.acknowledged <= total <= sums.acknowledged + sums.unknown:
                    sums.wrong.append(f"direct words hold {total}; {sums.acknowledged} were acknowledged, "
                                      f"{sums.unknown} more are of unknown fate")
            elif words[0] == "chunk":
                chunks += 1
                least, most = int(words[2]), int(words[3])
                if least != most:
                    sums.wrong.append(f"chunk {words[1]} holds {least} to {most}: a push was torn")
                if not sums.pushed <= least <= sums.pushed + sums.under_way:
                    sums.wrong.append(f"chunk {words[1]} holds {least}; {sums.pushed} pushes were done, "
                                      f"{sums.under_way} under way when their worker ended")
    if chunks != CHUNKS:
        sums.wrong.append(f"{path}: {chunks} chunks shown")


def main():
    sums = Sums()
    for name in sys.argv[2:]:
        path, _, dies = name.partition("=")
        read_notes(path, dies == "dies", sums)
    check_shown(sys.argv[1], sums)
    errors = ", ".join(f"{count} of {code}" for code, count in sorted(sums.errors.items())) or "none"
    print(f"direct {sums.acknowledged} + {sums.unknown} unknown, slots {sums.pushed} + {sums.under_way}, "
          f"errors: {errors}")
    for wrong in sums.wrong:
        print(f"wrong: {wrong}")
    return 1 if sums.wrong or not sums.pushed else 0


if __name__ == "__main__":
    sys.exit(main())
