#!/usr/bin/env python3
"""Writes short conversations as JSON lines, from tables in this file: the same file each time, about 60 tokens a line.

Usage: conversations.py OUT.jsonl [COUNT]     (200 conversations by default)"""
import json
import random
import sys

things = {'a kettle': ('boils water', 'the kitchen', 'steel'), 'a ladder': ('reaches high places', 'the shed', 'wood'), 'a compass': ('shows where north is', 'a pocket', 'brass'),
          'an umbrella': ('keeps off the rain', 'the hall', 'nylon'), 'a lantern': ('lights the way', 'the porch', 'glass'), 'a rope': ('ties things together', 'the boat', 'hemp'),
          'a drum': ('gives the beat', 'the stage', 'skin'), 'a sieve': ('parts the coarse from the fine', 'the kitchen', 'wire'), 'a loom': ('weaves cloth', 'the workshop', 'oak'),
          'a map': ('shows where things are', 'the drawer', 'paper'), 'a scale': ('weighs goods', 'the shop', 'iron'), 'a bell': ('calls people together', 'the tower', 'bronze'),
          'a needle': ('joins cloth with thread', 'the basket', 'steel'), 'a telescope': ('brings far things near', 'the roof', 'glass'), 'a plough': ('turns the soil', 'the barn', 'iron')}
asks = ['What is {x} for?', 'Tell me what one does with {x}.', 'Why would anybody keep {x}?', 'Explain {x} to a child.']
tells = ['{X} {use}.', 'It {use}; that is what {x} is for.', 'One keeps {x} because it {use}.', '{X} {use}, and nothing else does it as well.']
where = ['Where do I find one?', 'And where is it kept?', 'Where would you look for it?']
there = ['Look in {place}.', 'It is kept in {place}, as a rule.', 'In {place}, most of the time.']
made = ['What is it made of?', 'Which material is it?']
of = ['Mostly of {stuff}.', 'Of {stuff}, as it has been for centuries.', 'The best ones are of {stuff}.']


def conversation(r):
    x, (use, place, stuff) = r.choice(sorted(things.items()))
    fill = dict(x=x, X=x[0].upper() + x[1:], use=use, place=place, stuff=stuff)
    turns = [(asks, tells), (where, there), (made, of)][:r.randint(1, 3)]
    messages = []
    for question, answer in turns:
        messages += [{'role': 'user', 'content': r.choice(question).format(**fill)}, {'role': 'assistant', 'content': r.choice(answer).format(**fill)}]
    return {'messages': messages}


def main():
    r = random.Random(20)
    with open(sys.argv[1], 'w', encoding='utf-8') as out:
        for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 200):
            out.write(json.dumps(conversation(r)) + '\n')


if __name__ == '__main__':
    main()
