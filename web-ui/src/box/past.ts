// What happened: series of the last hour, day or month, and who was in memory.
import { ask } from './http'
import { route } from './route.svelte'
import type { components } from './wire'

type Schemas = components['schemas']
/** Seconds. */
export const SPANS: Record<string, number> = { hour: 3600, day: 86_400, month: 30 * 86_400 }

/** As the address says. */
export function span(): string {
  return route.span in SPANS ? route.span : 'hour'
}

function period(): URLSearchParams {
  return new URLSearchParams({ from: new Date(Date.now() - (SPANS[span()] ?? 3600) * 1000).toISOString() })
}

export interface Past {
  /** Seconds since 1970, of each point. */
  at: number[]
  series: Record<string, Schemas['SeriesShape']>
}

export async function past(names: string[], signal: AbortSignal, points = 180): Promise<Past> {
  const query = period()
  for (const name of names) query.append('series', name)
  query.set('points', String(Math.min(2000, points * names.length)))
  const found = await ask<Schemas['HistoryShape']>(`/v1/history?${query}`, { signal })
  const start = Date.parse(found.start) / 1000
  return {
    at: Array.from({ length: found.count }, (_, index) => start + index * found.step_s),
    series: Object.fromEntries(found.series.map((one) => [one.name, one])),
  }
}

/** Events of a rate in all the time. */
export function total(shown: Past, name: string): number {
  return Math.round(shown.series[name]?.total ?? 0)
}

/** Times are milliseconds since 1970. */
export interface Stay extends Pick<Schemas['StayShape'], 'bytes' | 'came_by' | 'came' | 'left_by' | 'left'> {
  /** What stays of one build have in common; the same object for all of them. */
  of: Schemas['BuildColumnShape']
  since: number
  until: number | null
}
export interface Window { application: string; since: number; until: number }
export interface Residency {
  start: number
  end: number
  stays: Stay[]
  windows: Window[]
  decisions: Schemas['ReasonShape'][]
  is_whole: boolean
}

export async function residency(signal: AbortSignal): Promise<Residency> {
  // of an hour with the reasons; of longer ones they are most of the answer, and a click tells each
  const query = period()
  query.set('reasons', String(span() === 'hour'))
  query.set('columns', 'true')
  return unpacked(await ask<Schemas['MemoryColumnsShape']>(`/v1/memory/history?${query}`, { signal }))
}

function unpacked({ builds, ways, stays, applications, windows, ...rest }: Schemas['MemoryColumnsShape']): Residency {
  const start = Date.parse(rest.start)
  const at = (value: number | null | undefined): number | null => (value == null ? null : start + value)
  const way = (place: number | undefined): string => ways[place ?? 0] ?? ''
  return {
    start,
    end: Date.parse(rest.end),
    stays: stays.build.flatMap((build, place) => {
      const of = builds[build]
      if (!of) return []
      const since = at(stays.since_ms[place]) ?? start
      return [{ of, bytes: stays.bytes[place] ?? 0, since, until: at(stays.until_ms[place]), came_by: way(stays.came_by[place]), came: stays.came[place] ?? null, left_by: way(stays.left_by[place]), left: stays.left[place] ?? null }]
    }),
    windows: windows.application.map((one, place) => ({ application: applications[one] ?? '', since: at(windows.since_ms[place]) ?? start, until: at(windows.until_ms[place]) ?? start })),
    decisions: rest.decisions,
    is_whole: rest.is_whole,
  }
}

const LAYERS = 6
/** Places on the axis of time; changes that are nearer than that are drawn as one. */
const PLACES = 1500

export interface Stack {
  at: number[]
  /** Largest on the whole first; each the sum of itself and those after it, as areas are drawn one over the other. */
  layers: { name: string; values: number[] }[]
  /** How often somebody came or went. */
  changes: number
}

/** Bytes over time by name, from change to change; the smaller ones together. */
export function stacked(found: Residency, nameOf: (stay: Stay['of']) => string, others: string): Stack {
  const from = found.start / 1000
  const to = found.end / 1000
  const weights = new Map<string, number>()
  const known = new Map<Stay['of'], string>()
  let count = 0
  const rows = found.stays.map((stay) => {
    let name = known.get(stay.of)
    if (name === undefined) known.set(stay.of, (name = nameOf(stay.of)))
    const came = stay.since / 1000
    const since = Math.max(from, came)
    const until = stay.until === null ? to : Math.min(to, stay.until / 1000)
    count += Number(came >= from) + Number(stay.until !== null)
    weights.set(name, (weights.get(name) ?? 0) + stay.bytes * Math.max(0, until - since))
    return { name, since, until, bytes: stay.bytes }
  })
  const order = [...weights].sort((a, b) => b[1] - a[1]).map(([name]) => name)
  const names = order.length > LAYERS ? [...order.slice(0, LAYERS - 1), others] : order
  const place = new Map(names.map((name, index) => [name, index]))
  const rest = names.length - 1
  const changes: [number, number, number][] = []
  for (const row of rows) {
    const index = place.get(row.name) ?? rest
    changes.push([row.since, index, row.bytes])
    if (row.until < to) changes.push([row.until, index, -row.bytes])
  }
  changes.sort((a, b) => a[0] - b[0])
  const now = names.map(() => 0)
  const at: number[] = []
  const values: number[][] = names.map(() => [])
  const near = (to - from) / PLACES
  const note = (moment: number): void => {
    const last = at.at(-1)
    if (last === undefined || moment - last >= near || (moment === to && last !== to)) {
      at.push(moment)
      for (const one of values) one.push(0)
    }
    let sum = 0
    for (let index = now.length - 1; index >= 0; index--) {
      sum += now[index] ?? 0
      const own = values[index]
      if (own) own[at.length - 1] = sum
    }
  }
  note(from)
  for (const [moment, index, count] of changes) {
    now[index] = (now[index] ?? 0) + count
    note(moment)
  }
  note(to)
  return { at, layers: names.map((name, index) => ({ name, values: values[index] ?? [] })), changes: count }
}
