import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { ApiError, messageOf } from '../../lib/errors.ts';
import { DeadlineExceeded, withDeadline } from '../../lib/time/deadline.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { Periods } from '../context/gateway-options.ts';
import { type NodeQuestion, RelayTickets } from '../edge/relays/relay-tickets.ts';
import { Relays, type RelaysOptions } from '../edge/relays/relays.ts';
import type { LiveEndpoint, LiveTunnel, LiveView, Revocation } from '../endpoints/live-view.ts';
import { expectedIn } from '../endpoints/online-addresses-file.ts';
import {
  type EndpointProtocol,
  type LabeledUpstream,
  type LabelHolder,
  type Labels,
  matchesSelector,
} from '../endpoints/online-endpoint.ts';
import type { PortOpener } from '../endpoints/tcp-port-allocator.ts';
import { noteOthers, type OtherGateways, readOthers } from '../store/shared/copy-files.ts';
import type { Node } from '../store/shared/postgres.ts';
import type { SharedWrites } from '../store/shared/shared-writes.ts';
import { DatabaseAway } from '../store/sql/database-problems.ts';
import { GivenUpUpdate, parseFact, UPDATE_GIVEN_UP, UPDATE_TURN, UpdateTurn } from '../store/update-facts.ts';
import { AddressLeases, type OnlineHere } from './address-leases.ts';
import { AgentReturns, type MovableSessions } from './agent-returns.ts';
import { ClusterLive, CountedByOthers, forgetCommands, nodesWithCommands } from './cluster-live.ts';
import { Nodes, PERIODS, placeOfNode } from './nodes.ts';
import { type OnlineRow, OnlineRows } from './online-rows.ts';
import { Primary } from './primary.ts';
import { RelayedPorts, ServedElsewhere } from './served-elsewhere.ts';

type Shared = Pick<SharedWrites, 'node' | 'applied' | 'postgres' | 'refresh' | 'away'>;

type RelaysHere = Pick<ConstructorParameters<typeof ServedElsewhere>[0], 'edgeAt' | 'isService'> &
  Pick<RelaysOptions, 'authority' | 'isOurs' | 'commonName'>;

interface Sessions extends MovableSessions {
  on(event: 'added' | 'removed', listener: () => void): unknown;
  /** Takes no further agents, and ends the sessions one after another. */
  drain(): void;
}

/** Begins the names of facts with the values of DNS challenges. */
const CHALLENGES = 'challenges at';
/** How often a node looks whether it has to do something, at most; and in each of its periods. */
const CHECK_MS = 1_000;
const CHECKS = 4;
/** How often, at most, and for how long a client's unknown name is looked up in the shared database. */
const CATCH_UP_MS = 100;
const CATCH_UP_LIMIT_MS = 300;
/** For so long after its start, at most, unknown names wait for what the others say. */
const EXPECTING_MS = 1_000;
/** For so long a start waits for what this gateway lacks, when it was cut off from the database. */
const START_MS = 2_500;
/** Parts of the period after which others take a gateway for lost: one without an answer looks for another way before. */
const DETOUR_PARTS = 5;
/** How long and how often it asks whether the others have applied a change: 2 s. */
const LOOKS = 20;
const LOOK_MS = 100;
/** What no event announces is told to the others in time, too: changed descriptions, labelled tunnels. */
const SYNC_EVERY = 5;
/** A device without a session counts as offline after so many looks: its gateway records that itself within 10 s. */
const LOOKS_WITHOUT_SESSION = 3;

/** This gateway among those that share its database: which there are, what they serve, and what it has leased itself. */
export class Cluster {
  readonly nodes: Nodes;
  readonly rows: OnlineRows;
  readonly leases: AddressLeases;
  readonly primary: Primary;
  readonly #returns: AgentReturns;
  #ports: RelayedPorts | null = null;
  #counted: CountedByOthers | null = null;
  #timer: NodeJS.Timeout | undefined;
  #sessions: Sessions | null = null;
  #caughtUpAt = Number.NEGATIVE_INFINITY;
  /** The next one, which has not begun. */
  #nextCatchUp: Promise<void> | null = null;
  /** Addresses online at nodes of which it is not known yet where they are. */
  readonly #unplaced = new Set<string>();
  /** Resolves when the other nodes have said which agents they expect back, or do not in time. */
  #expecting: Promise<void> = Promise.resolve();
  /** What is known of the other nodes as long as the database has not answered, and what is noted of them since. */
  #others: OtherGateways;
  #noting: Promise<void> = Promise.resolve();
  /** Devices that are marked as online without a session: how many looks have found them so, and when the first one did. */
  #withoutSession = new Map<string, { looks: number; since: string }>();

  readonly #periods: Periods;
  /** Where it notes which others there are. */
  readonly #folder: string;

  constructor(
    private readonly context: Pick<GatewayContext, 'options' | 'store' | 'endpoints' | 'log'>,
    private readonly shared: Shared,
  ) {
    const { options, store, log } = context;
    const { database, cloudEndpoints } = store;
    this.#periods = options.periods ?? PERIODS;
    this.#folder = join(options.dataDir, 'gateway');
    this.nodes = new Nodes(shared.node, this.#periods);
    this.#others = readOthers(this.#folder, log);
    this.rows = new OnlineRows(database, shared.node, {
      change: (row, isThere) => {
        if (isThere) this.nodes.rowApplied(row.node);
        this.#ports?.update(row, isThere);
        this.#expectAgent(row, isThere);
      },
      own: () => this.leases.syncSoon(),
    });
    const refresh = () => shared.refresh();
    this.leases = new AddressLeases({ database, rows: this.rows, cloudEndpoints, nodes: this.nodes, refresh, log });
    this.primary = new Primary({ database, nodes: this.nodes, log });
    const onTrial = () => parseFact(UpdateTurn, database.fact(UPDATE_TURN))?.node ?? null;
    this.#returns = new AgentReturns({ nodes: this.nodes, rows: this.rows, log }, { onTrial });
    this.primary.whileSelf(() => {
      this.#forgetChallenges();
      return async () => {};
    });
  }

  /** An endpoint that has gone from another node together with its session has lost its agent, which may come back anywhere. */
  #expectAgent({ place, node, view, protocol, taken, credential_id: credentialId }: OnlineRow, isThere: boolean): void {
    const { endpoints } = this.context;
    if (place === null) return;
    if (isThere) {
      if (taken) return;
      // Clients that wait for it go there, as soon as it is known where that node is.
      if (this.nodes.place(node) === undefined) this.#unplaced.add(place);
      else endpoints.lost.found(place);
      return;
    }
    const { host, port, internal, sessionId, needsOwnConnection } = view as LiveEndpoint;
    const address = { protocol: protocol as EndpointProtocol, host, port, internal };
    // The session's row is gone in the same commit.
    setImmediate(() => {
      const isServed = endpoints.holders(address).length > 0 || [...this.rows.at(place)].length > 0;
      if (isServed || this.rows.withId(sessionId ?? '').some((session) => session.node === node)) return;
      const needsHandshake = protocol === 'tls' || needsOwnConnection === true;
      endpoints.lost.note({ place, credentialId, needsHandshake }, 'lost');
    });
  }

  update(nodes: readonly Node[], askedAt: number): void {
    const commanded = nodesWithCommands(this.context.store.database);
    this.nodes.update(nodes, askedAt, [...this.rows.nodes(), ...commanded, this.primary.holder ?? this.nodes.self]);
    for (const place of this.#unplaced) {
      const there = [...this.rows.at(place)];
      const isPlaced = there.some(({ node, taken }) => !taken && this.nodes.place(node) !== undefined);
      if (isPlaced) this.context.endpoints.lost.found(place);
      if (isPlaced || there.length === 0) this.#unplaced.delete(place);
    }
    if (this.nodes.isDraining(this.nodes.self)) this.#sessions?.drain();
    const isThere = ({ id, alone }: Node) => !alone && id !== this.nodes.self && this.nodes.place(id) !== undefined;
    const others = nodes.filter(isThere).map(({ id, address }) => ({ id, address }));
    if (isDeepStrictEqual(others, this.#others)) return;
    this.#others = others;
    this.#noting = this.#noting.then(() => noteOthers(this.#folder, others, this.context.log));
  }

  /** Waits before clients are served, when the database did not answer so far: another node may reach it. Limited in time. */
  async catchUpFirst(): Promise<void> {
    if (this.shared.away === null) return;
    const caughtUp = withDeadline(this.shared.refresh(), 'catching up with the shared database', START_MS);
    await caughtUp.catch((error: unknown) => {
      // It goes on in the background.
      if (!(error instanceof DatabaseAway || error instanceof DeadlineExceeded)) throw error;
    });
  }

  /** What passes connections on to other nodes. @param here see {@link ServedElsewhere} and {@link Relays} */
  relays({ authority, isOurs, commonName, ...here }: RelaysHere): Relays {
    const { store, endpoints, log } = this.context;
    const { shared } = this;
    const { rows, nodes: known, primary } = this;
    const withLabels = (labels: Labels) => {
      const tunnel = this.withLabels(labels);
      return tunnel && 'node' in tunnel ? known.place(tunnel.node) : undefined;
    };
    const catchUp = () => this.catchUp();
    const nodes = new ServedElsewhere({ ...here, rows, nodes: known, endpoints, primary, withLabels, catchUp });
    const tickets = new RelayTickets(
      () => store.box.keysFor(RelayTickets.PURPOSE),
      shared.node,
      () => known.sharedTime,
    );
    const { postgres } = shared;
    const dial = () => postgres.dial();
    const relays = new Relays({ tickets, nodes, authority, isOurs, commonName, dial, log });
    const open = () => relays.databases.open(this.#others.map(placeOfNode));
    postgres.detourBy({ open, afterMs: this.#periods.silentMs / DETOUR_PARTS });
    this.#counted = new CountedByOthers(known, relays);
    const expecting = withDeadline(this.#expectAsOthers(relays), 'asking which agents are expected', EXPECTING_MS);
    // It goes on; unknown names wait no longer.
    this.#expecting = expecting.catch(() => {});
    return relays;
  }

  /**
   * Expects the agents that other nodes expect. Their sessions may have ended while this one started, so its copy no longer has their
   * names.
   */
  async #expectAsOthers(relays: Pick<Relays, 'ask'>): Promise<void> {
    const { endpoints } = this.context;
    const ask = async (node: OtherGateways[number]) => {
      // Why one does not answer is logged where it is asked. Earlier versions do not.
      const text = await relays.ask(placeOfNode(node), 'expected').catch(() => '');
      for (const address of expectedIn(text)) {
        const { place } = address;
        const isServed = endpoints.atPlace(place).length > 0 || [...this.rows.at(place)].length > 0;
        // Those of this gateway's own file may be expected for longer.
        if (!isServed && endpoints.lost.at(place) === undefined) endpoints.lost.note(address, 'lost');
      }
    };
    await Promise.all(this.#others.map(ask));
  }

  /** The next labelled tunnel that matches, or one that does at another node. */
  withLabels(selector: Labels): LabeledUpstream | (LabelHolder & { node: string }) | undefined {
    const { store, endpoints } = this.context;
    const elsewhere = [...this.rows.labelled].flatMap(({ node, view, credential_id: id }) => {
      const { labels, startedAt } = view as LiveTunnel;
      if (!matchesSelector(labels ?? {}, selector)) return [];
      if (this.nodes.place(node) === undefined) return [];
      const row = store.credentials.get(id);
      const credential = { id, ownerId: row?.owner_id ?? null, hasRules: () => (row?.acl.length ?? 0) > 0 };
      return [{ node, publicId: view.id, owner: { credential }, boundAt: new Date(startedAt) }];
    });
    return endpoints.withLabels(selector, elsewhere);
  }

  /** Opens the ports of tcp endpoints that are online at other nodes. */
  openPorts(opener: PortOpener): void {
    this.#ports = new RelayedPorts(opener, this.context.log);
    for (const row of this.rows.others) this.#ports.update(row, true);
  }

  /** Whether another authtoken has an endpoint at exactly this name or wildcard at another node. */
  isNameOfOther(hostname: string, credentialId: string): boolean {
    const rows = (['http', 'tls'] as const).flatMap((port) => [...this.rows.atName(port, hostname)]);
    return rows.some((row) => row.credential_id !== credentialId && this.nodes.state(row.node) !== 'gone');
  }

  /** Lets the DNS servers of all nodes answer challenges of orders that this one makes. */
  publishChallenges(name: string, values: readonly string[]): void {
    const { store, log } = this.context;
    const fact = `${CHALLENGES} ${name}`;
    const write = () =>
      values.length > 0 ? store.database.setFact(fact, values.join('\n')) : store.database.forgetFact(fact);
    store.database.write(write).catch((error: unknown) => {
      log.warn({ domain: name, reason: messageOf(error) }, 'DNS challenge not passed on to other gateways');
    });
  }

  /** Orders of the primary node before this one are over. */
  #forgetChallenges(): void {
    const { database } = this.context.store;
    const left = database.allValues('SELECT name FROM facts WHERE name LIKE ?', [`${CHALLENGES} %`]).flat() as string[];
    for (const fact of left) this.publishChallenges(fact.slice(CHALLENGES.length + 1), []);
  }

  challengesAt(name: string): readonly string[] {
    return this.context.store.database.fact(`${CHALLENGES} ${name}`)?.split('\n') ?? [];
  }

  /** What agents may know of the nodes. @param serverName of their connections */
  sessionNode(serverName: string) {
    const { nodes, rows } = this;
    return {
      id: nodes.self,
      serverName,
      others: () => nodes.others().flatMap(({ id, address }) => (nodes.isUnreachable(id) ? [] : address)),
      hasOther: ({ id, credential }: { id: string; credential: { id: string } }) => {
        const open = new Set(nodes.others().map((node) => node.id));
        return [...rows.sessionsOf(credential.id)].some(({ node, view }) => view.id === id && open.has(node));
      },
    };
  }

  hasSession(credentialId: string): boolean {
    return [...this.rows.sessionsOf(credentialId)].some(({ node }) => this.nodes.state(node) !== 'gone');
  }

  /** Tells the others what is online here, and acts on what they change. @returns what is online at all nodes */
  start(here: LiveView & OnlineHere, sessions: Sessions): LiveView {
    const { store, endpoints, log } = this.context;
    const changed = () => this.leases.syncSoon();
    for (const event of ['added', 'retired', 'removed'] as const) endpoints.on(event, changed);
    for (const event of ['added', 'removed'] as const) sessions.on(event, changed);
    this.leases.begin(here);
    this.#sessions = sessions;
    store.database.onRowApplied((table, id) => {
      this.#revoke(here, table, id);
      if (table === 'facts') this.#tellUpdates(id);
    });
    let checks = 0;
    const check = () => {
      checks += 1;
      this.#check(checks % SYNC_EVERY === 0).catch((err: unknown) => {
        log.error({ err }, 'state of the cluster not checked');
      });
    };
    check();
    this.#timer = setInterval(check, Math.min(CHECK_MS, this.#periods.marginMs / CHECKS));
    const { nodes, rows } = this;
    const appliedEverywhere = () => this.#appliedEverywhere();
    const counted = this.#counted;
    return new ClusterLive({ database: store.database, nodes, rows, here, counted, appliedEverywhere, log });
  }

  /** What the other nodes answer to a question, by their addresses; those that do not answer are left out. */
  async askOthers(relays: Pick<Relays, 'ask'>, ...question: [NodeQuestion, string]): Promise<Map<string, string>> {
    const { all, self } = this.nodes;
    const answers = all
      .filter(({ id }) => id !== self)
      .map(async ({ id, address }): Promise<[string, string][]> => {
        const place = this.nodes.place(id);
        // Why one does not answer is logged where it is asked.
        const answer = place && (await relays.ask(place, ...question).catch(() => undefined));
        return answer === undefined ? [] : [[address, answer]];
      });
    return new Map((await Promise.all(answers)).flat());
  }

  /** Prometheus text of a node; `here`: of this one. @throws {ApiError} when none has the address, or it does not answer */
  async metricsOf(address: string, relays: Pick<Relays, 'ask'>, here: () => Promise<string>): Promise<string> {
    const { nodes } = this;
    const node = nodes.all.find((each) => each.address === address);
    if (!node) {
      const known = nodes.all.map((each) => each.address).join(', ');
      throw new ApiError(400, 'ERR_NGROK_231', `no gateway has the address ${address}; there are: ${known}`);
    }
    if (node.id === nodes.self) return here();
    const place = nodes.place(node.id);
    try {
      if (place === undefined) throw new Error('it is silent');
      return await relays.ask(place, 'metrics');
    } catch (cause) {
      throw new ApiError(503, 'ERR_NGROK_741', `the gateway ${address} does not answer: ${messageOf(cause)}`, {
        cause,
      });
    }
  }

  /** Ends what only the primary node does, and tells the others that nothing is online here any more. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#ports?.stop();
    await this.primary.stop();
    await this.leases.stop();
    await this.#noting;
  }

  /** Clients ask for names that have come online a moment ago, and for any others: the database is asked only so often. */
  async catchUp(): Promise<void> {
    await this.#expecting;
    if (this.nodes.isCutOff) return;
    this.#nextCatchUp ??= this.#catchUpLater();
    await Promise.race([this.#nextCatchUp, delay(CATCH_UP_LIMIT_MS, undefined, { ref: false })]);
  }

  /** One for all who ask before it begins: what has come online before is known afterwards. */
  async #catchUpLater(): Promise<void> {
    await delay(Math.max(0, CATCH_UP_MS - (performance.now() - this.#caughtUpAt)), undefined, { ref: false });
    this.#nextCatchUp = null;
    this.#caughtUpAt = performance.now();
    await this.shared.refresh().catch((err: unknown) => {
      if (!(err instanceof DatabaseAway)) this.context.log.error({ err }, 'state of the cluster not checked');
    });
  }

  async #check(syncs: boolean): Promise<void> {
    if (this.nodes.hasExpired) this.leases.giveUp();
    await this.primary.check();
    if (this.#sessions && !this.nodes.isCutOff) this.#returns.look(this.#sessions);
    if (!syncs) return;
    await this.leases.sync();
    if (this.primary.isSelf) await this.#forgetLost();
  }

  /** Ends what nobody serves any more: rows of lost nodes, commands to them, and that devices are online. */
  async #forgetLost(): Promise<void> {
    const { store, log } = this.context;
    const { database, devices } = store;
    const isGone = (node: string) => this.nodes.state(node) === 'gone';
    const rows = [...this.rows.others].filter(({ node }) => isGone(node));
    const commanded = nodesWithCommands(database).filter(isGone);
    const offline = this.#devicesWithoutSession();
    if (rows.length + commanded.length + offline.length === 0) return;
    try {
      await database.write(() => {
        for (const { key, node } of rows) if (isGone(node)) this.rows.delete(key);
        for (const node of commanded) if (isGone(node)) forgetCommands(database, node);
        for (const [id, last_seen_at] of offline) {
          const device = devices.get(id);
          if (device?.online && !this.#isOnline(device)) devices.update({ ...device, online: false, last_seen_at });
        }
      });
    } catch (error) {
      if (!(error instanceof DatabaseAway)) log.warn({ reason: messageOf(error) }, 'lost gateway not forgotten');
    }
  }

  /** Devices that count as online, but have had no session for some looks, as their gateway was lost; and since when. */
  #devicesWithoutSession(): [id: string, since: string][] {
    const { devices, now } = this.context.store;
    const found = new Map<string, { looks: number; since: string }>();
    for (const device of devices.markedOnline()) {
      if (this.#isOnline(device)) continue;
      const { looks, since } = this.#withoutSession.get(device.id) ?? { looks: 0, since: now() };
      found.set(device.id, { looks: looks + 1, since });
    }
    this.#withoutSession = found;
    return [...found].flatMap(([id, { looks, since }]) => (looks > LOOKS_WITHOUT_SESSION ? [[id, since]] : []));
  }

  /** Sessions of an authtoken that was revoked or rotated are being ended. */
  #isOnline({ credential_id: id }: { credential_id: string | null }): boolean {
    return id !== null && (this.hasSession(id) || this.rows.hasOwnSession(id));
  }

  /** Says in the log of each gateway which one updates itself, and what was given up. */
  #tellUpdates(fact: string): void {
    const { store, log } = this.context;
    const text = store.database.fact(fact);
    if (fact === UPDATE_TURN) {
      const turn = parseFact(UpdateTurn, text);
      if (turn?.state === 'trying') {
        const { address, version } = turn;
        log.info({ address, version }, 'gateway updates itself');
      }
    }
    if (fact === UPDATE_GIVEN_UP) {
      const givenUp = parseFact(GivenUpUpdate, text);
      if (givenUp === null) return;
      const { address, version, reason } = givenUp;
      log.error({ address, version, reason }, 'update given up by a gateway: the others do not install it');
    }
  }

  async #appliedEverywhere(): Promise<void> {
    const { log } = this.context;
    const { shared } = this;
    const { applied } = shared;
    // By what the database says now: a node may have started a moment ago. One that is silent may still serve its agents.
    const isBehind = ({ id, applied: other, silentSeconds }: Node) =>
      id !== shared.node && other < applied && silentSeconds * 1000 < this.#periods.expiredMs;
    const isHeard = ({ silentSeconds }: Node) => silentSeconds * 1000 < this.#periods.silentMs;
    let behind: readonly Node[] = this.nodes.all.filter(({ id }) => id !== shared.node);
    for (let looks = 0; looks < LOOKS; looks += 1) {
      try {
        behind = (await shared.postgres.nodes()).filter(isBehind);
        if (!behind.some(isHeard)) break;
      } catch (error) {
        if (!(error instanceof DatabaseAway)) throw error;
      }
      await delay(LOOK_MS);
    }
    if (behind.length > 0)
      log.warn({ nodes: behind.map(({ address }) => address) }, 'revoked here, but not yet at other gateways');
  }

  /** Another node may have made the change. */
  #revoke(here: LiveView, table: string, id: string): void {
    const revoked = this.#revocationOf(table, id);
    if (revoked === null) return;
    here.revoke(revoked).catch((err: unknown) => this.context.log.error({ err }, 'revocation failed'));
  }

  #revocationOf(table: string, id: string): Revocation | null {
    const { credentials, botUsers, devices, reservedDomains } = this.context.store;
    if (table === 'credentials') return credentials.get(id) === null ? { credentialIds: [id] } : { narrowedId: id };
    if (table === 'bot_users') return botUsers.isActive(id) ? null : { credentialIds: credentials.idsOfOwner(id) };
    if (table === 'ip_restrictions' || table === 'ip_policy_rules') return { addresses: true };
    if (table === 'reserved_domains') return reservedDomains.get(id) === null ? { domain: '' } : null;
    const credentialId = table === 'devices' ? devices.get(id)?.credential_id : null;
    return credentialId ? { narrowedId: credentialId } : null;
  }
}
