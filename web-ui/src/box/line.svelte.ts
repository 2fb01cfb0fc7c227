// The line to the box: one event stream a tab, and what is known of its silence.
import { heard } from './http'
import { root } from './root'

/** Something that changed; as `EventShape` has it, which the document of the API does not hold, since it is streamed. */
export interface BoxEvent {
  id: number
  at: string
  event: string
  severity: 'info' | 'warning' | 'error'
  tenant: string | null
  facts: Record<string, unknown>
}
type Listener = (event: BoxEvent | null) => void

const HEARTBEAT_MS = 15_000
const LATE_MS = 6_000
/** Events that are older than the opening of the line by more than that are in what pages have just fetched. */
const KNOWN_MS = 3_000
const RECENT = 60

class Line {
  /** When the box fell silent; null: it answers. */
  silentSince = $state<Date | null>(null)
  lastWord = $state<Date | null>(null)
  recent = $state.raw<BoxEvent[]>([])
  #listeners = new Set<Listener>()
  #lastId: number | null = null
  /** The box's time, milliseconds since 1970, from which on events are news. */
  #newsSince = 0
  #abort: AbortController | null = null
  #watch = 0
  #again = 0
  #wanted = false

  constructor() {
    heard.answer = () => this.#word()
    heard.silence = () => this.#silence()
    document.addEventListener('visibilitychange', () => this.#look())
  }

  open(): void {
    this.#wanted = true
    this.#look()
  }

  close(): void {
    this.#wanted = false
    this.recent = []
    this.#lastId = null
    this.#look()
  }

  /** Hear of every event; null: there may have been others, ask again. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #look(): void {
    const open = this.#wanted && document.visibilityState === 'visible'
    if (open && !this.#abort) void this.#follow()
    if (!open) this.#hangUp()
  }

  #hangUp(): void {
    clearTimeout(this.#again)
    clearTimeout(this.#watch)
    this.#abort?.abort()
    this.#abort = null
  }

  async #follow(): Promise<void> {
    const abort = (this.#abort = new AbortController())
    const from = this.#lastId === null ? `latest=${RECENT}` : `after=${this.#lastId}`
    try {
      const response = await fetch(`${root}/v1/events?${from}`, { signal: abort.signal, cache: 'no-store' })
      if (response.status === 401) {
        heard.signedOut()
        return
      }
      if (!response.ok || !response.body) throw new Error()
      if (this.#lastId === null) this.#newsSince = Date.parse(response.headers.get('Date') ?? '') - KNOWN_MS
      else this.#tell(null)
      await this.#read(response.body)
    } catch {
      // told below
    }
    if (this.#abort !== abort) return
    this.#abort = null
    this.#silence()
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader()
    let text = ''
    for (;;) {
      clearTimeout(this.#watch)
      this.#watch = setTimeout(() => this.#silence(true), HEARTBEAT_MS + LATE_MS)
      const { value, done } = await reader.read()
      if (done) return
      this.#word()
      text += value
      const frames = text.split('\n\n')
      text = frames.pop() ?? ''
      for (const one of frames) this.#frame(one)
    }
  }

  #frame(text: string): void {
    const data = text.split('\n').find((each) => each.startsWith('data: '))
    if (!data) return
    const event = JSON.parse(data.slice(6)) as BoxEvent
    if (this.#lastId !== null && event.id <= this.#lastId) this.#tell(null) // the box began anew
    this.#lastId = event.id
    this.recent = [event, ...this.recent].slice(0, RECENT)
    if (!(Date.parse(event.at) < this.#newsSince)) this.#tell(event)
  }

  #tell(event: BoxEvent | null): void {
    for (const listener of this.#listeners) listener(event)
  }

  #word(): void {
    this.lastWord = new Date()
    if (!this.silentSince) return
    this.silentSince = null
    this.#tell(null)
    this.#look()
  }

  #silence(hangUp = false): void {
    if (hangUp) {
      this.#abort?.abort()
      this.#abort = null
    }
    if (document.visibilityState !== 'visible') return
    this.silentSince ??= this.lastWord ?? new Date()
    clearTimeout(this.#again)
    this.#again = setTimeout(() => {
      if (!this.#abort) this.#look()
    }, 1000)
  }
}

export const line = new Line()
