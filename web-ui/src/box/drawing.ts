// What is drawn into a picture: places with words.

export type Point = [number, number]
export interface Drawing { words: string; points: Point[]; marks: Point[] }

/** Of a box, clockwise from the top left. */
export function corners([left, top, right, bottom]: [number, number, number, number]): Point[] {
  return [[left, top], [right, top], [right, bottom], [left, bottom]]
}
