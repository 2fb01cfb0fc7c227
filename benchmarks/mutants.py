"""Whether the tests notice faults: mutants of functions that two commits share, and the share that tests of each kill.

Functions are drawn by a seed from those that both commits have, in files of the same path, and of each a change that
both can have: of one comparison, operator, constant, return value or call. The tests that cover its line run, the most
specific first, for `--seconds` at most: a mutant that none of them notices by then survives. A test that fails without
the mutant as well notices nothing. Both commits' tests run at once, so that a busy machine is as slow for both. Which
tests cover a line is learnt by one run of the gate with coverage, or read from `--contexts-before` and
`--contexts-after`, which such runs have written. Tests that look at a box in another process count for no line.

Asked: the share killed is no smaller than before.
"""

import ast
import copy
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, product
from pathlib import Path
from typing import NamedTuple

import coverage

from benchmarks import _results as results

PACKAGES = ("domain", "policies", "runtime", "api", "modelstore")
ROOT = Path(__file__).resolve().parent.parent
_FIRST, _MOST = 20, 200
"""How many tests of a mutant run at first, and how many at most."""
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """A file's path below the root, the line that is changed, its bytes from and to, and what they become."""

    path: str
    line: int
    start: int
    end: int
    new: str

    @contextmanager
    def within(self, root: Path) -> Iterator[None]:
        """Change the file of a checkout for a time."""
        before = (root / self.path).read_bytes()
        (root / self.path).write_bytes(before[: self.start] + self.new.encode() + before[self.end :])
        try:
            yield
        finally:
            (root / self.path).write_bytes(before)


class Tree:
    """A checkout, and the tests that cover each of its lines."""

    def __init__(self, root: Path, contexts: Path | None) -> None:
        self.root = root
        self._data = coverage.CoverageData(str(contexts or self._learnt()))
        self._data.read()
        measured = [file for file in self._data.measured_files() if "/appliance/" in file]
        top = Path(os.path.commonpath(measured)).parent
        self._of_file = {Path(file).relative_to(top).as_posix(): file for file in measured}
        self._sound: set[str] = set()
        self._lines: Counter[str] = Counter()
        for file in measured:
            self._lines.update(test for tests in self._covering(file).values() for test in tests)

    def _covering(self, file: str) -> dict[int, set[str]]:
        """Return the tests that run each line of a file."""
        contexts = self._data.contexts_by_lineno(file).items()
        return {line: {test.rpartition("|")[0] for test in tests if test} for line, tests in contexts}

    def _learnt(self) -> Path:
        """Run the gate; tests that fail then are no reason to stop."""
        file = self.root / ".coverage.contexts"
        order = ["--cov=appliance", "--cov-context=test", "--cov-report=", "--numprocesses=3", "--dist=loadfile", "-q"]
        self._pytest(order, None, COVERAGE_FILE=str(file))
        return file

    def mutants(self) -> dict[tuple[str, str], dict[str, Mutant]]:
        """Return the mutants of each function, by path and qualified name and then by what was and what becomes."""
        found: dict[tuple[str, str], dict[str, Mutant]] = {}
        for package in PACKAGES:
            for file in sorted((self.root / "appliance" / package).rglob("*.py")):
                path, body = file.relative_to(self.root).as_posix(), file.read_bytes()
                starts = [0, *accumulate(map(len, body.splitlines(keepends=True)))]
                for name, function in _functions(ast.parse(body)):
                    for node, changed in _changes(function):
                        text = ast.unparse(changed)
                        new = f"({text})" if isinstance(changed, ast.expr) else text
                        start = starts[node.lineno - 1] + node.col_offset
                        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
                        mutant = Mutant(path, node.lineno, start, end, new)
                        found.setdefault((path, name), {}).setdefault(f"{ast.unparse(node)} -> {new}", mutant)
        return found

    def end(self, mutant: Mutant, seconds: float) -> str:
        """Return "killed" if a test that covers the mutant's line fails within the time, and passes without the mutant;
        else how it survives.
        """
        file, end = self._of_file.get(mutant.path), time.monotonic() + seconds
        covering = self._covering(file).get(mutant.line, set()) if file else set()
        tests = sorted(covering, key=lambda test: (self._lines[test], test))
        # A server takes longer than many tests that need none, and collecting many tests longer than running a few.
        for some, lane in product((tests[:_FIRST], tests[_FIRST:_MOST]), ("fast", "gate")):
            names = some
            while names:
                with mutant.within(self.root):
                    status, said = self._pytest(["-x", "--lane", lane, *names], end - time.monotonic())
                if status is None:
                    return "out of time"
                if status in (0, 5):  # all passed; none of this lane
                    break
                failed = [name for name in names if re.search(rf"^(FAILED|ERROR) {re.escape(name)}( - |$)", said, re.M)]
                if self.passes(failed or names):
                    return "killed"
                names = [name for name in names if failed and name not in failed]
        return "all tests pass" if tests else "no test covers it"

    def passes(self, names: list[str]) -> bool:
        """Whether tests pass without a mutant."""
        if not self._sound.issuperset(names) and self._pytest(["--lane", "gate", *names], None)[0] == 0:
            self._sound.update(names)
        return self._sound.issuperset(names)

    def _pytest(self, order: list[str], seconds: float | None, **environment: str) -> tuple[int | None, str]:
        """Return how pytest ended, None after the time, and what it said."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        # A folder for each run: a test that is killed may leave a file system mounted in its own, which then stays.
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run = subprocess.Popen(
                [*command, f"--basetemp={folder}/tests", *order], cwd=self.root, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(self.root), **environment}, stdout=said, stderr=said,
            )  # fmt: skip
            try:
                status: int | None = run.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                status = None
            said.seek(0)
            return status, said.read()


def main() -> None:
    """Print how each mutant ends with the tests of both commits, and the shares by package."""
    parser = results.parser(__doc__)
    parser.add_argument("--before", required=True, metavar="REVISION", help="the commit to compare with")
    parser.add_argument("--contexts-before", type=Path, metavar="FILE")
    parser.add_argument("--contexts-after", type=Path, metavar="FILE")
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the tests of a mutant may take")
    chosen = results.options(parser)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        trees = []
        for name, revision in (("before", chosen.before), ("after", "HEAD")):
            root = Path(folder, name)
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root)], check=True)
            subprocess.run(["git", "checkout", "--quiet", revision], cwd=root, check=True)
            trees.append(Tree(root, getattr(chosen, f"contexts_{name}")))
        before, after = (tree.mutants() for tree in trees)
        shared = {place: sorted(before[place].keys() & after[place].keys()) for place in before.keys() & after.keys()}
        generator = random.Random(chosen.seed)
        drawn = generator.sample(sorted(place for place, words in shared.items() if words), chosen.mutants)
        killed: Counter[tuple[str, int]] = Counter()
        for place, words in [(place, generator.choice(shared[place])) for place in drawn]:
            mutants = (before[place][words], after[place][words])
            ends = list(pool.map(lambda tree, mutant: tree.end(mutant, chosen.seconds), trees, mutants))
            results.row(f"{place[0]}:{mutants[1].line} {place[1]}", change=repr(words), before=ends[0], after=ends[1])
            killed.update((place[0].split("/")[1], side) for side, end in enumerate(ends) if end == "killed")
        results.head("package", "mutants", "killed before", "killed after", title="Mutants")
        for package in PACKAGES:
            count = sum(path.split("/")[1] == package for path, _ in drawn)
            results.cells(package, count, killed[package, 0], killed[package, 1])
        results.cells("all", len(drawn), *(sum(killed[package, side] for package in PACKAGES) for side in (0, 1)))


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
            changed = copy.copy(node)
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
