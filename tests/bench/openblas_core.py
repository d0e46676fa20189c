"""Which kernel OpenBLAS runs, and which it should."""
import ctypes
import os
import subprocess
import sys


def core_name(library):
    library.openblas_get_corename.restype = ctypes.c_char_p
    return library.openblas_get_corename().decode()


def right_cores():
    """OpenBLAS's names for kernels with the widest vectors that this processor has; none: whatever it takes itself."""
    try:
        with open('/proc/cpuinfo') as cpuinfo:
            lines = dict(line.split(':', 1) for line in cpuinfo if ':' in line)
    except OSError:
        return []
    about = {key.strip(): value.split() for key, value in lines.items()}
    flags, maker = about.get('flags', []), ''.join(about.get('vendor_id', []))
    if 'avx512f' in flags:
        return ['SkylakeX', 'Cooperlake', 'SapphireRapids']
    if 'avx2' in flags and 'fma' in flags:
        return ['Zen', 'Haswell'] if maker == 'AuthenticAMD' else ['Haswell']
    return ['Sandybridge'] if 'avx' in flags else []


def right_core():
    """The kernel that OpenBLAS shall run: its own choice where that is right."""
    right, own = right_cores(), own_core()
    return own if own in right or not right else right[0]


def own_core():
    """What OpenBLAS takes this processor for if nobody tells it; None where it is missing."""
    environment = {key: value for key, value in os.environ.items() if key != 'OPENBLAS_CORETYPE'}
    asked = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    return asked.stdout.strip() or None


if __name__ == '__main__':
    print(core_name(ctypes.CDLL('libopenblas.so.0')))
