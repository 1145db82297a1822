import { setImmediate } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import type { Nodes } from '../../../src/gateway/cluster/nodes.ts';
import { Primary } from '../../../src/gateway/cluster/primary.ts';
import type { Database } from '../../../src/gateway/store/sql/database.ts';
import { startClusterNode } from '../../support/cluster-node.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { until } from '../../support/until.ts';

/**
 * A node of a cluster, whose writes reach the shared database when they are let go.
 * @param holder the primary node by its copy; `silent`: by what this node knows of the others
 */
function oneNode(holder?: string, silent = new Set<string>()) {
  const facts = new Map(holder === undefined ? [] : [['primary_node', holder]]);
  const pending: (() => void)[] = [];
  let rowApplied: (table: string, id: string) => void = () => {};
  const database = {
    fact: (name: string) => facts.get(name) ?? null,
    setFact: (name: string, value: string) => facts.set(name, value),
    forgetFact: (name: string) => facts.delete(name),
    onRowApplied: (listener: typeof rowApplied) => {
      rowApplied = listener;
    },
    write: <T>(work: () => T) =>
      new Promise<T>((resolve) => {
        pending.push(() => resolve(work()));
      }),
  };
  const nodes = {
    self: 'self',
    isCutOff: false,
    isDraining: () => false,
    state: (id: string) => (silent.has(id) ? 'silent' : 'serving'),
    rowApplied: (id: string) => silent.delete(id),
  };
  const clock = { now: 0 };
  const primary = new Primary(
    { database: database as unknown as Database, nodes: nodes as unknown as Nodes, log: silentLog },
    () => clock.now,
  );
  const running = new Set<string>();
  primary.whileSelf(() => {
    running.add('job');
    return async () => void running.delete('job');
  });
  /** @param other has committed before that it is the primary node */
  const write = (other?: string) => {
    if (other !== undefined) {
      facts.set('primary_node', other);
      rowApplied('facts', 'primary_node');
    }
    for (const each of pending.splice(0)) each();
  };
  return { primary, running, write, nodes, clock, holder: () => database.fact('primary_node') };
}

it('starts its jobs once it is the primary node, and hands over when it stops, after they have ended', async () => {
  const { primary, running, write, holder } = oneNode();
  const checked = primary.check();
  expect([...running]).toEqual([]);
  write();
  await checked;
  expect([...running]).toEqual(['job']);
  const stopped = primary.stop();
  await until(() => running.size === 0, 'the end of the job');
  expect(holder()).toBe('self');
  await setImmediate();
  write();
  await stopped;
  expect(holder()).toBeNull();
});

it('knows that there has been no primary node for longer than another takes to become it', async () => {
  const { primary, write, nodes, clock } = oneNode('other');
  const seenAt = async (now: number) => {
    clock.now = now;
    const checked = primary.check();
    await setImmediate();
    write();
    await checked;
    return primary.isVacant;
  };
  expect(await seenAt(0)).toBe(false);
  nodes.state = () => 'silent';
  nodes.isDraining = () => true;
  expect([await seenAt(20_000), await seenAt(34_000), await seenAt(36_000)]).toEqual([false, false, true]);
  nodes.isDraining = () => false;
  expect(await seenAt(37_000)).toBe(false);
});

it('leaves the primary node as it is when another gateway stops', async () => {
  const { primary, write, holder } = oneNode('other');
  const stopped = primary.stop();
  await setImmediate();
  write();
  await stopped;
  expect(holder()).toBe('other');
});

it('starts no jobs when it becomes the primary node while the gateway stops', async () => {
  const { primary, running, write, holder } = oneNode();
  const checked = primary.check();
  const stopped = primary.stop();
  await setImmediate();
  write();
  await Promise.all([checked, stopped]);
  expect([[...running], holder()]).toEqual([[], null]);
});

it('starts its jobs again only when they have ended', async () => {
  const { primary, nodes, write } = oneNode();
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
  const early = primary.check();
  write();
  await early;
  expect(seen).toEqual(['start', 'ending']);
  end();
  await lost;
  const late = primary.check();
  write();
  await late;
  expect(seen).toEqual(['start', 'ending', 'start']);
});

it('starts no jobs after a restart when its copy does not say yet that another one has taken over', async () => {
  const { primary, running, write } = oneNode('self');
  const checked = primary.check();
  await setImmediate();
  expect([...running]).toEqual([]);
  write('other');
  await checked;
  expect([...running]).toEqual([]);
});

it('claims again after it was cut off, before it starts its jobs', async () => {
  const { primary, running, write, nodes } = oneNode('self');
  let checked = primary.check();
  write();
  await checked;
  nodes.isCutOff = true;
  await primary.check();
  expect([...running]).toEqual([]);
  nodes.isCutOff = false;
  checked = primary.check();
  await setImmediate();
  expect([...running]).toEqual([]);
  write('other');
  await checked;
  expect([...running]).toEqual([]);
});

it('does not take over from a node that has come back while it did', async () => {
  const { primary, running, write } = oneNode('other', new Set(['other']));
  const checked = primary.check();
  write('other');
  await checked;
  expect([...running]).toEqual([]);
});

it('another gateway becomes primary when the first stops, and when the one that is named has left', {
  ...unless(NO_POSTGRES),
}, async () => {
  const server = await PostgresServer.start();
  onTestFinished(() => server.end());
  const start = async () => {
    const gateway = await startClusterNode(server.url());
    onTestFinished(gateway.close);
    return gateway;
  };
  const first = await start();
  const primary = () => other.store.database.fact('primary_node');
  const other = await start();
  await until(() => primary() !== null, 'the first primary node', { everyMs: 20 });
  const before = primary();
  await first.close();
  await until(() => ![before, null].includes(primary()), 'the next one', { everyMs: 20 });
  const own = primary();
  await other.store.database.write(() => other.store.database.setFact('primary_node', 'has left'));
  await until(() => primary() === own, 'its return', { everyMs: 20 });
});
