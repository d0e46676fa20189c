#!/usr/bin/env python3
"""Writes the reference values of tests/golden: every op, attention, optimiser and model as PyTorch computes them in
float64, independently of the code under test. Run it after changing a definition here:

    python3 tests/golden/make_golden.py [FOLDER]        needs PyTorch 1.13 or newer; takes a few seconds

Inputs are multiples of 1/256 (weights of models: 1/1024), so that float32 holds them exactly. A case has
  inputs    tensors by name; grad_out is the gradient of the result (absent where the result is one number)
  outputs   out, or what a training run leaves behind
  grads     gradients of the inputs
  init      and final: weights before and after a training run
tests/golden/golden_case.h describes the format from the reader's side.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
random = torch.Generator()


def on_grid(x, grid=256):
    return torch.round(x * grid) / grid


def normal(*shape, scale=1.0, grid=256):
    return on_grid(torch.randn(*shape, generator=random) * scale, grid)


def uniform(low, high, *shape):
    return on_grid(torch.rand(*shape, generator=random) * (high - low) + low)


def whole(low, high, *shape):
    return torch.randint(low, high, shape, generator=random)


# ---- writing


def number(x):
    return float('%.12g' % x) if math.isfinite(x) else {math.inf: 'inf', -math.inf: '-inf'}.get(x, 'nan')


def as_json(x):
    if isinstance(x, torch.Tensor):
        flat, kind = x.detach().flatten().tolist(), 'f64' if x.is_floating_point() else 'i64'
        if x.dtype == torch.bool:
            flat, kind = [int(v) for v in flat], 'bool'
        return {'dtype': kind, 'shape': list(x.shape), 'data': [number(v) for v in flat] if kind == 'f64' else flat}
    return {key: as_json(value) for key, value in x.items()} if isinstance(x, dict) else x


def write(folder, name, about, cases):
    lines = ',\n'.join(json.dumps(as_json(case), separators=(',', ':')) for case in cases)
    text = '{"about":%s,"cases":[\n%s\n]}\n' % (json.dumps(about), lines)
    (folder / name).write_text(text)
    print('%-24s %3d cases %5d KB' % (name, len(cases), len(text) // 1000))


def case(name, op, function, inputs, **params):
    """One application of function(**inputs), with the gradients of all floating inputs for a random grad_out."""
    leaves = {key: x.clone().requires_grad_(x.is_floating_point()) for key, x in inputs.items()}
    out = function(**leaves)
    grad_out = normal(*out.shape) if out.dim() else torch.tensor(1.0)
    wanted = [key for key, x in leaves.items() if x.requires_grad]
    grads = torch.autograd.grad(out, [leaves[key] for key in wanted], grad_out)
    given = dict(inputs, grad_out=grad_out) if out.dim() else inputs
    return {'name': name, 'op': op, 'inputs': given, 'params': params, 'outputs': {'out': out},
            'grads': dict(zip(wanted, grads))}


# ---- tensor ops


def op_cases():
    random.manual_seed(1)
    cases = []

    def add(name, op, function, inputs, **params):
        cases.append(case(name, op, function, inputs, **params))

    for i, (a, b) in enumerate([((3, 5), (5, 7)), ((2, 1, 4, 5), (3, 5, 2)), ((65, 9), (9, 3)), ((1, 1), (1, 1))]):
        add('matmul_%d' % i, 'matmul', lambda a, b: a @ b, {'a': normal(*a), 'b': normal(*b)})
    add('matmul_ta', 'matmul a^T b', lambda a, b: a.mT @ b, {'a': normal(2, 9, 4), 'b': normal(2, 9, 3)})
    add('matmul_tb', 'matmul a b^T', lambda a, b: a @ b.mT, {'a': normal(2, 9, 4), 'b': normal(3, 4)})
    add('linear', 'x W^T + bias (W is [out,in])', lambda x, w, b: F.linear(x, w, b),
        {'x': normal(3, 4, 6), 'w': normal(5, 6), 'b': normal(5)})
    for name, function in [('add', torch.add), ('sub', torch.sub), ('mul', torch.mul), ('div', torch.div)]:
        add(name, name, lambda a, b, f=function: f(a, b), {'a': normal(2, 1, 5), 'b': uniform(0.5, 2, 3, 1)})

    for name, function, low, high in [
            ('exp', torch.exp, -3, 3), ('log', torch.log, 0.1, 4), ('sqrt', torch.sqrt, 0.1, 4),
            ('rsqrt', torch.rsqrt, 0.1, 4), ('sin', torch.sin, -9, 9), ('cos', torch.cos, -9, 9),
            ('tanh', torch.tanh, -4, 4), ('sigmoid', torch.sigmoid, -6, 6), ('relu', F.relu, -3, 3),
            ('elu', F.elu, -3, 3), ('silu', F.silu, -5, 5), ('softplus', F.softplus, -5, 5),
            ('gelu_erf', F.gelu, -5, 5), ('gelu_tanh', lambda x: F.gelu(x, approximate='tanh'), -5, 5)]:
        add(name, name, lambda x, f=function: f(x), {'x': uniform(low, high, 3, 11)})

    for op, function in [
            ('sum_axis1', lambda x: x.sum(1)), ('sum_axis02', lambda x: x.sum((0, 2))), ('sum_all', torch.sum),
            ('mean_last', lambda x: x.mean(-1, keepdim=True)), ('mean_all', torch.mean),
            ('max_last', lambda x: x.amax(-1)), ('cumsum_axis1', lambda x: x.cumsum(1)),
            ('var_biased_last', lambda x: x.var(-1, unbiased=False)), ('l2norm_last', lambda x: F.normalize(x, dim=-1)),
            ('transpose12', lambda x: x.transpose(1, 2)), ('permute201', lambda x: x.permute(2, 0, 1)),
            ('slice_axis1_1_4_step2', lambda x: x[:, 1:4:2]), ('logsumexp last', lambda x: x.logsumexp(-1))]:
        distinct = torch.randperm(105, generator=random).reshape(3, 5, 7)  # a maximum without ties
        add(op.replace(' ', '_'), op, lambda x, f=function: f(x), {'x': on_grid(distinct / 26 - 2)})
    add('concat', 'concat', lambda a, b: torch.cat([a, b], 1), {'a': normal(2, 3, 4), 'b': normal(2, 1, 4)})
    add('masked_fill', 'masked_fill(x,mask,-2)', lambda x, mask: x.masked_fill(mask, -2.0),
        {'x': normal(3, 7), 'mask': whole(0, 2, 3, 7).bool()})

    for op, function in [('softmax', F.softmax), ('log_softmax', F.log_softmax)]:
        for shape, axis in [((2, 3, 7), -1), ((1, 65), -1), ((3, 1), 1), ((2, 9, 4), 1), ((9, 3), 0)]:
            add('%s_%s_axis%d' % (op, 'x'.join(map(str, shape)), axis), op,
                lambda x, f=function, a=axis: f(x, a), {'x': normal(*shape, scale=2)}, axis=axis)
        extreme = torch.tensor([[1000.0, 999, -1000, 0, 998.5], [-1e4, -1e4 + 1, -1e4, -2e4, -1e4]])
        add(op + '_extreme', op, lambda x, f=function: f(x, -1), {'x': extreme}, axis=-1)
    for name, x in [('', normal(2, 3, 5, scale=2)), ('_wide', normal(3, 65)),
                    ('_offset', normal(3, 8, scale=0.01) + 100)]:
        width = x.shape[-1]
        add('layer_norm' + name, 'layer_norm', lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
            {'x': x, 'w': normal(width), 'b': normal(width)}, eps=1e-5)
    add('rms_norm', 'x/sqrt(mean(x^2)+eps)*w',
        lambda x, w: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w,
        {'x': normal(3, 12), 'w': normal(12)}, eps=1e-6)
    add('embedding', 'embedding', lambda w, idx: F.embedding(idx, w), {'w': normal(9, 5), 'idx': whole(0, 9, 3, 8)})
    add('embedding_padding', 'embedding', lambda w, idx: F.embedding(idx, w, padding_idx=0),
        {'w': normal(5, 4), 'idx': whole(0, 3, 2, 7)}, padding_idx=0)
    for n, classes, smoothing, reduction in [(1, 5, 0, 'mean'), (7, 12, 0, 'mean'), (7, 12, 0.1, 'mean'),
                                             (33, 9, 0.1, 'sum'), (33, 9, 0, 'sum')]:
        target = whole(0, classes, n)
        target[3::4] = -100
        add('cross_entropy_%d_%d_%g_%s' % (n, classes, smoothing, reduction), 'cross_entropy',
            lambda logits, target, s=smoothing, r=reduction: F.cross_entropy(
                logits, target, label_smoothing=s, reduction=r),
            {'logits': normal(n, classes, scale=2), 'target': target},
            ignore_index=-100, label_smoothing=smoothing, reduction=reduction)
    return cases


# ---- attention, by its definition


def visible(q, k, key_mask, causal):
    """[B or 1, 1, Nq, Nk]: which keys a query sees."""
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    seen = (seen.tril() if causal else seen)[None, None]
    return seen if key_mask is None else seen & key_mask[:, None, None, :].bool()


def softmax_attention(q, k, v, key_mask=None, causal=False):
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~visible(q, k, key_mask, causal), -math.inf).softmax(-1) @ v


def features(x, omega1, omega2=None):
    """Trigonometric features, not yet divided by sqrt(n)."""
    angles = [torch.einsum('bhnd,hmd->bhnm', x, omega) for omega in (omega1, omega1 if omega2 is None else omega2)]
    return torch.cat([(angles[0].cos() + angles[1].cos()) / 2, (angles[0].sin() + angles[1].sin()) / 2], -1)


def kernel_attention(kernel, log_weight, v, seen, delta):
    """sum_j w_j k_ij v_j / (r > delta ? sum_j w_j k_ij : delta sum_j w_j). With delta None the denominator is as it is.
    Returns the result and r = sum_j w_j k_ij / sum_j w_j."""
    weight = log_weight.expand_as(kernel).masked_fill(~seen.expand_as(kernel), -math.inf).softmax(-1)
    ratio = (weight * kernel).sum(-1, keepdim=True)
    floored = ratio if delta is None else torch.where(ratio > delta, ratio, torch.full_like(ratio, delta))
    return (weight * kernel) @ v / floored, ratio


def flexformer(q, k, v, omega1, tau, omega2=None, key_mask=None, causal=False, delta=None):
    kernel = features(q, omega1, omega2) @ features(k, omega1, omega2).mT / omega1.shape[-2]
    log_weight = (k.square().sum(-1) * (-tau).exp()[:, None])[:, :, None, :]
    return kernel_attention(kernel, log_weight, v, visible(q, k, key_mask, causal), delta)


def elu1_attention(q, k, v, key_mask=None, causal=False):
    kernel = (F.elu(q) + 1) @ (F.elu(k) + 1).mT
    return kernel_attention(kernel, torch.zeros_like(kernel), v, visible(q, k, key_mask, causal), None)[0]


def qkv(B, H, Nq, Nk, d, dv, scale):
    return {'q': normal(B, H, Nq, d, scale=scale), 'k': normal(B, H, Nk, d, scale=scale), 'v': normal(B, H, Nk, dv)}


def padding_mask(B, N):
    lengths = torch.tensor([max(1, N - 3 * b) for b in range(B)])
    return torch.arange(N) < lengths[:, None]


MODES = [('full', False, False), ('masked', False, True), ('causal', True, False), ('causal_masked', True, True)]


def softmax_cases():
    random.manual_seed(2)
    cases = []
    for B, H, Nq, Nk, d, dv, scale in [(1, 1, 1, 1, 5, 5, 1), (2, 2, 17, 17, 8, 5, 1), (1, 1, 65, 65, 4, 4, 1),
                                       (2, 1, 5, 12, 8, 3, 1), (1, 2, 9, 9, 8, 8, 8)]:
        for mode, causal, masked in MODES:
            if (causal and Nq != Nk) or (masked and B == 1):
                continue
            inputs = qkv(B, H, Nq, Nk, d, dv, scale)
            if masked:
                inputs['key_mask'] = padding_mask(B, Nk)
            cases.append(case('softmax_%s_%dx%dx%dx%dx%d_scale%g' % (mode, B, H, Nq, Nk, d, scale), 'softmax_attention',
                              lambda causal=causal, **x: softmax_attention(causal=causal, **x), inputs, causal=causal,
                              scale=1 / math.sqrt(d)))
    return cases


def flexformer_inputs(B, H, Nq, Nk, d, n, dv, variant, scale, masked):
    inputs = qkv(B, H, Nq, Nk, d, dv, scale)
    for omega in ('omega1', 'omega2')[:1 if variant == 's' else 2]:
        inputs[omega] = normal(H, n, d, scale=d ** -0.25)
    inputs['tau'] = on_grid(math.log(2 * math.sqrt(d)) + normal(H, scale=0.25))
    if masked:
        inputs['key_mask'] = padding_mask(B, Nk)
    return inputs


def flexformer_cases():
    random.manual_seed(3)
    cases = []
    for variant in 's', 'n':
        for B, H, Nq, Nk, d, n, dv in [(1, 1, 1, 1, 5, 5, 5), (2, 2, 17, 17, 4, 6, 5), (1, 1, 65, 65, 3, 4, 4),
                                       (2, 1, 5, 12, 8, 8, 3)]:
            for mode, causal, masked in MODES:
                if (causal and Nq != Nk) or (masked and B == 1):
                    continue
                ratio = torch.zeros(1)
                while ratio.min() < 0.15:  # well away from denominators of 0
                    inputs = flexformer_inputs(B, H, Nq, Nk, d, n, dv, variant, 0.5, masked)
                    ratio = flexformer(causal=causal, **inputs)[1]
                name = 'flexformer_%s_%s_%dx%dx%dx%dx%d' % (variant, mode, B, H, Nq, Nk, d)
                cases.append(case(name, 'flexformer_attention',
                                  lambda causal=causal, **x: flexformer(causal=causal, **x)[0], inputs,
                                  causal=causal, variant=variant))
        # Denominators of every size and sign, with the relative floor.
        for causal, scale, delta in [(False, 0.7, 0.05), (True, 0.7, 0.01), (False, 1.2, 0.01), (True, 1.2, 0.05)]:
            inputs = flexformer_inputs(2, 2, 12, 12, 4, 5, 4, variant, scale, not causal)
            name = 'floor_%s_%s_scale%g_delta%g' % (variant, 'causal' if causal else 'full', scale, delta)
            cases.append(case(name, 'flexformer_attention_relfloor',
                              lambda causal=causal, delta=delta, **x: flexformer(causal=causal, delta=delta, **x)[0],
                              inputs, causal=causal, variant=variant, delta=delta))
        cases += heavy_key_cases(variant)
    for mode, causal, masked in MODES[:3]:
        inputs = qkv(2, 2, 9, 9, 5, 4, 0.8)
        if masked:
            inputs['key_mask'] = padding_mask(2, 9)
        cases.append(case('elu1_' + mode, 'linear_attention_elu1',
                          lambda causal=causal, **x: elu1_attention(causal=causal, **x), inputs, causal=causal))
    return cases


def heavy_key_cases(variant):
    """Key weights beyond the range of float32: of a masked key, and of a late key under a causal mask."""
    cases = []
    for causal in False, True:
        ratio = torch.zeros(1)
        while ratio.min() < 0.15:
            inputs = flexformer_inputs(1, 1, 12, 12, 4, 6, 4, variant, 0.4, False)
            inputs['tau'] = torch.zeros(1)
            direction = F.normalize(torch.randn(4, generator=random), dim=0)
            inputs['k'][0, 0, 8] = on_grid(direction * math.sqrt(130))
            if not causal:
                inputs['key_mask'] = (torch.arange(12) < 8)[None]
            ratio = flexformer(causal=causal, **inputs)[1]
        cases.append(case('heavy_%s_key_%s' % ('late' if causal else 'masked', variant), 'flexformer_attention',
                          lambda causal=causal, **x: flexformer(causal=causal, **x)[0], inputs,
                          causal=causal, variant=variant, kind='overflow'))
    return cases


# ---- optimisers and schedules


def rate(schedule, t):
    base, warmup = schedule['lr'], schedule.get('W', 0)
    if 'T' in schedule:
        if t <= warmup:
            return base * t / warmup
        low = schedule['min_lr']
        return low + (base - low) / 2 * (1 + math.cos(math.pi * (t - warmup) / (schedule['T'] - warmup)))
    return base * min(t / warmup, math.sqrt(warmup / t)) if warmup else base


def optimiser_case(name, make, params, X, Y, w0, b0):
    w, b = w0.clone().requires_grad_(), b0.clone().requires_grad_()
    optimiser = make([w, b])
    record = {key: [] for key in ('loss_before_step', 'grad_norm_before_clip', 'lr', 'w_after_step', 'b_after_step')}
    for t in range(1, 21):
        optimiser.param_groups[0]['lr'] = rate(params, t)
        optimiser.zero_grad()
        loss = (1.5 * F.linear(X, w, b).tanh() - Y).square().sum(-1).mean() + 0.05 * w.pow(4).sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([w, b], params['clip'] or math.inf)
        optimiser.step()
        for key, value in zip(record, (loss, norm, torch.tensor(rate(params, t)), w, b)):
            record[key].append(value.detach().clone())
    return {'name': name, 'op': 'optimiser', 'inputs': {'X': X, 'Y': Y, 'w0': w0, 'b0': b0}, 'params': params,
            'outputs': {key: torch.stack(values) for key, values in record.items()}, 'grads': {}}


def optimiser_cases():
    random.manual_seed(4)
    problem = normal(16, 5), normal(16, 3), normal(3, 5), normal(3)
    optim = torch.optim
    cases = [optimiser_case(name, make, params, *problem) for name, make, params in [
        ('sgd', lambda p: optim.SGD(p, momentum=0.9, lr=1), {'lr': 0.05, 'momentum': 0.9, 'clip': 1.0}),
        ('sgd_nesterov', lambda p: optim.SGD(p, momentum=0.9, nesterov=True, weight_decay=0.01, lr=1),
         {'lr': 0.05, 'momentum': 0.9, 'nesterov': True, 'weight_decay_l2': 0.01, 'clip': 0.0}),
        ('adam', lambda p: optim.Adam(p, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01),
         {'lr': 0.05, 'beta1': 0.9, 'beta2': 0.98, 'eps': 1e-6, 'weight_decay_l2': 0.01, 'clip': 0.0}),
        ('adamw', lambda p: optim.AdamW(p, weight_decay=0.1),
         {'lr': 0.05, 'beta1': 0.9, 'beta2': 0.999, 'eps': 1e-8, 'weight_decay': 0.1, 'clip': 1.0}),
        ('adamw_invsqrt', lambda p: optim.AdamW(p, weight_decay=0.1),
         {'lr': 0.05, 'weight_decay': 0.1, 'clip': 1.0, 'W': 5}),
        ('adamw_cosine', lambda p: optim.AdamW(p, weight_decay=0.1),
         {'lr': 0.05, 'weight_decay': 0.1, 'clip': 1.0, 'W': 5, 'T': 20, 'min_lr': 0.005})]]
    curves = {'invsqrt': {'lr': 5e-4, 'W': 40}, 'cosine': {'lr': 1e-3, 'W': 20, 'T': 200, 'min_lr': 1e-5}}
    rates = {key: torch.tensor([rate(curve, t) for t in range(1, 201)]) for key, curve in curves.items()}
    for curve in curves.values():
        curve['base'] = curve.pop('lr')
    cases.append({'name': 'schedules', 'op': 'lr_schedule', 'inputs': {}, 'params': curves, 'outputs': rates,
                  'grads': {}})
    return cases


# ---- whole models

VOCABULARY, LENGTH, WIDTH, HEADS, INNER, LAYERS, CLASSES = 11, 9, 8, 2, 12, 2, 3


def initial_weights(language, variant, tied):
    def draw(*shape, scale, mean=0.0):
        return mean + normal(*shape, scale=scale, grid=1024)

    head_size = WIDTH // HEADS
    weights = {'tok_emb': draw(VOCABULARY, WIDTH, scale=0.5), 'pos_emb': draw(LENGTH, WIDTH, scale=0.3)}
    for layer in ('layer%d.' % i for i in range(LAYERS)):
        for norm in 'ln1', 'ln2':
            weights[layer + norm + '.w'] = draw(WIDTH, scale=0.1, mean=1.0)
            weights[layer + norm + '.b'] = draw(WIDTH, scale=0.1)
        for part, scale in ('q', 0.15), ('k', 0.15), ('v', 0.3), ('o', 0.3):
            weights[layer + 'w' + part] = draw(WIDTH, WIDTH, scale=scale)
            weights[layer + 'b' + part] = draw(WIDTH, scale=0.05)
        if variant != 'softmax':
            for omega in ('omega1', 'omega2')[:1 if variant == 'flexformer_s' else 2]:
                weights[layer + omega] = draw(HEADS, head_size, head_size, scale=0.4 * head_size ** -0.25)
            weights[layer + 'tau'] = on_grid(torch.full((HEADS,), math.log(2 * math.sqrt(head_size))), 1024)
        weights[layer + 'ff.w1'], weights[layer + 'ff.b1'] = draw(INNER, WIDTH, scale=0.3), draw(INNER, scale=0.05)
        weights[layer + 'ff.w2'], weights[layer + 'ff.b2'] = draw(WIDTH, INNER, scale=0.2), draw(WIDTH, scale=0.05)
    weights['lnf.w'], weights['lnf.b'] = draw(WIDTH, scale=0.1, mean=1.0), draw(WIDTH, scale=0.1)
    rows = VOCABULARY if language else CLASSES
    if not tied:
        weights['head.w'] = draw(rows, WIDTH, scale=0.3)
    weights['head.b'] = draw(rows, scale=0.05)
    return weights


def forward(weights, x, mask, variant, delta):
    """Logits: of a language model where there is no mask, else of a classifier, which averages what is not padded."""
    h = weights['tok_emb'][x] + weights['pos_emb'][:x.shape[1]]
    for layer in ('layer%d.' % i for i in range(LAYERS)):
        own = {key[len(layer):]: value for key, value in weights.items() if key.startswith(layer)}
        y = F.layer_norm(h, (WIDTH,), own['ln1.w'], own['ln1.b'])
        q, k, v = (F.linear(y, own['w' + p], own['b' + p]).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in 'qkv')
        shared = {'key_mask': mask, 'causal': mask is None}
        if variant == 'softmax':
            y = softmax_attention(q, k, v, **shared)
        else:
            y = flexformer(q, k, v, own['omega1'], own['tau'], own.get('omega2'), delta=delta, **shared)[0]
        h = h + F.linear(y.transpose(1, 2).flatten(2), own['wo'], own['bo'])
        y = F.linear(F.layer_norm(h, (WIDTH,), own['ln2.w'], own['ln2.b']), own['ff.w1'], own['ff.b1'])
        h = h + F.linear(F.gelu(y, approximate='tanh'), own['ff.w2'], own['ff.b2'])
    h = F.layer_norm(h, (WIDTH,), weights['lnf.w'], weights['lnf.b'])
    if mask is not None:
        h = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return F.linear(h, weights.get('head.w', weights['tok_emb']), weights['head.b'])


def train(start, batches, dtype, variant, delta):
    weights = {key: value.to(dtype).clone().requires_grad_() for key, value in start.items()}
    optimiser = torch.optim.AdamW(weights.values(), lr=1e-2, weight_decay=0.01)
    losses, norms, first = [], [], None
    for t in range(20):
        x, y, mask = (None if part is None else part[t % len(part)] for part in batches)
        logits = forward(weights, x, mask, variant, delta)
        loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())
        optimiser.zero_grad()
        loss.backward()
        if t == 0:
            first = logits.detach(), {key: value.grad.clone() for key, value in weights.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), 1.0).item())
        optimiser.step()
        losses.append(loss.item())
    final = {key: value.detach() for key, value in weights.items()}
    return torch.tensor(losses, dtype=torch.float64), norms, first, final


def model_case(name, variant, tied, language, delta):
    if language:  # arithmetic progressions
        x = (whole(1, 11, 5, 3, 1) + whole(1, 5, 5, 3, 1) * torch.arange(LENGTH + 1)) % VOCABULARY
        x, y, mask = x[..., :-1], x[..., 1:].clone(), None
        y[0, 0, :2] = -100
    else:  # how many tokens are multiples of 3
        mask = torch.arange(LENGTH) < whole(3, LENGTH + 1, 5, 3)[..., None]
        x = whole(1, VOCABULARY, 5, 3, LENGTH) * mask
        y = ((x % 3 == 0) & mask).sum(-1) % CLASSES
    batches, drift = (x, y, mask), math.inf
    # Training may be chaotic: where runs that differ by rounding alone part ways, there is nothing to compare.
    while drift > 2e-5:
        start = initial_weights(language, variant, tied)
        losses, norms, (logits, grads), final = train(start, batches, torch.float64, variant, delta)
        nudged = [{key: value * (1 + 1e-7 * torch.randn(value.shape, generator=random)) for key, value in start.items()}
                  for _ in range(4)]
        others = [train(start, batches, torch.float32, variant, delta)]
        others += [train(weights, batches, torch.float64, variant, delta) for weights in nudged]
        drift = max(((other[0] - losses) / losses).abs().max().item() for other in others)
    weight_drift = max((other[3][key] - final[key]).abs().max().item()
                       for other in others for key in final if not key.endswith('bk'))
    params = {'attention': variant, 'tied_head': tied, 'lr': 1e-2, 'beta1': 0.9, 'beta2': 0.999, 'eps': 1e-8,
              'weight_decay': 0.01, 'clip': 1.0, 'torch_float32_max_rel_loss_deviation': drift,
              'torch_float32_max_abs_weight_deviation_excluding_bk': weight_drift}
    if delta:
        params['delta'] = delta
    inputs = {'x': x, 'y': y} if mask is None else {'x': x, 'y': y, 'mask': mask}
    return {'name': name, 'op': 'train_trajectory', 'inputs': inputs, 'params': params, 'init': start,
            'outputs': {'loss': losses, 'grad_norm_before_clip': torch.tensor(norms), 'logits_step0': logits},
            'grads': grads, 'final': final}


def model_cases():
    random.manual_seed(5)
    return [model_case('language_model_softmax', 'softmax', False, True, None),
            model_case('language_model_flexformer_n_tied', 'flexformer_n', True, True, 0.05),
            model_case('classifier_flexformer_s', 'flexformer_s', False, False, 0.01)]


if __name__ == '__main__':
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    target.mkdir(parents=True, exist_ok=True)
    write(target, 'ops.json', 'Tensor ops: values and gradients.', op_cases())
    write(target, 'softmax_attention.json', 'Softmax attention: values and gradients.', softmax_cases())
    write(target, 'linear_attention.json', 'Flexformer attention with and without floor; elu + 1.', flexformer_cases())
    write(target, 'optimisers.json', 'Twenty steps of each optimiser, and learning rates.', optimiser_cases())
    write(target, 'models.json', 'Twenty AdamW steps of small models.', model_cases())
