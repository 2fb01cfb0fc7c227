// Sound as a WAV file, which is what the box reads: one channel, 16 bits, 16 kHz.
const RATE_HZ = 16_000

export async function recorded(seconds: number): Promise<Blob> {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true })
  try {
    const recorder = new MediaRecorder(stream)
    const pieces: Blob[] = []
    recorder.ondataavailable = (event) => pieces.push(event.data)
    const ended = new Promise<void>((done) => (recorder.onstop = () => done()))
    recorder.start()
    setTimeout(() => recorder.stop(), seconds * 1000)
    await ended
    return await asWav(new Blob(pieces))
  } finally {
    for (const track of stream.getTracks()) track.stop()
  }
}

/** Of whatever the browser can read: a phone's own recorder writes no WAV. Throws where it cannot. */
export async function asWav(sound: Blob): Promise<Blob> {
  const decoded = await new OfflineAudioContext(1, 1, RATE_HZ).decodeAudioData(await sound.arrayBuffer())
  return wav(mixed(decoded), decoded.sampleRate)
}

function mixed(sound: AudioBuffer): Float32Array {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at))
  const [first, ...others] = channels
  if (!first || others.length === 0) return first ?? new Float32Array()
  return first.map((value, at) => others.reduce((sum, one) => sum + (one[at] ?? 0), value) / channels.length)
}

export function wav(samples: Float32Array, rate: number): Blob {
  const view = new DataView(new ArrayBuffer(44 + samples.length * 2))
  const word = (at: number, text: string) => [...text].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)))
  word(0, 'RIFF')
  view.setUint32(4, 36 + samples.length * 2, true)
  word(8, 'WAVEfmt ')
  view.setUint32(16, 16, true)
  view.setUint16(20, 1, true)
  view.setUint16(22, 1, true)
  view.setUint32(24, rate, true)
  view.setUint32(28, rate * 2, true)
  view.setUint16(32, 2, true)
  view.setUint16(34, 16, true)
  word(36, 'data')
  view.setUint32(40, samples.length * 2, true)
  samples.forEach((value, index) => view.setInt16(44 + index * 2, Math.max(-1, Math.min(1, value)) * 32767, true))
  return new Blob([view], { type: 'audio/wav' })
}
