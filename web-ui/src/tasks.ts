// What models do, and what their applications are given.
import { root } from './box/root'
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

/** What pipelines take, as `takes` of theirs says. */
export const TAKEN: Record<string, Medium[]> = {
  picture: ['file', 'camera'],
  sound: ['file', 'microphone'],
  text: ['text', 'file'],
  tensor: ['text', 'file'],
  any: ['file', 'text'],
}
export const ACCEPTED: Record<string, string> = { picture: 'image/*', sound: 'audio/*,.wav', text: '.txt,.json', tensor: '.json,.npy,.npz' }

/** One word of a shell, whatever is in it. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`
}

/** The same from a terminal. */
export function curl(path: string, medium: Medium, text: string, file: string): string {
  const body =
    medium === 'text'
      ? `-H 'Content-Type: ${text.trim().startsWith('{') ? 'application/json' : 'text/plain'}' --data-binary ${quoted(text)}`
      : `--data-binary ${quoted(`@${file || (medium === 'microphone' ? 'sound.wav' : 'picture.jpg')}`)}`
  return `curl ${location.protocol === 'https:' ? '--cacert cert.pem ' : ''}${quoted(location.origin + root + path)} \\\n  -H "Authorization: Bearer $APPLIANCE_KEY" \\\n  ${body}`
}
