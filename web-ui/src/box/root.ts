/** The path below which a proxy shows the box, without a slash at its end; empty where none does. Every script lies in
 * the folder `assets` below it. */
export const root = new URL('..', import.meta.url).pathname.replace(/\/$/, '')
