import { expect, it } from 'vitest';
import type { Nodes } from '../../../src/gateway/cluster/nodes.ts';
import { Primary } from '../../../src/gateway/cluster/primary.ts';
import type { Database } from '../../../src/gateway/store/sql/database.ts';
import { silentLog } from '../../support/silent-log.ts';
import { until } from '../../support/until.ts';

/** The only node of a cluster, whose writes reach the shared database when they are let go. */
function onlyNode() {
  const facts = new Map<string, string>();
  const pending: (() => void)[] = [];
  const database = {
    fact: (name: string) => facts.get(name) ?? null,
    setFact: (name: string, value: string) => facts.set(name, value),
    write: (work: () => void) =>
      new Promise<void>((resolve) => {
        pending.push(() => resolve(work()));
      }),
  };
  const nodes = { self: 'self', isCutOff: false, isDraining: () => false, state: () => 'serving' };
  const primary = new Primary({
    database: database as unknown as Database,
    nodes: nodes as unknown as Nodes,
    log: silentLog,
  });
  const running = new Set<string>();
  primary.whileSelf(() => {
    running.add('job');
    return async () => void running.delete('job');
  });
  const write = () => {
    for (const each of pending.splice(0)) each();
  };
  return { primary, running, write, nodes };
}

it('starts its jobs once it is the primary node, and ends them with the gateway', async () => {
  const { primary, running, write } = onlyNode();
  const checked = primary.check();
  expect([...running]).toEqual([]);
  write();
  await checked;
  expect([...running]).toEqual(['job']);
  await primary.stop();
  expect([...running]).toEqual([]);
});

it('starts no jobs when it becomes the primary node while the gateway stops', async () => {
  const { primary, running, write } = onlyNode();
  const checked = primary.check();
  await primary.stop();
  write();
  await checked;
  expect([...running]).toEqual([]);
});

it('starts its jobs again only when they have ended', async () => {
  const { primary, nodes, write } = onlyNode();
  const seen: string[] = [];
  let end = () => {};
  primary.whileSelf(() => {
    seen.push('start');
    return () =>
      new Promise<void>((resolve) => {
        seen.push('ending');
        end = resolve;
      });
  });
  const checked = primary.check();
  write();
  await checked;
  nodes.isCutOff = true;
  const lost = primary.check();
  await until(() => seen.length === 2, 'the end of the job to begin');
  nodes.isCutOff = false;
  await primary.check();
  expect(seen).toEqual(['start', 'ending']);
  end();
  await lost;
  await primary.check();
  expect(seen).toEqual(['start', 'ending', 'start']);
});
