#!/usr/bin/env python3
"""Writes a GGUF file of Qwen3's architecture with random Q8_0 weights, any shape and context, and the tokenizer and chat template of
another file: a model that costs what a real one of its shape does, for servers of any make. What it says means nothing.

Usage: random_gguf.py OUT [--shape tiny|small|qwen3-0.6b] [--context N] [--tokenizer FILE]
"""

import argparse
import os
import random
import struct
import sys

# layers, hidden, heads, KV heads, head size, FFN, vocabulary
SHAPES = {"tiny": (8, 256, 8, 2, 64, 512, 4096), "small": (12, 768, 12, 4, 64, 2304, 4096),
          "qwen3-0.6b": (28, 1024, 16, 8, 128, 3072, 151936)}
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
NORMAL_TOKEN = 1
BLOCK, BLOCK_BYTES, Q8_0 = 32, 34, 8
ALIGNMENT = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


class Header:
    """The metadata of a file, its values as raw bytes: name -> (type, bytes)."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read(64 << 20)
        _, _, _, count = struct.unpack_from("<4sIQQ", self.data)
        self.at, self.values = 24, {}
        for _ in range(count):
            name = self.take_text().decode()
            kind, = struct.unpack("<I", self.take(4))
            begin = self.at
            self.skip(kind)
            self.values[name] = (kind, self.data[begin:self.at])

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def take_text(self):
        return self.take(struct.unpack("<Q", self.take(8))[0])

    def skip(self, kind):
        if kind == STRING:
            self.take_text()
        elif kind == ARRAY:
            element, count = struct.unpack("<IQ", self.take(12))
            for _ in range(count):
                self.skip(element)
        else:
            self.take(SIZES[kind])

    def tokenizer(self, vocabulary):
        """What begins with tokenizer., with as many further tokens as make `vocabulary`."""
        values = {name: value for name, value in self.values.items() if name.startswith("tokenizer.")}
        more = vocabulary - struct.unpack_from("<IQ", values["tokenizer.ggml.tokens"][1])[1]
        added = {"tokenizer.ggml.tokens": b"".join(text(f"Ġw{i}") for i in range(more)),
                 "tokenizer.ggml.token_type": struct.pack("<i", NORMAL_TOKEN) * more}
        for name, data in added.items():
            element, count = struct.unpack_from("<IQ", values[name][1])
            values[name] = (ARRAY, struct.pack("<IQ", element, count + more) + values[name][1][12:] + data)
        return values


def metadata(shape, context, tokenizer):
    layers, hidden, heads, kv_heads, head, ffn, vocabulary = shape
    numbers = {"block_count": layers, "context_length": context, "embedding_length": hidden, "feed_forward_length": ffn,
               "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head,
               "attention.value_length": head, "rope.dimension_count": head, "vocab_size": vocabulary}
    values = {"general.architecture": (STRING, text("qwen3")), "general.name": (STRING, text("random")),
              "general.file_type": (U32, struct.pack("<I", 7)), "general.alignment": (U32, struct.pack("<I", ALIGNMENT))}
    values |= {f"qwen3.{name}": (U32, struct.pack("<I", value)) for name, value in numbers.items()}
    values["qwen3.attention.layer_norm_rms_epsilon"] = (F32, struct.pack("<f", 1e-6))
    values["qwen3.rope.freq_base"] = (F32, struct.pack("<f", 1e6))
    return values | Header(tokenizer).tokenizer(vocabulary)


def tensors(shape):
    """Name and sizes, the contiguous one first."""
    layers, hidden, heads, kv_heads, head, ffn, vocabulary = shape
    yield "token_embd.weight", (hidden, vocabulary)
    for i in range(layers):
        parts = {"attn_norm": (hidden,), "attn_q": (hidden, heads * head), "attn_k": (hidden, kv_heads * head),
                 "attn_v": (hidden, kv_heads * head), "attn_q_norm": (head,), "attn_k_norm": (head,),
                 "attn_output": (heads * head, hidden), "ffn_norm": (hidden,), "ffn_gate": (hidden, ffn),
                 "ffn_up": (hidden, ffn), "ffn_down": (ffn, hidden)}
        for name, sizes in parts.items():
            yield f"blk.{i}.{name}.weight", sizes
    yield "output_norm.weight", (hidden,)


def tensor_bytes(sizes):
    return 4 * sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1] // BLOCK * BLOCK_BYTES


class Weights:
    """Vectors are ones; a matrix is a window of random blocks whose values have a mean square of 1 / row length."""

    def __init__(self, seed=1):
        self.random, self.banks = random.Random(seed), {}

    def of(self, name, sizes):
        if len(sizes) == 1:
            return struct.pack("<f", 1) * sizes[0]
        count, wanted = 1 << 18, tensor_bytes(sizes)
        if sizes[0] not in self.banks:
            bank = bytearray(self.random.randbytes(count * BLOCK_BYTES))
            low, high = struct.pack("<e", 1 / (73.9 * sizes[0] ** 0.5))
            bank[0::BLOCK_BYTES], bank[1::BLOCK_BYTES] = bytes([low]) * count, bytes([high]) * count
            self.banks[sizes[0]] = bytes(bank)
        bank = self.banks[sizes[0]]
        begin = self.random.randrange(count) * BLOCK_BYTES
        return (bank[begin:] + bank * (wanted // len(bank) + 1))[:wanted]


def padded(count):
    return -count % ALIGNMENT


def write(path, shape, context, tokenizer, weights=None):
    """shape: numbers in the order of SHAPES. weights: whose of(name, sizes) gives a tensor's bytes."""
    values, all_tensors, weights = metadata(shape, context, tokenizer), list(tensors(shape)), weights or Weights()
    with open(path + ".part", "wb") as out:
        out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(all_tensors), len(values)))
        for name, (kind, data) in values.items():
            out.write(text(name) + struct.pack("<I", kind) + data)
        offset = 0
        for name, sizes in all_tensors:
            kind = 0 if len(sizes) == 1 else Q8_0
            out.write(text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset))
            offset += tensor_bytes(sizes) + padded(tensor_bytes(sizes))
        out.write(bytes(padded(out.tell())))
        for name, sizes in all_tensors:
            out.write(weights.of(name, sizes))
            out.write(bytes(padded(tensor_bytes(sizes))))
    os.rename(path + ".part", path)


def main():
    here = os.path.dirname(os.path.realpath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--tokenizer", default=os.path.join(here, "..", "..", "deploy", "models", "demo-q8_0.gguf"))
    options = parser.parse_args()
    write(options.out, SHAPES[options.shape], options.context, options.tokenizer)


if __name__ == "__main__":
    sys.exit(main())
