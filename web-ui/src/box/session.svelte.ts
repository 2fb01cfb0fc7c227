// Who is signed in.
import { all, ask, heard } from './http'
import { line } from './line.svelte'
import { route } from './route.svelte'
import type { components } from './wire'

const KEPT = 'tenant'
/** Tenants that are asked whether they have a model. */
const LOOKED_AT_MAX = 20

function kept(): string | null {
  try {
    return localStorage.getItem(KEPT)
  } catch {
    return null
  }
}

function keep(tenant: string): void {
  try {
    localStorage.setItem(KEPT, tenant)
  } catch {
    // a browser that keeps nothing
  }
}

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
    await this.#choose()
  }

  /** Act for another tenant from now on, also when the pages are opened again. */
  act(tenant: string): void {
    keep(tenant)
    route.ask('tenant', tenant === this.who?.tenant ? '' : tenant)
  }

  /** An admin whose address names no tenant is shown the one looked at last, else the first one that has a model: the
   * admin's own is empty on most boxes. An address of one thing is that of the own tenant. */
  async #choose(): Promise<void> {
    const own = this.who?.tenant
    if (!own || !this.isAdmin || route.tenant || route.name) return
    try {
      const has = async (tenant: string) => (await ask<{ items: unknown[] }>('/v1/models?limit=1', { headers: { 'X-Tenant': tenant } })).items.length > 0
      const tenants = (await all<{ name: string }>('/v1/tenants')).map((one) => one.name)
      const before = kept()
      if (before && tenants.includes(before)) return before === own ? undefined : route.ask('tenant', before)
      if (await has(own)) return
      for (const tenant of tenants.slice(0, LOOKED_AT_MAX)) if (tenant !== own && (await has(tenant))) return route.ask('tenant', tenant)
    } catch {
      // the own tenant it is
    }
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
