// Where the stages of a pipeline are drawn: from left to right where they find room, else one below the other.
import { before, depths, ordered, type Stage } from './pipeline'

export interface Place { stage: Stage; x: number; y: number }
export interface Edge { from: string; to: string; path: string; isConditional: boolean }
export interface Layout { places: Place[]; edges: Edge[]; width: number; height: number; boxWidth: number; boxHeight: number }

const GAP_X = 44
const GAP_Y = 22
const BOX_MIN = 138
const BOX_MAX = 210
const LANE = 14

export function layout(stages: Stage[], room: number, boxHeight: number): Layout {
  const depth = depths(stages)
  const found: Stage[][] = []
  for (const stage of ordered(stages)) (found[depth.get(stage.name) ?? 0] ??= []).push(stage)
  const columns = found.filter(Boolean) // a circle leaves depths at which there is none
  const boxWidth = Math.min(BOX_MAX, (room - GAP_X * (columns.length - 1)) / columns.length)
  return boxWidth >= BOX_MIN ? across(columns, boxWidth, boxHeight) : down(columns.flat(), room, boxHeight)
}

function across(columns: Stage[][], boxWidth: number, boxHeight: number): Layout {
  const most = Math.max(...columns.map((column) => column.length))
  const height = most * boxHeight + (most - 1) * GAP_Y
  const places = columns.flatMap((column, at) => {
    const top = (height - column.length * boxHeight - (column.length - 1) * GAP_Y) / 2
    return column.map((stage, row) => ({ stage, x: at * (boxWidth + GAP_X), y: top + row * (boxHeight + GAP_Y) }))
  })
  let hasFar = false
  const edges = edgesOf(places, (from, to) => {
    const [x1, y1, x2, y2] = [from.x + boxWidth, from.y + boxHeight / 2, to.x, to.y + boxHeight / 2]
    const reach = Math.min(GAP_X / 2, (x2 - x1) / 2)
    // past a column in between: below the boxes of the row
    const far = x2 - x1 > GAP_X + 1 && Math.abs(y1 - y2) < 1
    const low = y1 + boxHeight / 2 + GAP_Y / 2
    hasFar ||= far
    return far
      ? `M${x1} ${y1}C${x1 + reach} ${y1} ${x1} ${low} ${x1 + GAP_X} ${low}H${x2 - GAP_X}C${x2} ${low} ${x2 - reach} ${y2} ${x2 - 1} ${y2}`
      : `M${x1} ${y1}C${x1 + reach} ${y1} ${x2 - reach} ${y2} ${x2 - 1} ${y2}`
  })
  return { places, edges, width: columns.length * boxWidth + (columns.length - 1) * GAP_X, height: height + (hasFar ? GAP_Y : 0), boxWidth, boxHeight }
}

function down(stages: Stage[], room: number, boxHeight: number): Layout {
  const row = new Map(stages.map((stage, at) => [stage.name, at]))
  const spans: { key: string; from: number; to: number; lane: number }[] = []
  for (const stage of stages)
    for (const name of before(stage)) {
      const from = row.get(name)
      const to = row.get(stage.name)
      if (from === undefined || to === undefined || to - from === 1) continue
      let lane = 0
      while (spans.some((one) => one.lane === lane && one.from < to && from < one.to)) lane++
      spans.push({ key: `${name} ${stage.name}`, from, to, lane })
    }
  const rail = spans.length ? LANE * (Math.max(...spans.map((one) => one.lane)) + 1) + 8 : 0
  const boxWidth = Math.min(room - rail, 2 * BOX_MAX)
  const places = stages.map((stage, at) => ({ stage, x: rail, y: at * (boxHeight + GAP_Y) }))
  const edges = edgesOf(places, (from, to) => {
    const span = spans.find((one) => one.key === `${from.stage.name} ${to.stage.name}`)
    if (!span) return `M${rail + boxWidth / 2} ${from.y + boxHeight}V${to.y - 1}`
    const x = rail - 8 - LANE * (span.lane + 0.5)
    const [y1, y2] = [from.y + boxHeight * 0.65, to.y + boxHeight * 0.35]
    return `M${rail} ${y1}Q${x} ${y1} ${x} ${y1 + 12}V${y2 - 12}Q${x} ${y2} ${rail - 1} ${y2}`
  })
  return { places, edges, width: rail + boxWidth, height: stages.length * (boxHeight + GAP_Y) - GAP_Y, boxWidth, boxHeight }
}

function edgesOf(places: Place[], path: (from: Place, to: Place) => string): Edge[] {
  const known = new Map(places.map((place) => [place.stage.name, place]))
  return places.flatMap((to) =>
    before(to.stage).flatMap((name) => {
      const from = known.get(name)
      return from ? [{ from: name, to: to.stage.name, path: path(from, to), isConditional: to.stage.when?.stage === name }] : []
    }),
  )
}
