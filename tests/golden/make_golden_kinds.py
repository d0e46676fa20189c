#!/usr/bin/env python3
"""Writes tests/golden/attention_kinds.json: linear attention with the feature maps of other authors, by the definition
with all pairs of queries and keys. Like make_golden.py, which see:

    python3 tests/golden/make_golden_kinds.py [FOLDER]
"""
import math
import pathlib
import sys

import torch

from make_golden import MODES, case, kernel_attention, normal, on_grid, padding_mask, qkv, random, visible, write


def project(x, w):
    return torch.einsum('bhnd,hmd->bhnm', x, w)


def attend(fq, fk, v, key_mask, causal):
    kernel = fq @ fk.mT
    return kernel_attention(kernel, torch.zeros_like(kernel), v, visible(fq, fk, key_mask, causal), None)[0]


def performer(q, k, v, proj, key_mask=None, causal=False):
    def phi(x):
        x = x * x.shape[-1] ** -0.25
        return (project(x, proj) - x.square().sum(-1, keepdim=True) / 2).exp() * proj.shape[-2] ** -0.5
    return attend(phi(q), phi(k), v, key_mask, causal)


def rfa(q, k, v, omega, key_mask=None, causal=False):
    def phi(x):
        angle = project(x / x.norm(dim=-1, keepdim=True), omega)
        return torch.cat([angle.cos(), angle.sin()], -1) * omega.shape[-2] ** -0.5
    return attend(phi(q), phi(k), v, key_mask, causal)


def hedgehog(q, k, v, wq, wk, key_mask=None, causal=False):
    def phi(x, w):
        return torch.cat([project(x, w).softmax(-1), (-project(x, w)).softmax(-1)], -1)
    return attend(phi(q, wq), phi(k, wk), v, key_mask, causal)


def cosformer(q, k, v, M, key_mask=None, causal=False):
    def phi(x):
        angle = torch.arange(1, x.shape[-2] + 1)[:, None] * (math.pi / 2 / M)
        return torch.cat([x.relu() * angle.cos(), x.relu() * angle.sin()], -1)
    return attend(phi(q), phi(k), v, key_mask, causal)


def polaformer(q, k, v, power, key_mask=None, causal=False):
    exponent = 1 + 4 * power.sigmoid()[:, None]

    def powers(x):  # of positive elements; others give 0, and no gradient
        return torch.where(x > 0, torch.where(x > 0, x, torch.ones_like(x)) ** exponent, torch.zeros_like(x))
    positive, negative, keys = powers(q), powers(-q), torch.cat([powers(k), powers(-k)], -1)
    same, other = v.chunk(2, -1)
    return torch.cat([attend(torch.cat([positive, negative], -1), keys, same, key_mask, causal),
                      attend(torch.cat([negative, positive], -1), keys, other, key_mask, causal)], -1)


def signed(x, side):
    """Away from 0, and with a channel in which all queries and keys agree in sign, and one in which none do."""
    x = torch.where(x < 0, x - 0.25, x + 0.25)
    x[..., 0] = x[..., 0].abs()
    x[..., 1] = x[..., 1].abs() * side
    return x


def kind_cases():
    random.manual_seed(7)
    cases = []
    for B, H, N, d, m, dv in [(2, 2, 9, 4, 6, 5), (1, 1, 65, 3, 4, 3)]:
        for mode, causal, masked in MODES:
            if B == 1 and mode != 'causal':
                continue

            def add(op, function, transform=lambda x, side: x, **more):
                numbers = {key: x for key, x in more.items() if not isinstance(x, torch.Tensor)}
                inputs = qkv(B, H, N, N, d, dv, 0.8)
                inputs['q'], inputs['k'] = transform(inputs['q'], 1), transform(inputs['k'], -1)
                inputs.update((key, x) for key, x in more.items() if isinstance(x, torch.Tensor))
                if masked:
                    inputs['key_mask'] = padding_mask(B, N)
                cases.append(case('%s_%s_%dx%dx%dx%d' % (op, mode, B, H, N, d), op,
                                  lambda **x: function(causal=causal, **x, **numbers), inputs, causal=causal,
                                  **numbers))
            add('performer_favor_positive', performer, proj=normal(H, m, d))
            add('rfa_fixed_gaussian', rfa, lambda x, side: on_grid(x / 2 + 1), omega=normal(H, m, d))
            add('hedgehog', hedgehog, wq=normal(H, m, d, scale=0.5), wk=normal(H, m, d, scale=0.5))
            add('cosformer', cosformer, lambda x, side: on_grid(x / 2 + 0.75), M=N + 3)
            add('polaformer_core', polaformer, signed, power=normal(H, d, scale=0.5))
    return cases


if __name__ == '__main__':
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    target.mkdir(parents=True, exist_ok=True)
    write(target, 'attention_kinds.json', 'Linear attention with the feature maps of other authors.', kind_cases())
