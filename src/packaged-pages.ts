import { fileURLToPath } from 'node:url';

/** The folder with the built pages. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_PAGES = fileURLToPath(new URL('../dist/web', import.meta.url));
