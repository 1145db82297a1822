import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const CACHE = fileURLToPath(new URL('../node_modules/.cache/node', import.meta.url));

/**
 * The newest Node.js of a major version, for this platform. It comes from the npm registry and stays in node_modules/.cache.
 *
 * @param {string} major
 * @returns {string} path of the executable
 * @throws Error when npm cannot fetch it
 */
export function nodeBinary(major) {
  const name = `node-${process.platform}-${process.arch}`;
  const folder = join(CACHE, major);
  const binary = join(folder, 'node_modules', name, 'bin/node');
  if (existsSync(binary)) return binary;
  mkdirSync(folder, { recursive: true });
  const args = [
    'install',
    '--prefix',
    folder,
    '--no-save',
    '--ignore-scripts',
    '--engine-strict=false',
    `${name}@${major}`,
  ];
  const { status, stderr } = spawnSync('npm', args, { encoding: 'utf8' });
  if (status !== 0 || !existsSync(binary)) throw new Error(`cannot fetch Node.js ${major} (${name}): ${stderr}`);
  return binary;
}
