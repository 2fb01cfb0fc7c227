"""Whether the tests notice faults: mutants of functions that two commits share, and the share that tests of each kill.

Functions are drawn by a seed from those that both commits have, in files of the same path. A mutant changes one
comparison, operator, constant, return value or call of such a function. The tests that cover its line run, the most
specific first, for `--seconds` at most: a mutant that none of them notices by then survives. Which tests cover a line
is learnt by one run of the gate with coverage, or read from `--contexts-before` and `--contexts-after`, which such runs
have written. Tests that look at a box in another process count for no line.

Asked: the share killed is no smaller than before.
"""

import ast
import copy
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import coverage

from benchmarks import _results as results

PACKAGES = ("domain", "policies", "runtime", "api", "modelstore")
ROOT = Path(__file__).resolve().parent.parent
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """A file's path below the root, the line that is changed, what it was and became, and the file's text then."""

    path: str
    line: int
    words: str
    text: str


class Tree:
    """A checkout, and the tests that cover each of its lines."""

    def __init__(self, root: Path, contexts: Path | None) -> None:
        self.root = root
        self._data = coverage.CoverageData(str(contexts or self._learnt()))
        self._data.read()
        self._of_file = {Path(file).relative_to(self._root_of_data()).as_posix(): file for file in self._measured()}
        self._lines = Counter(
            test
            for file in self._measured()
            for tests in self._data.contexts_by_lineno(file).values()
            for test in tests
        )

    def _measured(self) -> list[str]:
        return [file for file in self._data.measured_files() if "/appliance/" in file]

    def _root_of_data(self) -> Path:
        return Path(os.path.commonpath(self._measured())).parent

    def _learnt(self) -> Path:
        """Run the gate; tests that fail then are no reason to stop."""
        file = self.root / ".coverage.contexts"
        order = ["--cov=appliance", "--cov-context=test", "--cov-report=", "--numprocesses=3", "--dist=loadfile", "-q"]
        self._pytest(order, None, COVERAGE_FILE=str(file))
        return file

    def functions(self) -> Iterator[tuple[str, str]]:
        """Yield path and qualified name of each function of the packages that has something to change."""
        for package in PACKAGES:
            for file in sorted((self.root / "appliance" / package).rglob("*.py")):
                for name, function in _functions(ast.parse(file.read_text())):
                    if next(_changes(function), None):
                        yield file.relative_to(self.root).as_posix(), name

    def mutant(self, path: str, name: str, chance: float) -> Mutant:
        """Return one of a function's mutants, by a number in 0-1."""
        text = (self.root / path).read_text()
        changes = list(_changes(dict(_functions(ast.parse(text)))[name]))
        node, changed = changes[int(chance * len(changes))]
        lines = text.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
        body, new = (
            text.encode(),
            f"({ast.unparse(changed)})" if isinstance(changed, ast.expr) else ast.unparse(changed),
        )
        return Mutant(
            path, node.lineno, f"{ast.unparse(node)} -> {new}", (body[:start] + new.encode() + body[end:]).decode()
        )

    def kills(self, mutant: Mutant, seconds: float) -> bool:
        """Whether a test that covers the mutant's line fails within the time."""
        file = self._of_file.get(mutant.path)
        covering = self._data.contexts_by_lineno(file).get(mutant.line, []) if file else []
        tests = sorted((test for test in covering if test), key=lambda test: (self._lines[test], test))
        names = list(dict.fromkeys(test.partition("|")[0] for test in tests))
        if not names:
            return False
        path = self.root / mutant.path
        before = path.read_text()
        path.write_text(mutant.text)
        try:
            return self._pytest(["-x", "-q", "--no-header", "-p", "no:randomly", *names[:200]], seconds) == 1
        finally:
            path.write_text(before)

    def _pytest(self, order: list[str], seconds: float | None, **environment: str) -> int | None:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *order]
        try:
            return subprocess.run(
                command, cwd=self.root, env={**os.environ, "PYTHONPATH": str(self.root), **environment},
                timeout=seconds, capture_output=True, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return None


def main() -> None:
    """Print a line for each survivor, and the shares by package."""
    parser = results.parser(__doc__)
    parser.add_argument("--before", required=True, metavar="REVISION", help="the commit to compare with")
    parser.add_argument("--contexts-before", type=Path, metavar="FILE")
    parser.add_argument("--contexts-after", type=Path, metavar="FILE")
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the tests of a mutant may take")
    chosen = results.options(parser)
    with tempfile.TemporaryDirectory() as folder:
        trees = {}
        for name, revision in (("before", chosen.before), ("after", "HEAD")):
            root = Path(folder, name)
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root)], check=True)
            subprocess.run(["git", "checkout", "--quiet", revision], cwd=root, check=True)
            trees[name] = Tree(root, getattr(chosen, f"contexts_{name}"))
        shared = sorted(set(trees["before"].functions()) & set(trees["after"].functions()))
        generator = random.Random(chosen.seed)
        drawn = [(path, name, generator.random()) for path, name in generator.sample(shared, chosen.mutants)]
        killed: Counter[tuple[str, str]] = Counter()
        for path, name, chance in drawn:
            for when, tree in trees.items():
                mutant = tree.mutant(path, name, chance)
                if tree.kills(mutant, chosen.seconds):
                    killed[path.split("/")[1], when] += 1
                else:
                    results.row(f"survives {when}", place=f"{path}:{mutant.line} {name}", change=mutant.words)
        results.head("package", "mutants", "killed before", "killed after", title="Mutants")
        for package in PACKAGES:
            count = sum(path.split("/")[1] == package for path, _, _ in drawn)
            results.cells(package, count, killed[package, "before"], killed[package, "after"])
        totals = [sum(number for (_, when), number in killed.items() if when == name) for name in trees]
        results.cells("all", len(drawn), *totals)


def _functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        name = f"{above}{getattr(node, 'name', '')}"
        if isinstance(node, Function):
            yield name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{name}.")


def _changes(function: Function) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Yield each node of a function's body that can be changed, beside what it becomes."""
    for statement in function.body:
        for node in _walk(statement):
            changed = copy.deepcopy(node)
            match changed:
                case ast.Compare(ops=[operator]) if type(operator) in _SWAPS:
                    changed.ops = [_SWAPS[type(operator)]()]  # type: ignore[list-item]
                case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in _SWAPS:
                    changed.op = _SWAPS[type(operator)]()  # type: ignore[assignment]
                case ast.UnaryOp(op=ast.Not()):
                    changed = changed.operand
                case ast.Constant(value=bool() as value):
                    changed = ast.Constant(not value)
                case ast.Constant(value=int() | float() as value):
                    changed = ast.Constant(value + 1)
                case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                    changed.value = ast.Constant(None)
                case ast.Expr(value=ast.Call() | ast.Await()):
                    changed = ast.Pass()
                case _:
                    continue
            yield node, changed  # type: ignore[misc]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is below it, without annotations and texts with fields, whose places are not exact."""
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield from _walk(child)


if __name__ == "__main__":
    main()
