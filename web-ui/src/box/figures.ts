// What `/metrics` says of one application: requests and where their time went, by variant.

export interface Figures {
  variant: string
  requests: number
  failed: number
  cold: number
  /** Mean milliseconds by part. */
  parts: Record<string, number>
  total: number
  p50: number
  p99: number
}

interface Row {
  done: number
  failed: number
  cold: number
  sums: Record<string, number>
  counts: Record<string, number>
  buckets: Map<number, number>
}

const SAMPLE = /^appliance_(requests_total|starts_total|request_seconds_\w+)\{(.*)\} (\S+)$/

function labels(text: string): Record<string, string> {
  return Object.fromEntries([...text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((each) => [each[1] ?? '', each[2] ?? '']))
}

/** Of one application (`tenant/name`), over all its callers. */
export function figuresOf(text: string, application: string): Figures[] {
  const rows = new Map<string, Row>()
  for (const line of text.split('\n')) {
    if (!line.startsWith('appliance_re') && !line.startsWith('appliance_st')) continue
    if (!line.includes(`application="${application}"`)) continue
    const found = SAMPLE.exec(line)
    if (!found) continue
    const of = labels(found[2] ?? '')
    const value = Number(found[3])
    const variant = of.variant ?? ''
    const row: Row = rows.get(variant) ?? { done: 0, failed: 0, cold: 0, sums: {}, counts: {}, buckets: new Map() }
    rows.set(variant, row)
    const part = of.part ?? ''
    if (found[1] === 'requests_total') of.outcome === 'done' ? (row.done += value) : (row.failed += value)
    else if (found[1] === 'starts_total') row.cold += of.start === 'cold' ? value : 0
    else if (found[1] === 'request_seconds_sum') row.sums[part] = (row.sums[part] ?? 0) + value
    else if (found[1] === 'request_seconds_count') row.counts[part] = (row.counts[part] ?? 0) + value
    else if (found[1] === 'request_seconds_bucket' && part === 'total') {
      const bound = of.le === '+Inf' ? Infinity : Number(of.le)
      row.buckets.set(bound, (row.buckets.get(bound) ?? 0) + value)
    }
  }
  return [...rows].map(([variant, row]) => {
    const mean = (part: string) => (row.counts[part] ? ((row.sums[part] ?? 0) / row.counts[part]) * 1000 : 0)
    const parts = { queue: mean('queue'), load: mean('load'), compute: mean('compute') }
    const total = mean('total')
    const rest = Math.max(0, total - parts.queue - parts.load - parts.compute)
    return { variant, requests: row.done, failed: row.failed, cold: row.cold, parts: { ...parts, rest }, total, p50: quantile(row.buckets, 0.5), p99: quantile(row.buckets, 0.99) }
  })
}

/** Milliseconds, linear within a bucket. */
export function quantile(buckets: Map<number, number>, share: number): number {
  const sorted = [...buckets].sort((a, b) => a[0] - b[0])
  const all = sorted.at(-1)?.[1] ?? 0
  let low = 0
  let before = 0
  for (const [bound, upTo] of sorted) {
    if (upTo >= share * all && upTo > before) {
      if (bound === Infinity) return low * 1000
      return (low + ((share * all - before) / (upTo - before)) * (bound - low)) * 1000
    }
    low = bound
    before = upTo
  }
  return 0
}
