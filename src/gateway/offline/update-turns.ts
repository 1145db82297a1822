import { randomUUID } from 'node:crypto';
import { isUnspecified } from '../../lib/network/ip-address.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { PERIODS, placeOfNode } from '../cluster/nodes.ts';
import { type Node, Postgres } from '../store/shared/postgres.ts';
import type { SharedRow } from '../store/shared/replica-tables.ts';
import { GivenUpUpdate, parseFact, UPDATE_GIVEN_UP, UPDATE_TURN, UpdateTurn } from '../store/update-facts.ts';
import { gatewayProof } from './gateway-proof.ts';

/** A turn that has not come to its trial by then is over: what prepared it has ended. */
const PREPARED_MS = 15 * 60_000;
/** No attempt takes so long. If its gateway serves all the same, the turn has come with a backup that was restored. */
const TRIED_MS = 60 * 60_000;
/** Nothing of a page is needed. */
const NO_PAGE = { rows: 1, bytes: 1 };
const TABLE = 'facts';

/** Whose turn it is to update itself, what was given up, and who serves the shared database. */
export interface Turns {
  readonly turn: UpdateTurn | null;
  readonly givenUp: GivenUpUpdate | null;
  readonly nodes: readonly Node[];
  /** Unix milliseconds of the shared database. */
  readonly now: number;
}

/** How a gateway is, as the shared database and its own port say. */
export interface NodeLook {
  /** Null: it does not answer, or takes no agents. */
  readonly version: string | null;
  /** How many agents have a session at any gateway, and at this one. */
  readonly agents: number;
  readonly ownAgents: number;
}

/** What becomes of the two facts; left out: it stays. */
interface Changes {
  turn?: UpdateTurn | null;
  givenUp?: GivenUpUpdate | null;
}

/**
 * The turns of gateways that share a database and update themselves one after another, for what runs beside a gateway. No copy
 * is opened: it may have the schema of another version.
 */
export class UpdateTurns {
  constructor(private readonly postgres: Postgres) {}

  /** @throws {OperatorError} when the shared database is unreachable or cannot be used */
  static async use<T>(url: string, work: (turns: UpdateTurns) => Promise<T>): Promise<T> {
    const postgres = new Postgres(url);
    try {
      return await work(new UpdateTurns(postgres));
    } finally {
      await postgres.close();
    }
  }

  async read(): Promise<Turns> {
    const facts = await this.postgres.ask<{ name: string | null; value: string | null; now: string }>(
      `SELECT row->>'name' AS name, row->>'value' AS value, EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS now
      FROM (SELECT 1) AS one LEFT JOIN device_agent.rows ON tbl = $1 AND row->>'name' IN ($2, $3)`,
      [TABLE, UPDATE_TURN, UPDATE_GIVEN_UP],
    );
    const textOf = (name: string) => facts.find((fact) => fact.name === name)?.value;
    const now = Number(facts[0]?.now);
    const nodes = await this.postgres.nodes();
    const turn = parseFact(UpdateTurn, textOf(UPDATE_TURN));
    return {
      turn: turn === null || isOver(turn, nodes, now) ? null : turn,
      givenUp: parseFact(GivenUpUpdate, textOf(UPDATE_GIVEN_UP)),
      nodes,
      now,
    };
  }

  /**
   * Changes whose turn it is, and what was given up, by what they are; others who do so at the same moment come before or after.
   *
   * @param decide may be called again; null: nothing changes
   */
  async change<T>(decide: (turns: Turns) => { changes: Changes | null; result: T }): Promise<T> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const seen = await this.postgres.head();
      if (seen === null) throw new Error('the shared database is empty');
      const { changes, result } = decide(await this.read());
      if (changes === null) return result;
      const batch = randomUUID();
      const rows = [
        ...(changes.turn === undefined ? [] : [factRow(UPDATE_TURN, changes.turn)]),
        ...(changes.givenUp === undefined ? [] : [factRow(UPDATE_GIVEN_UP, changes.givenUp)]),
      ];
      // What decided must not have changed since, either.
      const reads = [UPDATE_TURN, UPDATE_GIVEN_UP].map((value) => ({ table: TABLE, column: 'name', value }));
      const { head } = await this.postgres.commitApart(seen, batch, { rows, reads }, NO_PAGE);
      if (head?.batch === batch) return result;
    }
    throw new Error('the turns of updates in the shared database cannot be changed');
  }

  /** Ends the turn of a gateway that is lost: what it tried may be the reason. @returns that turn; null: it had none */
  removed(id: string): Promise<UpdateTurn | null> {
    return this.change(({ turn, now }) => {
      if (turn?.node !== id) return { changes: null, result: null };
      const { node, address, version } = turn;
      const reason = 'it was removed in its turn';
      const at = new Date(now).toISOString();
      return { changes: { turn: null, givenUp: { node, address, version, at, reason } }, result: turn };
    });
  }

  /** Has the agents of a gateway go to others, and waits until they are gone. @returns whether they are */
  async drain(id: string, { withinMs, sleep }: { withinMs: number; sleep: (ms: number) => Promise<void> }) {
    const nodes = await this.postgres.nodes();
    const canMove = nodes.some((node) => node.id !== id && isHeard(node) && !node.draining);
    const own = nodes.find((node) => node.id === id);
    // A gateway that has crashed has nothing to give away.
    if (own === undefined || !isHeard(own) || !canMove) return true;
    await this.postgres.drain(id);
    for (let left = withinMs; left > 0; left -= LOOK_MS) {
      if (((await this.postgres.online()).get(id)?.sessions ?? 0) === 0) return true;
      // The rows of one that has just crashed stay.
      if (!(await this.postgres.nodes()).some((node) => node.id === id && isHeard(node))) return true;
      await sleep(LOOK_MS);
    }
    return false;
  }

  /** Looks at a gateway of the cluster. */
  async look(id: string, settings: GatewayServerSettings): Promise<NodeLook> {
    const nodes = await this.postgres.nodes();
    const own = nodes.find((node) => node.id === id);
    const heard = nodes.filter(isHeard);
    const agent = "DISTINCT row->>'credential_id'";
    const [found] = await this.postgres.ask<{ agents: string; own: string }>(
      `SELECT count(${agent}) AS agents, count(${agent}) FILTER (WHERE row->>'node' = $2) AS own FROM device_agent.rows
      WHERE tbl = 'online' AND row->>'key' LIKE '% ts\\_%' AND row->>'node' = ANY($1)`,
      [heard.map((node) => node.id), id],
    );
    const counted = { agents: Number(found?.agents ?? 0), ownAgents: Number(found?.own ?? 0) };
    // One that was drained stays empty until it is started again.
    if (own === undefined || !heard.includes(own) || own.draining) return { version: null, ...counted };
    const { clockAheadMs } = await this.postgres.facts();
    // Its process may say that it is there, and serve nobody.
    const prove = gatewayProof(settings, () => Date.now() + clockAheadMs);
    const host = isUnspecified(settings.host) ? '127.0.0.1' : settings.host;
    // A machine may not reach itself by the address for others, nor a gateway answer without a load balancer's header.
    await prove({ id, host, port: settings.httpsPort }).catch(() => prove(placeOfNode(own)));
    return { version: own.build, ...counted };
  }
}

const LOOK_MS = 500;
/** So often, others have changed the same facts, or the database was moved away. */
const MAX_TRIES = 20;

const isHeard = ({ silentSeconds }: Node) => silentSeconds * 1000 < PERIODS.silentMs;

function isOver({ state, at, node: id }: UpdateTurn, nodes: readonly Node[], now: number): boolean {
  const age = now - Date.parse(at);
  if (state === 'preparing') return age > PREPARED_MS;
  return age > TRIED_MS && nodes.some((node) => node.id === id && isHeard(node) && !node.draining);
}

function factRow(name: string, value: object | null): SharedRow {
  return {
    tbl: TABLE,
    key: JSON.stringify([name]),
    row: value === null ? null : { name, value: JSON.stringify(value) },
  };
}
