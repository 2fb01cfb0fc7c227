// Figures as people read them.
import { t } from './texts'

const PREFIXES = ['', 'k', 'M', 'G', 'T']

function short(value: number): string {
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)
}

export function bytes(value: number | null | undefined): string {
  if (value == null) return t.unknown
  let at = 0
  while (value >= 1000 && at < PREFIXES.length - 1) {
    value /= 1000
    at++
  }
  return `${short(value)} ${PREFIXES[at]}B`
}

export function ms(value: number | null | undefined): string {
  if (value == null) return t.unknown
  if (value >= 10_000) return `${short(value / 1000)} s`
  if (Math.abs(value) < 0.001) return '0 ms'
  return `${value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toPrecision(2)} ms`
}

export function seconds(value: number | null | undefined): string {
  if (value == null) return t.unknown
  const units: [number, string][] = [[86_400, 'd'], [3600, 'h'], [60, 'min']]
  for (const [size, unit] of units) if (value >= size) return `${short(Math.floor((value / size) * 10) / 10)} ${unit}`
  return `${Math.round(value)} s`
}

export function percent(share: number | null | undefined, digits = 1): string {
  return share == null ? t.unknown : `${(share * 100).toFixed(digits)} %`
}

/** In percent, and 100 only where it is all. */
export function share(value: number | null | undefined): string {
  return value == null ? t.unknown : value === 1 ? '100 %' : `${(Math.floor(value * 1000 + 1e-6) / 10).toFixed(1)} %`
}

export function count(value: number | null | undefined): string {
  return value == null ? t.unknown : value.toLocaleString('en-GB')
}

export function clock(at: string | number | Date): string {
  return new Date(at).toLocaleTimeString('en-GB')
}

/** To the minute, where the browser is. */
export function day(at: string | number | Date): string {
  return moment(at).slice(0, 16)
}

/** To the second, where the browser is. */
export function moment(at: string | number | Date): string {
  const date = new Date(at)
  const two = (value: number) => String(value).padStart(2, '0')
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date)}`
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/** How far an import is, or why it waits. */
export function imported(job: { state: string; stage: string; percent: number; message: string; error: string }): string {
  const how = job.state === 'running' && job.stage ? `${job.stage}, ${job.percent.toFixed(0)} %` : ''
  return [how, job.error || job.message].filter(Boolean).join(': ')
}

/** Of a reason, without the figures behind it. */
export function sentence(reason: string): string {
  return reason.split('. ', 1)[0] ?? ''
}

export interface Group<T> { first: T; last: T; times: number }

/** Rows that follow one another and say the same, as one. */
export function grouped<T>(rows: T[], says: (row: T) => string): Group<T>[] {
  const found: Group<T>[] = []
  for (const row of rows) {
    const before = found.at(-1)
    if (before && says(before.last) === says(row)) {
      before.last = row
      before.times++
    } else found.push({ first: row, last: row, times: 1 })
  }
  return found
}

/** What somebody typed, without what turns the words after it round. */
export function plain(text: string): string {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '\ufffd')
}

/** `harbour/door` as who looks sees it: without the own tenant. */
export function named(id: string, tenant: string): string {
  return id.startsWith(`${tenant}/`) ? id.slice(tenant.length + 1) : id
}
