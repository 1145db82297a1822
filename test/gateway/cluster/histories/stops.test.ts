import { cpSync, mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { NO_POSTGRES } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { sharedFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';
import { type Credential, HistoryAgent } from './history-agent.ts';
import { HistoryCluster } from './history-cluster.ts';
import type { HistoryNode } from './history-node.ts';
import { ServingRecord } from './serving-record.ts';

/** After what has ended, everything that it held is somebody else's, or nobody's. */
const WITHIN = { withinMs: 15_000, everyMs: 50 };

const folder = sharedFolder();
const newFolder = () => mkdtempSync(join(folder, 'data-'));

interface Stop {
  /** How the gateway stops. */
  stop(cluster: HistoryCluster, node: HistoryNode): Promise<void>;
  /** How it comes back afterwards, as it was. */
  back(cluster: HistoryCluster, node: HistoryNode): Promise<void>;
}

const restart = (_: HistoryCluster, node: HistoryNode) => node.restart();
const restartInOrder = async (_: HistoryCluster, node: HistoryNode) => {
  await node.kill('SIGTERM');
  await node.restart();
};
const STOPS: Record<string, Stop> = {
  SIGTERM: { stop: (_, node) => node.kill('SIGTERM'), back: restart },
  'kill -9': { stop: (_, node) => node.kill(), back: restart },
  SIGSTOP: { stop: async (_, node) => node.stop(), back: async (_, node) => node.continue() },
  'a drain': { stop: (cluster, node) => cluster.drain(node), back: restartInOrder },
  'its removal': {
    stop: async (cluster, node) => {
      await node.kill();
      await cluster.remove(node);
    },
    back: restart,
  },
  'kill -9 and a restart without its DATA_DIR': {
    stop: async (cluster, node) => {
      await node.kill();
      await cluster.remove(node);
      expect(await node.refusal({ dataDir: newFolder() })).toBeNull();
    },
    back: restartInOrder,
  },
  'kill -9 and a restart at once': { stop: (_, node) => node.kill().then(() => node.restart()), back: async () => {} },
  'the start of a copy of its DATA_DIR': {
    stop: async (_, node) => {
      const dataDir = newFolder();
      cpSync(node.dataDir, dataDir, { recursive: true });
      await node.kill();
      expect(await node.refusal({ dataDir })).toBeNull();
    },
    back: restartInOrder,
  },
};

/** Beside other tests, what takes over at once only. */
const OTHERS = process.env.HISTORIES ? (['stay', 'restart'] as const) : (['stay'] as const);

it.concurrent.for(OTHERS)(
  'what a gateway holds has another holder, or none, after each way to stop; the others %s',
  {
    timeout: 240_000,
    ...unless(NO_POSTGRES),
  },
  async (others) => {
    const cluster = await HistoryCluster.start(0);
    for (const [how, { stop, back }] of Object.entries(STOPS)) {
      const record = new ServingRecord();
      const [own, other, ofDevice] = (await cluster.newCredentials(3)) as [Credential, Credential, Credential];
      const node = await cluster.primary(how);
      const id = await cluster.idOf(node);
      const [elsewhere, third] = cluster.nodes.filter((each) => each !== node) as [HistoryNode, HistoryNode];
      await cluster.holds(node, ofDevice);
      const agents: (HistoryAgent | null)[] = [];
      const binds = async (at: HistoryNode, credential: Credential, name: string) => {
        const agent = await HistoryAgent.open(at, credential, record);
        agents.push(agent);
        await agent?.bind(name);
        return record.current(name).some((tenure) => tenure.credential === credential.id);
      };
      expect(await binds(node, own, 'taken.localhost'), how).toBe(true);
      expect(await binds(node, own, 'freed.localhost'), how).toBe(true);
      expect(await binds(node, ofDevice, 'device.localhost'), how).toBe(true);

      await stop(cluster, node);
      await cluster.commands(id);
      if (others === 'restart') for (const each of [elsewhere, third]) await each.kill().then(() => each.restart());

      await cluster.hasPrimary(how);
      await until(() => binds(elsewhere, own, 'taken.localhost'), `${how}: the name, for its authtoken`, WITHIN);
      for (const agent of agents.splice(0)) agent?.leave();
      await until(() => binds(elsewhere, other, 'freed.localhost'), `${how}: the name, for another authtoken`, WITHIN);
      const isHeld = async () => (await cluster.held(id, ofDevice)).length > 0;
      await until(async () => !(await isHeld()), `${how}: nothing held`, WITHIN).catch(async (cause: unknown) => {
        throw new Error(`${how}: still held: ${await cluster.held(id, ofDevice)}`, { cause });
      });
      for (const agent of agents) agent?.leave();
      await back(cluster, node);
      node.ended.length = 0;
      await cluster.settled(how);
    }
  },
);
