import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import packageJson from '../package.json' with { type: 'json' };
import publication from '../packaging/publication.json' with { type: 'json' };

/** The build puts it in; absent where the sources run without a build. */
declare const BUILD_COMMIT: string | null | undefined;

/** The program's version, as package.json has it; the build puts it in. */
export const VERSION: string = packageJson.version;

/** The commit that the program was built from, as `commitOf` in packaging/commit.ts names it; null when the build had no repository. */
export const COMMIT: string | null = typeof BUILD_COMMIT === 'string' ? BUILD_COMMIT : null;

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

/** Packages of the agent alone leave out the code of the gateway. */
export const hasGatewayCode = (): boolean => existsSync(PACKAGED_COPIER);
