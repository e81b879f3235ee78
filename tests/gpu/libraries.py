#!/usr/bin/env python3
"""Where cuBLASLt and cuDNN are: prints GALLEY_CUBLASLT=FILE and GALLEY_CUDNN=FILE for those that the dynamic loader does not find, and that lie in NVIDIA's
packages for Python. What is neither here nor there is said on stderr."""
import ctypes
import importlib.util
import os
import pathlib
import sys


def in_packages(name):
    """The file in site-packages/nvidia, of the latest version."""
    spec = importlib.util.find_spec('nvidia')
    places = list(spec.submodule_search_locations) if spec else []
    return max((x for place in places for x in pathlib.Path(place).glob(f'**/lib/{name}')), default=None)


def missing():
    """Variable and file of each library that has to be named."""
    out = {}
    for variable, names in (('GALLEY_CUBLASLT', ('libcublasLt.so.13', 'libcublasLt.so.12')), ('GALLEY_CUDNN', ('libcudnn.so.9',))):
        if variable in os.environ:
            continue
        for name in names:
            try:
                ctypes.CDLL(name)
                break
            except OSError:
                if file := in_packages(name):
                    out[variable] = str(file)
                    break
        else:
            print(f'{names[0]} is not here: its kernels are not tested ({variable}=FILE names it)', file=sys.stderr)
    return out


if __name__ == '__main__':
    for variable, file in missing().items():
        print(f'{variable}={file}')
