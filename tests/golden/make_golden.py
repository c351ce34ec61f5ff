#!/usr/bin/env python3
"""Computes the golden values that the C++ tests compare against, with PyTorch.

    /usr/bin/python3 tests/golden/make_golden.py [--out tests/golden]

Needs Debian's python3-torch (1.13). The files are committed; run this again only to change a case.
Everything is seeded, so the same PyTorch writes the same bytes.

Every value is computed in float64 from inputs that are exact in their stored type (float32,
bfloat16 or float16), then rounded once to float32: what is left between a golden value and a
kernel's result is that kernel's own error. The script also computes each case in float32 and
refuses to write a case where PyTorch's own float32 would miss the tests' threshold, so the
threshold stays fair.
"""

import argparse
import pathlib

import torch

import golden_llmc
import golden_models
import golden_ops
import golden_rope


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    out = parser.parse_args().out
    torch.set_num_threads(1)  # one order of summation
    (out / "ops").mkdir(parents=True, exist_ok=True)
    golden_ops.write_all(out / "ops")
    golden_rope.write_all(out / "ops")
    golden_models.write_all(out)
    golden_llmc.write_all(out)


if __name__ == "__main__":
    main()
