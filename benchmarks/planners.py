"""Decisions of the box's planners, by family, against optima, bounds and other policies; processor time of a decision.

  adaptation  clients mapped and the sum of accuracy x rate; beside `exact`: never fewer clients, mean ratio >= 0.999,
              worst >= 0.99; 8 x 48 and 16 x 160: >= 0.98 of a bound in <= 60 and <= 400 ms
  offload     clients served; default >= 1.1 x plain ARISE in mixed cells, never fewer than a baseline; joint choice of
              variants >= 1.2 x the best fixed one; 20 clients <= 0.4 ms, with 20 waiting <= 2 ms, 200 clients <= 5 ms
  allocation  cost / exhaustive search: mean <= 1.005, worst <= 1.01; 2 worker types <= 100 ms, 30 types <= 150 ms
  dispatch    mean <= 0.05 ms (the paper: 0.049), P99 <= 0.2 ms; 40 jobs of 4 networks of 6 units on 4 processors
  residency   20 applications x 3 variants: mean <= 0.1 ms

Every plan is checked. Problems are drawn by seed from `--first` on.
"""

from collections.abc import Mapping
from types import ModuleType

from benchmarks import (
    _planners_adaptation,
    _planners_allocation,
    _planners_dispatch,
    _planners_offload,
    _planners_residency,
)
from benchmarks import _results as results

FAMILIES: Mapping[str, ModuleType] = {
    "adaptation": _planners_adaptation,
    "allocation": _planners_allocation,
    "dispatch": _planners_dispatch,
    "offload": _planners_offload,
    "residency": _planners_residency,
}
"""Each has `TABLES` (name -> what prints it, given options and seeds), `SEEDS`, `QUICK` and `FIRST`."""


def main() -> None:
    """Print the tables of a family, or of all."""
    parser = results.parser(__doc__)
    parser.add_argument("family", nargs="?", choices=FAMILIES, help="all, where none is named")
    parser.add_argument("--table", nargs="+", help="only these of the family")
    parser.add_argument("--seeds", type=int, help="instances of each size and family")
    parser.add_argument("--first", type=int, help="the first seed")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, 3 s for each optimum or bound")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for each optimum or bound of `adaptation`")
    parser.add_argument("--longer", type=float, default=120.0, help="the same where the first limit leaves one open")
    options = results.options(parser)
    if options.quick:
        options.limit = options.longer = 3.0
    for name in [options.family] if options.family else FAMILIES:
        family = FAMILIES[name]
        first = family.FIRST if options.first is None else options.first
        seeds = range(first, first + (options.seeds or (family.QUICK if options.quick else family.SEEDS)))
        for table, printed in family.TABLES.items():
            if not options.table or table in options.table:
                printed(options, seeds)


if __name__ == "__main__":
    main()
