#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Put known faults into the library, one at a time, and see the simulator catch each.

usage: tests/sim/mutants.py BUILD [--seeds N] [--jobs N] [--list FILE] [--keep] [NAME...]

Of each mutant only its file is compiled anew; MUTANT_CC and MUTANT_LD say how, as
`make mutants` sets them. Exit status 1: one survives; 2: the list is wrong.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

MUTANT_RE = re.compile(
    r"^mutant (\S+)\nbreaks ([^\n]+)\nfile +(\S+)\n<<<<\n(.*?)\n====\n(.*?)>>>>\n",
    re.MULTILINE | re.DOTALL)
FAILED_RE = re.compile(r"^seed (\d+) failed: (.+)$", re.MULTILINE)


class Mutant:
    def __init__(self, match):
        self.name, self.breaks, self.file, self.old, self.new = match.groups()
        self.new = self.new.removesuffix("\n")

    def source(self):
        """The file with the fault in it, or None."""
        with open(self.file, encoding="utf-8") as f:
            text = f.read()
        found = text.count(self.old)
        if found != 1:
            print(f"{self.name}: its text stands {found} times in {self.file}, not once", file=sys.stderr)
            return None
        return text.replace(self.old, self.new)


def read_list(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    mutants = [Mutant(m) for m in MUTANT_RE.finditer(text)]
    if len(mutants) != len(re.findall(r"^mutant ", text, re.MULTILINE)):
        sys.exit(f"{path}: not every mutant is of the form that it has to have")
    return mutants


def compile_mutant(mutant, build, directory):
    source = os.path.join(directory, os.path.basename(mutant.file))
    program = os.path.join(directory, "prog_sim")
    tests = [os.path.join(build, "tests/sim", name) for name in sorted(os.listdir(f"{build}/tests/sim"))
             if name.endswith(".o") and not name.startswith(("test_", "prog_"))]
    support = [os.path.join(build, "tests/support", name)
               for name in sorted(os.listdir(f"{build}/tests/support")) if name.endswith(".o")]
    with open(source, "w", encoding="utf-8") as f:
        f.write(mutant.source())
    commands = [
        f"{os.environ['MUTANT_CC']} -w -I{os.path.dirname(mutant.file)} -c -o {source[:-2]}.o {source}",
        f"{os.environ['MUTANT_LD']} -o {program} {build}/tests/sim/prog_sim.o {source[:-2]}.o "
        f"{' '.join(tests + support)} {build}/libsim.a {build}/libramps.a {os.environ['MUTANT_LIBS']}",
    ]
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        if done.returncode:
            return None, done.stderr
    return program, ""


def run_mutant(mutant, args):
    """(caught, by what, after how many seeds, seconds)"""
    begun = time.monotonic()
    directory = os.path.join(args.build, "mutants", mutant.name)
    os.makedirs(directory, exist_ok=True)
    program, why = compile_mutant(mutant, args.build, directory)
    if not program:
        return False, "it does not compile: " + why.strip().split("\n")[0], 0, time.monotonic() - begun
    done = subprocess.run([program, "--seeds", str(args.seeds), "--failures", "1", "--no-shrink", "--quiet",
                           "--seconds", "10"], capture_output=True, text=True, check=False)
    if not args.keep:
        os.remove(program)
    failed = FAILED_RE.search(done.stdout)
    if not failed:
        return False, "SURVIVED", args.seeds, time.monotonic() - begun
    return True, failed[2], int(failed[1]), time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", default="tests/sim/mutants")
    parser.add_argument("--keep", action="store_true", help="leave the programs in BUILD/mutants")
    args = parser.parse_args()
    mutants = read_list(args.list)
    unknown = set(args.names) - {m.name for m in mutants}
    if unknown:
        sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
    chosen = [m for m in mutants if not args.names or m.name in args.names]
    if not all([m.source() for m in chosen]):
        return 2
    begun, survivors = time.monotonic(), 0
    print(f"{'mutant':<24} {'caught by':<22} {'seeds':>6} {'s':>6}  what it breaks")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for mutant, result in zip(chosen, pool.map(lambda m: run_mutant(m, args), chosen)):
            caught, what, seeds, seconds = result
            survivors += not caught
            print(f"{mutant.name:<24} {what:<22} {seeds:>6} {seconds:>6.1f}  {mutant.breaks}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants caught in {time.monotonic() - begun:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
