// What a page shows of the box, kept as it is: fetched, and fetched again when something happened or time passed.
import { Problem } from './http'
import { line } from './line.svelte'
import { session } from './session.svelte'
import { route } from './route.svelte'

const SETTLE_MS = 250

export class Live<T> {
  value = $state.raw<T | undefined>(undefined)
  problem = $state.raw<Problem | null>(null)
  #fetch: (signal: AbortSignal) => Promise<T>
  #abort: AbortController | null = null
  #soon = 0

  constructor(fetch: (signal: AbortSignal) => Promise<T>) {
    this.#fetch = fetch
  }

  async refresh(): Promise<void> {
    this.#abort?.abort()
    const abort = (this.#abort = new AbortController())
    try {
      this.value = await this.#fetch(abort.signal)
      this.problem = null
    } catch (error) {
      if (!abort.signal.aborted && error instanceof Problem && error.status !== 401) this.problem = error
    }
  }

  soon(): void {
    if (!this.#soon)
      this.#soon = setTimeout(() => {
        this.#soon = 0
        void this.refresh()
      }, SETTLE_MS)
  }

  end(): void {
    clearTimeout(this.#soon)
    this.#abort?.abort()
  }
}

export interface Told {
  /** Milliseconds between two looks while the tab is seen. */
  every?: number
  /** Words with which the names of events begin that change it. */
  on?: string[]
}

/** For a component: lives as long as it does. */
export function live<T>(fetch: (signal: AbortSignal) => Promise<T>, told: Told = {}): Live<T> {
  const made = new Live(fetch)
  $effect(() => {
    void session.who // signed in as somebody else: all of it is another's
    void route.tenant
    if (session.ended) return
    void made.refresh()
    const quiet = line.listen((event) => {
      if (event === null || told.on?.some((word) => event.event.startsWith(word))) made.soon()
    })
    const timer = told.every
      ? setInterval(() => {
          if (document.visibilityState === 'visible') void made.refresh()
        }, told.every)
      : 0
    return () => {
      quiet()
      clearInterval(timer)
      made.end()
    }
  })
  return made
}
