#!/usr/bin/env python3
"""How fast this framework is beside PyTorch and OpenBLAS: the same work, on the same machine, in turns.

    make bench-peers ARGS="--rounds=5 --only=gemm,small --threads=1"

Every round runs all rivals of a group one after the other, ours as build/release/bench --case=NAME, PyTorch's in a
process that stays. What is compared is the median over all rounds: of CPU time on one thread, of wall-clock time on
more. A ratio is the peer's figure divided by ours, so above 1 we are faster or need less memory. Memory is the largest
resident memory of the process; of PyTorch's, what it had right after `import torch` is taken off.

The PyTorch models below are plain operations, written for speed: one projection for q, k and v, queries scaled instead
of scores, an additive mask made once, no copies of heads. Products alone are compared by tests/bench/peer_openblas.cpp.
"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

if '--worker' in sys.argv:
    import torch
    import torch.nn.functional as F

NOTHING_TO_COMPARE = 77  # the exit status of a check that this machine cannot make


# ---- PyTorch's side


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


def serve(arguments):
    """Reads how many steps to run, a number a line; answers each with a line of JSON."""
    baseline = memory_kilobytes('VmRSS')
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    now = time.process_time if arguments.threads == 1 else time.perf_counter
    autocast = torch.autocast('cpu', torch.bfloat16, enabled=arguments.precision == 'bf16')
    what, first, second = arguments.worker.split(':')
    if what == 'step':
        step = language_step(first, second, autocast)
    else:
        step = encoder_pass(first, int(second), autocast)
    step()
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = now()
            step()
            seconds.append(now() - start)
        peak = memory_kilobytes('VmHWM')
        print(json.dumps({'seconds': seconds, 'peak_bytes': (peak - baseline) * 1024}), flush=True)


# ---- The comparison


class Refused(Exception):
    """A rival does not do this; the text says why."""


class Rival:
    def __init__(self):
        self.seconds, self.peak_bytes, self.refused = [], 0, None

    def run(self, repeats):
        try:
            seconds, peak = self.measure(repeats)
        except Refused as reason:
            self.refused = str(reason)
        else:
            self.seconds += seconds
            self.peak_bytes = max(self.peak_bytes, peak)

    def result(self):
        if self.refused:
            return {'refused': self.refused}
        return {'ms': 1e3 * statistics.median(self.seconds), 'peak_bytes': self.peak_bytes, 'seconds': self.seconds}


class Ours(Rival):
    def __init__(self, case, arguments, precision='f32'):
        super().__init__()
        self.command = [arguments.build / 'bench', '--case=' + case, f'--threads={arguments.threads}',
                        '--precision=' + precision]

    def measure(self, repeats):
        done = subprocess.run(self.command + [f'--repeats={repeats}'], capture_output=True, text=True)
        if done.returncode == 2 and 'precision' in done.stderr:
            raise Refused(done.stderr.strip())
        if done.returncode != 0:
            sys.exit(f'{done.stderr.strip()}\nerror: {self.command[0]} {self.command[1]} failed')
        measured = json.loads(done.stdout)
        return measured['seconds'], measured['peak_rss_bytes']

    def stop(self):
        pass


class Torch(Rival):
    def __init__(self, case, arguments, precision='f32'):
        super().__init__()
        self.name, self.errors = case, tempfile.TemporaryFile('w+')
        self.process = subprocess.Popen(
            [sys.executable, __file__, '--worker', case, f'--threads={arguments.threads}',
             '--precision=' + precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=peer_environment(arguments))
        self.measure(0)  # waits until it has started, which would disturb the first round

    def measure(self, repeats):
        try:
            print(repeats, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            sys.exit(f'{self.errors.read().strip()}\nerror: PyTorch failed at {self.name}')
        measured = json.loads(answer)
        return measured['seconds'], measured['peak_bytes']

    def stop(self):
        self.process.kill()
        self.process.wait()


def peer_environment(arguments):
    """Without the settings that choose OpenBLAS's kernels for another processor, and with as many threads as asked for:
    torch.set_num_threads() does not limit the OpenBLAS under it. With --keep-memory the C library keeps what PyTorch
    frees; by itself it returns large blocks to the system and gets them back empty, page by page, at every step."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE')}
    threads = dict.fromkeys(('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'), str(arguments.threads))
    keep = dict.fromkeys(('MALLOC_MMAP_THRESHOLD_', 'MALLOC_TRIM_THRESHOLD_'), str(1 << 34))
    return environment | threads | (keep if arguments.keep_memory else {})


def step_group(shape, precision, repeats):
    def rivals(arguments):
        case = f'step:{shape}:softmax'
        return {'ours': Ours(case, arguments, precision), 'torch': Torch(case, arguments, precision)}

    return repeats, rivals, [(f'step, {shape}, {precision}: softmax', 'ours', 'torch')]


def encoder_group(length):
    def rivals(arguments):
        return {f'{kind}, {side.__name__}': side(f'encoder:{kind}:{length}', arguments)
                for kind in ('flexformer_n', 'softmax') for side in (Ours, Torch)}

    def row(ours, peer):
        return (f'encoder, N={length}: {ours} vs {peer}', f'{ours}, Ours', f'{peer}, Torch')

    return 1, rivals, [row('flexformer_n', 'flexformer_n'), row('flexformer_n', 'softmax'), row('softmax', 'softmax')]


# name: (calls a round, arguments -> rivals by name, [(row of the table, our rival, the peer)])
GROUPS = {
    'small': step_group('small', 'f32', 3),
    'big': step_group('big', 'f32', 1),
    'small-bf16': step_group('small', 'bf16', 3),
    'big-bf16': step_group('big', 'bf16', 1),
    'encoder': encoder_group(4096),
}


def compare_group(name, arguments):
    repeats, make_rivals, rows = GROUPS[name]
    rivals = make_rivals(arguments)
    try:
        for _ in range(arguments.rounds):
            for rival in rivals.values():
                if not rival.refused:
                    rival.run(repeats)
    finally:
        for rival in rivals.values():
            rival.stop()
    return [print_row(label, rivals[ours].result(), rivals[peer].result()) for label, ours, peer in rows]


def print_row(label, ours, peer):
    def figure(result, key, scale, digits):
        return f'{result[key] * scale:,.{digits}f}' if key in result else '-'

    def ratio(key):
        return peer[key] / ours[key] if key in ours and key in peer else None

    row = {'case': label, 'ours': ours, 'torch': peer, 'ratio': ratio('ms'), 'memory_ratio': ratio('peak_bytes')}
    shown = [f'{row[key]:.2f}' if row[key] else '-' for key in ('ratio', 'memory_ratio')]
    print(f"{label:46}{figure(ours, 'ms', 1, 1):>10}{figure(peer, 'ms', 1, 1):>10}{shown[0]:>8}"
          f"{figure(ours, 'peak_bytes', 1e-6, 0):>10}{figure(peer, 'peak_bytes', 1e-6, 0):>10}{shown[1]:>8}",
          flush=True)
    for side in (ours, peer):
        if 'refused' in side:
            print(f"    -: {side['refused']}", flush=True)
    return row


def compare_products(arguments):
    """Runs peer_openblas, which measures both sides itself; prints its lines as a table as they come."""
    command = [arguments.build / 'peer_openblas', f'--threads={arguments.threads}',
               f'--rounds={max(9, arguments.rounds)}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        about = process.stdout.readline()
        if about:
            about = json.loads(about)
            print(f"matrix products, GFLOP/s; {about['config']}, core {about['core']}")
            print(f"{'':30}{'ours':>10}{'OpenBLAS':>10}{'ratio':>8}")
        rows = []
        for line in process.stdout:
            row = json.loads(line)
            row['ratio'] = row['ours_gflops'] / row['openblas_gflops']
            rows.append(row)
            print(f"{row['case']:30}{row['ours_gflops']:10.1f}{row['openblas_gflops']:10.1f}{row['ratio']:8.2f}",
                  flush=True)
    if process.returncode != 0:
        sys.exit(process.returncode)  # it has said why
    means = {group: statistics.geometric_mean(row['ratio'] for row in rows if row['group'] == group)
             for group in dict.fromkeys(row['group'] for row in rows)}
    for group, mean in means.items():
        print(f"{'geometric mean, ' + group:50}{mean:8.2f}")
    return {'openblas': about, 'products': rows, 'geometric_means': means}


def compare_decoding(arguments):
    """Runs peer_llama2c, which measures a plain loop and ours itself, in turns, on one set of weights."""
    command = [arguments.build / 'peer_llama2c', f'--threads={arguments.threads}',
               f'--rounds={max(5, arguments.rounds)}']
    print('\ndecoding, tokens/s; in brackets the share of what the memory can be read at')
    print(f"{'':14}{'plain loop':>12}{'ours, f32':>18}{'bf16':>18}{'int8':>18}{'flexformer_n':>18}{'f32 / plain':>13}")
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            rows.append(row)
            cells = ''.join(f"{row[name + '_tokens_per_second']:11,.1f} [{row[name + '_of_read_rate']:.2f}]"
                            for name in ('f32', 'bf16', 'int8', 'flexformer_n'))
            ratio = row['f32_tokens_per_second'] / row['plain_tokens_per_second']
            print(f"{row['case']:14}{row['plain_tokens_per_second']:12,.1f}{cells}{ratio:13.2f}", flush=True)
    if process.returncode != 0:
        sys.exit(process.returncode)  # it has said why
    return {'decoding': rows}


def parse_arguments():
    names = ['gemm', 'decode', *GROUPS]
    parser = argparse.ArgumentParser(description='Compares this framework with PyTorch and OpenBLAS.',
                                     usage='make bench-peers ARGS="[--rounds=N] [--only=NAME,...] [--threads=N] '
                                           '[--keep-memory]"')
    parser.add_argument('--rounds', type=int, default=5, help='turns of each rival (5); products have at least 9')
    parser.add_argument('--only', default=','.join(names), help='of: ' + ', '.join(names))
    parser.add_argument('--threads', type=int, default=1, help='of each rival (1)')
    parser.add_argument('--keep-memory', action='store_true', help='PyTorch keeps freed memory, as we do; see the docs')
    parser.add_argument('--build', type=pathlib.Path, default=pathlib.Path('build/release'), help='where bench is')
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    parser.add_argument('--precision', default='f32', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(',')
    unknown = [name for name in arguments.only if name not in names]
    if unknown:
        parser.error(f"--only: there is no '{unknown[0]}'; there are {', '.join(names)}")
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error('--rounds and --threads must be at least 1')
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.worker:
        return serve(arguments)
    groups = [name for name in arguments.only if name in GROUPS]
    if groups and not importlib.util.find_spec('torch'):
        print('error: PyTorch is missing; on Debian: apt-get install python3-torch libopenblas-dev', file=sys.stderr)
        return NOTHING_TO_COMPARE
    clock = 'CPU time' if arguments.threads == 1 else 'wall-clock time'
    print(f'threads: {arguments.threads} ({clock}); ratio: the peer / ours, above 1 ours is better')
    result = {'threads': arguments.threads, 'rounds': arguments.rounds, 'keep_memory': arguments.keep_memory}
    if 'gemm' in arguments.only:
        result |= compare_products(arguments)
    if 'decode' in arguments.only:
        result |= compare_decoding(arguments)
    if groups:
        print(f"\n{'':46}{'ours, ms':>10}{'torch, ms':>10}{'ratio':>8}{'ours, MB':>10}{'torch, MB':>10}{'ratio':>8}")
        result['rows'] = [row for name in groups for row in compare_group(name, arguments)]
    path = arguments.build / 'bench_peers.json'
    path.write_text(json.dumps(result, indent=2) + '\n')
    print(f'\nwritten to {path}')
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
