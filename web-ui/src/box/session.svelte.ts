// Who is signed in.
import { ask, heard } from './http'
import { line } from './line.svelte'
import { route } from './route.svelte'
import type { components } from './wire'

class Session {
  /** undefined: not asked yet; null: nobody. */
  who = $state<components['schemas']['SignInShape'] | null | undefined>(undefined)
  /** Why a link did not sign in. */
  refused = $state.raw<unknown>(null)
  /** It ended while somebody was at work. */
  ended = $state(false)

  constructor() {
    heard.signedOut = () => {
      if (this.who) this.ended = true
      line.close()
    }
  }

  get isAdmin(): boolean {
    return this.who?.role === 'admin'
  }

  /** The tenant acted for. */
  get tenant(): string {
    return (this.isAdmin && route.tenant) || this.who?.tenant || ''
  }

  /** A link that signs in, once: the token stands behind `#`, and leaves the address before anything else. */
  async begin(): Promise<void> {
    const token = /^#sign-in=([\w-]+)$/.exec(location.hash)?.[1]
    if (token) {
      history.replaceState(null, '', location.pathname + location.search)
      try {
        await ask('/v1/sign-in', { method: 'POST', body: { link: token } })
      } catch (error) {
        this.refused = error
      }
    }
    await this.look()
  }

  async look(): Promise<void> {
    try {
      this.who = await ask('/v1/sign-in')
    } catch {
      this.who = null
    }
    if (this.who) line.open()
  }

  async signIn(key: string): Promise<void> {
    await ask('/v1/sign-in', { method: 'POST', body: { key } })
    const before = this.who?.tenant
    await this.look()
    if (this.who && before !== undefined && before !== this.who.tenant) route.ask('tenant', '')
    this.ended = false
  }

  async signOut(): Promise<void> {
    await ask('/v1/sign-in', { method: 'DELETE' })
    line.close()
    this.who = null
    this.ended = false
  }
}

export const session = new Session()
