// What is drawn into a picture: places with words.

export type Point = [number, number]
export interface Drawing { words: string; points: Point[]; marks: Point[] }

export interface Found { label: string; score: number; points: Point[]; marks: Point[] }

/** Objects and regions of an answer, regions by their number. */
export function found(answer: Record<string, unknown>): Found[] {
  const objects = (answer.objects ?? []) as { label: string; score: number; box: [number, number, number, number]; landmarks?: Point[] }[]
  const regions = (answer.regions ?? []) as { score: number; quad: Point[] }[]
  return [
    ...objects.map(({ label, score, box, landmarks }) => ({ label, score, points: corners(box), marks: landmarks ?? [] })),
    ...regions.map(({ score, quad }, at) => ({ label: String(at + 1), score, points: quad, marks: [] })),
  ]
}

/** Of a box, clockwise from the top left. */
export function corners([left, top, right, bottom]: [number, number, number, number]): Point[] {
  return [[left, top], [right, top], [right, bottom], [left, bottom]]
}
