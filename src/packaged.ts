import { fileURLToPath } from 'node:url';
import packageJson from '../package.json' with { type: 'json' };
import publication from '../packaging/publication.json' with { type: 'json' };

/** The program's version, as package.json has it; the build puts it in. */
export const VERSION: string = packageJson.version;

/** Where releases are published, and the keys that sign them; the build puts both in. */
export const PUBLISHED_UPDATES: { manifestUrl: string; keySet: number; publicKeys: string[] } = publication.updates;

/** The folder with the built pages. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_PAGES = fileURLToPath(new URL('../dist/web', import.meta.url));

/** What the thread of policies' replacements runs. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_REPLACER = fileURLToPath(new URL('../dist/replacement-worker.js', import.meta.url));

/** What the thread of a large copy of a shared database runs. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_COPIER = fileURLToPath(new URL('../dist/copy-worker.js', import.meta.url));

/** The file with the default policies that comes with the program. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_POLICIES = fileURLToPath(new URL('../defaults/policies.json', import.meta.url));
