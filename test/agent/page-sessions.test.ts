import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openPageSessions } from '../../src/agent/page-sessions.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const open = (folder: string, token = 'the API token') => openPageSessions(folder, () => token, silentLog);

it('sessions of the page survive a restart, in a file that only the agent reads and that opens none', async () => {
  const folder = temporaryFolder();
  const id = await (await open(folder)).start();
  expect((await open(folder)).isOpen(id)).toBe(true);
  const file = join(folder, 'page-sessions.json');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(file, 'utf8')).not.toMatch(new RegExp(`${id}|the API token`));
});

it('sessions of the page do not survive signing out everywhere, nor another API token', async () => {
  const folder = temporaryFolder();
  const sessions = await open(folder);
  const id = await sessions.start();
  expect((await open(folder, 'another')).isOpen(id)).toBe(false);
  await sessions.endAll();
  expect((await open(folder)).isOpen(id)).toBe(false);
});

it('a damaged file of sessions ends them, and does not keep the agent from starting', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'page-sessions.json'), '{"token":');
  const sessions = await open(folder);
  const id = await sessions.start();
  expect((await open(folder)).isOpen(id)).toBe(true);
});

it('without a disk to write to, signing in works until the restart, and signing out says so', async () => {
  const folder = temporaryFolder();
  // A folder in the place of the file: even root cannot replace it.
  mkdirSync(join(folder, 'page-sessions.json', 'x'), { recursive: true });
  const sessions = await open(folder);
  const id = await sessions.start();
  expect(sessions.isOpen(id)).toBe(true);
  await expect(sessions.endAll()).rejects.toMatchObject({ code: 'ERR_AGENT_NOT_PERSISTED' });
  expect(sessions.isOpen(id)).toBe(false);
});
