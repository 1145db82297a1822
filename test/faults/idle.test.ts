import { type BigIntStats, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { measured } from '../support/measured.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { makeFolder } from '../support/temporary-folder.ts';
import { rounds } from './rounds.ts';

const SECONDS = rounds({ short: 10, full: 300 });

/** Every file and folder below a folder, with all that changes when it is touched in any way but being read. */
function snapshot(folder: string): Record<string, string> {
  const paths = ['', ...(readdirSync(folder, { recursive: true }) as string[])].toSorted();
  return Object.fromEntries(paths.map((path) => [path, traces(statSync(join(folder, path), { bigint: true }))]));
}

const traces = ({ ino, size, mtimeNs, ctimeNs }: BigIntStats) => `${ino} ${size} ${mtimeNs} ${ctimeNs}`;

/** Bytes that the process sent to the storage layer since it began. */
function writtenBytes(pid: number | undefined): number {
  return Number(/^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1]);
}

const create = (api: string, domain: string) =>
  fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ protocol: 'http', forwards_to: 9, domain }),
  });

it(`an agent with 20 tunnels and its own gateway writes nothing to the disk in ${SECONDS} s without anything to do`, {
  timeout: 120_000 + SECONDS * 1_000,
  ...unless(NO_LINUX),
}, async () => {
  const [folder, remove] = makeFolder();
  const agent = AgentProcess.start(folder);
  try {
    const api = await agent.ready();
    for (let i = 0; i < 20; i++) expect((await create(api, `idle-${i}.localhost`)).status).toBe(200);
    const [before, written] = [snapshot(folder), writtenBytes(agent.child.pid)];
    await delay(SECONDS * 1_000);
    expect(snapshot(folder)).toEqual(before);
    const idle = writtenBytes(agent.child.pid) - written;
    const note = `${SECONDS} s: ${Object.keys(before).length} files untouched, ${idle} bytes written`;
    measured({ fault: 'nothing to do', note });
    expect(idle).toBe(0);
    // And the measurement would have shown it.
    await create(api, 'one-more.localhost');
    expect(snapshot(folder)).not.toEqual(before);
  } finally {
    await agent.end();
    remove();
  }
});
