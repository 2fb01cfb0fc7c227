// Sound of the microphone as a WAV file: one channel, 16 bits, at the rate that the browser records with.

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
    const context = new AudioContext({ sampleRate: 16_000 })
    const sound = await context.decodeAudioData(await new Blob(pieces).arrayBuffer())
    await context.close()
    return wav(sound.getChannelData(0), sound.sampleRate)
  } finally {
    for (const track of stream.getTracks()) track.stop()
  }
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
