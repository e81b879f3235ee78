#!/usr/bin/env python3
"""Where cuBLASLt, cuDNN and NVRTC are: prints GALLEY_CUBLASLT=FILE, GALLEY_CUDNN=FILE and GALLEY_NVRTC=FILE for those that the dynamic loader does not find, and
that lie in NVIDIA's packages for Python. What is neither here nor there is said on stderr."""
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


def nvrtc_names(cudnn):
    """NVRTC of the CUDA that a cuDNN was built with: it compiles with no other."""
    try:
        library = ctypes.CDLL(cudnn)
        library.cudnnGetCudartVersion.restype = ctypes.c_size_t
        return [f'libnvrtc.so.{library.cudnnGetCudartVersion() // 1000}']
    except (OSError, AttributeError):
        return []


def missing():
    """Variable and file of each library that has to be named."""
    out = {}
    for variable, names in (('GALLEY_CUBLASLT', ['libcublasLt.so.13', 'libcublasLt.so.12']), ('GALLEY_CUDNN', ['libcudnn.so.9']), ('GALLEY_NVRTC', None)):
        if variable in os.environ:
            continue
        names = names or nvrtc_names(os.environ.get('GALLEY_CUDNN') or out.get('GALLEY_CUDNN') or 'libcudnn.so.9')
        for name in names:
            try:
                ctypes.CDLL(name)
                break
            except OSError:
                if file := in_packages(name):
                    out[variable] = str(file)
                    break
        else:
            if names:
                print(f'{names[0]} is not here: kernels that need it are not tested ({variable}=FILE names it)', file=sys.stderr)
    return out


if __name__ == '__main__':
    for variable, file in missing().items():
        print(f'{variable}={file}')
