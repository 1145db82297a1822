import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { programMissing, unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const NO_GO = programMissing('go', 'version');
const COMPILE_MS = 600_000;
const folder = sharedFolder();

/** The newest version when this was written, and that in Debian 13's Docker. */
describe.each(['go.mod', 'debian13.mod'])('the frontend of BuildKit in %s', unless(NO_GO), (modules) => {
  it(
    'reads the Dockerfile for each platform',
    async () => {
      const program = join(folder, modules);
      const env = { ...process.env, GOWORK: 'off', GOFLAGS: '-buildvcs=false' };
      const build = ['build', `-modfile=${modules}`, '-o', program, '.'];
      await promisify(execFile)('go', build, { cwd: 'test/image/buildkit', env });
      for (const platform of ['linux/amd64', 'linux/arm64', 'linux/arm/v7']) {
        const { stdout } = await promisify(execFile)(program, ['Dockerfile', platform]);
        const node = platform === 'linux/arm/v7' ? /node:22-bookworm/ : /node:24-bookworm/;
        expect(stdout).toMatch(node);
        expect(stdout).toMatch(/distroless/);
      }
    },
    COMPILE_MS,
  );
});
