// Builds the pages into the package: every file but `index.html` has a name that tells its content, and lies there
// compressed, because a box has better things to do than to compress.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

const TARGET = '../appliance/web_ui'

function compressed() {
  return {
    name: 'compressed',
    closeBundle() {
      for (const folder of [TARGET, join(TARGET, 'assets')]) {
        for (const entry of readdirSync(folder, { withFileTypes: true })) {
          if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue
          const path = join(folder, entry.name)
          // Pages lie at any depth, so their links begin with `/`. Behind a proxy the box puts its own path before these.
          if (entry.name === 'index.html') writeFileSync(path, readFileSync(path, 'utf8').replaceAll('"./assets/', '"/assets/'))
          const bytes = readFileSync(path)
          const size = { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length }
          writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: size }))
          writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }))
          rmSync(path)
        }
      }
    },
  }
}

export default defineConfig({
  plugins: [svelte(), compressed()],
  base: './', // scripts find one another below any path at which a proxy shows the box
  build: {
    outDir: TARGET,
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // the policy of the pages takes no data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
})
