// A model on its way into the box: in pieces, each acknowledged, so that a broken line or a reload loses one at most.
import { ask, answer, Problem, Silent } from './http'
import type { FileField, Form } from './importing'
import { session } from './session.svelte'
import type { components } from './wire'

type Upload = components['schemas']['UploadShape']
type Job = components['schemas']['JobShape']

const PIECE_BYTES = 4 * 2 ** 20
const KEPT = 'upload'

export interface Kept {
  upload: string
  tenant: string
  file: string
  size: number
  modified: number
  form: Form
}

/** The upload that was under way before a reload. */
export function kept(): Kept | null {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? 'null') as Kept | null
    return found && found.tenant === session.tenant ? found : null
  } catch {
    return null
  }
}

function keep(what: Kept | null): void {
  try {
    if (what) localStorage.setItem(KEPT, JSON.stringify(what))
    else localStorage.removeItem(KEPT)
  } catch {
    // a browser that keeps nothing: a reload begins anew
  }
}

export class Sending {
  offset = $state(0)
  size = $state(0)
  isUnderWay = $state(false)
  isPaused = $state(false)
  error = $state.raw<unknown>(null)
  #abort: AbortController | null = null

  get share(): number {
    return this.size ? this.offset / this.size : 0
  }

  pause(): void {
    this.isPaused = true
    this.#abort?.abort()
  }

  /** Send the file, or what is missing of it, then order its import. Null: it did not get so far. */
  async send(file: File, form: Form, metadata: Record<string, unknown>, files: Partial<Record<FileField, File>>): Promise<Job | null> {
    this.error = null
    this.isPaused = false
    this.isUnderWay = true
    this.size = file.size
    this.#abort = new AbortController()
    try {
      const upload = await this.#upload(file, form)
      await this.#pieces(file, upload)
      const order = new FormData()
      order.set('upload', upload)
      order.set('name', form.name)
      if (form.task) order.set('task', form.task)
      if (form.shared) order.set('shared', 'true')
      if (form.application || form.alone) order.set('application', form.alone ? '' : form.application)
      if (Object.keys(metadata).length) order.set('metadata', JSON.stringify(metadata))
      for (const [field, part] of Object.entries(files)) if (part) order.set(field, part)
      const job = await ask<Job>('/v1/models', { method: 'POST', raw: order })
      keep(null)
      return job
    } catch (error) {
      if (!this.isPaused) this.error = error
      return null
    } finally {
      this.isUnderWay = false
    }
  }

  /** Send a file and hand its upload on; a reload begins anew. Null: it did not get so far. */
  async hand<T>(file: File, on: (upload: string) => Promise<T>): Promise<T | null> {
    this.error = null
    this.isUnderWay = true
    this.size = file.size
    this.offset = 0
    this.#abort = new AbortController()
    try {
      const made = await ask<Upload>('/v1/uploads', { method: 'POST', body: { length: file.size, file_name: file.name } })
      await this.#pieces(file, made.id)
      return await on(made.id)
    } catch (error) {
      this.error = error
      return null
    } finally {
      this.isUnderWay = false
    }
  }

  /** How far the upload of before a reload has come; null: the box does not have it any more. */
  async recall(): Promise<Kept | null> {
    const found = kept()
    if (!found || this.isUnderWay) return found
    try {
      this.offset = (await ask<Upload>(`/v1/uploads/${found.upload}`)).offset
      this.size = found.size
      return found
    } catch (error) {
      if (error instanceof Problem && error.status === 404) keep(null)
      return kept()
    }
  }

  /** Give up what was sent. */
  async drop(): Promise<void> {
    const found = kept()
    keep(null)
    if (found) await answer(`/v1/uploads/${found.upload}`, { method: 'DELETE' }).catch(() => {})
    this.offset = 0
    this.isPaused = false
    this.error = null
  }

  async #upload(file: File, form: Form): Promise<string> {
    const before = kept()
    if (before && before.file === file.name && before.size === file.size && before.modified === file.lastModified) {
      try {
        const found = await ask<Upload>(`/v1/uploads/${before.upload}`)
        this.offset = found.offset
        keep({ ...before, form })
        return before.upload
      } catch (error) {
        if (!(error instanceof Problem && error.status === 404)) throw error
      }
    }
    if (before) await this.drop()
    const made = await ask<Upload>('/v1/uploads', { method: 'POST', body: { length: file.size, file_name: file.name } })
    this.offset = 0
    keep({ upload: made.id, tenant: session.tenant, file: file.name, size: file.size, modified: file.lastModified, form })
    return made.id
  }

  async #pieces(file: File, upload: string): Promise<void> {
    let misses = 0
    while (this.offset < file.size) {
      try {
        const piece = file.slice(this.offset, this.offset + PIECE_BYTES)
        const headers = { 'Content-Type': 'application/offset+octet-stream', 'Upload-Offset': String(this.offset) }
        const sent = await ask<Upload>(`/v1/uploads/${upload}`, { method: 'PATCH', raw: piece, headers, signal: this.#abort?.signal })
        this.offset = sent.offset
        misses = 0
      } catch (error) {
        const isLine = error instanceof Silent || (error instanceof Problem && error.slug === 'offset-mismatch')
        if (!isLine || this.isPaused || ++misses > 60) throw error
        await new Promise((done) => setTimeout(done, 1000))
        await ask<Upload>(`/v1/uploads/${upload}`).then((found) => (this.offset = found.offset)).catch((caught) => {
          if (caught instanceof Problem) throw caught
        })
      }
    }
  }
}

export const sending = new Sending()

const WORDS: [RegExp, string][] = [
  [/face|retina/i, 'face-detection'],
  [/yolo|ssd|det(ect|r)|nanodet|object/i, 'object-detection'],
  [/rec|crnn|ocr/i, 'text-recognition'],
  [/(^|[-_.])(db|east|text)/i, 'text-detection'],
  [/minilm|bert|sentence|e5|bge/i, 'text-embedding'],
  [/clip|dino|reid|embed/i, 'image-embedding'],
  [/vad|silero|voice/i, 'voice-activity'],
  [/net|vgg|class|digits|vit/i, 'image-classification'],
]

/** What a network probably does, by the name of its file; the person has the last word. */
export function guessed(file: string): string {
  if (/ppocr.*det|text.*det/i.test(file)) return 'text-detection'
  return WORDS.find(([words]) => words.test(file))?.[1] ?? 'tensor'
}

/** A legal name of a model, from that of its file. */
export function stem(file: string): string {
  return file.toLowerCase().replace(/(\.tar)?\.[a-z0-9]+$/, '').replace(/[^a-z0-9._-]+/g, '-').replace(/^[^a-z0-9]+/, '').slice(0, 63)
}
