#!/usr/bin/env python3
# label: all
"""galley check of plugins that are built with AddressSanitizer and UndefinedBehaviorSanitizer: their runtimes are loaded, nothing is found in a plugin that is right, and what
they report of one that is not is a finding, in whichever test it comes."""
import json
import pathlib
import shutil
import subprocess
import sys

from galley_test import cases, check, every, finish, fresh_folder, galley, skip, source
from sdk_kit import command, install, outside

fresh_folder()
if 'Free Software Foundation' not in subprocess.run(['c++', '--version'], capture_output=True, text=True).stdout:
    skip('sanitized', 'the compiler is not GCC')
    sys.exit(77)
FLAGS = '-fsanitize=address,undefined -g1'
CREATE = 'explicit SignSgd(const Options& options) : momentum_(options.number("momentum")) {}'
FAULTS = {
    'right': None,
    'heap': ('''explicit SignSgd(const Options& options) : momentum_(options.number("momentum")) {
    const std::vector<double> room(3, momentum_);
    for (volatile size_t i = 0; i <= room.size(); ++i) momentum_ = room.data()[i] > 2 ? 0 : momentum_;
  }''', 'AddressSanitizer: heap-buffer-overflow'),
    'undefined': ('''explicit SignSgd(const Options& options) : momentum_(options.number("momentum")) {
    volatile int largest = 2147483647;
    largest = largest + 1;
  }''', 'runtime error: signed integer overflow'),
}


@cases(FAULTS)
def sanitized(name, fault):
    install()
    folder = outside / name
    shutil.copytree(source / 'sdk/templates/optimizer', folder)
    if fault:
        text = (folder / 'plugin.cpp').read_text()
        check(CREATE in text, text)
        (folder / 'plugin.cpp').write_text(text.replace(CREATE, fault[0]))
    command('cmake', '-S', folder, '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={outside / "prefix"}', f'-DCMAKE_CXX_FLAGS={FLAGS}', f'-DCMAKE_MODULE_LINKER_FLAGS={FLAGS}')
    command('cmake', '--build', folder / 'build', '--parallel', '2')
    r = galley('check', folder / 'build/plugins/signsgd', '--json', 'check.json', timeout=200)
    said = json.loads(pathlib.Path('check.json').read_text())
    check('opened under AddressSanitizer, UndefinedBehaviorSanitizer' in r.stdout, r.stdout)
    if not fault:
        return check(r.returncode == 0 and not said['findings'], r.stdout)
    found = {t['test']: t['findings'] for t in said['tests'] if t['findings']}
    check(r.returncode == 4 and {'strategy signsgd', 'training with signsgd'} == set(found), r.stdout)
    check(every(fault[1] in f['sentence'] and 'whatever they report is a finding' in f['rule'] for f in sum(found.values(), [])), found)


finish()
