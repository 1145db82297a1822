import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { type LostCommits, lostCommits } from '../../../../src/gateway/store/lost-commits.ts';
import { openForChanges } from '../../../../src/gateway/store/open-gateway-store.ts';
import type { SharedRow } from '../../../../src/gateway/store/shared/replica-tables.ts';
import type { SharedWrites } from '../../../../src/gateway/store/shared/shared-writes.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import { issueApiKey, issueCredential } from '../../../../src/gateway/store/tokens.ts';
import { PublicClient } from '../../../faults/public-client.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { PostgresServer } from '../../../support/postgres-server.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';
import { EventsRecord } from './events-record.ts';
import type { Credential } from './history-agent.ts';
import { ENCRYPTION_KEY, HistoryNode, PERIODS } from './history-node.ts';
import type { WritesRecord } from './writes-record.ts';

const NODES = 3;
/** For so long a revocation waits for gateways at most. */
const REVOCATION_MS = 1_900;
const CLIENT_PATIENCE_MS = 10_000;
/** Longest time until one gateway is primary, once they run and reach the database. */
const PRIMARY_MS = 15_000;
const WRITE_EVERY_MS = 150;
const TABLES = ['cluster', 'rows', 'commits'];
/** Name of the users that are written all the time, and the type of what the audit log has of each. */
const WRITTEN = 'history';
const CREATED = 'bot_user_created.v0';

/** Three gateways on a PostgreSQL of their own, with clients of each; all ends with the test. */
export class HistoryCluster {
  private constructor(
    private server: PostgresServer,
    readonly nodes: readonly HistoryNode[],
    /** For each history, one of each gateway. */
    readonly clients: readonly (readonly PublicClient[])[],
    private readonly apiKey: string,
    private readonly own: { store: Store; shared: SharedWrites; proxy: FlakyProxy },
    /** What was sent of the users that are written. */
    readonly events: EventsRecord,
  ) {}

  /** @param histories that go on at once */
  static async start(histories: number): Promise<HistoryCluster> {
    const database = await PostgresServer.start();
    onTestFinished(() => database.end());
    const proxy = await FlakyProxy.start(database.address);
    onTestFinished(() => proxy.close());
    const databaseUrl = database.url(proxy.address);
    const location = { dataDir: temporaryFolder(), encryptionKey: ENCRYPTION_KEY, databaseUrl };
    const { store, shared, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
    onTestFinished(close);
    const { token: apiKey } = await store.database.write(() => issueApiKey(store, {}));
    const events = await EventsRecord.start();
    await subscribe(store, events);
    const nodes: HistoryNode[] = [];
    onTestFinished(() => Promise.all(nodes.map((node) => node.end())).then(() => {}));
    for (let at = 0; at < NODES; at++)
      nodes.push(await HistoryNode.start(`${at}`, database.address, (address) => database.url(address)));
    const clientOf = ({ httpsPort, ca: sessionCa }: HistoryNode) =>
      new PublicClient(() => ({ httpsPort, sessionCa }), CLIENT_PATIENCE_MS);
    const clients = Array.from({ length: histories }, () => nodes.map(clientOf));
    onTestFinished(() => {
      for (const client of clients.flat()) client.close();
    });
    if (shared === null) throw new Error('it has no shared database');
    return new HistoryCluster(database, nodes, clients, apiKey, { store, shared, proxy }, events);
  }

  /** PostgreSQL, whose place a standby may have taken. */
  get database(): PostgresServer {
    return this.server;
  }

  /** Leads the gateways to another server from now on. */
  divert(server: PostgresServer): void {
    for (const { database } of this.nodes) database.divert(() => server.address);
  }

  /** Makes a standby, to which the gateways are led already, the database, for good. @returns what it lacks of what they know */
  async promote(standby: PostgresServer): Promise<Pick<LostCommits, 'after' | 'commits' | 'since'>> {
    const old = this.server;
    const [head] = await standby.query<{ version: string }>('SELECT version FROM device_agent.cluster');
    const after = Number(head?.version);
    const known = this.nodes.map((node) => node.copy(({ position }) => position?.version ?? 0));
    const [first] = await old.query<{ at: Date }>(`SELECT at FROM device_agent.commits WHERE version = ${after + 1}`);
    await standby.promote();
    this.server = standby;
    this.own.proxy.divert(() => standby.address);
    await old.discard();
    return { after, commits: Math.max(...known) - after, since: first?.at.toISOString() ?? null };
  }

  /** Waits until the gateways have said which commits were lost, and the audit log has it. */
  async saysLoss({ after, ...lost }: Pick<LostCommits, 'after' | 'commits' | 'since'>, what: string): Promise<void> {
    const { store, shared } = this.own;
    let known: LostCommits | null = null;
    const isSaid = async () => {
      await shared.refresh().catch(() => {});
      known = lostCommits(store.database);
      return known?.after === after && known.recorded === lost.commits && known.since === lost.since;
    };
    await until(isSaid, `${what}: the loss`, { everyMs: 100 }).catch((cause: unknown) => {
      throw new Error(`${what}: lost ${JSON.stringify({ after, ...lost })}, said ${JSON.stringify(known)}`, { cause });
    });
    const entries = store.auditLog.where("type = 'database_updated.v0' ORDER BY id", []);
    const counts = entries.flatMap(({ after: now }) => (now?.commit === after ? Number(now.lost_commits) : []));
    // One that has waited for too long for another gateway is followed by one with more.
    if (counts.at(-1) !== lost.commits || counts.some((count, at) => count <= (counts[at - 1] ?? 0)))
      throw new Error(`${what}: the audit log has ${counts} lost commits, not ${lost.commits}`);
  }

  /** Users without their entries in the audit log, and entries without their users. */
  async halves(): Promise<string[]> {
    const rows = await this.server.query<{ id: string }>(
      `SELECT id FROM (
        SELECT row->>'id' AS id FROM device_agent.rows WHERE tbl = 'bot_users' AND row->>'name' = '${WRITTEN}'
        UNION ALL SELECT row->>'object_id' FROM device_agent.rows WHERE tbl = 'audit_log' AND row->>'type' = '${CREATED}'
      ) AS sides GROUP BY id HAVING count(*) <> 2`,
    );
    return rows.map(({ id }) => id);
  }

  /** Writes and reads by the management API of each gateway all the time. @returns what ends it */
  beginWrites(record: WritesRecord): () => Promise<void> {
    const ended = new AbortController();
    const all = this.nodes.map(async (node) => {
      while (!ended.signal.aborted) {
        if (!record.isPaused) await this.#writeAndRead(node, record);
        await delay(WRITE_EVERY_MS, undefined, { signal: ended.signal }).catch(() => {});
      }
    });
    return async () => {
      ended.abort();
      await Promise.all(all);
    };
  }

  async #writeAndRead(node: HistoryNode, record: WritesRecord): Promise<void> {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const asked = record.begins(node.name);
    const written = await this.#call(node, 'POST', '/bot_users', { agent, body: { name: WRITTEN } });
    record.written(asked, written?.status ?? null, String(written?.body.id));
    for (const id of new Set([record.seenAt(node.name), record.newest])) {
      if (id === undefined) continue;
      const read = await this.#call(node, 'GET', `/bot_users/${id}`, { agent });
      record.read(asked, read?.status ?? null, id);
    }
    agent.destroy();
  }

  /** Ids of what was written; the database has to answer. */
  async written(): Promise<Set<string>> {
    const rows = await this.server.query<{ id: string }>(
      `SELECT row->>'id' AS id FROM device_agent.rows WHERE tbl = 'bot_users' AND row IS NOT NULL`,
    );
    return new Set(rows.map(({ id }) => id));
  }

  /** Deletes what was written. */
  async forgetWrites(): Promise<void> {
    const { store } = this.own;
    const { database } = store;
    await database.write(() => {
      database.run('DELETE FROM bot_users');
      database.run('DELETE FROM audit_log WHERE type = ?', [CREATED]);
    });
  }

  /** Waits until one of the gateways that run is primary. */
  async hasPrimary(what: string): Promise<void> {
    const isThere = async () => {
      const found = await this.server.query(
        `SELECT FROM device_agent.nodes JOIN device_agent.rows ON row->>'value' = id
        WHERE tbl = 'facts' AND key = '["primary_node"]'
          AND renewed > clock_timestamp() - interval '${PERIODS.silentMs} milliseconds'`,
      );
      return found.length > 0;
    };
    await until(isThere, `${what}: a primary gateway`, { withinMs: PRIMARY_MS, everyMs: 100 });
  }

  /** The gateway that is primary. */
  async primary(what: string): Promise<HistoryNode> {
    await this.hasPrimary(what);
    const [holder] = await this.server.query<{ id: string }>(
      `SELECT row->>'value' AS id FROM device_agent.rows WHERE tbl = 'facts' AND key = '["primary_node"]'`,
    );
    for (const node of this.nodes) if ((await this.idOf(node)) === holder?.id) return node;
    throw new Error(`${what}: the primary gateway is none of these`);
  }

  async idOf({ link }: HistoryNode): Promise<string> {
    const nodes = await this.own.shared.postgres.nodes();
    return nodes.find(({ address }) => address === link.address)?.id ?? '';
  }

  /** As `device-agent gateway drain`. */
  async drain(node: HistoryNode): Promise<void> {
    await this.own.shared.postgres.drain(await this.idOf(node));
  }

  /** As `device-agent gateway nodes remove`. */
  async remove(node: HistoryNode): Promise<void> {
    await this.own.shared.postgres.leave(await this.idOf(node));
  }

  /** A gateway has an order of a certificate under way; a device with an authtoken is online, and one whose was rotated. */
  async holds(node: HistoryNode, { id }: Credential): Promise<void> {
    const { store } = this.own;
    const { database, botUsers, devices, ids } = store;
    await database.write(() => {
      const owner = { id: ids.next('bot'), created_at: store.now(), name: id, active: true };
      botUsers.insert(owner);
      database.setFact(`challenges at _acme-challenge.${node.name}`, 'value');
      for (const [name, credential_id] of [[id, id] as const, [`${id}-rotated`, null] as const]) {
        devices.insert(
          devices.newRow({
            ...{ id: ids.next('dev'), created_at: store.now(), name, site: 'site', owner_id: owner.id, credential_id },
            ...{ install_hash: Buffer.from(name), generation: 1, issued_generation: 1, status: 'enrolled' },
            ...{ own_names_only: false, internal_names: false, kept_rules: [], labels: {}, online: true },
            ...{ last_seen_at: store.now(), history: [] },
          }),
        );
      }
    });
  }

  /** Another gateway passes a command on to a session at one. */
  async commands(id: string): Promise<void> {
    const { database } = this.own.store;
    const insert = 'INSERT INTO agent_commands (id, node, session_id, command) VALUES (?, ?, ?, ?)';
    await database.write(() => database.run(insert, [randomUUID(), id, 'ts_1', 'stop']));
  }

  /** What is still held for a gateway, or counts as online at it. */
  async held(id: string, device: Credential): Promise<string[]> {
    const rows = await this.server.query<{ tbl: string; key: string }>(
      `SELECT tbl, key FROM device_agent.rows WHERE row IS NOT NULL AND (
        (tbl = 'agent_commands' AND row->>'node' = '${id}') OR (tbl = 'facts' AND key LIKE '%challenges at%')
        OR (tbl = 'devices' AND row->>'name' LIKE '${device.id}%' AND row->>'online' = '1'))`,
    );
    return rows.map(({ tbl, key }) => `${tbl} ${key}`);
  }

  /** Authtokens that are valid at all gateways. */
  async newCredentials(count: number): Promise<Credential[]> {
    const { store } = this.own;
    const issued = Array.from({ length: count }, () => store.database.write(() => issueCredential(store, { acl: [] })));
    const credentials = await Promise.all(issued);
    await this.settled('new authtokens');
    return credentials.map(({ row, token }) => ({ id: row.id, token }));
  }

  /**
   * Revokes an authtoken by the management API of a gateway; as long as that is unavailable, it is asked again. The answer waits
   * for all gateways, for 2 s at most, but for none that is silent: this waits for those.
   *
   * @returns the status of its answer
   */
  async revoke({ id }: Credential, node: HistoryNode): Promise<number | null> {
    let status: number | null = null;
    let asked = 0;
    let askedAt = 0;
    const isAnswered = async () => {
      askedAt = performance.now();
      status = (await this.#call(node, 'DELETE', `/credentials/${id}`))?.status ?? null;
      asked += 1;
      return status !== 503 && status !== null;
    };
    await until(isAnswered, 'a revocation', { everyMs: 100 });
    const tookMs = performance.now() - askedAt;
    const behind = await this.#without(id);
    // One that has said something since then may have been silent for the others until then.
    const sinceMs = performance.now() - askedAt;
    const early = behind.filter((silentMs) => silentMs > sinceMs && silentMs < PERIODS.silentMs);
    if (asked === 1 && tookMs < REVOCATION_MS && early.length > 0)
      throw new Error(`revoked, but not at a gateway that was heard of ${early} ms ago`);
    await until(async () => (await this.#without(id)).length === 0, 'a revocation at all gateways', { everyMs: 20 });
    // What was not answered may have been done.
    return asked > 1 && status === 404 ? 204 : status;
  }

  /**
   * For how long the gateways are silent that do not say yet that they have applied the end of an authtoken, in milliseconds. The
   * one that has made it is left out: it says so late, too.
   */
  async #without(id: string): Promise<number[]> {
    const behind = await this.database.query<{ silent: string }>(
      `SELECT EXTRACT(EPOCH FROM clock_timestamp() - renewed) * 1000 AS silent FROM device_agent.nodes
      WHERE applied < (SELECT version FROM device_agent.rows WHERE tbl = 'credentials' AND key = '["${id}"]')
      AND id <> (SELECT row->>'value' FROM device_agent.rows WHERE tbl = 'facts' AND key = '["primary_node"]')`,
    );
    return behind.map(({ silent }) => Number(silent));
  }

  /** @returns null without an answer */
  async #call(
    { httpsPort }: HistoryNode,
    method: string,
    path: string,
    { agent = false, body }: { agent?: Agent | false; body?: object } = {},
  ): Promise<{ status: number; body: Record<string, unknown> } | null> {
    const headers = {
      host: `api.localhost:${httpsPort}`,
      authorization: `Bearer ${this.apiKey}`,
      'service-version': '2',
      ...(body && { 'content-type': 'application/json' }),
    };
    const to = { host: '127.0.0.1', port: httpsPort, servername: 'api.localhost', rejectUnauthorized: false };
    const signal = AbortSignal.timeout(CLIENT_PATIENCE_MS);
    try {
      const answer = await new Promise<IncomingMessage>((resolve, reject) => {
        const req = request({ ...to, headers, agent, method, path, signal }, resolve);
        req.on('error', reject);
        req.end(body && JSON.stringify(body));
      });
      const content = await text(answer);
      return { status: Number(answer.statusCode), body: content === '' ? {} : JSON.parse(content) };
    } catch {
      return null;
    }
  }

  /** @returns what puts the database back to the state in which it is now */
  async snapshot(): Promise<() => Promise<void>> {
    const id = randomUUID().slice(0, 8);
    const copy = TABLES.map((table) => `CREATE TABLE old_${id}_${table} AS TABLE device_agent.${table};`);
    await this.database.query(`BEGIN ISOLATION LEVEL REPEATABLE READ; ${copy.join(' ')} COMMIT`);
    const back = TABLES.map(
      (table) =>
        `DELETE FROM device_agent.${table}; INSERT INTO device_agent.${table} SELECT * FROM old_${id}_${table};`,
    );
    const forget = TABLES.map((table) => `DROP TABLE old_${id}_${table};`);
    return async () => {
      await this.database.query(`BEGIN; ${back.join(' ')} ${forget.join(' ')} COMMIT`);
    };
  }

  /** Waits until all copies of the database are equal. It has to answer. */
  settled(what: string): Promise<void> {
    const { shared } = this.own;
    const areEqual = async () => {
      // It fails while it still fetches something.
      const isCurrent = await shared.refresh().then(
        () => true,
        () => false,
      );
      if (!isCurrent) return false;
      const digest = shared.digest();
      return this.nodes.every((node) => node.copy((replica) => replica.digest()) === digest);
    };
    return until(areEqual, `${what}: equal copies`, { everyMs: 50 }).catch(async (cause: unknown) => {
      throw new Error(`${what}: copies differ: ${JSON.stringify(await this.#differences())}`, { cause });
    });
  }

  /** What each gateway lacks of the database, and for how long it has been silent. */
  async #differences(): Promise<object> {
    const { postgres } = this.own.shared;
    const head = await postgres.head();
    const sql = 'SELECT tbl, key, row FROM device_agent.rows WHERE row IS NOT NULL';
    const rows = await this.database.query<SharedRow>(sql);
    const entries = await postgres.nodes();
    const nodes = this.nodes.map((node) => {
      const { name, link } = node;
      const lacking = node.copy((replica) => replica.difference(rows).map(({ tbl, key }) => `${tbl} ${key}`));
      return { name, entry: entries.find(({ address }) => address === link.address), lacking: lacking.slice(0, 9) };
    });
    return { commit: head?.version, nodes };
  }
}

function subscribe(
  { database, eventDestinations, eventSubscriptions, eventDeliveries, now }: Store,
  events: EventsRecord,
) {
  const row = { id: 'ed_1', created_at: now(), description: null, metadata: null };
  const target = { kind: 'syslog', host: '127.0.0.1', port: events.port, transport: 'tcp', framing: 'lf' } as const;
  return database.write(() => {
    const destination = { ...row, ...eventDestinations.sealed(target, row.id) };
    eventDestinations.insert(destination);
    eventSubscriptions.insert({ ...row, id: 'esb_1', sources: [CREATED], destination_ids: [row.id] });
    eventDeliveries.begin(destination);
  });
}
