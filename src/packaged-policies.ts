import { fileURLToPath } from 'node:url';

/** The file with the default policies that comes with the program. Its path holds here and in `dist/` alike: one folder below. */
export const PACKAGED_POLICIES = fileURLToPath(new URL('../defaults/policies.json', import.meta.url));
