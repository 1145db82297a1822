import { execFileSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../support/temporary-folder.ts';

const DIGEST = `sha256:${'ab'.repeat(32)}`;

/** Runs the script in a folder with the Dockerfile, and a docker that says this. */
function baseImages(said: string, ...args: string[]) {
  const folder = temporaryFolder();
  copyFileSync('Dockerfile', join(folder, 'Dockerfile'));
  writeFileSync(join(folder, 'docker'), `#!/bin/sh\necho "$@" >> asked\necho ${said}\n`, { mode: 0o755 });
  const run = () => {
    const env = { PATH: `${folder}:${process.env.PATH}` };
    return execFileSync(process.execPath, [resolve('scripts/base-images.js'), ...args], {
      cwd: folder,
      env,
    }).toString();
  };
  return { run, read: (name: string) => readFileSync(join(folder, name), 'utf8') };
}

it('the Dockerfile pins its base images, and base-images.js names each with the digest that its tag has now', () => {
  const { run, read } = baseImages(DIGEST);
  const images = [...read('Dockerfile').matchAll(/^ARG (\w+)=(\S+)@sha256:[0-9a-f]{64}$/gm)];
  const names = images.map(([, name, image]) => `${name}=${image}`);
  expect(run().trim().split('\n')).toEqual(names.map((name) => `${name}@${DIGEST}`));
  expect(names).toHaveLength(3);
  expect(read('asked')).toContain(
    'imagetools inspect gcr.io/distroless/cc-debian12:nonroot --format {{.Manifest.Digest}}',
  );
});

it('base-images.js --write renews their digests in the Dockerfile', () => {
  const { run, read } = baseImages(DIGEST, '--write');
  const before = read('Dockerfile');
  run();
  expect(read('Dockerfile')).toBe(before.replaceAll(/@sha256:[0-9a-f]{64}$/gm, `@${DIGEST}`));
});

it('base-images.js fails when docker says no digest', () => {
  expect(baseImages('nothing').run).toThrow('no digest');
});
