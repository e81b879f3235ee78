#!/usr/bin/env python3
"""Compares two versions of the SDK: what a plugin that was built for the old one could not live with, and what is new. Headers are compared by their structs,
their macros and their functions, ops by sdk/contracts.json.

    sdk/compare.py OLD NEW           # folders with include/galley and contracts.json: sdk/ of two checkouts, or two prefixes; or files that --record wrote
    sdk/compare.py --record SDK FILE # writes what is compared of SDK into FILE

Exit code 0: nothing breaks; 1: something does; 2: wrong arguments, or a folder has no SDK."""
import json
import pathlib
import re
import sys

WIDTHS = {'uint32_t': 4, 'int32_t': 4, 'galley_status': 4, 'char': 1, 'uint8_t': 1}
STRUCT = re.compile(r'typedef struct (galley_\w+) \{(.*?)\n\} \1;', re.S)
MACRO = re.compile(r'^#define (GALLEY_\w+)[ \t]+(\S.*)$', re.M)


def stop(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def find(folder, *names):
    for name in names:
        if (folder / name).exists():
            return folder / name
    stop(f'{folder}: has neither {" nor ".join(names)}')


def without_comments(text):
    return re.sub(r'/\*.*?\*/', '', text, flags=re.S).replace('\\\n', ' ')


def fields(body):
    """{name: (offset, type)} of a struct without padding."""
    out, at = {}, 0
    for text in without_comments(body).split(';'):
        text = ' '.join(text.split())
        if not text:
            continue
        function = re.match(r'(.*?)\(\*(\w+)\)\s*(\(.*\))$', text)
        plain = re.match(r'(.*?)(\w+)(\[\d+\])?$', text)
        name = function.group(2) if function else plain.group(2)
        kind = f'{function.group(1)}(*){function.group(3)}' if function else plain.group(1).strip() + (plain.group(3) or '')
        width = 8 if '*' in kind else WIDTHS.get(kind.split('[')[0].split()[0], 8)
        out[name] = (at, kind)
        at += width * int(plain.group(3)[1:-1] if plain and plain.group(3) else 1)
    return out


def headers(folder):
    if folder.is_file():
        record = json.loads(folder.read_text())
        return {name: {field: tuple(x) for field, x in of.items()} for name, of in record['structs'].items()}, record['macros']
    structs, macros = {}, {}
    for file in sorted(find(folder, 'include/galley').glob('*.h')):
        text = file.read_text()
        structs |= {name: fields(body) for name, body in STRUCT.findall(text)}
        macros |= {name: ' '.join(value.split()) for name, value in MACRO.findall(without_comments(text))}
    return structs, macros


def compare_headers(old, new, broken, added):
    (old_structs, old_macros), (new_structs, new_macros) = old, new
    for name, before in old_structs.items():
        now = new_structs.get(name)
        if now is None:
            broken.append(f'{name}: the struct is gone')
            continue
        for field, (at, kind) in before.items():
            if field not in now:
                broken.append(f'{name}.{field}: the field is gone')
            elif now[field][1] != kind:
                broken.append(f'{name}.{field}: was {kind}, is {now[field][1]}')
            elif now[field][0] != at:
                broken.append(f'{name}.{field}: was at byte {at}, is at {now[field][0]}')
        added += [f'{name}.{field}' for field in now if field not in before]
    added += [name for name in new_structs if name not in old_structs]
    for name, value in old_macros.items():
        growing = name.endswith('_KNOWN') or name in ('GALLEY_ABI_MINOR', 'GALLEY_ABI_MAJOR')
        if name not in new_macros:
            broken.append(f'{name}: the macro is gone')
        elif new_macros[name] != value and not growing:
            broken.append(f'{name}: was {value}, is {new_macros[name]}')
    added += [name for name in new_macros if name not in old_macros]


def contracts(folder):
    if folder.is_file():
        return json.loads(folder.read_text())['ops']
    return json.loads(find(folder, 'contracts.json', 'share/galley/contracts.json').read_text())


def compare_operands(op, noun, before, now, broken, added):
    for i, (a, b) in enumerate(zip(before, now)):
        if a != b:
            broken.append(f'{op}: {noun} {i} was {json.dumps(a)}, is {json.dumps(b)}')
    for rule in before[len(now):]:
        broken.append(f'{op}: {noun} {rule["name"]} is gone')
    for rule in now[len(before):]:
        optional = {'optional', 'variadic'} & set(rule['flags'])
        (added if optional else broken).append(f'{op}: {noun} {rule["name"]}' + ('' if optional else ' is new and not optional'))


def compare_contracts(old, new, broken, added):
    for op, before in old.items():
        now = new.get(op)
        if now is None:
            broken.append(f'{op}: the op is gone')
            continue
        for noun in ('input', 'output'):
            compare_operands(op, noun, before[noun + 's'], now[noun + 's'], broken, added)
        attributes = {a['name']: a for a in now['attributes']}
        for a in before['attributes']:
            b = attributes.pop(a['name'], None)
            if b is None:
                broken.append(f'{op}: attribute {a["name"]} is gone')
            elif a != b:
                broken.append(f'{op}: attribute {a["name"]} was {json.dumps(a)}, is {json.dumps(b)}')
        for name, b in attributes.items():
            (broken if b['required'] else added).append(f'{op}: attribute {name}' + (' is new and required' if b['required'] else ''))
        for key in ('flags', 'grain', 'gradient'):
            if before[key] != now[key]:
                gained = key == 'gradient' and now[key]
                (added if gained else broken).append(f'{op}: {key} was {json.dumps(before[key])}, is {json.dumps(now[key])}')
    added += [f'{op}: the op' for op in new if op not in old]


def record(folder, file):
    """An entry a line, so that a change of the record is readable, too."""
    structs, macros = headers(folder)
    parts = [f'"{name}": {{\n' + ',\n'.join(f'{json.dumps(key)}: {json.dumps(value, sort_keys=name == "ops")}' for key, value in sorted(of.items())) + '\n}'
             for name, of in (('structs', structs), ('macros', macros), ('ops', contracts(folder)))]
    file.write_text('{\n' + ',\n'.join(parts) + '\n}\n')


def main():
    if '--help' in sys.argv:
        print(__doc__)
        return
    if len(sys.argv) == 4 and sys.argv[1] == '--record':
        return record(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    if len(sys.argv) != 3:
        stop(__doc__)
    old, new = map(pathlib.Path, sys.argv[1:])
    broken, added = [], []
    compare_headers(headers(old), headers(new), broken, added)
    compare_contracts(contracts(old), contracts(new), broken, added)
    for title, lines in (('breaks what was built before', broken), ('new', added)):
        print(f'{len(lines)} {title}')
        for line in lines:
            print(f'  {line}')
    sys.exit(1 if broken else 0)


main()
