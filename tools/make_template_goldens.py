#!/usr/bin/env python3
"""Writes tests/unit/data/template_goldens.jsonl: small templates and what jinja2 renders from them.

    python3 tools/make_template_goldens.py > tests/unit/data/template_goldens.jsonl

jinja2 3.1.6 is set up as transformers does it. The first line is the context that all snippets
share; each further line has a template and what it renders ("expected") or raises ("raises"). Each
snippet covers one corner of the language; add one whenever something differs.
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_generation_prompt": True,
    "messages": [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": "Hello  there\n"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "get_weather", "arguments": {"city": "Hanoi", "days": 3}}}]},
        {"role": "tool", "content": "31 °C", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "Thanks 🙂"}, {"type": "image"}]},
    ],
    "tools": [{"type": "function", "function": {
        "name": "get_weather", "description": "Weather \"now\" <&> 'today'",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"]}}}],
    "s": "Hello, World",
    "u": "Ünïcödé 東京 🙂",
    "empty": "",
    "lines": "one\ntwo\n\n  three\r\nfour",
    "i": 7,
    "neg": -7,
    "zero": 0,
    "f": 3.75,
    "big": 123456789012345678901234567890,
    "t": True,
    "n": None,
    "l": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "nested": [[1, 2], [3, [4, 5]]],
    "d": {"b": 1, "a": 2, "C": 3, "items": "shadow", "x y": 4},
    "floats": [1.0, 0.1, 1e16, 1e-5, 123456.789, -0.0, 1e22, 5e-324, 1.5e300],
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
               {"name": "Cid", "age": 30}],
}

SNIPPETS = r"""
plain text
{{ s }}
{{ missing }}|
{{ n }} {{ t }} {{ i }} {{ f }} {{ neg }} {{ big }}
{{ floats }}
{{ l }} {{ d }} {{ nested }}
{{ messages[2] }}
{{ "quotes ' and \"" }} {{ ["it's", 'say "x"', "both ' and \""] }}
{{ ["tab\t nl\n cr\r bs\\ nul\x00 bell\x07 é 🙂 \u200b \xa0"] }}
{{ (1,) }} {{ () }} {{ (1, 'a', none, true) }}
{{ {'a': 1, 2: 'b', none: true, (1,2): [3]} }}
{{ {} }} {{ [] }} {{ '' }}
{{ [undefined_thing] }}
{{ 'a' 'b' "c" }}
{{ 'a\nb\tc\\d\'e"f' }} {{ "\x41\u00e9\U0001F642\101" }} {{ '\d\q' }}
{{ 'line\
continued' }}
{{ 1_000 + 0x1f + 0o17 + 0b101 }} {{ 1.5e3 }} {{ 1e5 }} {{ 2.5E-3 }} {{ 1_0.5 }}
{{ 00 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ 8 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7 % -3 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 0.0 % -3 }}
{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ (-8) ** 2 }} {{ 0 ** 0 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 0 ** -1 }}
{{ true + true }} {{ true * 3 }} {{ -true }} {{ +true }} {{ true == 1 }} {{ true == 1.0 }} {{ 1 == 1.0 }} {{ '1' == 1 }}
{{ -i }} {{ +i }} {{ - -i }} {{ -f }}
{{ -s }}
{{ -missing }}
{{ i + f }} {{ i * f }} {{ i - f }} {{ i / 2 }}
{{ s + '!' }} {{ s * 2 }} {{ 2 * 'ab' }} {{ 'ab' * 0 }} {{ 'ab' * -1 }} {{ [1] * 2 }} {{ (1,) * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }}
{{ s + 1 }}
{{ 1 + s }}
{{ s + n }}
{{ s + missing }}
{{ missing + s }}
{{ [1] + (2,) }}
{{ {} + {} }}
{{ s - 1 }}
{{ s ~ 1 ~ n ~ t ~ [1] ~ missing ~ 2.0 }}
{{ 1 ~ 2 + 3 }}
{{ 'a' ~ 1 * 2 }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 3 > 2 >= 2 == 2 != 3 }} {{ 'a' < 'b' }} {{ 'a' < 'B' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ missing < 1 }}
{{ missing == missing }} {{ missing == none }} {{ missing == '' }} {{ missing != 1 }} {{ none == none }}
{{ [1, [2]] == [1, [2]] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1] == (1,) }} {{ 'é' == 'é' }}
{{ 1 in l }} {{ 9 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ '' in s }} {{ 'a' in d }} {{ 'z' in d }} {{ 1 in missing }} {{ (1,2) in [(1,2)] }}
{{ 1 in 's' }}
{{ 1 in 5 }}
{{ 'a' in none }}
{{ [1] in d }}
{{ not true }} {{ not '' }} {{ not not 1 }} {{ not 1 == 2 }} {{ not missing }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ 1 or missing.x }} {{ 0 and missing.x }} {{ [] or {} or 'last' }}
{{ true and not false or false }}
{{ 1 if true else 2 }} {{ 1 if false else 2 }} {{ 1 if false }}| {{ (1 if false) is defined }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ 'a' if missing else 'b' }} {{ 'x' ~ (1 if false) ~ 'y' }}
{{ (1 if false).x }}
{{ s[0] }}{{ s[-1] }}{{ s[100] }}| {{ u[0] }}{{ u[-1] }} {{ u[8:10] }}
{{ s[1:4] }} {{ s[:5] }} {{ s[7:] }} {{ s[-5:] }} {{ s[:-7] }} {{ s[::2] }} {{ s[::-1] }} {{ s[8:2:-2] }} {{ s[100:] }}| {{ s[5:2] }}| {{ s[-100:3] }}
{{ u[::-1] }} {{ u[1:9:3] }} {{ u | length }} {{ u[:3] }} {{ u[-3:] }}
{{ l[0] }} {{ l[-1] }} {{ l[5] }}| {{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[::2] }} {{ l[5:] }} {{ (1,2,3)[1:] }} {{ (1,2,3)[::-1] }}
{{ l[::0] }}
{{ l[1.0] }}|
{{ l['x'] }}| {{ l[none] }}|
{{ s['upper']() }} {{ d['items'] }} {{ d.items() | list }} {{ d['x y'] }} {{ d.x }}| {{ d.b }}
{{ d['get']('b') }}
{{ l.0 }} {{ nested.1.1.0 }}
{{ s[true] }} {{ l[false] }}
{{ s[1:n] }} {{ s[n:n:n] }}
{{ s['a':] }}|
{{ 5[0] }}|{{ none['x'] }}|{{ 5.5['a'] }}|
{{ missing.x }}
{{ missing['x'] }}
{{ missing[0] }}
{{ missing() }}
{{ missing.x.y }}
{{ d.zzz.y }}
{{ l.zzz.y }}
{{ n.zzz.y }}
{{ l[9].y }}
{{ s.foo() }}
{{ s() }}
{{ d() }}
{{ messages[0].content.missing.deep }}
{{ d.__class__ }}|
{{ d.__class__.x }}
{{ s.__len__() }}
{{ l.append(4) }}
{{ d.update({'q': 1}) }}
{{ d.pop('a') }}
{{ l.append is defined }} {{ d.pop is defined }} {{ d.get is defined }}
{{ s.upper is defined }} {{ s.nope is defined }} {{ s.upper is callable }} {{ s is callable }} {{ range is callable }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ 'hELLO wORLD'.capitalize() }} {{ "they're bill's".title() }}
{{ u.upper() }} {{ u.lower() }} {{ 'straße ﬁ ŉ'.upper() }} {{ 'ΑΣ ΣΑΣ'.lower() }} {{ 'ǆ ß'.title() }} {{ 'İ'.lower() | length }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.strip('ab') }}|{{ '東a東'.strip('東') }}|{{ ' \t\n\x1f\u3000x\u2003'.strip() }}|{{ 'x'.strip('') }}
{{ '  x '.strip(none) }}|
{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ '  a  b c '.split() }} {{ '  a  b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b'.split(maxsplit=0) }} {{ 'abc'.split('abc') }} {{ 'a--b'.split(sep='--') }}
{{ 'a,b,,c'.rsplit(',', 1) }} {{ '  a  b c '.rsplit(none, 1) }} {{ '  a  b c '.rsplit() }} {{ 'a,b'.rsplit(',') }}
{{ 'a'.split('') }}
{{ 'a'.split(1) }}
{{ lines.splitlines() }} {{ 'a\n'.splitlines() }} {{ 'a\n\nb'.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\u2028b\x0bc\x1dd'.splitlines() }}
{{ 'a.b.c'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ 'abc'.partition('.') }} {{ 'abc'.rpartition('.') }}
{{ s.startswith('He') }} {{ s.startswith('he') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{ s.endswith(('a', 'b')) }} {{ s.startswith('lo', 3) }} {{ s.endswith('lo', 0, 5) }} {{ s.startswith('') }} {{ s.startswith(()) }}
{{ s.startswith(1) }}
{{ s.startswith(['H']) }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 2) }} {{ s.replace('', '-') }} {{ 'aaa'.replace('aa', 'b') }} {{ s.replace('zz', '') }} {{ 'é'.replace('', '.') }} {{ 'abc'.replace('', '-', 2) }}
{{ s.replace(1, 'x') }}
{{ ', '.join(words) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ '-'.join({'a': 1, 'b': 2}) }}
{{ ','.join([1]) }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('z') }} {{ s.index('W') }} {{ u.find('京') }} {{ s.find('o', 5) }} {{ s.find('o', 0, 3) }} {{ s.find('') }} {{ s.rfind('') }} {{ s.find('', 50) }} {{ s.find('o', -5) }}
{{ s.index('z') }}
{{ s.count('l') }} {{ s.count('') }} {{ 'aaa'.count('aa') }} {{ s.count('l', 4) }} {{ 'éé'.count('') }}
{{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ '+'.zfill(3) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '*') }} {{ 'a'.center(4, '*') }} {{ 'ab'.center(5, '*') }} {{ 'abc'.center(2) }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removeprefix('y') }} {{ 'x'.removesuffix('') }}
{{ '12'.isdigit() }} {{ '1.2'.isdigit() }} {{ ''.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ '東'.isalpha() }} {{ ' \t'.isspace() }} {{ 'AB'.isupper() }} {{ 'aB'.islower() }} {{ 'a1'.islower() }} {{ '1'.isupper() }} {{ 'é'.isascii() }} {{ ''.isascii() }}
{{ 'a\tb'.expandtabs(4) }} {{ '\tx'.expandtabs() }}|
{{ 'ß'.casefold() is string }}
{{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.keys() }} {{ d.items() }} {{ d.copy() == d }}
{{ d.get() }}
{{ d.get([1]) }}
{{ l.index(2) }} {{ l.count(1) }} {{ (1,1).count(1) }} {{ words.index('cherry') }}
{{ l.index(9) }}
{{ d.keys()[0] }}|{{ d.items() | first }} {{ d.items() | length }} {{ {'a': 1, 'b': 2}.values() | sum }} {{ 'a' in d.keys() }} {{ 1 in d.values() }}
{{ "{} {} {}".format(1, 'a', none) }} {{ "{0} {1} {0}".format('x', 'y') }} {{ "{a}-{b}".format(a=1, b=2) }} {{ "{{}} {}".format(1) }} {{ "{0.role}".format(messages[0]) }} {{ "{0[1]}".format(l) }} {{ "{d[a]}".format(d=d) }}
{{ "{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+d}|{: d}".format('a', 'b', 'c', 'd', 42, 7, 7) }}
{{ "{:.2f} {:.0f} {:e} {:g} {:%} {:.1%} {:,} {:,.2f} {:_}".format(3.14159, 2.5, 12345.678, 0.00001, 0.25, 0.256, 1234567, 1234567.891, 1234567) }}
{{ "{:x} {:X} {:o} {:b} {:#x} {:#b} {:c}".format(255, 255, 8, 5, 255, 5, 65) }}
{{ "{:x} {:X} {:o} {:b} {:#x} {:#b}".format(255, 255, 8, 5, 255, 5) }}
{{ "{!r} {!s} {!r:>6}".format('a', 'b', 'c') }} {{ "{:{}}|".format('x', 5) }} {{ "{:.3}".format('abcdef') }} {{ "{:5}|{:5}|".format(1, 'a') }} {{ "{} {}".format(true, 1.0) }} {{ "{:>8}".format(1.5) }} {{ "{:.3}".format(1234.5) }}
{{ "{} {}".format(1) }}
{{ "{x}".format(1) }}
{{ "{".format(1) }}
{{ "}".format(1) }}
{{ "{:d}".format('x') }}
{{ "{:s}".format(1) }}
{{ "{:z}".format([1]) }}
{{ "%s %s" % ('a', 1) }} {{ "%d%%" % 50 }} {{ "%5s|%-5s|%05d|%+d|%x|%X|%o|%#x" % ('a', 'b', 42, 7, 255, 255, 8, 255) }} {{ "%.2f %e %g %.3s" % (3.14159, 12345.678, 0.1, 'abcdef') }} {{ "%(a)s-%(b)d" % {'a': 1, 'b': 2} }} {{ "%r" % 'x' }} {{ "%c%c" % ('a', 66) }} {{ "%s" % [1] }} {{ "%s" % none }} {{ "%d" % 3.99 }} {{ "%*d" % (5, 42) }} {{ "%i" % true }}
{{ "%s" % (1, 2) }}
{{ "%s %s" % 'a' }}
{{ "%d" % 'a' }}
{{ "%(a)s" % 1 }}
{{ "%z" % 1 }}
{{ "no fields" % [] }} {{ "x" % {} }}
{{ "x" % 1 }}
{{ '%s-%s' | format(1, 2) }} {{ '%(a)s' | format(a=5) }} {{ '%02d' | format(7) }}
{{ s | upper }} {{ s | lower }} {{ 'hello world-foo (bar) [baz] {qux} <x>' | title }} {{ 'fOO bAR' | capitalize }} {{ 5 | upper }} {{ n | lower }} {{ "they're" | title }}
{{ '  x ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ 5 | trim }} {{ missing | trim }}|
{{ s | length }} {{ l | count }} {{ d | length }} {{ missing | length }} {{ range(5) | length }} {{ '' | length }}
{{ 5 | length }}
{{ none | length }}
{{ l | map('string') | length }}
{{ l | join }} {{ l | join(', ') }} {{ people | join('/', attribute='name') }} {{ 'abc' | join('-') }} {{ [1, none, 'x', missing] | join('|') }} {{ [] | join(',') }} {{ d | join(',') }} {{ missing | join('x') }}|{{ l | join(1) }}
{{ 5 | join }}
{{ 'abc' | list }} {{ d | list }} {{ range(3) | list }} {{ (1, 2) | list }} {{ missing | list }} {{ 'é🙂' | list }}
{{ none | list }}
{{ l | first }} {{ l | last }} {{ s | first }} {{ s | last }} {{ d | first }} {{ d | last }} {{ [] | first }}| {{ '' | last }}| {{ range(3) | last }} {{ missing | first }}|
{{ ([] | first).x }}
{{ missing | last }}
{{ l | map('string') | last }}
{{ missing | default('x') }} {{ n | default('x') }} {{ n | default('x', true) }} {{ '' | d('y', boolean=true) }} {{ missing | default }}| {{ d.zz | default('q') }} {{ 0 | default(5) }} {{ s | default('x') }} {{ missing | default(default_value='k') }}
{{ missing.x | default('q') }}
{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 112 | replace(1, 'x') }} {{ s | replace('o', none) }} {{ s | replace(old='l', new='_') }}
{{ s | replace('l') }}
{{ d | items | list }} {{ missing | items | list }} {% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}
{{ s | items | list }}
{{ s | items is defined }}
{{ d | dictsort }} {{ d | dictsort(true) }} {{ d | dictsort(reverse=true) }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ {'a': 2, 'b': 1} | dictsort(false, 'value', true) }} {{ {} | dictsort }}
{{ {1: 2, 'a': 3} | dictsort }}
{{ l | dictsort }}
{{ {'a': 1} | dictsort(by='x') }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list }} {{ 'hello' | sort }} {{ [true, 0, 2] | sort }} {{ [[2, 1], [1, 5]] | sort }}
{{ [1, 'a'] | sort }}
{{ [none, 1] | sort }}
{{ [none, none] | sort }} {{ [{}, {}] | sort }}
{{ [[none, 1], [none, 0]] | sort }} {{ [none] | sort(reverse=true) }}
{{ [none, 'a'] | sort }}
{{ words | unique | list }} {{ words | unique(true) | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ people | unique(attribute='age') | map(attribute='name') | list }}
{{ [[1]] | unique | list }}
{{ l | reverse | list }} {{ s | reverse }} {{ u | reverse }} {{ d | reverse | list }} {{ (1,2) | reverse | list }} {{ l | map('string') | reverse }}
{{ 5 | reverse }}
{{ '42' | int }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 'ff' | int(0, 16) }} {{ '0xff' | int(base=16) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ true | int }} {{ none | int }} {{ [] | int(default=-1) }} {{ ' 7 ' | int }} {{ '1_000' | int }} {{ '-5' | int }} {{ '1e3' | int }} {{ '' | int }} {{ 'inf' | int }} {{ '0b11' | int(0, 2) }} {{ '+3' | int }}
{{ missing | int }}
{{ '3.5' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ 2 | float }} {{ '1e3' | float }} {{ none | float }} {{ 'inf' | float }} {{ 'nan' | float }} {{ true | float }} {{ ' 1.5 ' | float }} {{ '1_0' | float }} {{ '0x10' | float }}
{{ -5 | abs }} {{ neg | abs }} {{ -2.5 | abs }} {{ true | abs }}
{{ s | abs }}
{{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 42.55 | round(1, 'floor') }} {{ 42.51 | round(0, 'ceil') }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 0.5 | round }} {{ 1234 | round(-2) }} {{ 1250 | round(-2) }} {{ 1350 | round(-2) }} {{ 5 | round }} {{ 2.675 | round(2) }} {{ -2.5 | round }} {{ 1234.5 | round(-2) }} {{ 7 | round(1, 'floor') }}
{{ 1.5 | round(method='x') }}
{{ s | round }}
{{ 5 | string }} {{ 1.0 | string }} {{ none | string }} {{ [1, 'a'] | string }} {{ (5 | string) + 'x' }}
{{ l | min }} {{ l | max }} {{ words | min }} {{ words | max(case_sensitive=true) }} {{ people | min(attribute='age') }} {{ [] | max }}| {{ 'hello' | max }}
{{ [1, 'a'] | max }}
{{ l | sum }} {{ people | sum(attribute='age') }} {{ [] | sum }} {{ l | sum(start=10) }} {{ [1.5, 2] | sum }} {{ [[1], [2]] | sum(start=[]) }}
{{ ['a'] | sum }}
{{ [1,2,3,4,5] | batch(2) | list }} {{ [1,2,3] | batch(2, 'x') | list }} {{ [] | batch(2) | list }} {{ [1,2,3,4,5,6,7] | slice(3) | list }} {{ [1,2,3,4] | slice(3, 'x') | list }} {{ [1] | slice(3) | list }}
{% for g in people | groupby('age') %}{{ g.grouper }}:{{ g.list | map(attribute='name') | join(',') }};{% endfor %} {% for k, v in people | groupby('name') %}{{ k }}{{ v | length }} {% endfor %} {{ people | groupby('zz', default='none') | length }}
{{ people | groupby('age') | first }}
{{ s | indent }} {{ 'a\nb\n\nc' | indent }}| {{ 'a\nb' | indent(2, true) }}| {{ 'a\n\nb' | indent(2, blank=true) }}| {{ 'a\nb' | indent('> ', first=true) }}| {{ 'a\n' | indent }}| {{ '' | indent(first=true) }}|
{{ 5 | indent }}
{{ missing | indent }}
{{ '<a href="x">\'&amp;' | e }} {{ '<' | escape }} {{ '<' | safe }} {{ '<' | e | e }} {{ ('<' | e) ~ '<' }} {{ ('<' | safe) + '<' }} {{ '<' + ('<' | safe) }} {{ ('<' | safe) * 2 }} {{ '<' | forceescape }} {{ ('<' | e) | forceescape }} {{ 5 | e }}
{{ ('<b>' | safe).replace('b', '<') }} {{ ('<' | safe) | replace('<', '>') }} {{ ('a<' | safe).upper() + '<' }} {{ ['<', '>' | safe] | join('&') }} {{ ('&' | safe).join(['<', '>']) }} {{ ('<%s>' | safe) % '<' }} {{ ('<{}>' | safe).format('<') }} {{ ('<' | safe) is escaped }} {{ '<' is escaped }} {{ ('<x>' | safe)[0] + '<' }} {{ [('<' | safe)] }} {{ ('< ' | safe).strip() + '<' }} {{ ('a<b' | safe).split('<')[0] + '<' }} {{ ('x' | safe) | string is escaped }} {{ tools | tojson | safe }}
{{ 'a b&c/d?é' | urlencode }} {{ {'a b': 1, 'c': 'x&y'} | urlencode }} {{ [('a', 1)] | urlencode }}
{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '...', 0) }} {{ 'foo bar' | truncate(3, end='') }}
{{ 'one two, three_four 5 é' | wordcount }} {{ 'x' | center(5) }}|
{{ people | map(attribute='name') | list }} {{ people[:2] | map(attribute='tags.0') | map('default', '?') | list }} {{ people | map(attribute='zz', default='q') | list }} {{ words | map('upper') | list }} {{ words | map('replace', 'a', 'A') | join(' ') }} {{ l | map('string') | join }} {{ [[1,2],[3]] | map('first') | list }} {{ [] | map('upper') | list }} {{ nested | map('length') | list }} {{ [[3,1],[2]] | map('sort') | list }}
{{ l | map | list }}
{{ l | map('nope') | list }}
{{ l | map(foo=1) | list }}
{{ l | map('string') is defined }} {{ (l | map('string')) is iterable }} {{ (l | map('string')) is sequence }} {{ not (l | map('string')) }}
{{ [1,2,3,4] | select('odd') | list }} {{ [1,2,3,4] | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1] | reject | list }} {{ [1,2,3,4] | select('divisibleby', 2) | list }} {{ [1,2,3] | select('>', 1) | list }} {{ words | select('equalto', 'apple') | list }} {{ [1, 'a', none] | select('string') | list }} {{ [1,2,3] | select('in', [1, 3]) | list }} {{ [missing, 1] | select('defined') | list }}
{{ people | selectattr('tags') | map(attribute='name') | list }} {{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | rejectattr('age', '==', 30) | map(attribute='name') | list }} {{ people | selectattr('tags', 'defined') | list | length }} {{ messages | selectattr('role', 'in', ['user', 'tool']) | list | length }} {{ messages | rejectattr('tool_calls', 'undefined') | list | length }} {{ people | selectattr('age', '>', 26) | list | length }} {{ messages | selectattr('content', 'none') | list | length }}
{{ people | selectattr | list }}
{{ people | selectattr('age', 'nope') | list }}
{{ l | select('nope') | first }}
{{ (people | selectattr('age', 'equalto', 30) | first).name }} {{ people | map(attribute='name') | first }}
{% set g = l | map('string') %}{{ g | first }} {{ g | list }} {{ g | list }}
{{ l | tojson }} {{ d | tojson }} {{ s | tojson }} {{ u | tojson }} {{ n | tojson }} {{ t | tojson }} {{ f | tojson }} {{ floats | tojson }} {{ big | tojson }} {{ (1, 2) | tojson }} {{ 'a"b\\c\n\t\r\x08\x0c\x01\x7f/' | tojson }} {{ '<>&\'' | tojson }} {{ {} | tojson }} {{ [] | tojson }} {{ '\u2028' | tojson }}
{{ tools | tojson }}
{{ tools | tojson(indent=2) }}
{{ tools | tojson(indent=0) }}
{{ {'a': [], 'b': {}, 'c': [[]]} | tojson(indent=4) }}
{{ [1, {'a': 2}] | tojson(indent='--') }}
{{ d | tojson(sort_keys=true) }} {{ u | tojson(ensure_ascii=true) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(indent=1, separators=(', ', ': ')) }} {{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }} {{ d | tojson(false, none, none, true) }} {{ u | tojson(true) }}
{{ {(1,): 2} | tojson }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ range(3) | tojson }}
{{ d.items() | tojson }}
{{ d.items() | list | tojson }}
{{ (l | map('string')) | tojson }}
{{ namespace(a=1) | tojson }}
{{ {2: 1, 'a': 2} | tojson(sort_keys=true) }}
{{ 'inf' | float | tojson }} {{ 'nan' | float | tojson }}
{{ s | nope }}
{% if false %}{{ s | nope }}{% endif %}ok
{% if true %}{{ s | nope }}{% endif %}
{{ (s | nope) if false else 'fine' }}
{% if false %}{% for x in l %}{{ x | nope }}{% endfor %}{% endif %}
{{ s is nope }}
{% if false %}{{ s is nope }}{% endif %}ok
{{ s | upper('x') }}
{{ s | trim(bad=1) }}
{{ l | attr('index') is defined }} {{ d | attr('a') }}| {{ s | attr('upper') is callable }}
{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.zz is defined }} {{ d.a is defined }} {{ n is defined }}
{{ n is none }} {{ s is none }} {{ missing is none }} {{ n is not none }} {{ not n is none }}
{{ s is string }} {{ 5 is string }} {{ l is string }} {{ missing is string }}
{{ d is mapping }} {{ l is mapping }} {{ namespace() is mapping }} {{ missing is mapping }}
{{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ 5 is sequence }} {{ none is sequence }} {{ missing is sequence }} {{ range(2) is sequence }} {{ (1,) is sequence }} {{ d.items() is sequence }}
{{ l is iterable }} {{ s is iterable }} {{ d is iterable }} {{ 5 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ d.items() is iterable }} {{ namespace() is iterable }} {{ true is iterable }}
{{ 5 is number }} {{ 5.5 is number }} {{ true is number }} {{ '5' is number }} {{ 5 is integer }} {{ true is integer }} {{ 5.0 is integer }} {{ 5.0 is float }} {{ 5 is float }} {{ big is integer }}
{{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is false }}
{{ 3 is odd }} {{ 4 is even }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ -3 is odd }} {{ 2.0 is even }}
{{ s is odd }}
{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is gt(2) }} {{ 1 is le 1 }} {{ 1 is ge 2 }} {{ 1 is lessthan 2 }} {{ 3 is greaterthan 2 }} {{ 1 is in [1, 2] }} {{ 'a' is in 'abc' }} {{ 1 is sameas 1 }} {{ true is sameas true }} {{ none is sameas none }} {{ 1 is sameas true }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ 5 is lower }}
{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }}
{{ 1 is defined and 2 is defined }} {{ s is string or n is none }} {{ s is not string }} {{ (s is string) == true }}
{{ 'x' is string is defined }}
{{ 4 is divisibleby 2 and 5 is odd }}
{{ range(3) }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(-3) | list }} {{ range(10)[3] }} {{ range(10)[-1] }} {{ 3 in range(5) }} {{ range(1, 10, 3) }}
{{ range() }}
{{ range('a') }}
{{ range(1, 2, 0) }}
{{ range(100001) }}
{{ range(100000) | length }}
{{ range(1000000000000) }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=2) }} {{ dict([('x', 1)]) }} {{ dict() }}
{{ dict(1) }}
{{ dict([1]) }}
{{ namespace(a=1).a }} {{ namespace({'x': 2}).x }} {{ namespace().y }}| {{ namespace(a=1) }} {{ namespace(a=1)['a'] }}|
{{ raise_exception('custom: ' ~ i) }}
{{ raise_exception("multi\nline é") }}
{% if messages | length > 100 %}{{ raise_exception('no') }}{% endif %}fine
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %A %j %y') }} {{ strftime_now("%-d") }}
{{ strftime_now(5) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }} {{ c.current }}{% set _ = c.reset() %}{{ c.current }}
{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %} {% set j2 = joiner() %}{{ j2() }}x{{ j2() }}
{{ cycler() }}
{% for x in l %}{{ x }},{% endfor %}
{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }} {% endfor %}
{% for x in l %}{{ loop.previtem }}-{{ x }}-{{ loop.nextitem }};{% endfor %}
{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for x in [1,1,2,2,1] %}{{ loop.changed(x) }} {% endfor %}
{% for x in l %}{{ loop.cycle() }}{% endfor %}
{% for x in [] %}x{% else %}none{% endfor %} {% for x in l %}{{ x }}{% else %}none{% endfor %} {% for x in missing %}x{% else %}undef{% endfor %}
{% for x in n %}x{% endfor %}
{% for x in 5 %}x{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}:{{ loop.last }}:{{ loop.length }} {% endfor %} {% for x in l if x > 9 %}x{% else %}empty{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }};{% endfor %} {% for (a, b) in [(1, 2)] %}{{ a }}{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for c in 'é🙂x' %}[{{ c }}]{% endfor %} {% for x in 1, 2, 3 %}{{ x }}{% endfor %} {% for x in (1, 2) %}{{ x }}{% endfor %}
{% for x in [1,2,3,4,5] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1,2] %}{% for y in [1,2,3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1,2] %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}end
{% for x in [1, 2] %}{% break %}{% else %}else{% endfor %} {% for x in [1, 2] %}{% continue %}{% else %}else{% endfor %} {% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}else{% endfor %}
{% break %}
{% for x in l recursive %}{{ x }}{% endfor %} {% for x in [[1, [2, 3]], 4] recursive %}{% if x is iterable %}[{{ loop(x) }}]@{{ loop.depth }}{% else %}{{ x }}{% endif %}{% endfor %}
{% for x in l %}{{ loop(l) }}{% endfor %}
{% for x in l %}{% set y = x %}{% endfor %}{{ y }}|
{% set y = 0 %}{% for x in l %}{% set y = y + x %}{{ y }} {% endfor %}{{ y }}
{% set ns = namespace(y=0) %}{% for x in l %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}
{% set d2.x = 1 %}
{% set l2 = [] %}{% set l2.x = 1 %}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% if false %}{% set q = 2 %}{% endif %}{{ q }}| {{ q is defined }}
{% for x in l %}{% if loop.first %}{% set seen = x %}{% endif %}{{ seen }}{% endfor %}
{% for x in l %}{{ s }}{% set s = x %}{{ s }} {% endfor %}{{ s }}
{% for x in l %}{{ later }}{% endfor %}{% set later = 1 %}{{ later }}
{% for m in [1] %}{{ tools is defined }}{% endfor %}{% set tools = 5 %}{{ tools }}
{% if i %}{% set tools = none %}{% endif %}{{ tools }}
{% if zero %}{% set tools = none %}{% endif %}{{ tools is none }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set a, b = b, a %}{{ a }}{{ b }} {% set (c, e) = [3, 4] %}{{ c }}{{ e }}
{% set a, b = 1 %}
{% set x %}block {{ i }}{% endset %}[{{ x }}] {% set x | upper %}abc{% endset %}{{ x }} {% set x | replace('a', 'b') | upper %}aaa{% endset %}{{ x }}
{% set x %}{% set inner = 5 %}{{ inner }}{% endset %}{{ x }}{{ inner }}|
{% set ns = namespace() %}{% set ns.v %}text{% endset %}{{ ns.v }}
{% set x = 1, 2 %}{{ x }} {% set x = 5 if false else 6 %}{{ x }} {% set x = (1 if false) %}{{ x is defined }}
{% set 5 = 1 %}
{% set x.y.z = 1 %}
{% set %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}| {% with %}{% set z = 3 %}{{ z }}{% endwith %}{{ z }}|
{% with a = 1, b = a %}{{ b }}{% endwith %}|
{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 5) }} {{ m(1, c='y') }} {{ m(c=1, a=2, b=3) }} {{ m() }}|
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
{% macro m() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }} {{ m(**{'a': 3, 'b': 4}) }} {{ m(1, *[2]) }} {{ m(*[1], b=2) }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}
{% macro m() %}{{ i }}{{ g }}{% endmacro %}{% set g = 5 %}{{ m() }}
{% macro m() %}{% set i = 99 %}{{ i }}{% endmacro %}{{ m() }}{{ i }}
{% macro outer() %}{% macro inner() %}in{% endmacro %}[{{ inner() }}]{% endmacro %}{{ outer() }}{{ inner is defined }}
{% for x in l %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }} {% endfor %}
{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }} {{ m.name }} {{ m.arguments }}
{{ later() }}{% macro later() %}x{% endmacro %}
{% macro m() %}  text  {% endmacro %}[{{ m() }}] {{ m() | trim }} {{ m() | length }} {{ m() is string }}
{% macro m(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call m(1) %}body{% endcall %}
{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}
{% macro m(a, a) %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% call s %}{% endcall %}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | upper %}aXa{% endfilter %}
{% filter nope %}x{% endfilter %}
{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %} {% if 0 %}a{% elif 0 %}b{% else %}c{% endif %} {% if '' %}a{% endif %}{% if [] %}b{% elif {} %}c{% elif none %}d{% endif %}
{% if 1: %}x{% endif %}
{% print s, i %}
{% generation %}abc{% set q = 1 %}{{ i }}{% endgeneration %}{{ q }}|
{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}
{# comment #}a{# multi
line #}b{#- strip -#}   c
{#{{ x }}#}x
{# unclosed
{% raw %}{{ not }} {% jinja %}{# c #}{% endraw %}x
{%- raw -%}  a  {%- endraw -%}  b
{% raw %}x
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% do l %}
{% nope %}
{% endif %}
{% if 1 %}
{% for x in l %}
{% if 1 %}{% endfor %}
{{ s
{{ s }
{% if
{{ }}
{{ 1 + }}
{{ (1 }}
{{ [1, 2 }}
{{ {'a': 1 }}
{{ 'unclosed }}
{{ s[ }}
{{ s. }}
{{ s | }}
{{ a b }}
{{ 1 2 }}
{{ @ }}
{{ a ! b }}
{{ not }}
{{ f(1, a=2, 3) }}
{{ f(**d, 1) }}
{{ s.upper(1) }}
{{ s.upper(x=1) }}
{{ {'a': 1,} }} {{ [1, 2,] }} {{ (1, 2,) }} {{ dict(a=1,) }}
{{ {'a': {'b': {}}} }}
{{ s | upper | lower | title }} {{ (s | upper)[0] }} {{ s | upper ~ 'x' }} {{ 'a' ~ s | upper }} {{ -5 | abs }} {{ 1 + 2 | string | length }}
{{ messages[0]['role'] ~ ':' ~ messages[0].content }} {{ messages | map(attribute='role') | join(' ') }}
{{ messages[-1].content[0].text }} {{ messages[-1]['content'][1]['type'] }}
{{ messages[2].tool_calls[0].function.arguments | tojson }} {{ messages[2].tool_calls[0].function.arguments.items() | list }}
{{ 'a' in messages[0] }} {{ 'role' in messages[0] }} {{ messages[0].keys() | list }}
{{ (messages | last).role }} {{ messages[1:] | length }} {{ messages[::2] | map(attribute='role') | list }}
{{ [1, 2][0] }} {{ {'a': 5}['a'] }} {{ {'a': 5}.a }} {{ 'abc'[1] }} {{ (1, 2)[1] }} {{ [[1, 2], [3]][0][1] }}
{{ 10 // 3 * 3 + 10 % 3 }} {{ 2 * 3 % 4 }} {{ 1 - 2 - 3 }} {{ 100 / 10 / 2 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}
{{ big == big }} {{ big | string }} {{ big > 5 }}
{{ 1e400 }} {{ -1e400 }}
{{ 0.1 + 0.2 }} {{ 1e15 + 0.5 }} {{ 1 / 3 }} {{ 100.0 }} {{ 1e100 }} {{ 123456789.123 }} {{ 2.0 ** 70 }} {{ 1e-7 }}
{{ s is string and s | length > 3 }} {{ s | length == 12 and i == 7 }}
{{ l == [3, 1, 2] }} {{ l != [3] }} {{ d == d }} {{ s == 'Hello, World' }}
{{ not s in words }} {{ 'apple' in words and 'x' not in words }}
{{ [x, y] if false else 'lazy' }}
{{ True }} {{ False }} {{ None }} {{ true and none }}
{{ loop }}| {{ loop is defined }}
{{ people | map(attribute='tags.0') | list }}
{{ i[1:] }}
{{ d[1:] }}
{{ n[:1] }}
{{ missing[1:] }}
{{ l[:'x'] }}
{{ l[1.0:] }}
{{ l[missing:] }}
{% set messages = messages[1:] %}{{ messages | length }} {% set messages = [] %}{{ messages | length }}
{% for message in messages %}{% if message.role == 'user' %}U{% elif message.role == 'assistant' %}A{% else %}-{% endif %}{% endfor %}
{% for m in messages %}{% for c in m.content if m.content is not string and m.content %}{{ c.type }}{% endfor %}{% endfor %}
{% set ns = namespace(found=false, n=0) %}{% for m in messages | reverse %}{% if m.role == 'user' and not ns.found %}{% set ns.found = true %}{% set ns.n = loop.index0 %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }}
{% set ns = namespace(go=true) %}{% for x in [1, 2, 3] if ns.go %}{{ x }}{% set ns.go = x < 2 %}{% endfor %}
{% set ns = namespace(x=1) %}{% macro m() %}{% set ns.x = ns.x + 1 %}{% endmacro %}{{ m() }}{{ m() }}{% set ns = namespace(v=1) %}{% set ns.v = [ns] %}{{ ns }}
{{ ns.x }}
{{ ns.x }}
{{ lines | replace('\r\n', '\n') }} {{ lines.split('\n') }}
{{ '🙂' | length }} {{ '🙂é'[1] }} {{ 'e\u0301' | length }} {{ 'é'.upper() }}
{{ s.split(', ')[1].lower()[::-1] | title }}
{{ '%s' | format('a') | upper }} {{ ['a', 'b'] | map('upper') | join('+') | replace('+', ' and ') }}
{{ x.y if x is defined else 'no x' }} {{ (x or {}).get('y', 'dflt') }}
{{ [3, 1] | sort | first + 1 }}
{{ {'b': 1} | dictsort | map('first') | list }}
{{ ['x'] * 3 | length }}
{{ '1' | int + '2' | int }}
{{ 'a' < 'b' and 'b' < 'c' }} {{ 1 == 1 == 1 }} {{ 1 in [1] == true }}
{{ [1,2,3] is iterable and [1,2,3] is not string }}
{{ '%s' | format(1, a=2) }}
{{ 5 | truncate(3) }}
{{ 'abcdef' | truncate(2) }}
{{ [1, 2] | urlencode }}
{{ s | attr(5) }}
{{ missing | attr('x') }}
{{ '0x1f' | int(base=0) }} {{ '12' | int(base=0) }} {{ '1__0' | int }} {{ '_1' | int }} {{ 'z' | int(0, 36) }}
{{ '7' | int(0, 99) }}
{{ missing | float }}
{{ missing | abs }}
{{ s | round(0, 'ceil') }}
{{ "%+.3d|% d|%.5d|%-8.3f|%#o|%e|%G" % (7, 7, 42, 2.5, 8, 1.0, 1e-10) }}
{{ "%(a" % {} }}
{{ "%(b)s" % {'a': 1} }}
{{ "%" % () }}
{{ "%c" % 'ab' }}
{{ "%d" % missing }}
{{ "%x" % 1.5 }}
{{ "%-*d|" % (5, 42) }} {{ "%*d|" % (-5, 42) }} {{ "%ld" % 5 }}
{{ "%s %s" % ['a'] }}
{{ "{:f} {:F} {:e} {:G}".format(*(['inf', 'nan', 'inf', 'nan'] | map('float'))) }}
{{ "{:.2}|{:.10}|{:#.3g}|{:+.1f}|{:010.2f}|{:=+8d}|{:*=8d}|{:<08d}|{:08,d}".format(3.14159, 2.0, 1.0, 2.25, 3.14159, 42, 42, 42, 1234) }}
{{ "{:05}|{:5}|{:<5}|{:>05}".format('a', true, 1.5, 'b') }}
{{ "{:.}".format(1.0) }}
{{ "{:.2d}".format(1) }}
{{ "{:d}".format(none) }}
{{ "{!x}".format(1) }}
{{ "{0[x}".format({}) }}
{{ "{:{:{}}}".format(1, 2, 3) }}
{{ "{a.b.c}".format(a={'b': {'c': 5}}) }} {{ "{0[a][0]}".format({'a': [7]}) }} {{ "{} {x}".format(1, x=2) }}
{{ "{:,}".format(-1234567) }} {{ "{:,}".format(123) }} {{ "{:_.1f}".format(9876543.21) }} {{ "{:e}".format(0) }} {{ "{:d}".format(true) }} {{ "{:.0%}".format(0.125) }} {{ "{:%}".format(1) }}
{{ {1: 'a', 2: 'b', 3: 'c', 4: 'd', 5: 'e', 6: 'f', 7: 'g', 8: 'h', 9: 'i', 10: 'j', 'k': 'l'}[9] }} {{ {1: 'a', 2: 'b', 3: 'c', 4: 'd', 5: 'e', 6: 'f', 7: 'g', 8: 'h', 9: 'i', 10.5: 'j', (1, 2): 'l'}[(1, 2)] }} {{ {1: 'a', 2: 'b', 3: 'c', 4: 'd', 5: 'e', 6: 'f', 7: 'g', 8: 'h', 9: 'i', 1.0: 'z', true: 'y'} }}
{{ range(40) | map('string') | unique | list | length }} {{ (range(20) | list + range(25) | list) | unique | list | length }} {{ [1.5, 'a', none, 1.5, none, (1,), (1,), 'a', 2, 3, 4, 5, 6, 7, 1.5] | unique | list }}
{{ dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10, k=11).k }} {{ dict(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10, k=11).zz is defined }}
{{ [1, 2] == {} }} {{ {'a': 1} == {'a': 2} }} {{ {'a': 1} == {'b': 1} }} {{ range(3) == range(3) }} {{ (1, 2) == (1, 3) }} {{ d.items == d.items }} {{ big == 5 }} {{ big == 1.0 }}
{{ [1, [2, 3]] < [1, [2, 4]] }} {{ [1] < [1] }} {{ [] < [1] }} {{ (2,) > (1, 9) }} {{ true < 2 }} {{ 1.5 > 1 }} {{ 'b' > 'a' }}
{{ [[1], ['a']] | sort }}
{{ l[0:2][0] }} {{ 'x' in range(3) }} {{ 2 in (1, 2) }} {{ 'b' in ('a', 'b') }}
{{ {[1]: 2} }}
{{ {{}: 2} }}
{{ m(*5) }}
{% macro m() %}{{ varargs | length }}{% endmacro %}{{ m(*range(5)) }} {{ m(*'abc') }} {{ m(*[]) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**[1]) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{1: 2}) }}
{% macro m(caller) %}{{ caller }}{% endmacro %}{{ m(caller=5) }}
{% macro m(kwargs, varargs) %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ m(1, 2) }}
{{ range(1, a=2) }}
{{ dict({'a': 1}, {'b': 2}) }}
{{ dict([(1, 2, 3)]) }}
{{ raise_exception() }}
{{ strftime_now() }}
{{ s.join(5) }}
{{ s.find(none) }}
{{ s.count(none) }}
{{ s.removeprefix(5) }}
{{ s.replace('a', none) }}
{{ s.ljust('x') }}
{{ s.ljust(20, 'ab') }}
{{ s.zfill('x') }}
{{ s.partition('') }}
{{ s.endswith((1,)) }}
{{ s.count('l', -3) }} {{ s.count('l', 100) }}| {{ s.count('l', 0, -100) }} {{ s.index('l', 3, -2) }} {{ s.startswith('H', -100) }} {{ s.endswith('d', 0, 100) }} {{ s.rindex('o') }} {{ l.index(1, -3) }} {{ l.index(2, 1, 100) }}
{{ l.index(3, 1) }}
{{ (1, 2).index(9) }}
{{ 'aXbX'.rsplit('X') }} {{ 'aXbXc'.rsplit('X', 1) }} {{ 'aXbXc'.split('X', -1) }} {{ 'a b c'.split(' ', 1) }}
{{ -(2 ** 62) * 2 - 0 }} {{ 5 // -2 }} {{ 5 % -2 }} {{ -5 // -2 }} {{ 7 // -1 }} {{ 7 % -1 }}
{{ 2 ** 0.5 ** 2 }} {{ (-2) ** 3 }} {{ 2 ** 62 }} {{ 1.5 ** 2 }} {{ 4 ** -0.5 }}
{{ 0.0 ** -1 }}
{{ 1.5 % 0 }}
{{ 1.5 // 0 }}
{{ -1.5 // 1 }} {{ 1e300 * 1e10 }} {{ -0.0 }} {{ 0.0 // -2 }} {{ 3.0 // 1.1 }} {{ 6.0 % 0.1 }}
{{ [1, 2] * 1.5 }}
{{ [1] + 'a' }}
{{ none + 1 }}
{{ true - false }} {{ true / 2 }} {{ 5 / true }}
{{ +s }}
{{ +missing }}
{{ -none }}
{{ 15 | round(-1) }} {{ 25 | round(-1) }} {{ -15 | round(-1) }} {{ -16 | round(-1) }} {{ 5 | round(-30) }} {{ 1e10 | round(-3) }} {{ 123.456 | round(30) }}
{% for x in [1, 2, 3] %}{{ loop }}{% endfor %}
{% for x in l %}{{ loop.nope is defined }}{{ loop['index'] }}{{ loop | length }} {% endfor %}
{% for a.b in l %}{% endfor %}
{% for loop in l %}{% endfor %}
{% for x in l if loop.first %}{% endfor %}
{% for x in l %}{% set loop = 5 %}{% endfor %}
{% for x in [1, 2] %}{% set y %}{% if x == 1 %}{% continue %}{% endif %}in{% endset %}{{ y }}{% endfor %}
{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}
{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}
{% with a 1 %}{% endwith %}
{% macro %}{% endmacro %}
{% macro m(1) %}{% endmacro %}
{% macro m %}{% endmacro %}
{% for x l %}{% endfor %}
{% for in l %}{% endfor %}
{% set x = %}
{% if %}{% endif %}
{% else %}
{% 5 %}
{% print %}x
{{ s[1,2] }}|
{{ l[1:2, 3] }}
{{ s.5x }}
{{ '\é' }} {{ "\
" }} {{ '\0' | length }} {{ '\08' | length }}
{{ 0x }}
{{ 0x1G }}
{{ 1.e5 }}
{{ 1..2 }}
{{ 1 is 2 }}
{{ 1 is not }}
{{ x is defined is defined }}
{{ a if }}
{{ a if b else }}
{{ f(,) }}
{{ f(a=) }}
{{ {1} }}
{{ {1: } }}
{{ [,] }}
{{ (,) }}
{{ "{:08,}|{:012,.2f}|{:06,}|{:,}|{:+09,}".format(1234, 1234.5, 12, 999, 1000) }}
{% for x in l %}{{ x }}{% endfor %}{% set loop = 1 %}{{ loop }}
{% if false %}{{ s is nope }}{% endif %}{% if true %}{{ s is nope }}{% endif %}
{{ 1 is divisibleby }}
{{ 1 is odd(1, 2) }}
{{ s | replace('a', old='b') }}
{{ f(a=1, a=2) }}
{% for x in l %}{{ (loop.cycle)('a', 'b') }}{{ (loop.changed)(x) }}{% endfor %}
{{ (s.upper)() }} {{ (d.get)('a') }} {% set up = s.upper %}{{ up() }}
{{ 1.5 if 0.0 else 'f' }} {{ 'r' if range(0) else 'e' }} {{ 'y' if 0.1 else 'n' }}
{{ 3.0 % 0.7 }} {{ 1e308 ** 2 }}
{{ [[1, 2], [3, 4]] | map(attribute=0) | list }} {{ [[1, 2], [3, 4]] | sum(attribute=1) }}
{% set a.b = 1 %}
"""

WHITESPACE = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \nb\n  {% endif %}  \nc\n",
    "a\n  {%+ if true %}\nb\n  {%+ endif %}\nc",
    "a\n  {% if true +%}\nb\n{% endif +%}\nc",
    "a  \n  {%- if true -%}  \n  b  \n  {%- endif -%}  \n  c",
    "a {{- s -}} b",
    "a  {{ s }}\nb\n",
    "  {{ s }}  \n  {{ s }}\n\n",
    "{% if true %} x {% endif %}\n\ny",
    "x {% if true %}\ny{% endif %}",
    "\n\n{% if true %}\n\n x{% endif %}\n\n",
    "x\n\t {# c #}\ny",
    "x\n {#- c -#}\n y",
    "x\n {#+ c +#}\n y",
    "x {# c #} y\n{# d #}\nz",
    "a\r\nb\r{{ s }}\r\n{% if true %}\r\nc{% endif %}\r\n",
    "a\n\n\n",
    "{{ 'x\r\ny' }}",
    "{%- for x in l -%}\n  {{- x }}\n{%- endfor %}\n",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend\n",
    "{% for x in l %}  {{ x }}  {% endfor %}  end",
    "a\u00a0{%- if true %}b{% endif %}",
    "a\u3000\n \u2003{% if true %}b{% endif %}",
    "{%- macro m() -%}\n  x\n{%- endmacro -%}\n  [{{ m() }}]",
    "{% raw %}\n x {% endraw %}\ny",
    "  {% raw %}  x  {% endraw %}  y",
    "x\n  {%- raw %} y {% endraw -%}\n z",
    "{{ s }}{# a #}{# b #}\n{{ s }}",
    "  {%- set x = 1 -%}  {{ x }}",
    "x{{ '\n' }}{% if true %}\ny{% endif %}",
    "{{-s-}}",
    "{{ -1 }}{{-1}}",
    "{%if true%}x{%endif%}",
    "{%-if true-%}x{%-endif-%}",
    "a{%- if false %}b{% else -%}\n c{%- endif %}\nd",
    "{% if true %}a{% endif %}  \n  {% if true %}b{% endif %}",
    "\t{% if true %}\t{% endif %}\tx",
    "{# x #}  \n  {# y #}z",
    "{{ {'a': '}}'} }} %} }} {",
    "{ { {% if true %}{ }{% endif %} }}",
    "{{ '{{' }} {{ '%}' }} {{ \"{#\" }}",
    "{% set x = '%}' %}{{ x }}",
    "{{ [{'a': {}}] }}",
    "{% if true %}\n\n{% endif %}x",
    "a{% if true -%}   \n\n  b{% endif %}",
    "line one\n    {%- if true %}\n    line two\n    {%- endif %}\nline three",
    "",
    "\n",
    "{",
    "{{ 1 }}{",
    "{% for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
]

# Names that appear in comments of real templates, and longer pieces in their style.
LONGER = [
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'system' %}\n"
    "        {{- '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}\n"
    "    {%- elif message.content is string %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "{%- macro typed(p) -%}\n{%- if p.type == 'string' -%}str\n{%- elif p.type == 'integer' -%}int"
    "\n{%- else -%}any{%- endif -%}\n{%- endmacro -%}\n"
    "{%- for tool in tools %}\n{%- for name, p in tool.function.parameters.properties.items() %}\n"
    "{{ name }}: {{ typed(p) }}{{ '' if name in tool.function.parameters.required else '?' }}\n"
    "{%- if not loop.last %},{% endif %}\n{%- endfor %}\n{%- endfor %}",
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start|>' + message['role'] + '\n\n' + (message['content'] | string | trim) %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}",
    "{%- set ns = namespace(is_first=false, system_prompt='') -%}\n"
    "{%- for message in messages -%}{%- if message['role'] == 'system' -%}"
    "{%- set ns.system_prompt = message['content'] -%}{%- endif -%}{%- endfor -%}"
    "{{ bos_token }}{{ ns.system_prompt }}",
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% endfor %}",
    "{{ 'a' + ('b' if i > 5 else 'c') + ('d' if i < 5 else '') }}{{- '\\n' }}",
    "{% set content = messages[1].content %}{{ content.split('</think>')[-1].lstrip('\\n') }}"
    "{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
    "{% macro render(items, depth=0) %}{% for x in items %}{% if x is iterable and x is not string %}"
    "{{ render(x, depth + 1) }}{% else %}{{ '  ' * depth }}{{ x }};{% endif %}{% endfor %}"
    "{% endmacro %}{{ render(nested) }}",
]


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            lineno = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("_render")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(lineno)

        def _render(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime(2025, 7, 10, 12, 0, 0).strftime(format)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def main():
    env = environment()
    snippets = [line for line in SNIPPETS.split("\n") if line]
    joined, i = [], 0
    while i < len(snippets):  # a snippet whose line ends inside a tag or comment continues
        piece = snippets[i]
        while piece.endswith("\\") or piece.endswith("{# multi"):
            i += 1
            piece += "\n" + snippets[i]
        joined.append(piece)
        i += 1
    print(json.dumps({"context": CONTEXT}, ensure_ascii=False))
    for source in joined + WHITESPACE + LONGER:
        line = {"template": source}
        try:
            line["expected"] = env.from_string(source).render(**CONTEXT)
        except Exception as e:  # any Python exception is an error in the template
            line["raises"] = f"{type(e).__name__}: {e}"
        print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
