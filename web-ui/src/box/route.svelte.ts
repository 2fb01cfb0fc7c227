// The address is the state: which page, of what, and what was asked of it.
import { root } from './root'

const here = (): string => location.pathname.slice(root.length)

class Route {
  path = $state(here())
  query = $state(new URLSearchParams(location.search))
  // Apart from the rest: what follows one of these is not asked of the box again for each letter of a filter.
  /** The tenant that an admin acts for; empty: its own. */
  tenant = $derived(this.query.get('tenant') ?? '')
  /** The stretch of time that is looked at, as asked. */
  span = $derived(this.query.get('span') ?? '')

  constructor() {
    addEventListener('popstate', () => this.#read())
    addEventListener('click', (event) => this.#follow(event))
  }

  /** The page's part of the path, and the name behind it. */
  get page(): string {
    return this.path.split('/')[1] ?? ''
  }

  get name(): string {
    return decodeURIComponent(this.path.split('/')[2] ?? '')
  }

  go(address: string): void {
    history.pushState(null, '', address)
    this.#read()
    scrollTo(0, 0)
  }

  /** Change what was asked without a step back for each letter. */
  ask(name: string, value: string): void {
    const query = new URLSearchParams(this.query)
    if (value) query.set(name, value)
    else query.delete(name)
    const text = query.toString()
    history.replaceState(null, '', root + this.path + (text ? `?${text}` : ''))
    this.query = query
  }

  #read(): void {
    this.path = here()
    this.query = new URLSearchParams(location.search)
  }

  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return
    const link = (event.target as Element).closest?.('a')
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return
    if (!link.pathname.startsWith(`${root}/`) || !/^\/($|models|applications|pipelines|memory|sessions|wall|tenants|processors|what-if|box)/.test(link.pathname.slice(root.length))) return
    event.preventDefault()
    this.go(link.pathname + link.search)
  }
}

export const route = new Route()

/** A link to a page of the box that keeps the tenant that an admin acts for. */
export function to(path: string, more: Record<string, string> = {}): string {
  const query = new URLSearchParams(more)
  if (route.tenant && !query.has('tenant')) query.set('tenant', route.tenant)
  const text = query.toString()
  return root + path + (text ? `?${text}` : '')
}

/** A path below a page, of a thing with this name. */
export function of(page: string, name: string): string {
  return to(`/${page}/${encodeURIComponent(name)}`)
}
