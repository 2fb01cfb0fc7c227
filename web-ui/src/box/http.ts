// Asking the box: JSON in and out, problem documents as errors.
import { root } from './root'
import { route } from './route.svelte'

/** What the box refused, as it says it (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly slug: string,
    readonly title: string,
    readonly status: number,
    readonly detail: string,
    readonly facts: Record<string, unknown> = {},
  ) {
    super(detail)
  }
}

/** No answer came. */
export class Silent extends Error {}

/** Who hears of answers and silences: the line to the box. */
export const heard = {
  answer: (): void => {},
  silence: (): void => {},
  signedOut: (): void => {},
}

export interface Asked {
  method?: string
  body?: unknown
  raw?: BodyInit
  headers?: Record<string, string>
  signal?: AbortSignal
}

export async function answer(path: string, asked: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json', ...asked.headers }
  if (route.tenant && path !== '/v1/sign-in') headers['X-Tenant'] ??= route.tenant
  if (asked.body !== undefined) headers['Content-Type'] = 'application/json'
  let response: Response
  try {
    response = await fetch(root + path, {
      method: asked.method ?? 'GET',
      headers,
      body: asked.body !== undefined ? JSON.stringify(asked.body) : asked.raw,
      signal: asked.signal,
      cache: 'no-store',
    })
  } catch (error) {
    if (asked.signal?.aborted) throw error
    heard.silence()
    throw new Silent()
  }
  heard.answer()
  if (response.ok) return response
  const problem = await problemOf(response)
  if (response.status === 401 && path !== '/v1/sign-in') heard.signedOut()
  throw problem
}

export async function ask<T>(path: string, asked: Asked = {}): Promise<T> {
  const response = await answer(path, asked)
  return response.status === 204 ? (undefined as T) : ((await response.json()) as T)
}

/** All pages of a list. */
export async function all<T>(path: string, signal?: AbortSignal, headers?: Record<string, string>): Promise<T[]> {
  const found: T[] = []
  let cursor = ''
  do {
    const more = `${path.includes('?') ? '&' : '?'}limit=500${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`
    const page = await ask<{ items: T[]; next_cursor: string | null }>(path + more, { signal, headers })
    found.push(...page.items)
    cursor = page.next_cursor ?? ''
  } while (cursor)
  return found
}

async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text()
  try {
    const { type, title, status, detail, ...facts } = JSON.parse(text)
    return new Problem(String(type).split('/').pop() ?? '', title, status, detail, facts)
  } catch {
    return new Problem('', response.statusText, response.status, text.slice(0, 300))
  }
}
