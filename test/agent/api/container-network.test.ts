import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { hasContainerNetwork } from '../../../src/agent/api/container-network.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it.each([
  ['a container with a network of its own', ['.dockerenv'], ['lo', 'eth0'], true],
  ['a container of Podman', ['run/.containerenv'], ['lo', 'eth0'], true],
  ['a container with the network of its host', ['.dockerenv'], ['lo', 'eth0/device', 'docker0'], false],
  ['a device with one network card', [], ['lo', 'wlan0/device'], false],
  ['a machine that only has virtual cards', [], ['lo', 'eth0'], false],
])('hasContainerNetwork of %s', (_what, marks, interfaces, expected) => {
  const root = temporaryFolder();
  mkdirSync(join(root, 'run'));
  for (const mark of marks) writeFileSync(join(root, mark), '');
  for (const name of interfaces) mkdirSync(join(root, 'sys/class/net', name), { recursive: true });
  expect(hasContainerNetwork(root)).toBe(expected);
});
