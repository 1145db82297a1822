import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import packageJson from '../package.json' with { type: 'json' };

/** The program's version, as package.json has it; the build puts it in. */
export const VERSION: string = packageJson.version;

/** The folder with the built pages. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_PAGES = fileURLToPath(new URL('../dist/web', import.meta.url));

/** What the thread of policies' replacements runs. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_REPLACER = fileURLToPath(new URL('../dist/replacement-worker.js', import.meta.url));

/** What the thread of a large copy of a shared database runs. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_COPIER = fileURLToPath(new URL('../dist/copy-worker.js', import.meta.url));

/** The file with the default policies that comes with the program. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_POLICIES = fileURLToPath(new URL('../defaults/policies.json', import.meta.url));

/** Packages of the agent alone leave out the code of the gateway. */
export const hasGatewayCode = (): boolean => existsSync(PACKAGED_COPIER);
