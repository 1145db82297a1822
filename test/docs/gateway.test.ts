import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, it } from 'vitest';

const page = readFileSync('docs/gateway.md', 'utf8');
const types = readFileSync(
  createRequire(import.meta.url)
    .resolve('@ngrok/ngrok')
    .replace(/\.js$/, '.d.ts'),
  'utf8',
);

/** They ask for nothing, but do something. */
const CALLS = ['listen', 'listenAndForward', 'listenAndServe'];

it('says of every option of the SDK’s builders what becomes of it', () => {
  const builders = [...types.matchAll(/class \w+ListenerBuilder \{([\s\S]*?)\n\}/g)];
  expect(builders).toHaveLength(4);
  const options = new Set(
    builders.flatMap(([, body = '']) => [...body.matchAll(/^ {2}(\w+)\(/gm)].map(([, name]) => name)),
  );
  for (const name of CALLS) options.delete(name);
  const [, section = ''] = /## Options of SDKs\n([\s\S]*?)(?:\n## |$)/.exec(page) ?? [];
  const missing = [...options].filter((name) => !section.includes(`\`${name}\``));
  expect(missing).toEqual([]);
});
