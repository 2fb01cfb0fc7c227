"""The reviewed operators: those whose kernels neither trap, nor loop, nor grow with the values they are given, and why.

An operator that is not here makes a build hazardous: it runs in a guard. What the review of a graph does with this list
says `modelstore.stages.review`; tests/attacks puts hostile values and shapes through every kernel of it.

Graphs are reviewed as they are stored. The runtime may fuse reviewed operators into kernels of its own when it loads
them; those compute the same, and the attack tests run with that fusing on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

CONTRIB = "com.microsoft"


class Condition(StrEnum):
    """What the review has to find out about a node besides its name."""

    INTEGERS_DIVIDE = "integers divide"
    """Harmless on floating point, of Mod not even there; on integers only where the divisor is a constant without 0
    and -1.
    """
    NEVER_EMPTY = "never empty"
    """The kernel ends the process on an empty axis: harmless only where every allowed shape has been run."""
    SLICES = "slices"
    """Grows with its input where the signs of its bounds agree; else it may take more of a smaller input."""
    SQUEEZES = "squeezes"
    """Without named axes the rank of the result depends on the sizes."""
    SPLITS = "splits"
    """Into a number of parts that do not divide the axis: the last one may grow as the axis shrinks."""
    RESIZES = "resizes"
    """Where the aspect is kept, a smaller input may give a larger result."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One reviewed operator."""

    reason: str
    """Why it is harmless."""
    shaping: tuple[int, ...] = ()
    """Inputs that decide how large the result is or which axes are meant: they must not depend on values."""
    condition: Condition | None = None


ELEMENTWISE = "one result for each element; floating-point traps are off, and integers wrap around"
PRODUCT = "sums of products: the work is that of the shapes"
WINDOW = "a window of constant size slides over the input: the work is that of the shapes"
NORMAL = "sums over axes and one result for each element; division is of floating point, which does not trap"
REDUCE = "one pass over the input; the result is no larger"
MOVE = "moves elements; the result has those of its inputs, each at most once"
REPEAT = "repeats elements as often as an input says, which must not depend on values"
LOOKUP = "as many results as there are indices, and indices outside the table are refused with an error"
SHAPES = "reads the shape, not the values"
QUANTISE = "one result for each element; values beyond the range saturate"
RECURRENT = "as many steps as the axis has; an empty axis ends the process, so every allowed shape must have been run"

_GROUPS: tuple[tuple[str, str], ...] = (
    (
        ELEMENTWISE,
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil "
        "Celu Clip Cos Cosh Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf "
        "IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mul Neg Not Or PRelu Reciprocal Relu Round Selu "
        "Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor",
    ),
    (PRODUCT, "Gemm MatMul MatMulInteger"),
    (
        WINDOW,
        "AveragePool Conv ConvInteger ConvTranspose GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool LRN",
    ),
    (
        NORMAL,
        "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LogSoftmax LpNormalization "
        "MeanVarianceNormalization RMSNormalization Softmax",
    ),
    (REDUCE, "ArgMax ArgMin Hardmax"),
    (MOVE, "Concat DepthToSpace Flatten SpaceToDepth Transpose"),
    (LOOKUP, "Gather GatherElements GatherND ScatterElements ScatterND"),
    (SHAPES, "Shape Size"),
    (QUANTISE, "DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul QuantizeLinear"),
)
_CONTRIB_GROUPS: tuple[tuple[str, str], ...] = (
    (QUANTISE, "QuantizeLinear DequantizeLinear QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu"),
    (PRODUCT, "DynamicQuantizeMatMul FusedGemm FusedMatMul MatMulIntegerToFloat QGemm"),
    (WINDOW, "FusedConv QLinearAveragePool QLinearGlobalAveragePool"),
    (NORMAL, "SkipLayerNormalization"),
    (ELEMENTWISE, "BiasGelu FastGelu Gelu QuickGelu"),
)
_REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare"


def _grouped(groups: tuple[tuple[str, str], ...], domain: str = "") -> dict[tuple[str, str], Operator]:
    return {(domain, name): Operator(reason) for reason, names in groups for name in names.split()}


OPERATORS: Mapping[tuple[str, str], Operator] = (
    _grouped(_GROUPS)
    | _grouped(_CONTRIB_GROUPS, CONTRIB)
    | {("", name): Operator(REDUCE, shaping=(1,)) for name in _REDUCTIONS.split()}
    | {
        ("", "ConstantOfShape"): Operator(REPEAT, shaping=(0,)),
        ("", "CumSum"): Operator(REDUCE, shaping=(1,)),
        ("", "Div"): Operator(
            "floating point does not trap; integers trap on 0, and the smallest one on -1",
            condition=Condition.INTEGERS_DIVIDE,
        ),
        ("", "Expand"): Operator(REPEAT, shaping=(1,)),
        ("", "GRU"): Operator(RECURRENT, shaping=(4,), condition=Condition.NEVER_EMPTY),
        ("", "LSTM"): Operator(RECURRENT, shaping=(4,), condition=Condition.NEVER_EMPTY),
        ("", "Mod"): Operator(
            "as Div: integers trap on 0, and the smallest one on -1; floating point takes as long as the values say",
            condition=Condition.INTEGERS_DIVIDE,
        ),
        ("", "OneHot"): Operator(REPEAT, shaping=(1,)),
        ("", "Pad"): Operator(REPEAT, shaping=(1, 3)),
        ("", "Pow"): Operator(ELEMENTWISE),
        ("", "RNN"): Operator(RECURRENT, shaping=(4,), condition=Condition.NEVER_EMPTY),
        ("", "Range"): Operator(REPEAT, shaping=(0, 1, 2)),
        ("", "ReduceMean"): Operator(
            "as the other reductions; the mean of no integers divides by 0, so of integers as Div",
            shaping=(1,),
            condition=Condition.INTEGERS_DIVIDE,
        ),
        ("", "Reshape"): Operator(MOVE, shaping=(1,)),
        ("", "Resize"): Operator(REPEAT, shaping=(1, 2, 3), condition=Condition.RESIZES),
        ("", "Slice"): Operator(MOVE, shaping=(1, 2, 3, 4), condition=Condition.SLICES),
        ("", "Split"): Operator(MOVE, shaping=(1,), condition=Condition.SPLITS),
        ("", "Squeeze"): Operator(MOVE, shaping=(1,), condition=Condition.SQUEEZES),
        ("", "Tile"): Operator(REPEAT, shaping=(1,)),
        ("", "Trilu"): Operator(MOVE, shaping=(1,)),
        ("", "Unsqueeze"): Operator(MOVE, shaping=(1,)),
    }
)
"""(domain, name) of each; the default domain is the empty word."""

KNOWN_HAZARDS: Mapping[str, str] = {
    "Loop": "it may run for ever",
    "Scan": "a loop over an axis whose body may be of any size",
    "If": "which of its branches runs depends on values",
    "NonZero": "its result grows with the values",
    "Unique": "its result depends on the values",
    "Compress": "its result depends on the values",
    "NonMaxSuppression": "its time and its result depend on the values",
    "TopK": "it sorts by comparisons that NaN breaks",
    "RoiAlign": "its loops are as long as the values say",
    "MaxRoiPool": "its loops are as long as the values say",
    "ReverseSequence": "it reads as far as the values say",
    "BitShift": "a shift beyond the width of the type is undefined",
    "Det": "it has not been reviewed for matrices that have no inverse",
    "Einsum": "its equation may ask for any product, in an order that its kernel chooses",
}
"""Why well-known operators are not on the list; of others it is said that nobody has reviewed them."""
