#!/usr/bin/env python3
"""A plugin that builds a wrong graph is found out before anything runs: exit code 4, with the plugin, the node, its op and what is wrong with it."""
import json

from galley_test import binary, case, cases, check, finish, fresh_folder, from_config, run, use
from steps_kit import recipes, refused

fresh_folder()
model = from_config('gpt2', vocab_size=61, n_positions=32, n_embd=32, n_layer=1, n_head=4)
written = recipes(model, 'data.random {}', batch=2, length=8, steps=2)
plugins = ['--plugin-path', binary / 'tests' / 'plugins' / 'misbuilds']
adamw, line = use('adamw', lr=1e-3), 'misbuilds (wrong.lua:'
mistakes = {
    'gradient shape': ("op 'tinker'", "node 'tinkered'", "f32(1)", 'f32(32)'),
    'gradient nothing': ("op 'tinker'", "node 'tinkered'", 'nothing for input 0'),
    'gradient unwritten': ("op 'tinker'", "node 'tinkered'", 'none of its nodes writes it'),
    'gradient throws': ("op 'tinker'", "node 'tinkered'", 'of no use'),
    'no extent': ("tensor 'nothing': an extent of 0; the least is 1",),
    'no element': ("tinker_none: 'none' would have no element, (4,0)"),
    'overwrite': ("after pass 'update'", line, "op 'scale'", 'overwrites', "report it to the plugin's author"),
    'output shape': ("after pass 'update'", line, "op 'scale'", 'gradient_factor', 'f32(1)'),
    'input shape': ("after pass 'update'", line, "op 'tinker_step'", 'x and y differ in size'),
    'twice': ("after pass 'update'", line, "op 'tinker_step'", 'which is another operand of it as well'),
    'surplus': ('wrong.lua:', "op 'scale'", 'has 2 outputs; the op has 1'),
    'input': ("after pass 'update'", line, "op 'tinker_step'", "writes 'input_ids', which nodes only read"),
    'frozen': ("after pass 'update'", line, "op 'tinker_step'", 'which is frozen'),
    'gone': ("after pass 'update'", line, "op 'scale'", 'which is gone when the update part runs'),
}


@cases(mistakes)
def mistake(how, parts):
    path = written('wrong', use('misbuilds', how=how), adamw, *([use('freeze', patterns='*.wte.*')] if how == 'frozen' else []))
    refused(path, *parts, 'misbuilds', code=4, flags=plugins)
    refused(path, *parts, 'misbuilds', code=4, command='train', flags=('--out', 'out', *plugins))


finish()
