/** The path below which a proxy shows the box, without a slash at its end; empty where none does. It is known from the
 * address of this script, which lies in the folder `assets` of that path. */
export const root = new URL('..', import.meta.url).pathname.replace(/\/$/, '')
