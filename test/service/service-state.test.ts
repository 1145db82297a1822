import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { AGENT_SERVICE, unitFileOf } from '../../src/service/service.ts';
import { serviceState } from '../../src/service/service-state.ts';
import { unitText } from '../../src/service/unit.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('service status without a running systemd is one line', async () => {
  const root = temporaryFolder();
  const program = { node: '/usr/bin/node', cli: '/opt/device-agent/dist/cli.js' };
  mkdirSync(join(root, 'etc/systemd/system'), { recursive: true });
  writeFileSync(root + unitFileOf(AGENT_SERVICE), unitText(AGENT_SERVICE, program));
  const run = async () => {
    throw new Error('System has not been booted with systemd as init system (PID 1). Can not operate.');
  };
  expect(await serviceState(AGENT_SERVICE, program, { root, isBooted: false, run })).toEqual({
    state: 'stopped',
    lines: ['device-agent: installed, but systemd is not running on this machine'],
  });
});
