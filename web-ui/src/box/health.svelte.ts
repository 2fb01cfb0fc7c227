// The health of the box and of each thing, as the box judges it: the only source of states that pages show.
import { ask } from './http'
import { line } from './line.svelte'
import { live, type Live } from './live.svelte'
import type { components } from './wire'

type Schemas = components['schemas']
export type Condition = Schemas['ConditionShape']
type Kind = Condition['subject']['kind']
/** `away`: the box does not answer, so nobody knows; `unknown`: it has not answered yet. */
export type State = Schemas['HealthShape']['status'] | 'away' | 'unknown'

class Health {
  #live = $state.raw<Live<Schemas['HealthShape']> | null>(null)

  /** For the part of the page that is always there. */
  watch(): void {
    this.#live = live<Schemas['HealthShape']>((signal) => ask('/v1/health', { signal }), {
      every: 10_000,
      on: ['condition', 'processor', 'budget', 'job', 'variant load failed', 'session'],
    })
  }

  get shown(): Schemas['HealthShape'] | undefined {
    return this.#live?.value
  }

  get problem(): unknown {
    return this.#live?.problem ?? null
  }

  get state(): State {
    return line.silentSince ? 'away' : (this.shown?.status ?? 'unknown')
  }

  /** What is wrong with a thing, the worst first. */
  of(kind: Kind, tenant: string | null, name: string): Condition[] {
    return (this.shown?.conditions ?? []).filter((one) => one.subject.kind === kind && one.subject.name === name && one.subject.tenant === tenant)
  }

  /** The state of a thing that would be `otherwise` if nothing were wrong with it. */
  stateOf(kind: Kind, tenant: string | null, name: string, otherwise: string): string {
    if (line.silentSince || !this.shown) return otherwise === 'good' ? '' : otherwise
    const own = this.of(kind, tenant, name)[0]?.severity
    return own === undefined || otherwise === 'bad' ? otherwise : own
  }
}

export const health = new Health()
