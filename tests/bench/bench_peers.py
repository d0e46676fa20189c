#!/usr/bin/env python3
"""How fast this framework is beside PyTorch and OpenBLAS: the same work, on the same machine, in turns.

    make bench-peers ARGS="--rounds=5 --only=gemm,small --threads=1"

Every round runs all rivals of a group one after the other, ours as build/release/bench --case=NAME, PyTorch's in a
process that stays. What is compared is the median over all rounds: of CPU time on one thread, of wall-clock time on
more. A ratio is the peer's figure divided by ours, so above 1 we are faster or need less memory. Memory is the largest
resident memory of the process; of PyTorch's, what it had right after `import torch` is taken off.

A ratio counts only against a peer at its best. OpenBLAS, which PyTorch's float products use, picks its kernel by a list
of processors that were known when it was made, and takes later ones for old ones; so it is told which (right_core), and
where a process then runs another one there is no ratio. PyTorch is made to keep the memory that it frees, as we do.

PyTorch's models are in peer_torch.py; products alone are compared by peer_openblas.cpp.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from openblas_core import own_core, right_core

NOTHING_TO_COMPARE = 77  # the exit status of a check that this machine cannot make


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
        return {'ms': 1e3 * statistics.median(self.seconds), 'peak_bytes': self.peak_bytes,
                'seconds': self.seconds} | self.about()

    def about(self):
        return {}


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
        self.name, self.errors, self.core = case, tempfile.TemporaryFile('w+'), arguments.core
        self.page_faults = 0
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name('peer_torch.py'), case,
             f'--threads={arguments.threads}', '--precision=' + precision],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=peer_environment(arguments))
        self.run(0)  # waits until it has started, which would disturb the first round

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
        refuse_wrong_core('PyTorch', measured['core'], self.core)
        self.page_faults = measured['page_faults']
        return measured['seconds'], measured['peak_bytes']

    def about(self):
        return {'core': self.core, 'page_faults': self.page_faults}

    def stop(self):
        self.process.kill()
        self.process.wait()


def refuse_wrong_core(who, core, wanted):
    if core is None:
        raise Refused(f'{who} multiplies without OpenBLAS; on Debian: apt-get install libopenblas0-pthread')
    if wanted and core != wanted:
        raise Refused(f'{who} multiplies with the kernel for {core}, and not for {wanted}')


def peer_environment(arguments):
    """With the kernel that OpenBLAS shall run, and as many threads as asked for: torch.set_num_threads() does not limit
    the OpenBLAS under it. By itself the C library returns large blocks to the system and gets them back empty, page by
    page, at every step; so it is told to take nothing by mmap, to give nothing back, and to have one heap for all."""
    environment = {key: value for key, value in os.environ.items()
                   if key not in ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE') and not key.startswith('MALLOC_')}
    threads = dict.fromkeys(('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'), str(arguments.threads))
    keep = {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': str(1 << 34), 'MALLOC_TOP_PAD_': str(1 << 28),
            'MALLOC_ARENA_MAX': '1'}
    core = {'OPENBLAS_CORETYPE': arguments.core} if arguments.core else {}
    return environment | threads | core | (keep if arguments.memory == 'kept' else {})


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
    if 'core' in peer:
        print(f"    PyTorch: OpenBLAS's kernel for {peer['core'] or 'its own choice'}, "
              f"{peer['page_faults']:,.0f} page faults a step", flush=True)
    for side in (ours, peer):
        if 'refused' in side:
            print(f"    -: {side['refused']}", flush=True)
    return row


def compare_products(arguments):
    """Runs peer_openblas, which measures both sides itself; prints its lines as a table as they come."""
    command = [arguments.build / 'peer_openblas', f'--threads={arguments.threads}',
               f'--rounds={max(9, arguments.rounds)}']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=peer_environment(arguments)) as process:
        about = process.stdout.readline()
        if about:
            about = json.loads(about)
            print(f"matrix products, GFLOP/s; {about['config']}, kernel for {about['core']}")
            try:
                refuse_wrong_core('OpenBLAS', about['core'], arguments.core)
            except Refused as reason:
                process.kill()
                print(f'    -: {reason}')
                return {'openblas': about, 'refused': str(reason)}
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
                                           '[--memory=kept|returned] [--core=NAME]"')
    parser.add_argument('--rounds', type=int, default=5, help='turns of each rival (5); products have at least 9')
    parser.add_argument('--only', default=','.join(names), help='of: ' + ', '.join(names))
    parser.add_argument('--threads', type=int, default=1, help='of each rival (1)')
    parser.add_argument('--memory', choices=['kept', 'returned'], default='kept',
                        help='whether PyTorch keeps what it frees, as we do (kept), or gives it back as it comes')
    parser.add_argument('--core', default=right_core(), help="the kernel that OpenBLAS must run (this processor's)")
    parser.add_argument('--build', type=pathlib.Path, default=pathlib.Path('build/release'), help='where bench is')
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
    groups = [name for name in arguments.only if name in GROUPS]
    if groups and not importlib.util.find_spec('torch'):
        print('error: PyTorch is missing; on Debian: apt-get install python3-torch libopenblas-dev', file=sys.stderr)
        return NOTHING_TO_COMPARE
    clock = 'CPU time' if arguments.threads == 1 else 'wall-clock time'
    print(f'threads: {arguments.threads} ({clock}); ratio: the peer / ours, above 1 ours is better')
    environment = peer_environment(arguments)
    settings = ' '.join(f'{key}={value}' for key, value in environment.items() if key.startswith('MALLOC_'))
    print(f"OpenBLAS takes this processor for {own_core() or 'nothing: it is missing'}; "
          f"here it runs the kernel for {arguments.core or 'just that'}")
    print(f'PyTorch {"keeps the memory that it frees (" + settings + ")" if settings else "gives freed memory back"}')
    result = {'threads': arguments.threads, 'rounds': arguments.rounds, 'memory': arguments.memory,
              'core': arguments.core, 'own_core': own_core()}
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
