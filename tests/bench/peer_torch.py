#!/usr/bin/env python3
"""PyTorch's side of bench_peers.py, a process that stays: training steps and encoder passes.

The models are plain operations, written for speed: one projection for q, k and v, queries scaled instead of scores, an
additive mask made once, no copies of heads.
"""
import argparse
import ctypes
import json
import math
import resource
import sys
import time

import torch
import torch.nn.functional as F

from openblas_core import core_name


class Transformer:
    """Pre-norm transformer with learned positions and an output layer tied to the first rows of the embedding."""

    def __init__(self, vocabulary, length, dim, layers, heads, kind, causal):
        self.parameters, self.dim, self.heads, self.kind = [], dim, heads, kind
        self.token, self.position = self.weights(vocabulary, dim), self.weights(length, dim)
        self.blocks = [self.block() for _ in range(layers)]
        self.norm = self.norm_weights()
        self.mask = torch.full((length, length), -math.inf).triu(1) if causal else None

    def weights(self, *shape, deviation=0.02):
        self.parameters.append((torch.randn(shape) * deviation).requires_grad_())
        return self.parameters[-1]

    def constant(self, value, *shape):
        self.parameters.append(torch.full(shape, float(value)).requires_grad_())
        return self.parameters[-1]

    def norm_weights(self):
        return self.constant(1, self.dim), self.constant(0, self.dim)

    def linear_weights(self, inputs, outputs):
        return self.weights(outputs, inputs), self.constant(0, outputs)

    def block(self):
        C, H = self.dim, self.heads
        d = C // H
        block = {'norm1': self.norm_weights(), 'norm2': self.norm_weights(),
                 'qkv': self.linear_weights(C, 3 * C), 'out': self.linear_weights(C, C),
                 'up': self.linear_weights(C, 4 * C), 'down': self.linear_weights(4 * C, C)}
        if self.kind == 'flexformer_n':
            block['w1'], block['w2'] = (self.weights(H, d, d, deviation=0.5 * d**-0.25) for _ in range(2))
            block['tau'] = self.constant(math.log(2 * math.sqrt(d)), H, 1, 1)
        return block

    def hidden(self, ids):
        C = (self.dim,)
        h = self.token[ids] + self.position[:ids.shape[1]]
        for block in self.blocks:
            h = h + self.attention(block, F.layer_norm(h, C, *block['norm1']))
            inner = F.linear(F.layer_norm(h, C, *block['norm2']), *block['up'])
            h = h + F.linear(F.gelu(inner, approximate='tanh'), *block['down'])
        return F.layer_norm(h, C, *self.norm)

    def attention(self, block, x):
        B, T, C = x.shape
        q, k, v = F.linear(x, *block['qkv']).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = softmax_attention(q, k, v, self.mask) if self.kind == 'softmax' else flexformer_attention(block, q, k, v)
        return F.linear(y.transpose(1, 2).reshape(B, T, C), *block['out'])


def softmax_attention(q, k, v, mask):
    scores = (q * q.shape[-1]**-0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ v


def flexformer_attention(block, q, k, v, floor=0.01):
    """flexformer_n without a mask: sums over keys are made once, so time is linear in the length."""
    d = q.shape[-1]
    a, b = (block['w1'] + block['w2']) * 0.5, (block['w1'] - block['w2']) * 0.5

    def features(x):
        ax, cos_bx = x @ a.transpose(-2, -1), torch.cos(x @ b.transpose(-2, -1)) * d**-0.5
        return torch.cat([torch.cos(ax) * cos_bx, torch.sin(ax) * cos_bx], -1)

    log_weights = (k * k).sum(-1, keepdim=True) * torch.exp(-block['tau'])
    weights = torch.exp(log_weights - log_weights.detach().amax(-2, keepdim=True))
    fq, fk = features(q), features(k) * weights
    denominator = fq @ fk.sum(-2).unsqueeze(-1)
    return (fq @ (fk.transpose(-2, -1) @ v)) / torch.maximum(denominator, floor * weights.sum(-2, keepdim=True))


LANGUAGE_SHAPES = {  # vocabulary, length, dim, layers, heads; batch. As in tests/bench/bench_models.h.
    'small': ((256, 256, 128, 4, 4), 16),
    'big': ((8192, 512, 512, 6, 8), 4),
}


def language_step(shape, kind, autocast):
    """Forward, backward and AdamW."""
    sizes, batch = LANGUAGE_SHAPES[shape]
    model = Transformer(*sizes, kind, causal=True)
    ids, targets = torch.randint(sizes[0], (2, batch, sizes[1]))
    optimizer = torch.optim.AdamW(model.parameters, lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = F.cross_entropy(F.linear(model.hidden(ids), model.token).view(-1, sizes[0]), targets.view(-1))
        loss.backward()
        optimizer.step()

    return step


def encoder_pass(kind, length, autocast):
    """Forward and backward of an encoder with 10 classes on 8,192 tokens."""
    model = Transformer(256, length, 128, 2, 4, kind, causal=False)
    batch = max(1, 8192 // length)
    ids, classes = torch.randint(1, 256, (batch, length)), torch.randint(10, (batch,))
    head = model.linear_weights(128, 10)

    def step():
        for parameter in model.parameters:
            parameter.grad = None
        with autocast:
            loss = F.cross_entropy(F.linear(model.hidden(ids).mean(1), *head), classes)
        loss.backward()

    return step


def memory_kilobytes(field):
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ':'))


def loaded_openblas_core():
    """The kernel of the OpenBLAS that this process has loaded, or None where it has none."""
    with open('/proc/self/maps') as maps:
        paths = [line.split()[-1] for line in maps if 'libopenblas' in line]
    return core_name(ctypes.CDLL(paths[0])) if paths else None


def serve(arguments):
    """Reads how many steps to run, a number a line; answers each with a line of JSON."""
    baseline = memory_kilobytes('VmRSS')
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    now = time.process_time if arguments.threads == 1 else time.perf_counter
    autocast = torch.autocast('cpu', torch.bfloat16, enabled=arguments.precision == 'bf16')
    what, first, second = arguments.case.split(':')
    if what == 'step':
        step = language_step(first, second, autocast)
    else:
        step = encoder_pass(first, int(second), autocast)
    step()
    for line in sys.stdin:
        seconds, faults = [], resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(int(line)):
            start = now()
            step()
            seconds.append(now() - start)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        peak = memory_kilobytes('VmHWM')
        print(json.dumps({'seconds': seconds, 'peak_bytes': (peak - baseline) * 1024, 'core': loaded_openblas_core(),
                          'page_faults': faults / max(1, len(seconds))}), flush=True)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('case', help='step:SHAPE:KIND or encoder:KIND:LENGTH')
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--precision', default='f32')
    serve(parser.parse_args())
