// What memory holds, as every page shows it: parts that add up to the budget.
import { t } from '../texts'
import type { components } from './wire'

type Schemas = components['schemas']
export interface Part { name: string; value: number; tone?: string }

const MODELS = 6

/** Builds by name, the largest first; the others together, those of tenants that this key does not see, processes beside models by
 * sort, runs under way, and what is free. */
export function account(memory: Schemas['MemoryShape'], nameOf: (build: Schemas['BuildShape']) => string): Part[] {
  const held = new Map<string, number>()
  for (const one of memory.builds) if (one.bytes > 0) held.set(nameOf(one), (held.get(nameOf(one)) ?? 0) + one.bytes)
  const parts = [...held].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value)
  const sum = (of: Part[]) => of.reduce((all, one) => all + one.value, 0)
  const beside = (memory.beside ?? []).map((one) => ({ name: one.of, value: one.bytes }))
  const named: Part[] = [
    ...parts.slice(0, MODELS),
    { name: t.memory.otherModels, value: sum(parts.slice(MODELS)) },
    { name: t.memory.unseen, value: memory.used_bytes - (memory.overhead_bytes ?? 0) - sum(parts) },
    ...beside,
  ]
  const free = Math.max(0, memory.budget_bytes - memory.used_bytes)
  const runs = Math.min(memory.runs_bytes, free) // what is more, the machine has beside the budget
  return [...[...named, { name: t.memory.runs, value: runs }].filter((one) => one.value > 0), { name: t.memory.free, value: free - runs, tone: 'f0' }]
}
