#!/usr/bin/env python3
"""What is said of chat templates that cannot be read or run: the line, and what of the template it is. Python and jinja2 refuse most of these, too;
the rest is what Galley's interpreter does not know ("not supported")."""
import json
import pathlib

from data_kit import begin, data_of, data_recipe, write_conversations
from errors_kit import case, cases, check_error, finish, galley

# What a template says: what is said of it. Where no line is named it is the first.
STATEMENTS = {
    '{% include "a" %}': "the tag 'include' is not supported or not expected",
    '\n{% endfor %}': "line 2: the tag 'endfor' is not supported or not expected",
    '{% set true = 1 %}': "'true' cannot be set",
    '{% set loop = 1 %}': "'loop' cannot be set",
    '{% set a, b = (1, 2, 3) %}': '3 values for 2 names',
    '{% set n = 1 %}{% set n.x = 2 %}': "cannot assign attribute on non-namespace object 'n'",
    '{% for x in [1] %}{{ loop.nextitem + 1 }}{% endfor %}': 'there is no such item in the loop',
    '{% for x in [1] %}{{ loop.cycle() }}{% endfor %}': 'no items for cycling given',
    '{% for x in [1] recursive %}{% endfor %}': 'recursive loops are not supported',
    '{% for x in 5 %}{% endfor %}': "'int' object is not iterable",
    '{% break %}': "'break' outside of a loop",
    '{% macro m((a, b)) %}{% endmacro %}': 'a parameter must be a name',
    '{% macro m(kwargs) %}{% endmacro %}': "'kwargs' in a macro is not supported",
    '{% macro m() %}{{ varargs }}{% endmacro %}': "'varargs' in a macro is not supported",
    '{% macro m(a, a) %}{% endmacro %}': "the parameter 'a' is there twice",
    '{% macro m(a=1, b) %}{% endmacro %}': 'a parameter without a default after one with a default',
    '{% macro m(a) %}{{ a + 1 }}{% endmacro %}{{ m() }}': "parameter 'a' was not provided",
    '{% macro (a, b)() %}{% endmacro %}': 'a macro needs a name',
    '{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}': "macro 'm' takes not more than 1 arguments",
    '{% macro m(a) %}{% endmacro %}{{ m(b=1) }}': "macro 'm' was given an argument that it does not take",
}
LEXER = {
    '{# a comment': 'missing end of comment tag',
    '{{ 1__0 }}': 'malformed number 1__0',
    '{{ 007 }}': 'malformed number 007',
    '{{ 9223372036854775808 }}': 'the integer 9223372036854775808 is not supported: it is beyond 64 bits',
    '{{ é }}': 'a character beyond ASCII outside of quotes is not supported',
    '{{ a ? b }}': "unexpected character '?'",
    '{{ (1] }}': "unexpected ']'",
    '{{ "a }}': 'a text in quotes has no end',
    '{{ "\\x4" }}': 'truncated \\x escape in a text',
    '{{ "\\N{DASH}" }}': '\\N in a text is not supported',
    '{{ "\\ud800" }}': 'the character \\ud800 in a text is not supported',
    '{{ 1 ': "the end of the template where '}}' was expected",
}
EXPRESSIONS = {
    '{{ range }}': 'the text of a function is not supported',
    '{{ self }}': "'self' is not supported",
    '{{ 4611686018427387904 * 4 }}': 'integers beyond 64 bits are not supported',
    '{{ 1 // 0 }}': 'division by zero',
    '{{ 1 % 0 }}': 'division by zero',
    '{{ 0 ** -1 }}': '0 cannot be raised to a negative power',
    '{{ (-8) ** 0.5 }}': 'complex numbers are not supported',
    '{{ "%s" % 1 }}': 'formatting a text with % is not supported',
    '{{ 1 + "a" }}': "'+' is not supported between 'int' and 'str'",
    '{{ [] < 1 }}': "'<' is not supported between 'list' and 'int'",
    '{{ nothing + 1 }}': "'nothing' is undefined",
    '{{ nothing.more }}': "'nothing' is undefined",
    '{{ range(*3) }}': "'int' object is not iterable",
    '{{ range(*[3], *[4]) }}': "'*' in a call is there twice",
    '{{ range(*[3], 4) }}': "an argument without a name after one with a name, or after '*'",
    '{{ dict(**3) }}': "what is after '**' must be a dict, not 'int'",
    '{{ dict(**{}, **{}) }}': "'**' in a call is there twice",
    '{{ dict(**{}, a=1) }}': "an argument after '**'",
    '{{ dict(**{1: 2}) }}': 'the names of arguments must be texts',
    '{{ dict(a=1, **{"a": 2}) }}': "the argument 'a' is given twice",
    '{{ dict(a=1, a=2) }}': "the argument 'a' is given twice",
    '{{ dict(a=1, 2) }}': "an argument without a name after one with a name, or after '*'",
    '{{ 3() }}': "'int' object is not callable",
    '{{ nothing() }}': "'nothing' is undefined",
    '{{ 1 is number is number }}': "tests cannot be chained with 'is'",
    '{{ 1 is prime }}': "the test 'prime' is not supported",
    '{{ 1 | groupby }}': "the filter 'groupby' is not supported",
    '{{ [1, 2][0, 1] }}': 'several indices are not supported',
    '{{ [1][] }}': 'an empty index is not supported',
    '{{ -"a" }}': "bad operand for a sign: 'str'",
    '{{ ("a" if false) + "b" }}': 'the inline if-expression on line 1 was false and has no else',
    '{{ 1 in "abc" }}': "'in <string>' requires string as left operand, not int",
    '{{ {[1]: 2} }}': "'list' as the key of a dict is not supported",
}
BUILTINS = {
    '{{ "9223372036854775808" | int }}': 'the integer 9223372036854775808 is not supported: it is beyond 64 bits',
    '{{ 1e300 | int }}': 'the integer of 1e+300 is not supported: it is beyond 64 bits',
    '{{ "11" | int(base=2) }}': 'int with another base than 10 is not supported',
    '{{ "a" | indent(101) }}': 'an indent of more than 100 is not supported',
    '{{ 1 | indent }}': "indent takes a text, not 'int'",
    '{{ "a" | indent(none) }}': 'indent takes a width, not None',
    '{{ 1 | length }}': "object of type 'int' has no len()",
    '{{ ([] | first) + 1 }}': 'the sequence was empty',
    '{{ [1] | tojson(ensure_ascii=true) }}': 'tojson with ensure_ascii is not supported',
    '{{ [1] | tojson(separators=["a"]) }}': 'separators must be two texts',
    '{{ [1, 2] | select | last }}': "'generator' object is not reversible",
    '{{ [1] | items | list }}': 'can only get item pairs from a mapping',
    '{{ [1] | dictsort }}': "dictsort takes a dict, not 'list'",
    '{{ {} | dictsort(by="a") }}': 'dictsort sorts by "key" or "value"',
    '{{ [1] | map | list }}': 'map takes the name of a filter, or attribute and default',
    '{{ [1] | map("sum") | list }}': "the filter 'sum' is not supported",
    '{{ [1] | selectattr | list }}': 'the name of an attribute is missing',
    '{{ dict([[1]]) }}': 'a dict is made from pairs',
    '{{ dict(1, 2) }}': 'dict takes at most 1 argument',
    '{{ namespace(1, 2) }}': 'namespace takes at most 1 argument',
    '{{ namespace(_a=1) }}': "a namespace cannot have the attribute '_a'",
    '{% set n = namespace() %}{% set n._a = 1 %}': "a namespace cannot have the attribute '_a'",
    '{{ range(1, 2, 0) }}': 'range() arg 3 must not be zero',
}
METHODS = {
    '{{ "a".strip("a", "b") }}': 'strip takes at most 1 arguments here',
    '{{ "a".startswith() }}': 'startswith needs 1 arguments',
    '{{ "a" | trim(of=1) }}': "trim does not take the argument 'of' here",
    '{{ "a".startswith(1) }}': "what a text starts or ends with must be a text, not 'int'",
    '{{ "a".split(",", "x") }}': "maxsplit must be an integer, not 'str'",
    '{{ "a".replace("", "b") }}': 'replacing an empty text is not supported',
    '{{ "a".split("") }}': 'split by an empty text',
    '{{ [1].append(2) }}': "access to attribute 'append' of 'list' object is unsafe.",
    '{{ "a".encode() }}': "'encode' of a 'str' is not supported",
    '{{ {}.a.b }}': "'dict object' has no attribute 'a'",
    '{{ [1][3] + 1 }}': "'list' has no such element",
    '{{ 5[1:] }}': "'int' object cannot be sliced",
    '{{ "abc"[::0] }}': 'slice step cannot be zero',
    '{{ ("a" | safe).x }}': "'x' of a text from the filter safe is not supported",
}
LIMITS = {
    '{% for i in range(4000) %}{% for j in range(4000) %}{% endfor %}{% endfor %}': 'the template takes more than 2000000 steps',
    '{{ ' + '(' * 130 + '1' + ')' * 130 + ' }}': 'nested more than 128 deep',
    '{{ range(1000001) }}': 'a list has more than 1000000 items',
    '{% set n = namespace(x="a") %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}': 'a text has more than 33554432 bytes',
    '{#' + '-' * 65536 + '#}': 'a template of more than 64 KiB is not supported',
}
TEMPLATES = {**STATEMENTS, **LEXER, **EXPRESSIONS, **BUILTINS, **METHODS, **LIMITS}

begin()
write_conversations('chats.jsonl', [[dict(role='user', content='tiva'), dict(role='assistant', content='moru')]])
path = data_recipe(data_of('chat', 'chats.jsonl'))


def said_of(template, *parts, **more):
    pathlib.Path('model/tokenizer_config.json').write_text(json.dumps(dict(eos_token='<|im_end|>', chat_template=template)))
    check_error(galley('data', path), 2, 'recipe.lua:3: data.chat: ', "the model's chat template", *parts, **more)


@cases({x[:60]: (x, says) for x, says in TEMPLATES.items()})
def template(_, of):
    text, says = of
    said_of(text, says if says.startswith('line ') or 'KiB' in says else f'line 1: {says}')


@case
def template_is_refused_when_it_is_read():
    said_of('{% for m in messages %}', 'cannot be used: line 1: ', hint='name another one')


@case
def template_that_writes_nothing_of_a_turn():
    pathlib.Path('model/tokenizer_config.json').write_text(json.dumps(dict(chat_template='{% for m in messages if m.role == "user" %}{{ m.content }}{% endfor %}')))
    check_error(galley('data', path), 2, 'recipe.lua:3: data.chat: ', "message 2, the assistant's: the chat template writes nothing of it")


@cases({'refuses': ('{{ raise_exception("only in pairs") }}', "the model's chat template: only in pairs"),
        'the day': ('{{ strftime_now("%Y") }}', "'strftime_now' is undefined")})
def template_that_runs(_, of):
    text, says = of
    said_of(text, says, **dict(hint='date = "') if 'strftime' in text else {})


@cases({
    'no list': ('5', 'the chat template returned integer and no list of parts'),
    'a part that is no text': ('{ "a", 5 }', 'the chat template returned integer as part 2'),
    'no reply': ('{ "a", { text = "b" } }', 'nothing in it counts in the loss'),
    'a part without text': ('{ { reply = true } }', 'the chat template returned a table without text as part 1'),
    'a part with another field': ('{ { body = "a" } }', "the chat template returned a table with 'body' = string as part 1"),
})
def function(_, of):
    """A template of the recipe's own."""
    returned, says = of
    check_error(galley('data', data_recipe(f'data.chat {{ files = "chats.jsonl", template = function(messages) return {returned} end }}')), 2, says)


finish()
