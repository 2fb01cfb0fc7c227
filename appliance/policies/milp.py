"""A mixed-integer program for HiGHS, put together row by row.

HiGHS is imported by the call that solves, and nowhere else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NODES_MAX = 50_000
"""Branch-and-bound nodes of `least`: a limit that does not depend on the speed of the machine."""


@dataclass(frozen=True, slots=True)
class Solved:
    """`values` is empty when nothing was found, and `value` then the worst there is."""

    values: tuple[float, ...]
    value: float
    bound: float
    """Of every solution's value, proven also where the best was not found."""
    is_optimal: bool
    is_infeasible: bool
    """Proven to have no solution."""


@dataclass(slots=True)
class Program:
    """Columns from 0 to their upper bound; rows between two bounds.

    Solved on one thread, so that equal input gives equal output.
    """

    upper: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[float, float, Mapping[int, float]]] = field(default_factory=list)

    def column(self, upper: float, whole: bool = False) -> int:
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.upper) - 1

    def at_most(self, bound: float, terms: Mapping[int, float]) -> None:
        self.rows.append((-math.inf, bound, terms))

    def at_least(self, bound: float, terms: Mapping[int, float]) -> None:
        self.rows.append((bound, math.inf, terms))

    def exactly(self, value: float, terms: Mapping[int, float]) -> None:
        self.rows.append((value, value, terms))

    def most(self, objective: Mapping[int, float], time_limit_s: float, relaxed: bool = False) -> Solved:
        """The largest value of `objective` within 1e-9, as far as it is found in time; `relaxed` drops the wholeness
        (a bound).
        """
        effort = {"time_limit": max(0.01, time_limit_s), "mip_rel_gap": 1e-9, "mip_abs_gap": 1e-6}
        return self._solve(objective, effort, sign=-1, relaxed=relaxed)

    def least(self, objective: Mapping[int, float]) -> Solved:
        """The smallest value of `objective` within 1e-7, as far as it is found in `NODES_MAX` nodes."""
        effort = {"mip_max_nodes": NODES_MAX, "mip_rel_gap": 1e-7, "mip_abs_gap": 1e-9}
        return self._solve(objective, effort, sign=1)

    def _solve(
        self, objective: Mapping[int, float], effort: Mapping[str, float], sign: int, relaxed: bool = False
    ) -> Solved:
        """`sign`: 1 to minimise, -1 to maximise."""
        import highspy

        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in {"output_flag": False, "threads": 1, **effort}.items():
            solver.setOptionValue(option, value)
        solver.passModel(self._model(objective, sign, relaxed))
        solver.run()
        info, status = solver.getInfo(), solver.getModelStatus()
        is_optimal = status == highspy.HighsModelStatus.kOptimal
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values: Sequence[float] = solver.getSolution().col_value if found else ()
        value = float(info.objective_function_value) if found else sign * math.inf
        bound = value if is_optimal else -sign * math.inf if relaxed else float(info.mip_dual_bound)
        return Solved(tuple(values), value, bound, is_optimal, status == highspy.HighsModelStatus.kInfeasible)

    def _model(self, objective: Mapping[int, float], sign: int, relaxed: bool) -> Any:
        import highspy
        import numpy as np

        lp = highspy.HighsLp()
        lp.num_col_ = len(self.upper)
        lp.num_row_ = len(self.rows)
        lp.sense_ = highspy.ObjSense.kMinimize if sign > 0 else highspy.ObjSense.kMaximize
        lp.col_cost_ = np.array([objective.get(c, 0.0) for c in range(len(self.upper))])
        lp.col_lower_ = np.zeros(len(self.upper))
        lp.col_upper_ = np.array(self.upper)
        lp.row_lower_ = np.array([row[0] for row in self.rows])
        lp.row_upper_ = np.array([row[1] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[2]) for row in self.rows)])
        lp.a_matrix_.index_ = np.array([c for row in self.rows for c in row[2]], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([v for row in self.rows for v in row[2].values()], dtype=np.float64)
        if not relaxed:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[whole] for whole in self.whole]
        return lp
