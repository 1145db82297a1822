import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'rolldown';

/** Folders of src whose files an agent imports dynamically, when it needs them at all. */
const GATEWAY = /\/src\/(gateway|commands\/gateway|doctor\/gateway)\//;

/**
 * Writes the names of the files that only a gateway loads to `build/gateway-chunks.json`. Packages for devices leave them out.
 *
 * @param home the checkout
 */
export function gatewayChunks(home: string): Plugin {
  return {
    name: 'gateway-chunks',
    writeBundle(_options, bundle) {
      const chunks = new Map(
        Object.values(bundle).flatMap((output) => (output.type === 'chunk' ? [[output.fileName, output]] : [])),
      );
      const needed = new Set<string>();
      const follow = (fileName: string) => {
        const chunk = chunks.get(fileName);
        if (chunk === undefined || needed.has(fileName)) return;
        needed.add(fileName);
        for (const each of chunk.imports) follow(each);
        for (const each of chunk.dynamicImports) {
          if (!GATEWAY.test(chunks.get(each)?.facadeModuleId ?? '')) follow(each);
        }
      };
      follow('cli.js');
      const others = [...chunks.keys()].filter((name) => !needed.has(name) && !name.startsWith('management/'));
      mkdirSync(join(home, 'build'), { recursive: true });
      writeFileSync(join(home, 'build/gateway-chunks.json'), `${JSON.stringify(others.sort(), null, 2)}\n`);
    },
  };
}
