// What models do, and what their applications are given.
import type { components } from './box/wire'

type Task = components['schemas']['TaskKind']
export type Medium = 'file' | 'camera' | 'microphone' | 'text'

const MEDIA: Record<Task, Medium[]> = {
  'image-classification': ['file', 'camera'],
  'object-detection': ['file', 'camera'],
  'face-detection': ['file', 'camera'],
  'text-detection': ['file', 'camera'],
  'text-recognition': ['file', 'camera'],
  'image-embedding': ['file', 'camera'],
  'text-embedding': ['text', 'file'],
  'voice-activity': ['file', 'microphone'],
  tensor: ['text', 'file'],
}
export const TASKS = Object.keys(MEDIA) as Task[]

export function mediaOf(task: Task | null): Medium[] {
  return task ? MEDIA[task] : ['file', 'text']
}

export function acceptOf(task: Task | null): string {
  if (task === 'voice-activity') return 'audio/*,.wav'
  if (task === 'text-embedding') return '.txt,.json'
  if (task === 'tensor' || !task) return '.json,.npy,.npz'
  return 'image/*'
}
