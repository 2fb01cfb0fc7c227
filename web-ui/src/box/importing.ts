// The import form: its fields, what they say as metadata, and at which of them a refusal belongs.
import { t } from '../texts/importing'
import { Problem } from './http'

/** What of the form is text, and is kept until a reload; files are chosen anew. */
export const EMPTY = {
  name: '', task: '', application: '', alone: false, shared: false, decoder: '', mean: '', std: '', layout: '', channels: '', resize: '',
  height: '', width: '', multiple: '', pad_value: '', fp16: true, int8: true, rest: '',
}
export type Form = typeof EMPTY
export type FileField = 'labels' | 'evaluation' | 'calibration' | 'tokenizer'
export type Field = keyof Form | FileField | 'file'

/** Words of the metadata of a picture. */
export const CHOICES = { channels: ['RGB', 'BGR', 'GRAY'], layout: ['NCHW', 'NHWC'], resize: ['stretch', 'letterbox', 'crop', 'keep-height'] } as const
const SIDES = ['height', 'width', 'multiple'] as const

const DETECTORS = ['nanodet', 'centerface', 'blazeface', 'yolov8', 'yolov5', 'ssd', 'end2end']
/** Decoders of a task; none: the box reads its outputs in one way only. */
export const DECODERS: Record<string, string[]> = {
  'image-classification': ['softmax', 'sigmoid', 'probabilities'],
  'object-detection': DETECTORS,
  'face-detection': DETECTORS,
}

/** Whether a file may hold more than the network. */
export const isArchive = (name: string): boolean => /\.(zip|tar|tgz|gz|bz2|xz)$/i.test(name)

/** A field that says what the box would refuse. */
export class Wrong extends Error {
  constructor(readonly field: Field, message: string) {
    super(message)
  }
}

function numbers(field: 'mean' | 'std', text: string): number[] | undefined {
  const words = text.split(/[\s,;]+/).filter(Boolean)
  if (!words.length) return undefined
  const found = words.map(Number)
  if (![1, 3].includes(found.length) || found.some((one) => !Number.isFinite(one))) throw new Wrong(field, t.numbers)
  if (field === 'std' && found.some((one) => one <= 0)) throw new Wrong(field, t.aboveZero)
  return found
}

function number(field: (typeof SIDES)[number] | 'pad_value', text: string): number | undefined {
  if (text.trim() === '') return undefined
  const found = Number(text)
  if (!Number.isFinite(found) || (field !== 'pad_value' && (!Number.isInteger(found) || found < 1))) throw new Wrong(field, field === 'pad_value' ? t.number : t.whole)
  return found
}

function rest(text: string): Record<string, unknown> {
  if (text.trim() === '') return {}
  let found: unknown
  try {
    found = JSON.parse(text)
  } catch (error) {
    throw new Wrong('rest', String((error as Error).message))
  }
  if (found === null || typeof found !== 'object' || Array.isArray(found)) throw new Wrong('rest', t.object)
  return found as Record<string, unknown>
}

/** The metadata that the form states; what is left out the box infers. Throws: Wrong. */
export function metadata(form: Form): Record<string, unknown> {
  const stated = rest(form.rest)
  const said = Object.entries({
    mean: numbers('mean', form.mean),
    std: numbers('std', form.std),
    channels: form.channels || undefined,
    layout: form.layout || undefined,
    resize: form.resize || undefined,
    ...Object.fromEntries([...SIDES, 'pad_value' as const].map((field) => [field, number(field, form[field])])),
  }).filter(([, value]) => value !== undefined)
  if (said.length) stated.image = { ...(stated.image as object | undefined), ...Object.fromEntries(said) }
  if (form.decoder) stated.decoder = form.decoder
  if (!form.fp16 || !form.int8) stated.precisions = (['fp16', 'int8'] as const).filter((one) => form[one])
  return stated
}

const PLACES: [RegExp, Field][] = [
  [/^'?image\.(mean|std|layout|channels|resize|height|width|multiple|pad_value)'?/, 'rest'],
  [/^'labels'|^the labels|^the keys of 'labels'/, 'labels'],
  [/^unknown decoder/, 'decoder'],
  [/^unknown task/, 'task'],
  [/^precisions/, 'fp16'],
  [/no name for a application|no name for an application|^application:/, 'application'],
  [/no name for a model/, 'name'],
]

/** The field that the box means; null: it says none. */
export function fieldOf(error: unknown): Field | null {
  if (error instanceof Wrong) return error.field
  if (!(error instanceof Problem)) return null
  if (error.slug === 'already-exists') return 'name'
  if (error.slug !== 'bad-metadata' && error.slug !== 'bad-name') return null
  for (const [words, field] of PLACES) {
    const found = words.exec(error.detail)
    if (found) return (found[1] as Field | undefined) ?? field
  }
  return error.slug === 'bad-metadata' ? 'rest' : null
}
