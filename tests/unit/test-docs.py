#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""README.md and the manual page say what the program and the build say: options, messages,
dependencies, test suites, and links that lead somewhere."""
import glob
import os
import re
import sys

TOP = os.environ.get('FOLDFS_SRC') or os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                   '../..')
C_STRING = r'"((?:[^"\\]|\\.)*)"'


def read(path):
    with open(os.path.join(TOP, path), encoding='utf-8') as file:
        return file.read()


def expect(condition, text):
    """A parser that finds nothing would make every comparison succeed."""
    if not condition:
        raise ValueError(text)


def between(text, first, last):
    """What is in TEXT after the line that FIRST matches and before the next that LAST does."""
    start = re.search(first, text, re.MULTILINE)
    expect(start, f'no line like {first}')
    end = re.compile(last, re.MULTILINE).search(text, start.end())
    return text[start.end():end.start() if end else len(text)]


# ---- the sources ----

def c_text(literals):
    """The text of adjacent string literals."""
    return ''.join(re.findall(C_STRING, literals)).replace(r'\"', '"').replace(r'\n', '\n')


def parsed_options():
    """Options in the table that src/options.c hands to libfuse's parser, without their values."""
    table = between(read('src/options.c'), r'^static const struct fuse_opt specs\[\]', r'^};')
    return {name.split('=')[0]
            for name in re.findall(rf'(?:OPTION|FUSE_OPT_KEY)\({C_STRING}', table)}


def usage_options():
    """{option: its value as in the usage, or ''}."""
    text = c_text(between(read('src/options.c'), r'^static const char usage_text\[\] =', r';$'))
    options = {}
    for line in re.findall(r'^ {4}(-\S.*)', text, re.MULTILINE):
        for word in re.split(r' {2,}', line)[0].removeprefix('-o ').split(', '):
            name, _, value = word.partition('=')
            options[name] = value
    return options


def messages():
    """{format of a line that the program can say: file}."""
    call = re.compile(rf'\b(?:say\(\s*OPTIONS_\w+,|(?:log_line|say_later)\([^;"]*?,)\s*((?:{C_STRING}\s*)+)')
    found = {}
    for path in glob.glob(os.path.join(TOP, 'src', '**', '*.c'), recursive=True):
        with open(path, encoding='utf-8') as file:
            for literals, _ in call.findall(file.read()):
                found[c_text(literals)] = os.path.relpath(path, TOP)
    for text in re.findall(f'return {C_STRING}', between(
            read('src/session.c'), r'^static const char \*index_errno_text', r'^}')):
        found['index directory %s: ' + text] = 'src/session.c'
    expect(found.pop('%s', None), 'libfuse is not passed on')  # in words of its own
    return found


def as_pattern(text):
    """What foldfs.8 has in place of a format: a word in capitals for each directive."""
    parts = re.split(r'%(?:ll|[lhzj])?[a-zA-Z]', text)
    return '[A-Z]+'.join(re.escape(part) for part in parts)


# ---- the documents ----

def manual_section(title):
    return between(read('man/foldfs.8'), rf'^\.Sh {title}$', r'^\.Sh ')


def manual_options():
    names = set()
    for item in re.findall(r'^\.It (Fl .*)', manual_section('OPTIONS'), re.MULTILINE):
        names |= set(re.findall(r'Fl o Cm (\w+)', item))
        names |= {'-' + name for name in re.findall(r'Fl ([\w-]+)', item) if name != 'o'}
    return names


def manual_messages():
    items = re.findall(r'^\.It "(.*)"$', manual_section('DIAGNOSTICS'), re.MULTILINE)
    return [item.replace(r'\(dq', '"') for item in items]


def readme_rows(heading):
    """Cells of the tables under HEADING; their heads and rules are none of it."""
    text = between(read('README.md'), rf'^#+ {heading}$', r'^#+ ')
    tables = re.findall(r'^\|.*\n\|[-|]+\|\n((?:\|.*\n)+)', text, re.MULTILINE)
    expect(tables, f'no table under {heading}')
    return [[cell.strip().replace(r'\|', '|') for cell in re.split(r'(?<!\\)\|', line)[1:-1]]
            for table in tables for line in table.splitlines()]


def in_backticks(cell):
    return re.findall('`([^`]*)`', cell)


def readme_options():
    """{option: its value, or ''}."""
    words = [word for row in readme_rows('Options') for word in in_backticks(row[0])]
    return {name: value for name, _, value in
            (word.removeprefix('-o ').partition('=') for word in words)}


# ---- the build ----

def listed_packages():
    """(set, Debian package) of contrib/packages."""
    rows = [line.split() for line in read('contrib/packages').splitlines()
            if line and not line.startswith('#')]
    return {(row[0], row[1]) for row in rows if row[1] != '-'}


def meson_dependencies():
    names = set()
    for path in glob.glob(os.path.join(TOP, '**', 'meson.build'), recursive=True):
        if 'subprojects' not in path:
            with open(path, encoding='utf-8') as file:
                names |= set(re.findall(
                    r"\b(?<!declare_)(?:dependency|find_program|find_library|find_installation)"
                    r"\(\s*'([^']+)'", file.read()))
    return names


# ---- the tests ----

def difference(left_name, left, right_name, right):
    left, right = set(left), set(right)
    expect(left and right, f'nothing found in {right_name if left else left_name}')
    return [f'{item} is in {left_name}, not in {right_name}' for item in sorted(left - right)] + \
           [f'{item} is in {right_name}, not in {left_name}' for item in sorted(right - left)]


def options_in_manual_are_those_of_the_program():
    return difference('src/options.c', parsed_options(), 'foldfs.8', manual_options())


def options_in_readme_are_those_of_the_program():
    return difference('src/options.c', parsed_options(), 'README.md', readme_options())


def options_in_usage_are_parsed():
    expect(usage_options(), 'no option in the usage')
    return [f'{name} is in the usage only' for name in set(usage_options()) - parsed_options()]


def values_in_readme_are_those_of_the_usage():
    readme = readme_options()
    return [f'{name}={value} in the usage, {name}={readme.get(name)} in README.md'
            for name, value in usage_options().items() if readme.get(name) != value]


def features_to_do_without_are_documented():
    parsed = between(read('src/options.c'), r'^static bool parse_without', r'^}')
    parsed = re.findall(r'\{"(\w+)", &w->', parsed)
    manual = between(manual_section('OPTIONS'), r'^\.It .* Cm without ', r'^\.It ')
    row = next(row for row in readme_rows('Options') if 'without=' in row[0])
    return difference('src/options.c', parsed, 'foldfs.8',
                      re.findall(r'^\.Cm (\w+)$', manual, re.MULTILINE)) + \
        difference('src/options.c', parsed, 'README.md', in_backticks(row[1]))


def messages_are_in_manual():
    explained = manual_messages()
    return [f'{path}: "{text}" is not explained' for text, path in sorted(messages().items())
            if not any(re.fullmatch(as_pattern(text), item) for item in explained)]


def messages_in_manual_are_said():
    patterns = [as_pattern(text) for text in messages()]
    expect(manual_messages(), 'no message in foldfs.8')
    return [f'nothing says "{item}"' for item in manual_messages()
            if not any(re.fullmatch(pattern, item) for pattern in patterns)]


def packages_in_readme_are_those_installed():
    rows = [(row[0], package) for row in readme_rows('Dependencies')
            for package in in_backticks(row[1])]
    return difference('contrib/packages', listed_packages(), 'README.md', rows)


def libraries_in_readme_are_those_of_meson():
    rows = [name for row in readme_rows('Dependencies') for name in in_backticks(row[2])]
    return difference('meson.build', meson_dependencies(), 'README.md', rows)


def suites_in_readme_are_those_that_run():
    suites = {'tests/' + os.path.basename(os.path.dirname(path))
              for path in glob.glob(os.path.join(TOP, 'tests', '*', 'test-*'))}
    named = [name for row in readme_rows('Tests') for name in in_backticks(row[0])
             if name.startswith('tests/')]
    return difference('the checkout', suites, 'README.md', named)


def long_tests_in_readme_exist():
    named = [name for row in readme_rows('Tests') for name in in_backticks(row[0])
             if not name.startswith('tests/')]
    expect(named, 'no long test in README.md')
    return [f'{name} does not exist' for name in named
            if not glob.glob(os.path.join(TOP, 'tests', name + '.*'))]


def folders_in_readme_are_those_of_the_sources():
    folders = {f'src/{name}/' for name in os.listdir(os.path.join(TOP, 'src'))
               if os.path.isdir(os.path.join(TOP, 'src', name))}
    named = [name for row in readme_rows('How it works') for name in in_backticks(row[0])
             if re.fullmatch('src/[a-z]+/', name)]
    return difference('the checkout', folders, 'README.md', named)


def links_in_readme_lead_somewhere():
    text = read('README.md')
    anchors = {re.sub(r'[^\w -]', '', title.lower()).replace(' ', '-')
               for title in re.findall(r'^#+ (.*)$', text, re.MULTILINE)}
    links = re.findall(r'\]\(([^)]+)\)', text)
    expect(links, 'no link in README.md')
    dead = []
    for link in links:
        if re.match('[a-z]+:', link):
            continue
        path, _, anchor = link.partition('#')
        if path and not os.path.exists(os.path.join(TOP, path)):
            dead.append(f'{link}: no such file')
        if not path and anchor not in anchors:
            dead.append(f'{link}: no such heading')
    return dead


TESTS = [
    options_in_manual_are_those_of_the_program,
    options_in_readme_are_those_of_the_program,
    options_in_usage_are_parsed,
    values_in_readme_are_those_of_the_usage,
    features_to_do_without_are_documented,
    messages_are_in_manual,
    messages_in_manual_are_said,
    packages_in_readme_are_those_installed,
    libraries_in_readme_are_those_of_meson,
    suites_in_readme_are_those_that_run,
    long_tests_in_readme_exist,
    folders_in_readme_are_those_of_the_sources,
    links_in_readme_lead_somewhere,
]


def main():
    failed = False
    for test in TESTS:
        try:
            wrong = test()
        except (OSError, ValueError) as error:
            wrong = [str(error)]
        failed = failed or bool(wrong)
        print(f'{"not ok" if wrong else "ok"} - {test.__name__}')
        for line in wrong:
            print('# ' + line.replace('\n', ' '))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
