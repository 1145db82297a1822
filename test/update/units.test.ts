import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { AGENT_SERVICE } from '../../src/service/service.ts';
import { unitText } from '../../src/service/unit.ts';
import { updateUnits } from '../../src/update/units.ts';
import { CLI } from '../support/agent-process.ts';
import { programMissing, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const HERE = { node: process.execPath, cli: CLI };
const PACKAGED = { node: '/usr/bin/node', cli: '/usr/local/lib/node_modules/device-agent/dist/cli.js' };

it('the units of updates equal the files in packaging/', async () => {
  for (const [name, text] of Object.entries(updateUnits(PACKAGED))) {
    await expect(text).toMatchFileSnapshot(`../../packaging/${basename(name)}`);
  }
});

it('the units of updates pass systemd-analyze verify', unless(programMissing('systemd-analyze', '--version')), () => {
  const folder = temporaryFolder();
  const units = { ...updateUnits(HERE), 'device-agent.service': unitText(AGENT_SERVICE, HERE) };
  const files = Object.entries(units).map(([name, text]) => {
    // The version that watches exists only during an update.
    const here = text.replaceAll('/var/lib/device-agent-update/watcher/dist/cli.js', CLI);
    const file = join(folder, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, here);
    return file;
  });
  const verified = files.filter((file) => !file.endsWith('.conf'));
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', ...verified], { encoding: 'utf8' });
  expect([status, `${stdout}${stderr}`]).toEqual([0, '']);
});

it('a program that brings its Node.js is watched by the Node.js of the version before', () => {
  const paths = { node: '/opt/device-agent/current/bin/node', cli: '/opt/device-agent/current/dist/cli.js' };
  const unit = updateUnits(paths)['device-agent-update.service'];
  const folder = '/var/lib/device-agent-update/watcher';
  expect(unit).toContain(`ExecStart=${folder}/bin/node ${folder}/dist/cli.js update --continue\n`);
});
