// How a promise was kept, cell by cell of an hour, a day or a month.
import { clock, count, seconds, share } from '../format'
import { t } from '../texts'
import type { components } from './wire'

type Schemas = components['schemas']
export type Promised = Schemas['PromiseHistoryShape']
export type Span = Schemas['PromiseSpanShape']
export const SPANS = ['hour', 'day', 'month'] as const
/** Seconds without the box that are worth a word. */
const DOWN_TOLD_S = 30
const DAY_S = 86_400

export interface Cell {
  state: 'counted' | 'none' | 'down' | 'unrecorded'
  /** Of what ended, 0 to 1. */
  broken: number
  when: string
  told: string
}

/** Counts as words, those of zero left out. */
export function ends(one: { kept: number; late: number; refused: number; failed: number; down_s?: number | null }): string {
  const counted = one.kept + one.late + one.refused + one.failed
  const broken = (['late', 'refused', 'failed'] as const).filter((name) => one[name] > 0).map((name) => `${count(one[name])} ${t.kept[name]}`)
  const down = (one.down_s ?? 0) >= DOWN_TOLD_S ? [t.kept.down(seconds(one.down_s))] : []
  return [counted ? t.kept.of(count(one.kept), count(counted)) : t.kept.nothing, ...broken, ...down].join(', ')
}

export function cells(span: Span): Cell[] {
  const columns = span.cells
  if (!columns) return []
  const start = Date.parse(span.start) / 1000
  return columns.kept.map((kept, place) => {
    const one = { kept, late: columns.late[place] ?? 0, refused: columns.refused[place] ?? 0, failed: columns.failed[place] ?? 0, down_s: columns.down_s[place] }
    const counted = one.kept + one.late + one.refused + one.failed
    const isDown = (one.down_s ?? 0) * 2 >= span.cell_s
    const state = counted ? 'counted' : one.down_s == null ? 'unrecorded' : isDown ? 'down' : 'none'
    const told = state === 'unrecorded' ? t.kept.unrecorded : counted ? `${share(kept / counted)}: ${ends(one)}` : ends(one)
    return { state, broken: counted ? 1 - kept / counted : 0, when: when(start + place * span.cell_s, span.cell_s), told }
  })
}

function when(second: number, length: number): string {
  if (length >= DAY_S) return t.kept.day(new Date(second * 1000).toISOString().slice(0, 10))
  return `${clock(second * 1000).slice(0, 5)}–${clock((second + length) * 1000).slice(0, 5)}`
}

/** What is promised, for a person. */
export function promiseText(one: Promised, texts: Record<string, (slo: string) => string> = t.kept.promises): string {
  return texts[one.of]?.(`${one.latency_slo_ms} ms`) ?? one.of
}
