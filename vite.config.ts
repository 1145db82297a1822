import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vite';
import { billOfMaterials } from './packaging/bill-of-materials.ts';
import { compressedCopies } from './packaging/compressed-copies.ts';
import { thirdPartyLicenses } from './packaging/third-party-licenses.ts';
import { pageResources } from './src/management/page-resources.ts';

const root = import.meta.dirname;
const here = join(root, 'src/web');
/** The pages of the gateway's sign-in are without a build; they have one script. */
const SIGN_IN = 'sign-in';
/** Each folder with an index.html is a page; what pages share becomes a file of its own. */
const pages = readdirSync(here)
  .map((name) => [name, join(here, name, 'index.html')] as const)
  .filter(([, page]) => existsSync(page));

export default defineConfig({
  root: here,
  // A proxy may serve a page below a path, such as Home Assistant.
  base: './',
  experimental: {
    // Pages are served one folder above the one that they are built in.
    renderBuiltUrl: (fileName, { hostType }) => (hostType === 'html' ? fileName : { relative: true }),
  },
  publicDir: false,
  logLevel: 'warn',
  define: { PAGE_RESOURCES: JSON.stringify(pageResources()) },
  build: {
    outDir: join(root, 'dist/web'),
    emptyOutDir: true,
    target: 'es2022',
    // The content security policy allows nothing inline.
    assetsInlineLimit: 0,
    // All browsers of the target preload modules.
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      input: { ...Object.fromEntries(pages), [SIGN_IN]: join(here, SIGN_IN, 'passkeys.ts') },
      output: {
        entryFileNames: ({ name }) => `assets/${name}${name === SIGN_IN ? '' : '-[hash]'}.js`,
        chunkFileNames: 'assets/[name]-[hash].js',
      },
    },
  },
  plugins: [thirdPartyLicenses(root), billOfMaterials(root, 'bundled'), compressedCopies()],
});
