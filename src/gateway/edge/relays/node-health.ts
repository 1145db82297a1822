import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { Repeats } from '../../../lib/log/repeats.ts';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { DeadlineExceeded, DeadlineSweep, type Timed, withDeadline } from '../../../lib/time/deadline.ts';
import { Standstill } from '../../../lib/time/standstill.ts';
import { GatewaySilent } from '../http/edge-errors.ts';
import type { NodePlace, OtherNodes } from './other-nodes.ts';

/** Milliseconds without an answer after which a node is asked whether it is there. */
export const PATIENCE_MS = 400;
/** Milliseconds that it has for the answer. */
const ASK_MS = 800;
/** Milliseconds without an answer after which a silent node is given up, so that clients are served within two seconds. */
const GIVE_UP_MS = PATIENCE_MS + ASK_MS;
/**
 * A node that has stood still for so many milliseconds does not run what it finds when it wakes: others may have given it up.
 * That is less than {@link GIVE_UP_MS}, since bytes take some time, too.
 */
const VOID_MS = GIVE_UP_MS - 200;
/** How often a node is asked at most, and until it answers. */
const AGAIN_MS = 1_000;
/** Milliseconds of silence after which all connections to a node end. Until then, those that wait for nothing may go on. */
const LOST_MS = 10_000;
const SWEEP_MS = 100;
/** A node that stood still for so many milliseconds itself asks once more before it blames the other one. */
const PAUSE_MS = 400;

/** A connection to a node. */
export interface NodeLink {
  readonly node: NodePlace;
  /** Another node that serves the same; undefined: none does. */
  readonly spare: NodePlace | undefined;
  /** Since when nothing has followed what was sent, in milliseconds of `performance.now()`; null: something has. */
  readonly unansweredSince: number | null;
  /** Ends the connection, which nothing comes from. */
  giveUp(): void;
}

/** What those who open connections to nodes need of it. */
export type LinkHealth = Pick<NodeHealth, 'failed' | 'answers' | 'watch'>;

/** Nothing is judged: for programs that only ask. */
export const NO_HEALTH: LinkHealth = { failed() {}, answers: async () => true, watch: () => () => {} };

/** Finds out whether nodes answer once that is in doubt, and asks those that do not until they do. */
export class NodeHealth {
  readonly #asking = new Map<string, Promise<boolean>>();
  readonly #askedAt = new Map<string, number>();
  /** Since when nodes have been silent. */
  readonly #silentSince = new Map<string, number>();
  /** Those that are asked until they answer. */
  readonly #watched = new Set<string>();
  readonly #links = new DeadlineSweep<Timed>(SWEEP_MS);
  readonly #failures = new Repeats();
  readonly #standstill = new Standstill(PAUSE_MS);
  #isStopped = false;

  constructor(
    private readonly options: {
      nodes: Pick<OtherNodes, 'failed' | 'answered' | 'serves'>;
      /** Resolves when the node has answered. */
      ask: (node: NodePlace) => Promise<void>;
      log: Log;
    },
  ) {}

  stop(): void {
    this.#isStopped = true;
    this.#standstill.stop();
  }

  /** Whether what is read now may have waited for so long that the node which sent it has given it up. */
  get isVoid(): boolean {
    return this.#standstill.lastedMs >= VOID_MS;
  }

  /** Gives a connection up when its node is silent. @returns ends that */
  watch(link: NodeLink): () => void {
    const check = { checkTime: (now: number) => this.#check(link, now) };
    this.#links.add(check);
    return () => void this.#links.delete(check);
  }

  /** Whether a node answers now. One that is silent is not waited for. */
  async answers(node: NodePlace): Promise<boolean> {
    return !this.#silentSince.has(node.id) && (await this.#asked(node));
  }

  #asked(node: NodePlace): Promise<boolean> {
    const { id } = node;
    const asking = this.#asking.get(id) ?? this.#ask(node).finally(() => this.#asking.delete(id));
    this.#asking.set(id, asking);
    return asking;
  }

  /** A node could not be reached, or has not answered: others come first until it does. */
  readonly failed = (node: NodePlace, error: unknown): void => {
    const { id, host, port } = node;
    const { nodes, log } = this.options;
    nodes.failed(id);
    const times = this.#failures.timesDue(id);
    const facts = { node: id, address: hostPort(host, port), times, reason: messageOf(error) };
    if (times !== null) log.warn(facts, 'other gateway does not answer');
    if (this.#watched.has(id)) return;
    this.#watched.add(id);
    void this.#askUntilAnswered(node);
  };

  async #askUntilAnswered(node: NodePlace): Promise<void> {
    const { id, host, port } = node;
    const { nodes, log } = this.options;
    while (!this.#isStopped && nodes.serves(id)) {
      if (await this.#asked(node)) {
        log.info({ node: id, address: hostPort(host, port) }, 'other gateway answers again');
        break;
      }
      await delay(AGAIN_MS, undefined, { ref: false });
    }
    this.#watched.delete(id);
    this.#silentSince.delete(id);
    nodes.answered(id);
  }

  async #ask(node: NodePlace, isAgain = false): Promise<boolean> {
    const began = performance.now();
    this.#askedAt.set(node.id, began);
    try {
      await withDeadline(this.options.ask(node), 'the answer of the gateway', ASK_MS);
      return true;
    } catch (error) {
      if (this.#standstill.since(began) && !isAgain) return this.#ask(node, true);
      const isSilent = error instanceof DeadlineExceeded;
      // One that refuses connections may be ending, and finishes what it serves.
      if (isSilent && !this.#silentSince.has(node.id)) this.#silentSince.set(node.id, began);
      this.failed(node, isSilent ? new GatewaySilent() : error);
      return false;
    }
  }

  #check(link: NodeLink, now: number): void {
    const { node, spare, unansweredSince } = link;
    const silentSince = this.#silentSince.get(node.id);
    if (silentSince === undefined) {
      if (unansweredSince !== null && now - unansweredSince >= PATIENCE_MS) this.#doubt(node, now);
      return;
    }
    const waitedMs = unansweredSince === null ? 0 : now - unansweredSince;
    const hasSpare = spare !== undefined && !this.#silentSince.has(spare.id);
    if ((hasSpare && waitedMs >= GIVE_UP_MS) || now - silentSince >= LOST_MS) link.giveUp();
  }

  /** Upstreams may take long to answer: nodes are asked only now and then. */
  #doubt(node: NodePlace, now: number): void {
    const askedAt = this.#askedAt.get(node.id) ?? Number.NEGATIVE_INFINITY;
    if (now - askedAt >= AGAIN_MS) void this.answers(node);
  }
}
