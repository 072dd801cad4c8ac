"""peer_torch.py: one training step of Stories110M in PyTorch, to stand beside `anneal bench train`.
In: batch, sequence length, steps, threads.  Out: one JSON line with the least and median seconds of a step and the peak memory.
With --beside anneal: both in one run, at B 1 and 4, and how many times as long PyTorch takes.

A plain decoder as the field writes it: RMS norms, rotary positions, causal attention, SwiGLU, tied classifier, cross-entropy, clipping
to a norm of 1, AdamW. fp32 throughout, or with --math bf16 what autocast makes of it: weights and moments stay fp32. Debian's OpenBLAS does not know newer machines by name and takes narrow vectors there, hence the hint."""
import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time

try:
    with open("/proc/cpuinfo") as cpu:
        if "avx512f" in cpu.read():
            os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
except OSError:
    pass

import torch
from torch import nn
from torch.nn import functional as F

DIM, LAYERS, HEADS, HIDDEN, VOCAB = 768, 12, 12, 2048, 32000


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain


def turn(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(DIM, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x, cos, sin, mask):
        n, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (w(y).view(n, t, HEADS, DIM // HEADS).transpose(1, 2) for w in (self.q, self.k, self.v))
        p = torch.softmax(turn(q, cos, sin) @ turn(k, cos, sin).transpose(2, 3) / math.sqrt(DIM // HEADS) + mask, -1)
        x = x + self.o((p @ v).transpose(1, 2).reshape(n, t, DIM))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        nn.init.normal_(self.embed.weight, std=0.02)
        half = DIM // HEADS // 2
        angle = torch.arange(t)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("mask", torch.full((t, t), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.norm(x) @ self.embed.weight.t()


def one_line(*command):
    return [json.loads(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()]


def beside(anneal, seq, steps, threads, products):
    """Each in a process of its own, so that neither has the other's memory or threads."""
    ours = one_line(anneal, "bench", "train", "--json")
    for batch in (1, 4):
        peer = one_line(sys.executable, __file__, "--batch", str(batch), "--seq", str(seq), "--steps", str(steps), "--threads", str(threads), "--math", products)[0]
        print("B %d T %d  %s, %s: %.3f s, %d MB" % (batch, seq, peer["peer"], products, peer["min_s"], peer["peak_mb"]))
        for row in ours:
            if "B %d T %d," % (batch, seq) in row["case"]:
                seconds = row["min_us"] / 1e6
                print("  anneal, %s: %.3f s, %.1f times as fast" % (row["case"].split(",")[0], seconds, peer["min_s"] / seconds))


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--batch", type=int, default=1)
    a.add_argument("--seq", type=int, default=256)
    a.add_argument("--steps", type=int, default=3)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--math", choices=("fp32", "bf16"), default="fp32")
    a.add_argument("--beside", metavar="ANNEAL", help="path of the anneal command: its bench in the same run")
    o = a.parse_args()
    if o.beside:
        beside(o.beside, o.seq, o.steps, o.threads, o.math)
        return
    torch.manual_seed(1)
    torch.set_num_threads(o.threads)
    model = Decoder(o.seq)
    update = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    ids = torch.randint(0, VOCAB, (o.batch, o.seq + 1))
    seconds = []
    for _ in range(o.steps + 1):
        start = time.perf_counter()
        update.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=o.math == "bf16"):
            loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        seconds.append(time.perf_counter() - start)
    seconds = sorted(seconds[1:])  # the first allocates the moments
    print(json.dumps({"peer": "pytorch " + torch.__version__, "batch": o.batch, "seq": o.seq, "threads": o.threads, "math": o.math, "min_s": round(seconds[0], 4),
                      "med_s": round(seconds[len(seconds) // 2], 4), "loss": round(loss.item(), 4),
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
