"""Prints the codecs of the record batches in the given segments, sorted, one line."""

import struct
import sys

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
# base offset, length after it, leader epoch, magic, checksum, attributes
HEADER = struct.Struct(">qiibIh")


def codecs(path):
    with open(path, "rb") as segment:
        data = segment.read()
    at = 0
    while at + HEADER.size <= len(data):
        _, length, _, magic, _, attributes = HEADER.unpack_from(data, at)
        if length <= 0:
            return  # preallocated zeros
        assert magic == 2, f"{path}: magic {magic} at {at}"
        yield CODECS[attributes & 7]
        at += 12 + length


print(" ".join(sorted({codec for path in sys.argv[1:] for codec in codecs(path)})))
