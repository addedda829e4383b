"""The stub is the documentation: it must name what the module has, and nothing else, and `help()` must say the same."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import walrus_core
from walrus_core import _native

STUB = ast.parse(Path(_native.__file__).with_name("_native.pyi").read_text())
CLASSES = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
FUNCTIONS = [node for node in STUB.body if isinstance(node, ast.FunctionDef)]
# What the interpreter adds, or answers itself: `__buffer__` shows only from Python 3.12 on.
IMPLIED = {"__buffer__", "__doc__", "__module__"}


def test_stub_and_module_have_the_same_names() -> None:
    in_module = {name for name in vars(_native) if not name.startswith("__")}
    assert in_module == {node.name for node in [*CLASSES, *FUNCTIONS]}


def test_everything_is_exported() -> None:
    assert sorted(walrus_core.__all__) == sorted(node.name for node in [*CLASSES, *FUNCTIONS])
    assert all(getattr(walrus_core, name) is getattr(_native, name) for name in walrus_core.__all__)


@pytest.mark.parametrize("node", CLASSES, ids=lambda node: node.name)
def test_a_class_has_the_members_and_parent_of_its_stub(node: ast.ClassDef) -> None:
    found = getattr(_native, node.name)
    assert found.__module__ == "walrus_core"
    if node.bases:
        assert found.__base__.__name__ == ast.unparse(node.bases[0])
        assert inspect.getdoc(found) == ast.get_docstring(node)
        return
    assert inspect.getdoc(found) == ast.get_docstring(node)
    members = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    constants = {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}
    assert set(vars(found)) - IMPLIED == (set(members) | constants) - IMPLIED
    for name, item in members.items():
        if name == "__new__":
            assert parameters(found) == list(stub_parameters(item))
        elif is_property(item):
            assert inspect.isdatadescriptor(vars(found)[name]), name
            assert described(vars(found)[name]) == ast.get_docstring(item), name
        elif name not in IMPLIED and not name.startswith("__"):
            assert parameters(getattr(found, name)) == list(stub_parameters(item)), name
            assert described(getattr(found, name)) == ast.get_docstring(item), name


@pytest.mark.parametrize("node", FUNCTIONS, ids=lambda node: node.name)
def test_a_function_has_the_parameters_and_help_of_its_stub(node: ast.FunctionDef) -> None:
    assert parameters(getattr(_native, node.name)) == list(stub_parameters(node))
    assert described(getattr(_native, node.name)) == ast.get_docstring(node)


def described(found: object) -> str:
    """What `help()` says of it; there is something."""
    text = inspect.getdoc(found)
    assert text, f"{found!r} has no help"
    return text


def parameters(found: object) -> list[tuple[str, bool, str | None]]:
    """Name, keyword-only, default."""
    return [
        (p.name, p.kind is p.KEYWORD_ONLY, default_of(p))
        for p in inspect.signature(found).parameters.values()  # type: ignore[arg-type]
        if p.name != "self"
    ]


def default_of(parameter: inspect.Parameter) -> str | None:
    """The default of a parameter, the way a stub says it: `...` stands for a default that only the module knows."""
    if parameter.default is parameter.empty:
        return None
    return "..." if parameter.default is ... else repr(parameter.default)


def stub_parameters(node: ast.FunctionDef) -> Iterator[tuple[str, bool, str | None]]:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    for argument, default in zip(positional, [*missing, *arguments.defaults], strict=True):
        if argument.arg not in {"self", "cls"}:
            yield argument.arg, False, default and ast.unparse(default)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield argument.arg, True, default and ast.unparse(default)


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "property" for item in node.decorator_list)
