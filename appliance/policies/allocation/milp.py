"""A mixed-integer program for HiGHS, put together row by row. HiGHS is imported by the call that solves, and nowhere else."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NODES_MAX = 50_000
"""Branch-and-bound nodes: a limit that does not depend on the speed of the machine."""


@dataclass(frozen=True, slots=True)
class Solved:
    """`values` is empty when nothing was found."""

    values: tuple[float, ...]
    value: float
    is_optimal: bool


@dataclass(slots=True)
class Program:
    """Columns from 0 to their upper bound with their price in the objective; rows at most their bound; minimise."""

    upper: list[float] = field(default_factory=list)
    price: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, Mapping[int, float]]] = field(default_factory=list)

    def column(self, price: float = 0.0, upper: float = math.inf, whole: bool = False) -> int:
        self.upper.append(upper)
        self.price.append(price)
        self.whole.append(whole)
        return len(self.upper) - 1

    def at_most(self, bound: float, terms: Mapping[int, float]) -> None:
        self.rows.append((-math.inf, bound, terms))

    def equal(self, value: float, terms: Mapping[int, float]) -> None:
        self.rows.append((value, value, terms))

    def solve(self) -> Solved:
        """The cheapest values. One thread, so that equal input gives equal output."""
        import highspy

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_max_nodes", NODES_MAX),
            ("mip_rel_gap", 1e-7),
            ("mip_abs_gap", 1e-9),
        ):
            solver.setOptionValue(option, value)
        solver.passModel(self._model())
        solver.run()
        info = solver.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        status = solver.getModelStatus()
        done = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
        values: Sequence[float] = solver.getSolution().col_value if found else ()
        return Solved(tuple(values), float(info.objective_function_value) if found else math.inf, status in done)

    def _model(self) -> Any:
        import highspy
        import numpy as np

        lp = highspy.HighsLp()
        lp.num_col_ = len(self.upper)
        lp.num_row_ = len(self.rows)
        lp.sense_ = highspy.ObjSense.kMinimize
        lp.col_cost_ = np.array(self.price)
        lp.col_lower_ = np.zeros(len(self.upper))
        lp.col_upper_ = np.array(self.upper)
        lp.row_lower_ = np.array([row[0] for row in self.rows])
        lp.row_upper_ = np.array([row[1] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[2]) for row in self.rows)])
        lp.a_matrix_.index_ = np.array([c for row in self.rows for c in row[2]], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([v for row in self.rows for v in row[2].values()], dtype=np.float64)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[whole] for whole in self.whole]
        return lp
