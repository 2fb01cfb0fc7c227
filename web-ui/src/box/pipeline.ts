// Pipelines: their stages in order and in words, a first definition of one, and what stands in the answer to a frame.
import { percent } from '../format'
import { t } from '../texts'
import { corners, type Drawing, type Point } from './drawing'
import type { components } from './wire'

type Schemas = components['schemas']
export type Status = Schemas['PipelineStatusShape']
export type Stage = Status['stages'][number]
export type Frame = Schemas['FrameShape']
export type Item = Schemas['ItemShape']

const T = t.pipeline

/** Stages whose answers it waits for, that of its condition among them. */
export function before(stage: Stage): string[] {
  const names = stage.after ?? []
  return stage.when && !names.includes(stage.when.stage) ? [...names, stage.when.stage] : [...names]
}

/** How many stages are before each on its longest path. */
export function depths(stages: Stage[]): Map<string, number> {
  const known = new Map(stages.map((stage) => [stage.name, stage]))
  const found = new Map<string, number>()
  const depth = (name: string): number => {
    const stage = known.get(name)
    if (!stage) return -1
    const have = found.get(name)
    if (have !== undefined) return have
    found.set(name, 0) // the box takes no cycles; a definition that is being typed may have one
    const value = 1 + Math.max(-1, ...before(stage).map(depth))
    found.set(name, value)
    return value
  }
  for (const stage of stages) depth(stage.name)
  return found
}

/** Each after those that it waits for. */
export function ordered(stages: Stage[]): Stage[] {
  const depth = depths(stages)
  return [...stages].sort((a, b) => (depth.get(a.name) ?? 0) - (depth.get(b.name) ?? 0))
}

export function isApplication(stage: Stage): stage is Extract<Stage, { application: string }> {
  return 'application' in stage
}

const list = (value: string | string[] | null | undefined): string[] => (value == null ? [] : [value].flat())

/** What it does: the application that it asks, or the built-in. */
export function what(stage: Stage): string {
  if (isApplication(stage)) return stage.application
  if (stage.do === 'crop') {
    const { score_min = 0, size_min = 0, label, label_not } = stage.where ?? {}
    return [T.crop(stage.of), score_min ? T.score(score_min) : '', size_min ? T.size(size_min) : '', labelled(label, label_not)].filter(Boolean).join(', ')
  }
  if (stage.do === 'pick') return T.pick(stage.best, stage.by ?? 'score', list(stage.labels))
  return T.join
}

function labelled(label: string | string[] | null | undefined, not: string | string[] | null | undefined): string {
  return [list(label).length ? list(label).join(t.or) : '', list(not).length ? T.not(list(not).join(t.or)) : ''].filter(Boolean).join(', ')
}

/** Under which answer it asks at all; empty: always. */
export function condition(stage: Stage): string {
  if (!stage.when) return ''
  const { stage: of, label, label_not, score_min = 0 } = stage.when
  return T.when(of, [labelled(label, label_not), score_min ? T.score(score_min) : ''].filter(Boolean).join(', '))
}

/** `find → lines → read`, each stage once. */
export function inALine(stages: Stage[]): string {
  const depth = depths(stages)
  const rows: string[][] = []
  for (const stage of stages) (rows[depth.get(stage.name) ?? 0] ??= []).push(stage.name)
  return rows.filter(Boolean).map((names) => names.join(', ')).join(' → ')
}

interface Example { name: string; latency_slo_ms: number; stages: object[] }

/** What a person may begin with, of the applications that are there; the first suits best. */
export function examples(applications: Schemas['ApplicationShape'][]): Example[] {
  const of = (task: string): string => {
    const one = applications.find((each) => each.task === task && each.available)
    return one?.name ?? ''
  }
  const crop = (after: string, list: string, where: object, most: number) => ({ do: 'crop', after: [after], of: list, where, at_most: most })
  const [lines, text, faces, vectors, objects, classes] = ['text-detection', 'text-recognition', 'face-detection', 'image-embedding', 'object-detection', 'image-classification'].map(of)
  const found: Example[] = []
  if (lines && (text || classes)) {
    const stages = [{ name: 'find', application: lines }, { name: 'lines', ...crop('find', 'regions', { score_min: 0.6 }, 16) }, { name: 'read', application: text || classes, after: ['lines'] }]
    found.push({ name: 'signs', latency_slo_ms: 600, stages })
  }
  if (faces && vectors) {
    const stages = [{ name: 'faces', application: faces }, { name: 'crop', ...crop('faces', 'objects', { score_min: 0.6 }, 8) }, { name: 'who', application: vectors, after: ['crop'] }]
    found.push({ name: 'people', latency_slo_ms: 400, stages })
  }
  if (objects && classes) {
    const stages = [{ name: 'objects', application: objects }, { name: 'persons', ...crop('objects', 'objects', { label: 'person' }, 8) }, { name: 'things', ...crop('objects', 'objects', { label_not: 'person' }, 4) }, { name: 'what', application: classes, after: ['things'] }]
    found.push({ name: 'street', latency_slo_ms: 400, stages })
  }
  const first = applications.find((each) => each.available)
  if (first) {
    const stages = [{ name: 'first', application: first.name }]
    found.push({ name: `${first.name}-pipeline`.slice(0, 63), latency_slo_ms: 1000, stages })
  }
  return found
}

/** An answer in a few words; empty where it has none. */
export function words(answer: Item['answer']): string {
  if (!answer) return ''
  const { text, labels, label, objects, regions, segments, dimensions, answers } = answer as Record<string, unknown>
  if (typeof text === 'string') return text.trim() ? `“${text}”` : ''
  if (Array.isArray(labels)) return labels[0] ? `${labels[0].label} ${Math.round(labels[0].score * 100)} %` : ''
  if (typeof label === 'string' && label) return label
  if (Array.isArray(objects)) return T.found(objects.length)
  if (Array.isArray(regions)) return T.found(regions.length)
  if (Array.isArray(segments)) return T.found(segments.length)
  if (typeof dimensions === 'number') return t.tryIt.dimensions(dimensions)
  if (Array.isArray(answers)) return answers.map((one) => words(one)).filter(Boolean).join(', ')
  return ''
}

const USUAL: Record<string, unknown> = { on_error: 'skip', at_most: 64, stateful: false, score_min: 0, size_min: 0 }

/** What of a stage is said: not what is so anyway. */
function told(value: object): object {
  const entries = Object.entries(value).map(([key, one]) => [key, one !== null && typeof one === 'object' && !Array.isArray(one) ? told(one) : one] as const)
  return Object.fromEntries(entries.filter(([key, one]) => one !== null && one !== USUAL[key] && !(typeof one === 'object' && Object.keys(one).length === 0)))
}

/** As it can be changed, without what is so anyway. */
export function definition({ latency_slo_ms, cost_by, weight, stages }: Status): string {
  return JSON.stringify({ latency_slo_ms, cost_by, weight, stages: stages.map((stage) => told(stage)) }, null, 2)
}

/** Of a definition those fields that were changed: what nobody touched is not to be decided anew. */
export function edited(before: string, after: unknown): unknown {
  if (after === null || typeof after !== 'object' || Array.isArray(after)) return after
  const old = JSON.parse(before) as Record<string, unknown>
  return Object.fromEntries(Object.entries(after).filter(([key, value]) => JSON.stringify(value) !== JSON.stringify(old[key])))
}

/** Beside the processor time; `joules` says them, of a frame or of a second. */
export function otherCosts(cost: Schemas['CostShape'], joules: (value: number) => string): string {
  if (!cost.seconds) return ''
  return [cost.joules == null ? '' : joules(cost.joules), cost.price == null ? '' : T.price(cost.price)].filter(Boolean).join(', ')
}

export interface Row { at: string; item: Item; words: string }

const score = (answer: Item['answer']): string => (typeof answer?.score === 'number' ? percent(answer.score) : '')

/** All items with a number that says below which they hang. */
export function rows(items: Item[], under = ''): Row[] {
  return items.flatMap((item, index) => {
    const at = `${under}${index + 1}`
    return [{ at, item, words: words(item.answer) || score(item.answer) }, ...rows(item.items ?? [], `${at}.`)]
  })
}

/** Why its SLO was not kept: a frame that lacks something may have come early. */
export function kept(frame: Frame): 'inTime' | 'late' | 'lacking' {
  if (frame.in_time) return 'inTime'
  const lacks = (items: Item[]): boolean => items.some((item) => item.none === 'dropped' || item.none === 'error' || lacks(item.items ?? []))
  return lacks(frame.items) ? 'lacking' : 'late'
}

/** Where items lie in the picture, and what was said of each; else what was found in all of it. */
export function drawings(items: Item[]): Drawing[] {
  return items.flatMap((item) => {
    const behind = item.items ?? []
    const points = item.quad ? (item.quad as Point[]) : item.box ? corners(item.box) : null
    const deeper = drawings(behind)
    if (points) return [{ words: [words(item.answer), ...said(behind)].filter(Boolean).join(' '), points, marks: [] }, ...deeper]
    return deeper.length || behind.length ? deeper : inAnswer(item.answer)
  })
}

/** Of what is said of the same item, not of those that were cut out of it. */
function said(items: Item[]): string[] {
  return items.flatMap((item) => (item.box || item.quad ? [] : [words(item.answer), ...said(item.items ?? [])]))
}

function inAnswer(answer: Item['answer']): Drawing[] {
  const { objects, regions } = (answer ?? {}) as { objects?: { label: string; box: [number, number, number, number]; landmarks?: Point[] }[]; regions?: { quad: Point[] }[] }
  return [
    ...(objects ?? []).map((one) => ({ words: one.label, points: corners(one.box), marks: one.landmarks ?? [] })),
    ...(regions ?? []).map((one, at) => ({ words: String(at + 1), points: one.quad, marks: [] })),
  ]
}
