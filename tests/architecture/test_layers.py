"""The plan of the package, as a test: who may import whom, how long things may be, what must be documented."""

import ast
import graphlib
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS = [
    "errors",
    "units",
    "world",
    "laws",
    "schedules",
    "clock",
    "readings",
    "played",
    "steady",
    "explore",
    "crowd",
    "sweep",
    "whatif",
    "tune",
    "answers",
    "require",
    "calibrate",
    "collective",
    "validate",
    "review",
    ".",
    "ask",
    "cli",
    "__main__",
]
"""A module imports from its own room or an earlier one; "." is the package's own ``__init__``."""

ONLY_IN = {
    "click": "cli",
    "csv": "world|readings|sweep|validate|cli",
    "jinja2": "review",
    "json": "world|readings|sweep|cli",
    "matplotlib": "readings.plots",
    "msgspec": "world",
    "networkx": "world.topology|world.mesh|laws.collectives",
    "pandas": "readings",
    "quantiphy": "units",
    "rich": "readings|require.table|cli",
    "ruamel": "world.edits",
    "simpy": "clock",
    "sqlite3": "sweep",
    "tomlkit": "world.edits",
    "yaml": "world",
}
"""Library: pattern of the modules (below ``simulator``) that may import it; their submodules may as well."""

HEAVY = {"jinja2", "matplotlib", "pandas", "rich"}
"""Not needed for ``--help``."""

LONGEST_FUNCTION, LONGEST_MODULE, MOST_ARGUMENTS = 45, 400, 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("simulator/**/*.py"))}
TREES = {name: ast.parse(source) for name, source in SOURCES.items()}
each_module = pytest.mark.parametrize("module", TREES)


def room(module: str) -> int:
    """Place of the module's room; a room that is not in the plan is a ``ValueError``."""
    return ROOMS.index([*module.split("."), "."][1])


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Everything that *nodes* import; ``from package import module`` counts as that module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            members = [f"{source}.{alias.name}" for alias in node.names]
            yield from {member if member in TREES else source for member in members}


def ours(module: str) -> list[str]:
    """Modules of ours that *module* imports, for types only as well."""
    return sorted(name for name in imports(ast.walk(TREES[module])) if name.split(".")[0] == "simulator")


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below *node* but what only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from at_run_time(child)


def functions(module: str) -> list[Function]:
    return [node for node in ast.walk(TREES[module]) if isinstance(node, Function)]


def lines_of_code(module: str) -> set[int]:
    """Numbers of the lines that hold code: no comment, no blank line."""
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    tokens = tokenize.generate_tokens(io.StringIO(SOURCES[module]).readline)
    return {line for token in tokens if token.type not in nothing for line in range(token.start[0], token.end[0] + 1)}


def lines(node: ast.AST) -> set[int]:
    return set(range(node.lineno, node.end_lineno + 1))


def docstring_lines(node: Function) -> set[int]:
    return lines(node.body[0]) if ast.get_docstring(node) else set()


def arguments(function: Function) -> int:
    """Arguments that a caller can give, without ``self`` and ``cls``."""
    given = function.args
    names = [argument.arg for argument in given.posonlyargs + given.args + given.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def public(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, str, ast.stmt]]:
    """Public classes, functions and methods: owner, name, node."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield owner, node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, node.name)


@cache
def abstract_methods() -> set[str]:
    """Names of the methods whose contract stands in an abstract base."""
    every = [function for module in TREES for function in functions(module)]
    return {function.name for function in every if "abstractmethod" in decorator_names(function.decorator_list)}


def decorator_names(decorators: list[ast.expr]) -> set[str]:
    return {ast.unparse(decorator).split(".")[-1] for decorator in decorators}


@each_module
def test_a_module_imports_only_from_its_own_room_and_earlier_ones(module):
    here = room(module)
    assert [name for name in ours(module) if room(name) > here] == []


def test_no_module_imports_itself_through_others():
    tuple(graphlib.TopologicalSorter({module: ours(module) for module in TREES}).static_order())


@each_module
def test_libraries_stay_in_their_rooms(module):
    inside = module.removeprefix("simulator").removeprefix(".")
    libraries = {name.split(".")[0] for name in imports(at_run_time(TREES[module]))} & ONLY_IN.keys()
    assert [name for name in sorted(libraries) if not re.match(rf"({ONLY_IN[name]})(\.|_|$)", inside)] == []


@each_module
def test_imports_are_absolute(module):
    assert [name for name in imports(ast.walk(TREES[module])) if name.startswith(".")] == []


@each_module
def test_only_the_command_line_prints(module):
    names = [node.func for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)]
    prints = [name.lineno for name in names if isinstance(name, ast.Name) and name.id == "print"]
    assert prints == [] or module.startswith("simulator.cli")


@each_module
def test_functions_are_short(module):
    code = lines_of_code(module)
    lengths = {each.name: len(code & lines(each) - docstring_lines(each)) for each in functions(module)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


@each_module
def test_functions_take_few_arguments(module):
    counts = {function.name: arguments(function) for function in functions(module)}
    assert {name: count for name, count in counts.items() if count > MOST_ARGUMENTS} == {}


@each_module
def test_modules_are_short(module):
    assert len(SOURCES[module].splitlines()) <= LONGEST_MODULE


@each_module
def test_nothing_is_left_to_do(module):
    assert re.findall(r"\b(TODO|FIXME|XXX)\b", SOURCES[module]) == []


@each_module
def test_everything_public_has_a_docstring(module):
    assert ast.get_docstring(TREES[module])
    inherited = abstract_methods()
    silent = [(owner, name) for owner, name, node in public(TREES[module].body) if not ast.get_docstring(node)]
    assert [(owner, name) for owner, name in silent if not (owner and name in inherited)] == []


@each_module
def test_a_module_is_named_after_what_it_holds(module):
    assert module.split(".")[-1] not in {"utils", "util", "helpers", "misc"}


def test_help_needs_no_heavy_library():
    script = "import sys, simulator.cli; print(*sorted(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert HEAVY & set(loaded.stdout.split()) == set()
