import { join } from 'node:path';
import { defineConfig } from 'rolldown';
import { commitOf } from '../../packaging/commit.ts';
import { latinChunks, smallerModules } from '../../packaging/smaller-modules.ts';

/** What `npm run docs` runs. It leaves `dist` alone, from which programs may run. */
export default defineConfig({
  input: 'scripts/docs/write-docs.ts',
  platform: 'node',
  external: ['@ngrok/ngrok', 'libsql', 'rolldown/parseAst'],
  transform: {
    target: 'node20',
    define: { BUILD_COMMIT: JSON.stringify(commitOf(join(import.meta.dirname, '../..'))) },
  },
  output: { format: 'esm', dir: 'build/docs', cleanDir: true },
  plugins: [smallerModules(), latinChunks()],
});
