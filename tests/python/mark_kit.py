"""The mark by which run.toml is known as one's own, made here again: SipHash-2-4 with 128 bits by the user's key."""
import os
import struct

WORD = (1 << 64) - 1


def siphash(key, text):
    k, tail = struct.unpack('<2Q', key), len(text) % 8
    a, b, c, d = 0x736f6d6570736575 ^ k[0], 0x646f72616e646f6d ^ k[1] ^ 0xee, 0x6c7967656e657261 ^ k[0], 0x7465646279746573 ^ k[1]

    def turned(x, bits):
        return (x << bits | x >> 64 - bits) & WORD

    def rounds(count):
        nonlocal a, b, c, d
        for _ in range(count):
            a, c = (a + b) & WORD, (c + d) & WORD
            b, d, a = turned(b, 13) ^ a, turned(d, 16) ^ c, turned(a, 32)
            c, a = (c + b) & WORD, (a + d) & WORD
            b, d, c = turned(b, 17) ^ c, turned(d, 21) ^ a, turned(c, 32)

    padded = text + bytes(7 - tail) + bytes([len(text) & 255])
    for (word,) in struct.iter_unpack('<Q', padded):
        d ^= word
        rounds(2)
        a ^= word
    c ^= 0xee
    rounds(4)
    first = a ^ b ^ c ^ d
    b ^= 0xdd
    rounds(4)
    return '%016x%016x' % (first, a ^ b ^ c ^ d)


def key_file():
    state = os.environ.get('XDG_STATE_HOME') or os.path.join(os.environ['HOME'], '.local', 'state')
    return os.path.join(state, 'galley', 'key')


def unmarked(text):
    return text.split('\n', 1)[1] if text.startswith('mark = ') else text


def write_marked(path, text):
    """Writes run.toml as its owner would: with the mark that belongs to the text."""
    with open(key_file(), 'rb') as file:
        key = file.read()
    text = unmarked(text)
    with open(path, 'w') as file:
        file.write('mark = "%s"\n' % siphash(key, text.encode()) + text)
